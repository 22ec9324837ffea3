"""What the store of a crawl keeps of its copies, read to cluster its pages."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.errors import HistoryError, StoreError
from scrapy_gp4c.scoring import rates
from scrapy_gp4c.words.described import Described, unpack
from training.histories.packed_names import BATCH, Names


class StoredCopies(NamedTuple):
    """The pages of a store, and the descriptions of those that have one."""

    source: str
    urls: Names
    """``[known]``."""
    keys: npt.NDArray[np.uint64]
    """``[known]``: the pages' own."""
    pages: npt.NDArray[np.intp]
    """``[P]``, ascending: which have a description."""
    described: list[Described]
    """``[P]``."""
    past: npt.NDArray[np.float64]
    """``[P, 3]``: visits, changes found, changes per cycle."""

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
            told = [(page, unpack(packed)) for page, packed in store.descriptions() if page < len(urls)]
            pages = np.array([page for page, _ in told], np.intp)
            blocks = [
                (block["key"], block["n"], block["X"], rates.rate(block["E"], block["T"]))
                for _, block in store.blocks()
            ]
    except (StoreError, ValueError) as error:
        raise HistoryError(f"{path}: the copies cannot be read: {error}") from error
    columns = [np.concatenate(column) for column in zip(*blocks, strict=True)]
    keys, *past = columns or [np.empty(0)] * 4
    stacked = np.stack([column.astype(np.float64) for column in past], axis=1)[pages]
    described = [one for _, one in told]
    return StoredCopies(str(path), urls, keys.astype(np.uint64), pages, described, stacked)
