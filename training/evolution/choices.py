"""Choices of a learning run, and splits of a history prepared for replay."""

import hashlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Final, Literal, Self

import numpy as np

from scrapy_gp4c.errors import HistoryError, LearningError
from scrapy_gp4c.policies.table import TOP_K
from scrapy_gp4c.policies.table import load as load_policy
from scrapy_gp4c.scoring import terminals
from scrapy_gp4c.scoring.expression import Expression
from scrapy_gp4c.scoring.functions import load as load_score
from scrapy_gp4c.scoring.functions import of_expression
from scrapy_gp4c.scoring.named import DEFAULT as DEFAULT_FUNCTION
from scrapy_gp4c.scoring.named import PURPOSES
from scrapy_gp4c.scoring.terminals import Clock
from training.evolution.evolve import Json, Parameters, check_fields, named_functions, uses_related_pages
from training.evolution.front import GUARD, PREFERENCES
from training.evolution.selection import GROUPS, GUARDED, RULES, SelectionGoal
from training.evolution.workers import JackknifeParts, PreparedSplit, load_measure
from training.histories import splits
from training.histories.history import ChangeHistory
from training.replaying import metrics
from training.replaying.prepared import DEFAULTS, TIES, CrawlChoices, PreparedHistory, Ties, prepare_for
from training.replaying.replay import can_replay, variant_for

DivisionChoice = Literal["auto", splits.Division]
DIVISIONS: Final = ("auto", *splits.DIVISIONS)
OMITTED_DEFAULTS: Final = ("policy", "named_policies", "division", "in_use", "front", "prefer")
"""Choices that results and score files leave out where they have their default value."""
SPLITS: Final = ("training", "validation", "test")
DRAWS: Final = 5
"""Number of training sets drawn by `forgetful` for the selection rule ``guarded``.

Evolution uses the first one.
"""


