"""Learn a score function from a recorded history (`training.learn` is the command).

GP4C as a whole (Santos et al. 2014, Listing 1): several independent runs per fold of the protocol, those of
a fold advancing in step, all sharing workers; then the selection rule picks the function of each fold. What
is learned depends on the history and on `Choices`, and on nothing else: neither on the number or kind of
workers nor on interruptions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple

import numpy as np

from scrapy_gp4c.scoring.named import BASELINES
from training.evolution.checkpoint import Checkpoint
from training.evolution.choices import PARTS, Choices, arrange
from training.evolution.compiling import compiled_beside
from training.evolution.evolve import Evolution
from training.evolution.fitness import load_fitness, load_measure
from training.evolution.front import FrontEvolution
from training.evolution.generations import Watch, evolve_all
from training.evolution.parts import Parts
from training.evolution.preference import Member, choose_of_front
from training.evolution.seeds import look_around, named_functions
from training.evolution.selecting import FoldPick, Selecting
from training.evolution.selection import Allow, Chosen, choose, pick
from training.evolution.workers import Evaluator
from training.histories.history import ChangeHistory
from training.replaying import metrics
from training.replaying.replay import run

LEARNED: Final = "learned"


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
    (learned,) = learn_by_rules(
        history, [choices], parallel, folds=folds, checkpoint=checkpoint, watch=watch, allow=allow
    )
    return learned


def learn_by_rules(
    history: ChangeHistory,
    choices: Sequence[Choices],
    parallel: Any,
    *,
    folds: Sequence[Parts] | None = None,
    checkpoint: Checkpoint | None = None,
    watch: Watch | None = None,
    allow: Allow | None = None,
) -> list[Learned]:
    """`learn` by several selection rules, for which evolution goes on once.

    ``choices``: at least one, alike in all but the rule.
    """
    first = choices[0]
    folds = arrange(history, first) if folds is None else folds
    sets = [parts.training for parts in folds] + [parts.validation for parts in folds]
    with compiled_beside(sets[0], load_measure(first.measure), first.policy, parallel) as compiled:
        evaluator = Evaluator(sets, first.measure, first.clock, parallel, first.policy, compiled)
        kind = FrontEvolution if first.front else Evolution
        evolutions = [
            kind(first.parameters, first.seed, (fold, number))
            for fold in range(len(folds))
            for number in range(first.seeds)
        ]
        evolve_all(evolutions, first.seeds, evaluator, checkpoint, watch)
        return _selected(folds, choices, evaluator, evolutions, allow)


def _selected(
    folds: Sequence[Parts],
    choices: Sequence[Choices],
    evaluator: Evaluator,
    evolutions: Sequence[Evolution],
    allow: Allow | None,
) -> list[Learned]:
    """What each of the rules gives."""
    first, seeds = evolutions[0], len(evolutions) // len(folds)
    kept = [
        [evolution.kept for evolution in evolutions[fold * seeds : (fold + 1) * seeds]]
        for fold in range(len(folds))
    ]
    selecting = Selecting(evaluator, len(folds))
    chosen: list[tuple[Chosen, Sequence[Member]]] = []
    picks: list[FoldPick] = []
    costs = []
    for own in choices:
        for fold, parts in enumerate(folds):
            # After Ctrl-C the workers may be in any state.
            values = partial(selecting.pairs, fold) if first.finished else None
            if own.front:
                chosen.append(choose_of_front(kept[fold], parts, own.goal, own.prefer, values, allow))
            elif first.finished:
                picks.append(FoldPick(fold, pick(kept[fold], parts, own.goal, values, allow)))
            else:
                chosen.append((choose(kept[fold], parts, own.goal, values, allow), ()))
        costs.append((evaluator.replays, evaluator.replay_s))
    chosen += [(one, ()) for one in selecting.chosen(picks)]
    learned = []
    for rule, own in enumerate(choices):
        results = []
        for parts, (one, members) in zip(folds, chosen[rule * len(folds) :], strict=False):
            table = compare(parts, {LEARNED: one.text} | others(own), own)
            results.append(Fold(*one, table, _front(parts, members, one.text, own)))
        best = max(results, key=lambda fold: fold.selected)
        learned.append(Learned(results, best, first.generation, first.finished, *costs[rule]))
    return learned


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
        for part, prepared in zip(PARTS, parts[:3], strict=True):
            key = (given, choices.clock, choices.policy, wanted, own)
            if key not in prepared.means:
                result = run(prepared, given, clock=choices.clock, metrics=wanted, policy=choices.policy)
                row = {metric: float(np.mean(getattr(result, metric))) for metric in wanted}
                if own is not None:
                    row[own] = float(np.mean(fitness.values(result)))
                prepared.means[key] = row
            table[name][part] = dict(prepared.means[key])
    return table
