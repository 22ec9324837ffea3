"""``scrapy gp4c workers``: one crawl on many machines, which agree in a PostgreSQL database."""

from __future__ import annotations

import signal
import sys
import tempfile
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from socket import gethostname
from typing import TYPE_CHECKING, Any, Final, TypeVar

from scrapy_gp4c.commands import crawl_lines, progress
from scrapy_gp4c.commands.monitoring import Process, RealClock, Told
from scrapy_gp4c.commands.numbers import positive
from scrapy_gp4c.commands.output import print_json
from scrapy_gp4c.crawling.crawl_status import CrawlStatus
from scrapy_gp4c.errors import Gp4cError, SettingsError
from scrapy_gp4c.store.opening import Progress, unite

if TYPE_CHECKING:
    from scrapy_gp4c.commands.project import Project

T = TypeVar("T")
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
LOOK_S: Final = 5.0
"""`join` looks so often whether there is anything to do, and when the next cycle is due."""
PAUSE_S: Final = 1.0
"""After a crawl that failed."""


class NotHealthyError(Gp4cError):
    """Something is wrong with the crawl."""


def add_options(parser: ArgumentParser) -> None:
    """Add the options of this action."""
    told = "; ".join(f"{name}: {what}" for name, what in TASKS.items())
    parser.add_argument("task", choices=TASKS, metavar="TASK", help=told.replace("%", "%%"))
    parser.add_argument("argument", nargs="?", metavar="NAME|DIR", help="of drain, unpark and collect")
    parser.add_argument("--shards", type=positive, default=64, metavar="N", help="create: 1 to 1024 (64)")
    parser.add_argument(
        "--from",
        dest="stores",
        nargs="+",
        default=[],
        metavar="STORE",
        help="create: begin with this store, or with several, of different hosts and as many cycles each",
    )
    parser.add_argument("--cycles", type=positive, metavar="N", help="join: end after N crawls")
    parser.add_argument(
        "-a", dest="arguments", action="append", default=[], metavar="NAME=VALUE", help="join: the spider's"
    )
    parser.add_argument(
        "--panel", action="store_true", help="collect: the panel's pages alone, a history without bias"
    )
    parser.add_argument("--watch", action="store_true", help="status: again and again, until Ctrl-C")
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
    with tempfile.TemporaryDirectory(prefix="gp4c-unite-") as folder, progress.shown() as told:
        try:
            store = _begun_with(options.stores, Path(folder), project, told)
            about = administration.create(project.settings, options.shards, store, project.sizes, told)
        except ValueError as error:
            raise SettingsError(f"--shards: {error}") from None
    print(f"ledger {about.ledger} with {about.shards} shards")


def _begun_with(stores: list[str], folder: Path, project: Project, told: Progress) -> Path | None:
    """The store that a crawl begins with; several are put together in `folder`."""
    if len(stores) < 2:
        return Path(stores[0]) if stores else None
    unite([Path(one) for one in stores], folder / "store", project.sizes, told)
    return folder / "store"


def _status(project: Project, options: Namespace, administration: Any, ledger: Any) -> None:
    if options.watch and options.json:
        raise SettingsError("expected --watch or --json; found both. Leave out one of them.")
    found: CrawlStatus | None
    if options.watch:
        found = crawl_lines.watch(lambda: _looked(project, administration, ledger))
    else:
        found = administration.status(ledger, project.settings)
        if options.json:
            print_json(found)
        else:
            print("\n".join(crawl_lines.lines(found)))
    if found is not None and found.problem is not None:
        raise NotHealthyError(found.problem)


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
    waiting = _room("waiting")
    _asked(lambda: ledger.call(waiting.end, name))  # what a former one has left
    while not stops and (options.cycles is None or crawls < options.cycles):
        if _asked(lambda: ledger.call(waiting.wait, name)):
            print(f"{name} is drained: it joins no more", file=sys.stderr)
            break
        found = _looked(project, administration, ledger)
        if found is None or not administration.is_wanted(found):
            due_s = LOOK_S if found is None or found.next_due_s is None else found.next_due_s
            clock.wait(told, min(LOOK_S, due_s))
            continue
        crawl, stopped = Process(command), 0
        while (code := crawl.poll()) is None:
            if len(stops) > stopped:
                stopped += 1
                crawl.stop()
            clock.wait(told, PAUSE_S / 4)
        crawls += 1
        if code:
            print(f"a crawl ended with exit code {code}; its log says why", file=sys.stderr)
            clock.wait(told, PAUSE_S)
        elif (ended := _looked(project, administration, ledger)) is not None:
            print(f"{name}: {crawl_lines.cycle_line(ended)}; {ended.pages:,} pages are known", flush=True)
    _asked(lambda: ledger.call(waiting.end, name))


def _looked(project: Project, administration: Any, ledger: Any) -> CrawlStatus | None:
    """The crawl's status; None while the ledger is away."""
    return _asked(lambda: administration.status(ledger, project.settings))


def _asked(ask: Callable[[], T]) -> T | None:
    """What the ledger says; None while it is away."""
    try:
        return ask()
    except _room("errors").LedgerAwayError as error:
        print(f"waiting for the ledger: {error}", file=sys.stderr)
        return None


def _drain(project: Project, options: Namespace, administration: Any, ledger: Any) -> None:
    ledger.call(_room("leases").drain, options.argument)


def _unpark(project: Project, options: Namespace, administration: Any, ledger: Any) -> None:
    if not options.argument.isdigit():
        raise SettingsError(f"unpark: expected the number of a shard; found {options.argument!r}")
    ledger.call(_room("leases").unpark, int(options.argument))


def _collect(project: Project, options: Namespace, administration: Any, ledger: Any) -> None:
    directory = Path(options.argument)
    with progress.shown() as told:
        cycle, pages, cycles = administration.collect(
            ledger, project.settings, directory, project.sizes, panel=options.panel, progress=told
        )
    print(f"{directory}: {pages:,} pages with {cycles:,} cycles, as cycle {cycle} left them")


_DO: Final = {
    "create": _create,
    "status": _status,
    "join": _join,
    "drain": _drain,
    "unpark": _unpark,
    "collect": _collect,
}
