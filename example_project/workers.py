"""The demo's web, crawled by three workers, one of which is killed every day.

    python -m example_project.workers [--days 10] [--hosts 12] [--ledger DSN]

They agree in a PostgreSQL of the demo's own, or in the empty database that ``--ledger`` names. Every day
begins one stock ``scrapy crawl monitor`` per worker; one gets kill -9, the others take its shards over, and
the next morning it is there again. What the ledger says of it is printed day by day and drawn; in the end
all is collected into one ordinary store and compared with what was planned. docs/distributed.md explains
how that works.
"""

import argparse
import shutil
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from scrapy_gp4c.distributed import administration
from scrapy_gp4c.errors import Gp4cError
from scrapy_gp4c.store.opening import USUAL, open_store

from .crawls import ROOT, DemoError
from .crew import SHARDS, WORKERS, Crew, Day
from .demo import serving, show
from .model import LAST_DAY
from .plot_workers import draw

PORT: Final = 8430  # fixed, as that of the demo: URLs name it


class Planned(NamedTuple):
    """What was planned in a cycle, and what came of it."""

    planned: int
    outcomes: int
    """Planned pages with exactly one."""
    new: int


def row(one: Day) -> str:
    """A day as a line of the table."""
    cells = []
    for name in WORKERS:
        taken = f" +{len(one.taken_over[name])} shards" if one.taken_over[name] else ""
        cells.append(f"{one.visits[name]:5,}{taken:10}")
    killed = "nobody" if one.killed is None else f"{one.killed} after {one.killed_at} visits"
    waited = "" if one.killed is None else f"{one.waited_s:5.1f} s"
    return f"{one.day:3}  {'  '.join(cells)}  {killed:24} {waited}"


HEADER: Final = f"day  {'  '.join(f'{name:15}' for name in WORKERS)}  {'killed':24} until taken over"


def compared(store: Path) -> Iterator[Planned]:
    """Yield what was planned cycle by cycle. Raises DemoError for a store that is not sound."""
    with open_store(store, readonly=True) as opened:
        if problems := opened.verify():
            raise DemoError(f"{store}: {problems[0]}")
        entered = np.concatenate([block["entered"] for _, block in opened.blocks()])
        for record in opened.cycles():
            pages = np.concatenate(
                [part["page"] for _, part in opened.visits(record["cycle"], record["cycle"])]
            )
            is_new = entered[pages] == record["cycle"]
            once = np.unique(pages[~is_new], return_counts=True)[1] == 1
            yield Planned(record["planned"], int(once.sum()), int(is_new.sum()))


@contextmanager
def ledger(given: str | None) -> Iterator[str]:
    """Yield how to connect to the ledger's database: the given one, or one of a server of our own."""
    if given is not None:
        yield given
        return
    from tests.support.postgres import BIN, Server

    if BIN is None:
        raise DemoError(
            "no PostgreSQL is installed: apt-get install --no-install-recommends postgresql, or name an "
            "empty database with --ledger"
        )
    server = Server()
    try:
        yield server.socket_dsn(server.database())
    finally:
        server.stop()


def run(options: argparse.Namespace) -> bool:
    """Run the demo; tell whether all that was planned was done. Raises DemoError, Gp4cError."""
    folder = options.output.resolve()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    show(folder / "day", 1)
    days: list[Day] = []
    with ledger(options.ledger) as dsn, serving(folder / "day", options) as port:
        crew = Crew(folder, dsn, port)
        try:
            print(f"{len(WORKERS)} workers share {SHARDS} shards; logs and stores: {folder}\n\n{HEADER}")
            for day in range(1, options.days + 1):
                show(folder / "day", day)
                days.append(crew.crawl(day, WORKERS[day % len(WORKERS)]))
                print(row(days[-1]), flush=True)
            administration.collect(crew.ledger, crew.settings, folder / "all", USUAL)
        finally:
            crew.close()
    found = list(compared(folder / "all"))
    print("\nday  planned  with one outcome  visits to new pages")
    for day, one in enumerate(found, 1):
        print(f"{day:3}  {one.planned:7,}  {one.outcomes:16,}  {one.new:19,}")
    draw(folder / "workers.png", [one.visits for one in days], [one.taken_visits for one in days],
         [one.killed for one in days])  # fmt: skip
    print(f"Picture: {folder / 'workers.png'}")
    done = all(one.planned == one.outcomes for one in found) and len(found) == options.days
    kills = sum(one.killed is not None for one in days)
    print(f"{kills} kills; every planned page has one outcome: {'yes' if done else 'NO'}")
    return done


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo; 1 with one message where it fails, 130 where it was interrupted."""
    parser = argparse.ArgumentParser(prog="python -m example_project.workers", description="Run the demo.")
    parser.add_argument("--days", type=int, default=10, help="days to simulate (10)")
    parser.add_argument("--hosts", type=int, default=12, help="hosts, about 60 pages each (12)")
    parser.add_argument("--seed", type=int, default=1, help="seed of the web's change model (1)")
    parser.add_argument("--port", type=int, default=PORT, help=f"on 127.0.0.x, 0: a free one ({PORT})")
    parser.add_argument("--ledger", metavar="DSN", help="an empty database instead of a server of our own")
    parser.add_argument(
        "--output", type=Path, default=ROOT / "demo-workers", help="folder for all results (demo-workers)"
    )
    options = parser.parse_args(arguments)
    if not 1 <= options.days <= LAST_DAY:
        parser.error(f"--days: expected 1 to {LAST_DAY}, found {options.days}")
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # stop like on Ctrl-C, leave no process behind
    try:
        return 0 if run(options) else 1
    except (DemoError, Gp4cError, ValueError, OSError) as problem:
        print(f"example_project.workers: {problem}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("example_project.workers: interrupted", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
