"""``scrapy gp4c monitor``: its schedule, and what survives kills, jumps of the clock and slow cycles."""

import json
import os
import pty
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from argparse import ArgumentTypeError
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from scrapy_gp4c.commands.monitor import (
    KILL_AFTER_S,
    Listener,
    Monitor,
    MonitoredCycle,
    Now,
    Schedule,
    Timer,
    WakeUps,
    Window,
    duration,
    line,
    percentage,
    warning,
    window,
)
from scrapy_gp4c.errors import StoreInUseError
from scrapy_gp4c.page_state.rules import UNITS_S
from scrapy_gp4c.store.opening import open_store
from scrapy_gp4c.store.records import local_time
from tests.support.schemas import checked
from tests.support.served import served
from tests.support.sources import ROOT


class FakeClock:
    """Time that passes when somebody waits, and jumps as told."""

    def __init__(self) -> None:
        self.wall_s, self.steady_s = 1_700_000_000.0, 0.0
        self.jumps: dict[int, float] = {}
        self.sleeps: dict[int, float] = {}
        self.waits = 0

    def now(self) -> Now:
        return Now(self.wall_s, self.steady_s)

    def wait(self, wake_ups: WakeUps, seconds: float) -> None:
        """Let time pass; at some waits somebody sets the clock, or the machine sleeps."""
        assert seconds > 0
        self.waits += 1
        self.steady_s += seconds
        self.wall_s += seconds + self.jumps.get(self.waits, 0.0) + self.sleeps.get(self.waits, 0.0)


class Record(Listener):
    """A listener that records all messages."""

    def __init__(self) -> None:
        self.cycles: list[MonitoredCycle] = []
        self.lines: list[str] = []

    def say(self, text: str) -> None:
        self.lines.append(text)

    def ended(self, cycle: MonitoredCycle) -> None:
        self.cycles.append(cycle)


class HangingCrawl:
    """A crawl that ends by a kill alone."""

    def __init__(self) -> None:
        self.orders: list[str] = []

    def poll(self) -> int | None:
        return -9 if "kill" in self.orders else None

    def stop(self) -> None:
        self.orders.append("stop")

    def kill(self) -> None:
        self.orders.append("kill")


class FakeCrawl:
    """A crawl of a known duration."""

    def __init__(self, clock: FakeClock, seconds: float) -> None:
        self.clock, self.ends = clock, clock.steady_s + seconds

    def poll(self) -> int | None:
        """Exit code 0 when its time is over."""
        return 0 if self.clock.steady_s >= self.ends else None

    def stop(self) -> None:
        raise AssertionError

    def kill(self) -> None:
        raise AssertionError


@pytest.mark.slow
@given(
    st.dictionaries(st.integers(1, 300), st.floats(-1e6, 1e6), max_size=8),
    st.dictionaries(st.integers(1, 300), st.floats(0.0, 1e6), max_size=8),
    st.lists(st.floats(1.0, 5000.0), min_size=30, max_size=30),
)
def test_thirty_cycles_whatever_the_clocks_do(
    jumps: dict[int, float], sleeps: dict[int, float], durations: list[float]
) -> None:
    """One at a time, none made up for; no more come early than there are jumps, none late."""
    clock = FakeClock()
    clock.jumps, clock.sleeps = jumps, sleeps
    starts: list[float] = []

    def start() -> FakeCrawl:
        starts.append(clock.steady_s)
        return FakeCrawl(clock, durations[len(starts) - 1])

    record = Record()
    store = Path(f"/tmp/gp4c-no-store-{os.getpid()}")
    assert Monitor(store, start, Schedule(3600.0), record, clock).run(30) == 0
    store.with_name(f"{store.name}.monitor.lock").unlink(missing_ok=True)
    assert len(starts) == len(record.cycles) == 30
    gaps = [later - one for one, later in pairwise(starts)]
    early = 0
    for gap, took in zip(gaps, durations, strict=False):
        assert gap >= took  # never two at once
        assert gap <= max(3600.0, took) + 31.0  # no jump back makes it wait
        early += gap < min(3600.0, took - 1.0) or (gap < 3599.0 and took < 3599.0)
    assert early <= len(jumps) + len(sleeps)
    assert [one.outlasted for one in record.cycles] == [one.took_s > 3600.0 for one in record.cycles]
    assert record.cycles[-1].next is None


