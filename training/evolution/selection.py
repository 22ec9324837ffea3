"""Which of the best individuals becomes the score function: Best, Sum_sigma, Avg_sigma, or Best with guards.

Santos et al. 2014, section 4.2.3 and thesis 3.5, after de Almeida et al. 2007. With T and V an individual's
mean values over the training and the validation cycles, and sigma the (population) standard deviation
of its values over all training and validation cycles together:

* ``best``: T
* ``sum``: T + V - sigma
* ``avg``: (T + V) / 2 - sigma

Ours, ``guarded``. Where the leaderboard recommends a function of these terminals, it is that one, unless
`training.evolution.challenge` finds one that is surely better. Else: of those that do not lose in validation
to what everybody knows, the baseline that is best there, the shortest that is as good as the one with the
highest T. Not to lose is to be behind by no more than one standard error of the paired difference per cycle
(so Breiman, Friedman, Olshen & Stone 1984, section 3.4.3, choose the simplest tree); as good, by no more
than `SHORTER_ERRORS` of it, in training and in validation. Validation may veto, but does not choose: a
single other window would otherwise be fitted as well. Where training forgets changes, T is the mean over
several draws of what is forgotten, so that nobody is chosen for the draw that evolution fitted.

`pick` applies the rule to what the runs of a fold kept; `choose` also shortens what it picks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.errors import LearningError
from scrapy_gp4c.policies.table import TOP_K
from scrapy_gp4c.scoring.expression import Expression, parse
from scrapy_gp4c.scoring.named import BASELINES
from scrapy_gp4c.scoring.terminals import Clock
from training.evolution.challenge import Values, challenge
from training.evolution.evolve import Kept
from training.evolution.fitness import load_measure, values_of_all
from training.evolution.parts import Parts
from training.evolution.simplify import simplify
from training.replaying.prepared import PreparedHistory


def best(training: Values, validation: Values) -> float:
    """Mean over the training cycles."""
    return float(np.mean(training))


def sum_sigma(training: Values, validation: Values) -> float:
    """Sum of both means, less the standard deviation over all cycles."""
    return float(np.mean(training) + np.mean(validation)) - _sigma(training, validation)


def avg_sigma(training: Values, validation: Values) -> float:
    """Mean of both means, less the standard deviation over all cycles."""
    return float(np.mean(training) + np.mean(validation)) / 2 - _sigma(training, validation)


def _sigma(training: Values, validation: Values) -> float:
    return float(np.std(np.concatenate((training, validation))))


SELECTIONS: Final[dict[str, Callable[[Values, Values], float]]] = {
    "best": best,
    "sum": sum_sigma,
    "avg": avg_sigma,
}
"""Rules of the papers -> ``rule(training, validation)``; both float64 ``[cycles]``, higher is better; so is
the result."""
GUARDED: Final = "guarded"
SHORTER_ERRORS: Final = 0.5
"""Standard errors by which a shorter function may be behind: with one, real gains went for brevity."""
RULES: Final = (*SELECTIONS, GUARDED)
NAMED_RUN: Final = -1


def select(candidates: Sequence[tuple[Values, Values]], rule: str) -> int:
    """Index of the candidate with the highest value under ``rule``; the first of equals."""
    return int(np.argmax([SELECTIONS[rule](*candidate) for candidate in candidates]))


def guarded(
    candidates: Sequence[tuple[Values, Values]], named: Sequence[Values], nodes: Sequence[int]
) -> int:
    """Index of the shortest candidate that is as good as the best in training that `named` does not beat.

    ``named``: values per validation cycle of the named functions; ``nodes``: the candidates' lengths. If
    the named functions beat all candidates, the one that is best in validation is chosen.
    """
    training, validation = (np.array(values) for values in zip(*candidates, strict=True))
    reference = max(named, key=lambda values: float(np.nan_to_num(np.mean(values), nan=-np.inf)))
    # A draw that evolution did not see may have no value under a fitness of one's own.
    standing = np.flatnonzero(_as_good(validation, reference, 1.0) & np.isfinite(training).all(axis=1))
    if not standing.size:
        return int(np.argmax(np.nan_to_num(validation.mean(axis=1), nan=-np.inf)))
    best = standing[np.argmax(training[standing].mean(axis=1))]
    as_good = [_as_good(values[standing], values[best], SHORTER_ERRORS) for values in (training, validation)]
    return int(
        min(standing[np.logical_and(*as_good)], key=lambda number: (nodes[number], -training[number].mean()))
    )


def _as_good(values: Values, reference: Values, errors: float) -> npt.NDArray[np.bool_]:
    """Which rows have a mean behind `reference` by at most so many standard errors of the difference.

    ``values``: ``[rows, cycles]``; ``reference``: ``[cycles]``. A row with NaN is not.
    """
    lead = values - reference
    cycles = lead.shape[1]
    error = np.std(lead, axis=1, ddof=1) / np.sqrt(cycles) if cycles > 1 else 0.0
    return np.asarray(np.mean(lead, axis=1) >= -errors * error)


Pairs = list[tuple[Values, Values]]
"""Values per cycle of training and validation."""

Allow = Callable[[Sequence[str]], Collection[str]]
"""Picks the texts among which the selection rule decides."""


class Goal(NamedTuple):
    """What is looked for."""

    fitness: str
    """As for `training.evolution.fitness.load_measure`."""
    clock: Clock
    rule: str
    """One of `RULES`."""
    policy: str = TOP_K.text
    named: tuple[str, ...] = ()
    """Functions that stand for selection beside those that evolved."""
    recommended: str = ""
    """Which of them ``guarded`` takes unless it is surely beaten; empty: none."""

    def values(self, prepared: PreparedHistory, texts: Iterable[str]) -> list[Values]:
        """What is looked for, per scored cycle of every text: ``[cycles]``, of a pair ``[2, cycles]``."""
        return values_of_all(prepared, texts, load_measure(self.fitness), self.clock, self.policy)

    def pairs(self, parts: Parts, texts: Sequence[str]) -> Pairs:
        """The same on training and validation part."""
        training, validation = (self.values(part, texts) for part in parts[:2])
        return list(zip(training, validation, strict=True))

    def apart(self, parts: Parts, texts: Sequence[str], objective: int = 0) -> list[Values]:
        """Means of one objective without groups of sites: `training.evolution.challenge.ApartOf`."""
        assert parts.apart is not None
        return [
            np.array(
                [[np.atleast_2d(one)[objective].mean() for one in self.values(rest, texts)] for rest in part]
            ).reshape(-1, len(texts))
            for part in parts.apart
        ]


class Chosen(NamedTuple):
    """What was chosen of a fold's runs."""

    text: str
    """Simplified as far as it stays the same in training and validation."""
    run: int
    """The run that found it; `NAMED_RUN`: none, it is a named function."""
    selected: float
    """Its value under the selection rule (``guarded``: that of ``best``)."""


