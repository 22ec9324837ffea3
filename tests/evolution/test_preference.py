"""Which function of a front is taken: every preference against a plain statement of its rule."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from scrapy_gp4c.scoring.expression import parse
from training.evolution.choices import Choices, arrange
from training.evolution.evolve import BestIndividual, Parameters
from training.evolution.fitness import PreparedSplit
from training.evolution.front import AGE, MOST_MEMBERS, PREFERENCES, choose_of_front
from training.evolution.selection import GUARDED, NAMED_RUN, RULES, SELECTIONS, guarded
from training.histories.models import generate
from training.replaying.replay import run

HISTORY = generate("brdc12-like", 900, 36, 3)
TEXTS = ["t * X", "cg", "nad_rate", "X - n", "t * (X + 0.5)", "log(t + 1)", "t * X + t", "cg * t", "n"]
CHOICES = Choices(
    front=True, budget=0.1, forget=0.1, selection=GUARDED, parameters=Parameters(terminals=("n", "X", "cg"))
)


def parts_of(choices: Choices = CHOICES) -> PreparedSplit:
    """The history prepared."""
    return arrange(HISTORY, choices)[0]


def kept(texts: list[str]) -> list[BestIndividual]:
    """What a run kept, behaviour and values as if measured."""
    return [BestIndividual(text, 0.5, 0.0, text, len(parse(text).tokens)) for text in texts]


def means(text: str, parts: PreparedSplit, choices: Choices) -> dict[str, list[list[float]]]:
    """Metric -> values per cycle in training (the mean over the draws) and in validation."""
    found = {}
    for metric in ("ndcg", "freshness"):
        rows = [
            getattr(run(part, text, clock=choices.clock, policy=choices.policy), metric)
            for part in (parts.training, *parts.draws, parts.validation)
        ]
        found[metric] = [np.mean(rows[:-1], axis=0), rows[-1]]
    return found


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("prefer", PREFERENCES)
def test_preferences_are_the_rule_on_their_objective_among_those_that_stand(rule, prefer):
    """``balanced`` asks for the freshness of plain age in training and in validation; age is a candidate."""
    choices = dataclasses.replace(CHOICES, selection=rule, prefer=prefer)
    parts = parts_of(choices)
    chosen, members = choose_of_front([kept(TEXTS)], parts, choices.goal, prefer)
    known = {text: means(text, parts, choices) for text in (*TEXTS, AGE)}
    named = ["n", "cg", AGE]  # the named functions of these terminals, and age
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
        references = [pairs[text][1] for text in named if text in ("cg", AGE) and text in pairs]
        nodes = [len(parse(text).tokens) for text in standing]
        best = guarded([*pairs.values()], references, nodes)
        value = pairs[standing[best]][0].mean()
        alike = [text for text in standing if nodes[standing.index(text)] == nodes[best]]
        assert any(np.isclose(pairs[text][0].mean(), value) for text in alike)
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
    chosen, members = choose_of_front([kept(TEXTS)], parts, CHOICES.goal, "changes")
    points = {}
    for text in (*TEXTS, "cg", AGE):
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
    chosen, members = choose_of_front([kept(["0.0 - t"])], parts, CHOICES.goal, "changes")
    assert (chosen.text, chosen.run) == ("cg", NAMED_RUN)
    assert {member.run for member in members} == {NAMED_RUN}


def test_without_anything_as_fresh_as_age_balanced_takes_age():
    """It is always there to be taken."""
    parts = parts_of()
    chosen, _ = choose_of_front([kept(["0.0 - t"])], parts, CHOICES.goal._replace(named=()), "balanced")
    assert chosen.text == AGE


def test_what_is_not_allowed_is_not_taken_unless_nothing_else_stands():
    """The filter of a promotion concerns what is taken, not the front."""
    parts = parts_of()
    pick = {"prefer": "changes"}
    every, shown = choose_of_front([kept(TEXTS)], parts, CHOICES.goal, **pick)
    others = choose_of_front([kept(TEXTS)], parts, CHOICES.goal, allow=lambda texts: {"n"}, **pick)
    assert every.text != "n"
    assert others[0].text == "n"
    assert {one.text for one in shown} - {every.text} <= {one.text for one in others[1]}
    none, _ = choose_of_front([kept(TEXTS)], parts, CHOICES.goal, allow=lambda texts: set(), **pick)
    assert none.text == every.text