@given(st.floats(-1e9, 1e9), st.floats(0.0, 1e6), st.floats(1.0, 1e6))
def test_a_timer_runs_out_by_either_clock(jump: float, passed: float, wait_s: float) -> None:
    """By the steady one after a step back of the wall clock, by the wall clock after a sleep."""
    timer = Timer(Now(1e9, 50.0), wait_s)
    remaining = timer.remaining_s(Now(1e9 + passed + jump, 50.0 + passed))
    assert remaining <= max(0.0, wait_s - passed) + 1e-3
    assert (remaining == 0.0) == (passed >= wait_s or passed + jump >= wait_s) or remaining < 1e-3


def test_cycles_begin_in_the_active_part_of_the_day_alone(tmp_path: Path) -> None:
    """What is due at night waits for the morning, once."""
    clock = FakeClock()
    active = Window(7 * 60, 9 * 60)
    starts: list[float] = []

    def start() -> FakeCrawl:
        starts.append(clock.wall_s)
        return FakeCrawl(clock, 60.0)

    Monitor(tmp_path / "store", start, Schedule(1800.0, 0.0, active), Record(), clock).run(9)
    assert all(active.is_open(wall) for wall in starts)
    assert len({time.localtime(wall).tm_yday for wall in starts}) >= 3


def test_who_starts_a_monitor_hears_when_the_first_cycle_begins(tmp_path: Path) -> None:
    """Where the interval since the last one is not over; else it begins at once, without a word."""
    clock, record = FakeClock(), Record()

    def monitor(every_s: float) -> Monitor:
        return Monitor(tmp_path / "store", lambda: FakeCrawl(clock, 9.0), Schedule(every_s), record, clock)

    monitor(3600.0).run(1)
    with open_store(tmp_path / "store") as store:
        store.begin_cycle({"started": clock.wall_s - 600.0})
        store.finish_cycle({"finished": clock.wall_s - 540.0})
    monitor(500.0).run(1)
    assert record.lines == []
    began = clock.wall_s
    monitor(3600.0).run(1)
    due_s = began + 3600.0 - 609.0
    assert record.lines[0].endswith(f"less than 3600 s ago; the next is due at {local_time(due_s)}")
    assert clock.wall_s >= due_s


def run_monitor(store: Path, log: Path, cycles: int, seconds: float = 0.03) -> subprocess.Popen[str]:
    """Start a monitor of small crawls, which writes to a file: a pipe that is full would stop it."""
    command = [
        sys.executable,
        "-m",
        "tests.support.monitored",
        str(store),
        str(log),
        str(cycles),
        str(seconds),
    ]
    with log.with_name("output").open("a") as output:
        return subprocess.Popen(command, cwd=ROOT, stdout=output, stderr=subprocess.STDOUT, text=True)


def finished_cycles(store: Path) -> int:
    """Number of finished cycles of a store that a killed crawl may not have made yet."""
    if not (store / "data.mdb").exists():
        return 0
    with open_store(store, readonly=True) as opened_store:
        return opened_store.last_cycle


@pytest.mark.slow
def test_thirty_cycles_through_kills(tmp_path: Path) -> None:
    """Crawls and monitors die by kill -9, again and again: 30 cycles, each once, one at a time."""
    store, log = tmp_path / "store", tmp_path / "log"
    dice = random.Random(3)
    kills = {"crawl": 0, "monitor": 0}
    monitor = run_monitor(store, log, 30, 0.05)
    seen = 0
    while True:
        if monitor.poll() is not None:
            if finished_cycles(store) == 30:
                break
            monitor = run_monitor(store, log, 30, 0.05)  # it was killed, or its crawls were
        lines = log.read_text().splitlines() if log.exists() else []
        if len(lines) > seen and lines[-1].endswith("begins") and sum(kills.values()) < 10:
            seen = len(lines) + dice.randrange(4)
            victim = "monitor" if dice.random() < 0.4 else "crawl"
            kills[victim] += 1
            try:
                os.kill(monitor.pid if victim == "monitor" else int(lines[-1].split()[0]), signal.SIGKILL)
            except ProcessLookupError:
                continue
        time.sleep(0.01)
    assert min(kills.values()) > 0
    log_lines = [line.split() for line in log.read_text().splitlines()]
    running: str | None = None
    for pid, _, what in log_lines:
        if what == "begins":
            running = pid
        else:
            assert running == pid
    finished = [int(cycle) for _, cycle, what in log_lines if what == "ends"]
    assert finished == sorted(set(finished))
    with open_store(store, readonly=True) as opened_store:
        assert (opened_store.last_cycle, opened_store.open_cycle, opened_store.verify()) == (30, None, [])


