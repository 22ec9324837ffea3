"""The dense replay engine: every page has its own row, in plain NumPy.

It replays score functions whose terminals differ from page to page (``random``, related pages, callables),
all policies but ``top_k``, baselines and the oracle. It is the oracle of the tests for
`training.replaying.grouped`. Sampling policies have compiled loops (`compiled_loop`): a replay knows every
outcome beforehand, so that it runs through a whole cycle at once.
"""

from __future__ import annotations

import itertools
import math
import weakref
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.arrays import Floats, Ints
from scrapy_gp4c.errors import HistoryError, PolicyError
from scrapy_gp4c.page_state.groupings import Grouping
from scrapy_gp4c.page_state.outcomes import SAMPLE
from scrapy_gp4c.policies import site_share
from scrapy_gp4c.policies.base import (
    Block,
    Evidence,
    Pages,
    Policy,
    PolicySettings,
    Round,
    Selection,
    choose,
    rounds_of,
)
from scrapy_gp4c.policies.members import SampleOutcomes, sample_pages
from scrapy_gp4c.policies.sampling import Follow, Greedy, RandomNodes
from scrapy_gp4c.policies.table import TOP_K, PolicyChoice, columns_read
from scrapy_gp4c.policies.top_k import best_candidates
from scrapy_gp4c.scoring.functions import ScoreFunction
from training.replaying.baselines import Baseline
from training.replaying.evidence import ReplayEvidence
from training.replaying.metrics import CONTENT_BITS, CONTENTS, ORACLE, Tallies
from training.replaying.prepared import PreparedHistory, penalties


class Copies:
    """Copies of P pages, all current at first, with running sums of what is out of date."""

    def __init__(self, prepared: PreparedHistory, tallies: Collection[str]) -> None:
        """``tallies``: names of the optional `metrics.Tallies` to count."""
        self._weights = prepared.weights
        self._stale = bool({"stale_weight", "age_weight", "penalty"} & set(tallies))
        self._penalised = "penalty" in tallies
        self.missed: npt.NDArray[np.int32] = np.zeros(prepared.pages, np.int32)
        """Changes that each copy has missed: ``[P]``."""
        self._diverged = np.zeros(prepared.pages, np.int32)
        self.outdated = 0
        """Number of copies that have missed a change."""
        self._weight = self._since = self._penalty = 0

    def change(self, cycle: int, pages: Ints) -> None:
        """Record the pages that change in a cycle."""
        before = self.missed[pages]
        self.missed[pages] = before + 1
        self.outdated += len(pages) - int(np.count_nonzero(before))
        if self._stale:
            diverged = pages[before == 0]
            self._diverged[diverged] = cycle
            weight = self.weight(diverged)
            self._weight += weight
            self._since += weight * cycle
        if self._penalised:
            after = penalties(self._weights, pages, before + 1)
            self._penalty += int((after - penalties(self._weights, pages, before)).sum())

    def visit(self, pages: Ints) -> None:
        """Renew the copies of pages that have changed."""
        if self._stale:
            self._weight -= self.weight(pages)
            since = self._diverged[pages].astype(np.int64)
            if len(self._weights.fixed):
                since *= self._weights.fixed[pages]
            self._since -= int(since.sum())
        if self._penalised:
            self._penalty -= int(penalties(self._weights, pages, self.missed[pages]).sum())
        self.missed[pages] = 0
        self.outdated -= len(pages)

    def weight(self, pages: Ints) -> int:
        """Fixed-point weight of some pages."""
        return int(self._weights.fixed[pages].sum()) if len(self._weights.fixed) else len(pages)

    def tallies(self, cycle: int) -> dict[str, int]:
        """Weight, age and penalty of the copies that are out of date after a cycle."""
        if not self._stale:
            return {}
        age = (cycle + 1) * self._weight - self._since
        return {"stale_weight": self._weight, "age_weight": age, "penalty": self._penalty}


class WeightedGains:
    """Gains of visits times weights, for the metric ``weighted_ndcg``."""

    def __init__(self, prepared: PreparedHistory, copies: Copies) -> None:
        self._copies = copies
        self._weights = prepared.weights.values if len(prepared.weights.values) else np.ones(prepared.pages)
        self._gains = np.diff(prepared.gain_sums).astype(np.float64)
        self._dcg: list[float] = []
        self._pending: list[Floats] = []
        self._most = 0

    def visit(self, cycle: int, pages: Ints, is_changed: npt.NDArray[np.bool_]) -> None:
        """Record a cycle's visits in order, before `Copies.visit`, and the best possible ones."""
        gained = self._gains[: len(pages)][is_changed] * self._weights[pages[is_changed]]
        self._dcg.append(math.fsum(gained.tolist()))
        pending = np.sort(self._weights[self._copies.missed > 0])[::-1]
        self._pending.append(pending[: len(self._gains)])
        self._most = max(self._most, len(pages))

    def tallies(self) -> dict[str, npt.NDArray[Any]]:
        """Gains of every cycle, and those of the best possible ranking."""
        best = []
        for pending in self._pending:
            first = pending[: self._most]  # what a policy did not visit counts against it
            best.append(math.fsum((self._gains[: len(first)] * first).tolist()))
        return {"weighted_dcg": np.array(self._dcg), "weighted_best": np.array(best)}


