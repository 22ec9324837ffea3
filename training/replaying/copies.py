"""The copies of all pages in a replay: which are out of date, since when, and by how many changes."""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Any

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.errors import HistoryError
from training.replaying.arranged import ArrangedHistory, penalties
from training.replaying.metrics import CONTENT_BITS, CONTENTS, Floats, Ints


class Copies:
    """Copies of P pages, all of them current at first; sums over them are kept up to date, not counted."""

    def __init__(self, arranged: ArrangedHistory, tallies: Collection[str]) -> None:
        """Take a history; ``tallies``: names of the optional `metrics.Tallies` that will be asked for."""
        self._weights = arranged.weights
        self._stale = bool({"stale_weight", "age_weight", "penalty"} & set(tallies))
        self._penalised = "penalty" in tallies
        self.missed: npt.NDArray[np.int32] = np.zeros(arranged.pages, np.int32)
        """Changes that each copy has missed: ``[P]``."""
        self._diverged = np.zeros(arranged.pages, np.int32)
        self.outdated = 0
        """Copies that have missed any."""
        self._weight = self._since = self._penalty = 0

    def change(self, cycle: int, pages: Ints) -> None:
        """Note that pages change in a cycle."""
        before = self.missed[pages]
        self.missed[pages] = before + 1
        self.outdated += len(pages) - int(np.count_nonzero(before))
        if self._stale:
            begun = pages[before == 0]
            self._diverged[begun] = cycle
            weight = self.weight(begun)
            self._weight += weight
            self._since += weight * cycle
        if self._penalised:
            after = penalties(self._weights, pages, before + 1)
            self._penalty += int((after - penalties(self._weights, pages, before)).sum())

    def visit(self, pages: Ints) -> None:
        """Renew the copies of pages that have changed."""
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
        """Fixed-point weight of some pages."""
        return int(self._weights.fixed[pages].sum()) if len(self._weights.fixed) else len(pages)

    def tallies(self, cycle: int) -> dict[str, int]:
        """Weight, age and penalty of the copies that are out of date after a cycle."""
        if not self._stale:
            return {}
        age = (cycle + 1) * self._weight - self._since
        return {"stale_weight": self._weight, "age_weight": age, "penalty": self._penalty}


class WeightedGains:
    """Gains of visits times weights, for the metric ``weighted_ndcg``."""

    def __init__(self, arranged: ArrangedHistory, copies: Copies) -> None:
        """Nothing visited yet; ``copies``: as they are before each cycle's visits, when `visit` is called."""
        self._copies = copies
        self._weights = arranged.weights.values if len(arranged.weights.values) else np.ones(arranged.pages)
        self._gains = np.diff(arranged.gain_sums).astype(np.float64)
        self._dcg: list[float] = []
        self._pending: list[Floats] = []
        self._most = 0

    def visit(self, cycle: int, pages: Ints, found: npt.NDArray[np.bool_]) -> None:
        """Note a cycle's visits, in order, and what the best ones would have found."""
        gained = self._gains[: len(pages)][found] * self._weights[pages[found]]
        self._dcg.append(math.fsum(gained.tolist()))
        pending = np.sort(self._weights[self._copies.missed > 0])[::-1]
        self._pending.append(pending[: len(self._gains)])
        self._most = max(self._most, len(pages))

    def tallies(self) -> dict[str, npt.NDArray[Any]]:
        """What was gained in every cycle, and what the best ranking would have."""
        best = []
        for pending in self._pending:
            first = pending[: self._most]  # what a policy did not visit counts against it
            best.append(math.fsum((self._gains[: len(first)] * first).tolist()))
        return {"weighted_dcg": np.array(self._dcg), "weighted_best": np.array(best)}


class ContentCopies:
    """Which versions the copies are, for the metrics of `metrics.CONTENTS`."""

    def __init__(self, arranged: ArrangedHistory) -> None:
        """All copies current after the warm-up. Raises HistoryError where nothing tells of contents."""
        if arranged.impact is None:
            raise HistoryError(
                f"{' and '.join(CONTENTS)} need contents and a log of queries: give both (--query-log)"
            )
        self._impact = arranged.impact
        self._first = arranged.warmup + 1
        self.held = self._impact.version[arranged.warmup].copy()
        """Version of each copy: ``[P]``."""
        self._rows: list[npt.NDArray[np.int32]] = []

    def visit(self, cycle: int, pages: Ints, found: npt.NDArray[np.bool_]) -> None:
        """Renew the copies of pages, all of a cycle's visits, whatever they found."""
        self.held[pages] = self._impact.version[cycle, pages]
        self._rows.append(self.held.copy())

    def tallies(self) -> dict[str, npt.NDArray[Any]]:
        """Impact and, if these are all pages of the search, quality after every cycle, in fixed point."""
        live = self._impact.version[self._first :]
        lost = np.array([self._impact.between(*both).sum() for both in zip(self._rows, live, strict=True)])
        never = float(self._impact.unrefreshed(self._first - 1).mean())
        found: dict[str, Floats] = {"impact": 1.0 - lost / never if never > 0.0 else np.ones(len(lost))}
        if self._impact.quality is not None:
            found["quality"] = self._impact.quality(np.array(self._rows))
        return {name: np.rint(np.ldexp(row, CONTENT_BITS)).astype(np.int64) for name, row in found.items()}


def measuring(
    arranged: ArrangedHistory, copies: Copies, tallies: Collection[str]
) -> list[ContentCopies | WeightedGains]:
    """What counts the tallies that are no sums over `Copies`, if asked for: told of every cycle's visits."""
    found: list[ContentCopies | WeightedGains] = []
    if not CONTENTS.keys().isdisjoint(tallies):
        found.append(ContentCopies(arranged))
    if "weighted_dcg" in tallies:
        found.append(WeightedGains(arranged, copies))
    return found