@pytest.mark.slow
def test_one_monitor_per_store_and_a_clean_end(tmp_path: Path) -> None:
    """A second one is refused; SIGTERM ends the first and its crawl, whose cycle the next start resumes."""
    store, log = tmp_path / "store", tmp_path / "log"
    monitor = run_monitor(store, log, 5, 60.0)
    while not log.exists() or "begins" not in log.read_text():
        assert monitor.poll() is None
        time.sleep(0.01)
    with pytest.raises(StoreInUseError, match="monitored by another process"):
        Monitor(store, lambda: pytest.fail("two crawls"), Schedule(1.0), Record()).run(1)
    monitor.send_signal(signal.SIGTERM)
    output = log.with_name("output")
    assert monitor.wait(timeout=30) == 0, output.read_text()
    assert "is_finished=False" in output.read_text()
    again = run_monitor(store, log, 1)
    assert again.wait(timeout=30) == 0, output.read_text()
    with open_store(store, readonly=True) as opened_store:
        assert (opened_store.last_cycle, opened_store.open_cycle) == (1, None)


SPIDER = """
import scrapy

class News(scrapy.Spider):
    name = "news"
    custom_settings = {"ADDONS": {"scrapy_gp4c.Addon": 500}, "GP4C_WARMUP_VISITS": 0}
    def __init__(self, site, **others):
        super().__init__(**others)
        self.start_urls = [f"{site}/{page}.html" for page in range(3)]
    def parse(self, response): pass
"""


@pytest.mark.slow
def test_the_command_monitors_a_real_spider(tmp_path: Path) -> None:
    """``scrapy gp4c monitor``: two crawls, two lines of JSON by the schema; then a failure."""
    pages = {f"/{page}.html": f"<p>{'words of a page ' * 9}{page}</p>" for page in range(3)}
    (tmp_path / "scrapy.cfg").write_text("[settings]\ndefault = settings\n")
    (tmp_path / "settings.py").write_text("SPIDER_MODULES = ['spiders']\n")
    (tmp_path / "spiders.py").write_text(SPIDER)

    command = [sys.executable, "-m", "scrapy", "gp4c", "monitor", "news", "--every", "0.1s", "--json"]
    arguments = ["-s", f"GP4C_STORE={tmp_path / 'store'}"]
    common: dict[str, Any] = {"cwd": tmp_path, "capture_output": True, "text": True, "timeout": 120}
    environment = {**os.environ, "PYTHONWARNINGS": "ignore"}
    with served(pages.get) as site:
        words = [*command, "--cycles", "2", "-a", f"site={site}", *arguments]
        done = subprocess.run(words, env=environment, check=False, **common)
    assert done.returncode == 0, done.stderr
    first, second = (checked("monitor", text) for text in done.stdout.splitlines())
    assert [(one["cycle"], one["visited"], one["hosts"]) for one in (first, second)] == [(1, 3, 1), (2, 1, 1)]
    assert first["outlasted"]
    assert "longer than the interval of 0 s" in done.stderr
    failed = subprocess.run([*command, "--cycles", "1", *arguments], env=environment, check=False, **common)
    assert failed.returncode == 1
    assert failed.stderr.endswith("at least one crawl failed; its log says why\n")


def test_lines_for_people() -> None:
    """What came of a cycle, when the next is due, and the figures that decide a long one."""
    cycle = MonitoredCycle(0.0, 90.0, 0, 3, True, 40, 4, 0.1, 2, 30, True, 100.0)
    assert re.search(r"  cycle 3: 40 visited, 4 changed \(change rate 0.100\), 90 s; next at \d", line(cycle))
    assert "0.44 pages/s from 2 hosts. The largest gave 30 pages, which take 60 s" in warning(
        cycle, 60.0, 2.0
    )
    assert "ended with signal 9; the next one resumes its cycle" in line(replace(cycle, exit_code=-9))
    assert "ended with exit code 1" in line(replace(cycle, exit_code=1))
    assert "the crawl was interrupted" in line(replace(cycle, is_finished=False))
    assert json.loads(json.dumps(cycle.__dict__))["cycle"] == 3


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd here")
def test_the_unit_in_the_docs_is_one(tmp_path: Path) -> None:
    """As systemd itself sees it, with a command that exists."""
    text = (ROOT / "docs" / "commands.md").read_text("utf-8")
    unit = re.search(r"```ini\n(\[Unit\].*?)```", text, re.DOTALL)
    assert unit is not None
    path = tmp_path / "recrawl-news.service"
    path.write_text(unit[1].replace("/srv/project/.venv/bin/scrapy", sys.executable))
    done = subprocess.run(["systemd-analyze", "verify", path], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_a_signal_at_any_moment_of_a_wait_wakes_it() -> None:
    """Thousands of signals while a monitor waits; none finds the waiting to hold what its handler needs."""
    script = """if True:
        import signal, sys
        from pathlib import Path
        from scrapy_gp4c.commands.monitor import Monitor, RealClock, Schedule
        monitor = Monitor(Path("unused"), None, Schedule(1.0), None)
        signal.signal(signal.SIGALRM, lambda *_: monitor.stop())
        signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
        while monitor._stops < 2000:
            RealClock().wait(monitor._wake_ups, 0.00005)
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        """
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60, cwd=ROOT)


