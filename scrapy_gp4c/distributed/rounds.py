"""Planning the shards of one worker with those of all others: parts and answers go through the ledger."""

from __future__ import annotations

import math
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
from twisted.internet.defer import Deferred

from scrapy_gp4c.crawling.begun import as_begun
from scrapy_gp4c.crawling.plan_counts import spent_of
from scrapy_gp4c.crawling.planning import Planner
from scrapy_gp4c.distributed import exchange
from scrapy_gp4c.distributed.connection import Transaction
from scrapy_gp4c.distributed.exchange import Posted, Step, Waiting, differs
from scrapy_gp4c.distributed.link import Link, sleep
from scrapy_gp4c.distributed.looks import BESIDE, HEARD, SOON, Pace, pause_s
from scrapy_gp4c.distributed.round_parts import (
    Begun,
    answer_of,
    begun_combined,
    part_packed,
    parts_combined,
)
from scrapy_gp4c.page_state.outcomes import PLAN
from scrapy_gp4c.policies.policy import Planned
from scrapy_gp4c.policies.steps import Answer, Part, Shard, Steps
from scrapy_gp4c.settings import Settings
from scrapy_gp4c.store.opening import LmdbShard
from scrapy_gp4c.store.records import CycleRecord

PATIENCE_S: Final = 1.0
"""Before the parts of a step are put together by any worker, should the one whose it is be gone."""
Watch = Callable[[Sequence[int]], Any]
"""Awaited while shards that are waited for have no holder; raises what makes that in vain."""


