"""Garbage collections of a crawl walk what the crawl has made, not the modules that were there before it."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

from scrapy import signals

if TYPE_CHECKING:
    from scrapy.crawler import Crawler


def leave_out_what_is_there(crawler: Crawler) -> None:
    """Leave all objects that there are now out of collections until the spider is closed.

    Most are modules and stay anyway. A full collection would walk them for some 50 ms, and a crawl that is as
    fast as it can asks for several a second. What is no longer used is freed as ever, but for cycles of
    objects: those that were there now are kept until then.
    """
    gc.freeze()
    crawler.signals.connect(_collect_all, signals.spider_closed)


def _collect_all() -> None:
    gc.unfreeze()
