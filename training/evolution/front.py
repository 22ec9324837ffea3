"""Evolution with two objectives, NSGA-II (Deb, Pratap, Agarwal & Meyarivan 2002), and the choice in a front.

Parents and children compete for the next generation by the crowded comparison: Pareto front by front, and
within a front those with the larger crowding distance come first. Of individuals with equal values only the
shortest competes, the others fill the places that remain (Fortin & Parizeau 2013): many formulas do the same.

Candidates for the selection are the best individuals of all evolution runs and the named functions. Both
objectives are computed in training (the mean over all draws of `training.evolution.choices.forgetful`) and in
validation. The user's preference (`Choices.prefer`) is one of:

* ``changes``: the selection rule decides by the first objective alone
* ``freshness``: it decides by freshness alone
* ``balanced``: it decides by the first objective, among candidates whose mean freshness is at least that of
the baseline `AGE`, in training and in validation; `AGE` is always one of them

The front that is reported has the candidates that no other one dominates in the means of training and
validation, and the selected function.
"""

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np
from deap import base, tools

from scrapy_gp4c.errors import LearningError
from scrapy_gp4c.scoring.expression import Expression, parse
from training.evolution.evolve import BestIndividual, Evolution, Individual, Outcome, Parameters
from training.evolution.selection import (
    GUARDED,
    SELECTIONS,
    Allow,
    Pairs,
    SelectedFunction,
    SelectionGoal,
    Values,
    candidates_of,
    named_or_better,
    objective_row,
    over_draws,
    refuse_equal,
    select,
)
from training.evolution.workers import PreparedSplit

WORST: Final = (-math.inf, -math.inf)


class TwoObjectives(base.Fitness):  # type: ignore[misc]
    """DEAP's fitness with two objectives, both maximized."""

    weights = (1.0, 1.0)


class FrontPoint:
    """Two values and their index in the caller's list, as DEAP's NSGA-II functions take individuals."""

    def __init__(self, index: int, values: tuple[float, float]) -> None:
        self.index = index
        self.fitness = TwoObjectives(values)


def crowded_order(values: Sequence[tuple[float, float]], count: int) -> list[int]:
    """Indices of the `count` best of `values` by NSGA-II's crowded comparison, the best first.

    ``values``: of two objectives, higher is better in both. Of equal pairs only the first competes; the
    others follow once all different pairs are in the result.
    """
    order: list[int] = []
    remaining = list(range(len(values)))
    while remaining and len(order) < count:
        firsts = {values[index]: index for index in reversed(remaining)}
        points = [FrontPoint(index, values[index]) for index in sorted(firsts.values())]
        chosen = tools.selNSGA2(points, min(count - len(order), len(points)))
        for front in tools.sortNondominated(chosen, len(chosen)):
            by_room = sorted(front, key=lambda point: -point.fitness.crowding_dist)
            order += [point.index for point in by_room]
        remaining = [index for index in remaining if firsts[values[index]] != index]
    return order


def undominated(values: Sequence[tuple[float, float]]) -> list[int]:
    """Indices, ascending, of the pairs that no other one dominates (Pareto front); of equals the first."""
    points = [FrontPoint(index, pair) for index, pair in enumerate(values)]
    firsts = {point.fitness.values: point.index for point in reversed(points)}
    best = tools.sortNondominated(points, len(points), first_front_only=True)[0]
    return sorted({firsts[point.fitness.values] for point in best})


class _Scored(NamedTuple):
    tree: Individual
    form: Expression
    outcome: Outcome | None
    """None: an objective is NaN, or the individual names no terminal."""
    values: tuple[float, float]
    """Both objectives less `Parameters.parsimony` per node; `WORST` without an outcome."""


