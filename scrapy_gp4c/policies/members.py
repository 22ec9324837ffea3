"""Groups of candidates for policies that sample: the pages of each group, and outcomes of its samples.

Pages are sampled in the order of their draws of the cycle, the highest first; other random choices follow
from the same draw (`scrapy_gp4c.scoring.ranking.Purpose`). So nothing depends on the order of responses.
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
"""Kinds of visits that count as random samples: the control group is drawn at random too."""


def plan_of(parts: list[tuple[int, Pages]]) -> Selection:
    """Join (kind of visit, pages) pairs to a selection without scores, the first to visit first."""
    if not parts:
        return NOTHING_CHOSEN
    kinds = [np.full(len(pages), kind, np.uint8) for kind, pages in parts]
    return unscored(np.concatenate([pages for _, pages in parts]), np.concatenate(kinds))


@dataclass(frozen=True)
class SampleOutcomes:
    """Sampled pages, ``[S]``, whose visits showed whether they had changed."""

    pages: Pages
    changed: Bools


def samples_of(evidence: Evidence, begin: int = 0) -> SampleOutcomes:
    """Return the outcomes of samples among the cycle's visits, without the first `begin` (already read).

    A page that has gone since its last visit counts as changed (Tan et al. 2007, section 3); errors are left
    out.
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
    """Candidates of a cycle and pages chosen by its earlier rounds, by group, in the order of sampling.

    G groups have such pages, at positions 0 to G - 1, which are not their numbers in the grouping.
    """

    pages: Pages
    """``[P]``: pages in groups, group by group."""
    begin: Numbers
    """``[G + 1]``: where each group begins in `pages`; the last is P."""
    number: Numbers
    """``[G]``: number of each group in the grouping, ascending."""
    drawn: Draws
    """``[G]``: tie-breaking draw of each group, the smaller first."""
    value: Floats
    """``[G]``: mean over the group's pages of a value, such as a score, see `members_of`."""
    alone: Pages
    """Pages in no group, in the order of sampling: sampled when all groups are done."""

    def first(self, group: int, wanted: int | None = None) -> Pages:
        """Return the first `wanted` pages (None: all) of the group at position `group`."""
        begin, end = int(self.begin[group]), int(self.begin[group + 1])
        return self.pages[begin : end if wanted is None else min(begin + wanted, end)]

    def positions(self, numbers: Numbers) -> Numbers:
        """Return the positions of groups by their numbers in the grouping; left out if they have no pages."""
        nearest = np.minimum(np.searchsorted(self.number, numbers), len(self.number) - 1)
        return np.asarray(nearest[self.number[nearest] == numbers] if len(self.number) else nearest[:0])


def sample_pages(budget: int, groups: int) -> int:
    """Return how many pages to sample per group: round(sqrt(budget / groups)), at least 1."""
    return max(1, round(math.sqrt(budget / groups))) if groups else 1


@runtime_checkable
class GroupedEvidence(Protocol):
    """Optional methods of `Evidence` that has all pages in memory, and lists groups faster than by blocks."""

    @property
    def is_partial(self) -> bool:
        """Whether some pages are no candidates already before the first round."""

    def first_of_groups(self, grouping: Grouping, most: int) -> tuple[Pages, Numbers, Numbers]:
        """Return the first candidates of every group in the order of sampling, at most `most` of each.

        The three arrays are `pages`, `begin` and `number` of `Members`.
        """


def first_members(evidence: Evidence, grouping: Grouping, wanted: int) -> Members:
    """Sort candidates into groups, as `members_of`, but only the first pages of each group.

    The number per group is the same for all, and large enough for at least `wanted` pages in all.
    """
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
    """Sort all candidates, and the pages that earlier rounds have chosen, into groups.

    ``value_of``: value of each page of a block, such as its score, for `Members.value`; None: 0.
    """
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
    """Results of the samples of each group so far, for the G groups of `Members`."""

    sampled: Bools
    """``[G]``: whether samples of the group were planned."""
    complete: Bools
    """``[G]``: whether samples were planned, and all are visited."""
    share: Floats
    """``[G]``: share of changed samples, with those of the control group; 0 without samples."""
    awaited: int
    """Number of other pages of groups whose samples are not all visited, and which may turn out best."""

    @classmethod
    def of(cls, evidence: Evidence, grouping: Grouping, members: Members) -> Self:
        """Compute the results from the cycle's plan and visits so far."""

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
        """Whether all planned samples of all groups are visited, with any outcome."""
        return bool((self.sampled == self.complete).all())


def ungrouped_samples(members: Members, most: int, evidence: Evidence) -> Pages:
    """Return candidates that are in no group, in the order of sampling, at most `most`."""
    return members.alone[evidence.may_visit(members.alone)][:most] if most else NOTHING_CHOSEN.pages


def group_samples(order: Numbers, members: Members, each: int, wanted: int, most: int) -> list[Pages]:
    """Return the first ``each`` pages of one group after the other, until there are ``wanted`` or more.

    ``order``: positions of groups in `members`, the first to sample first; ``most``: most pages in all.
    """
    parts: list[Pages] = []
    count = 0
    for group in order.tolist():
        if count >= min(wanted, most):
            break
        parts.append(members.first(group, min(each, most - count)))
        count += len(parts[-1])
    return parts


def remaining_pages(order: Numbers, members: Members, most: int, evidence: Evidence, spare: int = 0) -> Pages:
    """Return the candidates of groups that may still be visited, group by group, at most ``most`` pages.

    ``order``: positions of groups in `members`; ``spare``: visits to leave for groups whose samples have no
    outcome yet: after the first group, the list ends before a group that would leave less.
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
