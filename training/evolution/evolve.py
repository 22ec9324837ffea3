"""Genetic programming over score functions: GP4C (Santos et al. 2014, Listing 1; thesis Algorithm 1).

An `Evolution` is one run on one training set with one seed. Its caller evaluates: `ask` gives functions,
`tell` takes their outcomes. So several runs can share workers and a cache.

Generation g of run r draws from a generator seeded by (seed, r, g) alone. A result depends on nothing but
seed, parameters and outcomes, and a run is continued without the state of a generator.

Trees are DEAP's prefix lists over an untyped primitive set of `scrapy_gp4c.scoring.expression.PRIMITIVES`.
DEAP takes them apart and puts them together; `expression_of` hands the result to the one evaluator. Depth
counts nodes on the longest path: a single terminal has depth 1 (as in GPC++, the class library of the
papers).
"""

import math
import random
import threading
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from operator import attrgetter
from typing import Any, Final, Literal, NamedTuple, get_args

import numpy as np
from deap import gp
from deap.tools import selection

from scrapy_gp4c.errors import LearningError
from scrapy_gp4c.scoring import terminals
from scrapy_gp4c.scoring.expression import PRIMITIVES, Expression, Token, check_terminals, parse
from scrapy_gp4c.scoring.functions import load
from scrapy_gp4c.scoring.named import NAMED
from scrapy_gp4c.scoring.sizes import UNSIZED


def uses_related_pages(names: Collection[str]) -> bool:
    """Whether one of the terminals `names` describes related pages, such as those of the site or cluster."""
    related_columns = set(terminals.ROUND) - {"draw", "spent"}
    return not related_columns.isdisjoint(terminals.columns_of(names))


def named_functions(names: Collection[str]) -> dict[str, str]:
    """Named functions that need no terminals but `names`: name -> canonical text."""
    forms = {name: _form(name, names) for name in NAMED}
    return {name: form.text for name, form in forms.items() if {*form.terminals} <= {*names}}


def named_expression(text: str) -> Expression:
    """Expression of the named function `text`, if there is one of that name; else of the formula `text`."""
    return parse(NAMED[text].expression if text in NAMED else text)


def _form(name: str, names: Collection[str]) -> Expression:
    """Canonical expression of the function `name`, in its variant for the terminals `names`.

    Variants differ in whether they read pages' claims of modification and their sizes.
    """
    has_claims, has_sizes = (not {*names}.isdisjoint(known) for known in (terminals.CLAIMED, UNSIZED))
    expression = load(name).for_pages(has_claims=has_claims, has_sizes=has_sizes).expression
    assert expression is not None
    return canonical(expression)


FLOORS: Final = (0.001, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.4, 1.0)
"""Constants added to a page's change rate in `polished_functions`, so that none scores 0."""
NEIGHBOURHOODS: Final = ("near", "sqrt(near)", "near * sqrt(surprise_site)", "near_site", "near_dir")
SIZE_POWERS: Final = (0.5, 0.25)
SPENT_WEIGHTS: Final = (0.1, 0.3, 3.0, 10.0)
"""Factors of ``spent ** 2`` (square of the spent share of the budget) in `polished_functions`."""


def polished_functions(names: Collection[str]) -> list[str]:
    """Texts of variants of the default score function with other constants, to begin evolution with.

    They read pages' claims and sizes if ``names``, the known terminals, has ``hint_rate``, ``size_lift``.
    """
    rate = "hint_rate" if "hint_rate" in names else "rate"
    lifts = [f" * size_lift ** {power}" for power in SIZE_POWERS] if "size_lift" in names else [""]
    floors = [
        f"t * ({rate} + {floor}) * {near}{lift}"
        for floor in FLOORS
        for near in NEIGHBOURHOODS
        for lift in lifts[-1:]
    ]
    rising = [
        f"t * ({rate} + {weight} * spent ** 2) * near * sqrt(surprise_site){lift}"
        for weight in SPENT_WEIGHTS
        for lift in lifts
    ]
    return [*floors, *rising]


