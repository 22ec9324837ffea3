"""Learn a score function from a recorded history (`training.learn` is the command).

GP4C as a whole (Santos et al. 2014, Listing 1): several independent runs per fold of the protocol, all
advancing in step and sharing workers; then the selection rule picks the function of each fold. What is
learned depends on the history and on `Choices`, and on nothing else: neither on the number or kind of
workers nor on interruptions.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any, Final, NamedTuple, Protocol

import numpy as np

from scrapy_gp4c import score, terminals
from scrapy_gp4c.errors import LearningError
from scrapy_gp4c.terminals import Clock
from training import metrics, splits
from training.checkpoint import Checkpoint
from training.evolve import Evolution, Parameters
from training.fitness import load_fitness
from training.history import ChangeHistory
from training.parallel import Evaluator
from training.replay import run
from training.selection import RULES, Pairs, Prefer, choose
from training.truth import TIES, Ties, Truth, prepare

PARTS: Final = ("training", "validation", "test")
LEARNED: Final = "learned"
ORACLE: Final = "oracle"


@dataclass(frozen=True)
class Choices:
    """What to learn and how. Raises LearningError for a choice that cannot be used."""

    fitness: str = "ndcg"
    """A metric of `training.fitness.MEASURES` or a dotted path."""
    protocol: splits.Protocol = "simple"
    budget: float = 0.05
    """Visits per cycle: share of the pages (float) or a count out of all pages of the history (int)."""
    warmup: int = 2
    clock: Clock = "visits"
    ties: Ties = "random"
    seeds: int = 5
    """Independent runs per fold."""
    seed: int = 1
    """All randomness follows from it."""
    parameters: Parameters = field(default_factory=Parameters)
    forget: float = 0.0
    """Share of the training part's changes that is taken out at random, as if missed: see `forgetful`."""
    selection: str = "best"

    def __post_init__(self) -> None:
        """Check all that can be checked without a history."""
        load_fitness(self.fitness)
        for name, known in (
            ("protocol", splits.PROTOCOLS),
            ("clock", terminals.CLOCKS),
            ("ties", TIES),
            ("selection", RULES),
        ):
            if getattr(self, name) not in known:
                raise LearningError(
                    f"{name} must be one of {', '.join(known)}; found {getattr(self, name)!r}"
                )
        if not 0.0 <= self.forget < 1.0:
            raise LearningError(f"forget must be a share from 0 to below 1; found {self.forget}")
        for name, least in (("seeds", 1), ("seed", 0), ("warmup", 0)):
            if getattr(self, name) < least:
                raise LearningError(f"{name} must be at least {least}; found {getattr(self, name)}")


class Watch(Protocol):
    """What learning tells while it goes on."""

    def generation(self, number: int, asked: int) -> None:
        """Generation `number` (from 1) begins: so many individuals may need an evaluation."""

    def advance(self, texts: int) -> None:
        """So many of them are done."""

    def best(self, fitness: Sequence[float]) -> None:
        """The generation is done; the best fitness so far of every run."""


Table = dict[str, dict[str, dict[str, float]]]
"""Score function -> part -> metric -> mean over the scored cycles."""


class Fold(NamedTuple):
    """The result on one fold."""

    text: str
    """The learned function, simplified as far as it stays the same in training and validation."""
    run: int
    """The run that found it."""
    selected: float
    """Its value under the selection rule."""
    table: Table
    """`LEARNED`, every named score function and `ORACLE`."""


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


def arrange(
    history: ChangeHistory, choices: Choices, parts: Sequence[splits.Split] | None = None
) -> list[tuple[Truth, ...]]:
    """Training, validation and test part of every fold, arranged for replay.

    ``parts``: the splits of `history`; None: those of the protocol.

    Raises HistoryError or LearningError for a history from which these choices cannot learn.
    """
    budget = choices.budget
    if isinstance(budget, int):
        if budget > history.pages:
            raise LearningError(
                f"the budget of {budget:,} visits per cycle is above the {history.pages:,} pages of "
                f"{history.source}: every page would be visited and there would be nothing to rank"
            )
        budget = metrics.budget_pages(budget, history.pages) / history.pages
    folds = []
    if parts is None:
        parts = splits.protocol_splits(history, choices.protocol, seed=choices.seed, warmup=choices.warmup)
    for number, split in enumerate(parts):
        truths = []
        if choices.forget:
            split = split._replace(train=forgetful(split.train, choices.forget, (choices.seed, number)))
        for name, part in zip(PARTS, split, strict=True):
            shape = f"the {name} part of {history.source} ({part.pages:,} pages, {part.cycles} cycles)"
            if not part.changed.any():
                raise LearningError(
                    f"no page changes in {shape}: there is nothing to tell score functions apart; "
                    "record more cycles, or pages that change"
                )
            if part.changed.all():
                raise LearningError(f"every page changes in every cycle of {shape}: all rankings are equal")
            truths.append(
                prepare(part, budget=budget, warmup=choices.warmup, ties=choices.ties, seed=choices.seed)
            )
        folds.append(tuple(truths))
    return folds


