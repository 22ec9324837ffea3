"""Genetic operators: what they may and may not do to a tree, and how often they do it."""

from __future__ import annotations

import collections
import math
import random
from typing import Any

import numpy as np
import pytest
from deap import gp
from deap.tools import selection
from hypothesis import given, settings
from hypothesis import strategies as st

from scrapy_gp4c.scoring import terminals
from scrapy_gp4c.scoring.expression import PRIMITIVES, parse
from training.evolution import variation
from training.evolution.simplification import canonical
from training.evolution.variation import (
    CONSTANTS,
    FUNCTIONS,
    MUTATIONS,
    RATES,
    Depths,
    Individual,
    breed,
    crossover,
    drawing_from,
    expression_of,
    half_and_half,
    individual_of,
    primitive_set,
)

SET = primitive_set(terminals.PAPERS)
seeds = st.integers(0, 2**32 - 1)


def a_tree(seed: int, deepest: int = 10) -> Individual:
    """A random tree of any depth up to `deepest`."""
    rng = random.Random(seed)
    with drawing_from(rng):
        return Individual(gp.genGrow(SET, 0, deepest - 1))


def deep_tree(depth: int) -> Individual:
    """A thin tree of exactly this depth."""
    return individual_of(["exp"] * (depth - 1) + ["t"], SET)


def whole(tree: Individual) -> bool:
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
    """Node names in prefix order."""
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


@given(seeds, st.integers(1, 20))
def test_what_a_tree_remembers_is_what_it_is_now(seed, generations):
    """Through copies, crossovers and mutations, depth, expression and canonical form are those made anew."""
    rng = random.Random(seed)
    population = [a_tree(rng.randrange(2**32), 4) for _ in range(6)]
    for _ in range(generations):
        for tree in population:
            anew = expression_of(tree)
            assert (tree.expression.tokens, tree.expression.text) == (anew.tokens, anew.text)
            assert (tree.form.tokens, tree.form.text) == (canonical(anew).tokens, canonical(anew).text)
            assert tree.depth == tree.height + 1
            tree.fitness = rng.random()
        rates = RATES["journal"]._replace(mutations=tuple((name, 0.2) for name in MUTATIONS))
        population = breed(population, SET, rng, rates=rates, depths=Depths(), tournament=2, elite=1)


def test_depth_counts_nodes():
    """A terminal has depth 1, a function of terminals depth 2."""
    assert individual_of(["t"], SET).depth == 1
    assert individual_of(["*", "t", "X"], SET).depth == 2


def test_depth_is_that_of_the_nodes_there_are_now():
    """A tree that was asked before it was changed tells its new depth, and a copy its own."""
    primitives = variation.primitive_set(terminals.BASIC)
    tree, leaf = (
        variation.individual_of(parse(text).tokens, primitives) for text in ("log(exp(t)) * X", "n")
    )
    assert tree.depth == 4
    copy = Individual(tree)
    copy[copy.searchSubtree(1)] = leaf
    assert (copy.depth, tree.depth) == (2, 4)
    copy[0:3] = tree
    assert copy.depth == 4


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
    assert all(whole(tree) for tree in trees)


@settings(max_examples=300)
@given(seeds, seeds, seeds)
def test_crossover_makes_a_child_of_both(one_seed, other_seed, seed):
    """The child is `one` with one subtree replaced by a subtree of `other`, whole and within the limit."""
    one, other = a_tree(one_seed), a_tree(other_seed)
    before = names(one), names(other)
    child = crossover(one, other, random.Random(seed), 10)
    assert whole(child)
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


@settings(max_examples=300)
@given(st.sampled_from(sorted(MUTATIONS)), seeds, seeds)
def test_mutations_keep_trees_whole(name, tree_seed, seed):
    """Every mutation gives a whole tree within the depth limit and leaves its argument alone."""
    tree = a_tree(tree_seed)
    before = names(tree)
    child = MUTATIONS[name](tree, SET, random.Random(seed), 10)
    assert whole(child)
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


