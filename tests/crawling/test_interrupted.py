"""Interrupted crawls: Ctrl-C once and twice, SIGTERM, and kill -9 at many random moments."""

import json
import os
import random
import signal
import sys
import time
from pathlib import Path

import pytest

from scrapy_gp4c.notices.events import dropped_state
from scrapy_gp4c.page_state.events import EVENTS, recorded_events
from scrapy_gp4c.store.lmdb_store.store import Store
from tests.support.killing import LIST, PAGES, Recorded, Web, Worker


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
def test_every_event_is_told_at_least_once_in_order_whenever_a_crawl_is_killed(
    web: Web, worker: Worker, tmp_path: Path
) -> None:
    """Kill -9 at fifty moments, the end of the cycle included; only visits of finished cycles are told of."""
    lines = tmp_path / "lines"
    script = tmp_path / "note.py"
    script.write_text(f"import sys\nopen({str(lines)!r}, 'a').write(sys.stdin.read())\n")
    settings = {"GP4C_ON_CHANGE": f"{sys.executable} {script}", "GP4C_BUDGET": 1.0, "GP4C_PANEL": 0.0}
    moments = random.Random(48)
    kills = 0
    for _ in range(200):
        web.log.clear()
        web.version += 1
        requests = moments.choice([moments.randrange(PAGES), PAGES])
        worker.kill_after(web, requests, moments.uniform(0.0, 0.6 if requests == PAGES else 0.05), settings)
        kills += worker.wait() == -signal.SIGKILL
        if kills >= 50:
            break
    assert kills >= 50
    for _ in range(2):
        worker.begin(settings)
        assert worker.wait() == 0
    events_of_cycle: dict[int, list[tuple[str, str]]] = {}
    for line in lines.read_text().splitlines():
        event = json.loads(line)
        events_of_cycle.setdefault(event["cycle"], []).append((event["kind"], event["url"]))
    with Store(worker.store, readonly=True) as store:
        assert max(events_of_cycle) <= store.last_cycle
        for events in recorded_events(store.visits(), dropped_state(store), 3, first_cycle=2):
            urls = [request["url"] for request in store.requests(events.visits["page"])]
            expected = [(EVENTS[kind], url) for kind, url in zip(events.kinds.tolist(), urls, strict=True)]
            once = list(dict.fromkeys(events_of_cycle.get(events.cycle, ())))
            assert once == expected, f"cycle {events.cycle}"
