"""Replays of growth by hand, and against crawls of the same web into a real store, claims included."""

import dataclasses
import pickle
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from scrapy_gp4c.crawling.neighbourhood import Neighbourhood
from scrapy_gp4c.errors import Gp4cError, HistoryError, PolicyError, ScoreError
from scrapy_gp4c.page_state.claims import DATED_CLAIM
from scrapy_gp4c.page_state.related import RoundState
from scrapy_gp4c.policies.base import NO_VISITS_YET
from scrapy_gp4c.scoring import hints, terminals
from scrapy_gp4c.scoring.functions import load
from scrapy_gp4c.store.lmdb_store.store import Store
from tests.support.growing import Rumours, brought, claims_in, columns, crawl, crawl_of, random_web
from training.histories.growth import NO_FINDER, GrowthHistory, read_growth, read_store_growth, write_growth
from training.histories.history import ChangeHistory
from training.replaying.growth import HUBS, GrowthReplay, growth_crawl, replay_growth
from training.replaying.prepared import CrawlChoices

READ = ("claims", "fresh", "claimed_cycle")
NAMES = (*hints.TERMINALS, "p")


def live_terminals(store: Store) -> dict[int, tuple[float, ...]]:
    """Page of the web -> its terminals in the next cycle."""
    cycle = store.last_cycle + 1
    neighbourhood = Neighbourhood(store, cycle, terminals.columns_of(NAMES))
    related = neighbourhood.seen_by(NO_VISITS_YET, 0.0)
    values_by_page: dict[int, tuple[float, ...]] = {}
    for _, block in store.blocks():
        state = RoundState(block, slice(None), related, lambda rows: np.zeros(1, np.uint64))
        values = terminals.compute(NAMES, state, cycle)
        for row, key in enumerate(block["key"].tolist()):
            values_by_page[key - 1] = tuple(values[name][row].item() for name in NAMES)
    return values_by_page


def test_first_visits_are_capped_and_ranked() -> None:
    """A crawl from a start page: the cap holds in every cycle, and order decides what is covered when."""
    finder = np.array([NO_FINDER, 0, 0, *[1] * 8, *[2] * 3], np.int32)
    weight = np.where(finder == 2, 9.0, 1.0)
    web = GrowthHistory(
        ChangeHistory(np.zeros((8, 14), bool), np.zeros(14, int), weight), np.zeros(14, np.int32), finder
    )
    crawl = replace(crawl_of("t", budget=0.5), new_pages=2, from_start=True, warmup=0)
    rows = {
        name: replay_growth(web, replace(crawl, new_page_function=load(name)))
        for name in ("cash", "0 - cash")
    }
    for result in rows.values():
        assert np.diff(result.coverage * 14, prepend=1).max() <= 2
    assert rows["cash"].weighted_coverage[2] > rows["0 - cash"].weighted_coverage[2]
    assert (rows["cash"].coverage[:2] == rows["0 - cash"].coverage[:2]).all()
    with pytest.raises(ScoreError, match="before their first"):
        growth_crawl("cash", None, 0.1, HUBS, CrawlChoices())


@pytest.mark.slow
@pytest.mark.parametrize("function", [None, "waited - cash", "finder_brought * near_dir"])
def test_capped_first_visits_are_those_of_a_crawl(function: str | None, tmp_path: Path) -> None:
    """The same pages in the same cycles: the plan's, those of links as they come, and by turns at last."""
    for seed in range(4):
        grown = random_web(seed)
        settings = {"GP4C_SCORE_FUNCTION": "t * (X + 0.5)", "GP4C_POLICY": "top_k", "GP4C_BUDGET": 0.3}
        settings |= {"GP4C_NEW_PAGES": 2 + seed % 2} | (
            {"GP4C_NEW_PAGE_FUNCTION": function} if function else {}
        )
        crawled = crawl(tmp_path / str(seed), grown, settings)
        capped = replace(crawl_of("t * (X + 0.5)", budget=0.3), new_pages=2 + seed % 2)
        web = GrowthReplay(grown, replace(capped, new_page_function=load(function) if function else None))
        hubs = [web.cycle(cycle)[3] for cycle in range(1, grown.history.cycles + 1)]
        assert hubs == crawled.by_hubs[1:]
        known = np.flatnonzero(web.known)
        assert {page: int(web.state["first_cycle"][page]) for page in known} == crawled.first_visit


