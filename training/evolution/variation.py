"""Genetic operators on score-function trees (Santos et al. 2014, sections 4.1 and 5.2; thesis 3.2-3.3).

Trees are DEAP's prefix lists over an untyped primitive set whose operators are those of
`scrapy_gp4c.scoring.expression.PRIMITIVES`: DEAP never evaluates a tree, it only takes trees apart and puts
them together, and `expression_of` hands the result to the one evaluator. Depth counts nodes on the
longest path, so that a single terminal has depth 1 (as in GPC++, the class library of the papers).

How rates that add up to more than 1 are read: crossover 90% and reproduction 15% are *proportions of the
next generation* and are normalised, so that 6 children in 7 come from a crossover and 1 in 7 is a copy.
Each mutation then strikes every child, copies included, with its own probability. The elite is copied
untouched on top of that. (The authors' program reads the same numbers as 15% new random trees and the
rest 90% crossover and 10% copies.)
"""

from __future__ import annotations

import math
import random
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, Literal, NamedTuple

from deap import gp
from deap.tools import selection

from scrapy_gp4c.scoring.expression import PRIMITIVES, Expression, Token
from training.evolution.simplification import canonical

FUNCTIONS: Final = ("+", "-", "*", "/", "log", "exp", "pow")
"""Inner nodes (journal section 4.2.1)."""
ProtectedDivision = Literal["zero", "large"]
"""Quotient of a division by zero: 0 (journal section 4.2.1), or a very large number (thesis section 3.2)."""
QUOTIENTS: Final[dict[ProtectedDivision, str]] = {"zero": "/", "large": "div"}
"""Reading of protected division -> its operator in the score language."""
CONSTANTS: Final = (0.001, 0.01, 0.1, 0.5, 1.0, math.e, 10.0, 100.0, 1000.0)
"""Constant leaves (thesis section 3.2; the journal's list leaves out e)."""
ATTEMPTS: Final = 10
"""Draws of an operator whose child would be too deep, before it returns the parent."""


class Rates(NamedTuple):
    """Probabilities of the genetic operators; the module's docstring says how they are read."""

    crossover: float
    reproduction: float
    mutations: tuple[tuple[str, float], ...]
    """Name of a mutation in `MUTATIONS` and the probability that it strikes a child."""


RATES: Final[dict[str, Rates]] = {
    "journal": Rates(0.90, 0.15, (("swap", 0.05), ("subtree", 0.05))),
    "thesis": Rates(0.90, 0.15, (("node", 0.05), ("shrink", 0.05))),
}
"""Journal section 5.2: swap and replacement mutation; thesis section 4.4: node replacement and shrink."""


class Depths(NamedTuple):
    """Limits on the depth of trees, in nodes (journal section 5.2; 2 to 6 at birth is Koza's ramp)."""

    first: int = 2
    """Shallowest tree of the initial population."""
    last: int = 6
    """Deepest tree of the initial population."""
    crossover: int = 9
    """Deepest tree that may take part in a crossover."""
    tree: int = 10
    """Deepest tree at all."""


class Individual(gp.PrimitiveTree):  # type: ignore[misc]
    """A tree and its fitness (higher is better; NaN until it is known).

    What was made of it once is remembered, by its copies too, until nodes are replaced.
    """

    def __init__(self, nodes: Sequence[Any], fitness: float = math.nan) -> None:
        """Copy the nodes: they are immutable and shared between trees."""
        super().__init__(nodes)
        self.fitness = fitness
        self._depth = 0
        self._expression: Expression | None = None
        self._form: Expression | None = None
        if isinstance(nodes, Individual):
            self._depth, self._expression, self._form = nodes._depth, nodes._expression, nodes._form

    def __setitem__(self, index_or_slice: Any, nodes: Any) -> None:
        """Replace nodes by others."""
        super().__setitem__(index_or_slice, nodes)
        self._depth, self._expression, self._form = 0, None, None

    @property
    def depth(self) -> int:
        """Nodes on the longest path from the root."""
        if not self._depth:  # a child is asked twice: when it is made, and as a mate
            depths: list[int] = []
            for node in reversed(self):  # DEAP's `height` says the same, in twice the time
                if node.arity:
                    for _ in range(node.arity - 1):
                        first = depths.pop()
                        if first > depths[-1]:
                            depths[-1] = first
                    depths[-1] += 1
                else:
                    depths.append(1)
            self._depth = depths[0]
        return self._depth

    @property
    def expression(self) -> Expression:
        """Result of `expression_of`."""
        if self._expression is None:
            self._expression = expression_of(self)
        return self._expression

    @property
    def form(self) -> Expression:
        """The canonical form."""
        if self._form is None:
            self._form = canonical(self.expression)
        return self._form


