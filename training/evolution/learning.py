"""Learn a score function from a recorded history (`training.learn` is the command).

GP4C as a whole (Santos et al. 2014, Listing 1): several independent runs per fold of the protocol, all
advancing in step and sharing workers; then the selection rule picks the function of each fold. What is
learned depends on the history and on `Choices`, and on nothing else: neither on the number or kind of
workers nor on interruptions.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple, Protocol

import numpy as np

from scrapy_gp4c.scoring.named import BASELINES
from training.evolution.checkpoint import Checkpoint
from training.evolution.choices import PARTS, Choices, arrange
from training.evolution.compiling import compiled_beside
from training.evolution.evolve import Evolution, State
from training.evolution.fitness import load_fitness, load_measure
from training.evolution.front import FrontEvolution
from training.evolution.parts import Parts
from training.evolution.preference import Member, choose_of_front
from training.evolution.seeds import look_around, named_functions
from training.evolution.selection import Allow, Pairs, choose
from training.evolution.workers import Evaluator
from training.histories.history import ChangeHistory
from training.replaying import metrics
from training.replaying.replay import run

LEARNED: Final = "learned"


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


Table = dict[str, dict[str, dict[str, float]]]
"""Score function -> part -> metric -> mean over the scored cycles."""


class FrontMember(NamedTuple):
    """A function of a front."""

    text: str
    run: int
    """The run that found it; -1: it is a named function."""
    taken: bool
    """Whether it is the one that was preferred."""
    values: dict[str, dict[str, float]]
    """Part -> metric -> mean over the scored cycles."""


class Fold(NamedTuple):
    """The result on one fold."""

    text: str
    """The learned function, simplified as far as it stays the same in training and validation."""
    run: int
    """The run that found it."""
    selected: float
    """Its value under the selection rule."""
    table: Table
    """`LEARNED`, every named score function and `metrics.ORACLE`."""
    front: tuple[FrontMember, ...] = ()
    """Where there are two objectives: all functions of the front, the one learned included."""


@dataclass(frozen=True)
class Learned:
    """What was learned."""

    folds: list[Fold]
    best: Fold
    """The fold whose function ships: the highest value under the selection rule."""
    generations: int
    """Generations that every run completed."""
    complete: bool
    """False: stopped by the user before the last generation."""
    replays: int
    """Individuals that were replayed, those of the selection included."""
    replay_s: float
    """Processor time of scoring and replaying in all workers, in seconds."""


def learn(
    history: ChangeHistory,
    choices: Choices,
    parallel: Any,
    *,
    folds: Sequence[Parts] | None = None,
    checkpoint: Checkpoint | None = None,
    watch: Watch | None = None,
    allow: Allow | None = None,
) -> Learned:
    """Learn score functions from `history`.

    ``parallel``: where to evaluate, see `training.evolution.workers.workers`. ``folds``: what `arrange` gave,
    if it was called before. ``checkpoint``: written after every generation; its states, if it was opened and
    has any, are gone on from. ``allow``: leaves out what the selection rule is not to choose, see
    `training.evolution.selection.choose`.

    A KeyboardInterrupt ends the evolution; what the completed generations found is selected and returned.
    It passes on if there is none yet. Raises HistoryError or LearningError as `arrange` does.
    """
    folds = arrange(history, choices) if folds is None else folds
    sets = [parts.training for parts in folds] + [parts.validation for parts in folds]
    with compiled_beside(sets[0], load_measure(choices.measure), choices.policy, parallel) as compiled:
        evaluator = Evaluator(sets, choices.measure, choices.clock, parallel, choices.policy, compiled)
        return _learn(folds, choices, evaluator, checkpoint, watch, allow)


def _learn(
    folds: Sequence[Parts],
    choices: Choices,
    evaluator: Evaluator,
    checkpoint: Checkpoint | None,
    watch: Watch | None,
    allow: Allow | None,
) -> Learned:
    kind = FrontEvolution if choices.front else Evolution
    evolutions = [
        kind(choices.parameters, choices.seed, (fold, number))
        for fold in range(len(folds))
        for number in range(choices.seeds)
    ]
    _evolve(evolutions, choices.seeds, evaluator, checkpoint, watch)
    complete = evolutions[0].finished
    results = []
    for number, parts in enumerate(folds):
        runs = evolutions[number * choices.seeds : (number + 1) * choices.seeds]
        # After Ctrl-C the workers may be in any state.
        values = partial(_in_workers, evaluator, number, len(folds)) if complete else None
        kept = [evolution.kept for evolution in runs]
        if choices.front:
            chosen, members = choose_of_front(kept, parts, choices.goal, choices.prefer, values, allow)
            front = _front(parts, members, chosen.text, choices)
        else:
            chosen, front = choose(kept, parts, choices.goal, values, allow), ()
        results.append(
            Fold(*chosen, compare(parts, {LEARNED: chosen.text} | others(choices), choices), front)
        )
    best = max(results, key=lambda fold: fold.selected)
    return Learned(results, best, evolutions[0].generation, complete, evaluator.replays, evaluator.replay_s)


def _evolve(
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


def _in_workers(evaluator: Evaluator, fold: int, folds: int, texts: list[str]) -> Pairs:
    numbers = (fold, folds + fold)
    values = evaluator.values((number, texts) for number in numbers)
    return [(values[numbers[0]][text], values[numbers[1]][text]) for text in texts]


def _front(parts: Parts, members: Sequence[Member], taken: str, choices: Choices) -> tuple[FrontMember, ...]:
    table = compare(parts, {one.text: one.text for one in members}, choices)
    return tuple(FrontMember(one.text, one.run, one.text == taken, table[one.text]) for one in members)


def others(choices: Choices) -> dict[str, str]:
    """What a learned function is compared with: name -> expression, or `metrics.ORACLE`."""
    names = choices.parameters.terminals
    around = named_functions(names) if look_around(names) else {}
    return BASELINES | around | {metrics.ORACLE: metrics.ORACLE}


def compare(parts: Parts, functions: Mapping[str, str], choices: Choices) -> Table:
    """Replay score functions on every part. ``functions``: name -> expression, or `metrics.ORACLE`.

    What was compared before on the same parts is remembered: an experiment compares the same again and again.
    """
    fitness = load_fitness(choices.fitness)
    wanted = tuple(dict.fromkeys((*metrics.METRICS, *fitness.metrics)))
    own = fitness.name if fitness.custom is not None else None
    table: Table = {}
    for name, given in functions.items():
        table[name] = {}
        for part, arranged in zip(PARTS, parts[:3], strict=True):
            key = (given, choices.clock, choices.policy, wanted, own)
            if key not in arranged.means:
                result = run(arranged, given, clock=choices.clock, metrics=wanted, policy=choices.policy)
                row = {metric: float(np.mean(getattr(result, metric))) for metric in wanted}
                if own is not None:
                    row[own] = float(np.mean(fitness.values(result)))
                arranged.means[key] = row
            table[name][part] = dict(arranged.means[key])
    return table
