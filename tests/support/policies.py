"""Policies of the tests' own: one that depends on what a cycle finds, and those that break the contract."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.page_state.groupings import Grouping, Name
from scrapy_gp4c.page_state.outcomes import CHANGED, UNCHANGED
from scrapy_gp4c.policies.base import Block, CycleVisits, Evidence, Planned, PolicySettings, Round, Selection
from scrapy_gp4c.policies.top_k import TopK, best_candidates, scored_by
from scrapy_gp4c.scoring.terminals import STATE

HOST_PAGES = 10
"""Pages of a host: page p is on host p // 10."""


class ChangedHosts:
    """Half of the budget by score; the rest by score too, on hosts where the first half found changes."""

    name = "changed_hosts"
    rounds = 2

    def __init__(self, settings: PolicySettings) -> None:
        self.settings = settings

    def plan(self, round: Round, evidence: Evidence) -> Selection:
        """Plan one of the two rounds."""
        scores_of = scored_by(self.settings, round)
        if round.number == 0:
            return best_candidates(scores_of, round.remaining // 2, evidence)
        visits = evidence.visits()
        hosts = np.unique(visits.changed // HOST_PAGES)
        return best_candidates(scores_of, round.remaining, _Hosts(evidence, hosts))


class _Hosts:
    """Evidence of some hosts alone."""

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
    """What ``GP4C_POLICY = "tests.support.policies.changed_hosts"`` names."""
    return ChangedHosts(settings)


class Siblings:
    """Four equal rounds: the more changes this cycle has found on its host, the earlier a page comes."""

    name = "siblings"
    rounds = 4

    def __init__(self, settings: PolicySettings) -> None:
        self.settings = settings

    def plan(self, round: Round, evidence: Evidence) -> Selection:
        """Plan one of the four rounds."""
        visits = evidence.visits()
        changes = np.bincount(visits.changed // HOST_PAGES, minlength=2**12)

        scored = scored_by(self.settings, round)

        def scores_of(block: Block) -> npt.NDArray[np.float64]:
            return changes[block.pages // HOST_PAGES] + 1e-3 * scored(block)

        return best_candidates(scores_of, round.remaining // (self.rounds - round.number), evidence)


def siblings(settings: PolicySettings) -> Siblings:
    """What ``GP4C_POLICY = "tests.support.policies.siblings"`` names."""
    return Siblings(settings)


class Broken:
    """A policy whose plan is what a function makes of a sound one."""

    name = "broken"
    rounds = 1

    def __init__(self, spoil: Callable[[Selection, Round], Selection], settings: PolicySettings) -> None:
        self._spoil, self._settings = spoil, settings

    def plan(self, round: Round, evidence: Evidence) -> Selection:
        """Plan, and spoil the plan."""
        return self._spoil(
            best_candidates(scored_by(self._settings, round), round.remaining, evidence), round
        )


def too_many(settings: PolicySettings) -> Broken:
    """Chooses more than the budget has left."""

    def spoil(chosen: Selection, round: Round) -> Selection:
        pages = np.arange(round.remaining + 1, dtype=np.uint32)
        return Selection(pages, np.zeros(len(pages)), None)

    return Broken(spoil, settings)


class TooManyLater(ChangedHosts):
    """Breaks the contract in its second round."""

    name = "too_many_later"

    def plan(self, round: Round, evidence: Evidence) -> Selection:
        """Plan the first round as it should be."""
        return (
            too_many(self.settings).plan(round, evidence) if round.number else super().plan(round, evidence)
        )


def too_many_later(settings: PolicySettings) -> TooManyLater:
    """What ``GP4C_POLICY = "tests.support.policies.too_many_later"`` names."""
    return TooManyLater(settings)


def no_policy(settings: PolicySettings) -> object:
    """Returns something else than a policy."""
    return object()


class Memory:
    """Evidence in memory: columns, what has been visited, and what each visit would find."""

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
        self.heard: int | None = None
        """Visits whose outcomes are known; None: all."""

    def visit(self, chosen: Selection) -> None:
        """Make the visits of a round."""
        self.visited = np.concatenate((self.visited, chosen.pages))
        self.kinds = np.concatenate((self.kinds, chosen.kinds_of_pages()))

    def candidates(self) -> Iterator[Block]:
        """Yield what is not visited, in blocks."""
        for start in range(0, len(self.draws), self.block_rows):
            pages = np.arange(start, min(start + self.block_rows, len(self.draws)), dtype=np.uint32)
            pages = pages[~np.isin(pages, self.visited)]
            state = {name: column[pages] for name, column in self.state.items()}
            yield Block(pages, {**state, "draw": self.draws[pages]}, self.draws[pages].__getitem__)

    def may_visit(self, pages: npt.NDArray[np.uint32]) -> npt.NDArray[np.bool_]:
        """Tell what is known and not visited."""
        return (pages < len(self.draws)) & ~np.isin(pages, self.visited)

    def rows(self, pages: npt.NDArray[np.uint32]) -> Block:
        """Return the columns of some pages."""
        state = {name: column[pages] for name, column in self.state.items()}
        return Block(pages, {**state, "draw": self.draws[pages]}, self.draws[pages].__getitem__)

    def visits(self) -> CycleVisits:
        """Return the visits so far."""
        outcomes = np.where(self.changed[self.visited], np.uint8(CHANGED), np.uint8(UNCHANGED))
        return CycleVisits(self.visited, outcomes, self.planned().kinds).first(
            len(self.visited) if self.heard is None else self.heard
        )

    def planned(self) -> Planned:
        """Return the same, as it was planned."""
        kinds = self.kinds if len(self.kinds) else np.zeros(len(self.visited), np.uint8)
        return Planned(self.visited, kinds)

    def grouping(self, name: Name) -> Grouping:
        """Return what the test has set."""
        return self.groupings[name]

    def popularity(self) -> npt.NDArray[np.uint8]:
        """Return what the test has set."""
        return self.popular


HEARD: list[tuple[int, npt.NDArray[np.int64], npt.NDArray[np.bool_]]] = []
"""What `Listening` was told."""


class Listening(TopK):
    """The highest scores, and an ear for what every cycle found."""

    def observe(self, cycle: int, pages: npt.NDArray[np.int64], changed: npt.NDArray[np.bool_]) -> None:
        """Note it."""
        HEARD.append((cycle, pages.copy(), changed.copy()))


def listening(settings: PolicySettings) -> Listening:
    """What ``--policy tests.support.policies.listening`` names."""
    return Listening(settings)
