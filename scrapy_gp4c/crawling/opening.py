"""Opening a run: the spider's store, with what is kept beside it, and the cycle that goes on or begins."""

from __future__ import annotations

import logging
from array import array
from typing import TYPE_CHECKING

from scrapy_gp4c.crawling.admission import Enqueue
from scrapy_gp4c.crawling.archiving import open_archive
from scrapy_gp4c.crawling.cycle import Cycle
from scrapy_gp4c.crawling.measuring import Measuring, measuring
from scrapy_gp4c.crawling.run import Run
from scrapy_gp4c.settings import Settings
from scrapy_gp4c.store.opening import USUAL, Sizes, open_store
from scrapy_gp4c.store.page_store import PageStore

if TYPE_CHECKING:
    from scrapy import Spider
    from scrapy.crawler import Crawler
    from scrapy.statscollectors import StatsCollector

logger = logging.getLogger(__name__)


def open_run(
    crawler: Crawler, settings: Settings, spider: Spider, enqueue: Enqueue, sizes: Sizes = USUAL
) -> Run:
    """Open the spider's store, begin or resume its cycle. Raises Gp4cError; then the store is closed."""
    if settings.map_size_bytes is not None:
        sizes = sizes._replace(map_size=settings.map_size_bytes)
    store = open_store(settings.store_path(spider.name), sizes=sizes)
    try:
        logger.info("Store %s: %s", store.path, store.look_over(), extra={"spider": spider})
        index, archive = measuring(store, settings), None
        try:
            archive = open_archive(store, settings, spider)
            assert crawler.stats is not None
            run = Run(crawler, *_begun(store, settings, crawler.stats, index), spider, enqueue)
            run.cycle.archive = archive
            return run
        except BaseException:
            store.before_commit(lambda: None)
            for beside in (index, archive):
                if beside is not None:
                    beside.close()
            raise
    except BaseException:
        store.close()
        raise


def _begun(
    store: PageStore, settings: Settings, stats: StatsCollector, measuring: Measuring | None
) -> tuple[Cycle, array[int]]:
    """Begin a cycle, or resume the one that is open; with the pages that it still has to visit.

    Raises PolicyError, ScoreError or StoreError.
    """
    cycle = Cycle(store, settings, stats, measuring)
    remaining = cycle.remaining()
    if cycle.resumed and not remaining and cycle.rounds_over and not _is_untouched(cycle):
        cycle.finish("resumed with nothing left to visit")
        cycle = Cycle(store, settings, stats, measuring)
        remaining = cycle.remaining()
    return cycle, remaining


def _is_untouched(cycle: Cycle) -> bool:
    """Tell whether a run was killed before anything came of its cycle: then the next run is its first."""
    is_empty = not cycle.planned and not len(cycle.store.open_visits())
    return is_empty and cycle.record["plan"]["known"] == cycle.store.pages
