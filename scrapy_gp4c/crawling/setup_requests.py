"""The spider's first untouched requests, such as a login: the plan waits for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy_gp4c.crawling.engine import has_started, under_way

if TYPE_CHECKING:
    from scrapy import Request
    from scrapy.crawler import Crawler


class SetupRequests:
    """Tells when the requests that set up a session are through, callbacks included.

    Planned pages may need the session that those requests set up. Once none is on its way, the plan is
    never held back again.
    """

    def __init__(self, crawler: Crawler) -> None:
        """Take the crawler, whose engine knows which requests are under way."""
        self._crawler = crawler
        self._queued = 0  # not a set: a request comes back from the disk queue as another object
        self._sent: set[Request] = set()
        self._over = False

    def queued(self) -> None:
        """Note that an untouched request was queued."""
        self._queued += 1

    def left_queue(self, request: Request) -> None:
        """Note that an untouched request goes to the downloader."""
        if not self._over:
            self._sent.add(request)
        self._queued = max(0, self._queued - 1)

    def forget_queued(self) -> None:
        """Wait no longer for those in the queue: it has lost them."""
        self._queued = 0

    def is_over(self) -> bool:
        """Tell whether the plan may begin."""
        if not self._over:
            self._sent.intersection_update(under_way(self._crawler))
            self._over = not self._queued and not self._sent
        return self._over

    def is_quiet(self) -> bool:
        """Tell whether all that the spider has asked for is through, and its start too."""
        return has_started(self._crawler) and not under_way(self._crawler)
