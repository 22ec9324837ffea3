"""Several rounds in a cycle: what a crawl visits is what a replay visits, and a kill changes no plan."""

import logging
import os
import random
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scrapy.settings import Settings as ScrapySettings
from twisted.web.http import Request

from scrapy_gp4c.crawling.cycle import new_record, recorded_settings
from scrapy_gp4c.crawling.planning import RANKED, Planner
from scrapy_gp4c.errors import Gp4cError
from scrapy_gp4c.page_state.outcomes import CHOSEN, among
from scrapy_gp4c.policies.base import CycleVisits, Planned
from scrapy_gp4c.settings import Settings
from scrapy_gp4c.store.lmdb_store.store import Store
from scrapy_gp4c.store.opening import open_store
from tests.support.killing import PAGES, Recorded, Web, Worker
from tests.support.loopback import Listed, Site, crawl, html
from tests.support.stores import pages

KILLS = int(os.environ.get("GP4C_KILLS", "4"))
"""Kills while samples are out, for each policy."""
SETTINGS = {
    "GP4C_POLICY": "tests.support.policies.siblings",
    "GP4C_WARMUP_VISITS": 0,
    "GP4C_BUDGET": 0.5,
    "GP4C_PANEL": 0.2,
}


def check_plans(path: Path, settings: dict[str, Any] = SETTINGS) -> int:
    """Check every round of the open cycle against what its logged visits give; returns how many there are."""
    with open_store(path, readonly=True) as store:
        if store.is_folding or store.open_cycle is None:
            return 0
        planner = Planner.of(store, Settings.load(ScrapySettings(settings)))
        plan, kinds, scores = (store.plan()[name] for name in ("page", "kind", "score"))
        visits = store.open_visits()
        start = 0
        for number, one in enumerate(store.rounds()):
            seen = visits[: one["seen"]]
            assert len(seen) == one["seen"]
            before = plan[:start]
            chosen = planner.choice(
                number,
                int(among(kinds[:start], CHOSEN).sum()),
                Planned(before, kinds[:start]),
                CycleVisits.of(seen),
            )
            rows = slice(start, start + one["planned"])
            chosen_rows = among(kinds[rows], CHOSEN)
            assert plan[rows][chosen_rows].tolist() == chosen.pages.tolist()
            assert kinds[rows][chosen_rows].tolist() == chosen.kinds_of_pages().tolist()
            assert scores[rows][chosen_rows].tobytes() == chosen.scores.tobytes()
            start += one["planned"]
        return len(store.rounds())


def check_finished(path: Path, cycle: int) -> None:
    """Check that a finished cycle spent its budget exactly: hubs, panel and ranked pages together."""
    with open_store(path, readonly=True) as store:
        record = store.cycles()[cycle - 1]
        kinds = np.concatenate([rows["kind"] for number, rows in store.visits(cycle, cycle)])
        counts = record["plan"]
        assert int((kinds == RANKED).sum()) == counts["ranked"]
        assert counts["hub"] + counts["ranked"] + counts["panel"] == (PAGES + 1) // 2
        assert len(record["rounds"]) == 4


@pytest.mark.slow
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
    assert sum(records[1]["plan"][kind] for kind in ("hub", "ranked", "panel")) == (PAGES + 1) // 2
    assert "policy rounds(rounds=3)" in worker.log.read_text()


@pytest.mark.parametrize(
    ("amended", "missing"),
    [
        ({"formula": "t * tides"}, "tides"),
        ({"policy": "moons(phases=4)"}, "a policy is one of top_k"),
        ({"formula": "elsewhere.score"}, "only settings may name"),
        ({"policy": "elsewhere.policy"}, "only settings may name"),
    ],
)
def test_a_cycle_of_what_this_version_does_not_know_is_one_error(
    tmp_path: Path, amended: dict[str, Any], missing: str
) -> None:
    """As a store of a later version may hold it: cycle, policy and score function are named, and what is
    missing; nothing is imported, and no visit is lost."""
    settings = Settings.load(ScrapySettings(SETTINGS))
    with Store(tmp_path / "s") as store:
        store.add_pages(pages(3))
        record = new_record(settings, store) | {"policy": "rounds(rounds=2)", "formula": "t"} | amended
        store.begin_cycle(record)
        with pytest.raises(Gp4cError) as raised:
            recorded_settings(settings, store.cycles()[-1])
        assert store.open_cycle == 1
    message = str(raised.value)
    assert message.startswith("cycle 1 was begun with the policy ")
    assert all(repr(record[name]) in message for name in ("policy", "formula"))
    assert missing in message


