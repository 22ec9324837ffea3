"""Policies that sample: the baselines, Algorithms 1 and 2 of Tan et al. 2007, and policies of whole groups.

`Follow` samples pages, and with probability phi fetches pages near a sample (Tan et al. 2007, section 4 says
what is near). Line 4 of Algorithm 1 is read as a union, and a page is fetched once a cycle. phi is drawn once
for each sample. ``gsb`` is greedy (Cho & Ntoulas 2002, as Tan et al. 2007, sections 2 and 6.2, describe it);
``groups`` visits groups in the order of a terminal's mean (thesis 2.5 on Tan & Mitra 2010).
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar, Final, NamedTuple

import numpy as np

from scrapy_gp4c.arrays import Bools, Floats
from scrapy_gp4c.page_state.groupings import Level, Name
from scrapy_gp4c.page_state.outcomes import NEIGHBOUR, SAMPLE
from scrapy_gp4c.policies.base import (
    NOTHING_CHOSEN,
    Block,
    Evidence,
    Pages,
    PolicySettings,
    Round,
    Selection,
    unscored,
)
from scrapy_gp4c.policies.members import (
    Members,
    SampleOutcomes,
    SampleResult,
    group_samples,
    members_of,
    plan_of,
    remaining_pages,
    sample_pages,
    samples_of,
    ungrouped_samples,
)
from scrapy_gp4c.policies.top_k import CycleScorer, best_candidates
from scrapy_gp4c.scoring import terminals
from scrapy_gp4c.scoring.ranking import Purpose, drawn_for, in_order, uniform
from scrapy_gp4c.scoring.terminals import Clock

BY_SCORE: Final = "score"
"""Value of parameter ``order`` of `ByGroups`: groups by their mean score, instead of a terminal."""


def random_scores(block: Block) -> Floats:
    """Return the random numbers (terminal ``random``) by which pages are sampled, the highest first."""
    return np.asarray(terminals.TERMINALS["visits"]["random"].formula(block.state, 0))


@dataclass(frozen=True)
class RandomNodes:
    """Policy ``rns``, random node sampling: random pages (Tan et al. 2007, section 6.2)."""

    settings: PolicySettings
    name: str = "rns"
    rounds: int = 1

    def plan(self, round: Round, evidence: Evidence) -> Selection:
        """Select random pages, up to the budget."""
        return plan_of([(SAMPLE, best_candidates(random_scores, round.remaining, evidence).pages)])


@dataclass(frozen=True)
class RoundRobin:
    """Policy ``rr``, round robin: all pages in turn, by id, over cycles (Tan et al. 2007, section 6.2)."""

    settings: PolicySettings
    name: str = "rr"
    rounds: int = 1

    def plan(self, round: Round, evidence: Evidence) -> Selection:
        """Take the pages that were visited longest ago; of these those with the lowest ids first."""

        def waiting(block: Block) -> Floats:
            cycles = (round.cycle - block.state["last_cycle"]).astype(np.float64)
            return np.asarray(cycles * 2.0**32 - block.pages)

        return unscored(best_candidates(waiting, round.remaining, evidence).pages)


class SampleOrder:
    """Iterator over the candidates of a cycle, in the random order in which they are sampled."""

    def __init__(self, evidence: Evidence, remaining: int) -> None:
        """Order candidates at random; ``remaining``: visits left in the budget.

        Twice as many are ordered, because `take` skips those that were visited meanwhile.
        """
        self._pages = best_candidates(random_scores, 2 * remaining, evidence).pages
        self._next = 0

    def take(self, wanted: int, evidence: Evidence, planned: Pages) -> Pages:
        """Return the next `wanted` pages that are still candidates, or fewer, without those in `planned`."""
        taken: list[Pages] = []
        while wanted > 0 and self._next < len(self._pages):
            batch = self._pages[self._next : self._next + wanted]
            self._next += len(batch)
            is_free = evidence.may_visit(batch)
            if len(planned):
                is_free &= ~np.isin(batch, planned)
            taken.append(batch[is_free])
            wanted -= len(taken[-1])
        return np.concatenate([*taken, NOTHING_CHOSEN.pages])


class FollowParameters(NamedTuple):
    """Parameters of `Follow`, which visits pages near samples."""

    name: str
    near: Name
    """Grouping whose distances say which pages are near."""
    d: int
    """Largest distance of near pages, in the direction of its sign: see `Grouping.rings`."""
    phi: float | str = "change"
    """Probability that a sample's near pages are visited, or a name in `PHIS`."""
    gate: bool = False
    """Whether only samples that changed are followed."""
    clock: Clock = "cycles"
    """Clock of the terminals by which `BY_HISTORY` computes phi."""
    in_flight: int = 16
    """Samples planned in one round, before their outcomes are known; 1 is Algorithm 1."""