@pytest.mark.parametrize("policy", [None, "rounds(rounds=2)", "gsb(level='directory')"])
def test_a_crawl_travels_to_other_processes(policy: str | None) -> None:
    """Learning hands it to its workers: with functions and policy it replays there as here."""
    grown = random_web(1)
    crawl_ = replace(growth_crawl("default", policy, 0.1, HUBS, CrawlChoices(0.2)), new_pages=2)
    crawl_ = replace(crawl_, new_page_function=load("waited"))
    there = replay_growth(grown, pickle.loads(pickle.dumps(crawl_)))
    assert there.current.tolist() == replay_growth(grown, crawl_).current.tolist()


@pytest.mark.slow
@example(14126220, "t * (X + 0.5)", True)
@settings(max_examples=12)
@given(st.integers(0, 2**32), st.sampled_from(("hinted * t", "hint_age + t", "t * (X + 0.5)")), st.booleans())
def test_a_replay_is_told_what_a_crawl_was(seed: int, score: str, reopen: bool) -> None:
    """Whatever was claimed when, and however often the process ended in between."""
    grown = random_web(seed)
    crawl_settings = {"GP4C_SCORE_FUNCTION": score, "GP4C_POLICY": "top_k", "GP4C_BUDGET": 0.3}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "store")
        crawled = crawl(path, grown, crawl_settings, reopen, Rumours(seed))
        with Store(path) as store:
            assert store.verify() == []
            claims = claims_in(store)
            blocks = [block for _, block in store.blocks()]
            columns = {name: np.concatenate([block[name] for block in blocks]) for name in ("key", *READ)}
            live = live_terminals(store)
            sites = {int(row["site"]): row["counts"].tolist() for row in store.trust()}
    web = GrowthReplay(
        GrowthHistory(grown.history, grown.born, grown.finder, claims), crawl_of(score, budget=0.3)
    )
    hubs = [web.cycle(cycle)[3] for cycle in range(1, grown.history.cycles + 1)]
    assert hubs == crawled.by_hubs[1:]
    known = np.flatnonzero(web.known)
    assert {page: int(web.state["entered"][page]) for page in known} == crawled.first_visit
    is_claimed = columns["claims"] & 15 > 0
    for page, row in zip(columns["key"].astype(int) - 1, range(len(is_claimed)), strict=True):
        for name in ("claims", "fresh"):
            assert web.state[name][page] == columns[name][row], (name, page)
        if is_claimed[row]:
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
    claims = np.array([(3, 5, 0, 4), (4, 6, 4, 9)], DATED_CLAIM)
    write_growth(tmp_path / "x.npz", GrowthHistory(grown.history, grown.born, grown.finder, claims))
    assert read_growth(tmp_path / "x.npz").claims.tolist() == claims.tolist()
    for field, wrong in (("page", grown.history.pages), ("kind", len(hints.KINDS))):
        bad = claims.copy()
        bad[field] = wrong
        with pytest.raises(HistoryError, match="claims"):
            GrowthHistory(grown.history, grown.born, grown.finder, bad)


GROWTH = ("brought_sum", "brought_cycles")
COMPARED = ("n", "X", "E", "T", *GROWTH)


