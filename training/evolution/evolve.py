"""Genetic programming over score functions: GP4C (Santos et al. 2014, Listing 1; thesis Algorithm 1).

An `Evolution` is one run of the process on one training set with one seed. It is driven from outside,
generation by generation: `ask` for what to evaluate, `tell` their outcomes. So it knows nothing of
histories, replay or processes, and several runs can share workers and a cache.

Randomness: generation g of run r draws from a generator seeded by (seed, r, g) alone. A run therefore
needs no generator state to be continued, and its result depends on nothing but its seed, its parameters
and the outcomes it was told.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple, get_args

import numpy as np

from scrapy_gp4c.errors import LearningError
from scrapy_gp4c.scoring import terminals
from scrapy_gp4c.scoring.expression import Expression, check_terminals, parse
from training.evolution.named_start import start_functions, uses_related_pages
from training.evolution.variation import (
    QUOTIENTS,
    RATES,
    Depths,
    Individual,
    ProtectedDivision,
    breed,
    drawing_from,
    half_and_half,
    individual_of,
    primitive_set,
)

Json = dict[str, Any]
"""An object of a JSON file."""

Start = Literal["auto", "random", "named"]
STARTS: Final[tuple[Start, ...]] = get_args(Start)
SEEDED_SHARE: Final = 0.5
"""Limit of the share of the first generation that is named functions and simple products."""
UNIQUE_ATTEMPTS: Final = 50
"""Draws for a new member of the initial population before a repeated one is accepted."""


@dataclass(frozen=True)
class Parameters:
    """Parameters of evolution; the defaults are those of journal section 5.2 and thesis 4.4.

    Raises LearningError when a value cannot be used, ExpressionError for an unknown terminal.
    """

    terminals: tuple[str, ...] = terminals.BASIC
    population: int = 300
    generations: int = 50
    tournament: int = 2
    operators: str = "journal"
    """Key of `training.evolution.variation.RATES`."""
    protected_division: ProtectedDivision = "zero"
    """Quotient of a division by zero in evolved functions."""
    depths: Depths = field(default_factory=Depths)
    elite: int = 1
    """Best individuals that enter the next generation untouched."""
    best_count: int = 50
    """N_b: best individuals over all generations that go to validation."""
    parsimony: float = 0.0
    """Taken off the fitness per node of the canonical tree."""
    start: Start = "auto"
    """First generation beside random trees, see `training.evolution.named_start`: ``auto`` is ``named`` where
    a terminal describes related pages, else ``random``."""

    def __post_init__(self) -> None:
        """Check every value."""
        lowest = {"population": 2, "generations": 1, "tournament": 1, "elite": 0, "best_count": 1}
        for name, least in lowest.items():
            if getattr(self, name) < least:
                raise LearningError(f"{name} must be at least {least}; found {getattr(self, name)}")
        if self.elite >= self.population:
            raise LearningError(
                f"the elite ({self.elite}) must be smaller than the population ({self.population})"
            )
        for name, known in (
            ("operators", tuple(RATES)),
            ("protected_division", tuple(QUOTIENTS)),
            ("start", STARTS),
        ):
            if getattr(self, name) not in known:
                raise LearningError(
                    f"{name} must be one of {', '.join(known)}; found {getattr(self, name)!r}"
                )
        if not (math.isfinite(self.parsimony) and self.parsimony >= 0):
            raise LearningError(f"parsimony must be a number from 0 on; found {self.parsimony}")
        if not self.terminals:
            raise LearningError(f"learning needs at least one terminal of {', '.join(terminals.NAMES)}")
        for name in self.terminals:
            check_terminals(Expression((name,)), terminals.NAMES)

    @property
    def named_start(self) -> bool:
        """Whether evolution begins with `start_functions`; they are candidates for selection then."""
        return self.start == "named" or (self.start == "auto" and uses_related_pages(self.terminals))


class Outcome(NamedTuple):
    """Outcome of the evaluation of a score function on the training set."""

    value: float
    """Higher is better; NaN counts as the worst."""
    behaviour: str
    """Equal for functions that did the same in every cycle (a digest of the values per cycle)."""
    second: float = math.nan
    """The value of the second objective, where there are two."""


class BestIndividual(NamedTuple):
    """One of the best individuals over all generations."""

    text: str
    """Canonical text."""
    value: float
    fitness: float
    """The value less the price of its nodes."""
    behaviour: str
    nodes: int


class EvolutionState(NamedTuple):
    """State of a run between two generations, of plain values: `to_json` and back changes no bit."""

    generation: int
    population: list[tuple[str, float]]
    """Text and fitness."""
    best_individuals: list[BestIndividual]
    best: list[float]

    def to_json(self) -> Json:
        """Content of a checkpoint."""
        return self._asdict()

    @classmethod
    def from_json(cls, content: Json) -> EvolutionState:
        """Inverse of `to_json`; raises KeyError, TypeError or ValueError for anything else."""
        state = cls(
            content["generation"],
            [(text, fitness) for text, fitness in content["population"]],
            [BestIndividual(*best) for best in content["best_individuals"]],
            list(content["best"]),
        )
        numbers = [*state.best, *(fitness for _, fitness in state.population)]
        numbers += [number for best in state.best_individuals for number in (best.value, best.fitness)]
        integers = [state.generation, *(best.nodes for best in state.best_individuals)]
        texts = [*(text for text, _ in state.population), *(best.text for best in state.best_individuals)]
        for values, kind in ((numbers, (int, float)), (integers, int), (texts, str)):
            for value in values:
                if not isinstance(value, kind):
                    raise TypeError(f"found {value!r} among the numbers and texts of a state")
        return state


class Evolution:
    """One run of the process on one training set with one seed.

    ``generation`` counts the generations evaluated so far; ``population`` is the last one;
    ``best_individuals`` are the best over all of them, best first, without two of the same text or the same
    behaviour (of those the shortest stays); ``best`` is the best fitness of every generation.
    """

    def __init__(self, parameters: Parameters, seed: int, run: Sequence[int] = (0,)) -> None:
        """Start a run; ``run`` tells apart runs of one seed (fold and number, say)."""
        self.parameters = parameters
        self.generation = 0
        self.population: list[Individual] = []
        self.best_individuals: list[BestIndividual] = []
        self.best: list[float] = []
        self._seed = seed
        self._run = tuple(run)
        most = int(SEEDED_SHARE * parameters.population) if parameters.named_start else 0
        self._seeds = start_functions(parameters.terminals)[:most]
        self._primitives = primitive_set(
            parameters.terminals,
            {token for seed in self._seeds for token in seed.tokens},
            parameters.protected_division,
        )
        self._forms: list[Expression] = []
        """Canonical forms of the population whose outcomes are awaited."""

    @property
    def best_so_far(self) -> float:
        """Best fitness of all generations; of two objectives that of the first."""
        return self.best_individuals[0].fitness

    @property
    def finished(self) -> bool:
        """Whether all generations are evaluated."""
        return self.generation >= self.parameters.generations

    def ask(self) -> dict[str, Expression]:
        """Breed the next generation and return its functions by canonical text, for `tell`.

        Individuals that name no terminal are left out: every page would score the same.
        """
        if not self._forms:
            self.population = self._next()
            self._forms = [tree.form for tree in self.population]
        return {form.text: form for form in self._forms if form.terminals}

    def tell(self, outcomes: Mapping[str, Outcome]) -> None:
        """Close the generation with the outcomes of the texts of `ask`; further outcomes do no harm."""
        candidates = {best.text: best for best in self.best_individuals}
        for tree, form in zip(self.population, self._forms, strict=True):
            outcome = outcomes[form.text] if form.terminals else None
            if outcome is None or math.isnan(outcome.value):
                tree.fitness = -math.inf
                continue
            tree.fitness = outcome.value - self.parameters.parsimony * len(form.tokens)
            candidates[form.text] = BestIndividual(
                form.text, outcome.value, tree.fitness, outcome.behaviour, len(form.tokens)
            )
        self._forms = []
        self.best_individuals = _best(candidates.values(), self.parameters.best_count)
        self.best.append(max(tree.fitness for tree in self.population))
        self.generation += 1

    def _next(self) -> list[Individual]:
        rng = self._generator(self.generation)
        if not self.population:
            return self._initial(rng)
        return breed(
            self.population,
            self._primitives,
            rng,
            rates=RATES[self.parameters.operators],
            depths=self.parameters.depths,
            tournament=self.parameters.tournament,
            elite=self.parameters.elite,
        )

    def _initial(self, rng: random.Random) -> list[Individual]:
        """The start_functions, then ramped half-and-half, without repeats; every member names a terminal."""
        population = [individual_of(seed.tokens, self._primitives) for seed in self._seeds]
        seen = {seed.text for seed in self._seeds}
        with drawing_from(rng):
            for index in range(self.parameters.population - len(population)):
                for _ in range(UNIQUE_ATTEMPTS):
                    tree = half_and_half(self._primitives, index, self.parameters.depths)
                    form = tree.form
                    if form.terminals and form.text not in seen:
                        break
                seen.add(form.text)
                population.append(tree)
        return population

    def _generator(self, generation: int) -> random.Random:
        sequence = np.random.SeedSequence(self._seed, spawn_key=(*self._run, generation))
        return random.Random(int.from_bytes(sequence.generate_state(8).tobytes(), "little"))

    def state(self) -> EvolutionState:
        """State for `restore`, between `tell` and `ask`."""
        population = [(tree.expression.text, tree.fitness) for tree in self.population]
        return EvolutionState(self.generation, population, list(self.best_individuals), list(self.best))

    def restore(self, state: EvolutionState) -> None:
        """Continue from a state of a run with the same parameters, seed and ``run``.

        Raises ExpressionError or LearningError for a population that is none of such a run.
        """
        self.generation = state.generation
        try:
            self.population = [
                Individual(individual_of(parse(text).tokens, self._primitives), fitness)
                for text, fitness in state.population
            ]
        except KeyError as error:
            message = f"the checkpoint has a formula with {error}, unknown to this run; delete it, start anew"
            raise LearningError(message) from None
        self.best_individuals = list(state.best_individuals)
        self.best = list(state.best)
        self._forms = []


def _best(candidates: Iterable[BestIndividual], count: int) -> list[BestIndividual]:
    best: list[BestIndividual] = []
    behaviours: set[str] = set()
    for individual in sorted(
        candidates, key=lambda individual: (-individual.fitness, individual.nodes, individual.text)
    ):
        if individual.behaviour not in behaviours:
            behaviours.add(individual.behaviour)
            best.append(individual)
            if len(best) == count:
                break
    return best


def evolve(
    evaluate: Callable[[dict[str, Expression]], Mapping[str, Outcome]],
    parameters: Parameters,
    seed: int,
    run: Sequence[int] = (0,),
) -> Evolution:
    """Drive one run to its end; ``evaluate`` gives outcomes by text."""
    evolution = Evolution(parameters, seed, run)
    while not evolution.finished:
        evolution.tell(evaluate(evolution.ask()))
    return evolution
