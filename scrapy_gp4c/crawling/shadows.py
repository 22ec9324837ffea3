"""Shadows: the state that a panel page would have if it were no panel page."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.page_state import columns
from scrapy_gp4c.scoring import terminals
from scrapy_gp4c.scoring.terminals import Array
from scrapy_gp4c.store.lmdb_store.store import Store
from scrapy_gp4c.store.lmdb_store.tables import encode

SHADOW: Final = np.dtype(
    [
        ("page", "<u4"),
        ("key", "<u8"),
        ("current", "<u8"),  # fingerprint that the page's last visit brought
        ("copy", "<u8"),  # fingerprint that the shadow's last visit brought
        *terminals.STATE.items(),  # as the shadow's visits left it
    ]
)


def _entering(store: Store, pages: npt.NDArray[np.uint32]) -> Array:
    shadows = [np.empty(0, SHADOW)]
    of_page = pages // store.block_rows
    for block in np.unique(of_page).tolist():
        with store.transaction() as txn:
            state = columns.unpack(store.get_block(txn, block))
        shadows.append(enter(pages[of_page == block], state, block * store.block_rows))
    return np.concatenate(shadows)


def enter(pages: npt.NDArray[np.uint32], state: columns.Columns, first: int = 0) -> Array:
    """Shadows of pages visited as panel pages for the first time, equal to the pages themselves.

    ``pages``: uint32 ``[S]``; ``state``: page columns of the pages from `first` on. Dtype `SHADOW` ``[S]``.
    """
    shadows = np.zeros(len(pages), SHADOW)
    rows = pages - np.uint32(first)
    shadows["page"] = pages
    for name in ("key", *terminals.STATE):
        shadows[name] = state[name][rows]
    shadows["current"] = shadows["copy"] = state["fingerprint"][rows]
    return shadows


def save(store: Store, cycle: int, shadows: Array) -> None:
    """Keep the shadows as `cycle` left them; those of the cycle before stay."""
    with store.transaction(write=True) as txn:
        txn.put(_key(cycle), _head(cycle) + shadows.tobytes(), db=store.tables["meta"])


def load(store: Store, cycle: int) -> Array:
    """Shadows as `cycle` left them, dtype `SHADOW` ``[S]``; none if it had no panel."""
    with store.transaction() as txn:
        value = txn.get(_key(cycle), db=store.tables["meta"], default=b"")
    head = _head(cycle)
    return np.frombuffer(value[len(head) :] if value.startswith(head) else b"", SHADOW)


def _key(cycle: int) -> bytes:
    return b"shadows%d" % (cycle % 2)


def _head(cycle: int) -> bytes:
    return encode({"cycle": cycle, "columns": SHADOW.descr}) + b"\n"