@pytest.mark.slow
@settings(max_examples=10)
@given(
    st.integers(0, 2**32),
    st.sampled_from(
        (
            ("t * (X + 0.5)", "top_k", 0.1),
            ("t * near * brought * w", "rounds(rounds=2)", 0.5),
            ("default", "rounds(rounds=4)", 0.0),
        )
    ),
    st.booleans(),
)
def test_a_replay_finds_what_a_crawl_finds(seed: int, how: tuple[str, str, float], reopen: bool) -> None:
    """Every page in the same cycle, as many visits to hubs, and the same columns, bit for bit."""
    score, policy, discovery = how
    grown = random_web(seed)
    settings_ = {
        "GP4C_SCORE_FUNCTION": score,
        "GP4C_POLICY": policy,
        "GP4C_DISCOVERY": discovery,
        "GP4C_BUDGET": 0.2,
    }
    choices = crawl_of(score, policy, discovery)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "store")
        crawled = crawl(path, grown, settings_, reopen)
        with Store(path) as store:
            assert store.verify() == []
            live = dict(
                zip((page[0] - 1 for page in columns(store, "key")), columns(store, *COMPARED), strict=True)
            )
            assert brought(store) == columns(store, *GROWTH, "brought_cycle")
    web = GrowthReplay(grown, choices)
    hubs = [web.cycle(cycle)[3] for cycle in range(1, grown.history.cycles + 1)]
    assert hubs == crawled.by_hubs[1:]
    known = np.flatnonzero(web.known)
    assert {page: int(web.state["entered"][page]) for page in known} == crawled.first_visit
    for page in known:
        assert tuple(web.state[name][page].item() for name in COMPARED) == live[page]


@pytest.mark.slow
@pytest.mark.parametrize("reopen", [False, True])
def test_a_swelling_site_has_its_share_in_both(tmp_path: Path, reopen: bool) -> None:
    """A site to which all pages belong that appear later: the share decides, and in both alike."""
    limited = 0
    for seed in range(3):
        grown = random_web(seed, pages=70, cycles=12)
        history = dataclasses.replace(grown.history, site=np.where(grown.born > 0, 0, grown.history.site))
        grown = dataclasses.replace(grown, history=history)
        given_ = {"GP4C_SCORE_FUNCTION": "default", "GP4C_POLICY": "rounds(rounds=4)", "GP4C_BUDGET": 5}
        crawl(tmp_path / str(seed), grown, {**given_, "GP4C_DISCOVERY": 0.0, "GP4C_SITE_SHARE": 0.1}, reopen)
        with Store(tmp_path / str(seed)) as store:
            keys = [page[0] - 1 for page in columns(store, "key")]
            live = dict(zip(keys, columns(store, *COMPARED), strict=True))
        states = []
        for share in (0.1, 1.0):
            choices = crawl_of("default", "rounds(rounds=4)", 0.0, budget=5)
            web = GrowthReplay(grown, replace(choices, site_share=share))
            for cycle in range(1, grown.history.cycles + 1):
                web.cycle(cycle)
            states.append({page: tuple(web.state[name][page].item() for name in COMPARED) for page in keys})
        assert states[0] == live
        limited += states[0] != states[1]
    assert limited


def by_hand() -> GrowthHistory:
    """A list, a page that it always had, and one that it links to from cycle 4 on; the list changes then."""
    changed = np.zeros((6, 3), np.bool_)
    changed[3, 0] = True
    history = ChangeHistory(changed, np.zeros(3, np.int32))
    return GrowthHistory(history, np.array([0, 0, 4], np.int32), np.array([NO_FINDER, 0, 0], np.int32))


def test_a_small_web_by_hand() -> None:
    """One visit a cycle after two of warm-up: taking turns finds the page at once or a cycle later."""
    result = replay_growth(by_hand(), crawl_of("t", "top_k", 0.0, budget=1))
    assert result.visited.tolist() == [1, 1, 1, 1]
    assert result.missed == 0
    assert result.delay[0] <= 1
    assert result.changed.sum() == 1
    never = replay_growth(by_hand(), crawl_of("t", "top_k", 0.0, budget=0.0))
    assert (never.missed, never.delay.tolist(), never.visited.sum()) == (1, [3], 0)
    assert never.coverage.tolist() == [1.0, 2 / 3, 2 / 3, 2 / 3]
    assert never.current.tolist() == [1.0, 1 / 3, 1 / 3, 1 / 3]