def _by_history(terminal: str) -> Callable[[SampleOutcomes, Evidence, int, Clock], Floats]:
    """Return a function for `PHIS`, by equation 5: the value of `terminal` after the sample's visit."""

    def phi(samples: SampleOutcomes, evidence: Evidence, cycle: int, clock: Clock) -> Floats:
        before = evidence.rows(samples.pages).state
        columns = terminals.columns_of((terminal,), clock)
        state = {name: before[name].copy() for name in dict.fromkeys(("n", "first_cycle", *columns))}
        terminals.observe(state, samples.changed, cycle)
        values = terminals.compute((terminal,), state, cycle + 1, clock)[terminal]
        return np.asarray(values, np.float64)

    return phi


PHIS: Final[dict[str, Callable[[SampleOutcomes, Evidence, int, Clock], Floats]]] = {
    "change": lambda samples, evidence, cycle, clock: samples.changed.astype(np.float64),
    "ha": _by_history("nad"),
    "wha": _by_history("aad"),
    # Section 6.2: 1/11 for the least popular pages, to 11/11 for the most popular.
    "pra": lambda samples, evidence, cycle, clock: np.asarray(
        (evidence.popularity()[samples.pages] + 1.0) / 11.0, np.float64
    ),
}
"""Name -> function of (samples, evidence, cycle, clock of terminals) that returns each sample's phi, ``[S]``.

phi is the probability that pages near a sample are visited: equations 3, 4-7, 8, and section 5.3."""
BY_HISTORY: Final = ("ha", "wha")
"""Names in `PHIS` of functions that read earlier visits of the samples."""
HISTORY_COLUMNS: Final = ("n", "X", "A", "A_cycles", "first_cycle", "last_cycle")
"""Columns of samples that functions of `BY_HISTORY` may read."""


@dataclass
class Follow:
    """Policies ``lb``, ``db``, ``cb``: visit random samples, and the pages near some of these.

    They differ in what is near: see `FollowParameters.near`. What an object keeps between rounds only saves
    work: a new object comes to the same plans.
    """

    settings: PolicySettings
    parameters: FollowParameters
    rounds: ClassVar[None] = None
    _order: SampleOrder | None = field(default=None, compare=False)
    _visits_read: int = field(default=0, compare=False)

    @property
    def name(self) -> str:
        """Name of the policy with all parameters, such as ``lb(d=3, ...)``."""
        _, _, *values = self.parameters
        named = zip(FollowParameters._fields[2:], values, strict=True)
        return f"{self.parameters.name}({', '.join(f'{key}={value!r}' for key, value in named)})"

    def plan(self, round: Round, evidence: Evidence) -> Selection:
        """Plan pages near new followed samples (see `is_followed`), then the next samples."""
        if not round.number or self._order is None:
            self._order, self._visits_read = SampleOrder(evidence, round.remaining), 0
            self._require_groupings(evidence)
        near = self._near(round, evidence)
        wanted = min(self.parameters.in_flight, round.remaining - len(near))
        return plan_of([(NEIGHBOUR, near), (SAMPLE, self._order.take(wanted, evidence, near))])

    def seeds(self, round: Round, evidence: Evidence) -> int:
        """Number of the cycle's samples so far that are followed (`is_followed`), for the cycle's record."""
        if self.parameters.phi == 0:
            return 0
        return int(self.is_followed(samples_of(evidence), round, evidence).sum())

    def _require_groupings(self, evidence: Evidence) -> None:
        """Ask for the groupings that later rounds may need, so that a missing one raises PolicyError now."""
        if self.parameters.phi != 0:
            _ = evidence.grouping(self.parameters.near).by_group  # sorted now: a later round holds up a crawl
        if self.parameters.phi == "pra":
            evidence.popularity()

    def _near(self, round: Round, evidence: Evidence) -> Pages:
        """Return the pages near new samples that are followed, sample by sample, the nearest first."""
        samples = samples_of(evidence, self._visits_read)
        self._visits_read = len(evidence.visits().pages)
        if not len(samples.pages) or not round.remaining:
            return NOTHING_CHOSEN.pages
        is_followed = self.is_followed(samples, round, evidence)
        order = np.lexsort((samples.pages, -random_scores(evidence.rows(samples.pages))))
        followed = samples.pages[order[is_followed[order]]]
        if not len(followed):
            return followed
        grouping = evidence.grouping(self.parameters.near)
        near: list[Pages] = []
        budget = round.remaining
        for page in followed.tolist():
            for ring in grouping.rings(page, self.parameters.d):
                pages = ring[evidence.may_visit(ring)]
                if near and len(pages):
                    pages = pages[~np.isin(pages, np.concatenate(near))]
                if len(pages):
                    drawn = drawn_for(evidence.rows(pages).state["draw"], Purpose.NEIGHBOUR)
                    near.append(pages[np.argsort(drawn, kind="stable")][:budget])
                    budget -= len(near[-1])
                if not budget:
                    return np.concatenate(near)
        return np.concatenate([*near, NOTHING_CHOSEN.pages])

    def is_followed(self, samples: SampleOutcomes, round: Round, evidence: Evidence) -> Bools:
        """Whether each sample's near pages are to be visited, drawn with probability phi: ``[S]``."""
        drawn = drawn_for(evidence.rows(samples.pages).state["draw"], Purpose.FOLLOW)
        phi = self.parameters.phi
        if isinstance(phi, str):
            chance = PHIS[phi](samples, evidence, round.cycle, self.parameters.clock)
        else:
            chance = np.full(len(samples.pages), float(phi))
        followed = np.asarray(uniform(drawn) < chance)
        return followed & samples.changed if self.parameters.gate else followed


