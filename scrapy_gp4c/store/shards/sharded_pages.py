"""Half of the front of several shards: their pages, with those of the open cycle."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.page_state.columns import NEW_ROW, Columns, PageRow
from scrapy_gp4c.scoring.discovery import ELSEWHERE, START
from scrapy_gp4c.store.page_store import Pages
from scrapy_gp4c.store.records import StoredRequest
from scrapy_gp4c.store.shards.numbers import Numbers
from scrapy_gp4c.store.shards.part import Finder, Holder, Shard
from scrapy_gp4c.store.shards.placing import shard_of_url

Array = npt.NDArray[Any]

NO_ROW: Final = -1, NEW_ROW
_ADDED: Final = 16_384
"""Pages of a bulk that wait for the others of their shards."""


class ShardedPages:
    """All known pages of several shards."""

    _shards: Sequence[Shard]
    _holders: Sequence[Holder]
    """The shards; behind them who has pages that are in none of them, if anybody has."""
    _numbers: Numbers
    _places: dict[int, int]
    """Number of each shard -> its place among those that are open."""
    _row: tuple[int, PageRow]
    """The page that was read last, as a visit looks at its page's row twice."""
    _finders: dict[int, tuple[Array, Array]]
    """Shard -> its pages that one of another has found, and ``found_by`` of each for the whole."""

    def find(self, key: int) -> int | None:
        """Page id of a page key, or None."""
        return self._numbers.find(key)

    def page(self, page: int) -> PageRow:
        """Columns of one page as the last finished cycle left them."""
        if self._row[0] != page:
            self._row = page, self._row_of_whole(page)
        return self._row[1]

    def _row_of_whole(self, page: int) -> PageRow:
        shard, local = self._numbers.place(page)
        row = self._holders[shard].page(local)
        if page >= self._numbers.merged:
            return row
        found_by = row.found_by
        if found_by == ELSEWHERE:
            found_by = self._finder(self._shards[shard].finder_of(local))
        elif 0 < found_by < START:
            found_by = self._numbers.page(shard, found_by - 1) + 1
        return row._replace(group=row.group + self._numbers.first_group[shard], found_by=found_by)

    def _finder(self, finder: Finder | None) -> int:
        """The column ``found_by`` for a page of another shard; 0 if nobody knows it here."""
        page = None if finder is None else self._numbers.find(finder.key)
        return 0 if page is None else page + 1

    def blocks(self, names: Collection[str] | None = None) -> Iterator[tuple[int, Columns]]:
        """Yield the page columns block by block, see `PageStore.blocks`."""
        for shard, one in enumerate(self._shards):
            for first, block in one.blocks(names):
                yield self._numbers.first[shard] + first, self._of_whole(shard, first, block)

    def columns_of(self, pages: npt.NDArray[np.uint32], names: Collection[str] | None = None) -> Columns:
        """All columns ``[P]`` of some pages, ids ascending, each one below `merged_pages`."""
        parts = [
            self._of_whole(own.shard, own.pages, self._shards[own.shard].columns_of(own.pages))
            for own in self._numbers.by_shard(pages)
        ]
        if not parts:
            return self._shards[0].columns_of(np.empty(0, np.uint32))
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}

    def _of_whole(self, shard: int, pages: npt.NDArray[np.uint32] | int, state: Columns) -> Columns:
        """Columns of some pages of a shard, or from one on, with the numbers that the whole has."""
        if "group" in state:
            state = {**state, "group": state["group"] + np.uint32(self._numbers.first_group[shard])}
        if "found_by" in state:
            state = {**state, "found_by": self._finders_of(shard, pages, state["found_by"])}
        return state

    def _finders_of(self, shard: int, pages: npt.NDArray[np.uint32] | int, found_by: Array) -> Array:
        """The column ``found_by`` of some pages of a shard, or from one on, as the whole has it."""
        is_page = (found_by > 0) & (found_by < ELSEWHERE)
        found_by = np.where(is_page, found_by + np.uint32(self._numbers.first[shard]), found_by)
        rows = np.flatnonzero(found_by == ELSEWHERE)
        if len(rows):
            known, whole = self._found_elsewhere(shard)
            own = rows + pages if isinstance(pages, int) else pages[rows]
            found_by[rows] = whole[np.searchsorted(known, own)]
        return found_by

    def _found_elsewhere(self, shard: int) -> tuple[Array, Array]:
        if shard not in self._finders:
            kept = self._shards[shard].finders()
            found = self._numbers.find_many(np.ascontiguousarray(kept["key"]))
            self._finders[shard] = kept["page"], (found + 1).astype(np.uint32)
        return self._finders[shard]

    def directories(self) -> Array:
        """Directories of the pages in `blocks`, dtype `GROUP` ``[G]``, shard by shard."""
        return np.concatenate([one.directories() for one in self._shards])

    def request(self, page: int) -> StoredRequest:
        """Return the stored request of one page."""
        shard, local = self._numbers.place(page)
        return self._shards[shard].request(local)

    def requests(self, pages: Pages) -> list[StoredRequest]:
        """Return the stored requests of pages, aligned with `pages` (ids in any order)."""
        found = np.empty(len(pages), object)
        for own in self._numbers.by_shard(np.asarray(pages, np.int64)):
            found[own.rows] = self._shards[own.shard].requests(own.pages)
        requests: list[StoredRequest] = found.tolist()
        return requests

    def validators(self, page: int) -> tuple[str | None, str | None]:
        """ETag and Last-Modified of the page's copy, as the server sent them."""
        shard, local = self._numbers.place(page)
        return self._holders[shard].validators(local)

    def new_pages(self) -> Iterator[int]:
        """Yield the ids of the pages found in the open cycle, in order."""
        return iter(range(self._numbers.merged, self._numbers.pages))

    def add_page(self, key: int, request: StoredRequest) -> int:
        """Remember a page found in the open cycle, in the shard of its host; its id is valid at once."""
        if self.find(key) is not None:
            raise ValueError(f"the key {key:#x} is known already")
        shard = self._shard_of(request)
        return self._numbers.add(shard, self._shards[shard].add_page(key, request), key)

    def _shard_of(self, request: StoredRequest) -> int:
        """Place of a request's shard among those that are open; raises ValueError where it is not."""
        number = shard_of_url(request.get("url", ""), self._shards[0].shard_of.shards)
        if number not in self._places:
            raise ValueError(
                f"{request.get('url')} is of shard {number}, which is not among those that are open"
            )
        return self._places[number]

    def add_pages(self, pages: Iterable[tuple[int, StoredRequest]]) -> tuple[int, int]:
        """Add (key, request) pairs in bulk, outside a crawl; what was added stays when `pages` raises."""
        added = known = 0
        waiting: dict[int, tuple[int, StoredRequest]] = {}

        def add() -> None:
            nonlocal added
            of_shard: dict[int, list[tuple[int, StoredRequest]]] = {}
            for key, (shard, request) in waiting.items():
                of_shard.setdefault(shard, []).append((key, request))
            waiting.clear()
            for shard, own in of_shard.items():
                added += self._shards[shard].add_pages(own)[0]
            self._reload()

        for one in self._shards:
            one.commit()
        try:
            for key, request in pages:
                if key in waiting or self.find(key) is not None:
                    known += 1
                else:
                    waiting[key] = self._shard_of(request), request
                if len(waiting) >= _ADDED:
                    add()
        finally:
            add()
        return added, known

    def _reload(self) -> None:
        """Number all pages anew, once shards have put some into their columns."""
        self._numbers.load()
        self._finders, self._row = {}, NO_ROW

    def set_request(self, page: int, request: StoredRequest) -> None:
        """Replace the stored request of a page, which stays in its shard; at the next commit."""
        shard, local = self._numbers.place(page)
        self._shards[shard].set_request(local, request)

    def set_validators(self, page: int, etag: str | None, last_modified: str | None) -> None:
        """Replace the validators of a page, at the next commit."""
        shard, local = self._numbers.place(page)
        self._holders[shard].set_validators(local, etag, last_modified)

    def body_sum(self, page: int) -> int | None:
        """Sum of the body that the page's copy was made of, if kept."""
        shard, local = self._numbers.place(page)
        return self._holders[shard].body_sum(local)

    def set_body_sum(self, page: int, body_sum: int) -> None:
        """Replace the sum of the body that a page's copy was made of, at the next commit."""
        shard, local = self._numbers.place(page)
        self._holders[shard].set_body_sum(local, body_sum)

    def has_description(self, page: int) -> bool:
        """Tell whether a description of the page's copy is kept."""
        shard, local = self._numbers.place(page)
        return self._shards[shard].has_description(local)

    def set_description(self, page: int, packed: bytes) -> None:
        """Replace the description of a page's copy, at the next commit."""
        shard, local = self._numbers.place(page)
        self._shards[shard].set_description(local, packed)

    def descriptions(self) -> Iterator[tuple[int, bytes]]:
        """Yield the descriptions that are committed, by page."""
        new = []
        for shard, one in enumerate(self._shards):
            for local, packed in one.descriptions():
                page = self._numbers.page(shard, local)
                if page < self._numbers.merged:
                    yield page, packed
                else:
                    new.append((page, packed))
        yield from sorted(new)
