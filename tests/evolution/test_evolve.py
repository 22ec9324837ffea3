"""The GP4C process: generations, the best kept, elitism, repeatability, continuation."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import random
from collections.abc import Iterable

import numpy as np
import pytest

from scrapy_gp4c.errors import ExpressionError, LearningError
from scrapy_gp4c.scoring import terminals
from scrapy_gp4c.scoring.expression import parse
from training.evolution.evolve import Evolution, EvolutionState, Outcome, Parameters, evolve
from training.evolution.named_start import named_functions, polished_functions, start_functions
from training.evolution.simplification import canonical
from training.evolution.variation import expression_of

X = np.linspace(0.1, 5.0, 60)
COLUMNS = {"n": X, "X": X**2, "t": 1.0 / X}


def closeness(text: str) -> Outcome:
    """How well an expression follows 3 sqrt(n) - X, as something to be learned without any replay."""
    scores = parse(text)(COLUMNS)
    value = -float(np.minimum(np.abs(scores - (3 * np.sqrt(X) - X**2)), 1e6).mean())
    return Outcome(value, hashlib.sha256(scores.tobytes()).hexdigest())


def evaluate(texts: Iterable[str]) -> dict[str, Outcome]:
    """Outcome of every text."""
    return {text: closeness(text) for text in texts}


SMALL = Parameters(population=40, generations=12, best_count=10)


def texts(evolution: Evolution) -> list[str]:
    """The last population as texts."""
    return [expression_of(tree).text for tree in evolution.population]


def test_default_parameters_are_those_of_the_journal():
    """Journal 5.2: 300 individuals, 50 generations, tournament 2, depth 10, crossover to 9, 50 best kept."""
    p = Parameters()
    assert (p.population, p.generations, p.tournament, p.best_count) == (300, 50, 2, 50)
    assert (p.depths.tree, p.depths.crossover, p.operators) == (10, 9, "journal")
    assert p.terminals == ("n", "X", "t")
    assert p.parsimony == 0.0


def test_same_seed_same_run_and_different_seeds_differ():
    """Everything follows from the seed and the run, whatever happens to the global generators."""
    random.seed(1)
    first = evolve(evaluate, SMALL, 7)
    random.seed(2)
    np.random.seed(2)
    assert texts(evolve(evaluate, SMALL, 7)) == texts(first)
    assert evolve(evaluate, SMALL, 7).best_individuals == first.best_individuals
    assert texts(evolve(evaluate, SMALL, 8)) != texts(first)
    assert texts(evolve(evaluate, SMALL, 7, (0, 1))) != texts(first)


def test_the_order_and_surplus_of_outcomes_do_not_matter():
    """A cache may tell more than was asked for, in any order."""
    cache: dict[str, Outcome] = {}

    def cached(wanted: Iterable[str]) -> dict[str, Outcome]:
        for text in reversed([*wanted]):
            cache.setdefault(text, closeness(text))
        return cache

    assert texts(evolve(cached, SMALL, 7)) == texts(evolve(evaluate, SMALL, 7))


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


def test_without_an_elite_the_best_can_fall():
    """The control: what elitism prevents does happen without it."""
    falls = 0
    for seed in range(5):
        best = evolve(evaluate, Parameters(population=40, generations=12, elite=0), seed).best
        falls += any(a > b for a, b in itertools.pairwise(best))
    assert falls


def test_kept_are_the_best_over_all_generations():
    """The N_b best of all that was ever evaluated, best first, no text and no behaviour twice."""
    seen: dict[str, Outcome] = {}

    def watched(wanted: Iterable[str]) -> dict[str, Outcome]:
        seen.update(evaluate(wanted))
        return seen

    evolution = evolve(watched, SMALL, 3)
    behaviours: dict[str, tuple[float, int, str]] = {}
    for text, outcome in seen.items():
        rank = (-outcome.value, len(parse(text).tokens), text)
        behaviours[outcome.behaviour] = min(behaviours.get(outcome.behaviour, rank), rank)
    expected = [rank[2] for rank in sorted(behaviours.values())[:10]]
    assert [kept.text for kept in evolution.best_individuals] == expected
    for kept in evolution.best_individuals:
        assert canonical(parse(kept.text)).text == kept.text
        assert kept.fitness == closeness(kept.text).value
        assert kept.nodes == len(parse(kept.text).tokens)


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
    assert not any("log" in kept.text for kept in evolution.best_individuals)


@pytest.mark.parametrize("stop", [1, 5, 11])
def test_a_restored_run_ends_as_if_never_interrupted(stop):
    """The state goes through JSON after any generation; the rest of the run is the same to the last bit."""
    whole = evolve(evaluate, SMALL, 9, (1, 2))
    evolution = Evolution(SMALL, 9, (1, 2))
    for _ in range(stop):
        evolution.tell(evaluate(evolution.ask()))
    state = EvolutionState.from_json(json.loads(json.dumps(evolution.state().to_json())))
    assert state == evolution.state()
    again = Evolution(SMALL, 9, (1, 2))
    again.restore(state)
    while not again.finished:
        again.tell(evaluate(again.ask()))
    assert again.state() == whole.state()


def test_parsimony_makes_functions_shorter():
    """A price per node: shorter functions, and fitness is value less price."""
    free = evolve(evaluate, SMALL, 2)
    dear = evolve(evaluate, Parameters(population=40, generations=12, best_count=10, parsimony=0.1), 2)
    assert np.mean([k.nodes for k in dear.best_individuals]) < np.mean(
        [k.nodes for k in free.best_individuals]
    )
    for kept in dear.best_individuals:
        assert kept.fitness == closeness(kept.text).value - 0.1 * kept.nodes


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
