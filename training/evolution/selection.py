"""Rules that select one of evolution's best individuals: Best, Sum_sigma, Avg_sigma and guarded Best.

Santos et al. 2014, section 4.2.3 and thesis 3.5, after de Almeida et al. 2007. With T and V an individual's
mean values over the training and the validation cycles, and sigma the (population) standard deviation of its
values over all of these cycles:

* ``best``: T
* ``sum``: T + V - sigma
* ``avg``: (T + V) / 2 - sigma

Ours, ``guarded``: the named function `default`, or `freshness` where that is the fitness, unless
`promotion_test` finds a function that is significantly better and whose freshness is not below the default's.
A named function is replayed under its own policy. Where changes are taken out of training at random
(`Choices.forget`), T is the mean over several draws.

The promotion test is a jackknife over groups of sites: a named function was chosen over many histories
(docs/choosing.md), evolution has seen one, and sites differ far more than the cycles of a site do. The lead
of a candidate is the sum of its mean leads over the named function in training and in validation, both above
zero. Its standard error is that of the delete-a-group jackknife (Kott 2001, Journal of Official Statistics
17): each split is replayed without one group of sites after the other, and with D_g the leads of the m
replays the variance is (m - 1) / m * sum (D_g - mean D)^2. Where splits are not of whole sites, the error is
that of the mean over the cycles.
"""

import math
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.errors import LearningError, UndecidedError
from scrapy_gp4c.policies.table import TOP_K
from scrapy_gp4c.scoring.expression import Expression, parse
from scrapy_gp4c.scoring.named import DEFAULT, NAMED
from scrapy_gp4c.scoring.terminals import Clock
from training.evolution.evolve import BestIndividual, named_expression, simplify_all
from training.evolution.workers import Evaluator, PreparedSplit, load_measure, values_of_all
from training.replaying.prepared import PreparedHistory

Values = npt.NDArray[np.float64]

GROUPS: Final = 6
"""Number of groups of sites that a split is replayed without, one at a time; fewer for fewer sites."""
FINALISTS: Final = 12
"""Number of candidates whose standard errors are computed: those with the largest leads."""
ERRORS: Final = 4.0
"""Standard errors that a lead must exceed: with 5 degrees of freedom chance alone gives one of `FINALISTS`
such a lead in 6 cases of 100."""

LeaveOneOutMeans = Callable[[Sequence[int]], Sequence[Values]]
"""Function of candidates' indices, which replays them without one group of sites after the other.

Returns their mean values in training and in validation, float64 ``[groups, candidates]`` each.
"""


def promotion_test(
    candidates: Sequence[tuple[Values, Values]],
    recommended: int,
    leave_one_out_means: LeaveOneOutMeans | None = None,
) -> int:
    """Index of the candidate that leads over the recommended one most surely; ``recommended`` if none does.

    A lead is above 0 in training and in validation, and their sum is above `ERRORS` standard errors.

    ``candidates``: values per cycle in training and in validation, higher is better; ``recommended``: index;
    ``leave_one_out_means``: for a jackknife; None: the standard error is that of the mean over cycles.
    """
    split = [np.array(values) for values in zip(*candidates, strict=True)]
    leads = [values - values[recommended] for values in split]
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
        variances = [jackknife(means_of[:, :-1] - means_of[:, -1:]) for means_of in known]
    surely = means.sum(axis=0)[finalists] - ERRORS * np.sqrt(np.sum(variances, axis=0))
    best = int(np.argmax(np.nan_to_num(surely, nan=-np.inf)))
    return int(finalists[best]) if surely[best] > 0.0 else recommended


def jackknife(leads: Values) -> Values:
    """Delete-a-group jackknife variance of each candidate's lead, ``[candidates]``.

    ``leads``: leads without one group each, ``[groups, candidates]``. Infinite for a single group.
    """
    groups = len(leads)
    if groups < 2:
        return np.full(leads.shape[1], np.inf)
    return np.asarray((groups - 1) * leads.var(axis=0))


def _sigma(training: Values, validation: Values) -> float:
    return float(np.std(np.concatenate((training, validation))))