def bred(trees: list[Individual], seed: int, rates: Any, **options: Any) -> list[Individual]:
    """One generation with the usual options."""
    usual = {"depths": Depths(), "tournament": 2, "elite": 1} | options
    return breed(trees, SET, random.Random(seed), rates=rates, **usual)


@pytest.mark.parametrize("name", sorted(RATES))
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
    children = sum(len(bred(trees, seed, RATES[name])) - 1 for seed in range(20))
    expected = dict.fromkeys(MUTATIONS, 0.0) | dict(RATES[name].mutations)
    expected["crossover"] = 0.90 / 1.05
    for label, rate in expected.items():
        allowed = 3 * math.sqrt(rate * (1 - rate) / children)
        assert counts[label] / children == pytest.approx(rate, abs=allowed + 1e-12), label


def test_rates_are_the_papers():
    """90% crossover, 15% reproduction, 5% of each mutation; swap and replacement, or node and shrink."""
    for name, mutations in (("journal", {"swap", "subtree"}), ("thesis", {"node", "shrink"})):
        assert (RATES[name].crossover, RATES[name].reproduction) == (0.90, 0.15)
        assert dict(RATES[name].mutations) == dict.fromkeys(mutations, 0.05)


@settings(max_examples=30, deadline=None)
@given(seeds, st.sampled_from(sorted(RATES)), st.integers(0, 3))
def test_generations_stay_within_the_limits(seed, name, elite):
    """Over ten generations: the same size, no tree deeper than 10, the elite on top untouched."""
    rng = np.random.default_rng(seed)
    trees = population(20, seed)
    for generation in range(10):
        best = sorted(trees, key=lambda tree: tree.fitness, reverse=True)[:elite]
        trees = bred(trees, seed + generation, RATES[name], elite=elite)
        assert len(trees) == 20
        assert all(whole(tree) and tree.depth <= 10 for tree in trees)
        assert [(names(a), a.fitness) for a in trees[:elite]] == [(names(b), b.fitness) for b in best]
        for tree, fitness in zip(trees, rng.random(20), strict=True):
            tree.fitness = float(fitness)


def test_too_deep_trees_do_not_mate():
    """A tree deeper than the crossover depth is copied or mutated, but never crossed."""
    deep, shallow = deep_tree(10), individual_of(["t"], SET)
    deep.fitness, shallow.fitness = 1.0, 0.0
    only_crossover = variation.Rates(1.0, 0.0, ())
    children = bred([deep, shallow] * 20, 1, only_crossover, elite=0)
    assert {tuple(names(child)) for child in children} == {("t",)}
    assert all(len(child) == 10 for child in bred([deep] * 5, 1, only_crossover, elite=0)), "no mates: copies"


@pytest.mark.parametrize("size", [1, 2, 5])
def test_tournament_pressure(size):
    """The winner of a tournament of s among N has rank quantile u with density s(1-u)^(s-1)."""
    trees = population(200)
    only_copies = variation.Rates(0.0, 1.0, ())
    ranks = {tree.fitness: rank for rank, tree in enumerate(sorted(trees, key=lambda t: -t.fitness))}
    quantiles = [
        (ranks[child.fitness] + 0.5) / 200
        for seed in range(20)
        for child in bred(trees, seed, only_copies, tournament=size, elite=0)
    ]
    mean = 1 / (size + 1)
    deviation = math.sqrt(size / ((size + 1) ** 2 * (size + 2)))
    assert np.mean(quantiles) == pytest.approx(mean, abs=4 * deviation / math.sqrt(len(quantiles)) + 0.003)


def test_global_random_is_neither_used_nor_moved():
    """Breeding gives the same whatever the global generator does, and leaves it where it was."""
    random.seed(1)
    state = random.getstate()
    first = bred(population(50), 7, RATES["journal"])
    assert random.getstate() == state
    random.seed(2)
    second = bred(population(50), 7, RATES["journal"])
    assert [names(tree) for tree in first] == [names(tree) for tree in second]
    assert [names(tree) for tree in first] != [names(t) for t in bred(population(50), 8, RATES["journal"])]
    assert gp.random is random
    assert selection.random is random