def primitive_set(
    terminals: Sequence[str], known: Collection[Token] = (), protected_division: ProtectedDivision = "zero"
) -> gp.PrimitiveSet:
    """DEAP's untyped primitive set: the papers' functions, the given terminals and the constants.

    ``known``: further constants and operators that trees may bring along; none is drawn.
    """
    primitives = gp.PrimitiveSet("score", 0)
    for function in FUNCTIONS:
        name = QUOTIENTS[protected_division] if function == "/" else function
        primitives.addPrimitive(PRIMITIVES[name].apply, PRIMITIVES[name].arity, name=name)
    for leaf in (*terminals, *CONSTANTS):
        primitives.addTerminal(leaf)
    for token in known:
        if str(token) not in primitives.mapping:
            primitives.mapping[str(token)] = (
                gp.Primitive(token, [primitives.ret] * PRIMITIVES[token].arity, primitives.ret)
                if token in PRIMITIVES
                else gp.Terminal(token, False, primitives.ret)
            )
    return primitives


def expression_of(tree: Sequence[Any]) -> Expression:
    """The tree as a score expression, node by node."""
    return Expression(tuple(node.name if type(node) is gp.Primitive else node.value for node in tree))


def individual_of(tokens: Sequence[Token], primitives: gp.PrimitiveSet) -> Individual:
    """Inverse of `expression_of`; KeyError for a token that the primitive set does not have."""
    return Individual([primitives.mapping[str(token)] for token in tokens])


_binding = threading.RLock()


@contextmanager
def drawing_from(rng: random.Random) -> Iterator[None]:
    """Let DEAP's functions draw from `rng` within the block.

    They draw from the module ``random`` that their own modules name; binding that name keeps the global
    generator out of the result, whatever other threads of the process (a Dask client's, say) draw from it.
    """
    with _binding:
        modules = (gp, selection)
        bound = [module.random for module in modules]
        try:
            for module in modules:
                module.random = rng
            yield
        finally:
            for module, previous in zip(modules, bound, strict=True):
                module.random = previous


