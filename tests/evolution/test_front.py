"""Evolution with two objectives, and the choice in a front."""

import dataclasses
import hashlib
import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scrapy_gp4c.scoring.expression import parse
from tests.support.evolution import evolve
from training.evolution.choices import Choices, prepare_splits
from training.evolution.evolve import (
    BestIndividual,
    Outcome,
    Parameters,
    expression_of,
)
from training.evolution.front import (
    AGE,
    MOST_MEMBERS,
    PREFERENCES,
    FrontEvolution,
    choose_of_front,
    crowded_order,
    undominated,
)
from training.evolution.selection import (
    GUARDED,
    NAMED_RUN,
    RULES,
    SELECTIONS,
    Pairs,
    SelectionGoal,
    promotion_test,
)
from training.evolution.workers import PreparedSplit
from training.histories.models import generate
from training.replaying.replay import run as replay

X = np.linspace(0.1, 5.0, 60)
COLUMNS = {"n": X, "X": X**2, "t": 1.0 / X}
SMALL = Parameters(population=30, generations=8, best_count=10)
PAIRS = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=1, max_size=24)


def dominates(one: tuple[float, float], other: tuple[float, float]) -> bool:
    return one != other and one[0] >= other[0] and one[1] >= other[1]


def fronts(values: set[tuple[float, float]]) -> list[set[tuple[float, float]]]:
    """Deb's fronts of different values, straight from the definition."""
    results = []
    remaining = set(values)
    while remaining:
        results.append({one for one in remaining if not any(dominates(other, one) for other in remaining)})
        remaining -= results[-1]
    return results


@given(PAIRS)
def test_undominated_is_what_nothing_dominates_each_value_once(values):
    """The first of equals stands for all of them."""
    expected = [
        index
        for index, one in enumerate(values)
        if not any(dominates(other, one) for other in values) and values.index(one) == index
    ]
    assert undominated(values) == expected


@given(PAIRS, st.integers(1, 24))
def test_the_order_is_by_front_then_by_room_and_equals_come_last(values, count):
    """Different values come front by front, the ends of each front first; only then what repeats a value."""
    order = crowded_order(values, count)
    assert len(order) == len(set(order)) == min(count, len(values))
    different = set(values)
    firsts = order[: len(different)]
    assert len({values[index] for index in firsts}) == len(firsts)
    assert all(values.index(values[index]) == index for index in firsts)
    position = {value: number for number, front in enumerate(fronts(different)) for value in front}
    numbers = [position[values[index]] for index in firsts]
    assert numbers == sorted(numbers)
    for number, front in enumerate(fronts(different)):
        chosen = [values[index] for index in firsts if position[values[index]] == number]
        if len(chosen) >= 2:
            assert set(chosen[:2]) == {min(front), max(front)}


def closeness(text: str) -> Outcome:
    """How near an expression is to 3 sqrt(n), and to X: no expression is near both."""
    scores = parse(text)(COLUMNS)
    near = [-float(np.minimum(np.abs(scores - wanted), 1e6).mean()) for wanted in (3 * np.sqrt(X), X**2)]
    return Outcome(near[0], hashlib.sha256(scores.tobytes()).hexdigest(), near[1])


def evaluate(texts: Iterable[str]) -> dict[str, Outcome]:
    return {text: closeness(text) for text in texts}


def run(parameters: Parameters = SMALL, seed: int = 3) -> FrontEvolution:
    evolution = FrontEvolution(parameters, seed)
    while not evolution.finished:
        evolution.tell(evaluate(evolution.ask()))
    return evolution


def test_it_comes_to_both_ends_and_keeps_what_lies_between():
    """Of everything seen, what nothing dominates is kept, no behaviour twice; X itself is found."""
    seen: dict[str, Outcome] = {}
    evolution = FrontEvolution(Parameters(population=60, generations=12, best_count=25), 3)
    while not evolution.finished:
        seen |= evaluate(evolution.ask())
        evolution.tell(seen)
    best = {(one.value, one.second) for one in seen.values()}
    front = fronts(best)[0]
    individual = [(seen[one.text].value, seen[one.text].second) for one in evolution.best_individuals]
    assert len(front) > 2
    assert set(individual[: len(front)]) == front or front > set(individual)
    assert len({one.behaviour for one in evolution.best_individuals}) == len(evolution.best_individuals)
    assert max(second for _, second in individual) > -1e-9
    alone = evolve(evaluate, Parameters(population=60, generations=12), 3)
    assert max(first for first, _ in individual) > alone.best[0], "better than a first generation"
    assert evolution.best_so_far == max(first for first, _ in individual)