def test_the_delay_in_a_store_is_that_of_the_replay(tmp_path: Path) -> None:
    """A crawl of everything is a history of growth; at a lower budget its replay tells a crawl's delay."""
    grown = random_web(5)
    crawl(tmp_path / "all", grown, {"GP4C_BUDGET": 1.0})
    growth = read_store_growth(tmp_path / "all")
    order = np.argsort(growth.history.key)
    assert growth.born[order].tolist() == grown.born.tolist()
    assert growth.history.changed[:, order].tolist() == grown.history.changed.tolist()
    finder = np.append(np.asarray(growth.history.key).astype(int) - 1, NO_FINDER)[growth.finder[order]]
    assert finder.tolist() == grown.finder.tolist()
    assert growth.history.weights[order].tolist() == grown.history.weights.tolist()
    score = "t * (X + 0.5) * (1 + 0.001 * brought)"
    settings = {"GP4C_SCORE_FUNCTION": score, "GP4C_POLICY": "top_k", "GP4C_BUDGET": 0.2}
    crawled = crawl(tmp_path / "some", grown, settings)
    new = np.flatnonzero(grown.born)
    delay = [crawled.first_visit.get(page, grown.history.cycles + 1) - grown.born[page] for page in new]
    replayed = replay_growth(growth, crawl_of(score))
    assert sorted(replayed.delay.tolist()) == sorted(delay)


def a_chain(pages: int, cycles: int) -> GrowthHistory:
    """Each page is found by the one before; all but the first appear in cycle 3, at once."""
    history = ChangeHistory(np.zeros((cycles, pages), np.bool_), np.zeros(pages, np.int32))
    born = np.where(np.arange(pages) > 0, 3, 0).astype(np.int32)
    return GrowthHistory(history, born, np.arange(-1, pages - 1, dtype=np.int32))


def test_what_a_new_page_leads_to_is_fetched_in_the_same_cycle() -> None:
    """A chain of pages behind one visited page is known to its end; each has brought its next."""
    web = GrowthReplay(a_chain(6, 5), crawl_of("t", discovery=0.0, budget=1.0))
    known = []
    for cycle in range(1, 4):
        web.cycle(cycle)
        known.append(int(web.known.sum()))
    assert known == [1, 1, 6]
    assert web.state["entered"].tolist() == [0, 3, 3, 3, 3, 3]
    assert web.state["n"].tolist() == [3, 0, 0, 0, 0, 0]
    assert web.state["found_by"][1:].tolist() == [1, 2, 3, 4, 5]


def test_pages_that_nobody_finds_are_known_when_they_appear() -> None:
    """New start requests: no visit is needed; a page found by an unknown one waits for that."""
    history = ChangeHistory(np.zeros((5, 3), np.bool_), np.zeros(3, np.int32))
    grown = GrowthHistory(
        history, np.array([0, 4, 2], np.int32), np.array([NO_FINDER, NO_FINDER, 1], np.int32)
    )
    result = replay_growth(grown, crawl_of("t", discovery=0.0, budget=0))
    assert (result.missed, result.delay.tolist()) == (0, [0, 2])
    assert result.coverage.tolist() == [0.5, 1.0, 1.0]


def reweighed(grown: GrowthHistory, weight: Any) -> GrowthHistory:
    return dataclasses.replace(grown, history=dataclasses.replace(grown.history, weight=weight))


@settings(max_examples=12)
@given(seed=st.integers(0, 2**32), weight=st.sampled_from([1.0, 4.0]), budget=st.sampled_from([0.2, 0.6]))
def test_equal_weights_are_none(seed: int, weight: float, budget: float) -> None:
    """Bit for bit; the current share is then that of the pages, and at most that of those known."""
    grown = random_web(seed)
    crawl_ = crawl_of("t * (X + 0.5)", budget=budget)
    bare = replay_growth(reweighed(grown, None), crawl_)
    equal = replay_growth(reweighed(grown, np.full(grown.history.pages, weight)), crawl_)
    assert equal.current.tobytes() == bare.current.tobytes()
    assert equal.changed_weight.tolist() == (weight * bare.changed).tolist()
    assert bare.weighted_change_rate == bare.change_rate
    assert (bare.current <= bare.coverage).all()