class Exchange:
    """Brings parts of own shards to the others, and back what follows from all."""

    def __init__(self, link: Link, cycle: int, of: int, tokens: Mapping[int, int], watch: Watch) -> None:
        """Take own shards, ``of`` so many, with their tokens."""
        self._link, self._cycle, self._of, self._tokens, self._watch = link, cycle, of, tokens, watch
        self.with_flush: Callable[[Step], Deferred[bytes | None] | None] = lambda step: None
        """Lets a flush tell how far a step is, see `News.of_step`; None: there is none to be sent."""

    async def agreed(
        self,
        name: str,
        own: Mapping[int, bytes],
        combine: Callable[[list[bytes]], bytes],
        note: Callable[[Transaction, bytes], object] | None = None,
        pace: Pace = SOON,
    ) -> bytes:
        """Post own parts of a step; returns what `combine` makes of those of all shards, by shard.

        One worker gets all parts and writes the answer, and what `note` writes besides: the one whose part
        was the last; or, as parts that come at the same time do not see each other, the one that holds shard
        0; or any, should these not come to it. The others get the answer alone. Where all parts are one
        worker's own it is not written, unless `note` is: nobody waits for it, and a heir makes the same.
        """
        step = Step(self._cycle, name)
        begun = await self._begin(step, own, tell=len(own) < self._of)
        return await self._agreed(step, own, begun, combine, pace, note)

    async def _agreed(
        self,
        step: Step,
        own: Mapping[int, bytes],
        begun: Waiting,
        combine: Callable[[list[bytes]], bytes],
        pace: Pace,
        note: Callable[[Transaction, bytes], object] | None = None,
    ) -> bytes:
        until_s = math.inf
        is_mine = True
        async for found in self._looks(step, begun, pace):
            if found.answer is not None:
                return found.answer
            if note is None and not found.missing and len(own) == self._of:
                return combine([own[shard] for shard in sorted(own)])
            if not found.missing:
                until_s = min(until_s, time.monotonic() + PATIENCE_S)
            if not found.missing and (is_mine or time.monotonic() >= until_s):
                parts = [*found.parts] or await self._link.surely_single(exchange.told, step)
                answer = combine(parts)
                if note is None:
                    await self._link.surely_single(exchange.put_answer, step, answer)
                else:
                    await self._link.surely(_answer, step, answer, note)
                return answer
            is_mine = 0 in self._tokens
        raise AssertionError("a step without end")

    async def addressed(self, name: str, own: Mapping[int, bytes]) -> list[tuple[int, Any]]:
        """Post own parts of a step; returns what those of all shards have for own ones."""
        step = Step(self._cycle, name)
        async for found in self._looks(step, await self._begin(step, own, tell=False), SOON):
            if not found.missing:
                break
        return await self._link.surely_single(exchange.addressed, step, self._tokens)

    async def answer(self, name: str, own: Mapping[int, Part], pace: Pace) -> Answer:
        """Post own parts of a step of planning; returns what follows from all."""
        parts = {shard: part_packed(part) for shard, part in own.items()}
        return answer_of(await self.agreed(name, parts, parts_combined, pace=pace))

    async def first_answer(
        self, name: str, own: Mapping[int, bytes], pace: Pace
    ) -> tuple[dict[int, bytes], Answer, bool]:
        """Post own parts of a round's first step, `Begun`; returns those that count, and what all come to.

        What a former holder has posted counts, by what the shard had seen then. And whether others' parts
        were missing by then: nobody has gone beyond this step before.
        """
        step = Step(self._cycle, name)
        tell = len(own) < self._of
        parts, found = await self._link.surely_single(exchange.settle, step, self._posts(own), tell)
        is_ahead = found.missing > 0
        return parts, answer_of(await self._agreed(step, parts, found, begun_combined, pace)), is_ahead

    async def is_complete(self, name: str) -> bool:
        """Tell whether all shards have posted their parts of a step."""
        return not (await self._link.surely_single(exchange.look, Step(self._cycle, name))).missing

    async def post(self, name: str, own: Mapping[int, bytes], tell: bool = False) -> Waiting:
        """Post own parts of a step, without waiting for the others; returns how far it is.

        ``tell``: with all parts, if these were the last.
        """
        return await self._link.surely_single(exchange.post, Step(self._cycle, name), self._posts(own), tell)

    def _posts(self, own: Mapping[int, bytes]) -> list[Posted]:
        return [Posted(shard, self._tokens[shard], own[shard]) for shard in sorted(own)]

    async def _begin(self, step: Step, own: Mapping[int, bytes], tell: bool) -> Waiting:
        return await (
            self.post(step.name, own, tell) if own else self._link.surely_single(exchange.look, step)
        )

    async def _looks(self, step: Step, found: Waiting, pace: Pace) -> AsyncIterator[Waiting]:
        """Look how far a step is, ever less often, while who is waited for lives."""
        at_first, since_s = found.missing, time.monotonic()
        while True:
            yield found
            if found.homeless or self._link.failure is not None:
                await self._watch(await self._link.surely(exchange.missing, step))
            waited_s = time.monotonic() - since_s
            arrived = at_first - found.missing
            await sleep(pause_s(pace, waited_s, arrived, found.missing, self._of))
            was_missing, found = found.missing, await self._look(step)
            if was_missing and not found.missing:
                pace, at_first, since_s = SOON, 0, time.monotonic()  # for the answer now

    async def _look(self, step: Step) -> Waiting:
        told = self.with_flush(step)
        if told is not None and (raw := await told) is not None:
            return exchange.waiting(raw)
        return await self._link.surely_single(exchange.look, step)


def _answer(tx: Transaction, step: Step, answer: bytes, note: Callable[[Transaction, bytes], object]) -> None:
    exchange.put_answer(tx, step, answer)
    note(tx, answer)


def begun_name(number: int) -> str:
    """First step of a round."""
    return f"round/{number}"


class Agreed(NamedTuple):
    """A round that was planned with all others."""

    result: bool
    """What `Planner.steps` returns."""
    is_ahead: bool
    """Whether others had yet to begin it when own shards did: so nobody had gone beyond it by then."""


