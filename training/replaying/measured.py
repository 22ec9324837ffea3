"""Measurements of the visits of a replay: download times, and bits of fingerprints that change."""

from collections.abc import Collection
from typing import Protocol

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.arrays import Array, Bools
from scrapy_gp4c.errors import ScoreError
from scrapy_gp4c.scoring import measured
from scrapy_gp4c.scoring.functions import ScoreFunction


class Measured(Protocol):
    @property
    def latency_ms(self) -> npt.NDArray[np.uint16] | None: ...
    @property
    def flipped(self) -> npt.NDArray[np.uint64] | None: ...


def unmeasured(history: Measured, columns: Collection[str]) -> list[str]:
    """Terminals of `scrapy_gp4c.scoring.measured` that read ``columns`` of which `history` has no data."""
    known = {"latency_ms"} if history.latency_ms is not None else set[str]()
    known |= {"distance_sum", "distance_n"} if history.flipped is not None else set()
    missing = (measured.COLUMNS.keys() - known) & {*columns}
    return [name for name, (read, *_) in measured.TERMINALS.items() if not missing.isdisjoint(read)]


def check_measured(history: Measured, function: ScoreFunction) -> None:
    """Raise ScoreError if `function` reads download times or fingerprint distances that `history` lacks."""
    if names := unmeasured(history, function.columns):
        raise ScoreError(
            f"the score function {function.text!r} reads {', '.join(names)}, which visits measure, and the "
            "history does not tell: use the store of a crawl or what `scrapy gp4c export` writes of it, or "
            "leave it out"
        )


class ReplayedDistances:
    """Fingerprint bits in which copies differ from live pages, and the state columns made of them."""

    def __init__(self, changed: Bools, flipped: npt.NDArray[np.uint64]) -> None:
        """``changed``: ``[D, P]``; ``flipped``: see `ChangeHistory.flipped`."""
        self._of_changes = flipped
        self._next = np.concatenate(([0], np.cumsum(changed.sum(axis=0))))[:-1]
        self._flipped = np.zeros(changed.shape[1], np.uint64)
        names = ("distance_sum", "distance_n")
        self.columns: dict[str, Array] = {
            name: np.zeros(changed.shape[1], measured.COLUMNS[name]) for name in names
        }

    def change(self, pages: Array) -> None:
        """Record that the live `pages` change in the cycle that begins; call it for every cycle in order."""
        self._flipped[pages] ^= self._of_changes[self._next[pages]]
        self._next[pages] += 1

    def visit(self, pages: Array, is_first: bool = False) -> None:
        """Renew the copies of `pages`, and update their columns unless the visit is the page's first."""
        if not is_first:
            state = {name: column[pages] for name, column in self.columns.items()}
            measured.observe(state, self._flipped[pages])
            for name, column in state.items():
                self.columns[name][pages] = column
        self._flipped[pages] = 0
