"""Dense replay engine: every page has its own row, in plain NumPy.

It replays score functions whose terminals differ from page to page (``random``, related pages, callables),
all policies but ``top_k``, baselines and the oracle; tests compare `training.replaying.grouped` with it.
Sampling policies have compiled loops (`training.replaying.compiled_sampling`). Policies read the pages and
visits of the replay as `training.replaying.evidence`.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.arrays import Floats, Ints
from scrapy_gp4c.errors import HistoryError
from scrapy_gp4c.policies import site_share
from scrapy_gp4c.policies.base import (
    Block,
    Evidence,
    Policy,
    PolicySettings,
    Round,
    Selection,
    choose,
    rounds_of,
)
from scrapy_gp4c.policies.table import TOP_K, PolicyChoice, columns_read
from scrapy_gp4c.policies.top_k import best_candidates
from scrapy_gp4c.scoring import measured
from scrapy_gp4c.scoring.functions import ScoreFunction
from training.replaying.baselines import Baseline
from training.replaying.compiled_sampling import SampledCycle, compiled_loop
from training.replaying.copies import Copies, page_counters
from training.replaying.evidence import ReplayEvidence
from training.replaying.metrics import CONTENTS, ORACLE, Tallies
from training.replaying.prepared import PreparedHistory

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

    Raises PolicyError if the policy breaks its contract, ScoreError for a terminal that the history lacks.
    """
    copies = Copies(prepared, tallies)
    counters = page_counters(prepared, copies, tallies)
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
    costs_ms = _costs_ms(prepared) if "cost" in tallies else np.zeros(prepared.pages, np.int64)
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
            "cost": costs_ms[visited].sum(),
        }
        for observer in (watch, observe, *(one.visit for one in counters)):
            if observer is not None:
                observer(cycle, visited, is_changed)
        copies.visit(changed)
        evidence.observe()
        rows.append(row | copies.tallies(cycle))
    observed = {name: values for one in counters for name, values in one.tallies().items()}
    names = {"visited", "changed", "pending", *tallies} - CONTENTS.keys() - observed.keys()
    return observed | {name: np.array([row[name] for row in rows], np.int64) for name in names}


def _costs_ms(prepared: PreparedHistory) -> Ints:
    if prepared.latency_ms is None:
        raise HistoryError(
            "changes per second need the download times of the pages, which the history does not tell: use "
            "the store of a crawl or what `scrapy gp4c export` writes of it"
        )
    return measured.costs_ms(prepared.latency_ms)


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
    made = policy.make(PolicySettings(function, prepared.seed))
    return site_share.shared(made, prepared.site_share) if prepared.site_share < 1.0 else made


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
