"""The plan into Scrapy's queue: what the frontier yields, as claimed requests of fitting priority."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from scrapy_gp4c.crawling import messages
from scrapy_gp4c.crawling.cycle import Claim, Cycle
from scrapy_gp4c.crawling.frontier import Frontier, host_of
from scrapy_gp4c.crawling.stored_requests import from_stored
from scrapy_gp4c.store.records import StoredRequest

if TYPE_CHECKING:
    from scrapy import Request, Spider

logger = logging.getLogger(__name__)

RANK_LEVELS: Final = 64
"""Priorities that a plan is spread over: each distinct priority costs Scrapy's queue time at every pop."""
MIN_WINDOW_PAGES: Final = 16


class Feeder:
    """Feeds the plan of a cycle to a queue."""

    def __init__(
        self,
        cycle: Cycle,
        pages: Iterable[int],
        per_host: int,
        spider: Spider,
        enqueue: Callable[[Request, Claim], bool],
    ) -> None:
        """Take a cycle and the pages that it still has to visit.

        ``per_host``: requests that Scrapy makes to a host at a time; ``enqueue``: queues the request of a
        claimed page.
        """
        self._cycle = cycle
        self._spider = spider
        self._enqueue = enqueue
        self._frontier = Frontier(pages, cycle.store.requests, max(MIN_WINDOW_PAGES, 2 * per_host))
        self._fed = 0

    def __len__(self) -> int:
        """Pages that are not in the queue yet."""
        return len(self._frontier)

    def extend(self, pages: Iterable[int]) -> None:
        """Append the pages of a further round."""
        self._frontier.extend(pages)

    def refeed(self, pages: Iterable[int]) -> None:
        """Feed pages anew whose requests the queue has lost: all that were in it."""
        self._frontier.forget_queued()
        self._frontier.extend(pages)

    def feed(self, host_done: str | None = None) -> None:
        """Queue what the frontier has for now; a page it yields in vain gives its place to the next.

        ``host_done``: the host of a planned page that has just left the queue.
        """
        unused = [host_done]
        while unused:
            for page, stored in self._frontier.feed(unused.pop()):
                if not self._queue(page, stored):
                    unused.append(host_of(stored))

    def _queue(self, page: int, stored: StoredRequest) -> bool:
        claim = self._cycle.claim(page, host_of(stored))
        if claim is None:  # the spider itself has requested it in the meantime
            return False
        try:
            request = from_stored(stored, self._spider)
        except Exception as error:  # whatever a store of others holds, it is this page's failure alone
            logger.error("%s", messages.not_built(stored, error), extra={"spider": self._spider})
            self._cycle.end(claim, "error")
            return False
        level = self._fed * RANK_LEVELS // max(1, self._fed + len(self._frontier))
        request.priority += RANK_LEVELS - min(level, RANK_LEVELS - 1)
        self._fed += 1
        return self._enqueue(request, claim)
