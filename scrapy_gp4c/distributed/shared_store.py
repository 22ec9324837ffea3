"""The shards of one worker as one store, in which nothing is written that the ledger does not have."""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.distributed import segments
from scrapy_gp4c.distributed.guests import GuestHints, Guests
from scrapy_gp4c.distributed.segments import Segment
from scrapy_gp4c.page_state.outcomes import HUB, NEW, PANEL, PLAN, RANKED, WARMUP
from scrapy_gp4c.scoring.draws import draws
from scrapy_gp4c.scoring.growth import ELSEWHERE, GUESTS, START
from scrapy_gp4c.store.opening import LmdbShard
from scrapy_gp4c.store.records import CycleRecord, NewVisit
from scrapy_gp4c.store.shards.part import Finder
from scrapy_gp4c.store.shards.placing import shard_of_url
from scrapy_gp4c.store.shards.sharded import ShardedStore

Array = npt.NDArray[Any]

FLUSH_VISITS: Final = 100
"""Visits that are flushed at once, however young they are."""
_TURNS: Final = (HUB, PANEL, RANKED, WARMUP, NEW)
"""Kinds of pages in the order of a round's plan; a kind that is none of these is the policy's."""


class SharedStore(ShardedStore):
    """Shards whose visits wait until the ledger has them: `sealed` goes there, then `write` into the shards.

    What was not acknowledged when it is closed is lost here, as it is in the ledger.
    """

    def __init__(self, path: Path, shards: Sequence[LmdbShard]) -> None:
        """Take open shards that are in the same cycle, by number."""
        self.guests = Guests()
        """Pages of other workers whose visits go on here."""
        super().__init__(path, shards, readonly=False, guests=self.guests)
        self._own = shards
        self._next = {one.shard_of.number: one.applied for one in shards}
        self.on_full: Callable[[], object] = lambda: None
        """Called when so many visits wait that they are to be flushed."""
        self.waiting = 0
        """Visits that the ledger has not acknowledged."""
        self._unsealed = 0
        self._rounds: list[Array] = []
        """Of the plan: what was read of it, dtype `PLAN`."""
        self.hints = GuestHints(shards, self._numbers, self.guests)
        for one in shards:
            one.wait()

    @property
    def shards(self) -> Sequence[LmdbShard]:
        """The shards, by number."""
        return self._own

    @property
    def numbers(self) -> list[int]:
        """Their numbers."""
        return list(self._places)

    def has(self, url: str) -> bool:
        """Tell whether the page of a URL is in one of these shards."""
        return shard_of_url(url, self._own[0].shard_of.shards) in self._places

    # --- the ledger first

    def record(self, visit: NewVisit) -> None:
        """Note one visit of the open cycle; raises ValueError for the second one of a page."""
        if visit.page >= GUESTS:
            self.guests.record(visit)
            return
        super().record(visit)
        self.waiting += 1
        self._unsealed += 1
        if self._unsealed >= FLUSH_VISITS:
            self.on_full()

    def commit(self) -> None:
        """Leave what is buffered to the flushes, which follow each other at their own pace."""
        self._committed_s = time.monotonic()

    def sealed(self) -> tuple[Segment, ...]:
        """Seal what happened until now; a segment of each shard where there was anything."""
        found = []
        self._unsealed = 0
        for one in self._own:
            number = one.shard_of.number
            sealed = one.seal(self._next[number])
            if sealed is not None:
                found.append(segments.segment(number, self._next[number], sealed.visits, sealed.rest))
                self._next[number] += 1
        return tuple(found)

    def write(self, acknowledged: Sequence[Segment]) -> None:
        """Write what the ledger has acknowledged, oldest first. Raises StoreFullError."""
        for one in acknowledged:
            self._own[self._places[one.shard]].write()
            self.waiting -= one.visits

    def reload(self) -> None:
        """Number the pages anew, once a cycle has been folded into the shards."""
        self._reload()
        self._visit_shards, self._rounds = array("H"), []

    # --- finders of other workers' shards

    def find_elsewhere(self, page: int, finder: Finder) -> None:
        """Note who found a page of the open cycle: a page of another shard, known by its key."""
        if finder.shard in self._places:
            found = self.find(finder.key)
            if found is not None:
                self.note(page, "found_by", found + 1)
            return
        shard, local = self._numbers.place(page)
        self._own[shard].find_elsewhere(local, finder)
        self._own[shard].note(local, "found_by", ELSEWHERE)

    def note(self, page: int, what: str, value: float) -> None:
        """Note what the open cycle learnt of a page; who found it may be a guest."""
        if what == "found_by" and GUESTS < value < START:
            self.find_elsewhere(page, self.guests.of(int(value) - 1).finder)
        else:
            super().note(page, what, value)

    def key_and_shard(self, page: int) -> Finder:
        """A page as other workers know it."""
        if page >= GUESTS:
            return self.guests.of(page).finder
        shard, local = self._numbers.place(page)
        return Finder(self._own[shard].page(local).key, self._own[shard].shard_of.number)

    def shard_number(self, page: int) -> int:
        """Number of the shard of a page."""
        return self._own[self._numbers.place(page)[0]].shard_of.number

    # --- the plan, of which every shard has its own

    def plan(self) -> Iterator[Array]:
        """Yield the plan, dtype `PLAN`: of each round what these shards have of it, first to visit first."""
        if (first := len(self._rounds)) < (stop := len(self.rounds())):
            self._rounds += self._rounds_from(first, stop)
        return iter(self._rounds)

    def _rounds_from(self, first: int, stop: int) -> Iterator[Array]:
        """Read rounds of the plan: a crawl asks for all of them after each."""
        record = self._own[0].last_record()
        plans = [own.plan_by_round() for own in self._own]
        for number in range(first, stop):
            parts, keys = [b""], [np.empty(0, np.uint64)]
            for shard, (own, plan) in enumerate(zip(self._own, plans, strict=True)):
                part = plan[number].copy()
                keys.append(_keys(own, part["page"]))
                part["page"] = self._numbers.pages_of(shard, part["page"])
                parts.append(part.tobytes())
            whole = np.frombuffer(bytearray().join(parts), PLAN)
            turn = np.full(len(whole), _TURNS.index(RANKED))
            for place, kind in enumerate(_TURNS):
                turn[whole["kind"] == kind] = place
            is_scored = ~np.isnan(whole["score"])
            score = np.where(is_scored, -whole["score"], 0.0)
            drawn = draws(np.concatenate(keys), record["seed"], record["cycle"])
            yield whole[np.lexsort((np.where(is_scored, drawn, 0), score, turn))]

    def cycles(self) -> list[CycleRecord]:
        """Records of all cycles; that of the open one counts what these shards have of the plan."""
        records = super().cycles()
        if self.open_cycle is not None and "plan" in records[-1]:
            own = [one.last_record()["plan"]["known"] for one in self._own]
            records[-1]["plan"] = {**records[-1]["plan"], "known": sum(own)}
        return records


def _keys(shard: LmdbShard, pages: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint64]:
    """Keys of pages of a shard, ``[P]``: by what they draw, equal scores are in order."""
    order = np.argsort(pages)
    keys = np.empty(len(pages), np.uint64)
    keys[order] = shard.columns_of(pages[order], ("key",))["key"]
    return keys