def test_the_front_never_falls_back():
    """Parents compete with their children: what a generation has, no later one is without."""
    evolution = FrontEvolution(SMALL, 5)
    before: list[tuple[float, float]] = []
    while not evolution.finished:
        evolution.tell(evaluate(evolution.ask()))
        outcomes = [closeness(expression_of(tree).text) for tree in evolution.population]
        now = [(one.value, one.second) for one in outcomes]
        for one in fronts(set(before))[0] if before else ():
            assert one in now or any(dominates(other, one) for other in now)
        before = now
        assert len(now) == SMALL.population


def test_it_asks_for_children_alone_unless_it_was_restored():
    """What competes with them is known; asking twice gives the same."""
    evolution = FrontEvolution(SMALL, 3)
    evolution.tell(evaluate(evolution.ask()))
    asked = evolution.ask()
    assert evolution.ask() == asked
    assert len(asked) <= SMALL.population
    other = FrontEvolution(SMALL, 3)
    evolution = run()
    other.restore(evolution.state())
    assert set(other.ask()) >= {individual.text for individual in evolution.best_individuals}


@pytest.mark.parametrize("missing", ["value", "second"])
def test_what_has_no_value_in_one_objective_is_worst(missing):
    """NaN is a value of neither; such individuals are bred from last and never kept."""

    def spoiled(texts: Iterable[str]) -> dict[str, Outcome]:
        return {
            text: one._replace(**{missing: math.nan}) if "log" in text else one
            for text, one in evaluate(texts).items()
        }

    evolution = FrontEvolution(SMALL, 2)
    while not evolution.finished:
        evolution.tell(spoiled(evolution.ask()))
    assert evolution.best_individuals
    assert not any("log" in individual.text for individual in evolution.best_individuals)


def test_a_price_of_nodes_shortens_the_front():
    """Parsimony counts in both objectives."""
    free, priced = run(), run(Parameters(population=30, generations=8, best_count=10, parsimony=0.05))
    mean = [
        np.mean([individual.nodes for individual in evolution.best_individuals])
        for evolution in (free, priced)
    ]
    assert mean[1] < mean[0]


HISTORY = generate("brdc12-like", 900, 36, 3)
TEXTS = ["t * X", "cg", "nad_rate", "X - n", "t * (X + 0.5)", "log(t + 1)", "t * X + t", "cg * t", "n"]
CHOICES = Choices(
    front=True, budget=0.1, forget=0.1, selection=GUARDED, parameters=Parameters(terminals=("n", "X", "cg"))
)


def parts_of(choices: Choices = CHOICES) -> PreparedSplit:
    return prepare_splits(HISTORY, choices)[0]


def individual(texts: list[str]) -> list[BestIndividual]:
    """What a run kept, behaviour and values as if measured."""
    return [BestIndividual(text, 0.5, 0.0, text, len(parse(text).tokens)) for text in texts]


def choose(texts: list[str], parts: PreparedSplit, goal: SelectionGoal, prefer: str, **options: Any) -> Any:
    """Candidates and front of the functions that a run has recorded."""

    def values(asked: list[str]) -> Pairs:
        return list(zip(*(goal.values(part, asked) for part in parts[:2]), strict=True))

    return choose_of_front([individual(texts)], parts, goal, prefer, values, **options)


