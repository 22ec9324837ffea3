"""How a worker's run is opened: its shards, the cycle that all are in, and the plan of round 0."""

from __future__ import annotations

import dataclasses
import logging
import socket
from collections.abc import Iterable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final

from scrapy_gp4c.crawling.admission import Enqueue
from scrapy_gp4c.crawling.begun import record_of
from scrapy_gp4c.crawling.cycle import Cycle
from scrapy_gp4c.crawling.undivided import check_divisible
from scrapy_gp4c.distributed import arithmetic, closing, cycles, schema
from scrapy_gp4c.distributed.catching_up import Home, caught_up, opened
from scrapy_gp4c.distributed.cycles import Code, Decided, Joined
from scrapy_gp4c.distributed.holding import SETTLE, MoreShardsError, NothingDueError, take_shards, watch
from scrapy_gp4c.distributed.leases import Lease, new_worker
from scrapy_gp4c.distributed.link import Link, sleep
from scrapy_gp4c.distributed.looks import LONGEST_S
from scrapy_gp4c.distributed.part import Part
from scrapy_gp4c.distributed.places import place_of
from scrapy_gp4c.distributed.quotas import with_quotas
from scrapy_gp4c.distributed.rounds import Exchange, SharedRounds
from scrapy_gp4c.distributed.shared_run import SharedRun
from scrapy_gp4c.distributed.shared_store import SharedStore
from scrapy_gp4c.distributed.standing import begun, standing
from scrapy_gp4c.errors import SettingsError
from scrapy_gp4c.settings import Settings

if TYPE_CHECKING:
    from scrapy import Spider
    from scrapy.crawler import Crawler

logger = logging.getLogger(__name__)


async def open_shared_run(
    crawler: Crawler, settings: Settings, spider: Spider, enqueue: Enqueue, version: str
) -> SharedRun | None:
    """Join the cycle that is open, or open one that is due; None, and one line, if there is nothing to do.

    ``version``: of scrapy-gp4c, the same on all workers. Raises Gp4cError; then the worker has left.
    """
    check_alone(crawler, settings)
    assert settings.ledger is not None
    worker = new_worker(settings.worker or socket.gethostname(), settings.lease_s)
    link = Link(settings.ledger, worker)
    extra = {"spider": spider}

    async def opened_part(only: int | None = None) -> Part:
        while True:
            try:
                return await Opening(crawler, settings, spider, link).run(version, only)
            except MoreShardsError as error:
                logger.info("%s", error, extra=extra)

    try:
        return SharedRun(crawler, enqueue, spider, await opened_part(), link, opened_part)
    except NothingDueError as error:
        logger.info("%s", error, extra=extra)
        link.close(leave=True)
        return None
    except BaseException:
        link.close(leave=link.clock.left_s > 0)
        raise


def check_alone(crawler: Crawler, settings: Settings) -> None:
    """Raise SettingsError for what the workers of one crawl cannot have."""
    refused = {
        "JOBDIR": crawler.settings.get("JOBDIR"),
        "GP4C_QUERY_LOG": settings.query_log,
        "GP4C_ARCHIVE": settings.archive,
    }
    if names := [name for name, value in refused.items() if value]:
        raise SettingsError(
            f"expected no {' and no '.join(names)} with GP4C_LEDGER, as no worker has all pages; found "
            f"{'it' if len(names) == 1 else 'them'} set. Leave out one or the other."
        )


