"""Interrupted crawls: Ctrl-C once and twice, SIGTERM, and kill -9 at many random moments."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from scrapy_gp4c.store.lmdb_store.store import Store

PAGES = 64
LIST = [f"/{number}" for number in range(PAGES)]
WORKER = Path(__file__).parents[1] / "support" / "crawl_worker.py"


class Web:
    """A site of `PAGES` pages and a listing, in a thread of the test; logs the paths fetched."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.delay_s = 0.002
        web = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                """Serve one page."""
                web.log.append(self.path)
                time.sleep(web.delay_s)
                links = "".join(f'<a href="{path}">x</a>' for path in LIST) if self.path == "/list" else ""
                body = f"<html><body><p>page {self.path} of a small site</p>{links}</body></html>".encode()
                self.send_response(200)
                self.send_header("Content-Type", "text/html")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *arguments: Any) -> None:
                """Log nothing to standard error."""

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *arguments: Any) -> None:
                """Say nothing about clients that were killed."""

        self._server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/list"
        threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
        ).start()

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()


class Worker:
    """Runs crawls of a site one after the other, in children of a process; see crawl_worker.py."""

    def __init__(self, process: subprocess.Popen[str], url: str, directory: Path) -> None:
        self.store = directory / "store"
        self.commits = directory / "commits"
        self.log = directory / "log"
        self._process = process
        self._url = url

    def begin(self, more_settings: dict[str, Any] | None = None, **arguments: Any) -> int:
        """Start a crawl; returns its process id."""
        settings = {
            "ADDONS": {"scrapy_gp4c.Addon": 500},
            "GP4C_STORE": str(self.store),
            "GP4C_BUDGET": 0.5,
            "GP4C_PANEL": 0.2,
            "LOG_FILE": str(self.log),
            "LOG_LEVEL": "INFO",
            "TELNETCONSOLE_ENABLED": False,
            "CONCURRENT_REQUESTS_PER_DOMAIN": 16,
            **(more_settings or {}),
        }
        request = {"settings": settings, "url": self._url, "commits": str(self.commits), **arguments}
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return int(self._line())

    def kill_after(self, web: Web, requests: int, delay_s: float) -> None:
        """Start a crawl and kill it this long after it has made so many requests, if it makes so many."""
        pid = self.begin()
        with suppress(ProcessLookupError):
            while len(web.log) < requests:
                os.kill(pid, 0)  # raises when the crawl is over
                time.sleep(0.001)
            time.sleep(delay_s)
            os.kill(pid, signal.SIGKILL)

    def wait(self) -> int:
        """Wait for the end of the crawl; returns its exit status."""
        return int(self._line())

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline()


@pytest.fixture
def web() -> Iterator[Web]:
    """Yield a site."""
    served = Web()
    yield served
    served.close()


