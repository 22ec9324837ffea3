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
from training.comparing.decision import (
    GUARD_LEVEL,
    GUARD_MARGIN,
    LEVEL,
    REPLAYS,
    DecisionOnTwo,
    Verdict,
    chance,
    decide,
    on_two,
)
from training.evolution.choices import Choices
from training.histories import models
from training.replaying import arranged
from training.replaying import replay as replaying


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


GAINS = arrays(np.float64, 20, elements=st.floats(-0.05, 0.05).map(lambda x: round(x, 3)))


@given(GAINS, GAINS)
def test_two_objectives_promote_what_is_better_in_one_and_not_worse_in_the_other(
    one: np.ndarray, other: np.ndarray
) -> None:
    """Whatever the differences; a gain has half the level, since there are two chances to gain by luck."""
    promoted, reason = on_two(Verdict.of("ndcg", one, 2), Verdict.of("freshness", other, 2))
    better = [gain.mean() > 0 and chance(gain) <= LEVEL / 2 for gain in (one, other)]
    worse = [chance(-gain - GUARD_MARGIN) <= GUARD_LEVEL for gain in (one, other)]
    assert promoted == ((better[0] and not worse[1]) or (better[1] and not worse[0]))
    assert promoted == (not reason.startswith("neither") and "but" not in reason)


UP, LEVEL_OFF, SLIGHTLY_DOWN, DOWN = (
    mean + 0.002 * np.cos(np.arange(20)) for mean in (0.05, 0.0, -0.008, -0.05)
)


@pytest.mark.parametrize(
    ("one", "other", "promoted", "reason"),
    [
        (UP, UP, True, "its ndcg and its freshness are significantly better"),
        (UP, LEVEL_OFF, True, "its ndcg is significantly better and its freshness not worse"),
        (LEVEL_OFF, UP, True, "its freshness is significantly better and its ndcg not worse"),
        (UP, SLIGHTLY_DOWN, True, "its ndcg is significantly better and its freshness not worse"),
        (SLIGHTLY_DOWN, UP, True, "its freshness is significantly better and its ndcg not worse"),
        (UP, DOWN, False, "its ndcg is significantly better, but its freshness significantly worse"),
        (DOWN, UP, False, "its freshness is significantly better, but its ndcg significantly worse"),
        (LEVEL_OFF, LEVEL_OFF, False, "neither its ndcg nor its freshness is significantly better"),
        (DOWN, DOWN, False, "neither its ndcg nor its freshness is significantly better"),
        (LEVEL_OFF, DOWN, False, "neither its ndcg nor its freshness is significantly better"),
    ],
)
def test_arrangements_of_two_objectives(
    one: np.ndarray, other: np.ndarray, promoted: bool, reason: str
) -> None:
    """Every way in which a challenger may be better, level or worse in the two; a loss of 0.008 is none."""
    verdicts = Verdict.of("ndcg", one, 2), Verdict.of("freshness", other, 2)
    found = on_two(*verdicts)
    assert found[0] is promoted
    assert found[1].startswith(reason)


@pytest.mark.parametrize(
    ("champion", "challenger", "promoted", "reason"),
    [
        ("random", "t*X", True, "its ndcg"),
        ("t", "nad_rate", False, "its ndcg is significantly better, but its freshness significantly worse"),
        ("nad_rate", "t", False, "its freshness is significantly better, but its ndcg significantly worse"),
        ("t*X", "random", False, "neither"),
        ("t*X", "10 * t*X", False, "both rank alike in every judged cycle"),
    ],
)
def test_two_objectives_on_a_history(champion: str, challenger: str, promoted: bool, reason: str) -> None:
    """Real functions on recorded pages; the decision tells all four probabilities."""
    history = models.generate("poisson", 1200, 40, 1)
    pair = functions.load(champion), functions.load(challenger)
    decision = decide(history, *pair, Choices(front=True), 20)
    assert isinstance(decision, DecisionOnTwo)
    assert decision.promoted is promoted
    assert decision.reason.startswith(reason)
    single = decide(history, *pair, Choices(), 20)
    assert decision.probability == single.probability
    assert decision.freshness_probability == single.freshness_probability
    assert f"p = {decision.loss_probability:.3g} for a loss of ndcg above 0.01" in str(decision)
    assert f"p = {decision.freshness_gain_probability:.3g} for a gain of freshness" in str(decision)


def test_both_functions_are_judged_under_the_policy() -> None:
    """The means are those of replays under it."""
    history = models.generate("brdc12-like", 600, 30, 1)
    policy = "tests.support.policies.siblings"
    choices = Choices(policy=policy)
    decision = decide(history, functions.load("t"), functions.load("t*X"), choices, 10)
    crawls = (choices.crawl()._replace(seed=choices.seed + number) for number in range(REPLAYS))
    expected = [
        replaying.run(arranged.prepare_for(history, crawl), "t*X", metrics=["ndcg"], policy=policy).ndcg[-10:]
        for crawl in crawls
    ]
    assert decision.challenger == pytest.approx(np.mean(expected))
    top_k = decide(history, functions.load("t"), functions.load("t*X"), Choices(), 10)
    assert top_k.challenger != decision.challenger
