"""Crawls of shards do what crawls of one store do: the same plans, outcomes, records, and history."""

from __future__ import annotations

import json
import random
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pytest_twisted
from scrapy import Spider

from scrapy_gp4c.archive.texts import Texts
from scrapy_gp4c.page_state.outcomes import CHOSEN, HUB, PLAN, among
from scrapy_gp4c.store.history_text import lines
from scrapy_gp4c.store.lmdb_store.store import Store
from scrapy_gp4c.store.opening import ARCHIVE, join, open_store, shards_in, split
from scrapy_gp4c.store.page_store import PageStore
from tests.support.by_key import content, keys_of
from tests.support.growing import SMALL, random_web
from tests.support.growing import crawl as crawl_grown
from tests.support.killing import Web, Worker
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
    cycles = [
        {name: value for name, value in one.items() if name not in ("started", "finished")}
        for one in told["cycles"]
    ]
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


@pytest.mark.parametrize(("seed", "shards", "reopen"), [(1, 2, True), (2, 5, False), (3, 64, False)])
def test_a_growing_web_is_crawled_alike(tmp_path: Path, seed: int, shards: int, reopen: bool) -> None:
    """By the live planner, in cycles with rounds, hubs, panel and weights: plans at each visit, and all."""
    plans: list[list[Any]] = [[], []]
    grown = random_web(seed, cycles=6)
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


class Following(Spider):
    """Follows the links of every page."""

    name = "following"

    def parse(self, response: Any) -> Iterator[Any]:
        """Follow the links, to whatever host."""
        yield from response.follow_all(css="a")


def serve(site: Site, cycle: int) -> None:
    """A web of a start page, lists on all hosts, which grow, and pages that one list each links to."""
    lists = {f"/list{number}": HOSTS[number] for number in range(len(HOSTS))}
    site.pages = {"/": html("start", [site.url(path, host) for path, host in lists.items()])}
    for number, path in enumerate(lists):
        # Every other page of a list is on the next host.
        links = []
        for page in range(4 + cycle * (number % 3 == 0)):
            links.append(site.url(f"/p{number}-{page}", HOSTS[(number + page % 2) % len(HOSTS)]))
            changes = cycle // (1 + (number + page) % 4)
            site.pages[f"/p{number}-{page}"] = html(f"page {number} {page} {'word ' * changes} {changes}")
        site.pages[path] = html(f"list {number}", links)


def exported(store: PageStore) -> list[str]:
    """The lines of an export, sorted: finders by their URLs, and without times."""
    found = [line.split("\t") for line in lines(store) if not line.startswith("#")]
    told = []
    for site, url, bits, text in found:
        state = json.loads(text)
        if isinstance(state.get("found_by"), int):
            state["found_by"] = found[state["found_by"] - 1][1]
        state.pop("seen_min", None)
        told.append("\t".join((site, url, bits, json.dumps(state, sort_keys=True))))
    return sorted(told)


@pytest_twisted.ensureDeferred
async def test_scrapy_crawls_shards_as_it_crawls_a_store(tmp_path: Path) -> None:
    """Cycles with growth, rounds, hubs and panel over seven hosts, one request at a time: all is the same."""
    site = Site(hosts=HOSTS)
    Following.start_urls = [site.url("/")]
    settings = RELATED | {"GP4C_WARMUP_VISITS": 1, "GP4C_ARCHIVE": True, "CONCURRENT_REQUESTS": 1}
    places = [tmp_path / "one", new_shards(tmp_path, 5)]
    logs: list[list[set[str]]] = [[], []]
    for place, log in zip(places, logs, strict=True):
        for cycle in range(5):
            serve(site, cycle)
            site.log.clear()
            await crawl(Following, place, settings)
            log.append({path for _, path in site.log})
    await site.close()
    assert logs[0] == logs[1]
    joined = tmp_path / "joined"
    join(shards_in(places[1]), joined, SMALL)
    told, text, kept = [], [], set()
    for place in (*places, joined):
        with open_store(place, readonly=True) as store:
            assert store.verify() == []
            told.append(without_times(content(store)))
            text.append(exported(store))
        with Texts(place / ARCHIVE, readonly=True) as texts:
            kept.add(texts.count())
    assert told[0] == told[1] == told[2]
    assert text[0] == text[1] == text[2]
    assert len(kept) == 1
    assert sum(one["panel"] is not None for one in told[0]["cycles"]) >= 2
    assert all(len(one["rounds"]) == 3 for one in told[0]["cycles"])


def test_a_killed_crawl_of_shards_ends_as_one_of_a_store(
    forking: subprocess.Popen[str], tmp_path: Path
) -> None:
    """Real crawls in processes of their own, on many hosts at once: those of the store are never killed."""
    web = Web(HOSTS)
    # Scores by a page's own past, so that rounds choose the same pages whatever they have seen.
    settings = {"GP4C_POLICY": "rounds(rounds=3)", "GP4C_SCORE_FUNCTION": "t * rate + random"}
    settings |= {"GP4C_PANEL": 0.2, "GP4C_WARMUP_VISITS": 0}
    workers = [Worker(forking, web.url, tmp_path / name) for name in ("one", "many")]
    moments, kills = random.Random(11), 0
    for worker in workers:
        worker.store.parent.mkdir()
    with Store(workers[1].store.parent / "empty") as empty:
        place = empty.path
    split(place, workers[1].store, 5, SMALL)
    for cycle in range(4):
        web.version = cycle
        workers[0].begin(settings)
        assert workers[0].wait() == 0
        while True:
            with open_store(workers[1].store, readonly=True) as store:
                if store.last_cycle > cycle:
                    break
            web.log.clear()
            if cycle and kills < 3 * cycle:
                workers[1].kill_after(web, moments.randrange(1, 7), moments.uniform(0.0, 0.004), settings)
            else:
                workers[1].begin(settings)
            kills += workers[1].wait() == -signal.SIGKILL
    web.close()
    assert kills >= 6
    told = []
    for worker in workers:
        with open_store(worker.store) as store:
            assert store.verify() == []
            found = without_times(content(store))
            for record in found["cycles"]:
                record.pop("rounds")
            told.append(found)
    assert told[0] == told[1]
