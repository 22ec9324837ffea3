"""Compiled loops of sampling policies: they plan whole cycles, as a replay knows every outcome beforehand."""

import itertools
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any, Final, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.errors import PolicyError
from scrapy_gp4c.page_state.groupings import Grouping
from scrapy_gp4c.page_state.outcomes import SAMPLE
from scrapy_gp4c.policies.base import Pages, Policy, Round
from scrapy_gp4c.policies.members import SampleOutcomes, sample_pages
from scrapy_gp4c.policies.sampling import Follow, Greedy, RandomNodes
from training.replaying.evidence import ReplayEvidence

MOST_NEAR: Final = 2**22
"""Most entries of the rings of all groups; with more, a policy is replayed without a compiled loop."""

Kinds = npt.NDArray[np.uint8]
Missed = npt.NDArray[np.int32]


class Rings(NamedTuple):
    """Groups within distance d of each group, as compiled loops read them."""

    near: npt.NDArray[np.int32]
    begin: npt.NDArray[np.int64]
    of_group: int
    """Rings of each group."""


SampledCycle = Callable[[Round, Missed], tuple[Pages, Kinds] | None]
"""Visits of a cycle by a compiled loop, and their kinds; None: the policy itself must plan them."""


def compiled_loop(policy: Policy, evidence: ReplayEvidence) -> SampledCycle | None:
    """Compiled loop that plans and visits the cycles of a sampling policy; None: it has none."""
    if type(policy) is RandomNodes:
        return _Draws(evidence).random_nodes
    if type(policy) is Greedy:
        return partial(_greedy, policy, _Draws(evidence))
    if type(policy) is Follow and (rings := _rings_of(policy, evidence)) is not None:
        return partial(_follow, policy, rings, _Draws(evidence))
    return None


class _Draws:
    """Random numbers (draws) of the pages in a cycle, and the order of samples by them."""

    def __init__(self, evidence: ReplayEvidence) -> None:
        from training.replaying.kernels import dense, sampling  # compile: only when they are used

        self.kernels: Any = sampling
        self._at_least: Any = dense.at_least
        self.evidence = evidence
        self.drawn = np.empty(evidence.pages, np.uint64)
        self._page_memory = np.empty(evidence.pages + 1, np.uint32)

    def draw(self) -> None:
        self.kernels.draw(self.evidence.salt, self.drawn)

    def turns(self, most: int) -> Pages | None:
        """First `most` pages by draw; None: two draws are equal as floats, so the loop is not compiled."""
        share = min(1.0, (most + 8.0 * most**0.5 + 8.0) / len(self.drawn))
        count = 0
        while count < min(most, len(self.drawn)):
            bound = np.uint64(2.0**64 * (1.0 - share)) if share < 1.0 else np.uint64(0)
            count = self._at_least(self.drawn, bound, self._page_memory)
            share = min(1.0, 2.0 * share)
        pages = self._page_memory[:count]
        # Sorting numbers takes a third of the time of sorting positions by them: each carries its position.
        bits = np.uint64(max(1, count).bit_length())
        mixed = np.sort(~self.drawn[pages] >> bits << bits | np.arange(count, dtype=np.uint64))[:most]
        # Turns are floats: what differs by one unit of these, or less, may be one number there.
        if (np.diff(mixed >> max(bits, np.uint64(12))) <= 1).any():
            return None
        return np.asarray(pages[mixed & ((np.uint64(1) << bits) - np.uint64(1))])

    def random_nodes(self, round: Round, missed: Missed) -> tuple[Pages, Kinds] | None:
        self.draw()
        pages = self.turns(round.remaining)
        return None if pages is None else (pages, np.full(len(pages), SAMPLE, np.uint8))


def _greedy(policy: Greedy, draws: _Draws, round: Round, missed: Missed) -> tuple[Pages, Kinds]:
    grouping = draws.evidence.grouping(policy.level)
    pages, begin = grouping.by_group
    filled = int(np.count_nonzero(np.diff(begin)))
    each = policy.sample or sample_pages(round.remaining, filled)
    visits = np.empty(round.remaining, np.uint32), np.empty(round.remaining, np.uint8)
    draws.draw()
    count = draws.kernels.greedy(each, round.remaining, draws.drawn, missed, (pages, begin), visits)
    if count < round.remaining and begin[0]:  # pages in no group come first
        lone = pages[: begin[0]]
        lone = lone[np.argsort(~draws.drawn[lone])][: round.remaining - count]
        visits[0][count : count + len(lone)], visits[1][count : count + len(lone)] = lone, SAMPLE
        count += len(lone)
    return visits[0][:count], visits[1][:count]


def _follow(
    policy: Follow, rings: Rings, draws: _Draws, round: Round, missed: Missed
) -> tuple[Pages, Kinds] | None:
    following = policy.parameters
    draws.draw()
    turns = draws.turns(2 * round.remaining)
    if turns is None:
        return None
    follows = policy.is_followed(SampleOutcomes(turns, missed[turns] > 0), round, draws.evidence)
    grouping = draws.evidence.grouping(following.near)
    visits = np.empty(round.remaining, np.uint32), np.empty(round.remaining, np.uint8)
    near, begin, of_group = rings
    count = draws.kernels.follow(
        turns,
        follows,
        draws.drawn,
        (grouping.number, *grouping.by_group),
        (near, begin),
        (round.remaining, following.in_flight, of_group),
        visits,
    )
    return visits[0][:count], visits[1][:count]


_RINGS: Final[weakref.WeakKeyDictionary[Grouping, dict[int, Rings | None]]] = weakref.WeakKeyDictionary()


def _rings_of(policy: Follow, evidence: ReplayEvidence) -> Rings | None:
    """Rings of all groups, cached by grouping and d; None: too many, or there are no groups, only links."""
    near, d = policy.parameters.near, policy.parameters.d
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
