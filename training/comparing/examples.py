"""Updates that policies judge differently, chosen by rule: Figure 5 of Pandey & Olston 2005."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from training.comparing.refreshing_trial import Point, Trial, planned_refreshes

SHARE: Final = 0.05
"""Budget at which SBR and EBR are looked at, share of the pages per cycle."""
NOTHING: Final = 0.001
"""A gain below this, in ppm, is none."""
LINES: Final = 16
"""Of a diff that are shown."""
MOVES: Final = 6
"""Queries that are shown, those asked most."""


class Move(NamedTuple):
    """A query in whose answer the page moved."""

    query: str
    before: int
    """Rank; 0: not in the answer."""
    after: int
    frequency: float


class Example(NamedTuple):
    """An update."""

    rule: str
    page: str
    cycle: int
    difference: float
    """Share of the shingles that differ."""
    gained: float
    """delta-Q_A of a refresh at once, in ppm."""
    diff: str
    moves: list[Move]


def examples(trial: Trial, found: Sequence[Point]) -> list[Example]:
    """The largest update that gains nothing, and the largest gain that SBR and EBR miss; those there are."""
    updates = trial.updates
    cycle = _cycles(trial)
    rows = []
    idle = np.flatnonzero(updates.gained < NOTHING)
    if len(idle):
        largest = idle[np.argmax(updates.difference[idle])]
        rows.append(_example(trial, "Most shingles changed, nothing gained", int(largest), cycle))
    missed = np.flatnonzero(~_refreshed(trial, found, cycle) & (cycle > trial.first))
    if len(missed):
        best = missed[np.argmax(updates.gained[missed])]
        rows.append(_example(trial, f"Most gained of what SBR and EBR miss at {SHARE:.0%}", int(best), cycle))
    return rows


def _cycles(trial: Trial) -> npt.NDArray[np.int64]:
    """When each update was made."""
    live, updates = trial.search.live, trial.updates
    return np.array(
        [np.argmax(live[:, page] == new) for page, new in zip(updates.page, updates.version, strict=True)],
        np.int64,
    )


def _refreshed(trial: Trial, found: Sequence[Point], cycle: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Whether SBR or EBR, at its best threshold, refreshes the page of each update before the next."""
    updates = trial.updates
    seen = np.zeros(len(cycle), np.bool_)
    same = np.append(updates.page[1:] == updates.page[:-1], False)
    until = np.where(same, np.append(cycle[1:], 0), trial.history.cycles + 1)
    for point in found:
        if point.tau is not None and point.share == SHARE:
            visited = np.zeros((trial.history.cycles + 2, trial.pages), np.int64)
            for number, pages in enumerate(
                planned_refreshes(trial, point.policy, point.tau, point.refreshes), start=trial.first + 1
            ):
                visited[number + 1, pages] = 1
            before = np.cumsum(visited, axis=0)
            seen |= before[until, updates.page] > before[cycle, updates.page]
    return seen


def _example(trial: Trial, rule: str, update: int, cycles: npt.NDArray[np.int64]) -> Example:
    updates, contents, answers = trial.updates, trial.corpus.contents, trial.search
    page, new, cycle = int(updates.page[update]), int(updates.version[update]), int(cycles[update])
    texts = [(contents.texts[version] or "").splitlines() for version in (new - 1, new)]
    changed = [line[:100] for line in difflib.unified_diff(texts[0], texts[1], lineterm="", n=0)]
    after = answers.live[cycle]
    before = after.copy()
    before[page] = new - 1
    workload = trial.how.workload
    moves = []
    names = workload.texts()
    for query in sorted(answers.queries_of(page).tolist(), key=lambda query: -workload.frequency[query]):
        old, new = (answers.rank_in(query, page, copies) for copies in (before, after))
        if old != new:
            moves.append(Move(names[query], old, new, float(workload.frequency[query])))
        if len(moves) == MOVES:
            break
    page_names = contents.history.page_names
    name = str(page) if page_names is None else page_names[page]
    return Example(
        rule,
        name,
        cycle,
        float(updates.difference[update]),
        float(updates.gained[update]),
        "\n".join(changed[2 : 2 + LINES]),
        moves,
    )