async def plan(exchange_: Exchange, planners: Mapping[LmdbShard, Planner], number: int) -> Agreed:
    """Plan one round of own shards with all others.

    What a shard has seen is settled by its first post: whoever plans the round again plans the same.
    """
    steps: dict[int, Steps[bool]] = {}

    def begin(one: LmdbShard, seen: int) -> bytes:
        steps[one.shard_of.number] = planners[one].steps(one.last_record(), _planned(one), seen=seen)
        return Begun(seen, next(steps[one.shard_of.number])).packed()

    # Before round 0 nobody has seen anything.
    own = {one.shard_of.number: begin(one, one.acknowledged_visits if number else 0) for one in planners}
    name, pace = begun_name(number), HEARD if number else SOON
    settled, answer, is_ahead = await exchange_.first_answer(name, own, pace)
    for one in planners:
        told = settled[one.shard_of.number]
        if told != own[one.shard_of.number] and told != begin(one, Begun.unpacked(told).seen):
            raise differs(Step(one.last_cycle + 1, name), one.shard_of.number)
    step, pace = 0, BESIDE if number else SOON
    ended: list[bool] = []
    while True:
        parts: dict[int, Part] = {}
        for shard, one_shard in steps.items():
            try:
                parts[shard] = one_shard.send(answer)
            except StopIteration as end:
                ended.append(end.value)
        if ended:
            return Agreed(ended[0], is_ahead)
        step += 1
        answer = await exchange_.answer(f"{name}/{step}", parts, pace)


def _planned(shard: LmdbShard) -> Planned:
    return Planned.of(np.frombuffer(b"".join(part.tobytes() for part in shard.plan()), PLAN))


def planners_of(shards: Sequence[LmdbShard], settings: Settings) -> dict[LmdbShard, Planner]:
    """A planner for each shard of an open cycle."""
    found = {}
    for one in shards:
        own = as_begun(settings, one.last_record())
        found[one] = Planner(one, own, Shard(one.shard_of.number, one.shard_of.shards))
    return found


class SharedRounds:
    """The rounds of a worker's shards: what `scrapy_gp4c.crawling.rounds.Rounds` describes."""

    def __init__(self, planners: Mapping[LmdbShard, Planner]) -> None:
        """Take the planners of own shards, which have planned round 0."""
        self.planners = planners
        self._first = next(iter(planners.values()))
        self.result: bool | None = None
        """What the round came to that was planned with the others; None: there is none to take over."""
        self.is_asked = False
        """Whether another worker has asked for the next round."""
        self._light_before, self._is_light = 0, False  # rounds by which it was found out, see `is_light`

    @property
    def planned_rounds(self) -> int:
        """Rounds whose plan is committed."""
        return self._first.planned_rounds

    @property
    def policy_name(self) -> str:
        """What the policy is called."""
        return self._first.policy_name

    @property
    def rounds(self) -> int | None:
        """Rounds that the policy has in a cycle; None: as many as it takes."""
        return self._first.rounds

    @property
    def is_over(self) -> bool:
        """Tell whether no round is left to plan, or to take over."""
        return self.result is None and self._first.is_over

    @property
    def is_light(self) -> bool:
        """Tell whether own shards have less than half of their share of what the rounds have chosen so far.

        Then these were planned for others above all, who will ask for the next one when it is time.
        """
        if self._light_before != self.planned_rounds:
            counts = [one.last_record()["plan"] for one in self.planners]
            own, of = sum(one["ranked"] for one in counts), next(iter(self.planners)).shard_of.shards
            self._is_light = 2 * own * of < spent_of(counts[0]) * len(counts)
            self._light_before = self.planned_rounds
        return self._is_light

    def next_step(self, cycle: int) -> Step | None:
        """The step by which others begin the next round; None: there is none."""
        return None if self._first.is_over else Step(cycle, begun_name(self.planned_rounds))

    def stop(self) -> None:
        """Plan no further round."""
        for one in self.planners.values():
            one.stop()

    async def plan_with(self, exchange_: Exchange) -> None:
        """Plan the next round with the others; the result is to be taken over."""
        self.result = (await plan(exchange_, self.planners, self.planned_rounds)).result
        self.is_asked = False

    def plan(self, record: CycleRecord, planned: Planned, awaited: bool = False) -> bool:
        """Take over the round that was planned with the others."""
        found, self.result = self.result, None
        assert found is not None
        return found

    def seeds(self, visits: npt.NDArray[Any], planned: Planned) -> int:
        """0: no policy that samples plans for shards."""
        return 0
