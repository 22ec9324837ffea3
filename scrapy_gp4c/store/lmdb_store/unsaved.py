"""Buffer of what the next commit writes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.page_state.claims import NO_NOTES, NOTE, WHAT
from scrapy_gp4c.page_state.outcomes import VISIT
from scrapy_gp4c.store.lmdb_store.groups import keep_first_url
from scrapy_gp4c.store.lmdb_store.schema import Handles
from scrapy_gp4c.store.lmdb_store.sealed import U32, U32_PAIR

KnownRequest = Callable[[Any, int], bytes]
"""Reads the request of a page as the last commit left it or, found since, as it was found."""
OF_PAGES: Final = ("validators", "bodies", "descriptions")
"""Tables that have a value for a page, or none."""


class Unsaved:
    """What has happened since the commit before; of a page's values, the newest."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self.visits: list[bytes] = []
        """As bytes of dtype `VISIT`."""
        self.pages: dict[int, bytes] = {}
        """Page -> what `new` is to have of it: as it was found, whatever replaced its request meanwhile."""
        self.requests: dict[int, bytes] = {}
        """Page -> the request that takes the place of another."""
        self.values: dict[str, dict[int, bytes | None]] = {name: {} for name in OF_PAGES}
        """Table of `OF_PAGES` -> page -> its value; None: it has none."""
        self._notes: list[npt.NDArray[Any]] = []
        self._latest_notes: list[tuple[int, int, float]] = []

    def __bool__(self) -> bool:
        """Whether there is anything to write."""
        return any((self.visits, self.pages, self.requests, self._notes, self._latest_notes)) or any(
            self.values.values()
        )

    def note(self, page: int, what: str, value: float) -> None:
        """Note a value of a page; ``what``: one of `WHAT`."""
        self._latest_notes.append((page, WHAT.index(what), value))

    def add_notes(self, notes: npt.NDArray[Any]) -> None:
        """Add notes, dtype `NOTE`, as they are."""
        self._gather()
        self._notes.append(notes)

    def _gather(self) -> None:
        """Bring the latest notes into order with those of many pages."""
        if self._latest_notes:
            self._notes.append(np.array(self._latest_notes, NOTE))
            self._latest_notes = []

    def note_many(self, pages: npt.NDArray[Any], what: str, values: npt.NDArray[Any]) -> None:
        """Note values of many pages."""
        notes = np.zeros(len(pages), NOTE)
        notes["page"], notes["what"], notes["value"] = pages, WHAT.index(what), values
        self.add_notes(notes)

    def notes(self) -> npt.NDArray[Any]:
        """All notes, dtype `NOTE`, in the order in which they were made."""
        self._gather()
        return np.concatenate(self._notes) if self._notes else NO_NOTES

    def write(self, txn: Any, db: Handles, cycle: int, known_request: KnownRequest) -> None:
        """Write what is told of pages: all but visits and notes, which are numbered."""
        for page, value in self.pages.items():
            db["new"].put(txn, U32_PAIR.pack(cycle, page), value)
        for page, request in self.requests.items():
            keep_first_url(txn, db["first_urls"], page, known_request(txn, page), request)
            db["urls"].put(txn, U32.pack(page), request)
        for name, values in self.values.items():
            for page, kept in values.items():
                if kept is None:
                    db[name].delete(txn, U32.pack(page))
                else:
                    db[name].put(txn, U32.pack(page), kept)

    def visit_rows(self) -> npt.NDArray[Any]:
        """The visits, dtype `VISIT`, in order of time."""
        return np.frombuffer(b"".join(self.visits), VISIT)