class FrontEvolution(Evolution):
    """Evolution run with two objectives, NSGA-II; `Outcome.second` must be set.

    ``best_individuals``: those of all generations that come first in `crowded_order`; their ``fitness`` is
    the negative rank in it, 0 for the first. ``best``: best value of the first objective in every generation.
    """

    def __init__(self, parameters: Parameters, seed: int, run: Sequence[int] = (0,)) -> None:
        super().__init__(parameters, seed, run)
        self._parents: list[tuple[Individual, Expression]] = []
        self._known: dict[str, Outcome] = {}
        """Outcomes of the parents and of the best individuals: text -> outcome; empty after `restore`."""

    @property
    def best_so_far(self) -> float:
        """Best value of the first objective."""
        return max(individual.value for individual in self.best_individuals)

    def ask(self) -> dict[str, Expression]:
        """Texts as of `Evolution.ask`, with those of parents and best individuals that have no outcome.

        Outcomes of parents are lost by `restore`, and are needed because parents compete with their children.
        """
        parents = self.population
        waiting = bool(self._forms)
        new_texts = super().ask()
        if not waiting:
            self._parents = [(tree, tree.form) for tree in parents]
        older = {form.text: form for _, form in self._parents if form.terminals}
        older |= {individual.text: parse(individual.text) for individual in self.best_individuals}
        return new_texts | {text: form for text, form in older.items() if text not in self._known}

    def tell(self, outcomes: Mapping[str, Outcome]) -> None:
        known = self._known | dict(outcomes)
        competing = [*self._parents, *zip(self.population, self._forms, strict=True)]
        scored = [self._scored(tree, form, known) for tree, form in competing]
        scored.sort(key=lambda one: len(one.form.tokens))
        survivors = crowded_order([one.values for one in scored], len(self.population))
        self.population = [scored[index].tree for index in survivors]
        for rank, tree in enumerate(self.population):
            tree.fitness = -float(rank)
        self._forms, self._parents = [], []
        self.best_individuals = self._best(scored, known)
        self.best.append(max(one.values[0] for one in scored))
        self.generation += 1
        texts = {scored[index].form.text for index in survivors} | {
            individual.text for individual in self.best_individuals
        }
        self._known = {text: known[text] for text in texts if text in known}

    def _scored(self, tree: Individual, form: Expression, outcomes: Mapping[str, Outcome]) -> _Scored:
        outcome = outcomes[form.text] if form.terminals else None
        if outcome is None or math.isnan(outcome.value) or math.isnan(outcome.second):
            return _Scored(tree, form, None, WORST)
        return _Scored(tree, form, outcome, self._priced(outcome, len(form.tokens)))

    def _priced(self, outcome: Outcome, nodes: int) -> tuple[float, float]:
        price = self.parameters.parsimony * nodes
        return outcome.value - price, outcome.second - price

    def _best(self, scored: Iterable[_Scored], outcomes: Mapping[str, Outcome]) -> list[BestIndividual]:
        candidates = {individual.text: individual for individual in self.best_individuals}
        for one in scored:
            if one.outcome is not None:
                text, nodes = one.form.text, len(one.form.tokens)
                candidates[text] = BestIndividual(text, one.outcome.value, 0.0, one.outcome.behaviour, nodes)
        different: dict[str, BestIndividual] = {}
        for individual in sorted(
            candidates.values(), key=lambda individual: (individual.nodes, individual.text)
        ):
            different.setdefault(individual.behaviour, individual)
        members = list(different.values())
        values = [self._priced(outcomes[individual.text], individual.nodes) for individual in members]
        order = crowded_order(values, self.parameters.best_count)
        return [members[index]._replace(fitness=-float(rank)) for rank, index in enumerate(order)]


ROWS: Final = {"changes": 0, "freshness": 1, "balanced": 0}
"""Value of `Choices.prefer` -> index of the objective by which the selection rule decides; 1 is freshness."""
PREFERENCES: Final = tuple(ROWS)
GUARD: Final = "freshness"
"""Second objective of a front, and the metric in which a promoted function must not be worse."""
AGE: Final = "age"
"""Named function that visits pages with the oldest copies first; baseline of ``balanced``."""
MOST_MEMBERS: Final = 16
"""Largest number of functions of a front that are reported: those with the largest crowding distance."""