@pytest.mark.slow
@pytest.mark.parametrize(
    ("policy", "slow_pages"),
    [
        ("db(d=0, in_flight=3)", 24),
        ("db(d=0, in_flight=3)", 0),
        ("gsb(level='directory', sample=4)", 0),
        ("rounds(rounds=3, sample=0.4)", 0),
    ],
)
def test_kill_9_while_samples_are_out(policy: str, slow_pages: int, web: Web, worker: Worker) -> None:
    """Every round of an open cycle is what its logged visits give; finished ones spent their budgets.

    So it is where rounds are planned while pages of a slow host wait.
    """
    settings: dict[str, Any] = SETTINGS | {"GP4C_POLICY": policy}
    web.elsewhere = slow_pages
    worker.begin(settings)
    assert worker.wait() == 0
    settings["DOWNLOAD_SLOTS"] = {"localhost": {"delay": 0.05, "concurrency": 1}} if slow_pages else {}
    settings["CONCURRENT_REQUESTS"] = 8
    moments = random.Random(2007)
    kills = between = checked = 0
    for turn in range(15 * KILLS):
        web.log.clear()
        if turn % 2:
            # A resumed crawl of two rounds has one left to plan, which is its first: 0.5 is behind that one.
            worker.begin(settings, kill_at_plan=moments.choice((0.5, 0.5, 1.0, 1.5, 2.0, 3.5)))
        else:
            worker.kill_after(web, moments.randrange(PAGES // 3), moments.uniform(0.0, 0.02), settings)
        kills += worker.wait() == -signal.SIGKILL
        between += check_plans(worker.store, settings) > 1
        web.version += turn % 2
        with open_store(worker.store, readonly=True) as store:
            cycles = [] if store.is_folding else store.cycles()[checked:]
            for record in (one for one in cycles if one.get("finished") and one["cycle"] > 1):
                rows = np.concatenate(
                    [rows_of_cycle for _, rows_of_cycle in store.visits(record["cycle"], record["cycle"])]
                )
                assert len(np.unique(rows["page"])) == len(rows)
                chosen = int(among(rows["kind"], CHOSEN).sum())
                plan = record["plan"]
                assert chosen + plan["panel"] + plan["hub"] == (PAGES + 1) // 2
                assert record["panel"] is None
        if kills >= KILLS and between >= KILLS // 2:
            break
    assert kills >= KILLS
    assert between >= KILLS // 2


@pytest.mark.slow
async def test_a_slow_page_of_a_round_holds_up_no_other(site: Site, store_path: Path) -> None:
    """One page of the first round answers only when all pages of all rounds have been fetched."""
    held: list[Request] = []
    budget = 16  # of 20 pages: one that covers all of them has one round

    def slow(request: Request) -> bytes | None:
        held.append(request)
        return release()

    def quick(request: Request) -> bytes:
        release()
        return b"<html><body>quick " + request.path + b"</body></html>"

    def release() -> None:
        if held and len(site.fetched()) == budget:
            held[-1].write(b"<html><body>slow</body></html>")
            held.pop().finish()

    paths = [f"/{number}" for number in range(20)]
    Listed.start_urls = [site.url(path) for path in paths]
    site.pages = dict.fromkeys(paths, html("begin"))
    settings = {"GP4C_POLICY": "rounds(rounds=4)", "GP4C_WARMUP_VISITS": 0, "GP4C_BUDGET": budget}
    settings["GP4C_DISCOVERY"] = 0.0
    await crawl(Listed, store_path, settings)
    site.log.clear()
    site.pages = dict.fromkeys(paths, quick)
    with open_store(store_path, readonly=True) as store:
        first = Planner.of(store, Settings.load(ScrapySettings(settings))).first_choice().pages[0]
        site.pages["/" + store.request(int(first))["url"].rpartition("/")[2]] = slow
    await crawl(Listed, store_path, settings)
    assert len(site.log) == len(site.fetched()) == budget
    with open_store(store_path, readonly=True) as store:
        rounds = store.cycles()[-1]["rounds"]
    assert [one["planned"] for one in rounds] == [4, 4, 4, 4]
    # Every round was planned before the slow page had an outcome; of others some may not have had one.
    assert all(one["seen"] < 4 * number for number, one in enumerate(rounds) if number)


@pytest.mark.slow
async def test_a_policy_that_fails_in_a_later_round_costs_no_visit(
    site: Site, store_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """One line names policy and breach; the cycle ends with the visits of the rounds before."""
    paths = [f"/{number}" for number in range(20)]
    Listed.start_urls = [site.url(path) for path in paths]
    site.pages = dict.fromkeys(paths, html("as ever"))
    settings = {"GP4C_WARMUP_VISITS": 0, "GP4C_BUDGET": 10}
    settings["GP4C_POLICY"] = "tests.support.policies.too_many_later"
    await crawl(Listed, store_path, settings)
    site.log.clear()
    with caplog.at_level(logging.CRITICAL):
        await crawl(Listed, store_path, settings)
    lines = [record.getMessage() for record in caplog.records if record.levelno == logging.CRITICAL]
    assert len(lines) == 2, "one for each cycle: the first has nothing to choose from either"
    assert all(
        "No further round in cycle" in line and "'too_many_later' broke its contract" in line
        for line in lines
    )
    assert len(site.log) == 5
    with open_store(store_path, readonly=True) as store:
        assert [record["visited"] for record in store.cycles()] == [20, 5]
        assert store.verify() == []
