"""Several open shards as one store: who crawls, plans or reads sees a `PageStore`, whatever is behind it.

Ids are dense: the pages of one shard behind those of another, then the pages that the open cycle found, in
the order in which it found them. They are the same throughout a run; a fold numbers the pages anew. Every
shard commits by itself, so that a kill may cost some of them up to a commit interval of what others have;
what must be the same in all is mended when they are opened next (`scrapy_gp4c.store.shards.mending`).
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self, Unpack

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.errors import StoreError
from scrapy_gp4c.store.records import CycleRecord, RoundCounts, StoredGroups
from scrapy_gp4c.store.shards import parts_of_plan
from scrapy_gp4c.store.shards.attached import ShardedGains, ShardedHints, ShardedWeights
from scrapy_gp4c.store.shards.mending import mend
from scrapy_gp4c.store.shards.numbers import Numbers
from scrapy_gp4c.store.shards.part import Holder, Shard, check_together, counts_of, of_whole
from scrapy_gp4c.store.shards.sharded_pages import NO_ROW
from scrapy_gp4c.store.shards.sharded_visits import ShardedVisits

Array = npt.NDArray[Any]


class ShardedStore(ShardedVisits):
    """Shards of one store, open for writing or for reading: a `PageStore`."""

    def __init__(
        self, path: Path, shards: Sequence[Shard], *, readonly: bool, guests: Holder | None = None
    ) -> None:
        """Take open shards, by number, and close them with this; a writer mends what a kill has left.

        ``path``: their directory; ``guests``: who has the pages from `discovery.GUESTS` on, which are in no
        shard. Raises StoreError for shards that do not belong together.
        """
        check_together([(str(one.path), one.shard_of) for one in shards])
        self._path, self._shards = path, shards
        self._holders = shards if guests is None else [*shards, guests]
        self._places = {one.shard_of.number: place for place, one in enumerate(shards)}
        if not readonly:
            mend(shards)
        self._numbers = Numbers(shards, guests is not None)
        self.hints = ShardedHints(shards, self._numbers)
        self.gains = ShardedGains(shards, self._numbers)
        self.weights = ShardedWeights(shards, self._numbers)
        self._committed_s = time.monotonic()
        self._finders, self._row = {}, NO_ROW
        self._visit_shards = array("H", parts_of_plan.order_of_visits(shards).tobytes())

    @property
    def path(self) -> Path:
        """The directory of the shards."""
        return self._path

    @property
    def store_id(self) -> str:
        """Random hex digits that name the whole."""
        return self._shards[0].shard_of.store_id

    @property
    def pages(self) -> int:
        """Number of known pages, those found in the open cycle included."""
        return self._numbers.pages

    @property
    def merged_pages(self) -> int:
        """Number of pages with columns in `blocks`."""
        return self._numbers.merged

    def close(self) -> None:
        """Commit what is buffered and close, even where that fails."""
        with ExitStack() as closing:
            for one in self._shards:
                closing.callback(one.close)

    def __exit__(self, *error: object) -> None:
        self.close()

    def __enter__(self) -> Self:
        return self

    # --- cycles and plans

    def begin_cycle(self, record: CycleRecord) -> int:
        """Open the next cycle with its record; returns its number."""
        numbers = {one.begin_cycle(record) for one in self._shards}
        self._visit_shards = array("H")
        return max(numbers)

    def amend_record(self, **fields: Unpack[CycleRecord]) -> None:
        """Add to the record of the open cycle, in the first shard first: what that says holds."""
        for one in self._shards:
            one.amend_record(**fields)

    def finish_cycle(self, record: CycleRecord) -> None:
        """Close the open cycle in all shards; after a StoreFullError the same call goes on."""
        cycle = self.open_cycle
        if cycle is None:
            raise ValueError("no cycle is open: call begin_cycle first")
        open_record = self.cycles()[-1]
        if not any(one.is_folding or one.last_cycle == cycle for one in self._shards):
            self.commit()
            self._note_brought()
        whole: CycleRecord = {"finished": time.time()}
        whole.update(record)
        if "planned" in open_record:
            whole["planned"] = open_record["planned"]
        if "rounds" in open_record:
            whole["rounds"] = open_record["rounds"]
        for one in self._behind():
            one.finish_cycle({**whole, "shard": counts_of(one.open_visits())})
        self._reload()
        self._visit_shards = array("H")

    def keep_visits(self, cycles: int) -> None:
        """Drop the visits of all but so many of the last finished cycles."""
        for one in self._shards:
            one.keep_visits(cycles)

    def cycles(self) -> list[CycleRecord]:
        """Records of all cycles as the whole has them, oldest first."""
        first = self._behind()[0]
        records = [of_whole(record) for record in first.cycles()]
        if self.open_cycle is not None and "planned" in records[-1]:
            rounds = self.rounds()
            records[-1]["planned"] = sum(one["planned"] for one in rounds) if rounds else None
            if rounds:
                records[-1]["rounds"] = rounds
        return records

    def add_round(self, chunks: Iterable[Array], seen: int, **about: Unpack[CycleRecord]) -> None:
        """Write the plan of the open cycle's next round; it counts when all shards have their part."""
        if self.open_cycle is None:
            raise ValueError("no cycle is open: call begin_cycle first")
        if not 0 <= seen <= len(self._visit_shards):
            raise ValueError(f"the cycle has {len(self._visit_shards)} visits; found seen = {seen}")
        self.commit()
        of_shard = np.bincount(self._order()[:seen], minlength=len(self._shards)).tolist()
        parts_of_plan.add_round(self._shards, self._numbers, chunks, of_shard, about)

    def rounds(self) -> list[RoundCounts]:
        """Return the open cycle's planned rounds."""
        return parts_of_plan.rounds_of(self._shards)

    def planned(self) -> int | None:
        """Pages of all complete rounds of the open cycle; None while there is none."""
        rounds = self.rounds()
        return sum(one["planned"] for one in rounds) if rounds else None

    def plan(self) -> Iterator[Array]:
        """Yield the complete rounds' plan, dtype `PLAN`, in chunks, first to visit first."""
        return parts_of_plan.plan_of(self._shards, self._numbers)

    # --- what is not of shards

    def clusters(self) -> StoredGroups | None:
        """None: clusters and links lead from shard to shard."""

    def put_clusters(self, groups: StoredGroups) -> None:
        """Raise StoreError."""
        raise StoreError(
            f"expected one store to keep clusters of pages; found the shards in {self.path}. Join them first."
        )

    # --- care

    def look_over(self) -> str:
        """Check a sample of what is kept in each shard. Raises StoreDamagedError."""
        told = [one.look_over() for one in self._shards]
        return f"{len(told):,} shards; of the first, {told[0]}"

    def verify(self) -> list[str]:
        """Compare all that is kept with each other, in each shard and between them."""
        found = [
            f"shard {one.shard_of.number}: {problem}" for one in self._shards for problem in one.verify()
        ]
        for records in zip(*(one.cycles() for one in self._shards), strict=False):
            own = [record["shard"]["visited"] for record in records if "shard" in record]
            visited = records[0].get("visited", sum(own))
            if len(own) == self._shards[0].shard_of.shards and visited != sum(own):
                cycle = records[0]["cycle"]
                found.append(f"cycle {cycle} has {visited} visits by its record, {sum(own)} by its shards")
        return found
