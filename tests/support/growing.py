"""Random webs that grow, crawls of them into a real store, and oracles of the store's growth columns."""

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pytest
from scrapy.settings import Settings as ScrapySettings

from benchmarks.simulated_crawl import Counts
from scrapy_gp4c.crawling.cycle import Claim, Cycle
from scrapy_gp4c.fingerprint import PageReading
from scrapy_gp4c.page_state.claims import DATED_CLAIM
from scrapy_gp4c.page_state.groups import place_of_url
from scrapy_gp4c.page_state.outcomes import FAILED, FIRST, JUDGED
from scrapy_gp4c.policies import table
from scrapy_gp4c.scoring import first_visits, hints, terminals
from scrapy_gp4c.scoring.discovery import START
from scrapy_gp4c.scoring.first_visits import bit_of
from scrapy_gp4c.scoring.functions import ScoreFunction, load
from scrapy_gp4c.scoring.ranking import GOLDEN
from scrapy_gp4c.settings import Settings
from scrapy_gp4c.store.lmdb_store.tables import Sizes
from scrapy_gp4c.store.opening import Store, open_store
from tests.support.live_replay import CYCLE_STEP
from training.histories.growth import LINK, NO_FINDER, GrowthHistory
from training.histories.history import ChangeHistory
from training.replaying.growth import HUBS, GrowthCrawl

SMALL = Sizes(block_rows=4, commit_visits=3, blocks_per_transaction=2, pages_per_transaction=3)


