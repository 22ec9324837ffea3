"""Groups of a cycle's candidates: the pages of each group, and the outcomes of its samples so far.

A page's draw of the cycle says when its turn as a sample comes, the highest first; other draws follow from it
(`scrapy_gp4c.scoring.ranking.Purpose`). So nothing depends on the order in which answers arrive.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain
from typing import Protocol, Self, runtime_checkable

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.arrays import Bools, Floats
from scrapy_gp4c.page_state.groupings import NOWHERE, Grouping, Numbers
from scrapy_gp4c.page_state.outcomes import CHANGED, GONE, JUDGED, PANEL, SAMPLE, among
from scrapy_gp4c.policies.base import NOTHING_CHOSEN, Block, Evidence, Pages, Selection, unscored
from scrapy_gp4c.scoring.ranking import Purpose, drawn_for

Draws = npt.NDArray[np.uint64]

SAMPLES = (SAMPLE, PANEL)
"""Kinds of visits that tell of other pages: the control group is drawn at random too."""


def plan_of(parts: list[tuple[int, Pages]]) -> Selection:
    """A plan of pages that no score chose: kind and pages, the first to visit first."""
    if not parts:
        return NOTHING_CHOSEN
    kinds = [np.full(len(pages), kind, np.uint8) for kind, pages in parts]
    return unscored(np.concatenate([pages for _, pages in parts]), np.concatenate(kinds))


@dataclass(frozen=True)
class SampleOutcomes:
    """Samples whose visits showed whether the page changed."""

    pages: Pages
    """``[S]``."""
    changed: Bools
    """``[S]``."""


def samples_of(evidence: Evidence, begin: int = 0) -> SampleOutcomes:
    """The samples among the visits from number ``begin`` on.

    A page that is gone and was there before is changed too (Tan et al. 2007, section 3); errors tell nothing.
    """
    visits = evidence.visits()
    wanted = among(visits.kinds[begin:], SAMPLES)
    pages, outcomes = visits.pages[begin:][wanted], visits.outcomes[begin:][wanted]
    changed = outcomes == CHANGED
    gone = np.flatnonzero(outcomes == GONE)
    if len(gone):
        changed[gone] = evidence.rows(pages[gone]).state["gone"] == 0
    informative = among(outcomes, JUDGED) | changed
    return SampleOutcomes(pages[informative], changed[informative])


@dataclass(frozen=True, eq=False)
class Members:
    """Candidates of a cycle, and pages that its rounds have chosen, by group, in the order of their turns."""

    pages: Pages
    """``[P]``."""
    begin: Numbers
    """``[G + 1]``: where each group begins that has any; the last is P."""
    number: Numbers
    """``[G]``: of the group, ascending."""
    drawn: Draws
    """``[G]``: draw that decides between equal groups, the smaller first."""
    value: Floats
    """``[G]``: mean of a value over the group's pages."""
    alone: Pages
    """Pages in no group, in the order of their turns: sampled when all else is done, never followed."""

    def first(self, group: int, wanted: int | None = None) -> Pages:
        """The first pages of the group at a position; None: all."""
        begin, end = int(self.begin[group]), int(self.begin[group + 1])
        return self.pages[begin : end if wanted is None else min(begin + wanted, end)]

    def positions(self, numbers: Numbers) -> Numbers:
        """Positions of groups by their numbers; numbers without members are left out."""
        nearest = np.minimum(np.searchsorted(self.number, numbers), len(self.number) - 1)
        return np.asarray(nearest[self.number[nearest] == numbers] if len(self.number) else nearest[:0])


def sample_pages(budget: int, groups: int) -> int:
    """Pages to sample of each group: round(sqrt(N r)), N a mean group, r the budget's share, or 1."""
    return max(1, round(math.sqrt(budget / groups))) if groups else 1


@runtime_checkable
class GroupedEvidence(Protocol):
    """Evidence that has all pages at hand, and lists the pages of groups faster than a sort of its blocks."""

    @property
    def is_partial(self) -> bool:
        """Whether some pages are no candidates before the first round."""

    def first_of_groups(self, grouping: Grouping, most: int) -> tuple[Pages, Numbers, Numbers]:
        """The first candidates of every group in the order of their turns: at most so many of each.

        Returns the pages, group by group; the positions where groups begin, and behind them the number of
        pages; the numbers of the groups, ascending. Groups without candidates are left out.
        """


