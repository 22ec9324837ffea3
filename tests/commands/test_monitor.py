"""``scrapy gp4c monitor``: its schedule, and what survives kills, jumps of the clock and slow cycles."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from argparse import ArgumentTypeError
from dataclasses import replace
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scrapy_gp4c.commands.monitor import line, warning
from scrapy_gp4c.commands.monitoring import Monitor, MonitoredCycle, Told
from scrapy_gp4c.commands.schedule import Now, Schedule, Timer, Window, duration, percentage, window
from scrapy_gp4c.errors import StoreInUseError
from scrapy_gp4c.store.opening import open_store
from tests.support.schemas import checked
from tests.support.sources import ROOT


class FakeClock:
    """Time that passes when somebody waits, and jumps as told."""

    def __init__(self) -> None:
        self.wall, self.steady = 1_700_000_000.0, 0.0
        self.jumps: dict[int, float] = {}
        self.sleeps: dict[int, float] = {}
        self.waits = 0

    def now(self) -> Now:
        """Both clocks."""
        return Now(self.wall, self.steady)

    def wait(self, told: Told, seconds: float) -> None:
        """Let time pass; at some waits somebody sets the clock, or the machine sleeps."""
        assert seconds > 0
        self.waits += 1
        self.steady += seconds
        self.wall += seconds + self.jumps.get(self.waits, 0.0) + self.sleeps.get(self.waits, 0.0)


class FakeCrawl:
    """A crawl of a known duration."""

    def __init__(self, clock: FakeClock, seconds: float) -> None:
        self.clock, self.ends = clock, clock.steady + seconds

    def poll(self) -> int | None:
        """Exit code 0 when its time is over."""
        return 0 if self.clock.steady >= self.ends else None

    def stop(self) -> None:
        """Never asked."""
        raise AssertionError


@settings(max_examples=60, deadline=None)
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
        starts.append(clock.steady)
        return FakeCrawl(clock, durations[len(starts) - 1])

    told: list[MonitoredCycle] = []
    store = Path(f"/tmp/gp4c-no-store-{os.getpid()}")
    assert Monitor(store, start, Schedule(3600.0), told.append, clock=clock).run(30) == 0
    store.with_name(f"{store.name}.monitor.lock").unlink(missing_ok=True)
    assert len(starts) == len(told) == 30
    gaps = [later - one for one, later in pairwise(starts)]
    early = 0
    for gap, took in zip(gaps, durations, strict=False):
        assert gap >= took  # never two at once
        assert gap <= max(3600.0, took) + 31.0  # no jump back makes it wait
        early += gap < min(3600.0, took - 1.0) or (gap < 3599.0 and took < 3599.0)
    assert early <= len(jumps) + len(sleeps)
    assert [one.outlasted for one in told] == [one.took_s > 3600.0 for one in told]
    assert told[-1].next is None


@given(st.floats(-1e9, 1e9), st.floats(0.0, 1e6), st.floats(1.0, 1e6))
def test_a_timer_runs_out_by_either_clock(jump: float, passed: float, wait_s: float) -> None:
    """By the steady one after a step back of the wall clock, by the wall clock after a sleep."""
    timer = Timer(Now(1e9, 50.0), wait_s)
    remaining = timer.remaining_s(Now(1e9 + passed + jump, 50.0 + passed))
    assert remaining <= max(0.0, wait_s - passed) + 1e-3
    assert (remaining == 0.0) == (passed >= wait_s or passed + jump >= wait_s) or remaining < 1e-3


@given(st.integers(1, 500), st.integers(0, 2**32))
def test_jitter_stays_within_its_share(number: int, seed: int) -> None:
    """Drawn from the seed, anew for each interval."""
    schedule = Schedule(100.0, 0.1, seed=seed)
    assert 90.0 <= schedule.interval_s(number) <= 110.0
    assert schedule.interval_s(number) == schedule.interval_s(number) != schedule.interval_s(number + 1)


def test_times_on_the_command_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """Durations, shares and parts of a day, those over midnight too; all else is refused by name."""
    assert [duration(text) for text in ("1h", "30m", "45s", "2d", "1.5h", "90")] == [
        3600, 1800, 45, 172800, 5400, 90,
    ]  # fmt: skip
    assert [percentage(text) for text in ("10%", "0.1", "0")] == [0.1, 0.1, 0.0]
    assert window("07:00-22:00") == Window(420, 1320)
    for read, text in (
        (duration, "0h"), (duration, "soon"), (percentage, "100%"), (percentage, "-1%"), (percentage, "x"),
        (window, "7-22"), (window, "07:60-22:00"), (window, "07:00-25:00"), (window, "07:00-07:00"),
    ):  # fmt: skip
        with pytest.raises(ArgumentTypeError, match="such as"):
            read(text)
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    day, night = window("07:00-22:00"), window("22:00-07:00")
    for hour in range(24):
        assert day.is_open(hour * 3600) == (7 <= hour < 22) != night.is_open(hour * 3600)
    monkeypatch.delenv("TZ")
    time.tzset()


def test_cycles_begin_in_the_active_part_of_the_day_alone(tmp_path: Path) -> None:
    """What is due at night waits for the morning, once."""
    clock = FakeClock()
    active = Window(7 * 60, 9 * 60)
    starts: list[float] = []

    def start() -> FakeCrawl:
        starts.append(clock.wall)
        return FakeCrawl(clock, 60.0)

    Monitor(tmp_path / "store", start, Schedule(1800.0, 0.0, active), lambda one: None, clock=clock).run(9)
    assert all(active.is_open(wall) for wall in starts)
    assert len({time.localtime(wall).tm_yday for wall in starts}) >= 3


def test_who_starts_a_monitor_hears_when_the_first_cycle_begins(tmp_path: Path) -> None:
    """Where the interval since the last one is not over; else it begins at once, without a word."""
    clock = FakeClock()
    expected: list[float] = []

    def monitor(every_s: float) -> Monitor:
        store, schedule = tmp_path / "store", Schedule(every_s)
        return Monitor(
            store,
            lambda: FakeCrawl(clock, 9.0),
            schedule,
            lambda one: None,
            expect=expected.append,
            clock=clock,
        )

    monitor(3600.0).run(1)
    with open_store(tmp_path / "store") as store:
        store.begin_cycle({"started": clock.wall - 600.0})
        store.finish_cycle({"finished": clock.wall - 540.0})
    monitor(500.0).run(1)
    assert expected == []
    began = clock.wall
    monitor(3600.0).run(1)
    (due,) = expected
    assert due == pytest.approx(began + 3600.0 - 609.0)
    assert clock.wall >= due


def run_monitor(store: Path, log: Path, cycles: int, seconds: float = 0.03) -> subprocess.Popen[str]:
    """Start a monitor of small crawls, a process of its own."""
    command = [
        sys.executable,
        "-m",
        "tests.support.monitored",
        str(store),
        str(log),
        str(cycles),
        str(seconds),
    ]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def test_thirty_cycles_through_kills(tmp_path: Path) -> None:
    """Crawls and monitors die by kill -9, again and again: 30 cycles, each once, one at a time."""
    store, log = tmp_path / "store", tmp_path / "log"
    dice = random.Random(3)
    kills = {"crawl": 0, "monitor": 0}
    monitor = run_monitor(store, log, 30, 0.05)
    seen = 0
    while monitor.poll() is None:
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
        if monitor.poll() is not None and log.read_text().count("ends") < 30:  # killed, or crawls were
            monitor.communicate()
            monitor = run_monitor(store, log, 30, 0.05)
    monitor.communicate()
    assert min(kills.values()) > 0
    told = [line.split() for line in log.read_text().splitlines()]
    running: str | None = None
    for pid, _, what in told:
        if what == "begins":
            running = pid
        else:
            assert running == pid
    finished = [int(cycle) for _, cycle, what in told if what == "ends"]
    assert finished == sorted(set(finished))
    with open_store(store, readonly=True) as kept:
        assert (kept.last_cycle, kept.open_cycle, kept.verify()) == (30, None, [])


def test_one_monitor_per_store_and_a_clean_end(tmp_path: Path) -> None:
    """A second one is refused; SIGTERM ends the first and its crawl, whose cycle the next start resumes."""
    store, log = tmp_path / "store", tmp_path / "log"
    monitor = run_monitor(store, log, 5, 60.0)
    while not log.exists() or "begins" not in log.read_text():
        assert monitor.poll() is None
        time.sleep(0.01)
    with pytest.raises(StoreInUseError, match="monitored by another process"):
        Monitor(store, lambda: pytest.fail("two crawls"), Schedule(1.0), print).run(1)
    monitor.send_signal(signal.SIGTERM)
    output, _ = monitor.communicate(timeout=30)
    assert monitor.returncode == 0, output
    assert "is_finished=False" in output
    again = run_monitor(store, log, 1)
    output, _ = again.communicate(timeout=30)
    assert again.returncode == 0, output
    with open_store(store, readonly=True) as kept:
        assert (kept.last_cycle, kept.open_cycle) == (1, None)


SPIDER = """
import scrapy

