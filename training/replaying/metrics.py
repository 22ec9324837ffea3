"""Metrics of a replayed schedule's effectiveness: their definitions and exact arithmetic.

A replayed cycle is summed up by whole numbers (`Tallies`); `measure` turns these into metrics with one
division each. Sums of real numbers (gains, weights, harmonic penalties) are in fixed point: a sum then does
not depend on its order, and two engines give the same bits.

Sources: Santos 2013 (thesis) sections 2.4.1 and 2.4.3; Santos et al. 2014 (journal) section 4.2.2; Cho &
Ntoulas 2002; Järvelin & Kekäläinen 2002; Cho & Garcia-Molina 2003; Kolobov et al. 2019.
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.arrays import Floats, Ints
from scrapy_gp4c.errors import HistoryError
from scrapy_gp4c.policies import base as policies


class Metric(NamedTuple):
    """Metric with one number per scored cycle."""

    name: str
    """Name of the metric within a sentence."""
    meaning: str
    tally: str | None = None
    """Field of `Tallies` that the metric needs besides visited, changed and pending."""

    @property
    def heading(self) -> str:
        return self.name[0].upper() + self.name[1:]


METRICS: Final[dict[str, Metric]] = {
    "change_rate": Metric(
        "change rate", "visited pages that had changed / visited pages (thesis eq. 2.3, journal eq. 1)"
    ),
    "ndcg": Metric(
        "NDCG", "the same, a change counting the more the higher its page was ranked (journal 4.2.2)", "dcg"
    ),
    "weighted_change_rate": Metric(
        "weighted change rate",
        "summed weight of the visited pages that had changed / visited pages",
        "changed_weight",
    ),
    "freshness": Metric(
        "freshness", "weighted share of pages whose copy is current after the cycle", "stale_weight"
    ),
    "age": Metric(
        "age", "weighted mean of the cycles since a copy diverged, 0 for a current copy", "age_weight"
    ),
    "harmonic_staleness": Metric(
        "harmonic staleness",
        "weighted mean of 1 + 1/2 + ... + 1/m over pages, m changes missed",
        "penalty",
    ),
    "new_pages": Metric(
        "new pages", "share of visited pages that were never visited since the warm-up", "new"
    ),
    "idle_pages": Metric(
        "idle pages", "share of visited pages that were not visited in the cycle before", "idle"
    ),
}
"""Metrics that every history has: name in files and options -> metric."""

CONTENTS: Final[dict[str, Metric]] = {
    "impact": Metric(
        "impact", "1 - what refreshing all copies would gain / the same if never refreshed", "impact"
    ),
    "quality": Metric(
        "search quality",
        "usefulness of searching the copies / of searching the live pages (Pandey & Olston 2005, eq. 5)",
        "quality",
    ),
}
"""Metrics that need contents and a log of queries."""
WEIGHTED: Final[dict[str, Metric]] = {
    "weighted_ndcg": Metric(
        "weighted NDCG", "NDCG, a change counting as much as its page weighs", "weighted_dcg"
    ),
}
"""Further metrics in which each visited page has its weight."""
COST: Final = "changes_per_s"
COSTED: Final[dict[str, Metric]] = {
    COST: Metric("changes per second", "visited pages that had changed / download time of all visits", "cost")
}
"""Metric by the download times of the visited pages."""
KNOWN: Final = METRICS | CONTENTS | WEIGHTED | COSTED
PAGE_BY_PAGE: Final = frozenset((*CONTENTS, *WEIGHTED, *COSTED))
"""Metrics for which the single page counts, so that the grouped engine cannot compute them."""
IMPACT: Final = "impact"
"""The metric of `CONTENTS` that can be a fitness: quality needs all pages, and splits have some."""

MEASURES: Final[dict[str, float]] = {
    "change_rate": 1.0,
    "ndcg": 1.0,
    "weighted_change_rate": 1.0,
    "freshness": 1.0,
    "harmonic_staleness": -1.0,
    "age": -1.0,
    COST: 1.0,
}
"""Metric by which schedules can be ranked -> 1, or -1 where less is better."""

TRIO: Final = ("change_rate", "ndcg", "freshness")
"""The three metrics that every table shows side by side."""

ORACLE: Final = "oracle"
"""Name of the schedule that knows the truth: it visits pages that changed since their last visit first."""

MOST_WEIGHT: Final = 1e12
"""Largest weight of a page in a history; a crawl takes no more than a million."""
LEAST_WEIGHT: Final = 1e-100
"""Least sum of all weights: fixed point loses smaller ones."""
CONTENT_BITS: Final = 40
GAIN_BITS: Final = 42
"""Gains are kept in units of 2**-42: relative error below 2e-12, no overflow below 30 million visits."""


def budget_pages(budget: float, pages: int) -> int:
    """Visits per cycle for a budget, a share or count of `pages`; at least 1.

    Raises HistoryError for a budget that is neither a share in (0, 1] nor a positive count.
    """
    is_count = isinstance(budget, int | np.integer) and not isinstance(budget, bool)
    is_share = isinstance(budget, float | np.floating) and 0.0 < budget <= 1.0
    if not is_share and not (is_count and budget >= 1):
        raise HistoryError(
            f"a budget is a share of the pages (a float above 0, at most 1.0) or a count of pages "
            f"(an int of at least 1); found {budget!r}"
        )
    return policies.budget_pages(int(budget) if is_count else float(budget), pages)


def parse_budget(text: str) -> float:
    """Parse a budget: ``0.05`` is a share of the pages, ``5000`` a count. Raises HistoryError."""
    try:
        return policies.read_budget(text)
    except ValueError:
        raise HistoryError(
            f"--budget: expected a share such as 0.05 or a count such as 5000; found {text!r}"
        ) from None


@lru_cache(maxsize=16)
def gain_sums(k: int) -> Ints:
    """Summed gains of the ranks 1..r for r = 0..k, in units of 2**-`GAIN_BITS`: int64 ``[k + 1]``.

    The gain of a change found at rank r is 1 at rank 1 and 1 / ln(r + 1) at rank r >= 2, as in the authors'
    program (journal equation 2 as printed divides by ln 1 = 0 at rank 1).
    """
    values = 1.0 / np.log(np.arange(2, k + 2, dtype=np.float64))
    values[:1] = 1.0
    units = np.rint(np.ldexp(values, GAIN_BITS)).astype(np.int64)
    sums = np.concatenate((np.zeros(1, np.int64), np.cumsum(units)))
    sums.flags.writeable = False  # every caller gets the same one
    return sums


def harmonic(count: int) -> Floats:
    """Harmonic numbers H(0) = 0, H(m) = 1 + 1/2 + ... + 1/m for m = 0..count: float64 ``[count + 1]``.

    The penalty of a copy that misses m changes (Kolobov, Peres, Lu & Horvitz 2019, "Staying up to Date
    with Online Content Changes Using Reinforcement Learning for Scheduling", NeurIPS 32, 581-591): like
    the logarithm of m, so that the first missed change costs most, yet every further one still costs.
    """
    return np.array([math.fsum(1.0 / i for i in range(1, m + 1)) for m in range(count + 1)])


@dataclass(frozen=True)
class FixedPointWeights:
    """Page weights in fixed point, scaled so that no sum over pages and cycles overflows int64."""

    values: Floats
    """Weights of the history; empty if all pages weigh 1."""
    fixed: Ints
    """round(weight * 2**bits); empty if all pages weigh 1."""
    bits: int
    total: int
    """Sum of the fixed weights; the number of pages if all weigh 1."""
    penalties: Floats
    """Harmonic numbers H(0..cycles)."""
    penalty_bits: int
    penalty_total: float
    """Sum of the weights in units of 2**-penalty_bits."""

    @classmethod
    def of(cls, weight: npt.NDArray[Any] | None, pages: int, cycles: int) -> Self:
        """Weights of pages, scaled for sums over at most `cycles` cycles.

        Raises HistoryError unless they are finite, not negative, not all zero.
        """
        values = np.empty(0) if weight is None else np.ascontiguousarray(weight, dtype=np.float64)
        total = float(pages)
        if weight is not None:
            if values.shape != (pages,) or not ((values >= 0) & (values <= MOST_WEIGHT)).all():
                raise HistoryError(
                    f"page weights must be {pages:,} numbers from 0 to {MOST_WEIGHT:g}; found "
                    f"{values.shape[0] if values.ndim else 0:,} from {values.min(initial=np.inf):g} "
                    f"to {values.max(initial=-np.inf):g}"
                )
            total = math.fsum(values.tolist())
            if total < LEAST_WEIGHT:
                raise HistoryError("all page weights are zero: give at least one page a weight above 0")
        penalties = harmonic(cycles)
        # One bit for the sign, one for rounding up: sums stay below 2**62.
        bits = 61 - math.ceil(math.log2(total * (cycles + 1))) if weight is not None else 0
        penalty_bits = 61 - math.ceil(math.log2(total * max(1.0, penalties[-1])))
        fixed = np.rint(np.ldexp(values, bits)).astype(np.int64)
        return cls(
            values,
            fixed,
            bits,
            pages if weight is None else int(fixed.sum()),
            penalties,
            penalty_bits,
            math.ldexp(total, penalty_bits),
        )


Tallies = dict[str, npt.NDArray[Any]]
"""Counts of a replay in each scored cycle, int64 or float64 ``[scored cycles]``, by name.

* ``visited``, ``changed``: visited pages, and those that had changed since their last visit; always there
* ``pending``: pages that had changed since their last visit, before the cycle's visits; always there
* ``dcg``: gains of the visited pages that had changed, in units of 2**-`GAIN_BITS`
* ``new``, ``idle``: visited pages never visited since the warm-up, and not visited in the cycle before
* ``changed_weight``: weight of the changed ones in units of `FixedPointWeights.fixed`
* ``stale_weight``, ``age_weight``: the pages whose copy is not current after the cycle: weight, and the sum
  of weight * age
* ``penalty``: sum of weight * H(missed changes), in units of 2**-penalty_bits
* ``weighted_dcg``, ``weighted_best``: gains of the changes found times weights, and those of the best
  possible ranking, in units of 2**-`GAIN_BITS`
* ``cost``: download times of the visited pages, in ms
* ``impact``, ``quality``: the metrics of these names, in units of 2**-`CONTENT_BITS`
"""


def measure(tallies: Tallies, weights: FixedPointWeights) -> dict[str, Floats]:
    """Compute the metrics whose `tallies` are there, each float64 ``[scored cycles]``: name -> values.

    * ``ndcg``: DCG of the k ranked visits over the best possible DCG, that of min(k, pending) changes in
      the first places; 0 in a cycle in which nothing is pending.
    * ``weighted_ndcg``: the same with gains times weights, the heaviest of the pending pages in the first
      places (Järvelin & Kekäläinen 2002: gains are graded); with weights of 1 it is ``ndcg``, bit for bit.
    * ``weighted_change_rate`` (Cho & Ntoulas 2002, thesis 2.4.3): weights of the changed pages over visits.
    * ``freshness``: weighted freshness WF (Olston & Najork 2010, thesis 2.4.1) over the sum of weights.
    * ``age`` (Cho & Garcia-Molina 2003, thesis 2.4.1): a copy whose first missed change is the bit of
      cycle d has age c - d + 1 after cycle c: 1 in the very cycle of the change.
    * ``harmonic_staleness``: mean of H(m), see `harmonic`.
    """
    visited = np.maximum(tallies["visited"], 1)  # a policy may visit nothing in a cycle: shares of that are 0
    out = {"change_rate": tallies["changed"] / visited}
    if "dcg" in tallies:
        most = int(tallies["visited"].max(initial=0))  # what a policy did not visit counts against it
        best = gain_sums(most)[np.minimum(most, tallies["pending"])]
        out["ndcg"] = np.divide(tallies["dcg"], best, out=np.zeros(len(best)), where=best > 0)
    if "weighted_dcg" in tallies:
        best = tallies["weighted_best"]
        zeros = np.zeros(len(best))
        out["weighted_ndcg"] = np.divide(tallies["weighted_dcg"], best, out=zeros, where=best > 0)
    if "changed_weight" in tallies:
        changed_weight = tallies["changed_weight"].astype(float)
        out["weighted_change_rate"] = np.ldexp(changed_weight, -weights.bits) / visited
    if "stale_weight" in tallies:
        out["freshness"] = (weights.total - tallies["stale_weight"]) / weights.total
    if "age_weight" in tallies:
        out["age"] = tallies["age_weight"] / weights.total
    if "penalty" in tallies:
        out["harmonic_staleness"] = tallies["penalty"] / weights.penalty_total
    if "cost" in tallies:
        out[COST] = tallies["changed"] / np.maximum(tallies["cost"], 1) * 1000.0
    for name in CONTENTS.keys() & tallies.keys():
        out[name] = np.ldexp(tallies[name].astype(float), -CONTENT_BITS)
    for name in {"new", "idle"} & tallies.keys():
        out[f"{name}_pages"] = tallies[name] / visited
    return out