def start_functions(names: Collection[str]) -> list[Expression]:
    """Expressions of the first generation: named functions, `polished_functions`, ``t`` times each terminal.

    All need no terminals but `names`; each canonical form comes once.
    """
    products = [f"t * {name}" for name in names if "t" in names]
    forms = [canonical(parse(text)) for text in polished_functions(names)]
    polished = [form.text for form in forms if {*form.terminals} <= {*names}]
    texts = [*named_functions(names).values(), *polished, *products]
    return list(dict.fromkeys(canonical(parse(text)) for text in texts))


_ROWS: Final = 16
"""Length of the array on which a constant is computed, so that numpy takes the same path as for pages."""

Node = tuple[Token, ...]


def canonical(expression: Expression) -> Expression:
    """Canonical form of an expression: equal scores bit for bit, and a fixed point of this function.

    * a subtree without terminals becomes its value;
    * ``x * 1``, ``1 * x``, ``x / 1`` and ``x - 0.0`` become ``x``; ``x - x`` becomes ``0.0``;
    * the operands of ``+`` and ``*`` are put in order (they commute exactly, but do not associate).

    Inexact, so not rewritten: ``x / x`` (0 near 0), ``x * 0.0``, ``x + 0.0`` (the sign of zero), ``pow(x,
    1)`` (saturates), ``log(exp(x))`` and anything that moves a rounding.
    """
    return Expression(_canonical(expression.tokens))


def _canonical(tokens: Sequence[Token]) -> Node:
    stack: list[Node] = []
    for token in reversed(tokens):
        if not isinstance(token, str) or token not in PRIMITIVES:
            stack.append((token,))
        elif PRIMITIVES[token].arity == 1:
            stack.append(_rewrite(token, [stack.pop()]))
        else:
            stack.append(_rewrite(token, [stack.pop(), stack.pop()]))
    return stack.pop()


def _rewrite(token: str, arguments: list[Node]) -> Node:
    if _constant(arguments[0]) and _constant(arguments[-1]):  # one argument or two
        program = (token, *(argument[0] for argument in arguments))
        return (_value(program, _signs(program)),)
    if len(arguments) == 2:
        first, second = arguments
        if token in "*/" and second == (1.0,):
            return first
        if token == "*" and first == (1.0,):
            return second
        if token == "-" and first == second and _signs(first) == _signs(second):
            return (0.0,)
        if token == "-" and second == (0.0,) and _signs(second) == (1.0,):
            return first
        if token in "+*":
            first, second = sorted((first, second), key=_operand_key)
        return (token, *first, *second)
    return (token, *arguments[0])


def _constant(node: Node) -> bool:
    return len(node) == 1 and not isinstance(node[0], str)


def _signs(node: Node) -> tuple[float, ...]:
    """Signs of the constants in `node`: 0.0 and -0.0 compare equal, yet are not the same constant."""
    return tuple(math.copysign(1.0, token) for token in node if not isinstance(token, str))


def _operand_key(node: Node) -> tuple[int, list[tuple[bool, Token]]]:
    """Sort key of operands that commute: short before long, and constants behind names."""
    return len(node), [(not isinstance(token, str), token) for token in node]


@lru_cache(maxsize=65_536)
def _value(program: Node, signs: tuple[float, ...]) -> float:
    """Value of `program`, an operator on constants; `signs` only completes the key of the cache."""
    return float(Expression(program)({}, _ROWS)[0])


