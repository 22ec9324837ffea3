"""What requests say their pages weigh: ``meta={"gp4c": {"weight": 3.0}}``.

The newest request that says a weight wins, whether it is sent or dropped; one that says none leaves the page
its weight. It counts from the next cycle on, whose plan is made of what the fold of this one writes.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from scrapy_gp4c.crawling.stored_requests import META
from scrapy_gp4c.scoring.weights import read_weight

if TYPE_CHECKING:
    from scrapy import Request, Spider
    from scrapy.statscollectors import StatsCollector

    from scrapy_gp4c.store.credentials import Credentials
    from scrapy_gp4c.store.page_store import PageStore

logger = logging.getLogger(__name__)

NO_WEIGHT: Final = "gp4c/no_weight"
"""Statistic of the requests whose weight is none, and is left out."""


class Weighing:
    """Takes the weights that requests say."""

    def __init__(
        self, store: PageStore, stats: StatsCollector, credentials: Credentials, spider: Spider
    ) -> None:
        """Take the store of the open cycle; ``credentials``: what no message shows."""
        self._store = store
        self._stats = stats
        self._credentials = credentials
        self._spider = spider

    def said_by(self, request: Request) -> float | None:
        """The weight that a request says; None: it says none, or one that is none, which is counted."""
        mark = request.meta.get(META)
        if not isinstance(mark, dict) or "weight" not in mark:
            return None
        try:
            return read_weight(mark["weight"])
        except ValueError as error:
            line = (
                f"{self._credentials.url(request.url)} keeps the weight that it has: {error}. Give "
                f'meta={{"{META}": {{"weight": 3.0}}}}, or no weight. (Further ones: stat {NO_WEIGHT})'
            )
            if not self._stats.get_value(NO_WEIGHT):
                logger.warning("%s", line, extra={"spider": self._spider})
            self._stats.inc_value(NO_WEIGHT)
            return None

    def note(self, page: int, weight: float | None) -> None:
        """Note the weight that the newest request for a page has said, if it is another."""
        if weight is not None and weight != self._store.weights.of(page):
            self._store.note(page, "weight", weight)
