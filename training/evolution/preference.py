"""Which function of a front is taken, and which functions make the front that people see.

The candidates are what all runs kept and the named functions. Each is judged in training (the mean over the
draws of what is forgotten) and in validation, by both objectives:

* ``changes``: the rule of selection decides by the first objective alone
* ``freshness``: it decides by freshness alone
* ``balanced``: it decides by the first objective, among those whose mean freshness is at least `AGE`'s in
  training and in validation; plain `AGE` is always one of them, and so is the recommended function

The front is what no other candidate dominates in the means of training and validation, both parts weighing
the same; the function taken is shown with it even where a longer one dominates it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

import numpy as np

from scrapy_gp4c.errors import LearningError
from scrapy_gp4c.scoring.named import BASELINES
from training.evolution.challenge import Values
from training.evolution.evolve import Kept
from training.evolution.front import crowded_order, undominated
from training.evolution.parts import Parts
from training.evolution.selection import (
    GUARDED,
    SELECTIONS,
    Allow,
    Chosen,
    Goal,
    Pairs,
    best,
    candidates_of,
    challenge_recommended,
    guarded,
    over_draws,
    select,
    shorten,
)

ROWS: Final = {"changes": 0, "freshness": 1, "balanced": 0}
"""Preference -> the objective by which it decides: 0 the first, 1 freshness."""
PREFERENCES: Final = tuple(ROWS)
GUARD: Final = "freshness"
"""The second objective of a front, and what a promotion does not give up."""
AGE: Final = BASELINES["age"]
"""Visits the oldest copies first: what anybody can have without a score function."""
MOST_MEMBERS: Final = 16
"""Functions of a front that are shown: those with the most room around them."""

Pair = tuple[Values, Values]
"""Values per cycle in training and validation, ``[2, cycles]`` each: a row per objective."""


class Member(NamedTuple):
    """A function of a front."""

    text: str
    run: int
    """The run that found it; `NAMED_RUN`: none, it is a named function."""
    values: tuple[float, float]
    """Both objectives, means of training and validation."""


def choose_of_front(
    kept: Sequence[Sequence[Kept]],
    parts: Parts,
    goal: Goal,
    prefer: str,
    values: Callable[[list[str]], Pairs] | None = None,
    allow: Allow | None = None,
) -> tuple[Chosen, list[Member]]:
    """What `prefer` takes of a fold's runs, and the front, the most of the first objective first.

    Parameters as for `training.evolution.selection.choose`; ``goal.fitness`` is a pair. ``allow`` concerns
    what is taken, not what is shown.
    """
    known = values or partial(goal.pairs, parts)
    found = candidates_of(kept, goal._replace(named=tuple(dict.fromkeys((*goal.named, AGE)))), known)
    runs = {one.text: run for one, run in reversed(found)}
    nodes = {one.text: one.nodes for one, _ in found}
    pairs = dict(zip(runs, known([*runs]), strict=True))
    judged = dict(zip(runs, over_draws([*pairs.values()], [*runs], goal, parts.draws), strict=True))
    judged = {text: pair for text, pair in judged.items() if np.isfinite(np.hstack(pair)).all()}
    if AGE not in judged:
        raise LearningError(
            f"the objectives {goal.fitness!r} give no number for {AGE!r}: nothing can be compared"
        )
    standing = _standing(judged, prefer, judged.keys() if allow is None else allow([*judged]), goal)
    row = ROWS[prefer]
    candidates = [_row(judged[text], row) for text in standing]
    if goal.rule == GUARDED:
        number = challenge_recommended(candidates, standing, goal, parts, row)
        if number is None:
            others = [text for text in (*goal.named, AGE) if text in standing] or [AGE]
            named = [judged[text][1][row] for text in others]
            number = guarded(candidates, named, [nodes[text] for text in standing])
        taken = standing[number]
    else:
        taken = standing[select(candidates, goal.rule)]
    text = shorten(taken, pairs[taken], parts, goal)
    value = SELECTIONS.get(goal.rule, best)(*_row(pairs[taken], row))
    members = [Member(one, runs[one], means) for one, means in _front(judged, taken).items()]
    members = [one._replace(text=text) if one.text == taken else one for one in members]
    return Chosen(text, runs[taken], value), members


def _standing(judged: Mapping[str, Pair], prefer: str, allowed: Collection[str], goal: Goal) -> list[str]:
    """Among which functions the rule decides; what is not allowed stands where nothing else does."""
    least = [part[1].mean() if prefer == "balanced" else -np.inf for part in judged[AGE]]
    fresh = [
        text
        for text, parts in judged.items()
        if text == goal.recommended
        or all(part[1].mean() >= bound for part, bound in zip(parts, least, strict=True))
    ]
    return [text for text in fresh if text in allowed] or fresh


def _front(judged: Mapping[str, Pair], taken: str) -> dict[str, tuple[float, float]]:
    """The functions to show and their means, the most of the first objective first."""
    means = {}
    for text, parts in judged.items():
        first, second = np.mean([part.mean(axis=1) for part in parts], axis=0).tolist()
        means[text] = first, second
    texts = [*means]
    front = [texts[index] for index in undominated([*means.values()])]
    most = [front[place] for place in crowded_order([means[text] for text in front], MOST_MEMBERS)]
    return {text: means[text] for text in sorted({*most, taken}, key=lambda text: (-means[text][0], text))}


def _row(pair: Pair, row: int) -> Pair:
    return pair[0][row], pair[1][row]
