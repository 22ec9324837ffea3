"""``scrapy gp4c workers``: one crawl on many machines, which agree in a PostgreSQL database."""

from __future__ import annotations

import signal
import sys
from argparse import ArgumentParser, Namespace
from importlib import import_module
from pathlib import Path
from socket import gethostname
from typing import TYPE_CHECKING, Any, Final

from scrapy_gp4c.commands.monitoring import Process, RealClock, Told
from scrapy_gp4c.commands.numbers import positive
from scrapy_gp4c.commands.output import print_json
from scrapy_gp4c.crawling.crawl_status import CrawlStatus
from scrapy_gp4c.errors import Gp4cError, SettingsError

if TYPE_CHECKING:
    from scrapy_gp4c.commands.project import Project

HELP = "crawl on several machines: create the ledger, see its status, join, drain, collect"
DOCUMENT = CrawlStatus
"""What ``status --json`` prints."""
TASKS: Final = {
    "create": "make the ledger in the database of GP4C_LEDGER, whose user must be allowed to create",
    "status": "tell workers, shards and cycle; exit code 1 when something is wrong",
    "join": "crawl as one of the workers, one process per cycle, until Ctrl-C or SIGTERM",
    "drain": "let the worker NAME give up its shards, and end its join",
    "unpark": "let shard NUMBER be taken again, which killed its holders",
    "collect": "put all that the crawl knows into one ordinary store in DIR",
}
LOOK_S: Final = 1.0
"""`join` looks so often whether there is anything to do."""


class NotHealthyError(Gp4cError):
    """Something is wrong with the crawl."""


def add_options(parser: ArgumentParser) -> None:
    """Add the options of this action."""
    told = "; ".join(f"{name}: {what}" for name, what in TASKS.items())
    parser.add_argument("task", choices=TASKS, metavar="TASK", help=told.replace("%", "%%"))
    parser.add_argument("argument", nargs="?", metavar="NAME|DIR", help="of drain, unpark and collect")
    parser.add_argument("--shards", type=positive, default=64, metavar="N", help="create: 1 to 1024 (64)")
    parser.add_argument("--from", dest="store", metavar="STORE", help="create: begin with this store")
    parser.add_argument("--cycles", type=positive, metavar="N", help="join: end after N crawls")
    parser.add_argument(
        "-a", dest="arguments", action="append", default=[], metavar="NAME=VALUE", help="join: the spider's"
    )
    parser.add_argument("--json", action="store_true", help="status: print one JSON document instead")


def run(project: Project, options: Namespace) -> None:
    """Do a task; raises Gp4cError."""
    if (options.argument is None) == (options.task in ("drain", "unpark", "collect")):
        raise SettingsError(
            f"{options.task}: expected {'one argument more' if options.argument is None else 'no argument'}; "
            f"found {options.argument or 'none'}. See scrapy gp4c workers --help."
        )
    administration = _room("administration")
    ledger = administration.ledger_of(project.settings)
    try:
        _DO[options.task](project, options, administration, ledger)
    finally:
        ledger.close()


def _room(module: str) -> Any:
    """A module of the ledger; raises SettingsError where its libraries are missing."""
    return import_module(f"scrapy_gp4c.distributed.{module}")


def _create(project: Project, options: Namespace, administration: Any, ledger: Any) -> None:
    store = None if options.store is None else Path(options.store)
    try:
        about = administration.create(project.settings, options.shards, store, project.sizes)
    except ValueError as error:
        raise SettingsError(f"--shards: {error}") from None
    print(f"ledger {about.ledger} with {about.shards} shards")


def _status(project: Project, options: Namespace, administration: Any, ledger: Any) -> None:
    found: CrawlStatus = administration.status(ledger, project.settings)
    if options.json:
        print_json(found)
    else:
        print("\n".join(_lines(found)))
    if found.problem is not None:
        raise NotHealthyError(found.problem)


