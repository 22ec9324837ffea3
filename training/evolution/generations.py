"""All runs of a search, fold by fold in step: generation by generation, sharing workers."""

from __future__ import annotations

import gc
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from scrapy_gp4c.scoring.expression import Expression
from training.evolution.checkpoint import Checkpoint
from training.evolution.evolve import Evolution, State
from training.evolution.workers import Evaluator, Request


class Watch(Protocol):
    """What learning tells while it goes on."""

    def generation(self, number: int, asked: int) -> None:
        """Generation `number` (from 1) begins: so many individuals may need an evaluation."""

    def advance(self, texts: int) -> None:
        """So many of them are done."""

    def begun(self, fitness: float) -> None:
        """The first run has its first generation, others still wait for theirs: its best fitness."""

    def best(self, fitness: Sequence[float]) -> None:
        """The generation is done; the best fitness so far of every run."""


def evolve_all(
    evolutions: Sequence[Evolution],
    seeds: int,
    evaluator: Evaluator,
    checkpoint: Checkpoint | None,
    watch: Watch | None,
) -> None:
    """All generations of every run, or those until Ctrl-C."""
    states = None if checkpoint is None else checkpoint.states
    _restore(evolutions, states)
    folds = [evolutions[begin : begin + seeds] for begin in range(0, len(evolutions), seeds)]
    search = _Search(folds, evaluator, checkpoint, watch)
    try:
        evaluator.evaluate(search.requests(), search.advance)
    except KeyboardInterrupt:
        states = search.complete or states
        if states is None:
            raise
        # Whatever was interrupted, a half-told generation or the saving: back to the last complete one.
        _restore(evolutions, states)
        if checkpoint is not None:
            checkpoint.save(states)
    finally:
        gc.unfreeze()


def _restore(evolutions: Sequence[Evolution], states: Sequence[State] | None) -> None:
    if states is not None:
        for evolution, state in zip(evolutions, states, strict=True):
            evolution.restore(state)


class _Search:
    """What runs ask for, and what becomes of it.

    The runs of a fold are in step: what they ask for together is replayed together. Folds have nothing in
    common, so that workers evaluate others while one is bred, and none waits for a generation to end.
    """

    def __init__(
        self,
        folds: Sequence[Sequence[Evolution]],
        evaluator: Evaluator,
        checkpoint: Checkpoint | None,
        watch: Watch | None,
    ) -> None:
        self.complete: list[State] | None = None
        """What the runs were after the last generation that all of them have completed."""
        self._folds = folds
        self._evaluator = evaluator
        self._checkpoint = checkpoint
        self._watch = watch
        first = folds[0][0]
        self._runs = sum(map(len, folds))
        self._number = first.generation + 1
        """Of the first generation that some have yet to complete."""
        self._last = first.parameters.generations
        self._asked: dict[Evolution, Mapping[str, Expression]] = {}
        """By run that waits for outcomes."""
        self._states: dict[int, dict[Evolution, State]] = defaultdict(dict)
        """By number of a generation that some have completed."""
        self._best: dict[int, list[float]] = defaultdict(list)
        """Likewise: the best fitness so far."""
        self._done: Counter[int] = Counter()
        """Texts of generations to come."""

    def requests(self) -> Iterator[Request | None]:
        """Yield what runs ask for; None while all wait for outcomes."""
        self._begin()
        while self._number <= self._last:
            are_waiting = True
            for number, runs in enumerate(self._folds):
                for run in runs:
                    if self._is_told(number, run):
                        self._close(number, run)
                        if not run.finished:
                            run.ask()  # bred while workers evaluate others
                if not runs[0].finished and self._asked.keys().isdisjoint(runs):
                    are_waiting = False
                    for run in runs:
                        self._asked[run] = run.ask()
                        yield number, self._asked[run]
            if are_waiting and self._number <= self._last:
                yield None

    def _is_told(self, number: int, run: Evolution) -> bool:
        return run in self._asked and self._evaluator.known[number].keys() >= self._asked[run].keys()

    def _begin(self) -> None:
        """The next generation is under way: tell of it."""
        gc.freeze()  # trees and outcomes stay: to look for garbage among them takes a tenth of the time
        if self._watch is not None and self._number <= self._last:
            self._watch.generation(self._number, self._runs * self._folds[0][0].parameters.population)
            self._watch.advance(self._done.pop(self._number, 0))

    def _close(self, number: int, run: Evolution) -> None:
        """A run has all outcomes that it asked for; with the last of them, the generation is complete."""
        run.tell(self._evaluator.known[number])
        del self._asked[run]
        states = self._states[run.generation]
        states[run] = run.state()
        if run.kept:
            self._best[run.generation].append(run.best_so_far)
        if len(states) < self._runs:
            return
        self.complete = [states[one] for runs in self._folds for one in runs]
        del self._states[run.generation]
        best = self._best.pop(run.generation, [])
        if self._watch is not None:
            self._watch.best(best)
        if self._checkpoint is not None:
            self._checkpoint.save(self.complete)
        self._number += 1
        self._begin()

    def advance(self, number: int, texts: int) -> None:
        """So many texts of a fold are evaluated."""
        if self._watch is not None:
            generation = 1 + min(run.generation for run in self._folds[number])
            if generation == self._number:
                self._watch.advance(texts)
            else:
                self._done[generation] += texts
        first = self._folds[0][0]
        if self._evaluator.run_by_run and first.generation == 0 and self._is_told(0, first):
            self._close(0, first)  # others of its fold may have long to wait
            if self._watch is not None and first.kept and self._number == first.generation:
                self._watch.begun(first.best_so_far)
