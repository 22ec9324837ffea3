"""All states that a page can come to be in, where these are few: then every score is computed once.

With terminals such as n, X and t a page of a history of 57 cycles can be in 30,000 states at most. Scoring
them all in one go costs less than scoring the groups that exist anew in each cycle, and the replay
need not come back to Python between cycles.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from scrapy_gp4c import terminals
from scrapy_gp4c.terminals import Array
from training.metrics import Ints
from training.truth import Truth

MOST_ROWS: Final = 65_536
"""Rows (states times cycles since the last visit) up to which listing them pays."""


@dataclass(frozen=True)
class States:
    """The states of a set of state columns on the visits clock (N states, R rows)."""

    after: npt.NDArray[np.int32]
    """``[N, 2]``: the state after a visit without and with a change."""
    first: npt.NDArray[np.int32]
    """``[Q]``: state of each warm-up pattern."""
    aged: bool
    """Whether scores depend on the cycles since the last visit."""
    score_at: Ints
    """``[N]``: first row of each state; if `aged`, the rows of t = 1, 2, ... follow each other."""
    columns: dict[str, Array]
    """State columns by row, for planning cycle 0."""
    rows: int
    known: dict[str, Array] = field(default_factory=dict)
    """Values of the terminals computed so far, by row."""

    def values(self, names: Iterable[str]) -> dict[str, Array]:
        """Terminals by row; each is computed once."""
        missing = [name for name in names if name not in self.known]
        self.known.update(terminals.compute(missing, self.columns, 0))
        return {name: self.known[name] for name in names}


def states_of(truth: Truth, needed: tuple[str, ...]) -> States | None:
    """The states that tell pages apart by the columns `needed`, or None if they are too many to list.

    Terminals of the visits clock depend on the cycle through t alone, so that a state last visited in
    cycle -t stands, at planning cycle 0, for all that were visited t cycles ago.
    """
    if needed not in truth.states:
        truth.states[needed] = _list(truth, needed)
    found: States | None = truth.states[needed]
    return found


def _list(truth: Truth, needed: tuple[str, ...]) -> States | None:
    aged = "last_cycle" in needed
    columns = tuple(name for name in needed if name != "last_cycle")
    scored = truth.cycles - truth.warmup
    index: dict[tuple[float, ...], int] = {}
    ages: list[int] = []

    def number(state: dict[str, Array], rows: int, visits: int) -> list[int]:
        out = []
        for key in (
            zip(*(values.tolist() for values in state.values()), strict=True) if state else [()] * rows
        ):
            if key not in index:
                index[key] = len(index)
                ages.append(scored - visits)
            out.append(index[key])
        return out

    state = truth.first_state(columns)
    first = number(state, truth.pattern_outcomes.shape[1], 0)
    after: list[tuple[int, int]] = []
    for visits in range(1, scored + 1):
        begin = len(after)
        keys = list(index)[begin:]
        if not keys or (sum(ages) if aged else len(ages)) > MOST_ROWS:
            break
        level = {
            name: np.repeat(np.array([key[c] for key in keys], terminals.STATE[name]), 2)
            for c, name in enumerate(columns)
        }
        outcome = np.zeros(2 * len(keys), np.bool_)
        outcome[1::2] = True
        terminals.observe(level, outcome, visits)
        numbers = number(level, 2 * len(keys), visits)
        after.extend(zip(numbers[::2], numbers[1::2], strict=True))
    if (sum(ages) if aged else len(ages)) > MOST_ROWS:
        return None
    # States of the last cycle are visited no more.
    after.extend((0, 0) for _ in range(len(index) - len(after)))
    counts = np.array(ages if aged else [1] * len(ages))
    rows = np.repeat(np.arange(len(index)), counts)
    score_at = np.cumsum(counts) - counts
    table = {
        name: np.array([key[c] for key in index], terminals.STATE[name])[rows]
        for c, name in enumerate(columns)
    }
    if aged:
        table["last_cycle"] = -(np.arange(len(rows)) - score_at[rows] + 1)
    return States(
        np.array(after, np.int32).reshape(-1, 2), np.array(first, np.int32), aged, score_at, table, len(rows)
    )