def _lines(found: CrawlStatus) -> list[str]:
    if found.open:
        waits = f"waits for {len(found.waits_for)} of {found.shards} shards"
        cycle = f"cycle {found.cycle} is open and {waits}, {found.letters} letters unread"
    elif not found.complete:
        cycle = f"cycle {found.cycle} is closed, and not all shards have ended it"
    else:
        cycle = f"cycle {found.cycle} is closed; the next is due in {found.next_due_s or 0:.0f} s"
    lines = [f"ledger {found.ledger}: {found.shards} shards, {found.pages:,} pages", cycle]
    for one in found.workers:
        alive = f"lease {one.left_s:.0f} s" if one.left_s >= 0 else f"dead for {-one.left_s:.0f} s"
        drains = ", drains" if one.draining else ""
        lines.append(f"{one.name}: {alive}{drains}, {len(one.shards)} shards")
    return lines


def _join(project: Project, options: Namespace, administration: Any, ledger: Any) -> None:
    """Start a crawl whenever there is something to do; a second signal ends the crawl at once."""
    words = [word for argument in options.arguments for word in ("-a", argument)]
    words += [word for setting in options.set or () for word in ("-s", setting)]
    if options.logfile:
        words += ["--logfile", options.logfile]
    command = [sys.executable, "-m", "scrapy", "crawl", options.spider, *words]
    command += ["--loglevel", options.loglevel or "WARNING"]
    told: Told = Told()
    stops: list[int] = []

    def stop(*_: object) -> None:
        stops.append(1)
        told.put(None)

    for name in ("SIGINT", "SIGTERM", "SIGBREAK"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), stop)
    clock, crawls = RealClock(), 0
    name = project.settings.worker or gethostname()
    while not stops and (options.cycles is None or crawls < options.cycles):
        found = _looked(project, administration, ledger)
        if found is not None and any(one.name == name and one.draining for one in found.workers):
            print(f"{name} is drained: it joins no more", file=sys.stderr)
            return
        if found is None or not administration.is_wanted(found):
            clock.wait(told, LOOK_S)
            continue
        crawl, stopped = Process(command), 0
        while (code := crawl.poll()) is None:
            if len(stops) > stopped:
                stopped += 1
                crawl.stop()
            clock.wait(told, LOOK_S / 4)
        crawls += 1
        if code:
            print(f"a crawl ended with exit code {code}; its log says why", file=sys.stderr)
            clock.wait(told, LOOK_S)
        elif (ended := _looked(project, administration, ledger)) is not None:
            print(f"{name}: {_lines(ended)[1]}; {ended.pages:,} pages are known", flush=True)


def _looked(project: Project, administration: Any, ledger: Any) -> CrawlStatus | None:
    """The crawl's status; None while the ledger is away."""
    try:
        found: CrawlStatus = administration.status(ledger, project.settings)
    except _room("errors").LedgerAwayError as error:
        print(f"waiting for the ledger: {error}", file=sys.stderr)
        return None
    return found


def _drain(project: Project, options: Namespace, administration: Any, ledger: Any) -> None:
    ledger.call(_room("leases").drain, options.argument)


def _unpark(project: Project, options: Namespace, administration: Any, ledger: Any) -> None:
    if not options.argument.isdigit():
        raise SettingsError(f"unpark: expected the number of a shard; found {options.argument!r}")
    ledger.call(_room("leases").unpark, int(options.argument))


def _collect(project: Project, options: Namespace, administration: Any, ledger: Any) -> None:
    directory = Path(options.argument)
    cycle, pages, cycles = administration.collect(ledger, project.settings, directory, project.sizes)
    print(f"{directory}: {pages:,} pages with {cycles:,} cycles, as cycle {cycle} left them")


_DO: Final = {
    "create": _create,
    "status": _status,
    "join": _join,
    "drain": _drain,
    "unpark": _unpark,
    "collect": _collect,
}