class Picked(NamedTuple):
    """What a rule picked, before it is shortened."""

    text: str
    pair: tuple[Values, Values]
    """Its values per cycle in training and validation."""
    run: int
    """As in `Chosen`."""
    selected: float
    """As in `Chosen`."""


def choose(
    kept: Sequence[Sequence[Kept]],
    parts: Parts,
    goal: Goal,
    values: Callable[[list[str]], Pairs] | None = None,
    allow: Allow | None = None,
) -> Chosen:
    """What `pick` picks, shortened; parameters and errors as there."""
    picked = pick(kept, parts, goal, values, allow)
    return Chosen(shorten(picked.text, picked.pair, parts, goal), picked.run, picked.selected)


def pick(
    kept: Sequence[Sequence[Kept]],
    parts: Parts,
    goal: Goal,
    values: Callable[[list[str]], Pairs] | None = None,
    allow: Allow | None = None,
) -> Picked:
    """Pick one of the best individuals that the runs of a fold kept.

    ``kept``: of every run. ``values``: fitness per cycle of texts on training and validation part, where
    another process knows them; None: they are replayed here. ``allow`` leaves out texts, unless it would
    leave out all. Raises LearningError if no individual has a value.
    """
    known = values or partial(goal.pairs, parts)
    candidates = candidates_of(kept, goal, known)
    if not candidates:
        raise LearningError(
            f"no individual has a value for the fitness {goal.fitness!r}: all were NaN or constant"
        )
    if allow is not None:
        allowed = allow([one.text for one, _ in candidates])
        candidates = [candidate for candidate in candidates if candidate[0].text in allowed] or candidates
    if goal.rule == "best":  # looks at training alone, and that is known
        candidates = candidates[:1]
    texts = [one.text for one, _ in candidates]
    pairs = known(texts)
    if goal.rule == GUARDED:
        judged = over_draws(pairs, texts, goal, parts.draws)
        challenged = challenge_recommended(judged, texts, goal, parts)
        if challenged is None:
            named = goal.values(parts.validation, [*BASELINES.values(), *goal.named])
            challenged = guarded(judged, named, [one.nodes for one, _ in candidates])
        chosen = challenged
    else:
        chosen = select(pairs, goal.rule)
    value = SELECTIONS.get(goal.rule, best)(*pairs[chosen])
    return Picked(texts[chosen], pairs[chosen], candidates[chosen][1], value)


