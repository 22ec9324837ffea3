"""The panel's shadows as the last two cycles left them."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.store.lmdb_store.salvage import remapped
from scrapy_gp4c.store.lmdb_store.sealed import encode
from scrapy_gp4c.store.lmdb_store.tables import Tables
from scrapy_gp4c.store.records import SHADOW

Array = npt.NDArray[Any]


def read(tables: Tables, cycle: int) -> Array:
    """Shadows as `cycle` left them, dtype `SHADOW` ``[S]``; none if it had no panel."""
    with tables.transaction() as txn:
        value = tables.db["meta"].get(txn, _key(cycle)) or b""
    head, _, rows = value.partition(b"\n")
    about = json.loads(head or b"{}")
    if about.get("cycle") != cycle:
        return np.empty(0, SHADOW)
    return np.frombuffer(rows, SHADOW)


def keep(tables: Tables, cycle: int, shadows: Array) -> None:
    """Keep the shadows as `cycle` left them; those of the cycle before stay."""
    head = encode({"cycle": cycle})
    with tables.transaction(write=True) as txn:
        tables.db["meta"].put(txn, _key(cycle), head + b"\n" + shadows.tobytes())


def without(value: bytes, new_id: Array) -> bytes:
    """A value of `keep`, of the pages that have new ids; ``new_id``: int64, `LOST` for those that go."""
    head, _, rows = value.partition(b"\n")
    return head + b"\n" + remapped(np.frombuffer(rows, SHADOW), new_id).tobytes()


def _key(cycle: int) -> bytes:
    return b"shadows%d" % (cycle % 2)
