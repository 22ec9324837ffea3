"""The dense replay engine: every page has its own row, in plain numpy.

For score functions whose terminals differ from page to page (``random``, callables) and for `metrics.ORACLE`,
and as the plain statement of what `training.replaying.grouped` computes faster.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.page_state.outcomes import CHANGED, UNCHANGED
from scrapy_gp4c.policies.policy import Block, Chosen, Evidence, Found, Policy, PolicySettings, Round, choose
from scrapy_gp4c.policies.table import TOP_K, PolicyChoice
from scrapy_gp4c.policies.top_k import best_candidates
from scrapy_gp4c.scoring import terminals
from scrapy_gp4c.scoring.dotted_path import is_dotted
from scrapy_gp4c.scoring.draws import salted_draws
from scrapy_gp4c.scoring.functions import ScoreFunction
from scrapy_gp4c.scoring.terminals import Array
from training.replaying.arranged import ArrangedHistory, penalties
from training.replaying.metrics import ORACLE, Floats, Ints, Tallies

Watch = Callable[[int, npt.NDArray[np.int64], npt.NDArray[np.bool_]], None]


def replay_dense(
    arranged: ArrangedHistory,
    function: ScoreFunction | None,
    tallies: Collection[str],
    watch: Watch | None = None,
    policy: PolicyChoice = TOP_K,
) -> Tallies:
    """Replay `function` (None: the oracle) under a policy, page by page (thesis Algorithm 2).

    ``tallies``: names of the optional `Tallies` to count. ``watch(cycle, pages, found)`` is told of every
    cycle's visits: page numbers in the order of visit, int64 ``[visits]``, and whether each had changed, bool
    ``[visits]``. ``policy``: what chooses by the function; a crawl drives the same object.

    Raises PolicyError for a policy that breaks its contract.
    """
    missed = np.zeros(arranged.pages, np.int64)
    evidence = _ReplayEvidence(arranged, _columns(function, policy))
    planner: Policy = _Oracle(missed)
    if function is not None:
        planner = policy.make(PolicySettings(function, arranged.seed))
    diverged = np.zeros(arranged.pages, np.int64)
    gains = np.diff(arranged.gain_sums)
    rows = []
    for cycle, salt in zip(arranged.scored_cycles.tolist(), arranged.salts, strict=True):
        now = arranged.changed[cycle - 1]
        diverged[now & (missed == 0)] = cycle
        missed += now
        evidence.begin(salt)
        for number in range(planner.rounds):
            round = Round(cycle, number, arranged.k - evidence.visited)
            chosen = choose(planner, round, evidence).pages
            evidence.visit(chosen, missed[chosen] > 0)
        visited, found = evidence.visited_pages(), evidence.found()
        last = evidence.state["last_cycle"][visited]
        row = {
            "visited": len(visited),
            "changed": np.count_nonzero(found),
            "pending": np.count_nonzero(missed),
            "dcg": gains[: len(visited)][found].sum(),
            "new": np.count_nonzero(last == arranged.warmup),
            "idle": np.count_nonzero(last != cycle - 1),
            "changed_weight": _weight(arranged, visited[found]),
        }
        if watch is not None:
            watch(cycle, visited, found)
        evidence.observe(cycle)
        missed[visited] = 0
        row |= _staleness(arranged, missed, diverged, cycle, tallies)
        rows.append(row)
    wanted = {"visited", "changed", "pending", *tallies}
    return Tallies(**{name: np.array([row[name] for row in rows], np.int64) for name in wanted})


def _columns(function: ScoreFunction | None, policy: PolicyChoice) -> tuple[str, ...]:
    """State columns to keep: what the function reads; all for a policy of a user's own."""
    if is_dotted(policy.text):
        return tuple(terminals.STATE)
    names = ("t",) if function is None else (*function.terminals, "t")
    columns = terminals.columns_of(names, "visits" if function is None else function.clock)
    return tuple(dict.fromkeys((*(name for name in columns if name != "draw"), "last_cycle")))


