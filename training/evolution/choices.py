"""What to learn and how, and the parts of a history arranged for it."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Final, NamedTuple

import numpy as np

from scrapy_gp4c.errors import LearningError
from scrapy_gp4c.scoring import terminals
from scrapy_gp4c.scoring.terminals import Clock
from training.evolution.evolve import Json, Parameters
from training.evolution.fitness import load_fitness
from training.evolution.selection import GUARDED, RULES, Goal
from training.histories import splits
from training.histories.history import ChangeHistory
from training.replaying import metrics
from training.replaying.arranged import DEFAULTS, TIES, ArrangedHistory, CrawlChoices, Ties, prepare_for

PARTS: Final = ("training", "validation", "test")
DRAWS: Final = 5
"""Draws of `forgetful` by which `selection.guarded` judges: the one that was learned from and others."""


@dataclass(frozen=True)
class Choices:
    """What to learn and how. Raises LearningError for a choice that cannot be used."""

    fitness: str = "ndcg"
    """A metric of `training.replaying.metrics.MEASURES` or a dotted path."""
    protocol: splits.Protocol = "simple"
    budget: float = DEFAULTS.budget
    """Visits per cycle: share of the pages (float) or a count out of all pages of the history (int)."""
    warmup: int = DEFAULTS.warmup
    clock: Clock = "visits"
    ties: Ties = DEFAULTS.ties
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

    def crawl(self, budget: float | None = None) -> CrawlChoices:
        """The crawl that is replayed; with another budget than that of the choices if one is given."""
        budget = self.budget if budget is None else budget
        return CrawlChoices(budget, self.warmup, self.ties, self.clock, self.seed)

    def split(self, history: ChangeHistory) -> list[splits.Split]:
        """The parts of `history` by the protocol. Raises HistoryError as `splits.protocol_splits`."""
        return splits.protocol_splits(history, self.protocol, seed=self.seed, warmup=self.warmup)

    @property
    def goal(self) -> Goal:
        """What is looked for."""
        return Goal(self.fitness, self.clock, self.selection)


class Parts(NamedTuple):
    """The parts of one fold, arranged for replay."""

    training: ArrangedHistory
    validation: ArrangedHistory
    test: ArrangedHistory
    draws: tuple[ArrangedHistory, ...] = ()
    """The training part as other draws of `forgetful` leave it, where the selection asks for them."""


def arrange(
    history: ChangeHistory, choices: Choices, parts: Sequence[splits.Split] | None = None
) -> list[Parts]:
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
    parts = choices.split(history) if parts is None else parts
    crawl = choices.crawl(budget)

    def arranged(part: ChangeHistory, name: str) -> ArrangedHistory:
        shape = f"the {name} part of {history.source} ({part.pages:,} pages, {part.cycles} cycles)"
        if not part.changed.any():
            raise LearningError(
                f"no page changes in {shape}: there is nothing to tell score functions apart; "
                "record more cycles, or pages that change"
            )
        if part.changed.all():
            raise LearningError(f"every page changes in every cycle of {shape}: all rankings are equal")
        return prepare_for(part, crawl)

    folds = []
    for number, split in enumerate(parts):
        draws = [split.train]
        if choices.forget:
            seeds = [(choices.seed, number, *([draw] if draw else [])) for draw in range(DRAWS)]
            wanted = seeds if choices.selection == GUARDED else seeds[:1]
            draws = [forgetful(split.train, choices.forget, seed) for seed in wanted]
        training, *others = (arranged(draw, "training") for draw in draws)
        validation, test = (arranged(part, name) for part, name in zip(split[1:], PARTS[1:], strict=True))
        folds.append(Parts(training, validation, test, tuple(others)))
    return folds


def forgetful(history: ChangeHistory, share: float, seed: Sequence[int]) -> ChangeHistory:
    """The history without a random share of its changes.

    Noise in what is learned from keeps from fitting its accidents (Bishop 1995, "Training with noise is
    equivalent to Tikhonov regularization"). Here the accident is regularity: where some pages changed in
    every single cycle, functions evolve that drop a page for good after one visit without a change.
    """
    kept = np.random.default_rng(seed).random(history.changed.shape) >= share
    return replace(history, changed=history.changed & kept)


def identity(history: ChangeHistory, choices: Choices) -> Json:
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