SELECTIONS: Final[dict[str, Callable[[Values, Values], float]]] = {
    "best": lambda training, validation: float(np.mean(training)),
    "sum": lambda training, validation: (
        float(np.mean(training) + np.mean(validation)) - _sigma(training, validation)
    ),
    "avg": lambda training, validation: (
        float(np.mean(training) + np.mean(validation)) / 2 - _sigma(training, validation)
    ),
}
"""Selection rules of the papers -> ``rule(training, validation)``, the value by which a function is selected.

Both arguments are float64 ``[cycles]``; higher is better, for the result too: the mean over the training
cycles (``best``), or the sum (``sum``) or mean (``avg``) of both means, less the standard deviation over all
cycles.
"""
GUARDED: Final = "guarded"
RULES: Final = (*SELECTIONS, GUARDED)
NAMED_RUN: Final = -1
"""In place of the number of an evolution run: the function is a named one, not evolved."""


def select(candidates: Sequence[tuple[Values, Values]], rule: str) -> int:
    """Index of the candidate with the highest value under ``rule``; the first of equals."""
    return int(np.argmax([SELECTIONS[rule](*candidate) for candidate in candidates]))


Pairs = list[tuple[Values, Values]]
"""For each of several functions a pair: its values per cycle in training, and in validation."""

Allow = Callable[[Sequence[str]], Collection[str]]
"""Function that returns, of the texts it is called with, those that the selection rule may choose."""


class SelectionGoal(NamedTuple):
    """Goal of a selection: fitness, rule, policy and the named functions that compete."""

    fitness: str
    """Name of the measure to maximize, or two names: see `training.evolution.workers.load_measure`."""
    clock: Clock
    rule: str
    """One of `RULES`."""
    policy: str = TOP_K.text
    named: tuple[str, ...] = ()
    """Names of functions that compete with those that evolved."""
    named_policies: bool = True
    """Whether a named function is replayed under the policy that belongs to it, if there is one."""

    def policy_of(self, text: str) -> str:
        """Policy under which the function `text` is replayed, and which its score file names."""
        row = NAMED.get(text) if self.named_policies else None
        return row.policy if row and row.policy else self.policy

    def values(self, prepared: PreparedHistory, texts: Sequence[str]) -> list[Values]:
        """Replay the functions `texts`, and return each one's fitness per scored cycle.

        Arrays are ``[cycles]``, or ``[2, cycles]`` where `fitness` is a pair.
        """
        measure, known = load_measure(self.fitness), dict[str, Values]()
        for policy, group in self.by_policy(texts).items():
            values = values_of_all(prepared, group, measure, self.clock, policy)
            known |= dict(zip(group, values, strict=True))
        return [known[text] for text in texts]

    def by_policy(self, texts: Iterable[str]) -> dict[str, list[str]]:
        groups: dict[str, list[str]] = {}
        for text in dict.fromkeys(texts):
            groups.setdefault(self.policy_of(text), []).append(text)
        return groups

    def leave_one_out(self, split: PreparedSplit, texts: Sequence[str], objective: int = 0) -> list[Values]:
        """Replay `texts` without one group of sites after the other, and return means of one objective.

        Two arrays, for training and validation, ``[groups, texts]`` each; `split.leave_one_out` must be set.
        """
        assert split.leave_one_out is not None
        return [
            np.array(
                [
                    [np.atleast_2d(one)[objective].mean() for one in self.values(without_group, texts)]
                    for without_group in of_split
                ]
            ).reshape(-1, len(texts))
            for of_split in split.leave_one_out
        ]


class SelectedFunction(NamedTuple):
    """Function that a selection rule picked on a fold."""

    text: str
    """Formula or name."""
    pair: tuple[Values, Values]
    """Values per cycle in training, and in validation."""
    run: int
    """`NAMED_RUN` for a named function."""
    selected: float
    """Value of the function under the selection rule (``guarded``: that of ``best``)."""