class ContentCopies:
    """Versions that the copies hold, for the metrics of `metrics.CONTENTS`."""

    def __init__(self, prepared: PreparedHistory) -> None:
        """All copies are current after the warm-up. Raises HistoryError for a history without contents."""
        if prepared.impact is None:
            raise HistoryError(
                f"{' and '.join(CONTENTS)} need contents and a log of queries: give both (--query-log)"
            )
        self._impact = prepared.impact
        self._first = prepared.warmup + 1
        self.held = self._impact.version[prepared.warmup].copy()
        """Version of each copy: ``[P]``."""
        self._rows: list[npt.NDArray[np.int32]] = []

    def visit(self, cycle: int, pages: Ints, is_changed: npt.NDArray[np.bool_]) -> None:
        """Renew the copies of all pages visited in a cycle."""
        self.held[pages] = self._impact.version[cycle, pages]
        self._rows.append(self.held.copy())

    def tallies(self) -> dict[str, npt.NDArray[Any]]:
        """Impact and, for all pages of a search, quality after every cycle, in fixed point."""
        live = self._impact.version[self._first :]
        lost = np.array([self._impact.between(*both).sum() for both in zip(self._rows, live, strict=True)])
        never = float(self._impact.unrefreshed(self._first - 1).mean())
        metrics: dict[str, Floats] = {"impact": 1.0 - lost / never if never > 0.0 else np.ones(len(lost))}
        if self._impact.quality is not None:
            metrics["quality"] = self._impact.quality(np.array(self._rows))
        return {name: np.rint(np.ldexp(row, CONTENT_BITS)).astype(np.int64) for name, row in metrics.items()}


def page_counters(
    prepared: PreparedHistory, copies: Copies, tallies: Collection[str]
) -> list[ContentCopies | WeightedGains]:
    """Counters of the tallies that are no sums over `Copies`, if wanted."""
    counters: list[ContentCopies | WeightedGains] = []
    if not CONTENTS.keys().isdisjoint(tallies):
        counters.append(ContentCopies(prepared))
    if "weighted_dcg" in tallies:
        counters.append(WeightedGains(prepared, copies))
    return counters


MOST_NEAR: Final = 2**22
"""Most entries of all groups' rings together; a policy with more runs without a compiled loop."""

Kinds = npt.NDArray[np.uint8]
Missed = npt.NDArray[np.int32]


class Rings(NamedTuple):
    """Groups within distance d of each group, as compiled loops read them."""

    near: npt.NDArray[np.int32]
    begin: npt.NDArray[np.int64]
    of_group: int
    """Rings of each group."""


SampledCycle = Callable[[Round, Missed], tuple[Pages, Kinds] | None]
"""Visits of a cycle by a compiled loop, and their kinds; None: the policy itself must plan them."""


def compiled_loop(policy: Policy, evidence: ReplayEvidence) -> SampledCycle | None:
    """Compiled loop of a sampling policy; None: it has none."""
    if type(policy) is RandomNodes:
        return _Draws(evidence).random_nodes
    if type(policy) is Greedy:
        return _Greedy(policy, evidence)
    if type(policy) is Follow and (rings := _rings_of(policy, evidence)) is not None:
        return _Follow(policy, evidence, rings)
    return None


class _Draws:
    """Draws of a cycle, and the order of samples that follows from them."""

    def __init__(self, evidence: ReplayEvidence) -> None:
        from training.replaying.kernels import dense, sampling  # compile: only when they are used

        self.kernels: Any = sampling
        self._at_least: Any = dense.at_least
        self.evidence = evidence
        self.drawn = np.empty(evidence.pages, np.uint64)
        self._page_memory = np.empty(evidence.pages + 1, np.uint32)

    def draw(self) -> None:
        self.kernels.draw(self.evidence.salt, self.drawn)

    def turns(self, wanted: int) -> Pages | None:
        """First pages by draw; None: two draws are equal as floats, so that the policy decides."""
        share = min(1.0, (wanted + 8.0 * wanted**0.5 + 8.0) / len(self.drawn))
        count = 0
        while count < min(wanted, len(self.drawn)):
            bound = np.uint64(2.0**64 * (1.0 - share)) if share < 1.0 else np.uint64(0)
            count = self._at_least(self.drawn, bound, self._page_memory)
            share = min(1.0, 2.0 * share)
        pages = self._page_memory[:count]
        # Sorting numbers takes a third of the time of sorting positions by them: each carries its position.
        bits = np.uint64(max(1, count).bit_length())
        mixed = np.sort(~self.drawn[pages] >> bits << bits | np.arange(count, dtype=np.uint64))[:wanted]
        # Turns are floats: what differs by one unit of these, or less, may be one number there.
        if (np.diff(mixed >> max(bits, np.uint64(12))) <= 1).any():
            return None
        return np.asarray(pages[mixed & ((np.uint64(1) << bits) - np.uint64(1))])

    def random_nodes(self, round: Round, missed: Missed) -> tuple[Pages, Kinds] | None:
        self.draw()
        pages = self.turns(round.remaining)
        return None if pages is None else (pages, np.full(len(pages), SAMPLE, np.uint8))


