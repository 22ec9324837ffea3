"""What the store of a crawl keeps of its copies, read to cluster its pages."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.errors import HistoryError, StoreError
from training.histories.packed_names import BATCH, Names

STATE: Final = ("n", "X", "E", "T")


class StoredCopies(NamedTuple):
    """The pages of a store, and the descriptions of those that have one."""

    source: str
    urls: Names
    """``[known]``."""
    keys: npt.NDArray[np.uint64]
    """``[known]``: the pages' own."""
    pages: npt.NDArray[np.intp]
    """``[P]``, ascending: which have a description."""
    packed: list[bytes]
    """``[P]``: their descriptions, as `scrapy_gp4c.words.descriptions` packs them."""
    state: dict[str, npt.NDArray[Any]]
    """Columns n, X, E and T, each ``[P]``."""

    @property
    def known(self) -> int:
        """Pages of the store."""
        return len(self.keys)


def read_copies(path: Path) -> StoredCopies:
    """Read them of a store, beside a crawl too; raises HistoryError for what is no store, or damaged."""
    from scrapy_gp4c.store.opening import open_store  # needs lmdb; only a store does

    try:
        with open_store(path, readonly=True) as store:
            urls = Names()
            for start in range(0, store.merged_pages, BATCH):
                stop = min(start + BATCH, store.merged_pages)
                urls.extend([request["url"] for request in store.requests(range(start, stop))])
            told = [(page, packed) for page, packed in store.descriptions() if page < len(urls)]
            pages = np.array([page for page, _ in told], np.intp)
            blocks = [block for _, block in store.blocks()]
            columns = {
                name: np.concatenate([np.empty(0, np.uint64), *(block[name] for block in blocks)])
                for name in ("key", *STATE)
            }
    except StoreError as error:
        raise HistoryError(f"{path}: the copies cannot be read: {error}") from error
    state = {name: columns[name][pages] for name in STATE}
    return StoredCopies(
        str(path), urls, columns["key"].astype(np.uint64), pages, [packed for _, packed in told], state
    )
