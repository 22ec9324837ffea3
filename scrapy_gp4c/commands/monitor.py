"""``scrapy gp4c monitor``: crawl again and again, one process per cycle, never two at once."""

import json
import random
import re
import signal
import subprocess
import sys
import time
from argparse import ArgumentTypeError, Namespace
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Final, NamedTuple

import filelock
import numpy as np

from scrapy_gp4c.commands.action import Action, option, positive
from scrapy_gp4c.commands.project import Project
from scrapy_gp4c.errors import CrawlFailedError, StoreError, StoreInUseError
from scrapy_gp4c.foreign_text import counted
from scrapy_gp4c.page_state.rules import read_span
from scrapy_gp4c.store.opening import Store, check_unused, open_store
from scrapy_gp4c.store.records import CycleRecord, local_time

CLOCK_CHECK_S: Final = 30.0
"""Longest wait before the clocks are read again: the machine may have slept."""
CRAWL_CHECK_S: Final = 1.0
"""Interval at which a running crawl is polled."""
KILL_AFTER_S: Final = 60.0
"""Time that a crawl beyond ``--max-duration`` has to end cleanly before it is killed."""


# --- when the next cycle begins


class Now(NamedTuple):
    """A moment by wall clock and steady clock, in s."""

    wall_s: float
    """Since 1970. People and time servers set this clock; it goes on while the machine sleeps."""
    steady_s: float
    """Since an arbitrary moment. Nobody sets this clock; it may stand still while the machine sleeps."""


class Window(NamedTuple):
    """Part of a day in which cycles begin, in minutes of local time; it may span midnight."""

    opens: int
    closes: int

    def is_open(self, wall_s: float) -> bool:
        """Whether a cycle may begin at time `wall_s`."""
        local = time.localtime(wall_s)
        minute = local.tm_hour * 60 + local.tm_min
        if self.opens <= self.closes:
            return self.opens <= minute < self.closes
        return minute >= self.opens or minute < self.closes


@dataclass(frozen=True)
class Schedule:
    """When cycles begin: interval from start to start, its jitter, part of the day, and longest run."""

    every_s: float
    jitter: float = 0.0
    """Largest share by which an interval is made longer or shorter at random."""
    active: Window | None = None
    seed: int = 0
    max_duration_s: float | None = None
    """Longest run of a crawl; None: no limit."""

    def interval_s(self, number: int) -> float:
        """Return the interval, with jitter, after crawl ``number`` of this monitor."""
        drawn = random.Random(f"{self.seed} {number}").uniform(-1.0, 1.0)
        return self.every_s * (1.0 + self.jitter * drawn)


class Timer:
    """Timer that runs out by the wall clock or the steady one, whichever is first.

    The wall clock goes on in a machine that sleeps, the steady one if the wall clock is set back.
    """

    def __init__(self, now: Now, wait_s: float) -> None:
        self._wait_s = wait_s
        self._wall_s, self._steady_s = now.wall_s + wait_s, now.steady_s + wait_s

    def remaining_s(self, now: Now) -> float:
        """Time left; 0 once the timer has run out."""
        return max(0.0, min(self._wall_s - now.wall_s, self._steady_s - now.steady_s, self._wait_s))


def duration(text: str) -> float:
    """Read a time such as ``1h``, ``30m``, ``45s`` or ``2d`` as seconds; raises ArgumentTypeError."""
    with suppress(ValueError):
        if seconds := read_span(text).seconds:
            return seconds
    raise ArgumentTypeError(f"expected a duration with its unit, such as 1h, 30m or 45s; found {text!r}")


def percentage(text: str) -> float:
    """Read a share such as ``10%`` or ``0.1``, from 0 to below 1; raises ArgumentTypeError."""
    try:
        share = float(text[:-1]) / 100 if text.endswith("%") else float(text)
    except ValueError:
        share = -1.0
    if not 0.0 <= share < 1.0:
        raise ArgumentTypeError(f"expected a share from 0% to below 100%, such as 10%; found {text!r}")
    return share


def window(text: str) -> Window:
    """Read a part of the day such as ``07:00-22:00``; raises ArgumentTypeError."""
    match = re.fullmatch(r"(\d\d):(\d\d)-(\d\d):(\d\d)", text)
    numbers = [int(number) for number in match.groups()] if match else [99] * 4
    opens, closes = numbers[0] * 60 + numbers[1], numbers[2] * 60 + numbers[3]
    if max(numbers[1], numbers[3]) > 59 or opens >= 24 * 60 or closes > 24 * 60 or opens == closes:
        raise ArgumentTypeError(f"expected a part of the day such as 07:00-22:00; found {text!r}")
    return Window(opens, closes)


