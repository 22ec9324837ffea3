"""Workers of the demo: their crawls day by day, who is killed, and what the ledger says of it."""

import os
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path
from typing import Any, Final, NamedTuple

from scrapy.settings import BaseSettings

from scrapy_gp4c.distributed import administration, leases
from scrapy_gp4c.distributed.connection import Connection, Transaction
from scrapy_gp4c.distributed.standing import standing
from scrapy_gp4c.settings import Settings
from scrapy_gp4c.store.opening import USUAL

from .crawls import CRAWL_LIMIT_S, DemoError, Starter

WORKERS: Final = ("ada", "grace", "mary")
SHARDS: Final = 12
LEASE_S: Final = 6.0  # short, as it is what others wait before they take shards over
BUDGET, WARMUP_VISITS, DELAY_S = 0.3, 1, 0.05  # so that a day takes some seconds, in which to kill
KILLED_AFTER: Final = 10  # visits that the ledger has of a worker
LOOK_S: Final = 0.1


class Part(NamedTuple):
    """What a worker recorded of a shard, under one token."""

    shard: int
    token: int


class Look(NamedTuple):
    """What the ledger says now."""

    cycle: int
    is_over: bool
    holders: dict[Part, str]
    visits: dict[Part, int]
    """Of the last cycle."""


class Day(NamedTuple):
    """What came of a day."""

    day: int
    visits: dict[str, int]
    """By worker."""
    killed: str | None
    killed_at: int
    """Its visits that the ledger had by then."""
    taken_over: dict[str, list[int]]
    """By worker, the shards that it took over."""
    taken_visits: dict[str, int]
    """Visits in these shards since."""
    waited_s: float
    """From the kill until all of these shards had a new holder."""


def look(tx: Transaction) -> Look:
    """Ask the ledger how far all are."""
    now, view = standing(tx), leases.look(tx)
    rows = tx.execute(
        "SELECT shard, token, sum(visits)::int FROM gp4c.log WHERE cycle = %s GROUP BY shard, token",
        (now.last.cycle,),
    ).fetchall()
    holders = {Part(row.shard, row.token): row.holder for row in view.shards if row.holder is not None}
    return Look(now.last.cycle, now.is_complete, holders, {Part(*row[:2]): row[2] for row in rows})


def let_a_night_pass(tx: Transaction) -> None:
    """Make the next cycle due."""
    tx.execute("UPDATE gp4c.cycle SET opened = opened - interval '1 day'")


class Worker:
    """A worker with a directory and a name of its own: processes that begin its crawls."""

    def __init__(self, name: str, folder: Path, settings: dict[str, Any], port: int) -> None:
        """Take what all of them have in common."""
        self.name, self.errors = name, folder / f"{name}.errors"
        own = {"GP4C_WORKER": name, "GP4C_STORE": folder / name, "LOG_FILE": folder / f"{name}.log"}
        given = {**settings, **own, "EXTENSIONS_BASE": "{}"}
        self._command = ["scrapy", "crawl", "monitor", "-a", f"port={port}"]
        self._command += [part for item in given.items() for part in ("-s", "{}={}".format(*item))]
        self._starter: Starter | None = None
        self.is_crawling = False

    def wake(self) -> None:
        """Be there, with all that is to be imported: workers that begin together share the shards evenly."""
        if self._starter is None:
            self._starter = Starter("scrapy_gp4c.distributed.opening")
            self._starter.begin(["scrapy", "version"], self.errors)
            self._starter.end(CRAWL_LIMIT_S)

    def begin(self) -> None:
        """Begin a crawl."""
        assert self._starter is not None
        self._starter.begin(self._command, self.errors)
        self.is_crawling = True

    def goes_on(self) -> bool:
        """Tell whether its crawl goes on. Raises DemoError where it failed."""
        if not self.is_crawling or self._starter is None:
            return False
        try:
            code = self._starter.end(0)
        except TimeoutError:
            return True
        self.is_crawling = False
        if code:
            raise DemoError(f"a crawl of {self.name} failed; its log: {self.errors.with_suffix('.log')}")
        return False

    def kill(self) -> None:
        """As a power cut: kill -9 of all its processes."""
        assert self._starter is not None
        found = subprocess.run(
            ["pgrep", "-P", str(self._starter.process.pid)], stdout=subprocess.PIPE, text=True, check=False
        ).stdout
        for pid in (self._starter.process.pid, *map(int, found.split())):
            os.kill(pid, signal.SIGKILL)
        self.stop()

    def stop(self) -> None:
        """End what runs."""
        if self._starter is not None:
            self._starter.stop()
        self._starter, self.is_crawling = None, False


