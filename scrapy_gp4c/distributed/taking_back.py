"""Requests of pages taken back from where Scrapy holds them, so that a run is over soon with what it does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from scrapy.exceptions import IgnoreRequest

from scrapy_gp4c.crawling.claims import Claim
from scrapy_gp4c.crawling.cycle import Cycle
from scrapy_gp4c.crawling.stored_requests import FOUND_BY, META

if TYPE_CHECKING:
    from scrapy import Request

TRIED: Final = ("redirect_urls", "retry_times")
"""In the `meta` of a request that Scrapy has made of another one."""


def for_later(request: Request) -> Request | None:
    """What is to be asked for again of a request that is taken back; None: the plan has its page."""
    claim = request.meta.get(META)
    if isinstance(claim, Claim):
        if claim.host is not None or any(name in request.meta for name in TRIED):
            return None
        del request.meta[META]
    request.meta.pop(FOUND_BY, None)  # it is noted, by a number that its finder will not have
    return request


def from_downloader(downloader: Any, cycle: Cycle) -> list[Request]:
    """Take back the pages that wait for the delays of their hosts, which may be long; their visits have not
    begun.

    Other requests are left there: robots.txt of a host, for one, without which all would be allowed.
    """
    waiting = []
    for slot in downloader.slots.values():
        for one in list(slot.queue):
            claim = one[0].meta.get(META)
            if isinstance(claim, Claim) and cycle.is_under_way(claim):
                slot.queue.remove(one)
                cycle.back_in_queue(claim)
                waiting.append(one)
    if waiting:
        cycle.release_queued()
    found = []
    for request, answer in waiting:
        found.append(request.copy())
        request.errback = None  # nothing went wrong: the spider is not to hear of it
        answer.errback(IgnoreRequest("the page is asked for later"))
    return found
