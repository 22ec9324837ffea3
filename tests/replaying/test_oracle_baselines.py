"""SBR and EBR: exact allocations and timetables, and the same refreshes as in the paper's experiment."""

from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog
from scrapy.settings import Settings as ScrapySettings

from scrapy_gp4c.errors import PolicyError, SettingsError
from scrapy_gp4c.search.queries import parse_query_log
from scrapy_gp4c.settings import Settings
from tests.support.contents import contents_of, random_pages
from training.histories.history import ChangeHistory
from training.papers.user_centric import Judged, points, prepared
from training.replaying import baselines
from training.replaying.baselines import (
    REGULAR_FRESHNESS,
    allocate,
    allocate_visits,
    change_rates,
    current_share,
    timetable,
)
from training.replaying.metrics import CONTENTS
from training.replaying.prepared import prepare
from training.replaying.refresh_value import QualityMeasure, with_refresh_values
from training.replaying.replay import run
from training.replaying.search import count


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
    wanted = allocate(REGULAR_FRESHNESS, rates, 1.0)
    objective = [current_share(x, rates).sum() for x in (result, wanted)]
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
    rows = timetable(visits, budget, cycles, phase)
    assert all(len(row) <= budget for row in rows)
    for row in rows:
        assert len(set(row.tolist())) == len(row)
    assert np.bincount(np.concatenate(rows), minlength=len(visits)).tolist() == counts
    wanted = [
        int(np.clip(np.ceil((j - phase[p]) * cycles / x), 1, cycles))
        for p, x in enumerate(counts)
        for j in range(1, x + 1)
    ]
    if not wanted:
        return
    cost = np.abs(np.array(wanted)[:, None] - np.arange(1, cycles + 1)).ravel()
    n = len(wanted)
    each = np.kron(np.eye(n), np.ones(cycles))
    in_cycle = np.kron(np.ones(n), np.eye(cycles))
    least = linprog(cost, A_ub=in_cycle, b_ub=np.full(cycles, budget), A_eq=each, b_eq=np.ones(n)).fun
    made = np.cumsum([len(row) for row in rows])
    shift = np.abs(made - np.cumsum(np.bincount(wanted, minlength=cycles + 1)[1:])).sum()
    assert shift == pytest.approx(least, abs=1e-6)


LOG = parse_query_log(["a\t5", "b\t3", "a b\t2", "c d\t1"], "log")


@pytest.mark.parametrize("name", ["sbr", "ebr"])
def test_a_replay_refreshes_what_the_experiment_does(name: str, tmp_path: Path) -> None:
    """Without a warm-up, the same quality and impact to the last bits of their fixed point."""
    contents = contents_of(tmp_path, random_pages(11, pages=10, cycles=10))
    trial = prepared("small", count(contents).of(LOG), QualityMeasure(LOG), seed=5)
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
    rest = pages[len(planned) :]
    assert rest == sorted(set(range(10)) - set(planned), key=lambda page: (last[page], page))[: len(rest)]
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
