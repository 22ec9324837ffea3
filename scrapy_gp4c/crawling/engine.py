"""What Scrapy's engine keeps to itself and a run has to know: asked for here alone."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from scrapy import Request
    from scrapy.crawler import Crawler


def slot_of(crawler: Crawler) -> Any:
    """What the engine has of its spider; None before that is opened, and once it is closed."""
    return getattr(crawler.engine, "_slot", None)


def under_way(crawler: Crawler) -> Collection[Request]:
    """Requests that were sent, until their callbacks have ended."""
    slot = slot_of(crawler)
    return () if slot is None else slot.inprogress


def has_started(crawler: Crawler) -> bool:
    """Tell whether the spider's start has yielded all that it does."""
    return getattr(crawler.engine, "_start", None) is None


def is_quiet(crawler: Crawler) -> bool:
    """Tell whether nothing is under way, nor will be but for what is queued."""
    engine = crawler.engine
    return bool(
        engine is not None
        and slot_of(crawler) is not None
        and not under_way(crawler)
        and engine.scraper.slot is not None
        and engine.scraper.slot.is_idle()
        and has_started(crawler)
    )


def wake(crawler: Crawler) -> None:
    """Let the engine look for requests now: by itself it does so every five seconds."""
    slot = slot_of(crawler)
    if slot is not None:
        slot.nextcall.schedule()
