"""Who, between a spider and the scheduler, sees or hears of each request that a callback yields."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from pydispatch.dispatcher import getAllReceivers, liveReceivers
from scrapy.downloadermiddlewares.offsite import OffsiteMiddleware
from scrapy.spidermiddlewares.start import StartSpiderMiddleware

if TYPE_CHECKING:
    from scrapy.crawler import Crawler

INDIFFERENT: Final = (StartSpiderMiddleware, OffsiteMiddleware)
"""Of Scrapy's own: one looks at requests of the start alone; the other has let the URL pass before."""


def has_witnesses(crawler: Crawler, middleware: object, signals: Iterable[object]) -> bool:
    """Tell whether a request that goes no further than a spider middleware would be missed.

    By a spider middleware that is nearer to the engine, or by who is connected to one of the signals of each
    request.
    """
    assert crawler.engine is not None
    for nearer in crawler.engine.scraper.spidermw.middlewares:
        if nearer is middleware:
            break
        if type(nearer) not in INDIFFERENT:
            return True
    told = (receiver for signal in signals for receiver in getAllReceivers(crawler, signal))
    return any(type(getattr(one, "__self__", None)) not in INDIFFERENT for one in liveReceivers(told))