def random_web(seed: int, pages: int = 24, cycles: int = 14, is_linked: bool = False) -> GrowthHistory:
    """Three sites, each with a start page, hubs, and pages that hubs link to from some cycle on.

    ``is_linked``: add random links between all pages.
    """
    rng = np.random.default_rng(seed)
    born = np.where(rng.random(pages) < 0.4, 0, rng.integers(1, cycles + 1, pages)).astype(np.int32)
    finder = np.array([rng.integers(0, max(1, page // 3)) for page in range(pages)], np.int32)
    born[:3], finder[:3] = 0, NO_FINDER
    for page in range(3, pages):
        born[page] = max(born[page], born[finder[page]])
    changed = rng.random((cycles, pages)) < rng.beta(0.5, 1.5, pages)
    changed &= np.arange(1, cycles + 1)[:, None] > born
    links = np.zeros(6 * pages if is_linked else 0, LINK)
    links["source"], links["target"] = rng.integers(0, pages, (2, len(links)))
    links["anchor"] = rng.choice([0.0, 0.1, 0.7], len(links))
    names = [f"d{page % 4}/{page}.html" for page in range(pages)]
    texts = fingerprints(changed)
    weight = rng.choice([0.0, 0.1, 1.0, 3.7], pages)
    history = ChangeHistory(
        changed,
        np.arange(pages) % 3,
        weight,
        site_names=["h0", "h1", "h2"],
        page_names=names,
        key=np.arange(1, pages + 1, dtype=np.uint64),
        latency_ms=np.arange(1, pages + 1, dtype=np.uint16),
        flipped=(texts[1:] ^ texts[:-1]).T[changed.T],
    )
    return GrowthHistory(history, born, finder, links=links)


def fingerprints(changed: npt.NDArray[np.bool_]) -> npt.NDArray[np.uint64]:
    """Fingerprint of every page in every cycle, ``[D + 1, P]``."""
    pages = changed.shape[1]
    version = np.vstack([np.zeros(pages, np.uint64), np.cumsum(changed, axis=0, dtype=np.uint64)])
    return (np.arange(pages, dtype=np.uint64) * np.uint64(1_000) + version + np.uint64(1)) * np.uint64(GOLDEN)


def note_link(store: Store, page: int, source: int, worth: float) -> None:
    """Note a link to a page that waits, as the admission of its request does."""
    place = place_of_url(store.request(source)["url"])
    store.note(page, "link", bit_of(store.page(source).key))
    store.note(page, "link_site", bit_of(place.site_key))
    if worth:
        store.note(page, "anchor", worth)


class Crawled(NamedTuple):
    """First visits of a crawl, and its visits to hubs."""

    first_visit: dict[int, int]
    """Page of the web -> cycle of its first visit, from 0."""
    by_hubs: list[int]
    """Planned visits to hubs in each cycle."""


def crawl(
    path: Path,
    grown: GrowthHistory,
    settings: dict[str, object],
    reopen: bool = False,
    during: Callable[[Store, int], None] = lambda store, page: None,
) -> Crawled:
    """Crawl `grown` by the live planner, without network.

    ``reopen``: close and open the store after each visit, as a killed crawl would; ``during``: called with
    store and page after each visit.
    """
    loaded = Settings.load(ScrapySettings({"GP4C_SITE_SHARE": 1.0, **settings}))
    history = grown.history
    assert history.page_names is not None
    texts = fingerprints(history.changed)
    urls = [f"http://h{site}/{name}" for site, name in zip(history.site, history.page_names, strict=True)]
    number = {url: page for page, url in enumerate(urls)}
    store = open_store(path, sizes=SMALL)
    first_visit: dict[int, int] = {}
    by_hubs = []
    for now in range(history.cycles + 1):
        # A replay knows all pages of the first cycle: a cap begins after it.
        now_loaded = loaded if now else replace(loaded, new_pages=None)
        cycle = Cycle(store, now_loaded, Counts())  # type: ignore[arg-type]
        todo = list(cycle.remaining())
        by_hubs.append(cycle.planned_kinds["hub"])
        started, claims = False, dict[int, Claim]()
        while todo or not started or not cycle.rounds_over or cycle.first_visits.has_waiting:
            if not started:  # the spider's start
                started, finder = True, NO_FINDER
                page_id = None
            elif not todo:
                todo += cycle.first_visits.next_turns() if cycle.rounds_over else cycle.plan_round()
                continue
            else:
                page_id = todo.pop(0)
                claim = claims.pop(page_id, None) or cycle.claim(page_id, "h")
                assert claim is not None
                finder = number[store.request(page_id)["url"]]
                first_visit.setdefault(finder, now)
                reading = PageReading(int(texts[now, finder]))
                # Half a millisecond less, which is rounded up; later visits take longer.
                cycle.end(claim, size_bytes=10, latency_s=(finder + now + 0.5) / 1000, reading=reading)
                during(store, page_id)
            worth = dict.fromkeys(np.flatnonzero(grown.finder == finder).tolist(), 0.0)
            if now:
                for _, target, anchor in grown.links[grown.links["source"] == finder].tolist():
                    worth[target] = max(worth.get(target, 0.0), anchor)
            for child in sorted(child for child in worth if grown.born[child] <= now):
                known = store.find(child + 1)
                if known is not None and page_id is not None and not store.page(known).has_copy:
                    note_link(store, known, page_id, worth[child])
                if known is None:
                    new_page = store.add_page(child + 1, {"url": urls[child]})
                    found_by = START if page_id is None else page_id + 1
                    store.note(new_page, "found_by", found_by)
                    store.note(new_page, "weight", history.weights[child])
                    if claimed := cycle.claim_new(new_page, found_by):
                        todo.append(new_page)
                        claims[new_page] = claimed
                    elif page_id is not None:
                        note_link(store, new_page, page_id, worth[child])
            if reopen and page_id is not None:
                store.close()
                store = open_store(path, sizes=SMALL)
                cycle = Cycle(store, now_loaded, Counts())  # type: ignore[arg-type]
                todo, claims = list(cycle.remaining()), {}
        cycle.finish("finished")
    store.close()
    return Crawled(first_visit, by_hubs)


def brought(store: Store) -> list[tuple[float, float, int]]:
    """Growth columns of all pages as computed one by one from the store's visits and finders.

    They are decayed sums of new pages brought and of cycles watched, and the last cycle that brought one.
    """
    blocks = [columns for _, columns in store.blocks()]
    found_by, entered = (
        np.concatenate([block[name] for block in blocks]).tolist() for name in ("found_by", "entered")
    )
    visits: list[list[tuple[int, int]]] = [[] for _ in found_by]
    for cycle, rows in store.visits():
        for row in rows:
            visits[row["page"]].append((cycle, int(row["outcome"])))
    rates = []
    for page, outcomes in enumerate(visits):
        new, looked, last_new, last, judged = np.float16(0), np.float16(0), 0, 0, False
        for cycle, outcome in outcomes:
            if outcome in FAILED:
                continue
            count = sum(
                1 for by, when in zip(found_by, entered, strict=True) if (by, when) == (page + 1, cycle)
            )
            if outcome == FIRST and not judged:
                last_new = cycle
            else:
                decay = 2.0 ** (-(cycle - last) / 8)
                new = np.float16(float(new) * decay + count)
                looked = np.float16(float(looked) * decay + cycle - last)
                last_new = cycle if count else last_new
            judged |= outcome in JUDGED
            last = cycle
        rates.append((float(new), float(looked), last_new))
    return rates


def columns(store: Store, *names: str) -> list[tuple[npt.NDArray[np.generic], ...]]:
    """A tuple for each page of the store, with its values in the columns `names`."""
    blocks = [block for _, block in store.blocks()]
    return list(
        zip(*(np.concatenate([block[name] for block in blocks]).tolist() for name in names), strict=True)
    )


WAITING = (*first_visits.TERMINALS, "near", "w")
"""Terminals that functions of first visits may read."""


class Rumours:
    """Function to note random claims in a store after a visit; some kinds are about the visited page only."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)
        self._begun_s = time.time()

    def __call__(self, store: Store, page: int) -> None:
        if self._rng.random() < 0.6:
            return
        kind = str(self._rng.choice(hints.KINDS))
        pages = self._rng.integers(0, store.pages, self._rng.integers(1, 9))
        if kind in ("modified", "expires"):
            pages = np.array([page])
        now_s = time.time()
        values = self._rng.choice([0.0, now_s - 1e6, self._begun_s, now_s - 0.002, now_s], len(pages))
        if kind in hints.SPANS:
            values = self._rng.choice([0.0, 1e-3, 0.05, 9e9], len(pages))
        store.note_many(pages, kind, values)


def claims_in(store: Store) -> npt.NDArray[np.void]:
    """All claims of a store, with the page and cycle numbers of a replay; keys are page numbers + 1."""
    keys = np.concatenate([block["key"] for _, block in store.blocks()]).astype(np.int64)
    parts = [np.empty(0, DATED_CLAIM)]
    for cycle, claimed in store.claims_of_cycles():
        part = np.zeros(len(claimed), DATED_CLAIM)
        part["cycle"], part["page"], part["kind"] = cycle - 1, keys[claimed["page"]] - 1, claimed["kind"]
        dated = claimed["kind"] < len(hints.CLAIMED)
        part["value"] = claimed["value"] - dated
        parts.append(part)
    return np.concatenate(parts)


def noted_scores(patch: pytest.MonkeyPatch, function: str) -> list[list[tuple[float, ...]]]:
    """Patch `ScoreFunction.scores` to note the terminals of the pages that ``function`` ranks.

    Returns the list that later calls append to: the pages' sorted `WAITING` values.
    """
    noted: list[list[tuple[float, ...]]] = []
    scores = ScoreFunction.scores

    def noting(self: ScoreFunction, state: Any, cycle: int) -> npt.NDArray[np.float64]:
        if self.text == function:
            values = terminals.compute(WAITING, state, cycle)
            columns = (np.asarray(values[name], np.float64).tolist() for name in WAITING)
            noted.append(sorted(zip(*columns, strict=True)))
        return scores(self, state, cycle)

    patch.setattr(ScoreFunction, "scores", noting)
    return noted


def crawl_of(score: str, policy: str = "top_k", discovery: float = 0.1, budget: float = 0.2) -> GrowthCrawl:
    """Choices of a replay that has the draws of a live crawl, whose cycle numbers are 1 higher."""
    seed = (CYCLE_STEP * pow(GOLDEN, -1, 2**64)) % 2**64
    return GrowthCrawl(budget, load(score), table.load(policy), load(HUBS), discovery, 2, seed)