class Crew:
    """All workers, and the ledger in which they agree."""

    def __init__(self, folder: Path, dsn: str, port: int) -> None:
        """Make the ledger."""
        given = {
            "GP4C_LEDGER": dsn,
            "GP4C_LEASE_S": LEASE_S,
            "GP4C_BUDGET": BUDGET,
            "GP4C_WARMUP_VISITS": WARMUP_VISITS,
            "DOWNLOAD_DELAY": DELAY_S,
        }
        self.settings = Settings.load(BaseSettings(given))
        administration.create(self.settings, SHARDS, None, USUAL)
        self.ledger: Connection = administration.ledger_of(self.settings)
        self.workers = {name: Worker(name, folder, given, port) for name in WORKERS}

    def close(self) -> None:
        """End all."""
        for one in self.workers.values():
            one.stop()
        self.ledger.close()

    def crawl(self, day: int, killed: str | None) -> Day:
        """Crawl a day, and kill one. Raises DemoError."""
        self.ledger.call(let_a_night_pass)
        for worker in self.workers.values():
            worker.wake()
        for worker in self.workers.values():
            worker.begin()
        until = time.monotonic() + CRAWL_LIMIT_S
        holders: dict[Part, str] = {}
        visits: Counter[Part] = Counter()
        lost: dict[int, int] = {}
        killed_s = waited_s = 0.0
        killed_at = 0
        while True:
            now = self.ledger.call(look)
            if now.cycle == day:
                holders |= now.holders
                visits |= Counter(now.visits)
                if now.is_over and not any(worker.goes_on() for worker in self.workers.values()):
                    break
            done = sum(count for part, count in visits.items() if holders.get(part) == killed)
            if killed is not None and not killed_s and now.cycle == day and done >= KILLED_AFTER:
                killed_s, killed_at = time.monotonic(), done
                lost = {part.shard: part.token for part, name in now.holders.items() if name == killed}
                self.workers[killed].kill()
            elif lost and not waited_s and all(_held_again(now.holders, part) for part in lost.items()):
                waited_s = time.monotonic() - killed_s
            for name, worker in self.workers.items():  # as `join` does
                if not worker.goes_on() and (name != killed or not killed_s) and _is_wanted(self):
                    worker.begin()
            if time.monotonic() > until:
                raise DemoError(
                    f"day {day} takes more than {CRAWL_LIMIT_S} s; the logs are beside the stores"
                )
            time.sleep(LOOK_S)
        taken = {
            part: name for part, name in holders.items() if part.token > lost.get(part.shard, part.token)
        }
        return Day(
            day,
            {name: _sum(visits, holders, name) for name in WORKERS},
            killed if killed_s else None,
            killed_at,
            {name: sorted({part.shard for part in taken if taken[part] == name}) for name in WORKERS},
            {name: _sum(visits, taken, name) for name in WORKERS},
            waited_s,
        )


def _held_again(holders: dict[Part, str], lost: tuple[int, int]) -> bool:
    return any(part.shard == lost[0] and part.token > lost[1] for part in holders)


def _is_wanted(crew: Crew) -> bool:
    return administration.is_wanted(administration.status(crew.ledger, crew.settings))


def _sum(visits: Counter[Part], holders: dict[Part, str], name: str) -> int:
    return sum(count for part, count in visits.items() if holders.get(part) == name)