def challenge_recommended(
    pairs: Pairs, texts: Sequence[str], goal: Goal, parts: Parts, objective: int = 0
) -> int | None:
    """Index of the text that `challenge` picks by one objective; None without a recommended one.

    ``pairs``: of that objective, a pair for each text.
    """
    if goal.recommended not in texts:
        return None

    def apart_of(rows: Sequence[int]) -> list[Values]:
        return goal.apart(parts, [texts[row] for row in rows], objective)

    recommended = texts.index(goal.recommended)
    return challenge(pairs, recommended, None if parts.apart is None else apart_of)


def candidates_of(
    kept: Sequence[Sequence[Kept]], goal: Goal, values: Callable[[list[str]], Pairs]
) -> list[tuple[Kept, int]]:
    """What the runs kept and the goal's named functions, each with its run, the best in training first."""
    found = [(one, run) for run, best_of_run in enumerate(kept) for one in best_of_run]
    if found and goal.named:
        for text, (training, _) in zip(goal.named, values(list(goal.named)), strict=True):
            mean = float(np.atleast_2d(training)[0].mean())
            found.append((Kept(text, mean, mean, "", len(parse(text).tokens)), NAMED_RUN))
    return sorted(
        (candidate for candidate in found if not math.isnan(candidate[0].value)),
        key=lambda candidate: (-candidate[0].value, candidate[0].nodes, candidate[0].text, candidate[1]),
    )


def over_draws(pairs: Pairs, texts: Sequence[str], goal: Goal, draws: Sequence[PreparedHistory]) -> Pairs:
    """The pairs with the training values averaged over other draws of the training part."""
    training = np.mean(
        [[training for training, _ in pairs], *(goal.values(draw, texts) for draw in draws)], axis=0
    )
    return [(mean, validation) for mean, (_, validation) in zip(training, pairs, strict=True)]


def shorten(text: str, values: tuple[Values, Values], parts: Parts, goal: Goal) -> str:
    """Simplify a function without changing its fitness in any cycle of training and validation."""

    def same(expression: Expression) -> bool:
        return all(
            np.array_equal(goal.values(part, [expression.text])[0], known)
            # the smaller part first
            for part, known in zip((parts.validation, parts.training), values[::-1], strict=True)
        )

    return simplify(parse(text), same).text