def simplify_all(
    expressions: Sequence[Expression], same: Callable[[dict[int, Expression]], dict[int, bool]]
) -> list[Expression]:
    """Simplify expressions greedily, as far as ``same`` says that each behaves as before.

    Subtrees that do not matter are removed (introns, Koza 1992), and constants are rounded. ``same`` takes
    one candidate for each expression that is not done yet, {index of the expression: candidate}, and
    returns {index: whether the candidate behaves like the expression}. Every result names a terminal.
    """
    searches = [_search(expression) for expression in expressions]
    simplified: dict[int, Expression] = {}
    answers: Mapping[int, bool | None] = dict.fromkeys(range(len(searches)))
    while answers:
        candidates: dict[int, Expression] = {}
        for number, answer in answers.items():
            try:
                candidates[number] = searches[number].send(answer)
            except StopIteration as end:
                simplified[number] = end.value
        answers = same(candidates) if candidates else {}
    return [simplified[number] for number in range(len(searches))]


def _search(expression: Expression) -> Generator[Expression, bool | None, Expression]:
    """Yield simpler candidates of `expression`, receive whether each behaves alike, return the simplest.

    The first ``send`` is None.
    """
    current = canonical(expression)
    position = 0
    while position < len(current.tokens):
        for candidate in _without(current.tokens, position):
            shorter = canonical(Expression(candidate))
            if shorter.terminals and len(shorter.tokens) < len(current.tokens) and (yield shorter):
                current = shorter
                position = 0
                break
        else:
            position += 1
    for position, token in enumerate(current.tokens):
        if isinstance(token, str):
            continue
        for digits in (1, 2, 3):
            rounded = float(f"{token:.{digits}g}")
            tokens = (*current.tokens[:position], rounded, *current.tokens[position + 1 :])
            if rounded == token:
                break
            if (yield Expression(tokens)):
                current = Expression(tokens)
                break
    return canonical(current)


def _without(tokens: tuple[Token, ...], position: int) -> Iterator[tuple[Token, ...]]:
    """Yield a program for each operand of the node at `position`: `tokens` with the operand in its place."""
    token = tokens[position]
    if not isinstance(token, str) or token not in PRIMITIVES:
        return
    start = position + 1
    operands = []
    for _ in range(PRIMITIVES[token].arity):
        end = _end(tokens, start)
        operands.append((start, end))
        start = end
    for first, last in operands:
        yield (*tokens[:position], *tokens[first:last], *tokens[start:])


def _end(tokens: tuple[Token, ...], start: int) -> int:
    """Index behind the subtree that begins at `start`."""
    open_places = 1
    while open_places:
        token = tokens[start]
        open_places += (PRIMITIVES[token].arity if isinstance(token, str) and token in PRIMITIVES else 0) - 1
        start += 1
    return start


def readable(text: str) -> str:
    """Text for people: `text` itself if it names a function, else with constants rounded to 4 digits."""
    if text in NAMED:
        return text
    tokens = parse(text).tokens
    return Expression(tuple(one if isinstance(one, str) else float(f"{one:.4g}") for one in tokens)).text


FUNCTIONS: Final = ("+", "-", "*", "/", "log", "exp", "pow")
"""Operators that evolution draws for inner nodes of trees (journal section 4.2.1)."""
ProtectedDivision = Literal["zero", "large"]
"""Quotient of a division by zero: 0 (journal section 4.2.1), or a very large number (thesis section 3.2)."""
QUOTIENTS: Final[dict[ProtectedDivision, str]] = {"zero": "/", "large": "div"}
"""Quotient of a division by zero (see `ProtectedDivision`) -> its operator in the score language."""
CONSTANTS: Final = (0.001, 0.01, 0.1, 0.5, 1.0, math.e, 10.0, 100.0, 1000.0)
"""Constant leaves (thesis section 3.2; the journal's list leaves out e)."""
ATTEMPTS: Final = 10
"""Tries of a genetic operator to make a child within the depth limit, before it returns the parent."""


