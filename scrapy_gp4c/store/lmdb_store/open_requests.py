"""Requests of all known pages, those that are not written yet first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.store.lmdb_store.failures import damaged
from scrapy_gp4c.store.lmdb_store.sealed import KEY, U32, U32_PAIR, decode
from scrapy_gp4c.store.lmdb_store.tables import Tables
from scrapy_gp4c.store.lmdb_store.unsaved import Unsaved
from scrapy_gp4c.store.records import StoredRequest

READ_PAGES: Final = 4_096
"""Pages read in one read transaction."""


class OpenRequests:
    """Half of an open cycle: how its pages are requested."""

    _tables: Tables
    number: int | None
    pages: int
    _unsaved: Unsaved

    def _check(self, page: int) -> None:
        if not 0 <= page < self.pages:
            raise ValueError(f"there is no page {page}: the store has {self.pages}")

    def request(self, page: int) -> StoredRequest:
        """Return the stored request of one page."""
        self._check(page)
        value = self._unsaved.requests.get(page)
        if value is None:
            with self._tables.transaction() as txn:
                value = self._known_request(txn, page)
        request: StoredRequest = decode(value)
        return request

    def requests(self, pages: Sequence[int] | npt.NDArray[Any]) -> list[StoredRequest]:
        """Return the stored requests of pages, aligned with `pages` (ids in any order)."""
        ids = np.asarray(pages, dtype=np.int64)
        if len(ids):
            self._check(int(ids.min()))
            self._check(int(ids.max()))
        if (ids[1:] >= ids[:-1]).all():
            return self._read_ascending(ids)
        order = np.argsort(ids, kind="stable")
        found = self._read_ascending(ids[order])
        places = np.empty(len(ids), np.intp)
        places[order] = np.arange(len(ids))
        return [found[place] for place in places.tolist()]

    def _read_ascending(self, ids: npt.NDArray[np.int64]) -> list[StoredRequest]:
        found: list[StoredRequest] = []
        for start in range(0, len(ids), READ_PAGES):
            found += self._read_requests(ids[start : start + READ_PAGES])
        return found

    def _read_requests(self, ids: npt.NDArray[np.int64]) -> list[StoredRequest]:
        with self._tables.transaction() as txn:
            text = self._tables.db["urls"].joined(txn, ids)
            if text is None:  # some are new
                text = b",".join([self._known_request(txn, page) for page in ids.tolist()])
        decoded: list[StoredRequest] = decode(b"[" + text + b"]")
        replaced = self._unsaved.requests
        for position, page in enumerate(ids.tolist()) if replaced else ():
            if (request := replaced.get(page)) is not None:
                decoded[position] = decode(request)
        return decoded

    def _known_request(self, txn: Any, page: int) -> bytes:
        """Read the request of a page, as the last commit left it or, found since, as it was found."""
        value = self._tables.db["urls"].get(txn, U32.pack(page))
        if value is not None:
            return value
        found = self._unsaved.pages.get(page)
        if found is None:
            found = self._tables.db["new"].get(txn, U32_PAIR.pack(self.number or 0, page))
        if found is None:
            raise damaged(self._tables.path, f"page {page} has no request")
        return found[KEY.size :]
