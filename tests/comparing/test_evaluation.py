"""Score functions side by side: the record of it, and when it refuses."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from scrapy_gp4c.errors import Gp4cError
from training.comparing.evaluation import Summary, evaluate, summary
from training.histories.history import ChangeHistory
from training.replaying.prepared import CrawlChoices
from training.replaying.replay import replay


@pytest.fixture(scope="module")
def history() -> ChangeHistory:
    rng = np.random.default_rng(7)
    return ChangeHistory(rng.random((12, 60)) < rng.random(60) * 0.6, np.zeros(60, np.int32))


@given(st.lists(st.floats(-1, 1, allow_subnormal=False), min_size=2, max_size=40))
def test_the_interval_is_students(values: list[float]) -> None:
    """Mean and half-width are those of scipy's t interval; the values are kept."""
    out = summary(np.array(values))
    assert out.per_cycle == values
    assert out.mean == pytest.approx(sum(values) / len(values), abs=1e-12)
    if max(values) - min(values) > 1e-6:
        low, high = stats.t.interval(0.95, len(values) - 1, np.mean(values), stats.sem(values))
        assert out.ci95 == pytest.approx((high - low) / 2)


def test_a_single_cycle_has_no_interval() -> None:
    """One value says nothing about the spread: null in JSON, not NaN."""
    assert summary(np.array([0.5])) == Summary(0.5, None, [0.5])


def test_a_part_of_the_cycles_is_a_history_of_its_own(history: ChangeHistory) -> None:
    """--cycles cuts the history: warm-up and page statistics begin anew at A, as in the journal."""
    part = evaluate(history.take(cycles=slice(4, 9)), ["cg"], CrawlChoices(budget=10), first_cycle=5)
    alone = replay(history.take(cycles=slice(4, 9)), "cg", budget=10)
    assert part.results[0].metrics["change_rate"].per_cycle == alone.change_rate.tolist()
    assert part.history.scored_cycles == [7, 8, 9]


def test_every_score_is_checked_before_the_first_replay(history: ChangeHistory) -> None:
    """A mistake in the last score function does not cost the replays of the others."""
    replays: list[int] = []
    with pytest.raises(Gp4cError):
        evaluate(history, ["age", "log("], advance=lambda: replays.append(1))
    assert replays == []
