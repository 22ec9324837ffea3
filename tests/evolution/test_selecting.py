"""Selecting on workers: what it gives is what this process finds by itself, and nothing is replayed twice."""

from __future__ import annotations

import pytest

from training.evolution import selection
from training.evolution.choices import Choices, arrange
from training.evolution.evolve import Evolution, Parameters
from training.evolution.selection import FoldPick, FoldValues
from training.evolution.workers import Evaluator, workers
from training.histories.models import generate

CHOICES = Choices(
    protocol="journal",
    budget=0.2,
    parameters=Parameters(population=40, generations=3, kept=8),
)


@pytest.mark.parametrize("jobs", [1, 2])
def test_what_workers_select_is_what_this_process_selects(jobs):
    """By every rule and in every fold: the same text, run and value; a second rule replays nothing anew."""
    folds = arrange(generate("poisson", 400, 30, 3), CHOICES)
    goal = CHOICES.goal
    with workers(jobs) as pool:
        sets = [parts.training for parts in folds] + [parts.validation for parts in folds]
        evaluator = Evaluator(sets, CHOICES.measure, CHOICES.clock, pool)
        runs = []
        for fold in range(len(folds)):
            evolution = Evolution(CHOICES.parameters, 1, (fold, 0))
            while not evolution.finished:
                evaluator.evaluate([(fold, evolution.ask())])
                evolution.tell(evaluator.known[fold])
            runs.append([evolution.kept])
        selecting = FoldValues(evaluator, len(folds))
        picks, replays = [], []
        for rule in selection.SELECTIONS:
            for fold, parts in enumerate(folds):
                picked = selection.pick(
                    runs[fold],
                    parts,
                    goal._replace(rule=rule),
                    lambda texts, fold=fold: selecting.pairs(fold, texts),
                )
                picks.append(FoldPick(fold, picked))
            replays.append(evaluator.replays)
        assert replays[0] < replays[1] == replays[2]
        chosen = selecting.chosen(picks)
    expected = [
        selection.choose(runs[fold], parts, goal._replace(rule=rule))
        for rule in selection.SELECTIONS
        for fold, parts in enumerate(folds)
    ]
    assert chosen == expected
    assert any(len(one.text) < len(pick.picked.text) for one, pick in zip(chosen, picks, strict=True))
