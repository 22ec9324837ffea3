"""Baselines: optimal allocations meet the first-order condition, and every policy spends the same budget."""

import math
from collections.abc import Callable
from typing import Final

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scrapy_gp4c.arrays import Floats
from scrapy_gp4c.scoring import rates
from tests.support.policies import HEARD
from training.histories.history import ChangeHistory
from training.replaying.baselines import (
    BASELINES,
    HARMONIC,
    POISSON_FRESHNESS,
    REGULAR_FRESHNESS,
    Adaptive,
    Allocated,
    Objective,
    allocate,
)
from training.replaying.metrics import METRICS
from training.replaying.prepared import PreparedHistory, prepare
from training.replaying.replay import replay, run


def poisson_freshness(rate: float, visits: float) -> float:
    """Share of time in which a copy is current, visits being a Poisson process (Azar et al. 2018)."""
    return visits / (visits + rate)


def harmonic_staleness(rate: float, visits: float) -> float:
    """Mean harmonic penalty, visits being a Poisson process, negative (Kolobov et al. 2019)."""
    return -math.log((visits + rate) / visits)


def regular_freshness(rate: float, visits: float) -> float:
    """Share of time in which a copy is current, visits being regular (Cho & Garcia-Molina 2003)."""
    return visits / rate * (1 - math.exp(-rate / visits))


VALUES: dict[str, tuple[Objective, Callable[[float, float], float]]] = {
    "azar": (POISSON_FRESHNESS, poisson_freshness),
    "lambda-crawl": (HARMONIC, harmonic_staleness),
    "cho-garcia-molina": (REGULAR_FRESHNESS, regular_freshness),
}
objectives = st.sampled_from(list(VALUES))
change_rates = st.lists(st.floats(0.0003, 3.0), min_size=2, max_size=40).map(np.array)
shares = st.floats(0.005, 0.995)


@given(objectives, change_rates, shares)
def test_visits_add_up_to_the_budget(name: str, rates: Floats, share: float) -> None:
    """And no page is visited less than never or more than once a cycle."""
    visits = allocate(VALUES[name][0], rates, share * len(rates))
    assert visits.sum() == pytest.approx(share * len(rates), rel=1e-8)
    assert ((visits >= 0) & (visits <= 1)).all()


@given(objectives, change_rates, shares)
def test_the_first_order_condition_holds(name: str, rates: Floats, share: float) -> None:
    """All pages between the bounds gain the same; those never visited would gain less, those always, more."""
    objective = VALUES[name][0]
    visits = allocate(objective, rates, share * len(rates))
    between = (visits > 0) & (visits < 1)
    always, never = visits == 1, visits == 0
    prices = objective.gain(rates[between], visits[between])
    least = prices.min() if len(prices) else objective.gain(rates[always], visits[always]).min()
    most = prices.max() if len(prices) else least
    assert most <= least * (1 + 1e-6)
    assert (objective.gain(rates[always], visits[always]) >= most * (1 - 1e-6)).all()
    assert (objective.gain(rates[never], np.full(never.sum(), 1e-9)) <= least * (1 + 1e-6)).all()


@given(objectives, st.floats(0.001, 3.0), st.floats(0.02, 1.0))
def test_the_gain_is_the_derivative_of_the_objective(name: str, rate: float, visits: float) -> None:
    """By a central difference."""
    objective, value = VALUES[name]
    step = 1e-5 * visits
    slope = (value(rate, visits + step) - value(rate, visits - step)) / (2 * step)
    assert objective.gain(np.array([rate]), np.array([visits]))[0] == pytest.approx(slope, rel=1e-4, abs=1e-6)


@given(objectives, change_rates, shares, st.data())
def test_no_other_way_to_spend_the_budget_is_better(
    name: str, rates: Floats, share: float, data: st.DataObject
) -> None:
    """Moving some visits from one page to another, within the bounds, gains nothing."""
    objective, value = VALUES[name]
    visits = np.maximum(allocate(objective, rates, share * len(rates)), 1e-12)
    giver, taker = (data.draw(st.integers(0, len(rates) - 1)) for _ in range(2))
    moved = data.draw(st.floats(0.0, 0.9)) * min(visits[giver], 1.0 - visits[taker])
    before = value(rates[giver], visits[giver]) + value(rates[taker], visits[taker])
    after = value(rates[giver], visits[giver] - moved) + value(rates[taker], visits[taker] + moved)
    assert giver == taker or after <= before + 1e-9


