"""Policies for tests: some depend on what a cycle finds, some break the contract; evidence in memory."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.page_state.groupings import Grouping, Name
from scrapy_gp4c.page_state.outcomes import CHANGED, UNCHANGED
from scrapy_gp4c.policies.base import Block, CycleVisits, Evidence, Planned, PolicySettings, Round, Selection
from scrapy_gp4c.policies.top_k import CycleScorer, TopK, best_candidates
from scrapy_gp4c.scoring.terminals import STATE

HOST_PAGES = 10
"""Pages of a host: page p is on host p // 10."""


class ChangedHosts:
    """Visits half of the budget by score, then the best on hosts where these visits found changes."""

    name = "changed_hosts"
    rounds = 2

    def __init__(self, settings: PolicySettings) -> None:
        self.settings = settings

    def plan(self, round: Round, evidence: Evidence) -> Selection:
        scores_of = CycleScorer(self.settings.score_function, round.cycle)
        if round.number == 0:
            return best_candidates(scores_of, round.remaining // 2, evidence)
        visits = evidence.visits()
        hosts = np.unique(visits.changed // HOST_PAGES)
        return best_candidates(scores_of, round.remaining, _Hosts(evidence, hosts))


class _Hosts:
    """Evidence without the candidates of other hosts."""

    def __init__(self, evidence: Evidence, hosts: npt.NDArray[np.uint32]) -> None:
        self._evidence, self._hosts = evidence, hosts

    def candidates(self) -> Iterator[Block]:
        for block in self._evidence.candidates():
            rows = np.flatnonzero(np.isin(block.pages // HOST_PAGES, self._hosts))
            state = {name: block.state[name][rows] for name in (*STATE, "draw")}
            yield Block(block.pages[rows], state, block.ties_of(rows).__getitem__)

    def visits(self) -> CycleVisits:
        return self._evidence.visits()


def changed_hosts(settings: PolicySettings) -> ChangedHosts:
    return ChangedHosts(settings)


class Siblings:
    """Ranks pages, in four equal rounds, by the changes that this cycle has found on their host."""

    name = "siblings"
    rounds = 4

    def __init__(self, settings: PolicySettings) -> None:
        self.settings = settings

    def plan(self, round: Round, evidence: Evidence) -> Selection:
        visits = evidence.visits()
        changes = np.bincount(visits.changed // HOST_PAGES, minlength=2**12)

        scored = CycleScorer(self.settings.score_function, round.cycle)

        def scores_of(block: Block) -> npt.NDArray[np.float64]:
            return changes[block.pages // HOST_PAGES] + 1e-3 * scored(block)

        return best_candidates(scores_of, round.remaining // (self.rounds - round.number), evidence)


def siblings(settings: PolicySettings) -> Siblings:
    return Siblings(settings)


class Broken:
    """Policy that passes a valid plan through the function `spoil`."""

    name = "broken"
    rounds = 1

    def __init__(self, spoil: Callable[[Selection, Round], Selection], settings: PolicySettings) -> None:
        self._spoil, self._settings = spoil, settings

    def plan(self, round: Round, evidence: Evidence) -> Selection:
        return self._spoil(
            best_candidates(
                CycleScorer(self._settings.score_function, round.cycle), round.remaining, evidence
            ),
            round,
        )


def too_many(settings: PolicySettings) -> Broken:
    """Policy that chooses one page more than the budget has left."""

    def spoil(chosen: Selection, round: Round) -> Selection:
        pages = np.arange(round.remaining + 1, dtype=np.uint32)
        return Selection(pages, np.zeros(len(pages)), None)

    return Broken(spoil, settings)


class TooManyLater(ChangedHosts):
    """Policy that chooses too many pages in its second round."""

    name = "too_many_later"

    def plan(self, round: Round, evidence: Evidence) -> Selection:
        return (
            too_many(self.settings).plan(round, evidence) if round.number else super().plan(round, evidence)
        )


def too_many_later(settings: PolicySettings) -> TooManyLater:
    return TooManyLater(settings)


def no_policy(settings: PolicySettings) -> object:
    """Factory of an object that is no policy."""
    return object()


class Memory:
    """Evidence in memory: state columns, the visits so far, and the outcome that each visit would have."""

    def __init__(
        self,
        state: Mapping[str, npt.NDArray[Any]],
        changed: npt.NDArray[np.bool_],
        draws: npt.NDArray[np.uint64],
        block_rows: int,
    ) -> None:
        self.state, self.changed, self.draws, self.block_rows = state, changed, draws, block_rows
        self.visited = np.empty(0, np.uint32)
        self.kinds = np.empty(0, np.uint8)
        self.groupings: dict[str, Grouping] = {}
        self.popular = np.zeros(len(draws), np.uint8)
        self.known_outcomes: int | None = None
        """Number of visits whose outcomes are known; None: all."""

    def visit(self, chosen: Selection) -> None:
        """Record the visits of a round."""
        self.visited = np.concatenate((self.visited, chosen.pages))
        self.kinds = np.concatenate((self.kinds, chosen.kinds_of_pages()))

    def candidates(self) -> Iterator[Block]:
        for start in range(0, len(self.draws), self.block_rows):
            pages = np.arange(start, min(start + self.block_rows, len(self.draws)), dtype=np.uint32)
            pages = pages[~np.isin(pages, self.visited)]
            state = {name: column[pages] for name, column in self.state.items()}
            yield Block(pages, {**state, "draw": self.draws[pages]}, self.draws[pages].__getitem__)

    def may_visit(self, pages: npt.NDArray[np.uint32]) -> npt.NDArray[np.bool_]:
        return (pages < len(self.draws)) & ~np.isin(pages, self.visited)

    def rows(self, pages: npt.NDArray[np.uint32]) -> Block:
        state = {name: column[pages] for name, column in self.state.items()}
        return Block(pages, {**state, "draw": self.draws[pages]}, self.draws[pages].__getitem__)

    def visits(self) -> CycleVisits:
        outcomes = np.where(self.changed[self.visited], np.uint8(CHANGED), np.uint8(UNCHANGED))
        return CycleVisits(self.visited, outcomes, self.planned().kinds).first(
            len(self.visited) if self.known_outcomes is None else self.known_outcomes
        )

    def planned(self) -> Planned:
        kinds = self.kinds if len(self.kinds) else np.zeros(len(self.visited), np.uint8)
        return Planned(self.visited, kinds)

    def grouping(self, name: Name) -> Grouping:
        return self.groupings[name]

    def popularity(self) -> npt.NDArray[np.uint8]:
        return self.popular


OBSERVED: list[tuple[int, npt.NDArray[np.int64], npt.NDArray[np.bool_]]] = []
"""Arguments of the calls of `Listening.observe`: cycle, pages, and whether each had changed."""


class Listening(TopK):
    """Policy `top_k` with a method `observe`, to which a replay reports every cycle."""

    def observe(self, cycle: int, pages: npt.NDArray[np.int64], changed: npt.NDArray[np.bool_]) -> None:
        OBSERVED.append((cycle, pages.copy(), changed.copy()))


def listening(settings: PolicySettings) -> Listening:
    return Listening(settings)
