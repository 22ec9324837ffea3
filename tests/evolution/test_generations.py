"""Searches of several folds: each goes on by itself, and what is told and saved is of all of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest

from tests.evolution.test_evolve import SMALL, evaluate
from training.evolution.evolve import Evolution, EvolutionState, Outcome, evolve
from training.evolution.learning import evolve_all
from training.evolution.workers import EvaluationRequest

SEEDS = 2


class Unfair:
    """Answers what is on the first fold at once, and others when there is nothing else to do."""

    run_by_run = False

    def __init__(self, most: int) -> None:
        """``most``: requests that are answered before somebody presses Ctrl-C."""
        self.known: list[dict[str, Outcome]] = [{}, {}]
        self.answered: list[int] = []
        self._most = most

    def evaluate(
        self, requests: Iterable[EvaluationRequest | None], advance: Callable[[int, int], None]
    ) -> None:
        """As `training.evolution.workers.Evaluator.evaluate`."""
        waiting: list[EvaluationRequest] = []
        for request in requests:
            assert request is not None or waiting, "nobody waits for anything"
            waiting += [request] if request is not None else []
            ready = [one for one in waiting if one[0] == 0 or request is None]
            waiting = [one for one in waiting if one not in ready]
            for number, functions in ready:
                self.known[number] |= evaluate(functions)
                self.answered.append(number)
                advance(number, len(functions))
                if len(self.answered) == self._most:
                    raise KeyboardInterrupt


class Told:
    """A watch and a checkpoint that keep what they are told."""

    states = None

    def __init__(self) -> None:
        """Nothing yet."""
        self.saved: list[list[EvolutionState]] = []
        self.texts: Counter[int] = Counter()
        self.bests: list[Sequence[float]] = []

    def generation(self, number: int, asked: int) -> None:
        """Of the watch."""
        assert asked == 2 * SEEDS * SMALL.population
        self.number = number

    def advance(self, texts: int) -> None:
        """Of the watch."""
        self.texts[self.number] += texts

    def best(self, fitness: Sequence[float]) -> None:
        """Of the watch."""
        self.bests.append(fitness)

    def save(self, states: list[EvolutionState]) -> None:
        """Of the checkpoint."""
        self.saved.append(states)


def search(most: int = -1) -> tuple[list[Evolution], Unfair, Told]:
    """Two folds of two runs, evolved."""
    runs = [Evolution(SMALL, 1, (fold, number)) for fold in range(2) for number in range(SEEDS)]
    evaluator: Any = Unfair(most)
    told: Any = Told()
    evolve_all(runs, SEEDS, evaluator, told, told)
    return runs, evaluator, told


def test_a_fold_waits_for_no_other():
    """One that is answered at once is through before the other's second generation; both end as if alone."""
    runs, evaluator, told = search()
    generations = SMALL.generations
    assert evaluator.answered == [0] * SEEDS * generations + [1] * SEEDS * generations
    alone = [evolve(evaluate, SMALL, 1, (fold, number)) for fold in range(2) for number in range(SEEDS)]
    assert [run.state() for run in runs] == [run.state() for run in alone]
    assert [{state.generation for state in states} for states in told.saved] == [
        {number} for number in range(1, generations + 1)
    ]
    assert told.saved[-1] == [run.state() for run in alone]
    assert [max(best) for best in told.bests] == [
        max(max(run.best[: number + 1]) for run in alone) for number in range(generations)
    ]


def test_what_is_done_ahead_counts_for_its_generation():
    """Progress of each generation is that of its own texts, whoever was evaluated when."""
    _, _, told = search()
    asked: Counter[int] = Counter()
    for fold in range(2):
        for number in range(SEEDS):
            run = Evolution(SMALL, 1, (fold, number))
            while not run.finished:
                functions = run.ask()
                asked[run.generation + 1] += len(functions)
                run.tell(evaluate(functions))
    assert told.texts == asked


@pytest.mark.parametrize("most", [30, 33])
def test_stopped_while_folds_are_apart_it_is_back_where_all_were(most):
    """Ctrl-C: the last generation that all completed is saved again, and what the runs are."""
    runs, _, told = search(most)
    assert SEEDS * SMALL.generations < most, "the second fold is under way"
    done = (most - SEEDS * SMALL.generations - 1) // SEEDS
    assert {run.generation for run in runs} == {done}
    assert told.saved[-1] == told.saved[-2] == [run.state() for run in runs]
