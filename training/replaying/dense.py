"""The dense replay engine: every page has its own row, in plain numpy.

For score functions whose terminals differ from page to page (``random``, related pages, callables), for all
policies but ``top_k``, for `metrics.ORACLE`, and as the plain statement of what `training.replaying.grouped`
computes faster.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.policies.policy import (
    Block,
    Chosen,
    Evidence,
    Policy,
    PolicySettings,
    Round,
    choose,
    rounds_of,
)
from scrapy_gp4c.policies.table import TOP_K, PolicyChoice, columns_read
from scrapy_gp4c.policies.top_k import best_candidates
from scrapy_gp4c.scoring.functions import ScoreFunction
from training.replaying.arranged import ArrangedHistory
from training.replaying.copies import Copies, measuring
from training.replaying.evidence import ReplayEvidence
from training.replaying.metrics import CONTENTS, ORACLE, Floats, Tallies
from training.replaying.peers import Peer
from training.replaying.sampled import SampledCycles, compiled

Watch = Callable[[int, npt.NDArray[np.int64], npt.NDArray[np.bool_]], None]


def replay_dense(
    arranged: ArrangedHistory,
    function: ScoreFunction | Peer | None,
    tallies: Collection[str],
    watch: Watch | None = None,
    policy: PolicyChoice = TOP_K,
    *,
    by_rounds: bool = False,
) -> Tallies:
    """Replay `function` (None: the oracle) under a policy, or a peer, page by page (thesis Algorithm 2).

    ``tallies``: names of the optional `Tallies` to count. ``watch(cycle, pages, found)`` is told of every
    cycle's visits: page numbers in the order of visit, int64 ``[visits]``, and whether each had changed, bool
    ``[visits]``. ``policy``: what chooses by the function; a crawl drives the same object. One with a method
    ``observe`` is told the same, of the warm-up cycles too. ``by_rounds``: the policy itself plans every
    round, even where `sampled` has a compiled loop for it.

    Raises PolicyError for a breach of the policy's contract, ScoreError for a terminal that nothing tells.
    """
    copies = Copies(arranged, tallies)
    beside = measuring(arranged, copies, tallies)
    scoring = function if isinstance(function, ScoreFunction) else None
    evidence = ReplayEvidence(arranged, columns_read(scoring, policy))
    planner = _planner(arranged, function, policy, copies)
    sampled = None if by_rounds or evidence.is_regrouped else compiled(planner, evidence)
    observe: Watch | None = getattr(planner, "observe", None)
    if observe is not None:
        for cycle in range(1, arranged.warmup + 1):
            observe(cycle, np.arange(arranged.pages), arranged.changed[cycle - 1])
    gains = np.diff(arranged.gain_sums)
    rows = []
    for cycle, salt, changes in zip(
        arranged.scored_cycles.tolist(), arranged.salts, arranged.changes, strict=True
    ):
        copies.change(cycle, changes)
        pending = copies.outdated
        evidence.begin(cycle, salt)
        _visit(planner, sampled, Round(cycle, 0, arranged.k), evidence, copies)
        visited, found = evidence.visited_pages(), evidence.found()
        last = evidence.states["last_cycle"][visited] if {"new", "idle"} & {*tallies} else visited[:0]
        changed = visited[found]
        row = {
            "visited": len(visited),
            "changed": len(changed),
            "pending": pending,
            "dcg": gains[: len(visited)][found].sum(),
            "new": np.count_nonzero(last == arranged.warmup),
            "idle": np.count_nonzero(last != cycle - 1),
            "changed_weight": copies.weight(changed),
        }
        for told in (watch, observe, *(one.visit for one in beside)):
            if told is not None:
                told(cycle, visited, found)
        copies.visit(changed)
        evidence.observe()
        rows.append(row | copies.tallies(cycle))
    evidence.close()
    said = {name: told for one in beside for name, told in one.tallies().items()}
    wanted = {"visited", "changed", "pending", *tallies} - CONTENTS.keys() - said.keys()
    return Tallies(**said, **{name: np.array([row[name] for row in rows], np.int64) for name in wanted})


def _visit(
    policy: Policy, sampled: SampledCycles | None, first: Round, evidence: ReplayEvidence, copies: Copies
) -> None:
    """Make the visits of a cycle, in one go or round by round."""
    if sampled is not None and sampled.visit(first, copies.missed):
        return
    for number in rounds_of(policy):
        chosen = choose(policy, Round(first.cycle, number, first.remaining - evidence.visited), evidence)
        if policy.rounds is None and not len(chosen.pages):
            break
        evidence.visit(chosen, copies.missed.take(chosen.pages) > 0)


def _planner(
    arranged: ArrangedHistory, function: ScoreFunction | Peer | None, policy: PolicyChoice, copies: Copies
) -> Policy:
    if function is None:
        return _Oracle(copies)
    if isinstance(function, Peer):
        return function.make(arranged)
    return policy.make(PolicySettings(function, arranged.seed))


@dataclass(frozen=True)
class _Oracle:
    """Chooses the pages that changed since their last visit first: no ranking finds more in a cycle."""

    copies: Copies
    name: str = ORACLE
    rounds: int = 1

    def plan(self, round: Round, evidence: Evidence) -> Chosen:
        def changed(block: Block) -> Floats:
            return (self.copies.missed[block.pages] > 0).astype(np.float64)

        return best_candidates(changed, round.remaining, evidence)
