"""The decision on two score functions: its test against scipy's, its errors counted, and what it costs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats
from scipy.stats import binom

from benchmarks.promotion import noisy, promoted
from scrapy_gp4c.scoring import functions
from training.comparing.decision import REPLAYS, chance, decide
from training.evolution.choices import Choices
from training.histories import models
from training.replaying import arranged


def test_gain_that_costs_freshness_is_not_promoted() -> None:
    """Pages that always change fill every cycle: the change rate rises, and the other copies grow old."""
    history = models.generate("poisson", 1200, 40, 1)
    decision = decide(history, functions.load("t"), functions.load("nad_rate"), Choices(), 20)
    assert not decision.promoted
    assert decision.challenger > decision.champion
    assert decision.challenger_freshness < decision.champion_freshness
    assert "its freshness significantly worse" in decision.reason


DIFFERENCES = arrays(np.float64, st.integers(6, 40), elements=st.floats(-1, 1).map(lambda x: round(x, 3)))


@given(DIFFERENCES)
def test_chance_is_a_paired_t_test_over_blocks_of_cycles(differences: np.ndarray) -> None:
    """Scipy's own test where blocks are not positively correlated; else nearer to one half."""
    probability = chance(differences)
    assert 0.0 <= probability <= 1.0
    size = 2 if len(differences) >= 16 else 1
    blocks = differences[len(differences) % size :].reshape(-1, size).mean(axis=1)
    if np.ptp(blocks) < 1e-9:
        return
    plain = stats.ttest_1samp(blocks, 0.0, alternative="greater").pvalue
    rest = blocks - blocks.mean()
    if rest[1:] @ rest[:-1] <= 0:
        assert probability == pytest.approx(plain)
    else:
        assert abs(probability - 0.5) <= abs(plain - 0.5) + 1e-12


def test_no_difference_is_no_gain() -> None:
    """Equal rankings are not better; a constant gain is certain."""
    assert chance(np.zeros(10)) == 1.0
    assert chance(np.full(10, 0.1)) == 0.0
    assert chance(np.full(10, -0.1)) == 1.0


def test_correlated_differences_do_not_raise_false_alarms() -> None:
    """Mean 0, correlation -0.5 to 0.5 from cycle to cycle: at most twice the level is found significant.

    With few cycles a positive correlation cannot be told from chance: there, up to 0.
    """
    rng = np.random.default_rng(0)
    for correlation, lengths in ((-0.5, (8, 15, 28)), (0.0, (8, 15, 28)), (0.5, (28,))):
        alarms = np.zeros(len(lengths))
        for _ in range(1000):
            x = rng.standard_normal(40)
            for i in range(1, 40):
                x[i] = correlation * x[i - 1] + np.sqrt(1 - correlation**2) * x[i]
            alarms += np.array([chance(x[-cycles:]) <= 0.025 for cycles in lengths])
        assert (alarms <= 50).all(), correlation


def test_equals_are_seldom_promoted_and_better_ones_mostly() -> None:
    """At rates of 5% and 80%, other counts would have a chance of 1%; benchmarks/promotion.py does 400."""
    runs = 20
    assert promoted("brdc12-like", noisy(3.0), noisy(3.0, "(1 - random)"), runs) <= binom.ppf(
        0.99, runs, 0.05
    )
    assert promoted("brdc12-like", noisy(2.23), "t*X", runs) >= binom.ppf(0.01, runs, 0.8)


def test_two_decisions_on_one_history_arrange_it_once_for_every_draw_of_ties(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What one decision arranged is there for the next, which comes after hours of learning."""
    made: list[int] = []
    make = arranged.ArrangedHistory

    def counted(*values: Any) -> arranged.ArrangedHistory:
        new = make(*values)
        made.append(new.seed)
        return new

    monkeypatch.setattr(arranged, "ArrangedHistory", counted)
    history, choices = models.generate("poisson", 100, 12, 1), Choices(budget=0.1)
    champion = functions.load("nad")
    for challenger in (champion, functions.load("t*X")):
        decide(history, champion, challenger, choices, 6)
    assert made == [choices.seed + number for number in range(REPLAYS)]