# --- crawls, one after the other


@dataclass(frozen=True)
class MonitoredCycle:
    """Result of one run of the crawl; ``--json`` prints a line of these fields per run."""

    started: float
    """Time in s since 1970, as is ``next``."""
    took_s: float
    exit_code: int
    """Exit code of the crawl; if negative, the signal that ended it."""
    cycle: int | None
    """Last finished cycle; None: there is none."""
    is_finished: bool
    """Whether this run finished that cycle; if not, the next run resumes it."""
    visited: int
    changed: int
    change_rate: float | None
    hosts: int
    """Number of visited sites."""
    largest_host: int
    """Visits of the site with most visits."""
    outlasted: bool
    """Whether the run took longer than the interval."""
    next: float | None
    """Time at which the next run is due; None: this was the last."""


WakeUps = SimpleQueue[None]
"""Queue that wakes a wait: a signal handler may put into it at any moment, where an Event could deadlock."""


class RealClock:
    """Clocks of the machine, and waiting; tests use another."""

    def now(self) -> Now:
        return Now(time.time(), time.monotonic())

    def wait(self, wake_ups: WakeUps, seconds: float) -> None:
        """Wait for ``seconds``, or until something is put into ``wake_ups``."""
        with suppress(Empty):
            wake_ups.get(timeout=seconds)


class Process:
    """``scrapy crawl`` as a child in its own process group, so that only the monitor passes Ctrl-C on."""

    def __init__(self, command: Sequence[str]) -> None:
        if sys.platform == "win32":
            self._process = subprocess.Popen(command, creationflags=subprocess.CREATE_NEW_PROCESS_GROUP)
        else:
            self._process = subprocess.Popen(command, process_group=0)

    def poll(self) -> int | None:
        """Exit code; None while the crawl runs."""
        return self._process.poll()

    def stop(self) -> None:
        """Ask the crawl to end cleanly; its cycle is resumed later."""
        if sys.platform == "win32":
            self._process.send_signal(signal.CTRL_BREAK_EVENT)
        else:
            self._process.terminate()

    def kill(self) -> None:
        self._process.kill()


class Listener:
    """Printer of the monitor's messages: results to stdout, the rest to stderr."""

    def __init__(self, every_s: float, delay_s: float, as_json: bool = False) -> None:
        self._every_s, self._delay_s, self._as_json = every_s, delay_s, as_json
        self._is_closed = False

    def ended(self, cycle: MonitoredCycle) -> None:
        self._print(json.dumps(asdict(cycle)) if self._as_json else line(cycle))
        if cycle.outlasted and cycle.is_finished:
            self.say(warning(cycle, self._every_s, self._delay_s))

    def say(self, text: str) -> None:
        with suppress(OSError, ValueError):  # stderr may be closed
            print(text, file=sys.stderr, flush=True)

    def _print(self, text: str) -> None:
        try:
            if not self._is_closed:
                print(text, flush=True)
        except (OSError, ValueError) as error:  # the reader of a pipe has gone: crawls go on
            self._is_closed = True
            self.say(f"Cannot write to standard output ({error}): results are no longer printed")


