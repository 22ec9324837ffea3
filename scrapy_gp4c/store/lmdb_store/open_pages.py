"""Half of the front of a store: its pages and visits with those of the open cycle, committed or not."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy.typing as npt

from scrapy_gp4c.page_state.columns import PageRow
from scrapy_gp4c.store.lmdb_store.open_cycle import OpenCycle
from scrapy_gp4c.store.lmdb_store.sealed import KEY, encode
from scrapy_gp4c.store.records import NewVisit, StoredRequest


class OpenPages:
    """All known pages, and the visits of the open cycle, committed or not."""

    _open: OpenCycle

    def find(self, key: int) -> int | None:
        """Page id of a request fingerprint's first 8 bytes (big-endian), or None."""
        return self._open.find(key)

    def page(self, page: int) -> PageRow:
        """Columns of one page as of the last fold."""
        return self._open.page(page)

    def request(self, page: int) -> StoredRequest:
        """Return the stored request of one page."""
        return self._open.request(page)

    def requests(self, pages: Sequence[int] | npt.NDArray[Any]) -> list[StoredRequest]:
        """Return the stored requests of pages, aligned with `pages` (ids in any order)."""
        return self._open.requests(pages)

    def validators(self, page: int) -> tuple[str | None, str | None]:
        """ETag and Last-Modified of the page's copy, as the server sent them."""
        found = self._open.kept("validators", page)
        etag, last_modified = (None, None) if found is None else json.loads(found)
        return etag, last_modified

    def body_sum(self, page: int) -> int | None:
        """Sum of the body that the page's copy was made of; None where none is kept."""
        found = self._open.kept("bodies", page)
        return None if found is None else KEY.unpack(found)[0]

    def has_description(self, page: int) -> bool:
        """Tell whether a description of the page's copy is kept."""
        return self._open.kept("descriptions", page) is not None

    def set_description(self, page: int, packed: bytes) -> None:
        """Replace the description of a page's copy, at the next commit."""
        self._open.keep("descriptions", page, packed)

    def new_pages(self) -> Iterator[int]:
        """Yield the ids of the pages discovered in the open cycle, in order."""
        return self._open.new_pages()

    def add_page(self, key: int, request: StoredRequest) -> int:
        """Remember a page discovered in the open cycle; its id is valid at once."""
        return self._open.add_page(key, request)

    def set_request(self, page: int, request: StoredRequest) -> None:
        """Replace the stored request of a page, at the next commit."""
        self._open.set_request(page, request)

    def set_validators(self, page: int, etag: str | None, last_modified: str | None) -> None:
        """Replace the validators of a page, at the next commit."""
        given = etag, last_modified
        self._open.keep("validators", page, None if given == (None, None) else encode(given))

    def set_body_sum(self, page: int, body_sum: int) -> None:
        """Replace the sum of the body that a page's copy was made of, at the next commit."""
        self._open.keep("bodies", page, KEY.pack(body_sum))

    def note(self, page: int, what: str, value: float) -> None:
        """Note what the open cycle learnt of a page, for its fold."""
        self._open.note(page, what, value)

    def notes(self) -> npt.NDArray[Any]:
        """Notes of the open cycle so far, dtype `NOTE`, in the order in which they were made."""
        return self._open.all_notes()

    def record(self, visit: NewVisit) -> None:
        """Note one visit of the open cycle, see `OpenCycle.record`."""
        self._open.record(visit)

    def before_commit(self, call: Callable[[], object]) -> None:
        """Let this be called before visits are committed; what it raises keeps them buffered."""
        self._open.before_commit = call

    def commit(self) -> None:
        """Write everything buffered in one transaction. Raises StoreFullError and keeps the buffers."""
        self._open.commit()

    def visited(self, page: int) -> bool:
        """Tell whether the page has an outcome in the open cycle, committed or buffered."""
        return self._open.visited(page)

    def open_visits(self) -> npt.NDArray[Any]:
        """Visits of the open cycle so far, dtype `VISIT`, in order of time."""
        return self._open.visits()