class Opening:
    """One attempt to open a run."""

    def __init__(self, crawler: Crawler, settings: Settings, spider: Spider, link: Link) -> None:
        """Take the crawl, and the worker's link, on which it is entered, or will be."""
        self._crawler, self._settings, self._spider, self._link = crawler, settings, spider, link
        self._held: dict[int, Lease] = {}
        self._extra = {"spider": spider}

    async def run(self, version: str, only: int | None) -> Part:
        """Raises what `open_shared_run` raises, NothingDueError and MoreShardsError.

        ``only``: the cycle that a run is in, which takes shards over; it goes on in no other.
        """
        link, settings = self._link, self._settings
        about = await link.ask(schema.about)
        check_divisible(settings, about.shards)
        home = Home.of(settings, self._spider.name, place_of(settings.objects, link.thread), about)
        if not link.is_entered:
            await link.enter(home.copies())
        await self._refuse_what_is_not_due()
        at_cycle_end = only is None and (await link.surely(standing)).last.closed
        self._held = await take_shards(link, at_cycle_end, SETTLE if only is None else 0.0)
        with ExitStack() as stack:
            now = await link.surely(standing)
            if now.last.closed and not now.is_complete:
                await self._close(home, now.last.cycle)
                await self._refuse_what_is_not_due()
            if only is not None and now.last.closed:
                raise NothingDueError(f"cycle {only} was closed by others: nothing is left to do in it")
            joined = await self._join(version)
            if only not in (None, joined.cycle):
                raise NothingDueError(f"cycle {only} was closed by others: the next one has begun")
            settings = as_decided(settings, joined.decided)
            now_begun = await link.surely(begun, joined.cycle)
            shards = [await opened(link, home, number, now_begun) for number in sorted(self._held)]
            for one in shards:
                stack.callback(one.close)
                one.wait()
            exchange = self._exchange(joined.cycle, home)
            planners = await caught_up(link, exchange, shards, now_begun, settings)
            store = SharedStore(home.directory, shards)
            assert self._crawler.stats is not None
            rounds = SharedRounds(planners)
            own = with_quotas(settings, shards)
            cycle = Cycle(store, own, self._crawler.stats, planner=rounds)
            stack.pop_all()
        return Part(cycle, store, rounds, exchange, list(self._held.values()), home)

    async def _refuse_what_is_not_due(self) -> None:
        now = await self._link.surely(standing)
        left_s = self._settings.cycle_s - now.last.age_s
        if now.is_complete and left_s > 0:
            raise NothingDueError(
                f"cycle {now.last.cycle} is closed, and the next one is due in {left_s:.0f} s: nothing to do"
            )

    async def _join(self, version: str) -> Joined:
        own = self._settings
        joined = await self._link.surely_single(
            cycles.join, self._link.worker, _decided(own), _code(own, version), own.cycle_s
        )
        if joined is None:
            raise NothingDueError(
                "the cycle was closed meanwhile, and the next one is not due: nothing to do"
            )
        if joined.differs:
            logger.warning(
                "Cycle %d was opened with other settings, by which it goes on: %s",
                joined.cycle,
                "; ".join(joined.differs),
                extra=self._extra,
            )
        return joined

    async def _close(self, home: Home, number: int) -> None:
        """Fold a cycle that was closed before all shards had folded it, and copy them."""
        ended = await self._link.surely(begun, number)
        exchange, settings = self._exchange(number, home), as_decided(self._settings, ended.decided)
        with ExitStack() as stack:
            shards = [await opened(self._link, home, shard, ended) for shard in sorted(self._held)]
            for one in shards:
                stack.callback(one.close)
                one.wait()
            behind = [one for one in shards if one.last_cycle < number]
            if behind:
                await caught_up(self._link, exchange, behind, ended, settings)
                assert ended.closed is not None
                await closing.close(exchange, behind, ended.closed, settings)
            await closing.copy(self._link, home, shards, list(self._held.values()))
        while not (now := await self._link.surely(standing)).is_complete and now.last.cycle == number:
            await watch(self._link, self._held, None)
            await sleep(LONGEST_S)

    def _exchange(self, cycle: int, home: Home) -> Exchange:
        tokens = {shard: lease.token for shard, lease in self._held.items()}
        return Exchange(self._link, cycle, home.about.shards, tokens, self._watch)

    async def _watch(self, missing: Iterable[int]) -> None:
        await watch(self._link, self._held, missing)


CAPS: Final = (
    "new_pages", "new_pages_per_site", "max_pages", "max_pages_per_site", "warmup_visits", "panel",
    "distance_bits", "gone_after",
)  # fmt: skip
"""Settings, beside those of the record, that are the same in all shards of a cycle: the opener's."""


def as_decided(settings: Settings, decided: Decided) -> Settings:
    """Settings of a cycle, as its opener has decided; `begun.as_begun` has what its record says besides."""
    own: Any = {name: decided.caps[name] for name in CAPS if name in decided.caps}
    return dataclasses.replace(settings, **own)


def _decided(settings: Settings) -> Decided:
    record = record_of(settings, None)
    record.pop("started")
    return Decided(record, {name: getattr(settings, name) for name in CAPS})


def _code(settings: Settings, version: str) -> Code:
    features = settings.features
    name = "text" if features is None else f"{features.__module__}.{features.__qualname__}"
    names = (settings.policy.text, settings.score_function.text)
    dotted = tuple(text for text in names if text.replace(".", "").replace("_", "").isalnum() and "." in text)
    return Code((), dotted, name, version, arithmetic.of_this_process())
