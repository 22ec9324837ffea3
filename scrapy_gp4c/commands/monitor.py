"""``scrapy gp4c monitor``: crawl again and again, a fresh process per cycle."""

from __future__ import annotations

import json
import signal
import sys
from argparse import ArgumentParser, Namespace
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from scrapy_gp4c.commands.monitoring import Monitor, MonitoredCycle, Process
from scrapy_gp4c.commands.numbers import positive
from scrapy_gp4c.commands.progress import ANEW, bar
from scrapy_gp4c.commands.schedule import Schedule, duration, percentage, window
from scrapy_gp4c.errors import StoreError
from scrapy_gp4c.store.opening import open_store
from scrapy_gp4c.store.records import local_time

if TYPE_CHECKING:
    from scrapy_gp4c.commands.project import Project

HELP = "crawl again and again, one process per cycle"
DOCUMENT = MonitoredCycle
"""What ``--json`` prints, one line for each cycle."""


class CrawlFailedError(StoreError):
    """At least one crawl has failed."""


def add_options(parser: ArgumentParser) -> None:
    """Add the options of this action."""
    parser.add_argument(
        "--every",
        type=duration,
        required=True,
        metavar="TIME",
        help="from one start to the next: 1h, 30m, 45s",
    )
    parser.add_argument(
        "--jitter",
        type=percentage,
        default=0.0,
        metavar="SHARE",
        help="vary that by up to so much, as in 10%%",
    )
    parser.add_argument(
        "--active", type=window, metavar="HH:MM-HH:MM", help="begin cycles in this part of the day"
    )
    parser.add_argument("--cycles", type=positive, metavar="N", help="end after N crawls")
    parser.add_argument(
        "-a",
        dest="arguments",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="argument of the spider",
    )
    parser.add_argument("--json", action="store_true", help="print a line of JSON per cycle instead")


def run(project: Project, options: Namespace) -> None:
    """Crawl until the cycles are done, or SIGTERM or Ctrl-C. Raises CrawlFailedError, StoreInUseError."""
    schedule = Schedule(options.every, options.jitter, options.active, project.settings.seed)
    command = [sys.executable, "-m", "scrapy", "crawl", options.spider, *_passed_on(options)]

    def tell(cycle: MonitoredCycle) -> None:
        if sys.stderr.isatty():
            print(ANEW, end="", file=sys.stderr)
        print(json.dumps(asdict(cycle)) if options.json else line(cycle), flush=True)
        if cycle.outlasted and cycle.is_finished:
            print(warning(cycle, options.every, project.delay_s), file=sys.stderr)

    def expect(due: float) -> None:
        print(
            f"The last cycle began less than {options.every:.0f} s ago; the next is due at {local_time(due)}",
            file=sys.stderr,
            flush=True,
        )

    watch = show_progress if sys.stderr.isatty() else lambda path: None
    monitor = Monitor(project.store_path, lambda: Process(command), schedule, tell, watch, expect)
    for name in ("SIGINT", "SIGTERM", "SIGBREAK"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), lambda *_: monitor.stop())
    if monitor.run(options.cycles):
        raise CrawlFailedError("at least one crawl failed; its log says why")


def _passed_on(options: Namespace) -> list[str]:
    """Options of this command that are the crawl's, too."""
    words = [word for argument in options.arguments for word in ("-a", argument)]
    words += [word for setting in options.set or () for word in ("-s", setting)]
    if options.logfile:
        words += ["--logfile", options.logfile]
    return [*words, "--loglevel", options.loglevel or "WARNING"]


def line(cycle: MonitoredCycle) -> str:
    """What is said of a cycle."""
    if cycle.exit_code:
        how = f"exit code {cycle.exit_code}" if cycle.exit_code > 0 else f"signal {-cycle.exit_code}"
        told = f"the crawl ended with {how}; the next one goes on where it was"
    elif not cycle.is_finished:
        told = "the crawl was interrupted; the next one goes on where it was"
    else:
        rate = "change rate " + ("unknown" if cycle.change_rate is None else f"{cycle.change_rate:.3f}")
        told = f"cycle {cycle.cycle}: {cycle.visited:,} visited, {cycle.changed:,} changed ({rate})"
    following = "" if cycle.next is None else f"; next at {local_time(cycle.next)}"
    return f"{local_time(cycle.started)}  {told}, {cycle.took_s:.0f} s{following}"


def warning(cycle: MonitoredCycle, every_s: float, delay_s: float) -> str:
    """What decides how long a cycle takes."""
    speed = cycle.visited / cycle.took_s if cycle.took_s else 0.0
    return (
        f"The cycle took {cycle.took_s:.0f} s, longer than the {every_s:.0f} s from one to the next: "
        f"{speed:.2f} pages/s from {cycle.hosts:,} hosts. The largest gave {cycle.largest_host:,} pages, "
        f"which take {cycle.largest_host * delay_s:.0f} s at least with a DOWNLOAD_DELAY of {delay_s:g} s. "
        "Lower GP4C_BUDGET or DOWNLOAD_DELAY, or raise --every."
    )


def show_progress(path: Path) -> None:
    """Draw how much of the plan is visited, on the terminal's last line."""
    try:
        with open_store(path, readonly=True) as store:
            cycle, planned, done = store.open_cycle, store.planned(), len(store.open_visits())
    except StoreError:
        return
    if cycle is not None and planned:
        text = f"cycle {cycle} {bar(done, planned)} {done:,} visited, {planned:,} planned"
        print(f"{ANEW}{text}", end="", file=sys.stderr, flush=True)