def test_pages_count_as_much_as_they_weigh() -> None:
    """The one that nobody has found yet is worth most: current copies without it are a tenth."""
    weight = np.array([0.5, 0.5, 9.0])
    grown = reweighed(by_hand(), weight)
    never = replay_growth(grown, crawl_of("t", "top_k", 0.0, budget=0.0))
    assert never.current.tolist() == [1.0, 0.05, 0.05, 0.05]  # the list is out of date from then on
    assert never.coverage.tolist() == [1.0, 2 / 3, 2 / 3, 2 / 3]  # which counts pages
    assert never.changed_weight.tolist() == [0.0] * 4
    result = replay_growth(grown, crawl_of("w", "top_k", 1.0, budget=1))
    assert result.changed_weight.sum() == 0.5
    assert result.weighted_change_rate == 0.5 / 4


@settings(max_examples=12)
@given(
    seed=st.integers(0, 2**32),
    budget=st.sampled_from([0.0, 0.3, 1.0, 5]),
    discovery=st.sampled_from([0.0, 0.1, 1.0]),
)
def test_the_sums_of_a_replay_fit_together(seed: int, budget: float, discovery: float) -> None:
    """Shares lie between 0 and 1, changes and hubs are visits, and no visit is above the budget."""
    grown = random_web(seed)
    result = replay_growth(grown, crawl_of("t * X", discovery=discovery, budget=budget))
    pages, cycles = grown.history.pages, grown.history.cycles
    most = budget if isinstance(budget, int) else int(budget * pages + 1e-9)
    assert (result.visited <= most).all()
    assert ((result.changed >= 0) & (result.changed <= result.visited)).all()
    assert (result.hubs <= (result.visited if discovery else 0)).all()
    assert ((result.current >= 0) & (result.current <= 1)).all()
    assert ((result.changed_weight > 0) <= (result.changed > 0)).all()
    assert (result.coverage <= 1).all()
    assert len(result.delay) == np.count_nonzero(grown.born)
    assert (result.delay >= 0).all()
    assert (len(result.visited), len(result.coverage)) == (cycles - 2, cycles - 2)
    assert result.change_rate == result.changed.sum() / max(1, result.visited.sum())
    again = replay_growth(grown, crawl_of("t * X", discovery=discovery, budget=budget))
    assert again.current.tolist() == result.current.tolist()


def test_a_crawl_of_everything_misses_nothing_and_is_current() -> None:
    """With a visit for every page in every cycle the copies are those of the web."""
    result = replay_growth(random_web(11), crawl_of("t", discovery=0.0, budget=1.0))
    assert (result.missed, result.delay.sum()) == (0, 0)
    assert set(result.coverage.tolist()) == set(result.current.tolist()) == {1.0}


def test_a_crawl_by_texts_brings_the_policy_of_its_score() -> None:
    """A policy that is given goes before that; the choices of the crawl stay as they are."""
    choices = CrawlChoices(budget=0.3, warmup=4, seed=9)
    crawl_ = growth_crawl("t * X", None, 0.2, HUBS, choices)
    assert (crawl_.policy.text, crawl_.discovery, crawl_.budget) == ("top_k", 0.2, 0.3)
    assert (crawl_.warmup, crawl_.seed, crawl_.hub_function.columns) == (4, 9, load(HUBS).columns)
    assert growth_crawl("t * X", "rounds(rounds=2)", 0.2, HUBS, choices).policy.text == "rounds(rounds=2)"
    with pytest.raises(PolicyError, match="'best'"):
        growth_crawl("t", "best", 0.2, HUBS, choices)
    with pytest.raises(Gp4cError, match="nonsense"):
        growth_crawl("t", None, 0.2, "nonsense", choices)
