"""Replays of policies that sample, by compiled loops: the same visits as the policy chooses by itself.

The policy of a crawl plans round by round, whatever its evidence. A replay knows every outcome, so that
whole cycles can be run through at once.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable
from typing import Any, Final, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.errors import PolicyError
from scrapy_gp4c.page_state.groupings import Grouping
from scrapy_gp4c.page_state.outcomes import SAMPLE
from scrapy_gp4c.policies.by_groups import Greedy
from scrapy_gp4c.policies.follow import Follow
from scrapy_gp4c.policies.members import sample_pages
from scrapy_gp4c.policies.policy import Chosen, Pages, Policy, Round
from scrapy_gp4c.policies.sampling import RandomNodes, Sampled
from training.replaying.evidence import ReplayEvidence

MOST_NEAR: Final = 2**22
"""Groups that all groups together may have in their rings: beyond, these are told as they are asked for."""

Kinds = npt.NDArray[np.uint8]
Missed = npt.NDArray[np.int32]


class Rings(NamedTuple):
    """The groups within d of each group, as the compiled loops read them."""

    near: npt.NDArray[np.int32]
    begin: npt.NDArray[np.int64]
    of_group: int
    """Rings of each group."""


class SampledCycles:
    """The cycles of one replay."""

    def __init__(
        self, run: Callable[[Round, Missed], tuple[Pages, Kinds] | None], evidence: ReplayEvidence
    ) -> None:
        """Take what runs through a cycle."""
        self._run, self._evidence = run, evidence

    def visit(self, round: Round, missed: Missed) -> bool:
        """Make the visits of a cycle; False: they are left to the policy itself."""
        found = self._run(round, missed)
        if found is None:
            return False
        pages, kinds = found
        chosen = Chosen(pages, np.full(len(pages), np.nan), None, kinds)
        self._evidence.visit(chosen, missed[pages] > 0)
        return True


def compiled(policy: Policy, evidence: ReplayEvidence) -> SampledCycles | None:
    """What runs through the cycles of a policy; None: nothing but the policy can."""
    run: Callable[[Round, Missed], tuple[Pages, Kinds] | None]
    if type(policy) is RandomNodes:
        run = _Draws(evidence).random_nodes
    elif type(policy) is Greedy:
        run = _Greedy(policy, evidence)
    elif type(policy) is Follow and (rings := _rings_of(policy, evidence)) is not None:
        run = _Follow(policy, evidence, rings)
    else:
        return None
    return SampledCycles(run, evidence)


class _Draws:
    """The draws of a cycle, and who comes first by them."""

    def __init__(self, evidence: ReplayEvidence) -> None:
        from training.replaying.kernels import sampling, selection  # compile: only when they are used

        self.kernels: Any = sampling
        self._at_least: Any = selection.at_least
        self.evidence = evidence
        self.drawn = np.empty(evidence.pages, np.uint64)
        self._found = np.empty(evidence.pages + 1, np.uint32)

    def draw(self) -> None:
        self.kernels.draw(self.evidence.salt, self.drawn)

    def turns(self, wanted: int) -> Pages | None:
        """The pages whose turn as samples comes first; None: two turns may be equal, as floats are."""
        share = min(1.0, (wanted + 8.0 * wanted**0.5 + 8.0) / len(self.drawn))
        count = 0
        while count < min(wanted, len(self.drawn)):
            bound = np.uint64(2.0**64 * (1.0 - share)) if share < 1.0 else np.uint64(0)
            count = self._at_least(self.drawn, bound, self._found)
            share = min(1.0, 2.0 * share)
        pages = self._found[:count]
        # Sorting numbers takes a third of the time of sorting positions by them: each carries its position.
        bits = np.uint64(max(1, count).bit_length())
        mixed = np.sort(~self.drawn[pages] >> bits << bits | np.arange(count, dtype=np.uint64))[:wanted]
        # Turns are floats: what differs by one unit of these, or less, may be one number there.
        if (np.diff(mixed >> max(bits, np.uint64(12))) <= 1).any():
            return None
        return np.asarray(pages[mixed & ((np.uint64(1) << bits) - np.uint64(1))])

    def random_nodes(self, round: Round, missed: Missed) -> tuple[Pages, Kinds] | None:
        self.draw()
        pages = self.turns(round.remaining)
        return None if pages is None else (pages, np.full(len(pages), SAMPLE, np.uint8))


class _Greedy:
    def __init__(self, policy: Greedy, evidence: ReplayEvidence) -> None:
        self._policy, self._evidence = policy, evidence
        self._draws = _Draws(evidence)

    def __call__(self, round: Round, missed: Missed) -> tuple[Pages, Kinds]:
        grouping = self._evidence.grouping(self._policy.level)
        pages, begin = grouping.by_group
        filled = int(np.count_nonzero(np.diff(begin)))
        each = self._policy.sample or sample_pages(round.remaining, filled)
        visits = np.empty(round.remaining, np.uint32), np.empty(round.remaining, np.uint8)
        self._draws.draw()
        count = self._draws.kernels.greedy(
            each, round.remaining, self._draws.drawn, missed, (pages, begin), visits
        )
        if count < round.remaining and begin[0]:  # pages in no group come first
            lone = pages[: begin[0]]
            lone = lone[np.argsort(~self._draws.drawn[lone])][: round.remaining - count]
            visits[0][count : count + len(lone)], visits[1][count : count + len(lone)] = lone, SAMPLE
            count += len(lone)
        return visits[0][:count], visits[1][:count]


class _Follow:
    def __init__(self, policy: Follow, evidence: ReplayEvidence, rings: Rings) -> None:
        self._policy, self._evidence, self._rings = policy, evidence, rings
        self._draws = _Draws(evidence)

    def __call__(self, round: Round, missed: Missed) -> tuple[Pages, Kinds] | None:
        following = self._policy.following
        self._draws.draw()
        turns = self._draws.turns(2 * round.remaining)
        if turns is None:
            return None
        follows = self._policy.is_followed(Sampled(turns, missed[turns] > 0), round, self._evidence)
        grouping = self._evidence.grouping(following.near)
        visits = np.empty(round.remaining, np.uint32), np.empty(round.remaining, np.uint8)
        near, begin, of_group = self._rings
        count = self._draws.kernels.follow(
            turns,
            follows,
            self._draws.drawn,
            (grouping.number, *grouping.by_group),
            (near, begin),
            (round.remaining, following.in_flight, of_group),
            visits,
        )
        return visits[0][:count], visits[1][:count]


_RINGS: Final[weakref.WeakKeyDictionary[Grouping, dict[int, Rings | None]]] = weakref.WeakKeyDictionary()


def _rings_of(policy: Follow, evidence: ReplayEvidence) -> Rings | None:
    """The rings of all groups, made once for each grouping and d; None: too many, or of single pages."""
    near, d = policy.following.near, policy.following.d
    if near == "links":
        return None
    try:
        grouping = evidence.grouping(near)
    except PolicyError:
        return None  # the policy itself says so, if it asks for it
    known = _RINGS.setdefault(grouping, {})
    if d not in known:
        known[d] = _all_rings(grouping, d)
    return known[d]


def _all_rings(grouping: Grouping, d: int) -> Rings | None:
    assert grouping.distances is not None
    parts: list[npt.NDArray[np.int32]] = []
    size: list[int] = []
    total = 0
    for group in range(grouping.groups):
        for ring, _ in itertools.zip_longest(grouping.distances.rings(group, d), range(abs(d) + 1)):
            parts.append(np.empty(0, np.int32) if ring is None else ring.astype(np.int32))
            size.append(len(parts[-1]))
            total += size[-1]
        if total > MOST_NEAR:
            return None
    begin = np.concatenate(([0], np.cumsum(size))).astype(np.int64)
    return Rings(cast(Any, np.concatenate([np.empty(0, np.int32), *parts])), begin, abs(d) + 1)