def pick(
    best_of_runs: Sequence[Sequence[BestIndividual]],
    split: PreparedSplit,
    goal: SelectionGoal,
    values: Callable[[list[str]], Pairs],
    allow: Allow | None = None,
) -> SelectedFunction:
    """Pick one function of a fold by the rule `goal.rule`: a best individual or a named function.

    ``best_of_runs``: best individuals of each evolution run; ``values`` returns the fitness per cycle of
    texts in training and validation; ``allow`` returns the texts that may be picked, and is ignored if it
    allows none. Raises LearningError if no individual has a value.
    """
    candidates = candidates_of(best_of_runs, goal, values)
    if not candidates:
        raise LearningError(
            f"no individual has a value for the fitness {goal.fitness!r}, all were NaN or constant: choose "
            "another --fitness, or a history with more changes"
        )
    if allow is not None:
        allowed = allow([one.text for one, _ in candidates])
        candidates = [candidate for candidate in candidates if candidate[0].text in allowed] or candidates
    if goal.rule == "best":  # decides by the mean in training alone, by which candidates are sorted
        candidates = candidates[:1]
    texts = [one.text for one, _ in candidates]
    pairs = values(texts)
    if goal.rule == GUARDED:
        judged = over_draws(pairs, texts, goal, split.draws)
        refuse_equal(judged, texts)
        standing = range(len(texts)) if allow is not None else as_fresh_as_default(judged, texts)
        number = named_or_better(
            [objective_row(judged[index]) for index in standing],
            [texts[index] for index in standing],
            goal,
            split,
        )
        chosen = standing[number]
    else:
        chosen = select([objective_row(pair) for pair in pairs], goal.rule)
    value = SELECTIONS.get(goal.rule, SELECTIONS["best"])(*objective_row(pairs[chosen]))
    return SelectedFunction(texts[chosen], pairs[chosen], candidates[chosen][1], value)


def objective_row(pair: tuple[Values, Values], row: int = 0) -> tuple[Values, Values]:
    """Values of the objective `row` in training and validation, ``[cycles]`` each.

    ``pair``: values in training and validation, ``[cycles]`` each, or ``[2, cycles]`` for two objectives.
    """
    training, validation = pair
    return np.atleast_2d(training)[row], np.atleast_2d(validation)[row]


def refuse_equal(pairs: Pairs, texts: Sequence[str]) -> None:
    """Raise UndecidedError if all candidates, two or more, have the same values in every cycle."""
    first = pairs[0]
    if len(texts) > 1 and all(np.array_equal(np.hstack(pair), np.hstack(first)) for pair in pairs):
        raise UndecidedError(
            f"nothing was learned: all {len(texts):,} candidates did the same in every cycle of training and "
            "validation; record more cycles or more pages, or raise the budget"
        )


def as_fresh_as_default(pairs: Pairs, texts: Sequence[str]) -> Sequence[int]:
    """Indices of the candidates whose freshness is not below that of the named function `DEFAULT`.

    Freshness is the second objective in `pairs` (means in training and validation are summed). All indices if
    there is one objective, or if `DEFAULT` is not among the candidates `texts`.
    """
    if DEFAULT not in texts or len(np.atleast_2d(pairs[0][0])) < 2:
        return range(len(texts))
    freshness = np.array([[split[1].mean() for split in pair] for pair in pairs]).sum(axis=1)
    return np.flatnonzero(freshness >= freshness[texts.index(DEFAULT)]).tolist()


def named_or_better(
    pairs: Pairs, texts: Sequence[str], goal: SelectionGoal, split: PreparedSplit, objective: int = 0
) -> int:
    """Index of the named function recommended for an objective, or of one significantly better than it.

    Recommended are `freshness` for freshness, else the default; where neither is in `texts`, the best named
    function, else the best. ``pairs``: for each text, the values of that objective in training and
    validation. See `promotion_test`.
    """

    def leave_one_out_means(rows: Sequence[int]) -> list[Values]:
        return goal.leave_one_out(split, [texts[row] for row in rows], objective)

    means = np.array([training.mean() + validation.mean() for training, validation in pairs])
    # These two were chosen over many histories. Which named function is best on a few pages is chance.
    metric = goal.fitness.split(",")[objective]
    chosen_by_rules = [text for text in ("freshness", DEFAULT) if text in (metric, DEFAULT) and text in texts]
    named = [index for index, text in enumerate(texts) if text in goal.named]
    if goal.named and chosen_by_rules:
        fallback = texts.index(chosen_by_rules[0])
    else:
        fallback = max(
            named or range(len(texts)), key=lambda index: float(np.nan_to_num(means[index], nan=-np.inf))
        )
    return promotion_test(pairs, fallback, None if split.leave_one_out is None else leave_one_out_means)


