"""Crawls of shards do what crawls of one store do: the same plans, outcomes, records, and history."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pytest_twisted
from scrapy import Spider

from scrapy_gp4c.page_state.outcomes import CHOSEN, HUB, PLAN, among
from scrapy_gp4c.store.history_text import lines
from scrapy_gp4c.store.lmdb_store.store import Store
from scrapy_gp4c.store.opening import join, open_store, shards_in, split
from scrapy_gp4c.store.page_store import PageStore
from tests.support.by_key import content, keys_of
from tests.support.growing import SMALL, random_web
from tests.support.growing import crawl as crawl_grown
from tests.support.loopback import Site, crawl, html

HOSTS = [f"127.0.0.{number}" for number in range(1, 8)]
RELATED = {
    "GP4C_POLICY": "rounds(rounds=3)",
    "GP4C_SCORE_FUNCTION": "t * (rate + spent * spent) * near * sqrt(surprise_site) + random * rate_site",
    "GP4C_PANEL": 0.3,
    "GP4C_BUDGET": 0.5,
    "GP4C_DISCOVERY": 0.3,
}


def new_shards(directory: Path, shards: int) -> Path:
    """A directory of shards without pages."""
    Store(directory / "empty").close()
    split(directory / "empty", directory / "shards", shards, SMALL)
    return directory / "shards"


def without_times(told: dict[str, Any]) -> dict[str, Any]:
    """Content of a store without what two runs differ in: times, and the order of what is planned by page."""
    cycles = [{name: value for name, value in one.items() if name not in ("started", "finished")} for one in told["cycles"]]
    visits = {
        cycle: {(row[0], row[2], row[3], *row[5:]) for row in rows} for cycle, rows in told["visits"].items()
    }
    pages = {key: {**page, "seen_min": 0} for key, page in told["pages"].items()}
    return {**told, "cycles": cycles, "visits": visits, "pages": pages}


def ranked(store: PageStore) -> list[tuple[Any, ...]]:
    """Key, kind and score of the pages that the plan of the open cycle has by score, in order."""
    keys = keys_of(store)
    plan = np.concatenate([np.empty(0, PLAN), *store.plan()])
    chosen = plan[among(plan["kind"], (*CHOSEN, HUB))]
    return [(keys[row["page"]], int(row["kind"]), float(row["score"])) for row in chosen]


@pytest.mark.parametrize(("seed", "shards"), [(1, 2), (2, 5), (3, 64)])
@pytest.mark.parametrize("reopen", [False, True])
def test_a_growing_web_is_crawled_alike(tmp_path: Path, seed: int, shards: int, reopen: bool) -> None:
    """By the live planner, over cycles with rounds, hubs, a panel and weights; plans are compared at each visit."""
    plans: list[list[Any]] = [[], []]
    grown = random_web(seed, cycles=9)
    places = [tmp_path / "one", new_shards(tmp_path, shards)]
    for place, found in zip(places, plans, strict=True):

        def note(store: PageStore, found: list[Any] = found) -> None:
            plan = store.open_cycle, len(store.rounds()), ranked(store)
            if not found or found[-1] != plan:
                found.append(plan)

        crawl_grown(place, grown, {**RELATED, "GP4C_WARMUP_VISITS": 1}, reopen, during=note)
    assert plans[0] == plans[1]
    join(shards_in(places[1]), tmp_path / "joined", SMALL)
    told = []
    for place in (*places, tmp_path / "joined"):
        with open_store(place, readonly=True, sizes=SMALL) as store:
            assert store.verify() == []
            told.append(without_times(content(store)))
    assert told[0] == told[1] == told[2]
