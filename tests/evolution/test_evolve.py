"""The GP4C process: generations, the best kept, elitism, repeatability, continuation."""

import collections
import hashlib
import itertools
import json
import math
import random
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
import numpy as np
import pytest
from deap import gp
from deap.tools import selection
from hypothesis import example, given
from hypothesis import strategies as st

from scrapy_gp4c.errors import ExpressionError, LearningError
from scrapy_gp4c.scoring import terminals
from scrapy_gp4c.scoring.expression import LARGE, PRIMITIVES, TINY, Expression, parse
from tests.support.evolution import evolve
from training.evolution import evolve as variation
from training.evolution.evolve import (
    CONSTANTS,
    FUNCTIONS,
    MUTATIONS,
    OPERATORS,
    Depths,
    Evolution,
    EvolutionState,
    Individual,
    Outcome,
    Parameters,
    breed,
    canonical,
    crossover,
    drawing_from,
    expression_of,
    half_and_half,
    individual_of,
    named_functions,
    polished_functions,
    primitive_set,
    simplify_all,
    start_functions,
)

X = np.linspace(0.1, 5.0, 60)
COLUMNS = {"n": X, "X": X**2, "t": 1.0 / X}


def simplify(expression, same):
    """The simplified form of one expression."""
    (simplified,) = simplify_all([expression], lambda asked: {0: same(asked[0])})
    return simplified


def closeness(text: str) -> Outcome:
    """How well an expression follows 3 sqrt(n) - X, as something to be learned without any replay."""
    scores = parse(text)(COLUMNS)
    value = -float(np.minimum(np.abs(scores - (3 * np.sqrt(X) - X**2)), 1e6).mean())
    return Outcome(value, hashlib.sha256(scores.tobytes()).hexdigest())


def evaluate(texts: Iterable[str]) -> dict[str, Outcome]:
    return {text: closeness(text) for text in texts}


SMALL = Parameters(population=40, generations=12, best_count=10)


def texts(evolution: Evolution) -> list[str]:
    return [expression_of(tree).text for tree in evolution.population]


def test_default_parameters_are_those_of_the_journal():
    """Journal 5.2: 300 individuals, 50 generations, tournament 2, depth 10, crossover to 9, 50 best kept."""
    p = Parameters()
    assert (p.population, p.generations, p.tournament, p.best_count) == (300, 50, 2, 50)
    assert (p.depths.tree, p.depths.crossover, p.operators) == (10, 9, "journal")
    assert p.terminals == ("n", "X", "t")
    assert p.parsimony == 0.0


def test_same_seed_same_run_and_different_seeds_differ():
    """Everything follows from the seed and the run; the global generators are neither used nor moved."""
    random.seed(1)
    state = random.getstate()
    first = evolve(evaluate, SMALL, 7)
    assert random.getstate() == state
    assert gp.random is selection.random is random
    random.seed(2)
    np.random.seed(2)
    assert texts(evolve(evaluate, SMALL, 7)) == texts(first)
    assert evolve(evaluate, SMALL, 7).best_individuals == first.best_individuals
    assert texts(evolve(evaluate, SMALL, 8)) != texts(first)
    assert texts(evolve(evaluate, SMALL, 7, (0, 1))) != texts(first)


def test_it_improves_and_the_best_never_falls():
    """Elitism: the best fitness of a generation is never below that of the one before."""
    better = 0
    for seed in range(5):
        evolution = evolve(evaluate, SMALL, seed)
        assert len(evolution.best) == SMALL.generations
        assert all(a <= b for a, b in itertools.pairwise(evolution.best))
        assert evolution.best_individuals[0].fitness == evolution.best[-1]
        better += evolution.best[-1] > evolution.best[0]
    assert better >= 4, "a small population may be lucky at birth, but seldom"


