"""Policies that sample groups of pages and fetch whole groups.

``gsb`` is greedy (Cho & Ntoulas 2002, as Tan et al. 2007, sections 2 and 6.2, have it); ``groups`` goes from
group to group by what is known of their pages (thesis 2.5 on Tan & Mitra 2010).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np

from scrapy_gp4c.page_state.groupings import Level
from scrapy_gp4c.page_state.outcomes import NEIGHBOUR, SAMPLE
from scrapy_gp4c.policies.members import Heard, Members, followed_groups, loners, members_of, rests, samples
from scrapy_gp4c.policies.policy import Block, Chosen, Evidence, PolicySettings, Round
from scrapy_gp4c.policies.sampling import Floats, plan_of
from scrapy_gp4c.policies.top_k import scored_by
from scrapy_gp4c.scoring import terminals
from scrapy_gp4c.scoring.ranking import in_order

BY_SCORE: Final = "score"
"""Order of groups by the mean of the score function, instead of a terminal."""


class _ByLevel:
    """A policy that has as many rounds as it takes, and follows whole groups."""

    level: Level

    @property
    def rounds(self) -> None:
        """As many as the budget lasts, and all samples take."""
        return

    def seeds(self, round: Round, evidence: Evidence) -> int:
        """How many groups were followed in the cycle so far."""
        return followed_groups(evidence, self.level)


@dataclass
class Greedy(_ByLevel):
    """Equal samples of all groups; then whole groups, those with most changed samples first."""

    settings: PolicySettings
    level: Level = "site"
    sample: int | None = None
    _members: Members | None = field(default=None, compare=False)

    @property
    def name(self) -> str:
        """With all parameters."""
        return f"gsb(level={self.level!r}, sample={self.sample})"

    def plan(self, round: Round, evidence: Evidence) -> Chosen:
        """Send the samples; then fetch groups whose samples are in, by what these found."""
        grouping = evidence.grouping(self.level)
        if not round.number or self._members is None:
            self._members = members_of(evidence, grouping)
        members = self._members
        if not round.number:
            order = np.argsort(members.drawn, kind="stable")
            each = self.sample or members.sample_pages(round.remaining)
            parts = samples(order, members, each, round.remaining, round.remaining)
            return plan_of([(SAMPLE, pages) for pages in parts])
        heard = Heard.of(evidence, grouping, members)
        order = in_order(heard.share, members.drawn)
        near = rests(order[heard.whole[order]], members, round.remaining, evidence, heard.awaited)
        lone = round.remaining - len(near) if heard.is_all else 0
        return plan_of([(NEIGHBOUR, near), (SAMPLE, loners(members, lone, evidence))])


@dataclass
class ByGroups(_ByLevel):
    """Group after group by what is known of their pages: samples, and the rest if enough of these changed."""

    settings: PolicySettings
    level: Level = "site"
    order: str = "aad"
    sample: int | None = None
    threshold: float = 0.5
    in_flight: int = 16
    _members: Members | None = field(default=None, compare=False)

    @property
    def name(self) -> str:
        """With all parameters."""
        return (
            f"groups(level={self.level!r}, order={self.order!r}, sample={self.sample}, "
            f"threshold={self.threshold}, in_flight={self.in_flight})"
        )

    def plan(self, round: Round, evidence: Evidence) -> Chosen:
        """Fetch the rests of groups that passed, then sample the next ones; at last what is left."""
        grouping = evidence.grouping(self.level)
        if not round.number or self._members is None or self._looks_around:
            self._members = members_of(evidence, grouping, lambda block: self._values(block, round))
        members, left = self._members, round.remaining
        heard = Heard.of(evidence, grouping, members)
        order = in_order(members.value, members.drawn)
        near = rests(order[(heard.whole & (heard.share >= self.threshold))[order]], members, left, evidence)
        each = self.sample or members.sample_pages(left + len(evidence.planned().pages))
        fresh = samples(order[~heard.sampled[order]], members, each, self.in_flight, left - len(near))
        if not len(near) and not fresh:
            order = order[np.argsort(-heard.share[order], kind="stable")]
            near = rests(order[heard.whole[order]], members, left, evidence, heard.awaited)
            if heard.is_all:
                fresh = [loners(members, left - len(near), evidence)]
        return plan_of([(NEIGHBOUR, near), *((SAMPLE, pages) for pages in fresh)])

    @property
    def _looks_around(self) -> bool:
        """Whether the order may be another in every round."""
        read = self.settings.score_function.columns if self.order == BY_SCORE else ()
        return any(name in terminals.ROUND and name != "draw" for name in read)

    def _values(self, block: Block, round: Round) -> Floats:
        if self.order == BY_SCORE:
            return scored_by(self.settings, round)(block)
        clock = self.settings.score_function.clock
        values = terminals.compute((self.order,), block.state, round.cycle, clock)[self.order]
        return np.asarray(values, np.float64)