class Monitor:
    """Loop that waits, crawls and reports each crawl to its listener."""

    def __init__(
        self,
        path: Path,
        start: Callable[[], Process],
        schedule: Schedule,
        listener: Listener,
        clock: RealClock | None = None,
    ) -> None:
        # Two paths to one directory are one store: through a symlink, two monitors would both run.
        self._path = path.resolve()
        self._start, self._schedule, self._listener = start, schedule, listener
        self._clock = clock or RealClock()
        self._wake_ups: WakeUps = SimpleQueue()
        self._stops = 0

    def stop(self) -> None:
        """Ask the crawl to end after the visits under way, then end. The second call kills the crawl."""
        self._stops += 1
        self._wake_ups.put(None)

    def run(self, cycles: int | None = None) -> int:
        """Crawl ``cycles`` times, or until `stop`; the exit code is 1 if a crawl failed, else 0.

        Raises StoreInUseError if another monitor has the store.
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
        if first_wait_s := self._first_wait_s():
            due_s = self._clock.now().wall_s + first_wait_s
            self._listener.say(
                f"The last cycle began less than {self._schedule.every_s:.0f} s ago; the next is due at "
                f"{local_time(due_s)}"
            )
        timer = Timer(self._clock.now(), first_wait_s)
        while not self._stops and (cycles is None or number < cycles):
            self._wait(timer)
            if self._stops:
                break
            started = self._clock.now()
            exit_code = self._crawl(started)
            number += 1
            interval_s = self._schedule.interval_s(number)
            timer = Timer(started, interval_s)
            is_last = bool(self._stops) or number == cycles
            now = self._clock.now()
            due = None if is_last else now.wall_s + timer.remaining_s(now)
            failed |= exit_code != 0 and not self._stops
            self._listener.ended(self._result(started, exit_code, interval_s, due))
        return int(failed)

    def _first_wait_s(self) -> float:
        """Return the rest of the interval since the last cycle began; 0 if a cycle is to be resumed."""
        with suppress(StoreError), open_store(self._path, readonly=True) as store:
            records = store.cycles()
            if records and store.open_cycle is None:
                since_s = self._clock.now().wall_s - (records[-1].get("started") or 0.0)
                return min(max(0.0, self._schedule.every_s - since_s), self._schedule.every_s)
        return 0.0

    def _wait(self, timer: Timer) -> None:
        """Wait until a cycle is due, the time is in the active part of the day, and no other crawl runs."""
        while not self._stops:
            now = self._clock.now()
            remaining_s = timer.remaining_s(now)
            active = self._schedule.active
            if remaining_s <= 0.0 and (active is None or active.is_open(now.wall_s)):
                try:
                    check_unused(self._path)
                    return
                except StoreInUseError:  # an orphan of a killed monitor, or a crawl by hand
                    remaining_s = CRAWL_CHECK_S
            self._clock.wait(self._wake_ups, min(remaining_s or CLOCK_CHECK_S, CLOCK_CHECK_S))

    def _crawl(self, started: Now) -> int:
        try:
            crawl = self._start()
        except OSError as error:
            self._listener.say(f"The crawl cannot be started ({error}): free memory, or end other processes")
            return 1
        stops_passed_on, intervals = 0, 1
        limit_s, is_asked = self._schedule.max_duration_s, False
        while (exit_code := crawl.poll()) is None:
            took_s = self._clock.now().steady_s - started.steady_s
            too_long = f"The crawl ran for {took_s:.0f} s, longer than --max-duration"
            while self._stops > stops_passed_on:
                stops_passed_on += 1
                if stops_passed_on == 1:
                    crawl.stop()
                else:
                    crawl.kill()
            if took_s > intervals * self._schedule.every_s:
                intervals = int(took_s / self._schedule.every_s) + 1
                self._listener.say(
                    f"The crawl still runs after {took_s:.0f} s; the interval is "
                    f"{self._schedule.every_s:.0f} s. If it hangs, end it with a second Ctrl-C or SIGTERM, "
                    "or set --max-duration"
                )
            if limit_s is not None and not is_asked and took_s > limit_s:
                is_asked = True
                crawl.stop()
                self._listener.say(f"{too_long}: it was asked to end")
            elif limit_s is not None and is_asked and took_s > limit_s + KILL_AFTER_S:
                limit_s = None
                crawl.kill()
                self._listener.say(f"{too_long}: it did not end and was killed")
            self._clock.wait(self._wake_ups, CRAWL_CHECK_S)
        return exit_code

    def _result(self, started: Now, exit_code: int, interval_s: float, due: float | None) -> MonitoredCycle:
        took_s = self._clock.now().steady_s - started.steady_s
        record: CycleRecord = {}
        visits_by_site = np.zeros(1, np.int64)
        with suppress(StoreError), open_store(self._path, readonly=True) as store:
            finished = [cycle for cycle in store.cycles() if cycle["cycle"] <= store.last_cycle]
            record = finished[-1] if finished else record
            visits_by_site = _visits_by_site(store)
        return MonitoredCycle(
            started.wall_s,
            took_s,
            exit_code,
            record.get("cycle"),
            (record.get("finished") or 0.0) >= started.wall_s,
            record.get("visited", 0),
            record.get("changed", 0),
            record.get("change_rate"),
            int(np.count_nonzero(visits_by_site)),
            int(visits_by_site.max()),
            took_s > interval_s,
            due,
        )


def _visits_by_site(store: Store) -> Any:
    """Return the number of visits of each site in the last finished cycle: int64 ``[S]``, by site key."""
    _, site = np.unique(store.site_keys(), return_inverse=True)
    counts = np.zeros(max(1, len(site)), np.int64)
    for _, visits in store.visits(max(1, store.last_cycle)):
        group = store.columns_of(np.sort(visits["page"]))["group"]
        counts += np.bincount(site[group], minlength=len(counts))
    return counts


# --- the command


def _run(project: Project, options: Namespace) -> None:
    """Crawl until the cycles are done, or until SIGTERM or Ctrl-C.

    Raises CrawlFailedError if a crawl failed, StoreInUseError if another monitor has the store.
    """
    schedule = Schedule(
        options.every, options.jitter, options.active, project.settings.seed, options.max_duration
    )
    command = [sys.executable, "-m", "scrapy", "crawl", options.spider, *_crawl_options(options)]
    terminal = Listener(options.every, project.delay_s, options.json)
    monitor = Monitor(project.store_path, lambda: Process(command), schedule, terminal)
    for name in ("SIGINT", "SIGTERM", "SIGBREAK"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), lambda *_: monitor.stop())
    if monitor.run(options.cycles):
        raise CrawlFailedError("at least one crawl failed; its log says why")


def _crawl_options(options: Namespace) -> list[str]:
    words = [word for argument in options.arguments for word in ("-a", argument)]
    words += [word for setting in options.set or () for word in ("-s", setting)]
    if options.logfile:
        words += ["--logfile", options.logfile]
    return [*words, "--loglevel", options.loglevel or "WARNING"]


def line(cycle: MonitoredCycle) -> str:
    """Return a line for people about a run of the crawl."""
    if cycle.exit_code:
        how = f"exit code {cycle.exit_code}" if cycle.exit_code > 0 else f"signal {-cycle.exit_code}"
        result = f"the crawl ended with {how}; the next one resumes its cycle"
    elif not cycle.is_finished:
        result = "the crawl was interrupted; the next one resumes its cycle"
    else:
        rate = "change rate " + ("unknown" if cycle.change_rate is None else f"{cycle.change_rate:.3f}")
        result = f"cycle {cycle.cycle}: {cycle.visited:,} visited, {cycle.changed:,} changed ({rate})"
    following = "" if cycle.next is None else f"; next at {local_time(cycle.next)}"
    return f"{local_time(cycle.started)}  {result}, {cycle.took_s:.0f} s{following}"


def warning(cycle: MonitoredCycle, every_s: float, delay_s: float) -> str:
    """Return the warning about a cycle that took longer than the interval, with the likely reason."""
    speed = cycle.visited / cycle.took_s if cycle.took_s else 0.0
    return (
        f"The cycle took {cycle.took_s:.0f} s, longer than the interval of {every_s:.0f} s: "
        f"{speed:.2f} pages/s from {counted(cycle.hosts, 'host')}. The largest gave "
        f"{counted(cycle.largest_host, 'page, which takes', 'pages, which take')} "
        f"{cycle.largest_host * delay_s:.0f} s at least with a DOWNLOAD_DELAY of {delay_s:g} s. "
        "Lower GP4C_BUDGET or DOWNLOAD_DELAY, or raise --every"
    )


MONITOR = Action(
    "crawl again and again, one process per cycle",
    _run,
    [
        option(
            "--every",
            type=duration,
            required=True,
            metavar="TIME",
            help="from one start to the next: 1h, 30m, 45s",
        ),
        option(
            "--jitter",
            type=percentage,
            default=0.0,
            metavar="SHARE",
            help="vary the interval by up to this share, as in 10%%",
        ),
        option("--active", type=window, metavar="HH:MM-HH:MM", help="begin cycles in this part of the day"),
        option(
            "--max-duration",
            type=duration,
            metavar="TIME",
            help="end a crawl that takes longer, and kill it a minute later; the next one resumes its cycle",
        ),
        option("--cycles", type=positive, metavar="N", help="end after N crawls"),
        option(
            "-a",
            dest="arguments",
            action="append",
            default=[],
            metavar="NAME=VALUE",
            help="argument of the spider",
        ),
        option("--json", action="store_true", help="print a line of JSON per cycle instead"),
    ],
    MonitoredCycle,
)