class _Greedy:
    def __init__(self, policy: Greedy, evidence: ReplayEvidence) -> None:
        self._policy, self._evidence = policy, evidence
        self._draws = _Draws(evidence)

    def __call__(self, round: Round, missed: Missed) -> tuple[Pages, Kinds]:
        grouping = self._evidence.grouping(self._policy.level)
        pages, begin = grouping.by_group
        filled = int(np.count_nonzero(np.diff(begin)))
        each = self._policy.sample or sample_pages(round.remaining, filled)
        visits = np.empty(round.remaining, np.uint32), np.empty(round.remaining, np.uint8)
        self._draws.draw()
        count = self._draws.kernels.greedy(
            each, round.remaining, self._draws.drawn, missed, (pages, begin), visits
        )
        if count < round.remaining and begin[0]:  # pages in no group come first
            lone = pages[: begin[0]]
            lone = lone[np.argsort(~self._draws.drawn[lone])][: round.remaining - count]
            visits[0][count : count + len(lone)], visits[1][count : count + len(lone)] = lone, SAMPLE
            count += len(lone)
        return visits[0][:count], visits[1][:count]


class _Follow:
    def __init__(self, policy: Follow, evidence: ReplayEvidence, rings: Rings) -> None:
        self._policy, self._evidence, self._rings = policy, evidence, rings
        self._draws = _Draws(evidence)

    def __call__(self, round: Round, missed: Missed) -> tuple[Pages, Kinds] | None:
        following = self._policy.parameters
        self._draws.draw()
        turns = self._draws.turns(2 * round.remaining)
        if turns is None:
            return None
        follows = self._policy.is_followed(SampleOutcomes(turns, missed[turns] > 0), round, self._evidence)
        grouping = self._evidence.grouping(following.near)
        visits = np.empty(round.remaining, np.uint32), np.empty(round.remaining, np.uint8)
        near, begin, of_group = self._rings
        count = self._draws.kernels.follow(
            turns,
            follows,
            self._draws.drawn,
            (grouping.number, *grouping.by_group),
            (near, begin),
            (round.remaining, following.in_flight, of_group),
            visits,
        )
        return visits[0][:count], visits[1][:count]


_RINGS: Final[weakref.WeakKeyDictionary[Grouping, dict[int, Rings | None]]] = weakref.WeakKeyDictionary()


def _rings_of(policy: Follow, evidence: ReplayEvidence) -> Rings | None:
    """Rings of all groups, cached by grouping and d; None: too many, or of single pages."""
    near, d = policy.parameters.near, policy.parameters.d
    if near == "links":
        return None
    try:
        grouping = evidence.grouping(near)
    except PolicyError:
        return None  # the policy itself says so, if it asks for it
    known = _RINGS.setdefault(grouping, {})
    if d not in known:
        known[d] = _all_rings(grouping, d)
    return known[d]


def _all_rings(grouping: Grouping, d: int) -> Rings | None:
    assert grouping.distances is not None
    parts: list[npt.NDArray[np.int32]] = []
    size: list[int] = []
    total = 0
    for group in range(grouping.groups):
        for ring, _ in itertools.zip_longest(grouping.distances.rings(group, d), range(abs(d) + 1)):
            parts.append(np.empty(0, np.int32) if ring is None else ring.astype(np.int32))
            size.append(len(parts[-1]))
            total += size[-1]
        if total > MOST_NEAR:
            return None
    begin = np.concatenate(([0], np.cumsum(size))).astype(np.int64)
    return Rings(cast(Any, np.concatenate([np.empty(0, np.int32), *parts])), begin, abs(d) + 1)


Watch = Callable[[int, npt.NDArray[np.int64], npt.NDArray[np.bool_]], None]


