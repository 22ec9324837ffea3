"""Tables of small values, one for a page: read at once, written with the next commit."""

from __future__ import annotations

from typing import Any

from scrapy_gp4c.store.lmdb_store.sealed import U32, Table


class PageValues:
    """A table by page id, and what the next commit will write to it."""

    def __init__(self, table: Table) -> None:
        """Take the table."""
        self._table = table
        self._buffer: dict[int, bytes | None] = {}

    def __len__(self) -> int:
        """Values that are not committed."""
        return len(self._buffer)

    def get(self, txn: Any, page: int) -> bytes | None:
        """Return a page's value; None where there is none."""
        if page in self._buffer:
            return self._buffer[page]
        return self._table.get(txn, U32.pack(page))

    def set(self, page: int, value: bytes | None) -> None:
        """Replace a page's value; None: it has none."""
        self._buffer[page] = value

    def write(self, txn: Any) -> None:
        """Write what is buffered; `written` when the transaction is committed."""
        for page, value in self._buffer.items():
            if value is None:
                self._table.delete(txn, U32.pack(page))
            else:
                self._table.put(txn, U32.pack(page), value)

    def written(self) -> None:
        """Note that what was buffered is committed."""
        self._buffer = {}