CROSSOVER_SHARE: Final = 0.90 / (0.90 + 0.15)
"""Share of children from a crossover; the others are copies (journal 4.1 and 5.2; thesis 3.2 and 3.3).

The papers' crossover of 90% and reproduction of 15% are read here as proportions 90 : 15 of the next
generation; the elite is copied, without mutation, on top of that. (The authors' program reads the same
numbers as 15% new random trees, and of the rest 90% from crossover and 10% copies.)
"""
MUTATION_RATE: Final = 0.05
"""Probability that a mutation is applied to a child, drawn for each mutation of `OPERATORS`."""
OPERATORS: Final = {"journal": ("swap", "subtree"), "thesis": ("node", "shrink")}
"""Paper -> names of the mutations that it uses, keys of `MUTATIONS` (journal 5.2, thesis 4.4)."""


class Depths(NamedTuple):
    """Limits on the depth of trees, in nodes (journal section 5.2; 2 to 6 at birth is Koza's ramp)."""

    first: int = 2
    """Shallowest tree of the initial population."""
    last: int = 6
    """Deepest tree of the initial population."""
    crossover: int = 9
    """Deepest tree that may take part in a crossover."""
    tree: int = 10
    """Deepest tree that crossover and mutations may make."""


class Individual(gp.PrimitiveTree):  # type: ignore[misc]
    """Tree and its fitness (higher is better; NaN until it is known).

    Depth, expression and canonical form are cached, in copies too, until nodes are replaced.
    """

    def __init__(self, nodes: Sequence[Any], fitness: float = math.nan) -> None:
        super().__init__(nodes)
        if isinstance(nodes, Individual):
            self.__dict__.update(nodes.__dict__)
        self.fitness = fitness

    def __setitem__(self, index_or_slice: Any, nodes: Any) -> None:
        super().__setitem__(index_or_slice, nodes)
        for name in ("depth", "expression", "form"):
            self.__dict__.pop(name, None)

    @cached_property  # a child's depth is read twice: when it is made, and as a mate
    def depth(self) -> int:
        """Nodes on the longest path from the root."""
        return int(self.height) + 1

    @cached_property
    def expression(self) -> Expression:
        return expression_of(self)

    @cached_property
    def form(self) -> Expression:
        return canonical(self.expression)