def first_members(evidence: Evidence, grouping: Grouping, wanted: int) -> Members:
    """The groups of a cycle's candidates, with as many pages of each as one by one of all make ``wanted``."""
    if not isinstance(evidence, GroupedEvidence) or evidence.is_partial:
        return members_of(evidence, grouping)
    every, begin = grouping.by_group
    ungrouped, size = every[: begin[0]], np.diff(begin)
    most = 1
    while np.minimum(size, most).sum() < min(wanted, begin[-1] - begin[0]):
        most *= 2
    pages, begin, number = evidence.first_of_groups(grouping, most)
    key = drawn_for(evidence.rows(pages[begin[:-1]]).state["draw"], Purpose.GROUP)
    alone = NOTHING_CHOSEN.pages
    if len(pages) < wanted:
        alone = ungrouped[np.argsort(~evidence.rows(ungrouped).state["draw"])]
    return Members(pages, begin, number, key, np.zeros(len(number)), alone)


def members_of(
    evidence: Evidence, grouping: Grouping, value_of: Callable[[Block], Floats] | None = None
) -> Members:
    """The groups of all pages that the cycle may choose, or has chosen."""
    planned = evidence.rows(np.sort(evidence.planned().pages))
    value_of = value_of or (lambda block: np.zeros(len(block.pages)))
    parts = [
        (block.pages, block.state["draw"], value_of(block))
        for block in chain(evidence.candidates(), [planned])
    ]
    pages, drawn, values = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    number = grouping.number[pages]
    ungrouped = np.flatnonzero(number == NOWHERE)
    alone = pages[ungrouped[np.argsort(~drawn[ungrouped])]]
    keep = np.argsort(pages, kind="stable")  # the same sums of values, whatever was planned before
    keep = keep[number[keep] != NOWHERE]
    pages, drawn, number, values = pages[keep], drawn[keep], number[keep], values[keep]
    sums = np.bincount(number, values, grouping.groups)
    order = np.lexsort((~drawn, number))
    pages, number = pages[order], number[order]
    groups, first = np.unique(number, return_index=True)
    begin = np.append(first, len(order))
    mean = sums[groups] / np.maximum(np.diff(begin), 1)
    return Members(pages, begin, groups, drawn_for(drawn[order[first]], Purpose.GROUP), mean, alone)


@dataclass(frozen=True, eq=False)
class SampleResult:
    """Results of the samples of groups so far; visits to the control group are samples too."""

    sampled: Bools
    """``[G]``: samples of the group were sent."""
    complete: Bools
    """``[G]``: samples were sent, and all have an outcome."""
    share: Floats
    """``[G]``: changed samples / samples that told something; 0 of none."""
    awaited: int
    """Pages that are left of groups with a sample out: these may turn out to be better than the others."""

    @classmethod
    def of(cls, evidence: Evidence, grouping: Grouping, members: Members) -> Self:
        """Count the samples of each group."""

        def count(pages: Pages) -> Numbers:
            return np.bincount(members.positions(grouping.number[pages]), minlength=len(members.number))

        planned, visits, outcomes = evidence.planned(), evidence.visits(), samples_of(evidence)
        sent = count(planned.pages[planned.kinds == SAMPLE])
        done = count(visits.pages[visits.kinds == SAMPLE])
        share = count(outcomes.pages[outcomes.changed]) / np.maximum(count(outcomes.pages), 1)
        sampled, complete = sent > 0, (sent > 0) & (done >= sent)
        unvisited = (np.diff(members.begin) - sent)[sampled & ~complete]
        return cls(sampled, complete, share, int(unvisited.sum()))

    @property
    def all_complete(self) -> bool:
        """Whether every sample that was sent has its outcomes."""
        return bool((self.sampled == self.complete).all())


def ungrouped_samples(members: Members, most: int, evidence: Evidence) -> Pages:
    """Pages in no group, as samples for want of groups: at most so many."""
    return members.alone[evidence.may_visit(members.alone)][:most] if most else NOTHING_CHOSEN.pages


def group_samples(order: Numbers, members: Members, each: int, wanted: int, most: int) -> list[Pages]:
    """The first ``each`` pages of groups in an order, until ``wanted`` are together; never above ``most``."""
    parts: list[Pages] = []
    count = 0
    for group in order.tolist():
        if count >= min(wanted, most):
            break
        parts.append(members.first(group, min(each, most - count)))
        count += len(parts[-1])
    return parts


def remaining_pages(order: Numbers, members: Members, most: int, evidence: Evidence, spare: int = 0) -> Pages:
    """First candidates of groups that are visited in an order, at most ``most`` pages.

    Behind the first group that has any, only so many as leave ``spare`` pages for others: they would be
    fetched even if all of these came first.
    """
    parts: list[Pages] = []
    for group in order.tolist():
        if not most:
            break
        pages = members.first(group)
        pages = pages[evidence.may_visit(pages)][:most]
        if parts and len(pages) > most - spare:
            break
        if len(pages):
            parts.append(pages)
            most -= len(pages)
    return np.concatenate([*parts, NOTHING_CHOSEN.pages])