def test_kept_are_the_best_over_all_generations():
    """The N_b best of all that was ever evaluated, best first, no text and no behaviour twice."""
    seen: dict[str, Outcome] = {}

    def watched(wanted: Iterable[str]) -> dict[str, Outcome]:
        outcomes = evaluate(wanted)  # of few behaviours, so that many formulas share one
        seen.update({text: one._replace(behaviour=one.behaviour[0]) for text, one in outcomes.items()})
        return seen

    evolution = evolve(watched, SMALL, 3)
    behaviours: dict[str, tuple[float, int, str]] = {}
    for text, outcome in seen.items():
        rank = (-outcome.value, len(parse(text).tokens), text)
        behaviours[outcome.behaviour] = min(behaviours.get(outcome.behaviour, rank), rank)
    expected = [rank[2] for rank in sorted(behaviours.values())[:10]]
    assert [individual.text for individual in evolution.best_individuals] == expected
    for individual in evolution.best_individuals:
        assert canonical(parse(individual.text)).text == individual.text
        assert individual.fitness == closeness(individual.text).value
        assert individual.nodes == len(parse(individual.text).tokens)


def test_initial_population_has_no_repeats_and_no_constants():
    """Every member names a terminal, and no two have the same canonical form."""
    evolution = Evolution(Parameters(), 1)
    asked = evolution.ask()
    assert len(asked) == len(set(asked)) == 300
    assert all(parse(text).terminals for text in asked)


def test_constant_individuals_are_not_evaluated():
    """What names no terminal is never asked for and never kept; it has the worst fitness."""
    evolution = Evolution(SMALL, 4)
    constants = 0
    while not evolution.finished:
        asked = evolution.ask()
        assert all(parse(text).terminals for text in asked)
        evolution.tell(evaluate(asked))
        for tree in evolution.population:
            if not canonical(expression_of(tree)).terminals:
                constants += 1
                assert tree.fitness == -math.inf
    assert constants, "the seed should meet some"


def test_nan_is_the_worst_value():
    """An evaluation that gives NaN loses against every number and is not kept."""

    def spoiled(wanted: Iterable[str]) -> dict[str, Outcome]:
        outcomes = evaluate(wanted)
        return {t: Outcome(math.nan, "") if "log" in t else o for t, o in outcomes.items()}

    evolution = evolve(spoiled, SMALL, 1)
    assert evolution.best_individuals
    assert not any("log" in individual.text for individual in evolution.best_individuals)


@pytest.mark.parametrize("stop", [1, 5, 11])
def test_a_restored_run_ends_as_if_never_interrupted(stop):
    """The state goes through JSON after any generation; the rest of the run is the same to the last bit."""
    uninterrupted = evolve(evaluate, SMALL, 9, (1, 2))
    evolution = Evolution(SMALL, 9, (1, 2))
    for _ in range(stop):
        evolution.tell(evaluate(evolution.ask()))
    written = json.dumps(msgspec.to_builtins(evolution.state()))
    state = msgspec.convert(json.loads(written), EvolutionState)
    assert state == evolution.state()
    again = Evolution(SMALL, 9, (1, 2))
    again.restore(state)
    while not again.finished:
        again.tell(evaluate(again.ask()))
    assert again.state() == uninterrupted.state()


def test_parsimony_makes_functions_shorter():
    """A price per node: shorter functions, and fitness is value less price."""
    free = evolve(evaluate, SMALL, 2)
    dear = evolve(evaluate, Parameters(population=40, generations=12, best_count=10, parsimony=0.1), 2)
    assert np.mean([k.nodes for k in dear.best_individuals]) < np.mean(
        [k.nodes for k in free.best_individuals]
    )
    for individual in dear.best_individuals:
        assert individual.fitness == closeness(individual.text).value - 0.1 * individual.nodes


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"population": 1}, "population must be at least 2; found 1"),
        ({"generations": 0}, "generations must be at least 1; found 0"),
        ({"tournament": 0}, "tournament must be at least 1"),
        ({"best_count": 0}, "best_count must be at least 1"),
        ({"population": 5, "elite": 5}, r"elite \(5\) must be smaller than the population \(5\)"),
        ({"operators": "koza"}, "one of journal, thesis; found 'koza'"),
        ({"parsimony": -1.0}, "parsimony must be a number from 0 on"),
        ({"parsimony": math.nan}, "parsimony must be a number from 0 on"),
        ({"terminals": ()}, "at least one terminal"),
    ],
)
def test_bad_parameters(values, words):
    """One clear error that names the parameter, what it must be and what was found."""
    with pytest.raises(LearningError, match=words):
        Parameters(**values)


