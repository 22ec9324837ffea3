"""Whether a crawl begins, and what it takes; the scheduler's."""

from __future__ import annotations

import gc
import logging
from typing import TYPE_CHECKING, Any, Final

from scrapy import signals, version_info
from scrapy.exceptions import CloseSpider

from scrapy_gp4c.crawling.engine import slot_of
from scrapy_gp4c.errors import Gp4cError

if TYPE_CHECKING:
    from scrapy import Spider
    from scrapy.crawler import Crawler

logger = logging.getLogger("scrapy_gp4c.scheduler")

FAILED: Final = "gp4c_store_failed"
"""Finish reason of a run that cannot use its store."""
CLOSES_AT_START: Final = (2, 19)
"""Version of Scrapy since which a scheduler may close the spider as it opens; before, it may raise only."""


def is_crawl(spider: Spider, crawler: Crawler) -> bool:
    """Tell a crawl from `scrapy shell`, `fetch`, `parse` and `check`, which fetch only what was asked."""
    start: Any = type(spider).start
    slot = slot_of(crawler)
    is_shell = slot is not None and not slot.close_if_idle
    return not (is_shell or start.__module__.startswith("scrapy.commands."))


def cannot_begin(crawler: Crawler, error: Gp4cError) -> None:
    """Say it in one line, and close the spider as it opens; raises the error in Scrapy before 2.19."""
    settings = "GP4C_STORE, GP4C_SCORE_FUNCTION"
    logger.critical("Cannot begin a cycle (%s): %s", settings, error)
    end_as_failure(crawler, signals.spider_closed)
    if version_info < CLOSES_AT_START:
        raise error
    crawler.signals.connect(_refuse, signals.spider_opened, weak=False)


def end_as_failure(crawler: Crawler, when: object) -> None:
    """Let the command that crawls end with exit code 1, as it does for crawlers without a spider."""

    def end() -> None:
        crawler.spider = None

    crawler.signals.connect(end, when, weak=False)


def _refuse() -> None:
    raise CloseSpider(FAILED)


def leave_out_what_is_there(crawler: Crawler) -> None:
    """Leave all objects that there are now out of garbage collections until the spider is closed.

    Most are modules and stay anyway. A full collection would walk them for some 50 ms, and a crawl that is as
    fast as it can asks for several a second. What is no longer used is freed as ever, but for cycles of
    objects: those that were there now are kept until then. Where a program has left out objects itself, they
    stay as they are: that could not be taken back alone.
    """
    if gc.get_freeze_count():
        return
    gc.freeze()
    crawler.signals.connect(_take_them_in_again, signals.spider_closed)


def _take_them_in_again() -> None:
    gc.unfreeze()
