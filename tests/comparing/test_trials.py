"""Policies over several seeds: means by cycle, intervals over cycles, differences paired by cycle."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from training.comparing.statistics import Mean
from training.comparing.trials import PolicyTrial, try_policy, written
from training.histories.models import generate
from training.replaying.metrics import METRICS, ORACLE
from training.replaying.prepared import CrawlChoices, prepare_for
from training.replaying.replay import replay, run

values = st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=2, max_size=12)


def test_a_trial_is_the_mean_of_replays() -> None:
    """Of a policy without a score function, one with a score function, and the oracle; seed after seed."""
    history = generate("poisson", 120, 9, 3)
    crawl = CrawlChoices(0.1, warmup=1, seed=4)
    for policy, score in (("top_k", "t * X"), (ORACLE, "random")):
        result = try_policy(history, policy, crawl, 3, METRICS, score)
        function = ORACLE if policy == ORACLE else score
        for metric in METRICS:
            replays = [
                getattr(replay(history, function, budget=0.1, warmup=1, seed=seed), metric)
                for seed in (4, 5, 6)
            ]
            assert result.per_cycle[metric] == pytest.approx(np.mean(replays, axis=0), abs=1e-15)
    one = try_policy(history, "rns", crawl, 1)
    assert np.array_equal(
        one.per_cycle["ndcg"], run(prepare_for(history, crawl), "random", policy="rns").ndcg
    )


@given(values)
def test_intervals_are_over_cycles_and_differences_are_paired(pairs: list[tuple[float, float]]) -> None:
    """Student's t of the cycles' values, and of their differences, as scipy has it."""
    ours, theirs = (np.array(column) for column in zip(*pairs, strict=True))
    one, other = (PolicyTrial(name, "", {"ndcg": column}) for name, column in (("a", ours), ("b", theirs)))
    for interval, sample in ((one.mean("ndcg"), ours), (one.ahead(other, "ndcg"), ours - theirs)):
        expected = stats.t.ppf(0.975, len(sample) - 1) * stats.sem(sample)
        assert interval.mean == pytest.approx(sample.mean(), abs=1e-12)
        assert interval.half_width == pytest.approx(expected, abs=1e-12)


def test_means_are_written_with_their_intervals() -> None:
    """Three digits, a sign where differences want one, no interval for a single cycle."""
    assert written(Mean(0.35449, 0.0041)) == "0.354 ± 0.004"
    assert written(Mean(0.1, math.nan), 2, "+") == "+0.10"
