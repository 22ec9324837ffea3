"""Real workers on one crawl while they are killed, stopped and cut off, and while PostgreSQL is killed.

Half of the faults are kill -9 of workers: as they crawl, plan, fold, copy or rebuild a shard. A fifth stops
a worker for longer than its lease, 15% partition one from the ledger, 15% are kill -9 of PostgreSQL. Every
third stretch runs behind PgBouncer in transaction mode. All random choices come from ``--seed``. After each
stretch faults pause: the cycle has to close, and what is left is compared with what was acknowledged.

``--takeovers`` measures besides how long it takes from a kill to the first request for a page of the shards
that the killed one held, by another worker, with leases of 30 s.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from benchmarks.common import verdict
from benchmarks.ledger_costs import begins
from tests.support.postgres import PGBOUNCER
from tests.support.troubled import HANGS_S, PHASES, Crawl, Found

LEASE_S: Final = 3.0
STRETCH: Final = 6
"""Faults from one comparison to the next."""
CRAWLING: Final = "crawling"
KILLS: Final = (CRAWLING, *PHASES)
SHARES: Final = {"kill": 0.5, "stop": 0.2, "partition": 0.15, "postgres": 0.15}
NAMES: Final = {
    **{f"kill {phase}": f"kill -9 of a worker: {phase}" for phase in KILLS},
    "stop": "SIGSTOP of a worker beyond its lease",
    "partition": "partition of a worker from PostgreSQL",
    "postgres": "kill -9 of PostgreSQL",
}


class Result(NamedTuple):
    """What a run of faults came to."""

    times: Counter[str]
    """Of each fault."""
    wrong: dict[str, set[str]]
    """Fault -> what was found wrong after stretches in which it happened."""
    found: Found
    ends: Counter[int]
    """Exit code -> processes."""
    unparked: int
    pooled: int
    """Faults behind PgBouncer."""


def faults_of(count: int, dice: random.Random) -> list[str]:
    """So many faults by their shares, in random order; kills go through all phases."""
    kinds: list[str] = []
    for kind, share in SHARES.items():
        kinds += [kind] * round(count * share)
    kinds = (kinds + ["kill"] * count)[:count]
    phases = [f"kill {KILLS[number % len(KILLS)]}" for number in range(kinds.count("kill"))]
    found = [kind for kind in kinds if kind != "kill"] + phases
    dice.shuffle(found)
    return found


class Trouble:
    """Lets faults happen to a crawl."""

    def __init__(self, crawl: Crawl, dice: random.Random) -> None:
        """Take a crawl and what decides."""
        self._crawl, self._dice = crawl, dice
        self._pending: list[threading.Timer] = []

    def happen(self, fault: str) -> str:
        """Let one happen to a cycle that is open; returns which it came to be."""
        crawl, dice = self._crawl, self._dice
        crawl.until(lambda found: found.open and len(crawl.running) > 1, 10 * crawl.lease_s)
        crawl.until(lambda _: False, dice.uniform(0.0, 2.0))
        kind, _, phase = fault.partition(" ")
        if kind == "kill":
            return f"kill {self._kill(phase)}"
        if kind == "postgres":
            crawl.server.kill()
            time.sleep(dice.uniform(0.0, 1.5) * crawl.lease_s)
            crawl.server.start()
            return fault
        running = crawl.running
        if not running:
            return self.happen(fault)
        name = dice.choice(running)
        if kind == "partition":
            flows = crawl.proxies[name].flows
            flows.clear()
            self._later(dice.uniform(0.3, 2.0), flows.set)
        else:
            process = crawl.processes[name]
            process_id = process.pid or 0
            os.kill(process_id, signal.SIGSTOP)
            self._later(dice.uniform(1.2, 2.0), lambda: _go_on(process_id))
        return fault

    def _later(self, leases: float, end: Callable[[], object]) -> None:
        """End a fault by and by; the next one may come before."""
        timer = threading.Timer(leases * self._crawl.lease_s, end)
        timer.start()
        self._pending.append(timer)

    def over(self) -> None:
        """Wait for the ends of all faults."""
        for one in self._pending:
            while one.is_alive():
                self._crawl.supervise(more=True)
                one.join(0.1)
        self._pending.clear()

    def _kill(self, phase: str) -> str:
        """Kill a worker in a phase, or as it crawls if none comes to that in time."""
        crawl, dice = self._crawl, self._dice
        if phase != CRAWLING:
            ended = crawl.ends[-signal.SIGKILL]
            for name in crawl.proxies:
                crawl.arm(name, phase, dice.choice((0.0, 0.01, 0.05, 0.2)))
            if phase == "rebuild":
                self._kill(CRAWLING)
                ended += 1
            reached = crawl.until(lambda _: crawl.ends[-signal.SIGKILL] > ended, 10 * crawl.lease_s)
            crawl.disarm()
            if reached:
                return phase
        if crawl.running:
            crawl.processes[dice.choice(crawl.running)].kill()
        return CRAWLING


def _go_on(process_id: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(process_id, signal.SIGCONT)


def run(count: int, seed: int, lease_s: float = LEASE_S) -> Result:
    """Let so many faults happen, and compare after each stretch."""
    dice = random.Random(seed)
    faults = faults_of(count, dice)
    times: Counter[str] = Counter()
    wrong: dict[str, set[str]] = {}
    pooled = 0
    told = TextColumn("{task.description}")
    columns = (TextColumn("faults"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), told)
    bar = Progress(*columns, console=Console(stderr=True))
    with tempfile.TemporaryDirectory() as place, Crawl(Path(place), lease_s) as crawl, bar:
        trouble, found = Trouble(crawl, dice), Found(Counter(), [])
        task = bar.add_task("", total=count)
        for number, start in enumerate(range(0, count, STRETCH)):
            crawl.web.delay_s = dice.choice((0.1, 0.3))
            crawl.behind_pgbouncer(number % 3 == 1)
            happened = []
            for fault in faults[start : start + STRETCH]:
                bar.update(task, description=NAMES[fault])
                happened.append(trouble.happen(fault))
                bar.advance(task)
            bar.update(task, description="compares")
            if not bar.console.is_terminal:
                print(f"{start + len(happened)} of {count} faults", file=sys.stderr, flush=True)
            trouble.over()
            crawl.web.delay_s = 0.0
            found = crawl.check()
            times.update(happened)
            pooled += len(happened) * (number % 3 == 1 and PGBOUNCER is not None)
            for fault in happened:
                wrong.setdefault(fault, set()).update(found.wrong)
            if found.wrong:
                break  # the next comparison would find the same
        return Result(times, wrong, found, crawl.ends, crawl.unparked, pooled)


def takeovers(count: int, lease_s: float) -> list[float]:
    """Leases from a kill to the first request for a page of the shards that the killed worker held."""
    found = []
    for number in range(count):
        slow = {"DOWNLOAD_DELAY": lease_s / 15, "pages": 600}
        with tempfile.TemporaryDirectory() as place, Crawl(Path(place), lease_s, **slow) as crawl:
            crawl.until(lambda found: found.open and not found.homeless, HANGS_S)
            crawl.until(lambda _: False, random.Random(number).uniform(1.0, 1.0 + lease_s / 4))
            found.append(_takeover(crawl) / lease_s)
        print(f"takeover {number + 1}: {found[-1]:.2f} leases", file=sys.stderr, flush=True)
    return found


def _takeover(crawl: Crawl) -> float:
    """Kill a worker for good; returns seconds until others ask for pages of its shards."""
    status = crawl.status()
    assert status is not None
    shards_of_hosts = {crawl.web.shard(page) for page in range(len(crawl.web.host))}
    victim = max(status.workers, key=lambda one: len(shards_of_hosts.intersection(one.shards)))
    shards = set(victim.shards)
    crawl.processes[victim.name].kill()
    killed = time.monotonic()
    crawl.processes.pop(victim.name).join()
    while time.monotonic() < killed + 4 * crawl.lease_s:
        later = [at for at, page in crawl.web.requests if at > killed and crawl.web.shard(page) in shards]
        if later:
            return later[0] - killed
        time.sleep(0.05)
    return float("inf")


def main() -> int:
    """Print what happened, and what was found wrong; 1 if anything was."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--faults", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--takeovers", type=int, default=0, help="measure so many (default: none)")
    parser.add_argument("--lease-s", type=float, default=30.0, help="of the takeovers (default: 30)")
    options = parser.parse_args()
    if not begins("workers_chaos"):
        return 1
    holds = True
    if options.faults:
        holds = _print_faults(run(options.faults, options.seed), options.faults)
    if options.takeovers:
        leases = takeovers(options.takeovers, options.lease_s)
        median = statistics.median(leases)
        print(
            f"from a kill to the first request of others: median {median:.2f} leases of {options.lease_s:g} s"
        )
        holds &= verdict("leases until a takeover begins, worst", max(leases), 1.5, at_least=False)
    return 0 if holds else 1


def _print_faults(result: Result, count: int) -> bool:
    print("| fault | times | findings | |\n|---|---|---|---|")
    for fault, name in NAMES.items():
        if result.times[fault]:
            wrong = result.wrong[fault]
            print(f"| {name} | {result.times[fault]} | {len(wrong)} | {'MISSED' if wrong else 'holds'} |")
    compared = ", ".join(f"{number:,} {what}" for what, number in sorted(result.found.compared.items()))
    ends = ", ".join(f"{number} with {code}" for code, number in sorted(result.ends.items()))
    print(f"\ncompared: {compared}; {result.pooled} faults behind PgBouncer")
    print(f"processes ended: {ends}; shards parked and let go again: {result.unparked}")
    for line in result.found.wrong[:20]:
        print(f"- {line}")
    happened = sum(result.times.values())
    holds = verdict("faults that happened", happened, count, at_least=True)
    return verdict("findings", len(result.found.wrong), 0, at_least=False) and holds


if __name__ == "__main__":
    sys.exit(main())
