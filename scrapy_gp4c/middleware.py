"""Downloader middleware: ends every visit with one outcome, from the response or the failure.

At position 545, on the engine side of Retry (550), HttpCompression (590) and Redirect (600), it sees each
page once, decoded and final.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from scrapy.exceptions import IgnoreRequest

from scrapy_gp4c.crawling.cycle import Claim, Cycle
from scrapy_gp4c.crawling.run import runs
from scrapy_gp4c.crawling.stored_requests import META, PASSED
from scrapy_gp4c.fingerprint import fingerprint

if TYPE_CHECKING:
    from typing import Self

    from scrapy import Request
    from scrapy.crawler import Crawler
    from scrapy.http import Response

logger = logging.getLogger(__name__)

GONE_STATUS: Final = (404, 410)
CONDITIONS: Final = ("If-None-Match", "If-Modified-Since")
"""Headers that ask for a 304; without them it says nothing of the page."""
BROKEN_FLAGS: Final = frozenset({"dataloss", "partial"})


class FingerprintMiddleware:
    """Fingerprints every visited page and records whether it changed."""

    def __init__(self, crawler: Crawler) -> None:
        """Take the crawler; its cycle is found when the first request passes."""
        self._crawler = crawler

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        """Build the middleware of a crawler."""
        return cls(crawler)

    def process_request(self, request: Request) -> None:
        """Add the page's validators when unchanged pages are to be skipped (RFC 9110, section 13)."""
        cycle, visit = self._visit(request)
        if cycle is None or visit is None or not cycle.settings.skip_unchanged:
            return
        etag, last_modified = cycle.store.validators(visit.page)
        if etag:
            request.headers.setdefault("If-None-Match", etag.encode("latin-1"))
        if last_modified:
            request.headers.setdefault("If-Modified-Since", last_modified.encode("latin-1"))

    def process_response(self, request: Request, response: Response) -> Response:
        """Record the visit; raises IgnoreRequest for an unchanged page that is to be skipped."""
        cycle, visit = self._visit(request)
        if cycle is None or visit is None:
            _unmark(request)
            return response
        result = request.meta[META] = self._outcome(cycle, visit, request, response)
        if cycle.settings.skip_unchanged:
            if result["outcome"] in ("first", "changed", "unchanged"):
                self._keep_validators(cycle, visit, response)
            if result["outcome"] in ("unchanged", "not_modified"):
                request.errback = None  # nothing went wrong: the spider is not to hear of it
                raise IgnoreRequest("unchanged since the last visit")
        return response

    def process_exception(self, request: Request, exception: Exception) -> None:
        """Record the failure: excluded for what a rule forbids (robots.txt, off-site), else an error."""
        cycle, visit = self._visit(request)
        if cycle is not None and visit is not None:
            outcome = "excluded" if isinstance(exception, IgnoreRequest) else "error"
            request.meta[META] = cycle.end(visit, outcome)
        else:
            _unmark(request)

    def _visit(self, request: Request) -> tuple[Cycle | None, Claim | None]:
        visit = request.meta.get(META)
        if isinstance(visit, Claim):
            found = runs.get(self._crawler)
            run = found() if found is not None else None
            if run is not None and run.cycle.is_under_way(visit):
                return run.cycle, visit
        return None, None

    def _keep_validators(self, cycle: Cycle, visit: Claim, response: Response) -> None:
        """Remember the validators of the copy that the next visit will be compared with."""
        validators = _validators(response)
        if validators != cycle.store.validators(visit.page):
            cycle.store.set_validators(visit.page, *validators)

    def _outcome(
        self, cycle: Cycle, visit: Claim, request: Request, response: Response
    ) -> Mapping[str, object]:
        size_bytes = len(response.body)
        if "cached" in response.flags:  # not the page as it is now
            return cycle.end(visit, "excluded", size_bytes)
        # Other download handlers than Scrapy's may not measure it.
        latency_s = request.meta.get("download_latency", 0.0)
        if response.status == 304 and any(name in request.headers for name in CONDITIONS):
            return cycle.end(visit, "not_modified", size_bytes, latency_s)
        if response.status in GONE_STATUS:
            return cycle.end(visit, "gone", size_bytes, latency_s)
        if not 200 <= response.status < 300 or BROKEN_FLAGS.intersection(response.flags):
            return cycle.end(visit, "error", size_bytes, latency_s)
        try:
            text_fingerprint = fingerprint(response, cycle.settings.features)
        except Exception:  # the spider gets its response in any case
            logger.exception("No fingerprint of %s: GP4C_FEATURES failed", response)
            return cycle.end(visit, "error", size_bytes, latency_s)
        return cycle.judge(visit, text_fingerprint, size_bytes, latency_s)


def _unmark(request: Request) -> None:
    if request.meta.get(META) == PASSED:
        del request.meta[META]


def _validators(response: Response) -> tuple[str | None, str | None]:
    values = (response.headers.get(name) for name in ("ETag", "Last-Modified"))
    etag, last_modified = (value.decode("latin-1") if value else None for value in values)
    return etag, last_modified
