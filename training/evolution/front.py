"""Evolution with two objectives at once: NSGA-II (Deb, Pratap, Agarwal & Meyarivan 2002).

A generation is bred from the one before as with one objective, but by the crowded comparison: a mate is
better that is dominated by fewer fronts, and of the same front the one with more room around it. Parents
and children together then compete for the places of the next generation, front by front. DEAP sorts and
measures the room. Individuals with equal values would crowd out all others of a population of formulas, where
many trees do the same: of these only the shortest competes, the rest fill what places are left
(Fortin & Parizeau 2013 show what equal values do to the crowding distance).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from deap import base, tools

from scrapy_gp4c.scoring.expression import Expression, parse
from training.evolution.evolve import Evolution, Kept, Outcome, Parameters
from training.evolution.variation import Individual

WORST: Final = (-math.inf, -math.inf)


class Goals(base.Fitness):  # type: ignore[misc]
    """Values of two objectives, both to be high."""

    weights = (1.0, 1.0)


class Point:
    """A place in the plane of two objectives, as DEAP takes it."""

    def __init__(self, index: int, values: tuple[float, float]) -> None:
        """``index``: of what is there."""
        self.index = index
        self.fitness = Goals(values)


def crowded_order(values: Sequence[tuple[float, float]], count: int) -> list[int]:
    """Indices of the `count` best by the crowded comparison, the best first.

    ``values``: of two objectives, both to be high. Of equal values the first competes; the others follow when
    all different ones have a place.
    """
    order: list[int] = []
    left = list(range(len(values)))
    while left and len(order) < count:
        firsts = {values[index]: index for index in reversed(left)}
        points = [Point(index, values[index]) for index in sorted(firsts.values())]
        chosen = tools.selNSGA2(points, min(count - len(order), len(points)))
        for front in tools.sortNondominated(chosen, len(chosen)):
            room = sorted(front, key=lambda point: -point.fitness.crowding_dist)
            order += [point.index for point in room]
        left = [index for index in left if firsts[values[index]] != index]
    return order


def undominated(values: Sequence[tuple[float, float]]) -> list[int]:
    """Indices of what nothing else dominates, of equal ones the first, in ascending order."""
    points = [Point(index, pair) for index, pair in enumerate(values)]
    firsts = {point.fitness.values: point.index for point in reversed(points)}
    best = tools.sortNondominated(points, len(points), first_front_only=True)[0]
    return sorted({firsts[point.fitness.values] for point in best})


class _Scored(NamedTuple):
    """An individual and what is known of it."""

    tree: Individual
    form: Expression
    outcome: Outcome | None
    """None: it has no value, or names no terminal."""
    values: tuple[float, float]
    """Less the price of its nodes."""


class FrontEvolution(Evolution):
    """One run with two objectives: as `Evolution`, to whose `Outcome` it needs the second value.

    ``kept`` holds those of all generations that the crowded comparison puts first; the ``fitness`` of an
    individual is its place there, negative, and ``best`` the best value of the first objective.
    """

    def __init__(self, parameters: Parameters, seed: int, run: Sequence[int] = (0,)) -> None:
        """As for `Evolution`."""
        super().__init__(parameters, seed, run)
        self._parents: list[tuple[Individual, Expression]] = []
        self._known: dict[str, Outcome] = {}
        """Outcomes of the parents and of those kept."""

    @property
    def best_so_far(self) -> float:
        """Best value of the first objective."""
        return max(kept.value for kept in self.kept)

    def ask(self) -> dict[str, Expression]:
        """As `Evolution.ask`; after `restore` also what competes with the children."""
        parents = self.population
        waiting = bool(self._forms)
        asked = super().ask()
        if not waiting:
            self._parents = [(tree, tree.form) for tree in parents]
        older = {form.text: form for _, form in self._parents if form.terminals}
        older |= {kept.text: parse(kept.text) for kept in self.kept}
        return asked | {text: form for text, form in older.items() if text not in self._known}

    def tell(self, outcomes: Mapping[str, Outcome]) -> None:
        """As `Evolution.tell`."""
        known = self._known | dict(outcomes)
        competing = [*self._parents, *zip(self.population, self._forms, strict=True)]
        scored = [self._scored(tree, form, known) for tree, form in competing]
        scored.sort(key=lambda one: len(one.form.tokens))
        survivors = crowded_order([one.values for one in scored], len(self.population))
        self.population = [scored[index].tree for index in survivors]
        for place, tree in enumerate(self.population):
            tree.fitness = -float(place)
        self._forms, self._parents = [], []
        self.kept = self._best(scored, known)
        self.best.append(max(one.values[0] for one in scored))
        self.generation += 1
        texts = {scored[index].form.text for index in survivors} | {kept.text for kept in self.kept}
        self._known = {text: known[text] for text in texts if text in known}

    def _scored(self, tree: Individual, form: Expression, outcomes: Mapping[str, Outcome]) -> _Scored:
        outcome = outcomes[form.text] if form.terminals else None
        if outcome is None or math.isnan(outcome.value) or math.isnan(outcome.second):
            return _Scored(tree, form, None, WORST)
        return _Scored(tree, form, outcome, self._priced(outcome, len(form.tokens)))

    def _priced(self, outcome: Outcome, nodes: int) -> tuple[float, float]:
        price = self.parameters.parsimony * nodes
        return outcome.value - price, outcome.second - price

    def _best(self, scored: Iterable[_Scored], outcomes: Mapping[str, Outcome]) -> list[Kept]:
        candidates = {kept.text: kept for kept in self.kept}
        for one in scored:
            if one.outcome is not None:
                text, nodes = one.form.text, len(one.form.tokens)
                candidates[text] = Kept(text, one.outcome.value, 0.0, one.outcome.behaviour, nodes)
        different: dict[str, Kept] = {}
        for kept in sorted(candidates.values(), key=lambda kept: (kept.nodes, kept.text)):
            different.setdefault(kept.behaviour, kept)
        members = list(different.values())
        values = [self._priced(outcomes[kept.text], kept.nodes) for kept in members]
        order = crowded_order(values, self.parameters.kept)
        return [members[index]._replace(fitness=-float(place)) for place, index in enumerate(order)]