def test_a_second_stop_kills_a_crawl_that_hangs(tmp_path: Path) -> None:
    """The first stop asks it to end; while it hangs, every interval is one line."""
    clock, record, crawl = FakeClock(), Record(), HangingCrawl()
    monitor = Monitor(tmp_path / "store", lambda: crawl, Schedule(600.0), record, clock)
    clock_wait = clock.wait

    def wait(wake_ups: WakeUps, seconds: float) -> None:
        clock_wait(wake_ups, seconds)
        if clock.waits in (1_500, 1_600):
            monitor.stop()

    clock.wait = wait  # type: ignore[method-assign]
    assert monitor.run() == 0
    assert crawl.orders == ["stop", "kill"]
    assert [line.partition(";")[0] for line in record.lines] == [
        f"The crawl still runs after {took_s} s" for took_s in (601, 1201)
    ]
    assert record.cycles[0].exit_code == -9


def test_a_crawl_beyond_its_longest_duration_is_ended(tmp_path: Path) -> None:
    """It is asked to end, and killed a minute later; the monitor reports a failed crawl."""
    clock, record, crawl = FakeClock(), Record(), HangingCrawl()
    schedule = Schedule(3600.0, max_duration_s=100.0)
    assert Monitor(tmp_path / "store", lambda: crawl, schedule, record, clock).run(1) == 1
    assert crawl.orders == ["stop", "kill"]
    assert [line.rpartition(": it ")[2] for line in record.lines] == [
        "was asked to end",
        "did not end and was killed",
    ]
    assert record.cycles[0].took_s == pytest.approx(100.0 + KILL_AFTER_S, abs=3.0)


def test_two_paths_to_one_store_are_one_store(tmp_path: Path) -> None:
    """Through a symlink, a second monitor is refused."""
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    clock, record = FakeClock(), Record()
    inner = Monitor(tmp_path / "link" / "s", lambda: pytest.fail("two crawls"), Schedule(1.0), record, clock)

    def start() -> FakeCrawl:
        with pytest.raises(StoreInUseError, match="monitored by another process"):
            inner.run(1)
        return FakeCrawl(clock, 1.0)

    assert Monitor(tmp_path / "real" / "s", start, Schedule(1.0), record, clock).run(1) == 0


