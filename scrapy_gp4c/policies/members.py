"""The groups of a cycle: which pages each has to choose from, and what its samples have told so far."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain
from typing import Final, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.page_state.groupings import (
    NOWHERE,
    Grouping,
    Level,
    Numbers,
)
from scrapy_gp4c.page_state.outcomes import NEIGHBOUR, SAMPLE
from scrapy_gp4c.policies.policy import NOBODY, Block, Evidence, Pages
from scrapy_gp4c.policies.sampling import Bools, Floats, samples_of
from scrapy_gp4c.scoring.draws import Purpose, drawn_for

Draws = npt.NDArray[np.uint64]

SLICE: Final = 262_144
"""Pages whose keys are looked at in order at a time."""


@dataclass(frozen=True, eq=False)
class Members:
    """The candidates of a cycle, and what its rounds have chosen, by group, in the order of their turns."""

    pages: Pages
    """``[P]``."""
    begin: Numbers
    """``[G + 1]``: where each group begins that has any; the last is P."""
    number: Numbers
    """``[G]``: of the group, ascending."""
    drawn: Draws
    """``[G]``: what decides between equal groups, the smaller first."""
    value: Floats
    """``[G]``: mean of what was asked for over the group's pages."""
    alone: Pages
    """Pages in no group, in the order of their turns: sampled when all else is done, never followed."""

    def sample_pages(self, budget: int) -> int:
        """`sample_pages` of each group."""
        return sample_pages(budget, len(self.number))

    def first(self, group: int, wanted: int | None = None) -> Pages:
        """The first pages of the group at a position; None: all."""
        begin, end = int(self.begin[group]), int(self.begin[group + 1])
        return self.pages[begin : end if wanted is None else min(begin + wanted, end)]

    def positions(self, numbers: Numbers) -> Numbers:
        """Positions of those groups that are among these."""
        at = np.minimum(np.searchsorted(self.number, numbers), len(self.number) - 1)
        return np.asarray(at[self.number[at] == numbers] if len(self.number) else at[:0])


def sample_pages(budget: int, groups: int) -> int:
    """Pages to sample of each group: round(sqrt(N r)), N a mean group, r the budget's share, or 1."""
    return max(1, round(math.sqrt(budget / groups))) if groups else 1


@runtime_checkable
class Listing(Protocol):
    """Evidence that has all pages at hand, and lists those of groups faster than a sort of its blocks."""

    def first_of_groups(self, grouping: Grouping, most: int) -> tuple[Pages, Numbers, Numbers]:
        """The first candidates of every group in the order of their turns: at most so many of each.

        Pages; where each group begins that has any, and their number; numbers of these groups, ascending.
        """


def first_members(evidence: Evidence, grouping: Grouping, wanted: int) -> Members:
    """The groups of a cycle's candidates, with as many pages of each as one by one of all make ``wanted``."""
    if not isinstance(evidence, Listing):
        return members_of(evidence, grouping)
    every, begin = grouping.by_group
    lone, size = every[: begin[0]], np.diff(begin)
    most = 1
    while np.minimum(size, most).sum() < min(wanted, begin[-1] - begin[0]):
        most *= 2
    pages, begin, number = evidence.first_of_groups(grouping, most)
    key = drawn_for(evidence.rows(pages[begin[:-1]]).state["draw"], Purpose.GROUP)
    alone = lone[np.argsort(~evidence.rows(lone).state["draw"])] if len(pages) < wanted else NOBODY.pages
    return Members(pages, begin, number, key, np.zeros(len(number)), alone)


def members_of(
    evidence: Evidence, grouping: Grouping, value_of: Callable[[Block], Floats] | None = None
) -> Members:
    """Tell the groups of all pages that the cycle may choose, or has chosen."""
    pages, drawn, values = _pages_to_group(evidence, len(grouping.number), value_of)
    number = grouping.number[pages]
    lone = np.flatnonzero(number == NOWHERE)
    alone = pages[lone[np.argsort(~drawn[lone])]]
    if len(lone) or (pages[1:] < pages[:-1]).any():  # sums of values are in the order of pages
        keep = np.argsort(pages, kind="stable")
        keep = keep[number[keep] != NOWHERE]
        pages, drawn, number = pages[keep], drawn[keep], number[keep]
        values = [one[keep] for one in values]
    sums = [np.bincount(number, one, grouping.groups) for one in values]
    del number, values  # the sort of many pages takes the memory
    order = _by_group(pages, drawn, grouping)
    pages = pages[order]
    ordered = grouping.number[pages]
    first = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1])[: len(ordered)])
    begin, groups = np.append(first, len(order)), ordered[first]
    mean = sums[0][groups] / np.maximum(np.diff(begin), 1) if sums else np.zeros(len(groups))
    turn = drawn_for(drawn[order[first]], Purpose.GROUP)
    return Members(pages, begin, groups, turn, mean, alone)