def replay_dense(
    prepared: PreparedHistory,
    function: ScoreFunction | Baseline | None,
    tallies: Collection[str],
    watch: Watch | None = None,
    policy: PolicyChoice = TOP_K,
    *,
    by_rounds: bool = False,
) -> Tallies:
    """Replay a score function (None: the oracle) under a policy, or a baseline, page by page.

    Thesis Algorithm 2. ``tallies``: names of the optional `Tallies` to count. ``watch(cycle, pages, found)``
    receives every cycle's visits: page numbers in order of visit, int64 ``[visits]``, and whether each had
    changed, bool ``[visits]``. A policy with a method ``observe`` receives the same, of the warm-up cycles
    too. ``by_rounds``: the policy itself plans every round, even where it has a compiled loop.

    Raises PolicyError for a breach of the policy's contract, ScoreError for a terminal that the history
    lacks.
    """
    copies = Copies(prepared, tallies)
    beside = page_counters(prepared, copies, tallies)
    scoring = function if isinstance(function, ScoreFunction) else None
    columns = columns_read(scoring, policy) + (site_share.COLUMNS if prepared.site_share < 1.0 else ())
    evidence = ReplayEvidence(prepared, columns)
    planner = _planner(prepared, function, policy, copies)
    promises = prepared.promises
    sampled = (
        None
        if by_rounds or prepared.neighbours.regrouping or promises is not None
        else compiled_loop(planner, evidence)
    )
    observe: Watch | None = getattr(planner, "observe", None)
    if observe is not None:
        for cycle in range(1, prepared.warmup + 1):
            observe(cycle, np.arange(prepared.pages), prepared.changed[cycle - 1])
    gains = np.diff(prepared.gain_sums)
    rows = []
    for cycle, salt, changes in zip(
        prepared.scored_cycles.tolist(), prepared.salts, prepared.changes, strict=True
    ):
        copies.change(cycle, changes)
        pending = copies.outdated
        evidence.begin(cycle, salt)
        if promises is not None:
            last = evidence.states["last_cycle"].astype(np.int64)
            promised, hidden = promises.of_cycle(cycle, last, prepared.k)
            evidence.keep_promises(promised, copies.missed.take(promised) > 0, hidden)
        _visit(planner, sampled, Round(cycle, 0, prepared.k), evidence, copies)
        visited, is_changed = evidence.visited_pages(), evidence.is_changed()
        last = evidence.states["last_cycle"][visited] if {"new", "idle"} & {*tallies} else visited[:0]
        changed = visited[is_changed]
        row = {
            "visited": len(visited),
            "changed": len(changed),
            "pending": pending,
            "dcg": gains[: len(visited)][is_changed].sum(),
            "new": np.count_nonzero(last == prepared.warmup),
            "idle": np.count_nonzero(last != cycle - 1),
            "changed_weight": copies.weight(changed),
        }
        for observer in (watch, observe, *(one.visit for one in beside)):
            if observer is not None:
                observer(cycle, visited, is_changed)
        copies.visit(changed)
        evidence.observe()
        rows.append(row | copies.tallies(cycle))
    said = {name: observer for one in beside for name, observer in one.tallies().items()}
    wanted = {"visited", "changed", "pending", *tallies} - CONTENTS.keys() - said.keys()
    return Tallies(**said, **{name: np.array([row[name] for row in rows], np.int64) for name in wanted})


def _visit(
    policy: Policy, sampled: SampledCycle | None, first: Round, evidence: ReplayEvidence, copies: Copies
) -> None:
    visits = None if sampled is None else sampled(first, copies.missed)
    if visits is not None:
        pages, kinds = visits
        chosen = Selection(pages, np.full(len(pages), np.nan), None, kinds)
        evidence.visit(chosen, copies.missed[pages] > 0)
        return
    for number in rounds_of(policy):
        chosen = choose(policy, Round(first.cycle, number, first.remaining - evidence.visited), evidence)
        if policy.rounds is None and not len(chosen.pages):
            break
        evidence.visit(chosen, copies.missed.take(chosen.pages) > 0)


def _planner(
    prepared: PreparedHistory, function: ScoreFunction | Baseline | None, policy: PolicyChoice, copies: Copies
) -> Policy:
    if function is None:
        return _Oracle(copies)
    if isinstance(function, Baseline):
        return function.make(prepared)
    return site_share.shared(policy.make(PolicySettings(function, prepared.seed)), prepared.site_share)


@dataclass(frozen=True)
class _Oracle:
    """Policy that visits changed pages first: no ranking finds more in a cycle."""

    copies: Copies
    name: str = ORACLE
    rounds: int = 1

    def plan(self, round: Round, evidence: Evidence) -> Selection:
        def changed(block: Block) -> Floats:
            return (self.copies.missed[block.pages] > 0).astype(np.float64)

        return best_candidates(changed, round.remaining, evidence)
