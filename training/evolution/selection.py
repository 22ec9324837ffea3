"""Rules that select one of the best individuals: Best, Sum_sigma, Avg_sigma and guarded Best.

Santos et al. 2014, section 4.2.3 and thesis 3.5, after de Almeida et al. 2007. With T and V an individual's
mean values over the training and the validation cycles, and sigma the (population) standard deviation
of its values over all training and validation cycles together:

* ``best``: T
* ``sum``: T + V - sigma
* ``avg``: (T + V) / 2 - sigma

Ours, ``guarded``: where the leaderboard recommends a function of these terminals, it is that one, unless
`promotion_test` finds one that is surely better. Else: of those that do not lose in validation to the best
baseline there, the shortest that is as good as the one with the highest T. Not to lose is to be behind by no
more than one standard error of the paired difference per cycle (so Breiman, Friedman, Olshen & Stone 1984,
section 3.4.3, choose the simplest tree); as good, by no more than `SHORTER_ERRORS` of it, in training and in
validation. Validation may veto, but does not choose: a single other window would otherwise be fitted as
well. Where training forgets changes, T is the mean over several draws of the forgotten changes, so that no
function is chosen for the draw that evolution fitted.

The promotion test is a jackknife over groups of sites. A recommended function was chosen over many histories
(docs/choosing.md). Evolution has seen one: sites differ far more than the cycles of a site do, so that a
lead on a few sites, measured over however many cycles, says little of others. The lead of a candidate is the
sum of its mean leads over the recommended function in training and in validation, both above zero. Its
standard error is that of the delete-a-group jackknife (Kott 2001, Journal of Official Statistics 17): each
split is replayed without one group of sites after the other, and with D_g the leads of the m replays the
variance is (m - 1) / m * sum (D_g - mean D)^2. Where splits are not of whole sites, the function is learned
for these same sites, and the error is that of the mean over the cycles.
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
from training.evolution.evolve import BestIndividual
from training.evolution.fitness import PreparedSplit, load_measure, values_of_all
from training.evolution.simplification import simplify, simplify_all
from training.evolution.workers import Evaluator
from training.replaying.prepared import PreparedHistory

Values = npt.NDArray[np.float64]

GROUPS: Final = 6
"""Groups of sites that a split is replayed without, one at a time; at most as many as it has sites."""
FINALISTS: Final = 12
"""Candidates with the largest leads, whose standard errors are computed."""
ERRORS: Final = 4.0
"""Standard errors that a lead must exceed: with 5 degrees of freedom chance alone gives one of `FINALISTS`
such a lead in 6 cases of 100."""

LeaveOneOutMeans = Callable[[Sequence[int]], Sequence[Values]]
"""Means of some candidates in training and in validation: float64 ``[groups, candidates]`` each, a row for
each group of sites that is left out."""


def promotion_test(
    candidates: Sequence[tuple[Values, Values]],
    recommended: int,
    leave_one_out_means: LeaveOneOutMeans | None = None,
) -> int:
    """Index of the candidate that is most surely better than the recommended one, else of that one.

    ``candidates``: values per cycle of training and validation, higher is better; ``recommended``: which of
    them is to be beaten. ``apart_of``: what they reach without groups of sites; None: parts are not of sites.
    """
    split = [np.array(values) for values in zip(*candidates, strict=True)]
    leads = [prepared_part - prepared_part[recommended] for prepared_part in split]
    means = np.array([lead.mean(axis=1) for lead in leads])
    with np.errstate(invalid="ignore"):  # a candidate without a value is no finalist
        ahead = np.flatnonzero((means > 0.0).all(axis=0))
    finalists = ahead[np.argsort(-means.sum(axis=0)[ahead], kind="stable")][:FINALISTS]
    if not finalists.size:
        return recommended
    if leave_one_out_means is None:
        variances = [lead[finalists].var(axis=1, ddof=1) / lead.shape[1] for lead in leads]
    else:
        known = leave_one_out_means([*finalists.tolist(), recommended])
        variances = [jackknife(prepared_part[:, :-1] - prepared_part[:, -1:]) for prepared_part in known]
    surely = means.sum(axis=0)[finalists] - ERRORS * np.sqrt(np.sum(variances, axis=0))
    best = int(np.argmax(np.nan_to_num(surely, nan=-np.inf)))
    return int(finalists[best]) if surely[best] > 0.0 else recommended


def jackknife(leads: Values) -> Values:
    """Variance of a lead, from those without one group each: ``[groups, candidates]`` -> ``[candidates]``.

    Infinite for a single group.
    """
    groups = len(leads)
    if groups < 2:
        return np.full(leads.shape[1], np.inf)
    return np.asarray((groups - 1) * leads.var(axis=0))


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


class SelectionGoal(NamedTuple):
    """Goal of a selection: fitness, rule, policy and the named functions that compete."""

    fitness: str
    """As for `training.evolution.fitness.load_measure`."""
    clock: Clock
    rule: str
    """One of `RULES`."""
    policy: str = TOP_K.text
    named: tuple[str, ...] = ()
    """Functions that compete with those that evolved."""
    recommended: str = ""
    """The one that ``guarded`` takes unless it is surely beaten; empty: none."""

    def values(self, prepared: PreparedHistory, texts: Iterable[str]) -> list[Values]:
        """Fitness per scored cycle of every text: ``[cycles]``, of a pair ``[2, cycles]``."""
        return values_of_all(prepared, texts, load_measure(self.fitness), self.clock, self.policy)

    def pairs(self, split: PreparedSplit, texts: Sequence[str]) -> Pairs:
        """Fitness per scored cycle of every text in training and validation."""
        training, validation = (self.values(prepared_part, texts) for prepared_part in split[:2])
        return list(zip(training, validation, strict=True))

    def leave_one_out(self, split: PreparedSplit, texts: Sequence[str], objective: int = 0) -> list[Values]:
        """Means of one objective without groups of sites: `training.evolution.selection.LeaveOneOutMeans`."""
        assert split.leave_one_out is not None
        return [
            np.array(
                [
                    [np.atleast_2d(one)[objective].mean() for one in self.values(without_group, texts)]
                    for without_group in prepared_part
                ]
            ).reshape(-1, len(texts))
            for prepared_part in split.leave_one_out
        ]


class SelectedFunction(NamedTuple):
    """Function that was selected from the runs of a fold."""

    text: str
    """Simplified as far as it stays the same in training and validation."""
    run: int
    """Number of its run; `NAMED_RUN` for a named function."""
    selected: float
    """Its value under the selection rule (``guarded``: that of ``best``)."""


class UnsimplifiedSelection(NamedTuple):
    """Function that a rule picked, before it is shortened."""

    text: str
    pair: tuple[Values, Values]
    """Its values per cycle in training and validation."""
    run: int
    """As in `SelectedFunction`."""
    selected: float
    """As in `SelectedFunction`."""


def choose(
    best_of_runs: Sequence[Sequence[BestIndividual]],
    split: PreparedSplit,
    goal: SelectionGoal,
    values: Callable[[list[str]], Pairs] | None = None,
    allow: Allow | None = None,
) -> SelectedFunction:
    """The pick of `pick`, shortened; parameters and errors as there."""
    picked = pick(best_of_runs, split, goal, values, allow)
    return SelectedFunction(shorten(picked.text, picked.pair, split, goal), picked.run, picked.selected)


def pick(
    best_of_runs: Sequence[Sequence[BestIndividual]],
    split: PreparedSplit,
    goal: SelectionGoal,
    values: Callable[[list[str]], Pairs] | None = None,
    allow: Allow | None = None,
) -> UnsimplifiedSelection:
    """Pick one of the best individuals of the runs of a fold.

    ``kept``: of every run. ``values``: fitness per cycle of texts on training and validation part, where
    another process knows them; None: they are replayed here. ``allow`` leaves out texts, unless it would
    leave out all. Raises LearningError if no individual has a value.
    """
    known = values or partial(goal.pairs, split)
    candidates = candidates_of(best_of_runs, goal, known)
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
        judged = over_draws(pairs, texts, goal, split.draws)
        challenged = recommended_or_better(judged, texts, goal, split)
        if challenged is None:
            named = goal.values(split.validation, [*BASELINES.values(), *goal.named])
            challenged = guarded(judged, named, [one.nodes for one, _ in candidates])
        chosen = challenged
    else:
        chosen = select(pairs, goal.rule)
    value = SELECTIONS.get(goal.rule, best)(*pairs[chosen])
    return UnsimplifiedSelection(texts[chosen], pairs[chosen], candidates[chosen][1], value)


def recommended_or_better(
    pairs: Pairs, texts: Sequence[str], goal: SelectionGoal, split: PreparedSplit, objective: int = 0
) -> int | None:
    """Index of the text that passes `promotion_test` by one objective; None without a recommended one.

    ``pairs``: of that objective, a pair for each text.
    """
    if goal.recommended not in texts:
        return None

    def leave_one_out_means(rows: Sequence[int]) -> list[Values]:
        return goal.leave_one_out(split, [texts[row] for row in rows], objective)

    recommended = texts.index(goal.recommended)
    return promotion_test(pairs, recommended, None if split.leave_one_out is None else leave_one_out_means)


def candidates_of(
    best_of_runs: Sequence[Sequence[BestIndividual]],
    goal: SelectionGoal,
    values: Callable[[list[str]], Pairs],
) -> list[tuple[BestIndividual, int]]:
    """Best individuals and named functions, each with the number of its run, the best in training first."""
    candidates_found = [(one, run) for run, best_of_run in enumerate(best_of_runs) for one in best_of_run]
    if candidates_found and goal.named:
        for text, (training, _) in zip(goal.named, values(list(goal.named)), strict=True):
            mean = float(np.atleast_2d(training)[0].mean())
            candidates_found.append(
                (BestIndividual(text, mean, mean, "", len(parse(text).tokens)), NAMED_RUN)
            )
    return sorted(
        (candidate for candidate in candidates_found if not math.isnan(candidate[0].value)),
        key=lambda candidate: (-candidate[0].value, candidate[0].nodes, candidate[0].text, candidate[1]),
    )


def over_draws(
    pairs: Pairs, texts: Sequence[str], goal: SelectionGoal, draws: Sequence[PreparedHistory]
) -> Pairs:
    """The pairs with the training values averaged over other draws of the training split."""
    training = np.mean(
        [[training for training, _ in pairs], *(goal.values(draw, texts) for draw in draws)], axis=0
    )
    return [(mean, validation) for mean, (_, validation) in zip(training, pairs, strict=True)]


def shorten(text: str, values: tuple[Values, Values], split: PreparedSplit, goal: SelectionGoal) -> str:
    """Simplify a function without changing its fitness in any cycle of training and validation."""

    def same(expression: Expression) -> bool:
        return all(
            np.array_equal(goal.values(prepared_part, [expression.text])[0], known)
            # the smaller part first
            for prepared_part, known in zip((split.validation, split.training), values[::-1], strict=True)
        )

    return simplify(parse(text), same).text


class FoldPick(NamedTuple):
    """Pick of a rule in a fold."""

    fold: int
    picked: UnsimplifiedSelection


class FoldValues:
    """Values of functions in the folds, each replayed once on the workers, whichever rule asks for them.

    The evaluator has the training sets of all folds, then their validation sets.
    """

    def __init__(self, evaluator: Evaluator, folds: int) -> None:

        self._evaluator = evaluator
        self._folds = folds
        self._known: dict[tuple[int, str], Pairs] = {}

    def pairs(self, fold: int, texts: Sequence[str]) -> Pairs:
        """Values per cycle of the texts in a fold, in order."""
        new = {text: parse(text) for text in texts if (fold, text) not in self._known}
        training, validation = fold, self._folds + fold
        values = self._evaluator.values((number, new) for number in (training, validation) if new)
        self._known |= {(fold, text): [(values[training][text], values[validation][text])] for text in new}
        return [pair for text in texts for pair in self._known[fold, text]]

    def chosen(self, picks: Sequence[FoldPick]) -> list[SelectedFunction]:
        """The picks, shortened as by `shorten`, side by side so that every worker has something to do."""
        wanted = {(fold, picked.text): picked.pair for fold, picked in picks}
        places, known = list(wanted), list(wanted.values())

        def same(asked: dict[int, Expression]) -> dict[int, bool]:
            alike = dict.fromkeys(asked, True)
            for first, prepared_part in ((self._folds, 1), (0, 0)):  # validation is the smaller part
                standing = [number for number in asked if alike[number]]
                requests: dict[int, dict[str, Expression]] = {}
                for number in standing:
                    requests.setdefault(first + places[number][0], {})[asked[number].text] = asked[number]
                values = self._evaluator.values(requests.items())
                for number in standing:
                    own = values[first + places[number][0]][asked[number].text]
                    alike[number] = np.array_equal(own, known[number][prepared_part])
            return alike

        candidates_found = simplify_all([parse(text) for _, text in places], same)
        texts = {fold_and_text: one.text for fold_and_text, one in zip(places, candidates_found, strict=True)}
        return [SelectedFunction(texts[fold, one.text], one.run, one.selected) for fold, one in picks]