def _pages_to_group(
    evidence: Evidence, most: int, value_of: Callable[[Block], Floats] | None
) -> tuple[Pages, Draws, list[Floats]]:
    """All pages, at most so many, that the cycle may choose or has chosen, their draws, and values if wanted.

    In one array each from the beginning: parts of blocks would leave holes that nothing else fits into.
    """
    pages, drawn = np.empty(most, np.uint32), np.empty(most, np.uint64)
    values = [] if value_of is None else [np.empty(most)]
    count = 0
    for block in chain(evidence.candidates(), [evidence.rows(np.sort(evidence.planned().pages))]):
        rows = slice(count, count + len(block.pages))
        pages[rows], drawn[rows] = block.pages, block.state["draw"]
        for one in values:
            assert value_of is not None
            one[rows] = value_of(block)
        count = rows.stop
    return pages[:count], drawn[:count], [one[:count] for one in values]


def _by_group(pages: Pages, drawn: Draws, grouping: Grouping) -> Numbers:
    """Positions by group, the highest draw first; sorting by one number takes a tenth of the time."""
    bits = max(1, grouping.groups).bit_length()
    key = grouping.number[pages].view(np.uint64)
    key <<= np.uint64(64 - bits)
    turn = ~drawn
    turn >>= np.uint64(bits)
    key |= turn
    del turn
    order = np.argsort(key)
    slices = (key[order[start : start + SLICE + 1]] for start in range(0, len(order), SLICE))
    if any((one[1:] == one[:-1]).any() for one in slices):
        order = np.lexsort((~drawn, grouping.number[pages]))
    return np.asarray(order, np.intp)


@dataclass(frozen=True, eq=False)
class Heard:
    """What the samples of groups have told so far; visits to the panel are samples too."""

    sampled: Bools
    """``[G]``: samples of it were sent."""
    whole: Bools
    """``[G]``: and all of them are in."""
    share: Floats
    """``[G]``: changed samples / samples that told something; 0 of none."""
    awaited: int
    """Pages that are left of groups with a sample out: these may turn out to be better than the others."""

    @classmethod
    def of(cls, evidence: Evidence, grouping: Grouping, members: Members) -> Heard:
        """Count them."""

        def count(pages: Pages) -> Numbers:
            return np.bincount(members.positions(grouping.number[pages]), minlength=len(members.number))

        planned, visits, told = evidence.planned(), evidence.visits(), samples_of(evidence)
        sent, done = (
            count(planned.pages[planned.kinds == SAMPLE]),
            count(visits.pages[visits.kinds == SAMPLE]),
        )
        share = count(told.pages[told.changed]) / np.maximum(count(told.pages), 1)
        sampled, whole = sent > 0, (sent > 0) & (done >= sent)
        left = (np.diff(members.begin) - sent)[sampled & ~whole]
        return cls(sampled, whole, share, int(left.sum()))

    @property
    def is_all(self) -> bool:
        """Whether no sample is out."""
        return bool((self.sampled == self.whole).all())


def followed_groups(evidence: Evidence, level: Level) -> int:
    """How many groups had neighbours visited in the cycle so far."""
    visits = evidence.visits()
    near = visits.pages[visits.kinds == NEIGHBOUR]
    return len(np.unique(evidence.grouping(level).number[near])) if len(near) else 0


def loners(members: Members, most: int, evidence: Evidence) -> Pages:
    """Pages in no group, as samples for want of groups: at most so many."""
    return members.alone[evidence.may_visit(members.alone)][:most] if most else NOBODY.pages


def samples(order: Numbers, members: Members, each: int, wanted: int, most: int) -> list[Pages]:
    """The first ``each`` pages of groups in an order, until ``wanted`` are together; never above ``most``."""
    parts: list[Pages] = []
    count = 0
    for group in order.tolist():
        if count >= min(wanted, most):
            break
        parts.append(members.first(group, min(each, most - count)))
        count += len(parts[-1])
    return parts


def rests(order: Numbers, members: Members, most: int, evidence: Evidence, spare: int = 0) -> Pages:
    """What is left of groups in an order, at most so many pages.

    Behind the first group that has any, only what leaves ``spare`` pages for others: it would be fetched even
    if all of these came first.
    """
    found: list[Pages] = []
    for group in order.tolist():
        if not most:
            break
        pages = members.first(group)
        pages = pages[evidence.may_visit(pages)][:most]
        if found and len(pages) > most - spare:
            break
        if len(pages):
            found.append(pages)
            most -= len(pages)
    return np.concatenate([*found, NOBODY.pages])
