"""Pages of a store, read one by one or by list, whether they are committed or still buffered."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.page_state import columns
from scrapy_gp4c.page_state.columns import PageRow
from scrapy_gp4c.store.lmdb_store.environment import damaged
from scrapy_gp4c.store.lmdb_store.tables import KEY, U32, U32_PAIR, Tables, split
from scrapy_gp4c.store.records import StoredRequest

READ_PAGES: Final = 4_096
"""Pages read in one read transaction."""


class Pages(Tables):
    """The pages of a store as a crawl sees them: the tables, and what the next commit will write to them.

    ``pages`` counts the ids given out, 0..pages-1, those of the open cycle's new pages included;
    ``open_cycle`` is the unfinished cycle or None.
    """

    open_cycle: int | None

    def _load_pages(self, txn: Any) -> None:
        """Rebuild from `new` what the open cycle has in memory; nothing is buffered then."""
        self._request_buffer: dict[int, bytes] = {}
        self._validator_buffer: dict[int, tuple[str | None, str | None]] = {}
        self._unsaved_pages: list[tuple[int, int]] = []
        self._pending: dict[int, int] = {}
        """Key -> id of the pages that are in `new` (or buffered) and not yet in `ids`, in order of id."""
        self._pending_keys: list[int] = []
        self._missed: int | None = None
        """The key that `find` has not found last: mostly the one to be added next."""
        self.pages = self.merged_pages
        for key, value in txn.cursor(self.tables["new"]):
            if U32_PAIR.unpack(key)[1] >= self.merged_pages:
                self._add_pending(KEY.unpack_from(value)[0])

    def _add_pending(self, key: int) -> int:
        page = self.pages
        self._pending[key] = page
        self._pending_keys.append(key)
        self.pages += 1
        return page

    def find(self, key: int) -> int | None:
        """Page id of a request fingerprint's first 8 bytes (big-endian), or None."""
        page = self._pending.get(key)
        if page is None:
            with self.transaction() as txn:
                page = self.get_id(txn, key)
            if page is None:
                self._missed = key
        return page

    def page(self, page: int) -> PageRow:
        """Columns of one page as of the last fold."""
        self._check(page)
        if page >= self.merged_pages:
            return columns.NEW_ROW._replace(key=self._pending_keys[page - self.merged_pages])
        block, index = divmod(page, self.block_rows)
        with self.transaction(buffers=True) as txn:
            return columns.row(txn.get(U32.pack(block), db=self.tables["pages"]), index)

    def _check(self, page: int) -> None:
        if not 0 <= page < self.pages:
            raise ValueError(f"there is no page {page}: the store has {self.pages}")

    def new_pages(self) -> Iterator[int]:
        """Yield the ids of the pages discovered in the open cycle, in order."""
        start = 0
        while True:
            with self.transaction() as txn:
                cursor = txn.cursor(self.tables["new"])
                found = []
                if cursor.set_range(U32_PAIR.pack(self.open_cycle or 0, start)):
                    for key in cursor.iternext(keys=True, values=False):
                        found.append(U32_PAIR.unpack(key)[1])
                        if len(found) == READ_PAGES:
                            break
            yield from found
            if len(found) < READ_PAGES:
                break
            start = found[-1] + 1
        yield from [page for page, _ in self._unsaved_pages]

    def request(self, page: int) -> StoredRequest:
        """Return the stored request of one page."""
        self._check(page)
        value = self._request_buffer.get(page)
        if value is None:
            with self.transaction() as txn:
                value = txn.get(U32.pack(page), db=self.tables["urls"])
                if value is None:
                    value = self._new_request(txn, page)
        request: StoredRequest = json.loads(value)
        return request

    def requests(self, pages: Sequence[int] | npt.NDArray[Any]) -> list[StoredRequest]:
        """Return the stored requests of pages, aligned with `pages` (ids in any order)."""
        ids = np.asarray(pages, dtype=np.int64)
        if len(ids):
            self._check(int(ids.min()))
            self._check(int(ids.max()))
        order = np.argsort(ids, kind="stable")
        result: list[StoredRequest] = [{"url": ""}] * len(ids)
        for start in range(0, len(ids), READ_PAGES):
            positions = order[start : start + READ_PAGES]
            found = self._read_requests(ids[positions])
            for position, request in zip(positions.tolist(), found, strict=True):
                result[position] = request
        return result

    def _read_requests(self, ids: npt.NDArray[np.int64]) -> list[StoredRequest]:
        buffered = self._request_buffer
        with self.transaction() as txn:
            keys = split(ids.astype(">u4").tobytes(), U32.size)
            found = txn.cursor(self.tables["urls"]).getmulti(keys)
            if len(found) == len(keys):
                values = [value for _, value in found]
            else:  # getmulti leaves out what it does not find
                values = list(map(dict(found).get, keys))
            elsewhere = enumerate(ids.tolist()) if buffered or None in values else ()
            for position, page in elsewhere:
                if page in buffered:
                    values[position] = buffered[page]
                elif values[position] is None:
                    values[position] = self._new_request(txn, page)
        decoded: list[StoredRequest] = json.loads(b"[" + b",".join(values) + b"]")
        return decoded

    def _new_request(self, txn: Any, page: int) -> bytes:
        """Read the request of a page that was discovered in the open cycle."""
        value: bytes | None = txn.get(U32_PAIR.pack(self.open_cycle or 0, page), db=self.tables["new"])
        if value is None:
            raise damaged(self.path, f"page {page} has no request")
        return value[KEY.size :]

    def validators(self, page: int) -> tuple[str | None, str | None]:
        """ETag and Last-Modified of the page's copy, as the server sent them."""
        if page in self._validator_buffer:
            return self._validator_buffer[page]
        with self.transaction() as txn:
            value = txn.get(U32.pack(page), db=self.tables["validators"])
        if value is None:
            return None, None
        etag, last_modified = json.loads(value)
        return etag, last_modified
