"""Counters of a replay: copies that are out of date, what they have missed, versions that they hold."""

import math
from collections.abc import Collection
from typing import Any

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.arrays import Floats, Ints
from scrapy_gp4c.errors import HistoryError
from training.replaying.metrics import CONTENT_BITS, CONTENTS
from training.replaying.prepared import PreparedHistory, penalties


class Copies:
    """Copies of P pages, all current at first: what each has missed, and sums over those out of date."""

    def __init__(self, prepared: PreparedHistory, tallies: Collection[str]) -> None:
        """``tallies``: names of the optional `metrics.Tallies` to count."""
        self._weights = prepared.weights
        self._stale = bool({"stale_weight", "age_weight", "penalty"} & set(tallies))
        self._penalised = "penalty" in tallies
        self.missed: npt.NDArray[np.int32] = np.zeros(prepared.pages, np.int32)
        """Changes that each copy has missed: ``[P]``."""
        self._diverged = np.zeros(prepared.pages, np.int32)
        self.outdated = 0
        """Number of copies that have missed a change."""
        self._weight = self._since = self._penalty = 0

    def change(self, cycle: int, pages: Ints) -> None:
        """Note that `pages` changed in a cycle, so that their copies are out of date."""
        before = self.missed[pages]
        self.missed[pages] = before + 1
        self.outdated += len(pages) - int(np.count_nonzero(before))
        if self._stale:
            diverged = pages[before == 0]
            self._diverged[diverged] = cycle
            weight = self.weight(diverged)
            self._weight += weight
            self._since += weight * cycle
        if self._penalised:
            after = penalties(self._weights, pages, before + 1)
            self._penalty += int((after - penalties(self._weights, pages, before)).sum())

    def visit(self, pages: Ints) -> None:
        """Renew the copies of `pages`, all of which are out of date."""
        if self._stale:
            self._weight -= self.weight(pages)
            since = self._diverged[pages].astype(np.int64)
            if len(self._weights.fixed):
                since *= self._weights.fixed[pages]
            self._since -= int(since.sum())
        if self._penalised:
            self._penalty -= int(penalties(self._weights, pages, self.missed[pages]).sum())
        self.missed[pages] = 0
        self.outdated -= len(pages)

    def weight(self, pages: Ints) -> int:
        return int(self._weights.fixed[pages].sum()) if len(self._weights.fixed) else len(pages)

    def tallies(self, cycle: int) -> dict[str, int]:
        """Weight, age and penalty of the copies that are out of date after a cycle."""
        if not self._stale:
            return {}
        age = (cycle + 1) * self._weight - self._since
        return {"stale_weight": self._weight, "age_weight": age, "penalty": self._penalty}


class WeightedGains:
    """DCG gains of a cycle's visits times the pages' weights, for the metric ``weighted_ndcg``."""

    def __init__(self, prepared: PreparedHistory, copies: Copies) -> None:
        self._copies = copies
        self._weights = prepared.weights.values if len(prepared.weights.values) else np.ones(prepared.pages)
        self._gains = np.diff(prepared.gain_sums).astype(np.float64)
        self._dcg: list[float] = []
        self._pending: list[Floats] = []
        self._most = 0

    def visit(self, cycle: int, pages: Ints, is_changed: npt.NDArray[np.bool_]) -> None:
        """Record a cycle's visits in order, before `Copies.visit`."""
        gained = self._gains[: len(pages)][is_changed] * self._weights[pages[is_changed]]
        self._dcg.append(math.fsum(gained.tolist()))
        pending = np.sort(self._weights[self._copies.missed > 0])[::-1]
        self._pending.append(pending[: len(self._gains)])
        self._most = max(self._most, len(pages))

    def tallies(self) -> dict[str, npt.NDArray[Any]]:
        """Gains of every cycle, and those of the best possible ranking."""
        best = []
        for pending in self._pending:
            first = pending[: self._most]  # what a policy did not visit counts against it
            best.append(math.fsum((self._gains[: len(first)] * first).tolist()))
        return {"weighted_dcg": np.array(self._dcg), "weighted_best": np.array(best)}


class ContentCopies:
    """Versions that the copies hold, for the metrics of `metrics.CONTENTS`."""

    def __init__(self, prepared: PreparedHistory) -> None:
        """Raises HistoryError for a history without contents."""
        if prepared.impact is None:
            raise HistoryError(
                f"{' and '.join(CONTENTS)} need contents and a log of queries: give both (--query-log)"
            )
        self._impact = prepared.impact
        self._first = prepared.warmup + 1
        self.held = self._impact.version[prepared.warmup].copy()
        self._rows: list[npt.NDArray[np.int32]] = []

    def visit(self, cycle: int, pages: Ints, is_changed: npt.NDArray[np.bool_]) -> None:
        self.held[pages] = self._impact.version[cycle, pages]
        self._rows.append(self.held.copy())

    def tallies(self) -> dict[str, npt.NDArray[Any]]:
        """Metrics after every cycle, in fixed point: ``impact``, and ``quality`` of complete searches."""
        live = self._impact.version[self._first :]
        lost = np.array([self._impact.between(*both).sum() for both in zip(self._rows, live, strict=True)])
        never = float(self._impact.unrefreshed(self._first - 1).mean())
        metrics: dict[str, Floats] = {"impact": 1.0 - lost / never if never > 0.0 else np.ones(len(lost))}
        if self._impact.quality is not None:
            metrics["quality"] = self._impact.quality(np.array(self._rows))
        return {name: np.rint(np.ldexp(row, CONTENT_BITS)).astype(np.int64) for name, row in metrics.items()}


def page_counters(
    prepared: PreparedHistory, copies: Copies, tallies: Collection[str]
) -> list[ContentCopies | WeightedGains]:
    """Counters of those `tallies` that `Copies` does not count."""
    counters: list[ContentCopies | WeightedGains] = []
    if not CONTENTS.keys().isdisjoint(tallies):
        counters.append(ContentCopies(prepared))
    if "weighted_dcg" in tallies:
        counters.append(WeightedGains(prepared, copies))
    return counters
