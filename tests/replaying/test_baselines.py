"""Baselines: optimal allocations meet the first-order condition, and every policy spends the same budget."""

import math
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog
from scrapy.settings import Settings as ScrapySettings

from scrapy_gp4c.arrays import Floats
from scrapy_gp4c.errors import PolicyError, SettingsError
from scrapy_gp4c.scoring import rates
from scrapy_gp4c.search.queries import parse_query_log
from scrapy_gp4c.settings import Settings
from tests.support.contents import contents_of, random_pages
from tests.support.policies import OBSERVED
from training.histories.history import ChangeHistory
from training.papers.user_centric import Judged, points
from training.papers.user_centric import prepared as prepared_trial
from training.replaying import baselines
from training.replaying.baselines import (
    BASELINES,
    HARMONIC,
    POISSON_FRESHNESS,
    REGULAR_FRESHNESS,
    Adaptive,
    Allocated,
    Objective,
    allocate,
    allocate_visits,
    change_rates,
    current_share,
    timetable,
)
from training.replaying.metrics import CONTENTS, METRICS
from training.replaying.prepared import PreparedHistory, prepare
from training.replaying.refresh_value import QualityMeasure, with_refresh_values
from training.replaying.replay import replay, run
from training.replaying.search import count


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
many_rates = st.lists(st.floats(0.0003, 3.0), min_size=2, max_size=40).map(np.array)
shares = st.floats(0.005, 0.995)


@given(objectives, many_rates, shares)
def test_visits_add_up_to_the_budget(name: str, rates: Floats, share: float) -> None:
    """And no page is visited less than never or more than once a cycle."""
    visits = allocate(VALUES[name][0], rates, share * len(rates))
    assert visits.sum() == pytest.approx(share * len(rates), rel=1e-8)
    assert ((visits >= 0) & (visits <= 1)).all()


@given(objectives, many_rates, shares)
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
    OBSERVED.clear()
    run(prepared, "age", policy="tests.support.policies.listening")
    cycles, pages, outcomes = zip(*OBSERVED, strict=True)
    assert list(cycles) == list(range(1, CYCLES + 1))
    assert [len(one) for one in pages] == [PAGES] * WARMUP + [K] * (CYCLES - WARMUP)
    assert outcomes[0].tolist() == recorded.changed[0].tolist()
    last = np.full(PAGES, WARMUP)
    for cycle, visited, hits in OBSERVED[WARMUP:]:
        missed = [recorded.changed[last[page] : cycle, page].any() for page in visited]
        assert hits.tolist() == missed
        last[visited] = cycle


@given(
    st.lists(st.floats(0.05, 4.0), min_size=1, max_size=3),
    st.lists(st.floats(0.1, 3.0), min_size=3, max_size=3),
    st.integers(1, 3),
)
def test_allocations_are_the_best_of_all(rates: list[float], weights: list[float], budget: int) -> None:
    """Against every way to give the visits, three cycles."""
    rates, weights = np.array(rates), np.array(weights[: len(rates)])

    def value(visits) -> float:
        return float(weights @ current_share(np.array(visits, float), rates * 3))

    result = allocate_visits(rates, weights, budget, 3)
    assert result.sum() <= budget * 3
    assert result.max() <= 3
    ways = (way for way in product(range(4), repeat=len(rates)) if sum(way) <= budget * 3)
    assert value(result) == pytest.approx(max(map(value, ways)), rel=1e-12)


def test_with_many_cycles_they_are_the_known_optimum() -> None:
    """Within 1% of the Lagrange solution; a page that changes all the time is left alone."""
    rates = np.array([0.05, 0.1, 0.4, 1.0, 50.0])
    result = allocate_visits(rates, np.ones(5), 1, 2_000) / 2_000
    expected = allocate(REGULAR_FRESHNESS, rates, 1.0)
    objective = [current_share(x, rates).sum() for x in (result, expected)]
    assert objective[0] == pytest.approx(objective[1], rel=0.01)
    assert result[-1] == 0.0


def test_rates_follow_the_updates_seen() -> None:
    """None at all: rate 0, no visits."""
    rates = change_rates(np.array([0, 10, 57]), 57)
    assert rates[0] == 0.0
    assert rates[1] == pytest.approx(-np.log(47.5 / 57.5))
    assert allocate_visits(rates[:1], np.ones(1), 1, 57).tolist() == [0]


