"""Requests of planned visits: built from what the store keeps, and from the spider what the store must not.

Who gives what is secret, in this order: the spider's method ``gp4c_request(request)``, Scrapy's settings for
HTTP authentication and default headers, and the cookies of the session.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from scrapy import Request
from scrapy.downloadermiddlewares.cookies import CookiesMiddleware
from scrapy.downloadermiddlewares.defaultheaders import DefaultHeadersMiddleware
from scrapy.downloadermiddlewares.httpauth import HttpAuthMiddleware
from scrapy.utils.request import RequestFingerprinter

from scrapy_gp4c.crawling.stored_requests import (
    from_stored,
    header_bytes,
    is_page_request,
    is_plain,
    page_key,
    plain_fingerprint,
    to_stored,
)
from scrapy_gp4c.store.credentials import Credentials, names_in_header

if TYPE_CHECKING:
    from scrapy import Spider
    from scrapy.crawler import Crawler

    from scrapy_gp4c.store.records import StoredRequest

HOOK: Final = "gp4c_request"
"""Method of a spider that gives planned requests what the store does not keep."""
GIVING: Final = (HttpAuthMiddleware, DefaultHeadersMiddleware, CookiesMiddleware)
"""Middlewares of Scrapy that add what may be secret to requests, in their order."""
_PROBE: Final = "https://h.example/a-b/C_d.e~1"


class NotGivenError(ValueError):
    """A planned request lacks what is secret, and nobody gives it: the spider has to make the request."""


class Rebuilder:
    """Turns a spider's requests into stored ones and back, without what is secret on the way."""

    def __init__(self, crawler: Crawler, spider: Spider, credentials: Credentials) -> None:
        """Take the crawler: its fingerprinter tells pages apart, its middlewares may give what lacks."""
        assert crawler.request_fingerprinter is not None
        self._crawler = crawler
        self.spider = spider
        self.credentials = credentials
        self._fingerprint = crawler.request_fingerprinter.fingerprint
        self.by_url_alone = type(crawler.request_fingerprinter) is RequestFingerprinter
        """Whether pages are told apart as Scrapy does by default."""
        self.hashes_plain = self.by_url_alone and self._fingerprint(Request(_PROBE)) == plain_fingerprint(
            _PROBE
        )
        """Whether plain URLs have the fingerprints that `plain_fingerprint` makes."""

    def keys(self, request: Request) -> tuple[int, int]:
        """Key of the request's page, the same whatever its secrets; and the key of the request as it is."""
        url = request.url
        if self.hashes_plain and request.method == "GET" and not request.body and is_plain(url):
            key = page_key(plain_fingerprint(url))
            return key, key
        bare = self._bare(request)
        key = page_key(self._fingerprint(bare))
        return key, key if bare is request else page_key(self._fingerprint(request))

    def _bare(self, request: Request) -> Request:
        """The request without what is secret: as far as the fingerprint can see it."""
        url = self.credentials.url(request.url)
        if self.by_url_alone:
            return request if url == request.url else Request(url)
        try:
            stored = to_stored(request, self.spider)
        except ValueError:
            return request
        bare = self.credentials.stripped(stored)
        if bare is stored:
            return request
        arguments: dict[str, Any] = {name: bare.get(name) for name in ("meta", "cb_kwargs")}
        bare_request: Request = request.replace(url=url, headers=header_bytes(bare), cookies={}, **arguments)
        return bare_request

    def stored(self, request: Request) -> StoredRequest:
        """Return what the store keeps of a request; raises ValueError as `to_stored`."""
        return self.credentials.stripped(to_stored(request, self.spider))

    def build(self, stored: StoredRequest) -> Request:
        """Return the request of a planned visit.

        Raises NotGivenError, which names what lacks; what `from_stored` raises, and whatever the spider's
        method does.
        """
        request = from_stored(stored, self.spider)
        hook = getattr(self.spider, HOOK, None)
        if hook is not None:
            request = self._by_hook(hook, request)
        lacks = self._lacks(stored, request)
        if lacks:
            raise NotGivenError(", ".join(lacks))
        return request

    def is_given(self, stored: StoredRequest) -> bool:
        """Tell whether what the stored request lacks is given now."""
        try:
            self.build(stored)
        except NotGivenError:
            return False
        except Exception:  # of which is told when the page is planned
            return True
        return True

    def _by_hook(self, hook: Any, request: Request) -> Request:
        key = self.keys(request)[0]
        given = hook(request)
        if not isinstance(given, Request):
            raise TypeError(f"{HOOK} of the spider must return the request; found {type(given).__name__}")
        if not is_page_request(given) or self.keys(given)[0] != key:
            raise ValueError(
                f"{HOOK} of the spider must return a GET of the same page, with what is secret added"
            )
        return given

    def _lacks(self, stored: StoredRequest, request: Request) -> list[str]:
        """What a stored request lacks and neither `request` has nor Scrapy adds to it."""
        lacks = set(stored.get("lacks", ()))
        if lacks:
            try:
                lacks -= set(self.stored(request).get("lacks", ()))
            except ValueError:  # what the spider's method has added is nothing that could be kept
                return []
        if lacks:
            lacks -= self._added(request)
        return sorted(lacks)

    def _added(self, request: Request) -> set[str]:
        """What Scrapy's own middlewares add to a request."""
        probe = request.replace(cookies={})
        for kind in GIVING:
            middleware: Any = self._crawler.get_downloader_middleware(kind)
            if middleware is not None:
                middleware.process_request(probe)
        names = {name.decode("latin-1").lower() for name in probe.headers}
        added = {f"header {name}" for name in names}
        if "authorization" in names:
            added.add("userinfo")
        for value in probe.headers.getlist("Cookie"):
            added |= {f"cookie {name}" for name in names_in_header(value.decode("latin-1"))}
        return added
