"""Intervals, paired tests and correlations over cycles and folds (journal 5.3).

Values of one score function are float64 ``[F, C]``: one row per fold (one of several test sets of pages), one
column per scored cycle.
"""

import math
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import special

from scrapy_gp4c.arrays import Floats

Bits = npt.NDArray[np.bool_]

CONFIDENCE: Final = 0.95


class Mean(NamedTuple):
    """Mean with the half width of its 95% confidence interval (Student's t)."""

    mean: float
    half_width: float
    """nan for a single value."""


class Duel(NamedTuple):
    """Victories, losses and ties of one score function against another over the cycles (journal Table 3)."""

    victories: int
    """Number of cycles in which it is significantly better."""
    losses: int
    ties: int
    gain: float
    """Mean relative difference over the victories, 0.04 for 4%; nan without any."""
    loss: float
    """Mean relative difference over the losses, negative; nan without any."""


def half_width(sample: Floats, *, error_first: bool = True) -> float:
    """Half width of the 95% interval of a sample's mean (Student's t); nan for a single value.

    ``sample``: float64 ``[n]``; ``error_first``: whether the standard error is rounded before it is
    multiplied, which decides the last bit: the experiment's tables round it, `training.evaluate` does not.
    """
    n = len(sample)
    if n < 2:
        return float("nan")
    point = t_quantile(n - 1)
    deviation, root = float(sample.std(ddof=1)), math.sqrt(n)
    return point * (deviation / root) if error_first else point * deviation / root


def t_quantile(degrees: int) -> float:
    """Factor of the standard error in a 95% interval's half width (Student's t), by degrees of freedom."""
    return float(special.stdtrit(degrees, (1 + CONFIDENCE) / 2))


def mean(values: npt.ArrayLike) -> Mean:
    """Mean of all values, taken as one sample, with its interval."""
    sample = np.asarray(values, dtype=np.float64).ravel()
    return Mean(float(sample.mean()), half_width(sample))


def per_cycle(values: Floats) -> list[Mean]:
    """For each cycle the mean over all folds, with its interval; ``values``: ``[F, C]``."""
    return [mean(column) for column in values.T]


def p_values(one: Floats, other: Floats) -> Floats:
    """Two-sided p value of the paired t test over the folds, for every cycle: ``[C]``.

    Differences that are the same in every fold have no spread to test: p is 1 if they are 0, else 0.
    """
    difference = one - other
    constant = (difference == difference[:1]).all(axis=0)
    out = np.where(difference[0] == 0.0, 1.0, 0.0)
    varying = np.flatnonzero(~constant)
    if len(varying) and len(difference) > 1:
        from scipy import stats  # takes half a second to import

        out[varying] = stats.ttest_rel(one[:, varying], other[:, varying], axis=0).pvalue
    return np.asarray(out)


def duel(one: Floats, other: Floats) -> Duel:
    """Victories, losses and ties of `one` against `other`, both ``[F, C]``; higher values are better.

    With a single fold no cycle can be tested: all are ties.
    """
    cycles = one.shape[1]
    if len(one) < 2:
        return Duel(0, 0, cycles, float("nan"), float("nan"))
    one_mean, other_mean = one.mean(axis=0), other.mean(axis=0)
    significant = p_values(one, other) < 1 - CONFIDENCE
    won, lost = significant & (one_mean > other_mean), significant & (one_mean < other_mean)
    relative = np.divide(one_mean - other_mean, other_mean, out=np.full(cycles, np.nan), where=other_mean > 0)
    return Duel(
        int(won.sum()),
        int(lost.sum()),
        cycles - int(won.sum()) - int(lost.sum()),
        _mean_or_nan(relative[won]),
        _mean_or_nan(relative[lost]),
    )


def paired(one: Floats, other: Floats) -> Floats:
    """Difference of two functions' mean values in each fold, ``[F]``, because a fold's cycles are dependent.

    ``one``, ``other``: ``[F, C]``. With a single fold: the difference in each cycle, ``[C]``.
    """
    return np.asarray((one - other).mean(axis=1) if len(one) > 1 else (one - other)[0])


def overall(one: Floats, other: Floats) -> tuple[Mean, float]:
    """Mean of the differences by `paired`, with its interval, and the p value of a paired t test."""
    pairs = paired(one, other)
    if len(pairs) < 2 or np.ptp(pairs) == 0.0:
        return mean(pairs), 1.0 if not pairs.any() else 0.0
    from scipy import stats

    return mean(pairs), float(stats.ttest_1samp(pairs, 0.0).pvalue)


def correlation(changed_pages: npt.ArrayLike, values: npt.ArrayLike) -> float:
    """Pearson correlation of the number of changed pages and a metric, over cycles; nan if constant."""
    x, y = (np.asarray(a, dtype=np.float64).ravel() for a in (changed_pages, values))
    if len(x) < 2 or np.ptp(x) == 0.0 or np.ptp(y) == 0.0:
        return float("nan")
    from scipy import stats

    return float(stats.pearsonr(x, y).statistic)


class RankCorrelation(NamedTuple):
    """Spearman's correlation of selected pairs of values, beside that of permuted pairs."""

    spearman: float
    """Spearman's rank correlation; nan for fewer than three selected values."""
    selected: int
    null_mean: float
    """Mean over the permutations: not 0 where the selection depends on the values."""
    null_low: float
    """2.5% quantile over the permutations."""
    null_high: float
    """97.5% quantile over the permutations."""
    p: float
    """Two-sided p value: share of permutations at least as far from `null_mean`."""


def rank_correlation(
    x: Floats, y: Floats, select: Callable[[Floats, Floats], Bits], permutations: int = 999, seed: int = 0
) -> RankCorrelation:
    """Spearman's correlation of `x` and `y` where ``select(x, y)`` is True, with a permutation test.

    Each permutation draws the pairs of ``x`` and ``y`` anew and selects again: the null has the same bias as
    the selection. (Pairs in which either value is positive, of values that are mostly 0, have negative
    correlations even if unrelated.)
    """
    rng = np.random.default_rng(seed)
    value, selected = _spearman(x, y, select)
    if math.isnan(value):
        return RankCorrelation(value, selected, *[float("nan")] * 4)
    null = np.array([_spearman(x, rng.permutation(y), select)[0] for _ in range(permutations)])
    null = null[np.isfinite(null)]
    if not len(null):
        return RankCorrelation(value, selected, *[float("nan")] * 4)
    low, high = np.quantile(null, (0.025, 0.975))
    farther = np.abs(null - null.mean()) >= abs(value - null.mean()) - 1e-12
    p = (1 + int(farther.sum())) / (1 + len(null))
    return RankCorrelation(value, selected, float(null.mean()), float(low), float(high), p)


def _spearman(x: Floats, y: Floats, select: Callable[[Floats, Floats], Bits]) -> tuple[float, int]:
    from scipy import stats

    chosen = select(x, y)
    one, other = stats.rankdata(x[chosen]), stats.rankdata(y[chosen])
    if len(one) < 3 or np.ptp(one) == 0.0 or np.ptp(other) == 0.0:
        return float("nan"), len(one)
    return float(np.corrcoef(one, other)[0, 1]), len(one)


def _mean_or_nan(values: npt.NDArray[Any]) -> float:
    return float(np.nanmean(values)) if len(values) and not np.isnan(values).all() else float("nan")
