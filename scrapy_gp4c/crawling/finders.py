"""Who found whom: requests carry the page whose response yielded them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

from scrapy import Request

from scrapy_gp4c.crawling.stored_requests import FOUND_BY, META
from scrapy_gp4c.scoring.discovery import GUESTS, START

if TYPE_CHECKING:
    from scrapy.http import Response

    from scrapy_gp4c.store.page_store import PageStore

Skips = Callable[[Request], bool]
"""Tells whether a request is dropped; it is counted then."""
UNKNOWN: Final = 0
"""Finder of pages of which nobody knows who found them."""
_taken_off: WeakKeyDictionary[Response, int] = WeakKeyDictionary()
"""Response in its callback -> who found its request."""


def mark(request: Request, finder: int) -> None:
    """Let a spider's request carry who found it, as the column ``found_by`` has it."""
    if finder != UNKNOWN:
        request.meta[FOUND_BY] = finder
    else:
        request.meta.pop(FOUND_BY, None)  # copied from another request


def passing(response: Response | None, skips: Skips | None) -> Callable[[Any], bool]:
    """What tells of all that the callback of a response yields whether it goes on, and marks its requests.

    ``skips``: tells the requests that do not; None: all do.
    """
    finder = who_finds(response)

    def passes(one: Any) -> bool:
        if isinstance(one, Request):
            if skips is not None and skips(one):
                return False
            mark(one, finder)
        return True

    return passes


def take_off(response: Response) -> None:
    """Take the mark off the request of a response that goes to its callback."""
    asked = response.request
    finder = None if asked is None else asked.meta.pop(FOUND_BY, None)
    if finder is not None:
        _taken_off[response] = finder


def who_finds(response: Response | None) -> int:
    """Who finds what the callback of a response yields; None: the spider's start.

    A response that is no visit, of a POST say, hands on who found its own request; so do redirects, which end
    the visit of the page that was asked for.
    """
    if response is None:
        return START
    asked = response.request
    visit = None if asked is None else asked.meta.get(META)
    if isinstance(visit, dict) and "page" in visit:
        return int(visit["page"]) + 1
    return _taken_off.get(response, UNKNOWN)


def finder_of(request: Request, store: PageStore) -> int:
    """Who found a request, `UNKNOWN` where its mark is none of this store: a JOBDIR may be older."""
    finder = request.meta.get(FOUND_BY, UNKNOWN)
    is_page = isinstance(finder, int) and (0 < finder <= store.pages or finder > GUESTS)
    return finder if is_page else UNKNOWN