def means(text: str, parts: PreparedSplit, choices: Choices) -> dict[str, list[list[float]]]:
    """Metric -> values per cycle in training (the mean over the draws) and in validation."""
    results = {}
    for metric in ("ndcg", "freshness"):
        rows = [
            getattr(replay(part, text, clock=choices.clock, policy=choices.goal.policy_of(text)), metric)
            for part in (parts.training, *parts.draws, parts.validation)
        ]
        results[metric] = [np.mean(rows[:-1], axis=0), rows[-1]]
    return results


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("prefer", PREFERENCES)
def test_preferences_are_the_rule_on_their_objective_among_those_that_stand(rule, prefer):
    """``balanced`` asks for the freshness of plain age in training and in validation; age is a candidate."""
    choices = dataclasses.replace(CHOICES, selection=rule, prefer=prefer)
    parts = parts_of(choices)
    chosen, members = choose(TEXTS, parts, choices.goal_on(parts.training), prefer)
    named = list(dict.fromkeys((*choices.goal_on(parts.training).named, AGE)))
    known = {text: means(text, parts, choices) for text in dict.fromkeys((*TEXTS, *named))}
    least = [row.mean() if prefer == "balanced" else -1.0 for row in known[AGE]["freshness"]]
    standing = [
        text
        for text, values in known.items()
        if all(row.mean() >= bound for row, bound in zip(values["freshness"], least, strict=True))
    ]
    assert AGE in standing
    metric = "freshness" if prefer == "freshness" else "ndcg"
    pairs = {text: tuple(known[text][metric]) for text in standing}
    if rule == GUARDED:
        fall_back = max(
            (text for text in named if text in pairs), key=lambda text: sum(row.mean() for row in pairs[text])
        )
        best = promotion_test([*pairs.values()], standing.index(fall_back))
        value = pairs[standing[best]][0].mean()
    else:
        value = max(SELECTIONS[rule](*pair) for pair in pairs.values())
    shown = means(chosen.text, parts, choices)[metric]
    if rule == GUARDED:
        assert shown[0].mean() == pytest.approx(value, abs=1e-12)
    else:
        assert SELECTIONS[rule](*shown) == pytest.approx(value, abs=1e-12)
    assert chosen.text in [member.text for member in members]


def test_members_are_what_nothing_dominates_in_the_means_of_both_parts():
    """The most of the first objective first; training and validation weigh the same."""
    parts = parts_of()
    chosen, members = choose(TEXTS, parts, CHOICES.goal_on(parts.training), "changes")
    points = {}
    for text in (*TEXTS, *CHOICES.goal_on(parts.training).named, AGE):
        values = means(text, parts, CHOICES)
        points[text] = tuple(np.mean([row.mean() for row in values[m]]) for m in ("ndcg", "freshness"))
    best = {
        point
        for point in points.values()
        if not any(other != point and min(np.subtract(other, point)) >= 0 for other in points.values())
    }
    shown = {member.values for member in members if member.text != chosen.text}
    assert shown <= best
    assert len(best) - len(shown) <= 1
    assert [member.values[0] for member in members] == sorted(
        (member.values[0] for member in members), reverse=True
    )
    assert len(members) <= MOST_MEMBERS + 1


def test_named_functions_are_candidates_and_say_so():
    """A run that found nothing good loses to a named function, whose run is none."""
    parts = parts_of()
    chosen, members = choose(["0.0 - t"], parts, CHOICES.goal_on(parts.training), "changes")
    assert chosen.text in CHOICES.goal.named
    assert chosen.run == NAMED_RUN
    assert {member.run for member in members} == {NAMED_RUN}


def test_without_anything_as_fresh_as_age_balanced_takes_age():
    """It is always there to be taken."""
    parts = parts_of()
    chosen, _ = choose(["0.0 - t"], parts, CHOICES.goal._replace(named=()), "balanced")
    assert chosen.text == AGE


def test_what_is_not_allowed_is_not_taken_unless_nothing_else_stands():
    """The filter of a promotion concerns what is taken, not the front."""
    parts = parts_of()
    pick, goal = {"prefer": "changes"}, CHOICES.goal_on(parts.training)
    every, shown = choose(TEXTS, parts, goal, **pick)
    others = choose(TEXTS, parts, goal, allow=lambda texts: {"n"}, **pick)
    assert every.text != "n"
    assert others[0].text == "n"
    assert {one.text for one in shown} - {every.text} <= {one.text for one in others[1]}
    none, _ = choose(TEXTS, parts, goal, allow=lambda texts: set(), **pick)
    assert none.text == every.text