ValuePair = tuple[Values, Values]
"""Values per cycle in training and validation, ``[2, cycles]`` each: a row per objective."""


class FrontCandidate(NamedTuple):
    """Function of a Pareto front with its mean values."""

    text: str
    run: int
    """Number of its evolution run in the fold; `NAMED_RUN` for a named function."""
    values: tuple[float, float]
    """Both objectives: the mean of the means in training and in validation."""


def choose_of_front(
    best_of_runs: Sequence[Sequence[BestIndividual]],
    split: PreparedSplit,
    goal: SelectionGoal,
    prefer: str,
    values: Callable[[list[str]], Pairs],
    allow: Allow | None = None,
) -> tuple[SelectedFunction, list[FrontCandidate]]:
    """Select a function of a fold by the preference `prefer`; return it and the front.

    The front begins with the function that is best in the first objective. ``goal.fitness`` names two
    objectives; for the other parameters see `training.evolution.selection.pick`. ``allow`` limits which
    function is selected, not the front.
    """
    goal = goal._replace(named=tuple(dict.fromkeys((*goal.named, AGE))))
    candidates_found = candidates_of(best_of_runs, goal, values)
    runs = {one.text: run for one, run in reversed(candidates_found)}
    pairs = dict(zip(runs, values([*runs]), strict=True))
    judged = dict(zip(runs, over_draws([*pairs.values()], [*runs], goal, split.draws), strict=True))
    judged = {text: pair for text, pair in judged.items() if np.isfinite(np.hstack(pair)).all()}
    if AGE not in judged:
        raise LearningError(
            f"the objectives {goal.fitness!r} give no number for {AGE!r}, which all are compared with: "
            "choose another --fitness, or a history with more changes"
        )
    eligible = _eligible(judged, prefer, judged.keys() if allow is None else allow([*judged]), goal)
    row = ROWS[prefer]
    candidates = [objective_row(judged[text], row) for text in eligible]
    if goal.rule == GUARDED:
        refuse_equal(list(judged.values()), list(judged))
        taken = eligible[named_or_better(candidates, eligible, goal, split, row)]
    else:
        taken = eligible[select(candidates, goal.rule)]
    value = SELECTIONS.get(goal.rule, SELECTIONS["best"])(*objective_row(pairs[taken], row))
    members = [FrontCandidate(one, runs[one], means) for one, means in _front(judged, taken).items()]
    return SelectedFunction(taken, pairs[taken], runs[taken], value), members


def _eligible(
    judged: Mapping[str, ValuePair], prefer: str, allowed: Collection[str], goal: SelectionGoal
) -> list[str]:
    """Texts that may be selected: for ``balanced`` those at least as fresh as `AGE`, else all.

    Of these only the `allowed` ones, unless none is allowed.
    """
    least = [split_values[1].mean() if prefer == "balanced" else -np.inf for split_values in judged[AGE]]
    fresh = [
        text
        for text, split in judged.items()
        if all(split_values[1].mean() >= bound for split_values, bound in zip(split, least, strict=True))
    ]
    return [text for text in fresh if text in allowed] or fresh


def _front(judged: Mapping[str, ValuePair], taken: str) -> dict[str, tuple[float, float]]:
    """Functions of the front to report, and the selected one, `taken`: text -> means, by first objective."""
    means = {}
    for text, split in judged.items():
        first, second = np.mean([split_values.mean(axis=1) for split_values in split], axis=0).tolist()
        means[text] = first, second
    texts = [*means]
    front = [texts[index] for index in undominated([*means.values()])]
    most = [front[rank] for rank in crowded_order([means[text] for text in front], MOST_MEMBERS)]
    return {text: means[text] for text in sorted({*most, taken}, key=lambda text: (-means[text][0], text))}