def primitive_set(
    terminals: Sequence[str], known: Collection[Token] = (), protected_division: ProtectedDivision = "zero"
) -> gp.PrimitiveSet:
    """DEAP's untyped primitive set: the papers' functions, terminals and constants.

    ``known``: further constants and operators that may occur in trees; none of them is drawn at random.
    ``protected_division``: key of `QUOTIENTS`, for the quotient of a division by zero.
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
    """Score expression of a tree, node by node."""
    return Expression(tuple(node.name if type(node) is gp.Primitive else node.value for node in tree))


def individual_of(tokens: Sequence[Token], primitives: gp.PrimitiveSet) -> Individual:
    """Inverse of `expression_of`; KeyError for a token that the primitive set does not have."""
    return Individual([primitives.mapping[str(token)] for token in tokens])


_binding = threading.RLock()


@contextmanager
def drawing_from(rng: random.Random) -> Iterator[None]:
    """Context in which DEAP's functions draw from `rng`.

    DEAP's modules draw from the name ``random`` in each of them. Binding that name to `rng` keeps the global
    generator out of the result, whatever other threads (a Dask client's, say) draw from it.
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

    Successive indices run through the depths of the ramp, from `depths.first` to `depths.last`; in every
    other round trees are grown, in the others full.
    """
    ramp = depths.last - depths.first + 1
    edges = depths.first - 1 + index % ramp
    generate = gp.genFull if (index // ramp) % 2 == 0 else gp.genGrow
    return Individual(generate(primitives, edges if generate is gp.genFull else 1, edges))


def crossover(one: Individual, other: Individual, rng: random.Random, limit: int) -> Individual:
    """Child of two: a copy of `one` with a random subtree replaced by one of `other` (journal 4.1).

    ``limit``: its greatest depth; after `ATTEMPTS` deeper children the copy is unchanged.
    """
    for _ in range(ATTEMPTS):
        child = Individual(one)
        place = one.searchSubtree(rng.randrange(len(one)))
        child[place] = other[other.searchSubtree(rng.randrange(len(other)))]
        if child.depth <= limit:
            return child
    return Individual(one, one.fitness)


def swap(tree: Individual, primitives: gp.PrimitiveSet, rng: random.Random, limit: int) -> Individual:
    """Mutation: exchange two random subtrees neither of which contains the other (journal 4.1).

    Returns `tree` itself where none was drawn within the depth `limit`.
    """
    ends = [tree.searchSubtree(index).stop for index in range(len(tree))]
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
    """Mutation: replace a random subtree by a new random tree that fits the depth limit (journal 4.1)."""
    index = rng.randrange(len(tree))
    above = sum(tree.searchSubtree(j).stop > index for j in range(index))
    child = Individual(tree)
    with drawing_from(rng):
        child[tree.searchSubtree(index)] = gp.genGrow(primitives, 0, min(limit - above, Depths().last) - 1)
    return child


def node(tree: Individual, primitives: gp.PrimitiveSet, rng: random.Random, limit: int) -> Individual:
    """Mutation: replace a random node by a different one of the same arity (thesis 3.3)."""
    child = Individual(tree)
    index = rng.randrange(len(tree))
    kind = primitives.primitives if tree[index].arity else primitives.terminals
    others = [n for n in kind[primitives.ret] if n.arity == tree[index].arity and n is not tree[index]]
    child[index] = rng.choice(others)
    return child


def shrink(tree: Individual, primitives: gp.PrimitiveSet, rng: random.Random, limit: int) -> Individual:
    """Mutation: replace a random function node, and all below it, by a random terminal (thesis 3.3)."""
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
    mutations: Sequence[str],
    depths: Depths,
    tournament: int,
    elite: int,
) -> list[Individual]:
    """Next generation, of the size of `population`: the `elite` best, then children of tournament winners.

    Only trees within `depths.crossover` mate. A child that is a plain copy keeps the fitness of its parent.
    """
    best = sorted(population, key=attrgetter("fitness"), reverse=True)[:elite]
    children = [Individual(tree, tree.fitness) for tree in best]
    mates = [i for i in population if i.depth <= depths.crossover]
    with drawing_from(rng):
        while len(children) < len(population):
            if rng.random() < CROSSOVER_SHARE and mates:
                one, other = selection.selTournament(mates, 2, tournament)
                child = crossover(one, other, rng, depths.tree)
            else:
                (winner,) = selection.selTournament(population, 1, tournament)
                child = Individual(winner, winner.fitness)
            for name in mutations:
                if rng.random() < MUTATION_RATE:
                    child = MUTATIONS[name](child, primitives, rng, depths.tree)
            children.append(child)
    return children


Json = dict[str, Any]
"""An object of a JSON file."""

Start = Literal["auto", "random", "named"]
STARTS: Final[tuple[Start, ...]] = get_args(Start)
SEEDED_SHARE: Final = 0.5
"""Largest share of the first generation that `start_functions` may take; the others are random trees."""
UNIQUE_ATTEMPTS: Final = 50
"""Draws for a new member of the initial population before a repeated one is accepted."""


def check_fields(values: Any, least: Mapping[str, int], known: Mapping[str, Collection[str]]) -> None:
    """Raise LearningError for a field below its least value, or that is none of the known ones."""
    for name, number in least.items():
        if getattr(values, name) < number:
            raise LearningError(f"{name} must be at least {number}; found {getattr(values, name)}")
    for name, names in known.items():
        if getattr(values, name) not in names:
            raise LearningError(f"{name} must be one of {', '.join(names)}; found {getattr(values, name)!r}")


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
    """Key of `OPERATORS`."""
    protected_division: ProtectedDivision = "zero"
    """Quotient of a division by zero in evolved functions."""
    depths: Depths = field(default_factory=Depths)
    elite: int = 1
    """Best individuals that are copied into the next generation."""
    best_count: int = 50
    """N_b: best individuals over all generations that go to validation."""
    parsimony: float = 0.0
    """Penalty per node of the canonical tree, subtracted from the fitness."""
    start: Start = "auto"
    """First generation: `random` trees, or `start_functions` first (``named``); ``auto``: ``named`` where a
    terminal describes related pages."""

    def __post_init__(self) -> None:
        check_fields(
            self,
            {"population": 2, "generations": 1, "tournament": 1, "elite": 0, "best_count": 1},
            {"operators": OPERATORS, "protected_division": QUOTIENTS, "start": STARTS},
        )
        if self.elite >= self.population:
            raise LearningError(
                f"the elite ({self.elite}) must be smaller than the population ({self.population})"
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
    """Mean of the fitness over the scored cycles: higher is better; NaN counts as the worst."""
    behaviour: str
    """Equal for functions that did the same in every cycle (a digest of the values per cycle)."""
    second: float = math.nan
    """Mean of the second objective, where there are two (`training.evolution.front`)."""


class BestIndividual(NamedTuple):
    """One of the best individuals over all generations of an evolution run, with its outcome."""

    text: str
    value: float
    fitness: float
    """`value` less `Parameters.parsimony` per node."""
    behaviour: str
    nodes: int


@dataclass(frozen=True)
class EvolutionState:
    """State of an `Evolution` between two generations, of plain values, as the checkpoint keeps it."""

    generation: int
    population: list[tuple[str, float]]
    best_individuals: list[BestIndividual]
    best: list[float]


class Evolution:
    """One evolution run of genetic programming, on one training set with one seed.

    The caller evaluates: `ask` for the functions of a generation, then `tell` their outcomes.
    ``generation``: number of generations evaluated so far; ``population``: individuals of the last one;
    ``best_individuals``: the best of all generations, best first, without two of the same text or behaviour
    (of those the one of highest fitness stays, then the shortest); ``best``: best fitness by generation.
    """

    def __init__(self, parameters: Parameters, seed: int, run: Sequence[int] = (0,)) -> None:
        """``run``: numbers that enter the random generator's seed, to tell apart evolutions of one `seed`.

        For example (number of the fold, number of the evolution in it).
        """
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
        """Canonical forms of the population between `ask` and `tell`; else empty."""

    @property
    def best_so_far(self) -> float:
        return self.best_individuals[0].fitness

    @property
    def finished(self) -> bool:
        return self.generation >= self.parameters.generations

    def ask(self) -> dict[str, Expression]:
        """Breed the next generation, and return its functions to evaluate: canonical text -> expression.

        Individuals that name no terminal are left out: every page would score the same. Until `tell` is
        called, the same generation is returned again.
        """
        if not self._forms:
            self.population = self._next()
            self._forms = [tree.form for tree in self.population]
        return {form.text: form for form in self._forms if form.terminals}

    def tell(self, outcomes: Mapping[str, Outcome]) -> None:
        """Close the generation: set its fitness values from `outcomes`, which has every text of `ask`.

        Outcomes of further texts are ignored.
        """
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
            mutations=OPERATORS[self.parameters.operators],
            depths=self.parameters.depths,
            tournament=self.parameters.tournament,
            elite=self.parameters.elite,
        )

    def _initial(self, rng: random.Random) -> list[Individual]:
        """First generation: `start_functions`, if any, then random trees by ramped half-and-half.

        Members are different and name a terminal, unless `UNIQUE_ATTEMPTS` draws found no such tree.
        """
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
        """State for `restore`; to be called after `tell` and before the next `ask`."""
        population = [(tree.expression.text, tree.fitness) for tree in self.population]
        return EvolutionState(self.generation, population, list(self.best_individuals), list(self.best))

    def restore(self, state: EvolutionState) -> None:
        """Take the state of an evolution with the same parameters, seed and ``run``, to continue it.

        Raises ExpressionError or LearningError for a population that such an evolution cannot have.
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
