"""Measures what a cycle's visits gained for users of a search: texts go to the index, gains to the store.

Texts are staged in the index before their visits are committed to the store. When the cycle ends, the index
takes them in and measures them in one transaction; then the store keeps what each visit gained; then visits
are applied to its columns. A run that is killed in between repeats what is missing, with the same result.
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
    """Gains of search quality by a cycle's visits, for users of the search."""

    visits: int
    """Number of measured visits of pages that were known before."""
    ppm: float
    """Sum of their gains (delta-Q_A), in parts per million of the quality of current copies."""


SCORING: Final = "tfidf"
"""How the search scores pages for a query, see `scrapy_gp4c.search`."""
REFIT_CYCLES: Final = 7
"""Number of cycles after which idf, mean length and ranks, which gains depend on, are computed anew."""


class Measuring:
    """Search index of a crawl, kept in step with the store, that measures gains of visits."""

    def __init__(self, store: Store, settings: Settings) -> None:
        """Open the search index of a store that is open for writing.

        Gains are summed up anew if `settings` have another log of queries. Raises QueryLogError,
        SearchIndexError or StoreError.
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
                    path, f"has cycle {cycle}, but the store ends at cycle {store.open_cycle or last}"
                )
            if cycle < last:  # it is new, or there was no log of queries for a while
                self.index.forget_gone(self._gone())
            store.set_gains_log(self.index.log)
            store.before_commit(lambda: self.index.commit(store.open_cycle or 0))
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self.index.close()

    def lacks(self, page: int, row: PageRow) -> bool:
        """Whether the index lacks the text of a page's copy, so that a full answer is needed, no 304."""
        return bool(row.has_copy) and not self.index.holds(page, row.key, row.fingerprint)

    def take(self, page: int, row: PageRow, fingerprint: int, normal: str) -> None:
        """Stage the normalised text of a visit, unless the index has it; ``row``: the page before it."""
        known = row.fingerprint if row.has_copy else None
        if known == fingerprint and not self.lacks(page, row):
            return
        self.index.stage(Arrival(page, row.key, fingerprint, known, spaced(normal)))

    def finish(self) -> CycleGains:
        """Index the texts of the open cycle and store the gains of its visits; call before it is closed."""
        store, visits = self._store, self._store.open_visits()
        cycle = store.open_cycle or 0
        copied = visits["page"][among(visits["outcome"], COPIED)]
        gone = visits["page"][visits["outcome"] == GONE]
        leaving = [page for page in gone.tolist() if store.page(page).gone + 1 >= self._settings.gone_after]
        measured = self.index.apply(cycle, copied.tolist(), leaving, REFIT_CYCLES)
        gains = self._gains(visits, np.asarray(measured.page), np.asarray(measured.ppm), cycle)
        store.put_gains(gains)
        counted = gains["gap_cycles"] > 0
        return CycleGains(int(counted.sum()), float(gains["ppm"][counted].sum(dtype=np.float64)))

    def _gains(self, visits: Array, page: Array, ppm: Array, cycle: int) -> Array:
        """Return gains of a cycle's visits, dtype `GAIN`: `ppm` for each measured `page`, 0 if unchanged."""
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
