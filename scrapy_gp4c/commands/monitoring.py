"""A crawl again and again: one process per cycle, never two at once, until it is told to end."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Final, Protocol

import filelock
import numpy as np

from scrapy_gp4c.commands.schedule import Now, Schedule, Timer
from scrapy_gp4c.errors import StoreError, StoreInUseError
from scrapy_gp4c.store.opening import check_unused, open_store
from scrapy_gp4c.store.page_store import PageStore
from scrapy_gp4c.store.records import CycleRecord

POLL_S: Final = 30.0
"""A wait looks at the clocks so often: the machine may have slept."""
WATCH_S: Final = 1.0
"""A running crawl is looked at so often."""


@dataclass(frozen=True)
class MonitoredCycle:
    """One run of the crawl."""

    started: float
    """s since 1970, as is `next`."""
    took_s: float
    exit_code: int
    """Of the crawl; negative: the signal that ended it."""
    cycle: int | None
    """The last finished one; None: there is none."""
    is_finished: bool
    """Whether this run has finished it; else the next one goes on where it was."""
    visited: int
    changed: int
    change_rate: float | None
    hosts: int
    """Sites visited."""
    largest_host: int
    """Visits of the site with most."""
    outlasted: bool
    """Whether the run took longer than the interval."""
    next: float | None
    """When the next one is due; None: this was the last."""


Told = SimpleQueue[None]
"""Wakes who waits. A signal's handler may put into it whatever its thread is about; an Event has a lock that
the thread may hold just then, for ever."""


class Clock(Protocol):
    """What time it is, and waiting."""

    def now(self) -> Now:
        """Both clocks."""

    def wait(self, told: Told, seconds: float) -> None:
        """Wait, until told at the latest."""


class RealClock:
    """Those of the machine."""

    def now(self) -> Now:
        """Both clocks."""
        return Now(time.time(), time.monotonic())

    def wait(self, told: Told, seconds: float) -> None:
        """Wait, until told at the latest."""
        with suppress(Empty):
            told.get(timeout=seconds)


class Crawl(Protocol):
    """A crawl under way: a process of its own."""

    def poll(self) -> int | None:
        """Exit code, None while it runs."""

    def stop(self) -> None:
        """Ask it to end cleanly; a second time, at once."""


class Process:
    """``scrapy crawl`` in a group of its own, so that Ctrl-C reaches it through the monitor alone, once."""

    def __init__(self, command: Sequence[str]) -> None:
        """Start it."""
        if sys.platform == "win32":
            self._process = subprocess.Popen(command, creationflags=subprocess.CREATE_NEW_PROCESS_GROUP)
        else:
            self._process = subprocess.Popen(command, process_group=0)

    def poll(self) -> int | None:
        """Exit code, None while it runs."""
        return self._process.poll()

    def stop(self) -> None:
        """Ask it to end cleanly; a second time, at once."""
        if sys.platform == "win32":
            import signal

            self._process.send_signal(signal.CTRL_BREAK_EVENT)
        else:
            self._process.terminate()


class Monitor:
    """The loop: wait, crawl, tell."""

    def __init__(
        self,
        path: Path,
        start: Callable[[], Crawl],
        schedule: Schedule,
        tell: Callable[[MonitoredCycle], None],
        watch: Callable[[Path], None] = lambda path: None,
        expect: Callable[[float], None] = lambda due: None,
        clock: Clock | None = None,
    ) -> None:
        """Take the store's directory, what starts a crawl, when, and who is told of each.

        ``watch`` is called now and then while a crawl runs; ``expect`` with the time, s since 1970, when the
        first one begins, unless that is now.
        """
        self._path, self._start, self._schedule = path, start, schedule
        self._tell, self._watch, self._expect, self._clock = tell, watch, expect, clock or RealClock()
        self._told: Told = SimpleQueue()
        self._stops = 0

    def stop(self) -> None:
        """End after the visits under way: the cycle is resumed at the next start. A second time, at once."""
        self._stops += 1
        self._told.put(None)

    def run(self, cycles: int | None = None) -> int:
        """Crawl `cycles` times, or until `stop`; returns the exit code: 1 if a crawl failed, else 0.

        Raises StoreInUseError where another monitor has the store.
        """
        self._path.parent.mkdir(parents=True, exist_ok=True)
        lock = filelock.FileLock(self._path.with_name(f"{self._path.name}.monitor.lock"), blocking=False)
        try:
            lock.acquire()
        except filelock.Timeout:
            raise StoreInUseError(
                f"the store {self._path} is monitored by another process already: end that one first"
            ) from None
        with lock:
            return self._run(cycles)

    def _run(self, cycles: int | None) -> int:
        failed = False
        number = 0
        if first_s := self._first_wait_s():
            self._expect(self._clock.now().wall + first_s)
        timer = Timer(self._clock.now(), first_s)
        while not self._stops and (cycles is None or number < cycles):
            self._wait(timer)
            if self._stops:
                break
            started = self._clock.now()
            code = self._crawl()
            number += 1
            interval_s = self._schedule.interval_s(number)
            timer = Timer(started, interval_s)
            is_last = bool(self._stops) or number == cycles
            due = None if is_last else self._clock.now().wall + timer.remaining_s(self._clock.now())
            failed |= code != 0 and not self._stops
            self._tell(self._result(started, code, interval_s, due))
        return int(failed)

    def _first_wait_s(self) -> float:
        """What is left of the interval since the last cycle began; 0 where one is to be resumed."""
        with suppress(StoreError), open_store(self._path, readonly=True) as store:
            records = store.cycles()
            if records and store.open_cycle is None:
                since_s = self._clock.now().wall - (records[-1].get("started") or 0.0)
                return min(max(0.0, self._schedule.every_s - since_s), self._schedule.every_s)
        return 0.0

    def _wait(self, timer: Timer) -> None:
        """Wait until a cycle is due, within the active part of the day, and nobody else crawls."""
        while not self._stops:
            now = self._clock.now()
            remaining_s = timer.remaining_s(now)
            active = self._schedule.active
            if remaining_s <= 0.0 and (active is None or active.is_open(now.wall)):
                try:
                    check_unused(self._path)
                    return
                except StoreInUseError:  # an orphan of a killed monitor, or a crawl by hand
                    remaining_s = WATCH_S
            self._clock.wait(self._told, min(remaining_s or POLL_S, POLL_S))

    def _crawl(self) -> int:
        crawl, stopped = self._start(), 0
        while (code := crawl.poll()) is None:
            if self._stops > stopped:
                stopped += 1
                crawl.stop()
            self._clock.wait(self._told, WATCH_S)
            self._watch(self._path)
        return code

    def _result(self, started: Now, code: int, interval_s: float, due: float | None) -> MonitoredCycle:
        took_s = self._clock.now().steady - started.steady
        record: CycleRecord = {}
        visited = np.zeros(1, np.int64)
        with suppress(StoreError), open_store(self._path, readonly=True) as store:
            finished = [one for one in store.cycles() if one["cycle"] <= store.last_cycle]
            record = finished[-1] if finished else record
            visited = _visits_by_host(store)
        return MonitoredCycle(
            started.wall,
            took_s,
            code,
            record.get("cycle"),
            (record.get("finished") or 0.0) >= started.wall,
            record.get("visited", 0),
            record.get("changed", 0),
            record.get("change_rate"),
            int(np.count_nonzero(visited)),
            int(visited.max()),
            took_s > interval_s,
            due,
        )


def _visits_by_host(store: PageStore) -> Any:
    """Visits of the last finished cycle, by site ``[S]``."""
    _, site = np.unique(store.directories()["site"], return_inverse=True)
    counts = np.zeros(max(1, len(site)), np.int64)
    for _, visits in store.visits(max(1, store.last_cycle)):
        group = store.columns_of(np.sort(visits["page"]))["group"]
        counts += np.bincount(site[group], minlength=len(counts))
    return counts