def candidates_of(
    best_of_runs: Sequence[Sequence[BestIndividual]],
    goal: SelectionGoal,
    values: Callable[[list[str]], Pairs],
) -> list[tuple[BestIndividual, int]]:
    """Best individuals and named functions, each with its evolution run's number, the best in training first.

    Those without a value (NaN) are left out; named functions have `NAMED_RUN`.
    """
    candidates_found = [(one, run) for run, best_of_run in enumerate(best_of_runs) for one in best_of_run]
    if candidates_found and goal.named:
        for text, (training, _) in zip(goal.named, values(list(goal.named)), strict=True):
            mean = float(np.atleast_2d(training)[0].mean())
            candidates_found.append(
                (BestIndividual(text, mean, mean, "", len(named_expression(text).tokens)), NAMED_RUN)
            )
    return sorted(
        (candidate for candidate in candidates_found if not math.isnan(candidate[0].value)),
        key=lambda candidate: (-candidate[0].value, candidate[0].nodes, candidate[0].text, candidate[1]),
    )


def over_draws(
    pairs: Pairs, texts: Sequence[str], goal: SelectionGoal, draws: Sequence[PreparedHistory]
) -> Pairs:
    """Return `pairs` with training values averaged over the training split and `draws`, variants of it.

    See `PreparedSplit.draws`; validation values stay.
    """
    training = np.mean(
        [[training for training, _ in pairs], *(goal.values(draw, texts) for draw in draws)], axis=0
    )
    return [(mean, validation) for mean, (_, validation) in zip(training, pairs, strict=True)]


class FoldPick(NamedTuple):
    """Function picked on a fold, and the goal by which it was."""

    fold: int
    picked: SelectedFunction
    goal: SelectionGoal


class FoldValues:
    """Cache of functions' values in the folds, so that each is replayed once for all selection rules.

    ``evaluator``: has the training sets of all folds, then their validation sets.
    """

    def __init__(self, evaluator: Evaluator, folds: int) -> None:
        self._evaluator = evaluator
        self._folds = folds
        self._known: dict[tuple[int, str, str], tuple[Values, Values]] = {}

    def pairs(self, fold: int, goal: SelectionGoal, texts: Sequence[str]) -> Pairs:
        """Values per cycle of every text in training and validation of the fold `fold`, in order."""
        numbers = fold, self._folds + fold
        new = [text for text in texts if (fold, goal.fitness, text) not in self._known]
        for policy, group in goal.by_policy(new).items():
            functions = {text: named_expression(text) for text in group}
            values = self._evaluator.values(((number, functions) for number in numbers), goal.fitness, policy)
            for text in group:
                training, validation = (values[number][text] for number in numbers)
                self._known[fold, goal.fitness, text] = training, validation
        return [self._known[fold, goal.fitness, text] for text in texts]

    def chosen(self, picks: Sequence[FoldPick]) -> list[SelectedFunction]:
        """Simplify the picked functions as far as their fitness in every training and validation cycle stays.

        Named functions stay as they are. All are simplified at the same time, so that no worker idles.
        """
        evolved = {
            (pick.fold, pick.goal.fitness, pick.picked.text): pick
            for pick in picks
            if pick.picked.run != NAMED_RUN
        }
        keys, evolved_picks = list(evolved), list(evolved.values())

        def same(candidates: dict[int, Expression]) -> dict[int, bool]:
            alike = dict.fromkeys(candidates, True)
            for first, split in ((self._folds, 1), (0, 0)):  # validation is the smaller split
                requests: dict[str, dict[int, dict[str, Expression]]] = {}
                standing = [number for number in candidates if alike[number]]
                for number in standing:
                    by_set = requests.setdefault(evolved_picks[number].goal.fitness, {})
                    functions = by_set.setdefault(first + evolved_picks[number].fold, {})
                    functions[candidates[number].text] = candidates[number]
                values = {
                    fitness: self._evaluator.values(by_set.items(), fitness)
                    for fitness, by_set in requests.items()
                }
                for number in standing:
                    one = evolved_picks[number]
                    known = values[one.goal.fitness][first + one.fold][candidates[number].text]
                    alike[number] = np.array_equal(known, one.picked.pair[split])
            return alike

        simplified = simplify_all([parse(text) for _, _, text in keys], same)
        texts = {key: one.text for key, one in zip(keys, simplified, strict=True)}
        return [
            one._replace(text=texts.get((fold, goal.fitness, one.text), one.text))
            for fold, one, goal in picks
        ]