def test_a_closed_standard_output_ends_no_monitor(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Results are printed no more, which is said once."""
    terminal = Listener(60.0, 1.0)
    with open(os.devnull) as closed:
        monkeypatch.setattr(sys, "stdout", closed)  # cannot be written to
        for number in range(2):
            terminal.ended(MonitoredCycle(0.0, 9.0, 0, number, True, 4, 0, 0.0, 1, 4, False, 100.0))
    assert capsys.readouterr().err.count("Cannot write to standard output") == 1


def test_a_crawl_that_cannot_be_started_is_tried_again(tmp_path: Path) -> None:
    """Without memory for a process, the cycle is due again after the interval."""
    clock, record = FakeClock(), Record()
    starts = iter((OSError("no memory"), FakeCrawl(clock, 9.0)))

    def start() -> Any:
        crawl = next(starts)
        if isinstance(crawl, OSError):
            raise crawl
        return crawl

    assert Monitor(tmp_path / "store", start, Schedule(60.0), record, clock).run(2) == 1
    assert record.lines == ["The crawl cannot be started (no memory): free memory, or end other processes"]
    assert [cycle.exit_code for cycle in record.cycles] == [1, 0]


def test_a_terminal_that_has_gone_ends_no_monitor(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be closed while a monitor runs that ignores the hangup; what is said there is lost."""
    screen, terminal = pty.openpty()
    stderr = open(terminal, "w")  # noqa: SIM115 # to close it is an error then
    monkeypatch.setattr(sys, "stderr", stderr)
    listener = Listener(60.0, 1.0)
    listener.say("after 9 s")
    assert b"after 9 s" in os.read(screen, 1_000)
    os.close(screen)
    listener.say("after 9 s")
    with suppress(OSError):
        stderr.close()


def test_no_clock_makes_a_wait_longer_than_the_interval(tmp_path: Path) -> None:
    """A last cycle of the far future, and a wall clock that jumps back by 10^12 s."""
    clock, record = FakeClock(), Record()
    with open_store(tmp_path / "store") as store:
        store.begin_cycle({"started": 4e12})
        store.finish_cycle({"finished": 4e12})
    clock.jumps = {5: -1e12}
    schedule = Schedule(60.0)
    assert Monitor(tmp_path / "store", lambda: FakeCrawl(clock, 9.0), schedule, record, clock).run(3) == 0
    assert clock.steady_s < 4 * 60.0


MINUTES = st.integers(0, 24 * 60 - 1)


@contextmanager
def at_minute(minute: int) -> Iterator[None]:
    """Let it be that minute of the day, wherever this is run."""
    local = time.struct_time((2026, 1, 2, minute // 60, minute % 60, 59, 4, 2, 0))
    with patch.object(time, "localtime", lambda wall: local):
        yield


def clock_text(minute: int) -> str:
    """Minutes of a day as people write them."""
    return f"{minute // 60:02}:{minute % 60:02}"


@given(st.integers(1, 10**4), st.sampled_from(sorted(UNITS_S)), st.sampled_from(["", " "]))
def test_a_duration_is_a_number_of_its_unit(number: int, unit: str, blank: str) -> None:
    """A fraction and blanks are welcome."""
    assert duration(f"{blank}{number}{blank}{unit}{blank}") == number * UNITS_S[unit]
    assert duration(f"{number}.5{unit}") == (number + 0.5) * UNITS_S[unit]


@given(st.integers(0, 99))
def test_a_percentage_is_its_share(number: int) -> None:
    """With the sign or as a fraction."""
    assert percentage(f"{number}%") == percentage(str(number / 100)) == number / 100


REFUSED: dict[Callable[[str], object], tuple[str, list[str]]] = {
    duration: (
        "1h, 30m or 45s",
        ["5", "0s", "0.0h", "-1h", "1y", "1h30m", "h", "", "inf", "nan", ".5h"],
    ),
    percentage: ("below 100%", ["1", "100%", "-0.1", "-1%", "nan", "nan%", "inf", "%", "", "10 percent"]),
    window: (
        "07:00-22:00",
        [
            "",
            "7-22",
            "7:00-22:00",
            "07:00",
            "07:00-22:60",
            "07:60-22:00",
            "07:00-24:01",
            "24:00-00:00",
            "07:00-07:00",
        ],
    ),
}


def test_what_is_no_value_of_an_option_is_refused_in_words() -> None:
    """The message has an example and what was found."""
    for read, (example_text, texts) in REFUSED.items():
        for text in texts:
            with pytest.raises(ArgumentTypeError) as caught:
                read(text)
            assert example_text in str(caught.value)
            assert str(caught.value).endswith(f"found {text!r}")


@given(MINUTES, st.integers(0, 24 * 60), MINUTES)
def test_a_window_is_open_from_its_first_to_before_its_last_minute(
    opens: int, closes: int, minute: int
) -> None:
    """Over midnight too; minute by minute."""
    assume(opens != closes)
    result = window(f"{clock_text(opens)}-{clock_text(closes)}")
    assert result == Window(opens, closes)
    last = closes if closes > opens else closes + 24 * 60
    walked = {at % (24 * 60) for at in range(opens, last)}
    with at_minute(minute):
        assert result.is_open(0.0) == (minute in walked)


@given(st.floats(1.0, 1e6), st.floats(0.0, 0.99), st.integers(0, 99), st.integers(0, 9))
def test_intervals_are_drawn_from_the_seed(every_s: float, jitter: float, number: int, seed: int) -> None:
    """Longer or shorter by at most the jitter, never none; the same in every run."""
    one = Schedule(every_s, jitter, seed=seed)
    result = one.interval_s(number)
    assert 0.0 < every_s * (1.0 - jitter) * (1 - 1e-9) <= result <= every_s * (1.0 + jitter) * (1 + 1e-9)
    assert result == Schedule(every_s, jitter, seed=seed).interval_s(number)
    assert Schedule(every_s).interval_s(number) == every_s


def test_intervals_are_as_often_longer_as_shorter() -> None:
    """So that cycles do not drift; other seeds draw others."""
    drawn = [Schedule(100.0, 0.5, seed=3).interval_s(number) for number in range(2_000)]
    assert sum(drawn) / len(drawn) == pytest.approx(100.0, abs=2.0)
    assert min(drawn) < 52.0
    assert max(drawn) > 148.0
    assert drawn != [Schedule(100.0, 0.5, seed=4).interval_s(number) for number in range(2_000)]