def half_and_half(primitives: gp.PrimitiveSet, index: int, depths: Depths) -> Individual:
    """Tree number `index` of a ramped half-and-half population (Koza 1992).

    Depth limits run through the ramp in turn; every other round of the ramp is grown, the rest are full.
    """
    ramp = depths.last - depths.first + 1
    edges = depths.first - 1 + index % ramp
    generate = gp.genFull if (index // ramp) % 2 == 0 else gp.genGrow
    return Individual(generate(primitives, edges if generate is gp.genFull else 1, edges))


def crossover(one: Individual, other: Individual, rng: random.Random, limit: int) -> Individual:
    """`one` with a random subtree replaced by a random subtree of `other`: one child (journal 4.1)."""
    for _ in range(ATTEMPTS):
        child = Individual(one)
        index_or_slice = one.searchSubtree(rng.randrange(len(one)))
        child[index_or_slice] = other[other.searchSubtree(rng.randrange(len(other)))]
        if child.depth <= limit:
            return child
    return Individual(one, one.fitness)


def _ends(tree: Sequence[Any]) -> list[int]:
    """For every node, the index behind its subtree."""
    ends = [0] * len(tree)
    stack: list[int] = []
    for index in range(len(tree) - 1, -1, -1):
        end = index + 1
        for _ in range(tree[index].arity):
            end = stack.pop()
        ends[index] = end
        stack.append(end)
    return ends


def swap(tree: Individual, primitives: gp.PrimitiveSet, rng: random.Random, limit: int) -> Individual:
    """Exchange two random subtrees neither of which contains the other (journal 4.1)."""
    ends = _ends(tree)
    for _ in range(ATTEMPTS):
        first = rng.randrange(len(tree))
        others = [j for j in range(len(tree)) if j >= ends[first] or ends[j] <= first]
        if not others:
            continue
        a, b = sorted((first, rng.choice(others)))
        child = Individual(
            [*tree[:a], *tree[b : ends[b]], *tree[ends[a] : b], *tree[a : ends[a]], *tree[ends[b] :]]
        )
        if child.depth <= limit:
            return child
    return tree


def subtree(tree: Individual, primitives: gp.PrimitiveSet, rng: random.Random, limit: int) -> Individual:
    """Replace a random subtree by a new random tree that fits the depth limit (journal 4.1)."""
    index = rng.randrange(len(tree))
    ends = _ends(tree)
    above = sum(ends[j] > index for j in range(index))
    child = Individual(tree)
    with drawing_from(rng):
        child[slice(index, ends[index])] = gp.genGrow(primitives, 0, min(limit - above, Depths().last) - 1)
    return child


def node(tree: Individual, primitives: gp.PrimitiveSet, rng: random.Random, limit: int) -> Individual:
    """Replace a random node by a different one of the same arity (thesis 3.3)."""
    child = Individual(tree)
    index = rng.randrange(len(tree))
    kind = primitives.primitives if tree[index].arity else primitives.terminals
    others = [n for n in kind[primitives.ret] if n.arity == tree[index].arity and n is not tree[index]]
    child[index] = rng.choice(others)
    return child


def shrink(tree: Individual, primitives: gp.PrimitiveSet, rng: random.Random, limit: int) -> Individual:
    """Replace a random function node, and all below it, by a random terminal (thesis 3.3)."""
    functions = [index for index, node in enumerate(tree) if node.arity]
    if not functions:
        return tree
    child = Individual(tree)
    child[tree.searchSubtree(rng.choice(functions))] = [rng.choice(primitives.terminals[primitives.ret])]
    return child


Mutation = Callable[[Individual, gp.PrimitiveSet, random.Random, int], Individual]
MUTATIONS: Final[dict[str, Mutation]] = {
    "swap": swap,
    "subtree": subtree,
    "node": node,
    "shrink": shrink,
}


def breed(
    population: Sequence[Individual],
    primitives: gp.PrimitiveSet,
    rng: random.Random,
    *,
    rates: Rates,
    depths: Depths,
    tournament: int,
    elite: int,
) -> list[Individual]:
    """The next generation, of the same size: the elite, then children of tournament winners.

    Every individual needs its fitness. Only trees within the crossover depth are drawn into tournaments
    for mates. A child that is a plain copy keeps its fitness.
    """
    children = [Individual(i, i.fitness) for i in sorted(population, key=_fitness, reverse=True)[:elite]]
    mates = [i for i in population if i.depth <= depths.crossover]
    crossing = rates.crossover / (rates.crossover + rates.reproduction)
    with drawing_from(rng):
        while len(children) < len(population):
            if rng.random() < crossing and mates:
                one, other = selection.selTournament(mates, 2, tournament)
                child = crossover(one, other, rng, depths.tree)
            else:
                (winner,) = selection.selTournament(population, 1, tournament)
                child = Individual(winner, winner.fitness)
            for name, rate in rates.mutations:
                if rng.random() < rate:
                    child = MUTATIONS[name](child, primitives, rng, depths.tree)
            children.append(child)
    return children


def _fitness(individual: Individual) -> float:
    return individual.fitness
