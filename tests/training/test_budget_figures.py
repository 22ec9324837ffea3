"""What budgets buy: figures of a replay by hand, intervals of a panel, answers on the curve."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scrapy_gp4c.errors import Gp4cError, HistoryError
from training import budget as budgets
from training.budget import (
    FIGURES,
    FRESHNESS,
    BudgetPoint,
    Budgets,
    Curve,
    Value,
    answers,
    read_budgets,
)
from training.comparing.statistics import t_quantile
from training.histories.history import ChangeHistory
from training.replaying.prepared import CrawlChoices


def a_history(pages: int, cycles: int = 8) -> ChangeHistory:
    """Pages that change with rates of their own."""
    rng = np.random.default_rng(5)
    return ChangeHistory(rng.random((cycles, pages)) < rng.random(pages) * 0.7, np.arange(pages) % 3)


def point(share: float, fresh: float = 0.0, changes: float = 0.0) -> BudgetPoint:
    """A point of a curve."""
    figures = {name: Value(0.0, None) for name in FIGURES}
    figures |= {"freshness": Value(fresh, None), "changes_a_day": Value(changes, None)}
    return BudgetPoint(share, 1, figures)


def answered(points: list[BudgetPoint]) -> list[str]:
    """The answers of one curve."""
    return answers(Budgets([], [Curve("t", points)], 100, False, 1.0))


@given(st.lists(st.one_of(st.integers(1, 10**6), st.floats(1e-6, 1.0)), min_size=1, max_size=5))
def test_budgets_come_back_as_they_were_written(given_: list[int | float]) -> None:
    """A count stays a whole number, a share a float; per cent are hundredths; spaces do not count."""
    found = read_budgets(" , ".join(map(repr, given_)))
    assert found == given_
    assert list(map(type, found)) == list(map(type, given_))
    assert read_budgets(",".join(f"{value!r}%" for value in given_)) == [value / 100 for value in given_]


@pytest.mark.parametrize("text", ["", "1%,", "%", "1%%", "ten", "1;2", "5 %x", "0.1,,0.2"])
def test_other_text_is_one_error(text: str) -> None:
    """Which part it is, and what would be right."""
    with pytest.raises(HistoryError, match=r"--budgets: expected shares or counts such as .*; found"):
        read_budgets(text)


def test_points_come_by_ascending_budget_each_once() -> None:
    """Shares and counts mixed; two budgets that are equal in text or number are one."""
    calls: list[None] = []
    found = budgets.study(a_history(40), ["t", "X"], [0.5, 4, 0.25, 0.5], advance=lambda: calls.append(None))
    for curve in found.curves:
        assert [(one.visits, one.budget) for one in curve.points] == [(4, 0.1), (10, 0.25), (20, 0.5)]
    assert [curve.score for curve in found.curves] == ["t", "X"]
    assert [one.settings.budget for one in found.evaluations] == [4, 0.25, 0.5]
    assert len(calls) == 6
    assert (found.pages, found.is_sample) == (40, False)


@pytest.mark.parametrize(
    ("given_", "visits"),
    [([0.1, 4], [4]), ([4, 0.1, 0.11], [4]), ([1, 1.0], [1, 40]), ([1.0, 40, 99], [40]), ([0.01, 1], [1])],
)
def test_budgets_of_as_many_visits_are_one(given_: list[float], visits: list[int]) -> None:
    """A share and a count that come to the same are one point, a page and 100% are two; answers follow."""
    found = budgets.study(a_history(40), ["t"], given_)
    assert [one.visits for one in found.curves[0].points] == visits
    assert len(found.evaluations) == len(visits)
    assert sum("more changes a day" in line for line in answers(found)) == len(visits) - 1


@settings(max_examples=8, deadline=None)
@given(budget=st.sampled_from([1, 5, 0.3, 1.0]), a_day=st.sampled_from([0.5, 1.0, 24.0]))
def test_figures_follow_from_the_counts_of_the_replay(budget: float, a_day: float) -> None:
    """Little's law for the delay, and changes a day with the interval of the cycles."""
    history = a_history(20)
    found = budgets.study(history, ["t * X"], [budget], cycles_a_day=a_day)
    figures = found.curves[0].points[0].figures
    result = found.evaluations[0].results[0]
    changed = np.array(result.counts["changed"])
    stale = [round((1 - fresh) * 20) for fresh in result.metrics["freshness"].per_cycle]
    assert figures["delay_cycles"].mean == pytest.approx(sum(stale) / changed.sum())
    assert figures["changes_a_day"].mean == pytest.approx(changed.mean() * a_day)
    spread = changed.std(ddof=1) / math.sqrt(len(changed)) * t_quantile(len(changed) - 1)
    assert figures["changes_a_day"].ci95 == pytest.approx(spread * a_day)
    for name in ("change_rate", "freshness", "age"):
        assert figures[name] == tuple(result.metrics[name][:2])
    if isinstance(budget, float) and budget == 1.0:
        assert figures["freshness"].mean == 1.0
        assert figures["delay_cycles"].mean == 0.0


