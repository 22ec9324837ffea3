"""Growth in the stores of crawls: the pages that were judged in every cycle since they became known."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np

from scrapy_gp4c.errors import HistoryError, StoreError
from scrapy_gp4c.page_state.notes import finder_pages
from scrapy_gp4c.page_state.places import place_of_url
from scrapy_gp4c.store.credentials import Credentials
from scrapy_gp4c.store.page_store import PageStore
from training.histories.growth import NOBODY, GrowthHistory
from training.histories.history import ChangeHistory
from training.histories.store_window import Outcomes

MAX_MISSED: Final = 2
"""Cycles without an outcome that a page may have: they count as unchanged."""


def read_store_growth(path: Path) -> GrowthHistory:
    """Pages, births and finders of the store at `path`: of a crawl that visited its pages in every cycle.

    A page is born in the cycle in which the crawl found it, at the latest. Raises HistoryError for a
    directory that is no store, or whose pages were visited now and then.
    """
    from scrapy_gp4c.store.opening import open_store  # needs lmdb; only a store does

    try:
        with open_store(path, readonly=True) as store:
            return _read(path, store)
    except StoreError as error:
        raise HistoryError(
            f"{path} is a directory, but no store of a crawl to read growth from: {error}"
        ) from error


def _read(path: Path, store: PageStore) -> GrowthHistory:
    last = store.last_cycle
    if last < 2:
        raise HistoryError(f"{path} has {last} closed cycle(s); growth begins with the second")
    outcomes = Outcomes(store, everything=True)
    pages = outcomes.page
    columns = store.columns_of(pages.astype(np.uint32))
    entered = np.maximum(columns["entered"], 1)
    since = np.arange(last + 1)[:, None] > entered
    missed = np.count_nonzero(since & ~outcomes.judged, axis=0)
    kept = np.flatnonzero((missed <= MAX_MISSED) & (columns["first_cycle"] > 0))
    if len(kept) * 2 < len(pages):
        raise HistoryError(
            f"{path}: of its {len(pages):,} pages, {len(kept):,} were judged in all but {MAX_MISSED} cycles "
            "since they became known; set GP4C_BUDGET or GP4C_PANEL to 1.0 for some cycles"
        )
    position = np.full(int(pages.max()) + 2, NOBODY, np.int32)
    position[pages[kept]] = np.arange(len(kept))
    finder = position[finder_pages(columns["found_by"][kept])]  # the last place stands for -1
    credentials = Credentials.of_store(store.cycles())
    names = [credentials.url(stored["url"]) for stored in store.requests(pages[kept])]
    sites, site = np.unique([place_of_url(name).site for name in names], return_inverse=True)
    history = ChangeHistory(
        changed=np.ascontiguousarray((outcomes.changed & since)[2:, kept]),
        site=site.astype(np.int32),
        site_names=sites.tolist(),
        page_names=names,
        key=columns["key"][kept],
        source=str(path),
    )
    return GrowthHistory(history, (entered[kept] - 1).astype(np.int32), finder.astype(np.int32))
