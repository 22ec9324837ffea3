"""Claims of sites in a crawl and in a replay: the same columns, terminals and trust, bit by bit."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from scrapy_gp4c.crawling.surroundings import NOTHING, Surroundings
from scrapy_gp4c.errors import HistoryError
from scrapy_gp4c.page_state.related import RoundState
from scrapy_gp4c.scoring import hints, terminals
from scrapy_gp4c.store.lmdb_store.store import Store
from tests.replaying.test_growth import crawl_of
from tests.support.growing import crawl, random_web
from training.histories.growth import TOLD, GrowthHistory, write_growth
from training.histories.growth_reading import read_growth
from training.replaying.growth import Web

READ = ("claims", "fresh", "claimed_cycle")
NAMES = (*hints.TERMINALS, "p")


class Rumours:
    """Claims at random, some of them true, about any pages that the store knows."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)
        self._begun_s = time.time()

    def __call__(self, store: Store) -> None:
        """Perhaps note some."""
        if self._rng.random() < 0.6:
            return
        kind = str(self._rng.choice(hints.KINDS))
        pages = self._rng.integers(0, store.pages, self._rng.integers(1, 9))
        now_s = time.time()
        values = self._rng.choice([0.0, now_s - 1e6, self._begun_s, now_s - 0.002, now_s], len(pages))
        if kind in hints.SPANS:
            values = self._rng.choice([0.0, 1e-3, 0.05, 9e9], len(pages))
        store.hints.note(pages, kind, values)


def claims_in(store: Store) -> npt.NDArray[np.void]:
    """All claims of a store whose page n has the key n + 1, with the numbers of a replay."""
    keys = np.concatenate([block["key"] for _, block in store.blocks()]).astype(np.int64)
    parts = [np.empty(0, TOLD)]
    for cycle, claimed in store.hints.of_cycles():
        part = np.zeros(len(claimed), TOLD)
        part["cycle"], part["page"], part["kind"] = cycle - 1, keys[claimed["page"]] - 1, claimed["kind"]
        dated = claimed["kind"] < len(hints.CLAIMED)
        part["value"] = claimed["value"] - dated
        parts.append(part)
    return np.concatenate(parts)


def live_terminals(store: Store) -> dict[int, tuple[float, ...]]:
    """Page of the web -> its terminals in the next cycle."""
    cycle = store.last_cycle + 1
    surroundings = Surroundings(store, cycle, terminals.columns_of(NAMES))
    related = surroundings.seen_by(NOTHING, 0.0)
    told: dict[int, tuple[float, ...]] = {}
    for _, columns in store.blocks():
        state = RoundState(columns, slice(None), related, lambda rows: np.zeros(1, np.uint64))
        values = terminals.compute(NAMES, state, cycle)
        for row, key in enumerate(columns["key"].tolist()):
            told[key - 1] = tuple(values[name][row].item() for name in NAMES)
    return told


@example(14126220, "t * (X + 0.5)", True)
@settings(max_examples=12, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from(("hinted * t", "hint_age + t", "t * (X + 0.5)")), st.booleans())
def test_a_replay_is_told_what_a_crawl_was(seed: int, score: str, reopen: bool) -> None:
    """Whatever was claimed when, and however often the process ended in between."""
    grown = random_web(seed)
    given_ = {"GP4C_SCORE_FUNCTION": score, "GP4C_POLICY": "top_k", "GP4C_BUDGET": 0.3}
    with tempfile.TemporaryDirectory() as place:
        path = Path(place, "store")
        crawled = crawl(path, grown, given_, reopen, Rumours(seed))
        with Store(path) as store:
            assert store.verify() == []
            claims = claims_in(store)
            blocks = [block for _, block in store.blocks()]
            columns = {name: np.concatenate([block[name] for block in blocks]) for name in ("key", *READ)}
            live = live_terminals(store)
            sites = {int(row["site"]): row["counts"].tolist() for row in store.hints.trust()}
    web = Web(GrowthHistory(grown.history, grown.born, grown.finder, claims), crawl_of(score, budget=0.3))
    hubs = [web.cycle(cycle)[3] for cycle in range(1, grown.history.cycles + 1)]
    assert hubs == crawled.by_hubs[1:]
    known = np.flatnonzero(web.known)
    assert {page: int(web.state["entered"][page]) for page in known} == crawled.first_visit
    told = columns["claims"] & 15 > 0
    for page, row in zip(columns["key"].astype(int) - 1, range(len(told)), strict=True):
        for name in ("claims", "fresh"):
            assert web.state[name][page] == columns[name][row], (name, page)
        if told[row]:
            assert web.state["claimed_cycle"][page] == columns["claimed_cycle"][row] - 1
    web.open(grown.history.cycles + 1)
    block = web.rows(known)
    values = terminals.compute(NAMES, block.state, grown.history.cycles + 1)
    for row, page in enumerate(known):
        assert tuple(values[name][row].item() for name in NAMES) == live[page]
    told_sites = [counts.tolist() for counts in web.claimed.trust if counts.any()]
    assert sorted(told_sites) == sorted(sites.values())
    assert len(claims) > 0


def test_claims_of_a_history_come_back(tmp_path: Path) -> None:
    """An archive has them; those of unknown pages or kinds are refused."""
    grown = random_web(2)
    claims = np.array([(3, 5, 0, 4), (4, 6, 4, 9)], TOLD)
    write_growth(tmp_path / "x.npz", GrowthHistory(grown.history, grown.born, grown.finder, claims))
    assert read_growth(tmp_path / "x.npz").claims.tolist() == claims.tolist()
    for field, wrong in (("page", grown.history.pages), ("kind", len(hints.KINDS))):
        bad = claims.copy()
        bad[field] = wrong
        with pytest.raises(HistoryError, match="claims"):
            GrowthHistory(grown.history, grown.born, grown.finder, bad)