def test_unknown_terminal():
    """The error names the terminal and lists those that exist."""
    with pytest.raises(ExpressionError, match=r"no terminal 'age_days'; there are: n, X, t"):
        Parameters(terminals=("n", "age_days"))


def test_a_named_start_tunes_the_constants_of_the_default_before_structure():
    """Named functions first, then their form with other floors and neighbourhoods, each once."""
    around = Parameters(population=300, terminals=terminals.RELATED)
    asked = list(Evolution(around, 1).ask())
    first = [form.text for form in start_functions(terminals.RELATED)]
    assert asked[: len(first)] == first
    named = list(dict.fromkeys(named_functions(terminals.RELATED).values()))
    assert first[: len(named)] == named
    polished = [canonical(parse(text)).text for text in polished_functions(terminals.RELATED)]
    assert len(polished) >= 30
    assert set(polished) <= set(first)
    assert {"t * (rate + 0.4) * near", "t * (rate + 0.05) * sqrt(near)"} <= {
        *polished_functions(terminals.RELATED)
    }
    assert not set(polished) & {form.text for form in start_functions(terminals.BASIC)}


SET = primitive_set(terminals.PAPERS)
seeds = st.integers(0, 2**32 - 1)


def a_tree(seed: int, deepest: int = 10) -> Individual:
    """A random tree of any depth up to `deepest`."""
    rng = random.Random(seed)
    with drawing_from(rng):
        return Individual(gp.genGrow(SET, 0, deepest - 1))


def deep_tree(depth: int) -> Individual:
    return individual_of(["exp"] * (depth - 1) + ["t"], SET)


def is_complete(tree: Individual) -> bool:
    """Whether the list of nodes is one complete tree of known operators, terminals and constants."""
    need = 1
    for index, node in enumerate(tree):
        assert need > 0, f"a node after the end, at {index}"
        need += node.arity - 1
        if node.arity:
            assert node.name in FUNCTIONS
            assert node.arity == PRIMITIVES[node.name].arity
        else:
            assert node.value in terminals.PAPERS or node.value in CONSTANTS
    return need == 0


def names(tree: Individual) -> list[str]:
    return [node.name for node in tree]


def test_primitive_set_is_the_papers():
    """The set holds the seven functions, the chosen terminals and the nine constants, and no more."""
    chosen = primitive_set(terminals.BASIC)
    assert [p.name for p in chosen.primitives[object]] == ["+", "-", "*", "/", "log", "exp", "pow"]
    assert [t.value for t in chosen.terminals[object]] == [
        "n", "X", "t", 0.001, 0.01, 0.1, 0.5, 1.0, math.e, 10.0, 100.0, 1000.0,
    ]  # fmt: skip
    assert all(p.arity == PRIMITIVES[p.name].arity for p in chosen.primitives[object])


def test_protected_division_of_the_thesis_is_an_operator_of_the_language():
    """The thesis returns a very large number of the same sign where the journal returns 0."""
    chosen = primitive_set(terminals.BASIC, (), "large")
    assert [p.name for p in chosen.primitives[object]] == ["+", "-", "*", "div", "log", "exp", "pow"]
    columns = {"n": np.array([0.0, 0.0, 0.0, 2.0]), "X": np.array([3.0, -3.0, 0.0, 3.0])}
    assert parse("X / n")(columns).tolist() == [0.0, 0.0, 0.0, 1.5]
    assert parse("div(X, n)")(columns).tolist() == [1e12, -1e12, 1e12, 1.5]