class News(scrapy.Spider):
    name = "news"
    custom_settings = {"ADDONS": {"scrapy_gp4c.Addon": 500}, "GP4C_WARMUP_VISITS": 0}
    def __init__(self, port, **others):
        super().__init__(**others)
        self.start_urls = [f"http://127.0.0.1:{port}/{page}.html" for page in range(3)]
    def parse(self, response): pass
"""


def test_the_command_monitors_a_real_spider(tmp_path: Path) -> None:
    """``scrapy gp4c monitor``: two crawls, two lines of JSON by the schema; then a failure."""
    site = tmp_path / "site"
    site.mkdir()
    for page in range(3):
        (site / f"{page}.html").write_text(f"<p>{'words of a page ' * 9}{page}</p>")
    (tmp_path / "scrapy.cfg").write_text("[settings]\ndefault = settings\n")
    (tmp_path / "settings.py").write_text("SPIDER_MODULES = ['spiders']\n")
    (tmp_path / "spiders.py").write_text(SPIDER)

    class Quiet(SimpleHTTPRequestHandler):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given, directory=str(site))

        def log_message(self, *given: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Quiet)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    command = [sys.executable, "-m", "scrapy", "gp4c", "monitor", "news", "--every", "0.1s", "--json"]
    given = ["-a", f"port={server.server_port}", "-s", f"GP4C_STORE={tmp_path / 'store'}"]
    common: dict[str, Any] = {"cwd": tmp_path, "capture_output": True, "text": True, "timeout": 120}
    environment = {**os.environ, "PYTHONWARNINGS": "ignore"}
    done = subprocess.run([*command, "--cycles", "2", *given], env=environment, check=False, **common)
    server.shutdown()
    assert done.returncode == 0, done.stderr
    first, second = (checked("monitor", text) for text in done.stdout.splitlines())
    assert [(one["cycle"], one["visited"], one["hosts"]) for one in (first, second)] == [(1, 3, 1), (2, 1, 1)]
    assert first["outlasted"]
    assert "longer than the 0 s from one to the next" in done.stderr
    failed = subprocess.run([*command, "--cycles", "1", *given[2:]], env=environment, check=False, **common)
    assert failed.returncode == 1
    assert failed.stderr.endswith("at least one crawl failed; its log says why\n")


def test_lines_for_people() -> None:
    """What came of a cycle, when the next is due, and the figures that decide a long one."""
    cycle = MonitoredCycle(0.0, 90.0, 0, 3, True, 40, 4, 0.1, 2, 30, True, 100.0)
    assert re.search(r"  cycle 3: 40 visited, 4 changed \(change rate 0.100\), 90 s; next at \d", line(cycle))
    assert "0.44 pages/s from 2 hosts. The largest gave 30 pages, which take 60 s" in warning(
        cycle, 60.0, 2.0
    )
    assert "ended with signal 9; the next one goes on where it was" in line(replace(cycle, exit_code=-9))
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


def test_a_signal_at_any_moment_of_a_wait_wakes_it() -> None:
    """Thousands of signals while a monitor waits; none finds the waiting to hold what its handler needs."""
    script = """if True:
        import signal, sys
        from pathlib import Path
        from scrapy_gp4c.commands.monitoring import Monitor, RealClock
        from scrapy_gp4c.commands.schedule import Schedule
        monitor = Monitor(Path("unused"), None, Schedule(1.0), print)
        signal.signal(signal.SIGALRM, lambda *_: monitor.stop())
        signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
        while monitor._stops < 2000:
            RealClock().wait(monitor._told, 0.00005)
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        """
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60, cwd=ROOT)