def test_pages_that_change_too_often_are_not_visited_for_freshness() -> None:
    """What Cho & Garcia-Molina found: the copy is outdated again at once, so the visit goes elsewhere."""
    visits = allocate(REGULAR_FRESHNESS, np.array([0.01, 0.1, 50.0]), 0.2)
    assert visits[2] == 0
    assert 0 < visits[0] < visits[1]


PAGES, CYCLES, WARMUP, K = 40, 16, 2, 6


def history(seed: int, pages: int = PAGES, cycles: int = CYCLES) -> ChangeHistory:
    """Pages that change at random, some often, some hardly ever."""
    rng = np.random.default_rng(seed)
    probability = rng.random(pages) ** 4
    return ChangeHistory(rng.random((cycles, pages)) < probability, np.zeros(pages, np.int32))


@given(name=st.sampled_from(list(BASELINES)), seed=st.integers(0, 2**32), k=st.integers(1, PAGES))
def test_every_peer_spends_exactly_the_budget(name: str, seed: int, k: int) -> None:
    """Whatever its own bookkeeping would have spent."""
    assert replay(history(seed), name, budget=k).visited.tolist() == [k] * (CYCLES - WARMUP)


def test_fixed_intervals_are_the_age() -> None:
    """The same interval for all: the page visited longest ago comes first."""
    one, other = (replay(history(3), name, budget=K) for name in ("fixed", "age"))
    for metric in METRICS:
        assert getattr(one, metric).tolist() == getattr(other, metric).tolist()


def nutch(interval: float, is_changed: bool, first: float) -> float:
    """Next interval in cycles: AdaptiveFetchSchedule with the values of nutch-default.xml."""
    interval *= 0.8 if is_changed else 1.4
    return min(max(interval, first * 60 / (30 * 24 * 3600), 1.0), first * 365 / 30)


def stormcrawler(interval: float, is_changed: bool, first: float) -> float:
    """Next interval in cycles: AdaptiveScheduler with its defaults."""
    shortest = max(first * 60 / 1440, 1.0)
    if is_changed:
        return 0.5 * interval + 0.5 * shortest
    return min(interval * 1.5, first * 14)


STEPS: Final = {"nutch": nutch, "stormcrawler": stormcrawler}


def prepared(pages: int, k: int) -> PreparedHistory:
    """A history of so many pages, of which k are visited per cycle."""
    return prepare(
        ChangeHistory(np.zeros((WARMUP + 2, pages), bool), np.zeros(pages, int)), budget=k, warmup=WARMUP
    )


@given(
    st.sampled_from(list(STEPS)),
    st.integers(1, 30),
    st.lists(st.lists(st.booleans(), min_size=3, max_size=3), max_size=60),
)
def test_intervals_step_as_the_crawlers_own_do(name: str, k: int, results: list[list[bool]]) -> None:
    """Page by page, by the crawler's own rule, within its bounds scaled to cycles."""
    pages = 30
    first = pages / k
    peer = BASELINES[name].make(prepared(pages, k))
    assert isinstance(peer, Adaptive)
    expected = [first] * 3
    for cycle, outcomes in enumerate(results, 1):
        peer.observe(cycle, np.arange(3), np.array(outcomes))
        expected = [STEPS[name](one, hit, first) for one, hit in zip(expected, outcomes, strict=True)]
        assert peer.intervals[:3] == pytest.approx(expected)
    assert (peer.intervals[3:] == first).all()
    bounds = {"nutch": (1.0, first * 365 / 30), "stormcrawler": (max(first / 24, 1.0), first * 14)}
    low, high = bounds[name]
    assert ((peer.intervals >= low - 1e-9) & (peer.intervals <= high + 1e-9)).all()


