"""Descriptions of page copies, and the clusters and links made of them.

Clusters are written in one transaction, so that a crawl plans by all of them or by those before.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.page_state.groupings import Links, PageGroups
from scrapy_gp4c.store.lmdb_store.environment import U32, U32_PAIR, damaged, encode
from scrapy_gp4c.store.lmdb_store.tables import Tables
from scrapy_gp4c.store.records import StoredGroups

_HEAD: Final = 0
"""Kind of the JSON part: sizes of the other parts, identity and origin of the clusters."""
_PARTS: Final = {1: ("cluster", "<i4"), 2: ("order", "<i4"), 3: ("source", "<u4"), 4: ("target", "<u4"),
                 5: ("popularity", "u1")}  # fmt: skip
PART_BYTES: Final = 2**20
"""Bytes of the numbers in one value."""


def put(tables: Tables, stored: StoredGroups) -> None:
    """Replace clusters, links and popularity, in one transaction."""
    groups, popularity, about = stored
    columns: tuple[npt.NDArray[Any], ...] = (
        groups.cluster,
        groups.order.ravel(),
        groups.links.source,
        groups.links.target,
        popularity,
    )
    head = {"identity": groups.identity, "sizes": [len(column) for column in columns], "about": about}
    table = tables.db["clusters"]
    with tables.transaction(write=True) as txn:
        table.drop(txn)
        table.put(txn, U32_PAIR.pack(_HEAD, 0), encode(head))
        for kind, column in enumerate(columns, 1):
            raw = column.astype(_PARTS[kind][1]).tobytes()
            for number, start in enumerate(range(0, len(raw), PART_BYTES)):
                table.put(txn, U32_PAIR.pack(kind, number), raw[start : start + PART_BYTES])


def read(tables: Tables) -> StoredGroups | None:
    """Read them; None while there are none. Raises StoreDamagedError."""
    table = tables.db["clusters"]
    with tables.transaction() as txn:
        packed = table.get(txn, U32_PAIR.pack(_HEAD, 0))
        if packed is None:
            return None
        head = json.loads(packed)
        columns: dict[str, npt.NDArray[Any]] = {}
        for (kind, (name, dtype)), size in zip(_PARTS.items(), head["sizes"], strict=True):
            raw = b"".join(bytes(value) for _, value in _parts(table, txn, kind))
            if len(raw) != size * np.dtype(dtype).itemsize:
                counts = f"expected {size} of {name}, found {len(raw)} bytes"
                raise damaged(tables.path, f"the clusters of pages: {counts}")
            columns[name] = np.frombuffer(raw, dtype)
    clusters = int(len(columns["order"]) ** 0.5)
    links = Links(
        columns["source"].astype(np.intp), columns["target"].astype(np.intp), len(columns["cluster"])
    )
    groups = PageGroups(
        columns["cluster"].astype(np.int32),
        columns["order"].astype(np.int32).reshape(clusters, clusters),
        links,
        head["identity"],
    )
    return StoredGroups(groups, columns["popularity"], head["about"])


def _parts(table: Any, txn: Any, kind: int) -> Iterator[tuple[bytes, memoryview]]:
    return iter(table.items(txn, U32_PAIR.pack(kind, 0), U32_PAIR.pack(kind + 1, 0)))


def descriptions(tables: Tables) -> Iterator[tuple[int, bytes]]:
    """Yield the descriptions of copies, by page."""
    with tables.transaction() as txn:
        for key, value in tables.db["descriptions"].items(txn):
            yield U32.unpack(key)[0], bytes(value)