@dataclass(frozen=True)
class _Oracle:
    """Chooses the pages that changed since their last visit first: no ranking finds more in a cycle."""

    missed: Ints
    """Changes missed by the copy of every page: ``[P]``, as of now."""
    name: str = ORACLE
    rounds: int = 1

    def plan(self, round: Round, evidence: Evidence) -> Chosen:
        def changed(block: Block) -> Floats:
            return (self.missed[block.pages] > 0).astype(np.float64)

        return best_candidates(changed, round.remaining, evidence)


class _ReplayEvidence:
    """All pages of a replay in one block, and what the cycle has found so far."""

    def __init__(self, arranged: ArrangedHistory, columns: tuple[str, ...]) -> None:
        self._arranged = arranged
        self.state = {
            name: values[arranged.pattern] for name, values in arranged.first_state(columns).items()
        }
        self._numbers = np.arange(arranged.pages, dtype=np.uint64)
        self._pages = self._numbers.astype(np.uint32)

    def begin(self, salt: np.uint64) -> None:
        """Begin a cycle, nothing visited yet."""
        self._draws = salted_draws(self._numbers, salt)
        self._visited: list[npt.NDArray[np.uint32]] = []
        self._found: list[npt.NDArray[np.bool_]] = []
        self.visited = 0

    def candidates(self) -> Iterator[Block]:
        ties = self._draws if self._arranged.ties == "random" else self._numbers
        if not self.visited:
            yield Block(self._pages, {**self.state, "draw": self._draws}, ties)
            return
        open_to = np.ones(len(self._pages), np.bool_)
        open_to[self.visited_pages()] = False
        rows = np.flatnonzero(open_to)
        state = {name: values[rows] for name, values in self.state.items()}
        yield Block(self._pages[rows], {**state, "draw": self._draws[rows]}, ties[rows])

    def visits(self) -> Found:
        outcomes = np.where(self.found(), np.uint8(CHANGED), np.uint8(UNCHANGED))
        return Found(self.visited_pages().astype(np.uint32), outcomes)

    def visit(self, pages: npt.NDArray[np.uint32], found: npt.NDArray[np.bool_]) -> None:
        """Note the visits of a round."""
        self._visited.append(pages)
        self._found.append(found)
        self.visited += len(pages)

    def visited_pages(self) -> Ints:
        """Pages visited in this cycle, in order of visit."""
        return np.concatenate((*self._visited, np.empty(0, np.uint32))).astype(np.int64)

    def found(self) -> npt.NDArray[np.bool_]:
        """Whether each of them had changed."""
        return np.concatenate((*self._found, np.empty(0, np.bool_)))

    def observe(self, cycle: int) -> None:
        """Add the cycle's visits to the state of their pages."""
        visited = self.visited_pages()
        seen = {name: values[visited] for name, values in self.state.items()}
        terminals.observe(seen, self.found(), cycle)
        for name, values in seen.items():
            self.state[name][visited] = values


def _weight(arranged: ArrangedHistory, pages: Array) -> int:
    return int(arranged.weights.fixed[pages].sum()) if len(arranged.weights.fixed) else len(pages)


def _staleness(
    arranged: ArrangedHistory, missed: Ints, diverged: Ints, cycle: int, tallies: Collection[str]
) -> dict[str, int]:
    out: dict[str, int] = {}
    if not {"stale_weight", "age_weight", "penalty"} & set(tallies):
        return out
    stale = np.flatnonzero(missed)
    out["stale_weight"] = _weight(arranged, stale)
    if "age_weight" in tallies:
        age = cycle + 1 - diverged[stale]
        out["age_weight"] = int(
            (age * arranged.weights.fixed[stale] if len(arranged.weights.fixed) else age).sum()
        )
    if "penalty" in tallies:
        out["penalty"] = int(penalties(arranged.weights, stale, missed[stale]).sum())
    return out
