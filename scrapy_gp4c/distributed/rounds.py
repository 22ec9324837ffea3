"""Planning the shards of one worker with those of all others: parts and answers go through the ledger."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, cast

import numpy.typing as npt

from scrapy_gp4c.crawling.begun import as_begun
from scrapy_gp4c.crawling.planned_pages import PlannedPages
from scrapy_gp4c.crawling.planning import Planner
from scrapy_gp4c.distributed import exchange
from scrapy_gp4c.distributed.connection import Transaction
from scrapy_gp4c.distributed.exchange import Step
from scrapy_gp4c.distributed.link import Link, sleep
from scrapy_gp4c.policies.policy import Planned
from scrapy_gp4c.policies.steps import Answer, Part, Shard, combined, packed, unpacked
from scrapy_gp4c.settings import Settings
from scrapy_gp4c.store.opening import LmdbShard
from scrapy_gp4c.store.records import CycleRecord

POLL_S: Final = 0.1
"""From one look for the others' parts to the next."""
Watch = Callable[[Sequence[int]], Any]
"""Awaited while these shards are waited for; raises what makes that in vain."""


class Exchange:
    """Brings parts of own shards to the others, and back what follows from all."""

    def __init__(self, link: Link, cycle: int, tokens: Mapping[int, int], watch: Watch) -> None:
        """Take own shards with their tokens."""
        self._link, self._cycle, self._tokens, self._watch = link, cycle, tokens, watch

    async def all_parts(self, name: str, own: Mapping[int, bytes]) -> list[bytes]:
        """Post own parts of a step; returns those of all shards, when they are there."""
        step = Step(self._cycle, name)
        if own:
            await self._link.surely(_post, step, self._tokens, own)
        while (found := await self._link.surely(exchange.parts, step)) is None:
            await self._watch(await self._link.surely(exchange.missing, step))
            await sleep(POLL_S)
        return found

    async def answer(self, name: str, own: Mapping[int, Part]) -> Answer:
        """Post own parts of a step of planning; returns what follows from all."""
        parts = await self.all_parts(name, {shard: packed(part) for shard, part in own.items()})
        told = combined([_part(raw) for raw in parts])
        await self._link.surely(exchange.put_answer, Step(self._cycle, name), packed(told))
        return told

    async def is_complete(self, name: str) -> bool:
        """Tell whether all shards have posted their parts of a step."""
        return not await self._link.surely(exchange.missing, Step(self._cycle, name))

    async def own_part(self, name: str, shard: int) -> bytes | None:
        """What a shard has posted for a step before, whoever held it."""
        return await self._link.surely(exchange.part, Step(self._cycle, name), shard)


def _post(tx: Transaction, step: Step, tokens: Mapping[int, int], own: Mapping[int, bytes]) -> None:
    for shard in sorted(own):
        exchange.post(tx, step, shard, tokens[shard], own[shard])


def _part(raw: bytes) -> Part:
    return cast(Part, unpacked(raw))  # `combined` refuses an answer in its place


def begun_name(number: int) -> str:
    """Step in which shards say what they have seen before a round."""
    return f"round/{number}"


async def plan(
    exchange_: Exchange, planners: Mapping[LmdbShard, Planner], number: int, awaited: bool
) -> bool:
    """Plan one round of own shards with all others; returns what `Planner.steps` does.

    What a shard has seen is settled by its first post: whoever plans the round again plans the same.
    """
    name = begun_name(number)
    own: dict[int, bytes] = {}
    seen: dict[int, int] = {}
    for one in planners:
        shard = one.shard_of.number
        raw = await exchange_.own_part(name, shard)
        if raw is None:
            raw = json.dumps([one.written_visits if number else 0, awaited]).encode()
        own[shard], seen[shard] = raw, json.loads(raw)[0]
    told = [json.loads(raw) for raw in await exchange_.all_parts(name, own)]
    any_awaited = any(waits for _, waits in told)
    steps = {
        one.shard_of.number: planner.steps(
            one.cycles()[-1], _planned(one), any_awaited, seen[one.shard_of.number]
        )
        for one, planner in planners.items()
    }
    ended: list[bool] = []
    parts: dict[int, Part] = {}
    for shard, one_shard in steps.items():
        parts[shard] = next(one_shard)
    step = 0
    while not ended:
        answer = await exchange_.answer(f"{name}/{step}", parts)
        step += 1
        for shard, one_shard in steps.items():
            try:
                parts[shard] = one_shard.send(answer)
            except StopIteration as end:
                ended.append(end.value)
    return ended[0]


def _planned(shard: LmdbShard) -> Planned:
    return PlannedPages(shard.plan()).planned


def planners_of(shards: Sequence[LmdbShard], settings: Settings) -> dict[LmdbShard, Planner]:
    """A planner for each shard of an open cycle."""
    found = {}
    for one in shards:
        own = as_begun(settings, one.cycles()[-1])
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

    def stop(self) -> None:
        """Plan no further round."""
        for one in self.planners.values():
            one.stop()

    def plan(self, record: CycleRecord, planned: Planned, awaited: bool = False) -> bool:
        """Take over the round that was planned with the others."""
        found, self.result = self.result, None
        assert found is not None
        return found

    def seeds(self, visits: npt.NDArray[Any], planned: Planned) -> int:
        """0: no policy that samples plans for shards."""
        return 0
