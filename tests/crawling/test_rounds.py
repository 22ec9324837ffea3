"""Several rounds in a cycle: what a crawl visits is what a replay visits, and a kill changes no plan."""

from __future__ import annotations

import random
import signal
from pathlib import Path
from typing import Any

import numpy as np
from scrapy.settings import Settings as ScrapySettings

from scrapy_gp4c.crawling.planning import RANKED, Planner
from scrapy_gp4c.policies.policy import Found
from scrapy_gp4c.settings import Settings
from scrapy_gp4c.store.opening import open_store
from tests.support.killing import PAGES, Recorded, Web, Worker

SETTINGS = {
    "GP4C_POLICY": "tests.support.policies.siblings",
    "GP4C_WARMUP_VISITS": 0,
    "GP4C_BUDGET": 0.5,
    "GP4C_PANEL": 0.2,
}


def check_plans(path: Path) -> int:
    """Check every round of the open cycle against what its logged visits give; returns how many there are."""
    with open_store(path, readonly=True) as store:
        if store.is_folding or store.open_cycle is None:
            return 0
        planner = Planner(store, Settings.load(ScrapySettings(SETTINGS)))
        plan = np.concatenate([np.empty(0, np.uint32), *(chunk["page"] for chunk in store.plan())])
        kinds = np.concatenate([np.empty(0, np.uint8), *(chunk["kind"] for chunk in store.plan())])
        visits = store.open_visits()
        start = 0
        for number, one in enumerate(store.rounds()):
            seen = visits[: one["seen"]]
            assert len(seen) == one["seen"]
            before = plan[:start]
            chosen = planner.choice(
                number,
                int((kinds[:start] == RANKED).sum()),
                before,
                Found(seen["page"].copy(), seen["outcome"].copy()),
            )
            rows = slice(start, start + one["planned"])
            assert plan[rows][kinds[rows] == RANKED].tolist() == chosen.pages.tolist()
            start += one["planned"]
        return len(store.rounds())


def check_finished(path: Path, cycle: int) -> None:
    """Check that a finished cycle spent its budget exactly: panel and ranked pages together."""
    with open_store(path, readonly=True) as store:
        record = store.cycles()[cycle - 1]
        kinds = np.concatenate([rows["kind"] for number, rows in store.visits(cycle, cycle)])
        counts = record["plan"]
        assert int((kinds == RANKED).sum()) == counts["ranked"]
        assert counts["ranked"] + counts["panel"] == (PAGES + 1) // 2
        assert len(record["rounds"]) == 4


def test_kill_9_at_fifty_moments_of_four_rounds(web: Web, worker: Worker) -> None:
    """Between rounds, in a plan's writing, in the fold: no page twice, budget exact, each plan as told."""
    worker.begin(SETTINGS)
    assert worker.wait() == 0
    moments = random.Random(2007)
    kills = between = 0
    state: Recorded | None = None
    last_cycle = 1
    for turn in range(200):
        web.log.clear()
        if turn % 8 == 0:
            worker.begin(SETTINGS, kill_in_fold=moments.randrange(4))
        elif turn % 2:
            worker.begin(SETTINGS, kill_at_plan=moments.randrange(6) / 2)
        else:
            worker.kill_after(web, moments.randrange(PAGES // 3), moments.uniform(0.0, 0.03), SETTINGS)
        kills += worker.wait() == -signal.SIGKILL
        between += 0 < check_plans(worker.store) < 4
        before, state = state, Recorded(worker.store)
        state.has_kept(before)
        state.has_committed(worker.commits)
        for cycle in range(last_cycle + 1, state.last_cycle + 1):
            check_finished(worker.store, cycle)
        web.version += state.last_cycle - last_cycle
        last_cycle = state.last_cycle
        if kills >= 50 and state.open_cycle is None:
            break
    assert kills >= 50
    assert between >= 15
    assert last_cycle >= 4


def test_an_interrupted_cycle_goes_on_by_the_policy_it_was_begun_with(web: Web, worker: Worker) -> None:
    """The settings may name another by then: its rounds are for the next cycle."""
    settings: dict[str, Any] = SETTINGS | {"GP4C_POLICY": "rounds(rounds=3)"}
    worker.begin(settings)
    assert worker.wait() == 0
    worker.begin(settings, kill_at_plan=1.5)  # the second of three rounds is just planned
    assert worker.wait() == -signal.SIGKILL
    worker.begin(SETTINGS | {"GP4C_POLICY": "top_k"})
    assert worker.wait() == 0
    worker.begin(SETTINGS | {"GP4C_POLICY": "top_k"})
    assert worker.wait() == 0
    with open_store(worker.store, readonly=True) as store:
        records = store.cycles()
    assert [len(record["rounds"]) for record in records] == [3, 3, 1]
    assert [record["policy"] for record in records] == ["rounds(rounds=3)", "rounds(rounds=3)", "top_k"]
    assert records[1]["plan"]["ranked"] + records[1]["plan"]["panel"] == (PAGES + 1) // 2
    assert "policy rounds(rounds=3)" in worker.log.read_text()


def test_a_dotted_path_that_a_store_names_is_not_loaded(web: Web, worker: Worker) -> None:
    """A store is data: the settings must name the policy again, and one line says so."""
    worker.begin(SETTINGS)
    assert worker.wait() == 0
    worker.begin(SETTINGS, kill_at_plan=1.5)
    assert worker.wait() == -signal.SIGKILL
    worker.begin(SETTINGS | {"GP4C_POLICY": "top_k"})
    worker.wait()
    assert "is a dotted path, which only settings may name" in worker.log.read_text()
    assert Recorded(worker.store).open_cycle == 2
    worker.begin(SETTINGS)
    assert worker.wait() == 0
    check_finished(worker.store, 2)