@dataclass(frozen=True)
class Choices:
    """Choices of a learning run. Raises LearningError for a choice that cannot be used."""

    fitness: str = "ndcg"
    """A metric of `training.replaying.metrics.MEASURES` or a dotted path."""
    protocol: splits.Protocol = "simple"
    budget: float = DEFAULTS.budget
    """Visits per cycle: share of the pages (float) or a count out of all pages of the history (int)."""
    warmup: int = DEFAULTS.warmup
    clock: Clock = "visits"
    ties: Ties = DEFAULTS.ties
    seeds: int = 5
    """Number of independent evolution runs per fold."""
    seed: int = 1
    parameters: Parameters = field(default_factory=Parameters)
    forget: float = 0.0
    """Share of the training changes that is taken out at random, see `forgetful`."""
    selection: str = "best"
    """Rule that selects a function of each fold: one of `training.evolution.selection.RULES`."""
    policy: str = TOP_K.text
    """Text of the policy that uses the score functions, see `scrapy_gp4c.policies.table.load`."""
    named_policies: bool = True
    """Whether named functions are replayed under their own policies, and written to score files with them."""
    division: DivisionChoice = "auto"
    """Unit of the splits: pages, directories or sites (`training.histories.splits.protocol_splits`).

    ``auto``: see `units`.
    """
    in_use: str = DEFAULT_FUNCTION
    """Score argument of the function in use, which the learned one is compared with."""
    front: bool = False
    """Whether to maximize freshness (`GUARD`) as a second objective: see `training.evolution.front`."""
    prefer: str = "balanced"
    """Preference by which a function of the Pareto front is selected, see `training.evolution.front`."""

    def __post_init__(self) -> None:
        load_measure(self.measure)
        load_policy(self.policy)
        load_score(self.in_use)
        known = {
            "protocol": splits.PROTOCOLS,
            "clock": terminals.CLOCKS,
            "ties": TIES,
            "selection": RULES,
            "division": DIVISIONS,
            "prefer": PREFERENCES,
        }
        check_fields(self, {"seeds": 1, "seed": 0, "warmup": 0}, known)
        if not 0.0 <= self.forget < 1.0:
            raise LearningError(f"forget must be a share from 0 to below 1; found {self.forget}")
        if self.front and self.fitness == GUARD:
            raise LearningError(f"a front is of two objectives, {GUARD} and another; found {GUARD} twice")

    def crawl(self, budget: float | None = None) -> CrawlChoices:
        """Choices of the replayed crawl, with `budget` in place of the one here if it is not None."""
        budget = self.budget if budget is None else budget
        return CrawlChoices(budget, self.warmup, self.ties, self.clock, self.seed, self.policy)

    def split(
        self, history: ChangeHistory, division: splits.Division | None = None
    ) -> list[splits.HistorySplit]:
        """Split a history by `protocol`: one training, validation and test split for each fold.

        ``division``: unit of the splits; None: `divided_by`. Raises HistoryError as `splits.protocol_splits`.
        """
        division = division or self.divided_by(history)
        return splits.protocol_splits(
            history, self.protocol, seed=self.seed, warmup=self.warmup, division=division
        )

    def units(self, history: ChangeHistory) -> tuple[splits.Division, ...]:
        """Units by which `history` may be split, in order of preference: `divided_by` takes a usable one.

        They are the chosen `division` alone. ``auto``: single pages, or with terminals of related pages whole
        sites, whole directories, single pages.
        """
        if self.division != "auto":
            return (self.division,)
        if not uses_related_pages(self.parameters.terminals):
            return ("pages",)
        return ("sites", "directories", "pages") if history.neighbours.are_named else ("sites", "pages")

    def divided_by(self, history: ChangeHistory) -> splits.Division:
        """Unit of the splits of a history: the first of `units` by which every split can be replayed.

        In each part some pages must change, not all in every cycle, and the budget be a page or more. If no
        unit does that, the last one.
        """
        *others, last = self.units(history)
        return next((one for one in others if self._can_divide(history, one)), last)

    def _can_divide(self, history: ChangeHistory, division: splits.Division) -> bool:
        try:
            parts = self.split(history, division)
        except HistoryError:
            return False
        budget = metrics.budget_pages(self.budget, history.pages) / history.pages
        return all(
            one.changed.any() and not one.changed.all() and one.pages * budget >= 1
            for split in parts
            for one in split
        )

    def fitting(self, history: ChangeHistory) -> Self:
        """Choices without terminals that the history cannot replay.

        Only where the terminals are one of the sets ``related`` and ``all``; other choices stay unchanged.
        """
        parameters = self.parameters
        if parameters.terminals not in (terminals.RELATED, terminals.SETS["all"]):
            return self
        functions = {name: of_expression(Expression((name,))) for name in parameters.terminals}
        known = tuple(
            name
            for name, function in functions.items()
            if variant_for(history, function) is function and can_replay(history, function)
        )
        return replace(self, parameters=replace(parameters, terminals=known))

    @property
    def measure(self) -> str:
        """Argument of `load_measure`: name of the fitness, with a front such as ``change_rate,freshness``."""
        return f"{self.fitness},{GUARD}" if self.front else self.fitness

    @property
    def goal(self) -> SelectionGoal:
        """Goal of the selection that follows from these choices."""
        guarded = self.selection == GUARDED
        named: tuple[str, ...] = ()
        if guarded or self.front:
            named = tuple(dict.fromkeys((*PURPOSES, *named_functions(self.parameters.terminals))))
        elif self.parameters.named_start:
            named = tuple(named_functions(self.parameters.terminals))
        measure = self.measure
        if guarded and not self.front and self.fitness != GUARD:
            measure = (
                f"{self.fitness},{GUARD}"  # the function selected must not be less fresh than the default
            )
        return SelectionGoal(measure, self.clock, self.selection, self.policy, named, self.named_policies)

    def goal_on(self, prepared: PreparedHistory) -> SelectionGoal:
        """`goal` with only those named functions that the history `prepared` can replay."""
        named = tuple(name for name in self.goal.named if can_replay(prepared, load_score(name)))
        return self.goal._replace(named=named)

    def recorded(self) -> Json:
        """All choices as JSON for results and score files; `OMITTED_DEFAULTS` only where not the default."""
        values = asdict(self)
        later = {one.name: one.default for one in fields(self) if one.name in OMITTED_DEFAULTS}
        parameters = values["parameters"]
        if parameters["start"] == Parameters.start:
            del parameters["start"]
        return {name: value for name, value in values.items() if later.get(name, ...) != value}


