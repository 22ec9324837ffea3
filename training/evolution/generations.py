"""All runs of a search advance in step: generation by generation, sharing workers."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from typing import Protocol

from training.evolution.checkpoint import Checkpoint
from training.evolution.evolve import Evolution, State
from training.evolution.workers import Evaluator


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
    try:
        while not evolutions[0].finished:
            gc.freeze()  # trees and outcomes stay: to look for garbage among them takes a tenth of the time
            states = _generation(evolutions, seeds, evaluator, watch)
            if checkpoint is not None:
                checkpoint.save(states)
    except KeyboardInterrupt:
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


def _generation(
    evolutions: Sequence[Evolution], seeds: int, evaluator: Evaluator, watch: Watch | None
) -> list[State]:
    """Breed and evaluate one generation of every run; returns what the runs are then.

    Workers evaluate one run while the next is bred. While they evaluate the last ones, those that are done
    are bred on.
    """
    first, number = evolutions[0], evolutions[0].generation
    if watch is not None:
        watch.generation(number + 1, len(evolutions) * first.parameters.population)
    asked: list[list[str]] = []
    states: dict[int, State] = {}

    def requests() -> Iterator[tuple[int, list[str]]]:
        for index, evolution in enumerate(evolutions):
            asked.append(evolution.ask())
            yield index // seeds, asked[-1]

    def is_told(index: int) -> bool:
        return index < len(asked) and evaluator.known[index // seeds].keys() >= set(asked[index])

    def close(index: int, evolution: Evolution) -> None:
        if evolution.generation == number:
            evolution.tell(evaluator.known[index // seeds])
        states[index] = evolution.state()

    def advance(texts: int) -> None:
        if watch is not None:
            watch.advance(texts)
            is_beginning = evaluator.run_by_run and number == first.generation == 0
            if is_beginning and is_told(0) and not is_told(len(evolutions) - 1):
                first.tell(evaluator.known[0])
                if first.kept:
                    watch.begun(first.best_so_far)
        if len(asked) == len(evolutions):
            for index, evolution in enumerate(evolutions):
                if index not in states and is_told(index):
                    close(index, evolution)
                    if not evolution.finished:
                        evolution.ask()

    evaluator.evaluate(requests(), advance)
    for index, evolution in enumerate(evolutions):
        if index not in states:
            close(index, evolution)
    if watch is not None:
        watch.best([evolution.best_so_far for evolution in evolutions if evolution.kept])
    return [states[index] for index in range(len(evolutions))]