@pytest.fixture(scope="module")
def forking() -> Iterator[subprocess.Popen[str]]:
    """Yield the process that has everything imported."""
    with subprocess.Popen(
        [sys.executable, str(WORKER)],
        env={**os.environ, "PYTHONPATH": str(WORKER.parents[2])},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        yield process


@pytest.fixture
def worker(forking: subprocess.Popen[str], web: Web, tmp_path: Path) -> Worker:
    """Return what runs crawls of that site."""
    return Worker(forking, web.url, tmp_path)


class Recorded:
    """What a store holds after a run, read beside no writer; opening it to write completes a fold."""

    def __init__(self, path: Path) -> None:
        self.in_fold = False
        if path.exists():
            with Store(path, readonly=True) as store:
                self.in_fold = store.is_folding
        with Store(path) as store:
            assert store.verify() == []
            self.last_cycle = store.last_cycle
            self.open_cycle = store.open_cycle
            chunks = [*store.visits(), (store.open_cycle or 0, store.open_visits())]
            self.visits = {(cycle, int(row["page"])): row.tobytes() for cycle, rows in chunks for row in rows}
            assert len(self.visits) == sum(len(rows) for _, rows in chunks), "a page was visited twice"
            plan = np.concatenate([np.empty(0, np.uint32), *(chunk["page"] for chunk in store.plan())])
            assert len(np.unique(plan)) == len(plan)
            urls = [request["url"] for request in store.requests(range(store.pages))]
            assert len(set(urls)) == len(urls)
            self.visited_paths = {
                "/" + urls[page].split("/", 3)[3]
                for cycle, page in self.visits
                if cycle == (self.open_cycle or self.last_cycle)
            }

    def has_kept(self, before: Recorded | None) -> None:
        """Check that no visit of an earlier state was lost or altered."""
        for visit, content in before.visits.items() if before is not None else ():
            assert self.visits[visit] == content

    def has_committed(self, commits: Path) -> None:
        """Check that every visit is there whose commit had returned."""
        counts: dict[int, int] = {}
        for line in commits.read_text().splitlines() if commits.exists() else ():
            cycle, count = map(int, line.split())
            counts[cycle] = max(count, counts.get(cycle, 0))
        for cycle, count in counts.items():
            assert sum(of == cycle for of, _ in self.visits) >= count


def test_kill_9_at_fifty_random_moments(web: Web, worker: Worker) -> None:
    """Whenever a crawl is killed, the next run goes on: nothing lost, doubled, altered or fetched in vain."""
    moments = random.Random(2014)
    kills = in_fold = resumed = 0
    state: Recorded | None = None
    for _ in range(200):
        web.log.clear()
        if kills % 6 == 5:
            worker.begin(kill_in_fold=moments.randrange(4))
        else:
            worker.kill_after(web, moments.randrange(PAGES // 2), moments.uniform(0.0, 0.05))
        status = worker.wait()
        before, fetched = state, set(web.log)
        if not worker.store.exists():
            continue
        state = Recorded(worker.store)
        kills += status == -signal.SIGKILL
        in_fold += state.in_fold
        state.has_kept(before)
        state.has_committed(worker.commits)
        if before is not None and before.open_cycle is not None:
            resumed += 1
            if before.open_cycle == (state.open_cycle or state.last_cycle):
                assert not fetched & before.visited_paths
        if kills >= 50:
            break
    assert kills >= 50
    assert in_fold >= 5
    assert resumed >= 10
    assert state is not None
    before = state
    worker.begin()
    assert worker.wait() == 0
    state = Recorded(worker.store)
    state.has_kept(before)
    assert state.open_cycle is None
    assert state.last_cycle > before.last_cycle


@pytest.mark.parametrize("signals", [[signal.SIGINT], [signal.SIGTERM], [signal.SIGINT, signal.SIGINT]])
def test_signals_interrupt_the_cycle_and_the_next_run_resumes_it(
    signals: list[signal.Signals], web: Web, worker: Worker
) -> None:
    """Ctrl-C, Ctrl-C twice and SIGTERM: both runs together visit every page of the cycle exactly once."""
    worker.begin()
    assert worker.wait() == 0
    web.delay_s = 0.05
    web.log.clear()
    pid = worker.begin()
    while len(web.log) < PAGES // 3:
        time.sleep(0.005)
    for number in signals:
        os.kill(pid, number)
        time.sleep(0.02)
    worker.wait()
    state = Recorded(worker.store)
    state.has_committed(worker.commits)
    assert state.open_cycle == 2
    assert 0 < len(state.visited_paths) < PAGES
    if len(signals) == 1:  # what was being downloaded is finished and recorded
        assert state.visited_paths == set(web.log)
        assert "the next run resumes it" in worker.log.read_text()
    web.delay_s = 0.0
    web.log.clear()
    worker.begin()
    assert worker.wait() == 0
    assert not set(web.log) & state.visited_paths
    final = Recorded(worker.store)
    final.has_kept(state)
    assert (final.last_cycle, final.open_cycle) == (2, None)
    assert final.visited_paths == {*LIST, "/list"}


def test_pages_discovered_before_the_kill_are_visited_by_the_resumed_cycle(web: Web, worker: Worker) -> None:
    """The first cycle is killed after the listing was read: the next run visits what it had found."""
    web.delay_s = 0.05
    pid = worker.begin()
    while len(web.log) < PAGES // 3:
        time.sleep(0.005)
    os.kill(pid, signal.SIGKILL)
    worker.wait()
    state = Recorded(worker.store)
    assert state.open_cycle == 1
    assert "/list" in state.visited_paths
    web.delay_s = 0.0
    worker.begin()
    assert worker.wait() == 0
    assert Recorded(worker.store).visited_paths == {*LIST, "/list"}


@pytest.mark.parametrize("first_cycle", [True, False])
def test_a_queue_kept_in_a_jobdir_costs_no_second_fetch(
    first_cycle: bool, web: Web, worker: Worker, tmp_path: Path
) -> None:
    """With a JOBDIR the queue comes back too: still every page of the cycle is fetched exactly once."""
    if not first_cycle:
        worker.begin()
        assert worker.wait() == 0
    jobdir = {"JOBDIR": str(tmp_path / "job")}
    web.delay_s = 0.05
    web.log.clear()
    pid = worker.begin(jobdir)
    while len(web.log) < PAGES // 3:
        time.sleep(0.005)
    os.kill(pid, signal.SIGINT)
    assert worker.wait() == 0
    assert Recorded(worker.store).open_cycle == (1 if first_cycle else 2)
    web.delay_s = 0.002
    worker.begin(jobdir)
    assert worker.wait() == 0
    assert sorted(web.log) == sorted([*LIST, "/list"])
    assert Recorded(worker.store).visited_paths == {*LIST, "/list"}