@given(st.lists(st.integers(0, 5), min_size=1, max_size=6), st.integers(1, 4), st.integers(0, 99))
def test_slots_shift_as_little_as_the_linear_program(counts: list[int], budget: int, seed: int) -> None:
    """Against the transportation problem of single visits (no page twice a cycle left aside)."""
    cycles = 5
    visits = np.array(counts)
    if visits.sum() > budget * cycles:
        budget = -(-int(visits.sum()) // cycles)
    phase = np.random.default_rng(seed).random(len(visits))
    rows = timetable(visits, budget, cycles, seed)
    assert all(len(row) <= budget for row in rows)
    for row in rows:
        assert len(set(row.tolist())) == len(row)
    assert np.bincount(np.concatenate(rows), minlength=len(visits)).tolist() == counts
    expected = [
        int(np.clip(np.ceil((j - phase[p]) * cycles / x), 1, cycles))
        for p, x in enumerate(counts)
        for j in range(1, x + 1)
    ]
    if not expected:
        return
    cost = np.abs(np.array(expected)[:, None] - np.arange(1, cycles + 1)).ravel()
    n = len(expected)
    each = np.kron(np.eye(n), np.ones(cycles))
    in_cycle = np.kron(np.ones(n), np.eye(cycles))
    least = linprog(cost, A_ub=in_cycle, b_ub=np.full(cycles, budget), A_eq=each, b_eq=np.ones(n)).fun
    made = np.cumsum([len(row) for row in rows])
    shift = np.abs(made - np.cumsum(np.bincount(expected, minlength=cycles + 1)[1:])).sum()
    assert shift == pytest.approx(least, abs=1e-6)


LOG = parse_query_log(["a\t5", "b\t3", "a b\t2", "c d\t1"], "log")


@pytest.mark.parametrize("name", ["sbr", "ebr"])
def test_a_replay_refreshes_what_the_experiment_does(name: str, tmp_path: Path) -> None:
    """Without a warm-up, the same quality and impact to the last bits of their fixed point."""
    contents = contents_of(tmp_path, random_pages(11, pages=10, cycles=10))
    trial = prepared_trial("small", count(contents).of(LOG), QualityMeasure(LOG), seed=5)
    history = with_refresh_values(contents, QualityMeasure(LOG))
    for tau in (0.0, 0.3, 1.0):
        expected = next(one for one in points(trial, (0.3,), (tau,)) if one.policy == name.upper())
        history_prepared = prepare(history, budget=expected.refreshes, warmup=0, seed=5)
        peer = baselines.load_oracle_baseline(f"{name}(tau={tau})")
        assert peer is not None
        result = run(history_prepared, peer, metrics=tuple(CONTENTS))
        judged = Judged(*(float(getattr(result, metric).mean()) for metric in Judged._fields))
        assert judged == pytest.approx((expected.quality, expected.impact), abs=1e-6)
        assert result.visited.tolist() == [expected.refreshes] * 10


@given(
    planned=st.lists(st.integers(0, 9), unique=True, max_size=6),
    last=st.lists(st.integers(0, 5), min_size=10, max_size=10),
    budget=st.integers(6, 10),
)
def test_what_is_left_over_goes_by_age(planned: list[int], last: list[int], budget: int) -> None:
    """The planned pages first; then those that have waited longest, none twice."""
    pages = baselines.with_oldest(np.array(planned, np.int64), np.array(last), budget).tolist()
    assert pages[: len(planned)] == planned
    oldest = pages[len(planned) :]
    by_age = sorted(set(range(10)) - set(planned), key=lambda page: (last[page], page))
    assert oldest == by_age[: len(oldest)]
    assert len(set(pages)) == len(pages) == budget


def test_the_warm_up_is_no_part_of_the_timetable(tmp_path: Path) -> None:
    """Every page is visited then; the timetable has the scored cycles."""
    history = with_refresh_values(
        contents_of(tmp_path, random_pages(2, pages=8, cycles=9)), QualityMeasure(LOG)
    )
    peer = baselines.load_oracle_baseline(" sbr( tau = .5 ) ")
    assert peer is not None
    result = run(prepare(history, budget=3, warmup=4), peer, metrics=("quality",))
    assert result.visited.tolist() == [3] * 5


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("sbr(tau=1.5)", "takes for tau .*; found 1.5"),
        ("ebr(x=1)", "has no parameter 'x'; ebr has tau"),
        ("sbr(0.5)", r"sbr\(tau=0.0\) or ebr\(tau=0.0\)"),
        ("sbr(", r"sbr\(tau=0.0\) or ebr\(tau=0.0\)"),
    ],
)
def test_what_cannot_be_read_is_one_error(text: str, said: str) -> None:
    """With what would be."""
    with pytest.raises(PolicyError, match=said):
        baselines.load_oracle_baseline(text)


def test_other_texts_are_left_to_the_table_of_policies() -> None:
    """Policies of crawls are no oracle baselines."""
    assert [baselines.load_oracle_baseline(text) for text in ("top_k", "rounds(rounds=3)", "sbrx", "")] == [
        None
    ] * 4


@pytest.mark.parametrize("known", [False, True])
def test_a_history_of_changes_alone_is_refused(known: bool, tmp_path: Path) -> None:
    """As are some of the pages of a search: it takes all of them, and a log of queries."""
    history = ChangeHistory(np.zeros((5, 4), bool), np.zeros(4, int))
    if known:
        history = with_refresh_values(
            contents_of(tmp_path, random_pages(2, pages=8, cycles=9)), QualityMeasure(LOG)
        )
        history = history.take(pages=np.arange(4))
    peer = baselines.load_oracle_baseline("ebr")
    assert peer is not None
    with pytest.raises(PolicyError, match=r"'ebr' needs all pages .*--query-log"):
        run(prepare(replace(history), budget=2, warmup=1), peer)


def test_a_crawl_has_no_such_policy() -> None:
    """It knows no update beforehand."""
    with pytest.raises(SettingsError, match=r"GP4C_POLICY: a policy is one of top_k"):
        Settings.load(ScrapySettings({"GP4C_POLICY": "sbr(tau=.3)"}))