def test_rates_are_those_of_the_terminal() -> None:
    """An allocating peer knows of every page what the terminal `rate` says, and allots by that."""
    peer = BASELINES["lambda-crawl"].make(prepared(4, 2))
    assert isinstance(peer, Allocated)
    peer.observe(1, np.arange(4), np.array([True, False, False, False]))
    peer.observe(3, np.array([2, 0]), np.array([False, True]))
    expected, cycles = [0.0] * 4, [1, 1, 1, 1]

    def censored(rate: float, gap: int) -> float:
        x = rate * gap
        return x / (1 - np.exp(-x))

    expected[0] = censored(0.1, 1)
    cycles[2] = cycles[0] = 3
    expected[0] += censored((expected[0] + 0.1) / 2, 2)
    known = [(changes + 0.1) / (seen + 1) for changes, seen in zip(expected, cycles, strict=True)]
    assert rates.rate(peer.state["E"], peer.state["T"]) == pytest.approx(known, abs=1e-6)
    assert peer.visits_per_cycle() == pytest.approx(allocate(HARMONIC, np.array(known), 2), abs=1e-5)


def plain_replay(name: str, changed: npt.NDArray[np.bool_]) -> list[list[int]]:
    """Pages that a peer visits in every scored cycle: the most overdue first, ties by page number."""
    pages = changed.shape[1]
    peer = BASELINES[name].make(prepared(pages, K))
    assert isinstance(peer, Adaptive | Allocated)
    last, visited = [0] * pages, []
    for cycle in range(1, len(changed) + 1):
        chosen = list(range(pages))
        if cycle > WARMUP:
            per_cycle = peer.visits_per_cycle().tolist()
            due = [per_cycle[page] * (cycle - last[page]) for page in range(pages)]
            chosen = sorted(range(pages), key=lambda page: (-due[page], page))[:K]
            visited.append(chosen)
        result = [bool(changed[last[page] : cycle, page].any()) for page in chosen]
        peer.observe(cycle, np.array(chosen), np.array(result))
        for page in chosen:
            last[page] = cycle
    return visited


@given(name=st.sampled_from(list(BASELINES)), seed=st.integers(0, 2**32))
def test_the_most_overdue_pages_are_visited_first(name: str, seed: int) -> None:
    """A replay finds, cycle by cycle, what a plain loop over pages finds."""
    recorded = history(seed)
    result = replay(recorded, name, budget=K, warmup=WARMUP, ties="order")
    last = [WARMUP] * PAGES
    for number, pages in enumerate(plain_replay(name, recorded.changed)):
        cycle = WARMUP + number + 1
        changes = sum(bool(recorded.changed[last[page] : cycle, page].any()) for page in pages)
        assert result.changed[number] == changes
        for page in pages:
            last[page] = cycle


def test_optimal_rates_keep_more_copies_current_than_equal_intervals() -> None:
    """On pages that change as the theory has it, at very different rates."""
    rng = np.random.default_rng(11)
    rate = np.where(np.arange(3000) % 4 == 0, 3.0, 0.02)
    recorded = ChangeHistory(rng.random((150, 3000)) < -np.expm1(-rate), np.zeros(3000, np.int32))
    fixed = replay(recorded, "fixed", budget=0.02).freshness
    assert fixed is not None
    for name in ("azar", "cho-garcia-molina", "freshness-greedy"):
        optimal = replay(recorded, name, budget=0.02).freshness
        assert optimal is not None
        assert optimal[50:].mean() > fixed[50:].mean() + 0.01


def test_a_policy_that_observes_is_told_of_every_cycle() -> None:
    """Of the warm-up cycles with all pages, of the others with the visits in their order; only then comes the
    next plan."""
    recorded = history(5)
    prepared = prepare(recorded, budget=K, warmup=WARMUP)
    HEARD.clear()
    run(prepared, "age", policy="tests.support.policies.listening")
    cycles, pages, outcomes = zip(*HEARD, strict=True)
    assert list(cycles) == list(range(1, CYCLES + 1))
    assert [len(one) for one in pages] == [PAGES] * WARMUP + [K] * (CYCLES - WARMUP)
    assert outcomes[0].tolist() == recorded.changed[0].tolist()
    last = np.full(PAGES, WARMUP)
    for cycle, visited, hits in HEARD[WARMUP:]:
        missed = [recorded.changed[last[page] : cycle, page].any() for page in visited]
        assert hits.tolist() == missed
        last[visited] = cycle