def forgetful(history: ChangeHistory, share: float, seed: Sequence[int]) -> ChangeHistory:
    """The history without a random share of its changes.

    Noise in what is learned from keeps from fitting its accidents (Bishop 1995, "Training with noise is
    equivalent to Tikhonov regularization"). Here the accident is regularity: where some pages changed in
    every single cycle, functions evolve that drop a page for good after one visit without a change.
    """
    kept = np.random.default_rng(seed).random(history.changed.shape) >= share
    return replace(history, changed=history.changed & kept)


def identity(history: ChangeHistory, choices: Choices) -> dict[str, Any]:
    """All that a run's evolution depends on, as plain JSON types: for its checkpoint and score file."""
    digest = hashlib.sha256(repr(history.changed.shape).encode())
    digest.update(np.packbits(history.changed).tobytes())
    if history.weight is not None:
        digest.update(history.weight.tobytes())
    values = asdict(choices)
    values.pop("selection")
    parameters = values.pop("parameters")
    parameters["depths"] = choices.parameters.depths._asdict()
    return {"history": digest.hexdigest(), **values, **parameters}


def learn(
    history: ChangeHistory,
    choices: Choices,
    parallel: Any,
    *,
    folds: list[tuple[Truth, ...]] | None = None,
    checkpoint: Checkpoint | None = None,
    states: list[dict[str, Any]] | None = None,
    watch: Watch | None = None,
    prefer: Prefer | None = None,
) -> Learned:
    """Learn score functions from `history`.

    ``parallel``: where to evaluate, see `training.parallel.workers`. ``folds``: what `arrange`
    gave, if it was called before. ``checkpoint``: written after every
    generation; ``states``: what it had, to go on from. ``prefer``: decides before the selection rule does,
    see `training.selection.choose`.

    A KeyboardInterrupt ends the evolution; what the completed generations found is selected and returned.
    It passes on if there is none yet. Raises HistoryError or LearningError as `arrange` does.
    """
    folds = arrange(history, choices) if folds is None else folds
    evolutions = [
        Evolution(choices.parameters, choices.seed, (fold, number))
        for fold in range(len(folds))
        for number in range(choices.seeds)
    ]
    _restore(evolutions, states)
    sets = [fold[0] for fold in folds] + [fold[1] for fold in folds]
    evaluator = Evaluator(sets, choices.fitness, choices.clock, parallel)
    try:
        while not evolutions[0].finished:
            _generation(evolutions, choices.seeds, evaluator, watch)
            states = [evolution.state() for evolution in evolutions]
            if checkpoint is not None:
                checkpoint.save(states)
    except KeyboardInterrupt:
        if states is None:
            raise
        # Whatever was interrupted, a half-told generation or the saving: back to the last complete one.
        _restore(evolutions, states)
        if checkpoint is not None:
            checkpoint.save(states)
    complete = evolutions[0].finished
    results = []
    for number, truths in enumerate(folds):
        runs = evolutions[number * choices.seeds : (number + 1) * choices.seeds]
        # After Ctrl-C the workers may be in any state.
        values = partial(_in_workers, evaluator, number, len(folds)) if complete else None
        chosen = choose(
            [evolution.kept for evolution in runs],
            truths[:2],
            choices.selection,
            choices.fitness,
            choices.clock,
            values,
            prefer,
        )
        results.append(Fold(*chosen, compare(truths, chosen.text, choices)))
    best = max(results, key=lambda fold: fold.selected)
    return Learned(results, best, evolutions[0].generation, complete, evaluator.replays, evaluator.replay_s)


def _restore(evolutions: Sequence[Evolution], states: Sequence[Mapping[str, Any]] | None) -> None:
    if states is not None:
        for evolution, state in zip(evolutions, states, strict=True):
            evolution.restore(state)


def _generation(
    evolutions: Sequence[Evolution], seeds: int, evaluator: Evaluator, watch: Watch | None
) -> None:
    """Breed and evaluate one generation of every run; workers evaluate one run while the next is bred."""
    if watch is not None:
        asked = len(evolutions) * evolutions[0].parameters.population
        watch.generation(evolutions[0].generation + 1, asked)
    requests = ((index // seeds, evolution.ask()) for index, evolution in enumerate(evolutions))
    evaluator.evaluate(requests, *([] if watch is None else [watch.advance]))
    for index, evolution in enumerate(evolutions):
        evolution.tell(evaluator.known[index // seeds])
    if watch is not None:
        watch.best([evolution.kept[0].fitness for evolution in evolutions if evolution.kept])


def _in_workers(evaluator: Evaluator, fold: int, folds: int, texts: list[str]) -> Pairs:
    numbers = (fold, folds + fold)
    values = evaluator.values((number, texts) for number in numbers)
    return [(values[numbers[0]][text], values[numbers[1]][text]) for text in texts]


def compare(truths: Sequence[Truth], text: str, choices: Choices) -> Table:
    """Replay the learned expression, every named score function and the oracle on every part."""
    fitness = load_fitness(choices.fitness)
    functions = {LEARNED: text} | score.NAMED | {ORACLE: ORACLE}
    table: Table = {}
    for name, given in functions.items():
        table[name] = {}
        for part, truth in zip(PARTS, truths, strict=True):
            result = run(truth, given, clock=choices.clock)
            row = {metric: float(np.mean(getattr(result, metric))) for metric in metrics.METRICS}
            if fitness.custom is not None:
                row[fitness.name] = float(np.mean(fitness.values(result)))
            table[name][part] = row
    return table