def test_a_panel_speaks_for_its_pages_and_says_how_surely() -> None:
    """Counts are of all pages, changes are scaled up, and each tenth is left out once for the interval."""
    history, crawl = a_history(20), CrawlChoices(warmup=1)
    found = budgets.study(history, ["X"], [50, 0.5], crawl, known_pages=100, cycles_a_day=2.0)
    assert (found.pages, found.is_sample) == (100, True)
    (one,) = {(one.budget, one.visits) for one in found.curves[0].points}
    assert one == (0.5, 50)
    figures = found.curves[0].points[0].figures
    changed = found.evaluations[0].results[0].counts["changed"]
    assert figures["changes_a_day"].mean == pytest.approx(np.mean(changed) * 5 * 2)
    left = []
    for part in range(10):
        own = history.take(np.flatnonzero(np.arange(20) % 10 != part))
        (curve,) = budgets.study(own, ["X"], [0.5], crawl).curves
        left.append(curve.points[0].figures["freshness"].mean)
    square = sum((value - sum(left) / 10) ** 2 for value in left) * 9 / 10
    assert figures["freshness"].ci95 == pytest.approx(math.sqrt(square) * t_quantile(9))


def test_a_small_panel_has_the_interval_of_its_cycles() -> None:
    """Below twenty pages no part is left out."""
    whole = budgets.study(a_history(19), ["X"], [0.5])
    panel = budgets.study(a_history(19), ["X"], [0.5], known_pages=19)
    assert panel.curves == whole.curves


def test_what_cannot_be_studied() -> None:
    """A budget above all pages or of none, a score that is none: the errors of an evaluation."""
    for scores, budget, message in (
        (["t"], 1.5, "a budget is a share"),
        (["t"], 0, "a budget is a share"),
        (["t * nothing"], 0.5, "nothing"),
    ):
        with pytest.raises(Gp4cError, match=message):
            budgets.study(a_history(10), scores, [budget])


@given(
    st.lists(
        st.tuples(st.integers(1, 99), st.integers(0, 1000)), min_size=1, max_size=6, unique_by=lambda p: p[0]
    )
)
def test_every_level_of_freshness_is_answered_once(told: list[tuple[int, int]]) -> None:
    """On the line between two budgets, below the first one, or out of reach of all: never beyond."""
    shares = sorted(share / 100 for share, _ in told)
    fresh = sorted(value / 1000 for _, value in told)
    lines = answered([point(share, value) for share, value in zip(shares, fresh, strict=True)])
    reached = [level for level in FRESHNESS if fresh[0] < level <= fresh[-1]]
    needs = [line for line in lines if " needs a budget of " in line]
    assert [line.split()[0] for line in needs] == [f"{level:.0%}" for level in reached]
    for level, line in zip(reached, needs, strict=True):
        expected = np.interp(level, *zip(*dict(zip(fresh, shares, strict=True)).items(), strict=True))
        if len(set(fresh)) == len(fresh):
            assert line.endswith(f" {expected:.1%}")
    assert any("more than the largest" in line for line in lines) == (fresh[-1] < FRESHNESS[-1])
    assert any("current already" in line for line in lines) == (fresh[0] >= FRESHNESS[0])


def test_only_the_first_level_out_of_reach_is_told() -> None:
    """The higher ones are too, which goes without saying."""
    assert answered([point(0.25, 0.5)]) == [
        "80% freshness needs more than the largest budget: 25.0% keep 50.0% of the copies current"
    ]


def test_more_changes_for_another_per_cent() -> None:
    """Between neighbours on the curve; fewer changes are told as such."""
    points = [point(0.01, 1.0, 10.0), point(0.03, 1.0, 3010.0), point(0.04, 1.0, 3000.0)]
    assert answered(points)[1:] == [
        "from 1.0% to 3.0%: +1% budget finds 1,500.0 more changes a day",
        "from 3.0% to 4.0%: +1% budget finds -10.0 more changes a day",
    ]


def test_the_document_has_null_for_what_is_no_number() -> None:
    """Pages that never change have no delay; the document is JSON that every reader takes."""
    quiet = ChangeHistory(np.zeros((6, 8), bool), np.zeros(8, int))
    found = budgets.study(quiet, ["t"], [0.25, 0.5])
    told = json.loads(json.dumps(found.to_json(), allow_nan=False))
    first, last = told["curves"][0]["points"]
    assert first["delay_cycles"] == {"mean": None, "ci95": None}
    assert first["freshness"]["mean"] == 1.0
    assert (first["visits"], last["visits"]) == (2, 4)
    assert set(first) == {"budget", "visits", *FIGURES}
    assert told["answers"] == answers(found)
    assert len(told["evaluations"]) == 2
