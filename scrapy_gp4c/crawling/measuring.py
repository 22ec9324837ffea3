"""Gains of a cycle for users of a search: its texts go to the search index, their worth to the store.

Texts are staged in the index before their visits are committed to the store. When the cycle ends, the index
takes them in and measures them in one transaction; then the store keeps what each visit gained; then it
folds. A run that is killed in between does again what is missing, to the same end.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np

from scrapy_gp4c.arrays import Array
from scrapy_gp4c.page_state.columns import PageRow
from scrapy_gp4c.page_state.outcomes import COPIED, FIRST, GONE, JUDGED, NOT_MODIFIED, among
from scrapy_gp4c.scoring.refresh_value import GAIN
from scrapy_gp4c.search.index import FILE, Arrival, SearchIndex
from scrapy_gp4c.search.queries import read_query_log
from scrapy_gp4c.settings import Settings
from scrapy_gp4c.store.opening import SEARCH_INDEX, Store
from scrapy_gp4c.words.tokens import spaced


class CycleGains(NamedTuple):
    visits: int
    """Measured visits of pages that were known before."""
    ppm: float
    """Sum of their delta-Q_A, in parts per million of the quality of current copies."""


SCORING: Final = "tfidf"
"""Scores of the pages of an answer, see `scrapy_gp4c.search`."""
REFIT_CYCLES: Final = 7
"""Cycles after which idf, mean length and ranks, by which gains are measured, are learnt anew."""


class Measuring:
    """Search index of a crawl, which is kept in step with the store."""

    def __init__(self, store: Store, settings: Settings) -> None:
        """Open the search index of a store, and make index and store fit the log of queries.

        ``store``: open for writing.

        Raises QueryLogError, SearchIndexError or StoreError.
        """
        assert settings.query_log is not None
        self._store, self._settings = store, settings
        workload = read_query_log(settings.query_log)
        path = store.path / SEARCH_INDEX
        self.index = SearchIndex(path, store.store_id, workload, SCORING)
        try:
            cycle, last = self.index.cycle, store.last_cycle
            if cycle > (store.open_cycle or last):
                raise FILE.unusable(
                    path, f"knows of cycle {cycle}, and the store of {store.open_cycle or last} alone"
                )
            if cycle < last:  # without a log for a while, or deleted
                self.index.forget_gone(self._gone())
            store.gains.begin(self.index.log)
            store.before_commit(lambda: self.index.commit(store.open_cycle or 0))
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self.index.close()

    def lacks(self, page: int, row: PageRow) -> bool:
        """Whether the index has not the text of a page's copy, so that a 304 would be of no use."""
        return bool(row.has_copy) and not self.index.holds(page, row.key, row.fingerprint)

    def take(self, page: int, row: PageRow, fingerprint: int, normal: str) -> None:
        """Stage the normalised text of a visit, unless it is the one that the index has."""
        known = row.fingerprint if row.has_copy else None
        if known == fingerprint and not self.lacks(page, row):
            return
        self.index.stage(Arrival(page, row.key, fingerprint, known, spaced(normal)))

    def finish(self) -> CycleGains:
        """Index the texts of the open cycle and store their gains, before the cycle's fold."""
        store, visits = self._store, self._store.open_visits()
        cycle = store.open_cycle or 0
        copied = visits["page"][among(visits["outcome"], COPIED)]
        gone = visits["page"][visits["outcome"] == GONE]
        leaving = [page for page in gone.tolist() if store.page(page).gone + 1 >= self._settings.gone_after]
        measured = self.index.apply(cycle, copied.tolist(), leaving, REFIT_CYCLES)
        gains = self._gains(visits, np.asarray(measured.page), np.asarray(measured.ppm), cycle)
        store.gains.keep(gains)
        counted = gains["gap_cycles"] > 0
        return CycleGains(int(counted.sum()), float(gains["ppm"][counted].sum(dtype=np.float64)))

    def _gains(self, visits: Array, page: Array, ppm: Array, cycle: int) -> Array:
        """Gains of the visits, dtype `GAIN`: those of the index, and 0 where the text is the same."""
        judged = among(visits["outcome"], JUDGED)
        same = judged & ((visits["distance"] == 0) | (visits["outcome"] == NOT_MODIFIED))
        zero = np.setdiff1d(visits["page"][same], page)
        measured = np.isin(page, visits["page"])
        gains = np.zeros(int(measured.sum()) + len(zero), GAIN)
        gains["page"] = np.concatenate((page[measured], zero))
        gains["ppm"][: len(gains) - len(zero)] = ppm[measured]
        gains.sort(order="page")
        first = np.isin(gains["page"], visits["page"][visits["outcome"] == FIRST])
        again = np.flatnonzero(~first)
        state = self._store.columns_of(np.ascontiguousarray(gains["page"][again]))
        gains["gap_cycles"][again] = cycle - state["last_cycle"]
        return gains

    def _gone(self) -> Iterator[int]:
        for first, block in self._store.blocks():
            yield from (np.flatnonzero(block["gone"] >= self._settings.gone_after) + first).tolist()