class _OfGroups:
    """Base of policies with any number of rounds that sample groups, then visit whole groups."""

    level: Level
    rounds: ClassVar[None] = None

    def seeds(self, round: Round, evidence: Evidence) -> int:
        """Number of groups of which more than samples was visited in this cycle, for the cycle's record."""
        visits = evidence.visits()
        near = visits.pages[visits.kinds == NEIGHBOUR]
        return len(np.unique(evidence.grouping(self.level).number[near])) if len(near) else 0


@dataclass
class Greedy(_OfGroups):
    """Policy ``gsb``: equal samples of all groups; then whole groups, most changed samples first."""

    settings: PolicySettings
    level: Level = "site"
    sample: int | None = None
    _members: Members | None = field(default=None, compare=False)

    @property
    def name(self) -> str:
        """Name of the policy with all parameters, such as ``gsb(level='site', sample=None)``."""
        return f"gsb(level={self.level!r}, sample={self.sample})"

    def plan(self, round: Round, evidence: Evidence) -> Selection:
        """Plan the samples, then, up to the budget, all pages of groups whose samples are all visited.

        Groups with the highest share of changed samples come first.
        """
        grouping = evidence.grouping(self.level)
        if not round.number or self._members is None:
            self._members = members_of(evidence, grouping)
        members = self._members
        if not round.number:
            order = np.argsort(members.drawn, kind="stable")
            each = self.sample or sample_pages(round.remaining, len(members.number))
            parts = group_samples(order, members, each, round.remaining, round.remaining)
            return plan_of([(SAMPLE, pages) for pages in parts])
        result = SampleResult.of(evidence, grouping, members)
        order = in_order(result.share, members.drawn)
        complete = order[result.complete[order]]
        near = remaining_pages(complete, members, round.remaining, evidence, result.awaited)
        budget = round.remaining - len(near) if result.all_complete else 0
        return plan_of([(NEIGHBOUR, near), (SAMPLE, ungrouped_samples(members, budget, evidence))])


@dataclass
class ByGroups(_OfGroups):
    """Policy ``groups``: samples groups in turn, and visits all of one if enough samples had changed.

    ``order``: terminal by whose mean the groups are sorted, the highest first.
    """

    settings: PolicySettings
    level: Level = "site"
    order: str = "aad"
    sample: int | None = None
    threshold: float = 0.5
    in_flight: int = 16
    _members: Members | None = field(default=None, compare=False)

    @property
    def name(self) -> str:
        """Name of the policy with all parameters, such as ``groups(level='site', order='aad', ...)``."""
        return (
            f"groups(level={self.level!r}, order={self.order!r}, sample={self.sample}, "
            f"threshold={self.threshold}, in_flight={self.in_flight})"
        )

    def plan(self, round: Round, evidence: Evidence) -> Selection:
        """Plan the other pages of groups with enough changed samples (`threshold`), then the next samples.

        When no group is left to sample, plan pages of the other groups too.
        """
        grouping = evidence.grouping(self.level)
        if not round.number or self._members is None or self._order_may_change:
            self._members = members_of(evidence, grouping, lambda block: self._values(block, round))
        members, budget = self._members, round.remaining
        result = SampleResult.of(evidence, grouping, members)
        order = in_order(members.value, members.drawn)
        passed = order[(result.complete & (result.share >= self.threshold))[order]]
        near = remaining_pages(passed, members, budget, evidence)
        each = self.sample or sample_pages(budget + len(evidence.planned().pages), len(members.number))
        unsampled = order[~result.sampled[order]]
        samples = group_samples(unsampled, members, each, self.in_flight, budget - len(near))
        if not len(near) and not samples:
            order = order[np.argsort(-result.share[order], kind="stable")]
            complete = order[result.complete[order]]
            near = remaining_pages(complete, members, budget, evidence, result.awaited)
            if result.all_complete:
                samples = [ungrouped_samples(members, budget - len(near), evidence)]
        return plan_of([(NEIGHBOUR, near), *((SAMPLE, pages) for pages in samples)])

    @property
    def _order_may_change(self) -> bool:
        """Whether the order of groups may differ between rounds, because the score reads related pages."""
        read = self.settings.score_function.columns if self.order == BY_SCORE else ()
        return any(name in terminals.ROUND and name != "draw" for name in read)

    def _values(self, block: Block, round: Round) -> Floats:
        if self.order == BY_SCORE:
            return CycleScorer(self.settings.score_function, round.cycle)(block)
        clock = self.settings.score_function.clock
        values = terminals.compute((self.order,), block.state, round.cycle, clock)[self.order]
        return np.asarray(values, np.float64)
