"""The middle of the front of several shards: the visits and notes of the open cycle, and of those before."""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.page_state.claims import NO_NOTES, WHAT
from scrapy_gp4c.page_state.outcomes import VISIT
from scrapy_gp4c.scoring.discovery import ELSEWHERE, START
from scrapy_gp4c.store.records import SHADOW, NewVisit
from scrapy_gp4c.store.shards.attached import renumbered
from scrapy_gp4c.store.shards.part import Finder, Shard
from scrapy_gp4c.store.shards.sharded_pages import ShardedPages

Array = npt.NDArray[Any]

_FOUND_BY: Final = WHAT.index("found_by")


class ShardedVisits(ShardedPages):
    """Visits, notes and shadows of several shards."""

    _visit_shards: array[int]
    """Shard of each visit of the open cycle, in order."""
    _committed_s: float

    @property
    def last_cycle(self) -> int:
        """The last cycle that all shards have finished; 0: none."""
        return min(one.last_cycle for one in self._shards)

    @property
    def open_cycle(self) -> int | None:
        """The unfinished cycle."""
        return next((one.open_cycle for one in self._behind() if one.open_cycle is not None), None)

    def _behind(self) -> list[Shard]:
        """The shards that have not ended a cycle that others have, or all."""
        last = self.last_cycle
        return [one for one in self._shards if one.last_cycle == last]

    @property
    def committed_s(self) -> float:
        """When the last commit of all shards returned, by the monotonic clock."""
        return self._committed_s

    def _order(self) -> npt.NDArray[np.uint16]:
        return np.array(self._visit_shards, np.uint16)

    def note(self, page: int, what: str, value: float) -> None:
        """Note what the open cycle learnt of a page; who found it may be in another shard."""
        shard, local = self._numbers.place(page)
        one = self._shards[shard]
        if what == "found_by" and 0 < value < START:
            finder, of_finder = self._numbers.place(int(value) - 1)
            value = of_finder + 1
            if finder != shard:
                other = self._shards[finder]
                one.find_elsewhere(local, Finder(other.page(of_finder).key, other.shard_of.number))
                value = ELSEWHERE
        one.note(local, what, value)

    def notes(self) -> Array:
        """Notes of the open cycle so far, dtype `NOTE`, shard by shard, those of a page in their order."""
        return np.concatenate([NO_NOTES, *(self._notes_of(shard) for shard in range(len(self._shards)))])

    def _notes_of(self, shard: int) -> Array:
        own = self._shards[shard].notes()
        own = own[own["what"] != WHAT.index("brought")]
        told = renumbered(self._numbers, shard, own)
        for row in np.flatnonzero(
            (own["what"] == _FOUND_BY) & (own["value"] > 0) & (own["value"] < START)
        ).tolist():
            if own["value"][row] == ELSEWHERE:
                told["value"][row] = self._finder(self._shards[shard].finder_of(int(own["page"][row])))
            else:
                told["value"][row] = self._numbers.page(shard, int(own["value"][row]) - 1) + 1
        return told

    def record(self, visit: NewVisit) -> None:
        """Note one visit of the open cycle; raises ValueError for the second one of a page."""
        shard, local = self._numbers.place(visit.page)
        one = self._shards[shard]
        try:
            one.record(visit._replace(page=local))
        except ValueError:
            raise
        except BaseException:
            if one.visited(local):  # a commit that fails keeps the visit
                self._visit_shards.append(shard)
            raise
        self._visit_shards.append(shard)

    def visited(self, page: int) -> bool:
        """Tell whether the page has an outcome in the open cycle, committed or not."""
        try:
            shard, local = self._numbers.place(page)
        except ValueError:
            return False
        return self._holders[shard].visited(local)

    def open_visits(self) -> Array:
        """Visits of the open cycle so far, dtype `VISIT`, in order of time."""
        if self.open_cycle is None:
            return np.empty(0, VISIT)
        parts = [
            renumbered(self._numbers, shard, one.open_visits()) for shard, one in enumerate(self._shards)
        ]
        found = np.concatenate(parts)
        order = np.argsort(self._order(), kind="stable")
        if len(order) != len(found):  # beside a writer that ends the cycle just now
            return found
        whole = np.empty_like(found)
        whole[order] = found
        return whole

    def visits(self, first_cycle: int = 1, last_cycle: int | None = None) -> Iterator[tuple[int, Array]]:
        """Yield the visits of finished cycles, dtype `VISIT`, in chunks: (cycle, visits)."""
        last = self.last_cycle if last_cycle is None else min(last_cycle, self.last_cycle)
        for cycle in range(first_cycle, last + 1):
            for shard, one in enumerate(self._shards):
                for _, visits in one.visits(cycle, cycle):
                    yield cycle, renumbered(self._numbers, shard, visits)

    def group_visits(self, cycle: int) -> Array:
        """What the judged visits of a finished cycle tell of directories, dtype `GROUP_VISITS`, by number."""
        parts = []
        for shard, one in enumerate(self._shards):
            part = one.group_visits(cycle).copy()
            part["group"] += np.uint32(self._numbers.first_group[shard])
            parts.append(part)
        return np.concatenate(parts)

    def before_commit(self, call: Callable[[], object]) -> None:
        """Let this be called before visits are committed, of any shard."""
        for one in self._shards:
            one.before_commit(call)

    def commit(self) -> None:
        """Write what is buffered, in all shards."""
        for one in self._shards:
            one.commit()
        self._committed_s = time.monotonic()

    def shadows(self, cycle: int) -> Array:
        """Shadows as `cycle` left them, dtype `SHADOW` ``[S]``; none if it had no panel."""
        parts = [
            renumbered(self._numbers, shard, one.shadows(cycle)) for shard, one in enumerate(self._shards)
        ]
        return np.concatenate([np.empty(0, SHADOW), *parts])

    def keep_shadows(self, cycle: int, kept: Array) -> None:
        """Keep the shadows as `cycle` left them; those of the cycle before stay."""
        of_shard = {own.shard: own for own in self._numbers.by_shard(kept["page"])}
        for shard, one in enumerate(self._shards):
            part = kept[:0].copy()
            if (own := of_shard.get(shard)) is not None:
                part = kept[own.rows]
                part["page"] = own.pages
            one.keep_shadows(cycle, part)

    def _note_brought(self) -> None:
        """Tell shards how many pages of others theirs have found: their folds see no notes of these."""
        notes = self.notes()
        notes = notes[(notes["what"] == _FOUND_BY) & (notes["value"] > 0) & (notes["value"] < START)]
        child = {own.shard: own.rows for own in self._numbers.by_shard(notes["page"])}
        of_child = np.empty(len(notes), np.intp)
        for shard, rows in child.items():
            of_child[rows] = shard
        for own in self._numbers.by_shard(notes["value"] - 1):
            foreign = own.pages[of_child[own.rows] != own.shard]
            self._shards[own.shard].note_brought(*np.unique(foreign, return_counts=True))
        self.commit()