def prepare_splits(
    history: ChangeHistory,
    choices: Choices,
    history_splits: Sequence[splits.HistorySplit] | None = None,
    unit: splits.Division | None = None,
) -> list[PreparedSplit]:
    """Prepare the training, validation and test split of every fold for replay.

    ``history_splits``: splits that the caller drew of whole units, ``unit``; None: those of `Choices.split`.
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
    unit = unit or choices.divided_by(history)
    history_splits = choices.split(history, unit) if history_splits is None else history_splits
    crawl = choices.crawl(budget)

    def prepared(history_part: ChangeHistory, name: str) -> PreparedHistory:
        size = f"{history_part.pages:,} pages, {history_part.cycles} cycles"
        shape = f"the {name} part of {history.source} ({size})"
        if not history_part.changed.any():
            raise LearningError(
                f"no page changes in {shape}: there is nothing to tell score functions apart; "
                "record more cycles, or pages that change"
            )
        if history_part.changed.all():
            raise LearningError(f"every page changes in every cycle of {shape}: all rankings are equal")
        return prepare_for(history_part, crawl)

    folds = []
    for number, split in enumerate(history_splits):
        train = split.train
        draws = [train]
        if choices.forget:
            seeds = [(choices.seed, number, *([draw] if draw else [])) for draw in range(DRAWS)]
            judged_by = seeds if choices.selection == GUARDED else seeds[:1]
            draws = [forgetful(train, choices.forget, seed) for seed in judged_by]
        training, *others = (prepared(draw, "training") for draw in draws)
        validation, test = (
            prepared(history_part, name) for history_part, name in zip(split[1:], SPLITS[1:], strict=True)
        )
        leave_one_out = None
        if choices.selection == GUARDED and unit != "pages":
            leave_one_out = JackknifeParts(
                *(
                    _without_units(history_part, unit, choices.seed, crawl)
                    for history_part in (train, split.validation)
                )
            )
        folds.append(PreparedSplit(training, validation, test, tuple(others), leave_one_out))
    return folds


def _without_units(
    history_part: ChangeHistory, unit: splits.Division, seed: int, crawl: CrawlChoices
) -> tuple[PreparedHistory, ...]:
    """Copies of a split, each without one group of sites (directories), prepared for replay.

    ``()`` if there is one site only, or too little remains in a copy to replay it.
    """
    units = splits.units_of(history_part, unit)
    if len(np.unique(units)) < 2:
        return ()
    groups = splits.site_folds(units, min(GROUPS, len(np.unique(units))), seed)
    remainders = [history_part.take(np.setdiff1d(np.arange(history_part.pages), group)) for group in groups]
    if any(one.pages * crawl.budget < 1 or len(np.unique(one.changed)) < 2 for one in remainders):
        return ()
    return tuple(prepare_for(one, crawl) for one in remainders)


def forgetful(history: ChangeHistory, share: float, seed: Sequence[int]) -> ChangeHistory:
    """Copy of a training history in which a random `share` of the changes did not happen.

    Such noise is against overfitting (Bishop 1995, "Training with noise is equivalent to Tikhonov
    regularization"): where some pages changed in every single cycle, functions evolve that drop a page for
    good after one visit without a change.
    """
    remains = np.random.default_rng(seed).random(history.changed.shape) >= share
    flipped = None if history.flipped is None else history.flipped[remains.T[history.changed.T]]
    return replace(history, changed=history.changed & remains, flipped=flipped)


def identity(history: ChangeHistory, choices: Choices) -> Json:
    """Everything that evolution depends on, as plain JSON types: a digest of the history, and the choices.

    Choices that concern only the selection are left out.
    """
    digest = hashlib.sha256(repr(history.changed.shape).encode())
    digest.update(np.packbits(history.changed).tobytes())
    if history.weight is not None:
        digest.update(history.weight.tobytes())
    for evidence in (history.claims, history.size, history.latency_ms, history.flipped):
        if evidence is not None:
            digest.update(evidence.tobytes())
    values = choices.recorded()
    for name in ("selection", "prefer", "in_use"):
        values.pop(name, None)
    parameters = values.pop("parameters")
    parameters["depths"] = choices.parameters.depths._asdict()
    return {"history": digest.hexdigest(), **values, **parameters}