@given(seeds)
def test_tree_and_expression_round_trip(seed):
    """Tree -> expression -> text -> tokens -> tree is the identity, node by node."""
    tree = a_tree(seed)
    expression = expression_of(tree)
    again = parse(expression.text)
    assert again.tokens == expression.tokens
    assert individual_of(again.tokens, SET) == tree


def test_half_and_half_runs_through_the_ramp():
    """Each depth limit from 2 to 6 gets a fifth of the population, half of it full, half grown."""
    rng = random.Random(5)
    depths = Depths()
    with drawing_from(rng):
        trees = [half_and_half(SET, index, depths) for index in range(1000)]
    full = [tree for index, tree in enumerate(trees) if (index // 5) % 2 == 0]
    grown = [tree for index, tree in enumerate(trees) if (index // 5) % 2 == 1]
    assert collections.Counter(tree.depth for tree in full) == dict.fromkeys((2, 3, 4, 5, 6), 100)
    for tree in full:
        depth = tree.depth
        levels = []
        stack = [1]
        for node in tree:
            level = stack.pop()
            stack.extend([level + 1] * node.arity)
            levels += [level] if node.arity == 0 else []
        assert set(levels) == {depth}, "a full tree has all its leaves on the lowest level"
    for index, tree in enumerate(grown):
        assert 2 <= tree.depth <= 2 + index % 5
    assert any(tree.depth < 2 + index % 5 for index, tree in enumerate(grown)), "some stop growing early"
    assert all(is_complete(tree) for tree in trees)


@given(seeds, seeds, seeds)
def test_crossover_makes_a_child_of_both(one_seed, other_seed, seed):
    """The child is `one` with one subtree replaced by a subtree of `other`, whole and within the limit."""
    one, other = a_tree(one_seed), a_tree(other_seed)
    before = names(one), names(other)
    child = crossover(one, other, random.Random(seed), 10)
    assert is_complete(child)
    assert child.depth <= 10
    assert (names(one), names(other)) == before, "the parents stay as they were"
    one_parts = [names(one)[one.searchSubtree(i)] for i in range(len(one))]
    other_parts = [names(other)[other.searchSubtree(i)] for i in range(len(other))]
    assert any(
        names(child) == names(one)[:i] + part + names(one)[i + len(one_parts[i]) :]
        for i in range(len(one))
        for part in other_parts
    ) or names(child) == names(one)


def test_crossover_gives_the_parent_back_when_every_child_is_too_deep():
    """With a limit below both parents no child fits: the first parent comes back, fitness and all."""
    one = deep_tree(10)
    one.fitness = 0.5

    class Deepest(random.Random):
        """Always the last node of `one`, always the root of `other`."""

        def randrange(self, *args: Any) -> int:
            self.odd = not getattr(self, "odd", False)
            return 9 if self.odd else 0

    child = crossover(one, deep_tree(9), Deepest(), 10)
    assert names(child) == names(one)
    assert child.fitness == 0.5


@given(st.sampled_from(sorted(MUTATIONS)), seeds, seeds)
def test_mutations_keep_trees_complete(name, tree_seed, seed):
    """Every mutation gives a whole tree within the depth limit and leaves its argument alone."""
    tree = a_tree(tree_seed)
    before = names(tree)
    child = MUTATIONS[name](tree, SET, random.Random(seed), 10)
    assert is_complete(child)
    assert child.depth <= 10
    assert names(tree) == before


@given(seeds, seeds)
def test_swap_exchanges_subtrees(tree_seed, seed):
    """Swap only moves nodes: the same nodes are there, and the root stays."""
    tree = a_tree(tree_seed)
    child = variation.swap(tree, SET, random.Random(seed), 10)
    assert collections.Counter(names(child)) == collections.Counter(names(tree))
    assert names(child)[0] == names(tree)[0]


def test_swap_needs_two_subtrees_side_by_side():
    """A chain has no two subtrees apart from each other; x - y has."""
    chain = deep_tree(5)
    assert names(variation.swap(chain, SET, random.Random(1), 10)) == names(chain)
    pair = individual_of(["-", "t", "X"], SET)
    assert names(variation.swap(pair, SET, random.Random(1), 10)) == ["-", "X", "t"]


@given(seeds, seeds)
def test_node_replacement_changes_one_node(tree_seed, seed):
    """Exactly one node differs, and the new one has the arity of the old."""
    tree = a_tree(tree_seed)
    child = variation.node(tree, SET, random.Random(seed), 10)
    differing = [(a, b) for a, b in zip(tree, child, strict=True) if a is not b]
    assert len(differing) == 1
    assert differing[0][0].arity == differing[0][1].arity


@given(seeds, seeds)
def test_shrink_puts_a_terminal_for_a_function(tree_seed, seed):
    """One function node with all below it becomes a terminal; a lone terminal stays."""
    tree = a_tree(tree_seed)
    child = variation.shrink(tree, SET, random.Random(seed), 10)
    if len(tree) == 1:
        assert names(child) == names(tree)
        return
    assert len(child) < len(tree)
    assert any(
        names(child)[:i] == names(tree)[:i]
        and names(child)[i + 1 :] == names(tree)[tree.searchSubtree(i).stop :]
        for i, node in enumerate(tree)
        if node.arity
    )


def test_subtree_replacement_reaches_every_node_and_the_depth_limit():
    """At depth 10 the new subtree must fit below its place; every place is hit sooner or later."""
    tree = deep_tree(10)
    rng = random.Random(3)
    children = [variation.subtree(tree, SET, rng, 10) for _ in range(400)]
    assert max(child.depth for child in children) <= 10
    first = (
        next((i for i, (a, b) in enumerate(zip(tree, child, strict=False)) if a is not b), 10)
        for child in children
    )
    assert set(range(9)) <= set(first)


def population(size: int, seed: int = 0) -> list[Individual]:
    """A ramped population with distinct random fitness."""
    rng = random.Random(seed)
    with drawing_from(rng):
        trees = [half_and_half(SET, index, Depths()) for index in range(size)]
    for tree in trees:
        tree.fitness = rng.random()
    return trees


def bred(trees: list[Individual], seed: int, mutations: Sequence[str], **options: Any) -> list[Individual]:
    usual = {"depths": Depths(), "tournament": 2, "elite": 1} | options
    return breed(trees, SET, random.Random(seed), mutations=mutations, **usual)


@pytest.mark.parametrize("name", sorted(OPERATORS))
def test_observed_rates_are_the_declared_ones(name, monkeypatch):
    """6 children of 7 come from a crossover; each mutation strikes 5% of all children (3 sigma)."""
    counts: collections.Counter[str] = collections.Counter()

    def counted(label: str, function: Any) -> Any:
        def call(*args: Any) -> Any:
            counts[label] += 1
            return function(*args)

        return call

    monkeypatch.setattr(variation, "crossover", counted("crossover", crossover))
    for label, mutation in MUTATIONS.items():
        monkeypatch.setitem(MUTATIONS, label, counted(label, mutation))
    trees = population(200)
    children = sum(len(bred(trees, seed, OPERATORS[name])) - 1 for seed in range(20))
    expected = dict.fromkeys(MUTATIONS, 0.0) | dict.fromkeys(OPERATORS[name], 0.05)
    expected["crossover"] = 0.90 / 1.05
    for label, rate in expected.items():
        allowed = 3 * math.sqrt(rate * (1 - rate) / children)
        assert counts[label] / children == pytest.approx(rate, abs=allowed + 1e-12), label


@given(seeds, st.sampled_from(sorted(OPERATORS)), st.integers(0, 3))
def test_generations_stay_within_the_limits(seed, name, elite):
    """Over ten generations: the same size, no tree deeper than 10, the elite on top untouched.

    Depth, expression and canonical form that a tree remembers are those made anew.
    """
    rng = np.random.default_rng(seed)
    trees = population(20, seed)
    for generation in range(10):
        best = sorted(trees, key=lambda tree: tree.fitness, reverse=True)[:elite]
        trees = bred(trees, seed + generation, OPERATORS[name], elite=elite)
        assert len(trees) == 20
        assert all(is_complete(tree) and tree.depth <= 10 for tree in trees)
        assert [(names(a), a.fitness) for a in trees[:elite]] == [(names(b), b.fitness) for b in best]
        for tree, fitness in zip(trees, rng.random(20), strict=True):
            anew = expression_of(tree)
            assert (tree.expression.tokens, tree.expression.text) == (anew.tokens, anew.text)
            assert (tree.form.tokens, tree.form.text) == (canonical(anew).tokens, canonical(anew).text)
            assert tree.depth == tree.height + 1
            tree.fitness = float(fitness)


def test_too_deep_trees_do_not_mate(monkeypatch):
    """A tree deeper than the crossover depth is copied or mutated, but never crossed."""
    deep, shallow = deep_tree(10), individual_of(["t"], SET)
    deep.fitness, shallow.fitness = 1.0, 0.0
    monkeypatch.setattr(variation, "CROSSOVER_SHARE", 1.0)
    children = bred([deep, shallow] * 20, 1, (), elite=0)
    assert {tuple(names(child)) for child in children} == {("t",)}
    assert all(len(child) == 10 for child in bred([deep] * 5, 1, (), elite=0)), "no mates: copies"


@pytest.mark.parametrize("size", [1, 2, 5])
def test_tournament_pressure(size, monkeypatch):
    """The winner of a tournament of s among N has rank quantile u with density s(1-u)^(s-1)."""
    trees = population(200)
    monkeypatch.setattr(variation, "CROSSOVER_SHARE", 0.0)
    ranks = {tree.fitness: rank for rank, tree in enumerate(sorted(trees, key=lambda t: -t.fitness))}
    quantiles = [
        (ranks[child.fitness] + 0.5) / 200
        for seed in range(20)
        for child in bred(trees, seed, (), tournament=size, elite=0)
    ]
    mean = 1 / (size + 1)
    deviation = math.sqrt(size / ((size + 1) ** 2 * (size + 2)))
    assert np.mean(quantiles) == pytest.approx(mean, abs=4 * deviation / math.sqrt(len(quantiles)) + 0.003)


VALUES = np.array(
    [
        *(0.0, -0.0, 1.0, -1.0, 2.0, 3.0, 17.0, 56.0, 0.5, 1 / 3, -0.25, 1e-3, 700.0, 710.0, -750.0, 1e6),
        *(TINY, TINY / 2, -TINY, 5e-324, 1e-300, 1e300, -1e300, LARGE, -LARGE, 0.1 + 0.2, 0.7, 1e16),
    ]
)


def rows(seed: int) -> dict[str, np.ndarray]:
    """200 rows of awkward values for every terminal."""
    rng = np.random.default_rng(seed)
    return {name: rng.choice(VALUES, 200) for name in terminals.PAPERS}


def bits(expression: Expression, columns: dict[str, np.ndarray]) -> np.ndarray:
    """The scores as integers, so that 0.0 and -0.0 differ."""
    return expression(columns, 200).view(np.int64)


numbers = st.one_of(st.floats(allow_nan=False, allow_infinity=False), st.sampled_from(VALUES.tolist()))
programs = st.recursive(
    st.one_of(st.sampled_from(["t", "X"]).map(lambda name: (name,)), numbers.map(lambda x: (x,))),
    lambda inner: st.one_of(
        st.tuples(st.sampled_from(["+", "-", "*", "/", "div", "pow", "min", "max"]), inner, inner).map(
            lambda node: (node[0], *node[1], *node[2])
        ),
        st.tuples(st.sampled_from(["neg", "exp", "log", "sqrt", "abs"]), inner).map(
            lambda node: (node[0], *node[1])
        ),
    ),
    max_leaves=12,
)


@given(programs, st.integers(0, 2**32))
@example(("-", "*", "t", 0.0, "*", "t", -0.0), 0)
@example(("+", "X", "-", -0.0, 0.0), 0)
@example(("-", "X", -0.0), 0)
def test_canonical_form_scores_bit_for_bit_alike(program, seed):
    """On every kind of value, signed zeros and overflow included; it is a fixed point, and never longer."""
    expression = Expression(program)
    form = canonical(expression)
    columns = rows(seed)
    np.testing.assert_array_equal(bits(form, columns), bits(expression, columns))
    assert canonical(form).text == form.text
    assert len(form.tokens) <= len(expression.tokens)
    assert parse(form.text).tokens == form.tokens


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("X * t", "X * t"),
        ("t * X", "X * t"),
        ("10 * t", "t * 10.0"),
        ("(t + X) * n", "n * (X + t)"),
        ("t * 1 / 1 - (3 - 3)", "t"),
        ("1 * (X - X) + t", "t + 0.0"),
        ("log(0.0 - 5) + exp(0)", "1.0"),
        ("t / t", "t / t"),
        ("t * 0", "t * 0.0"),
        ("pow(t, 1)", "pow(t, 1.0)"),
        ("t - X", "t - X"),
        ("t + 0.1 + X", "X + (t + 0.1)"),
        ("t + (0.1 + X)", "t + (X + 0.1)"),
    ],
)
def test_forms(text, form):
    """Commutative operands in order, constants folded, neutral elements gone, nothing regrouped."""
    assert canonical(parse(text)).text == form


BASIC_SET = primitive_set(terminals.BASIC)
RNG = np.random.default_rng(1)
STATES = {"n": RNG.integers(2, 20, 80), "t": RNG.integers(1, 20, 80), "X": RNG.integers(0, 3, 80)}


def order(expression: Expression) -> bytes:
    """The order in which an expression puts the rows, ties included."""
    return np.unique(expression(STATES, 80), return_inverse=True)[1].tobytes()


def test_several_at_once_become_what_each_becomes_alone():
    """Whoever is done is asked no more, and nobody is asked about two candidates at a time."""
    texts = ["exp(t * X) + 1000", "t", "t * X + 0.012345678 * n", "(t + n * 0.0001234) / (1 + 0)"]
    expressions = [parse(text) for text in texts]
    orders = [order(expression) for expression in expressions]
    sizes = []

    def same(asked):
        sizes.append(len(asked))
        return {number: order(one) == orders[number] for number, one in asked.items()}

    alone = [
        simplify(one, lambda other, expected_order=expected_order: order(other) == expected_order)
        for one, expected_order in zip(expressions, orders, strict=True)
    ]
    assert simplify_all(expressions, same) == alone
    assert sizes == sorted(sizes, reverse=True)
    assert (sizes[0], sizes[-1]) == (3, 1)
    assert simplify_all([], same) == []


@pytest.mark.parametrize(
    ("text", "short"),
    [
        ("exp(t * X) + 1000", "X * t"),
        ("0.3678794 * (t * X - 5)", "X * t"),
        ("t", "t"),
        ("t * X + 0.012345678 * n", "X * t + n * 0.01"),
        ("(t + n * 0.0001234) / (1 + 0)", "t + n * 0.0001"),
    ],
)
def test_what_does_not_matter_goes(text, short):
    """Increasing wrappers, factors and digits go where only the order counts."""
    before = order(parse(text))
    if text == "exp(t * X) + 1000":
        before = order(parse("t * X"))
    assert simplify(parse(text), lambda e: order(e) == before).text == short


@given(st.integers(0, 2**32))
def test_never_longer_never_different(seed):
    """On any tree: the same order, no more nodes than before, and at least one terminal."""
    with drawing_from(random.Random(seed)):
        expression = expression_of(gp.genGrow(BASIC_SET, 1, 6))
    if not canonical(expression).terminals:
        return
    before = order(expression)
    after = simplify(expression, lambda e: order(e) == before)
    assert order(after) == before
    assert len(after.tokens) <= len(canonical(expression).tokens)
    assert after.terminals


def test_nothing_goes_that_matters():
    """With a test that accepts nothing, the canonical form comes back."""
    assert simplify(parse("t * X + 0.123"), lambda e: False).text == "0.123 + X * t"
