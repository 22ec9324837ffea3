"""Stored requests: how a page's request is made, kept in the store as JSON, and rebuilt for a visit.

A page is remembered with what its spider needs to visit it again: URL, callback and errback names,
``cb_kwargs``, ``meta``, headers and cookies, each only where it differs from the default. What is secret is
never stored. A rebuilt request gets it, in this order, from the spider's method ``gp4c_request(request)``,
from Scrapy's settings for HTTP authentication and default headers, and from the cookies of the session.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha1
from typing import TYPE_CHECKING, Any, Final, cast
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt
from scrapy import Request
from scrapy.downloadermiddlewares.cookies import CookiesMiddleware
from scrapy.downloadermiddlewares.defaultheaders import DefaultHeadersMiddleware
from scrapy.downloadermiddlewares.httpauth import HttpAuthMiddleware
from scrapy.http.request import NO_CALLBACK
from scrapy.utils.request import RequestFingerprinter

from scrapy_gp4c.page_state.page_names import IGNORED_PARAMS, page_url, without_session
from scrapy_gp4c.scoring.discovery import START
from scrapy_gp4c.settings import values
from scrapy_gp4c.store.credentials import Credentials, names_in_header
from scrapy_gp4c.store.records import StoredRequest

if TYPE_CHECKING:
    from typing import Self

    from scrapy import Spider
    from scrapy.crawler import Crawler
    from scrapy.http import Response

    from scrapy_gp4c.store.protocols import PageStore

META: Final = "gp4c"
"""Key in ``Request.meta``: False opts out; a `Claim` marks a request in flight; then a result dict."""
FOUND_BY: Final = "gp4c_found_by"
"""Key in ``Request.meta``: finder of the request, as the column ``found_by`` has it."""
PASSED: Final = "passed"
"""Mark of a request in flight that is no visit, nor are its redirects and retries (a GET after a POST)."""
UNKNOWN_FINDER: Final = 0
HOOK: Final = "gp4c_request"
"""Method of a spider that adds to planned requests what the store does not keep."""
WEB: Final = ("http://", "https://")

TRANSIENT_META: Final = frozenset(
    {
        META,
        FOUND_BY,
        "ajax_crawlable",
        "download_latency",
        "is_start_request",
        "redirect_reasons",
        "redirect_times",
        "redirect_ttl",
        "redirect_urls",
        "retry_times",
    }
)
"""Notes of Scrapy in ``meta`` about one fetch: not part of how the page is requested."""
IDENTIFYING: Final = ("cb_kwargs", "meta", "cookies")
"""Fields of a stored request by which a fingerprinter may tell pages apart, besides URL and headers."""

_ARGUMENTS: Final = (*IDENTIFYING, "priority", "dont_filter")  # those that `Request` takes as they are
_SECRETIVE: Final = (*IDENTIFYING, "headers")  # no message shows their values
_FIELDS: Final[dict[str, tuple[type | tuple[type, ...], str]]] = {
    "url": (str, "a URL"),
    "callback": (str, "the name of a method of the spider"),
    "errback": (str, "the name of a method of the spider"),
    "cb_kwargs": (dict, "an object"),
    "meta": (dict, "an object"),
    "cookies": ((dict, list), "an object or a list of objects"),
    "headers": (dict, "an object of lists of texts"),
    "priority": (int, "a whole number"),
    "dont_filter": (bool, "true or false"),
    "lacks": (list, "a list of texts"),
}
_JSON_SCALARS: Final = (str, int, bool, type(None))
_PROBE_URL: Final = "https://h.example/a-b/C_d.e~1"
# Middlewares of Scrapy that add what may be secret to requests, in their order.
_ADDING_SECRETS: Final = (HttpAuthMiddleware, DefaultHeadersMiddleware, CookiesMiddleware)
# URLs that Scrapy neither quotes, nor sorts, nor shortens before it hashes them; without secrets.
_is_plain: Final = re.compile(
    r"https?://[a-z0-9.-]+(?::(?:[1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}))?(?:/(?!\.)[A-Za-z0-9._~-]*)+"
).fullmatch
_HASHED_HEAD: Final = b'{"body": "", "headers": {}, "method": "GET", "url": "'
_HASHED_TAIL: Final = b'"}'
_finder_of_response: WeakKeyDictionary[Response, int] = WeakKeyDictionary()


@dataclass(frozen=True, slots=True)
class Claim:
    """A visit under way; it travels in ``Request.meta`` through retries and redirects."""

    page: int
    kind: str
    score: float
    host: str | None
    """Host whose window the page takes a place in; None unless the plan has fed the page."""
    run: int
    """Token of the run that began the visit: a JOBDIR brings back visits of earlier runs."""


def page_key(fingerprint: bytes) -> int:
    """Key of a page: the first 8 bytes, big-endian, of its request's fingerprint."""
    return int.from_bytes(fingerprint[:8], "big")


def _plain_fingerprint(url: str) -> bytes:
    """Fingerprint of a GET of a plain URL as Scrapy makes it by default, in a tenth of the time."""
    return sha1(_HASHED_HEAD + url.encode("utf-8", "replace") + _HASHED_TAIL).digest()


def is_page_request(request: Request) -> bool:
    """Tell whether a request is a plain GET of a page; all others pass the scheduler untouched."""
    return (
        request.method == "GET"
        and not request.body
        and request.callback is not NO_CALLBACK
        and request.meta.get(META) is not False
        and request.url.startswith(WEB)
    )


def unmark(request: Request) -> None:
    """Take the mark `PASSED` off a request that has come through."""
    if request.meta.get(META) == PASSED:
        del request.meta[META]


# --- finders: the page whose response yielded a request


def mark_finder(request: Request, finder: int) -> None:
    """Note in a spider's request who found it."""
    if finder != UNKNOWN_FINDER:
        request.meta[FOUND_BY] = finder
    else:
        request.meta.pop(FOUND_BY, None)  # copied from another request


def hide_finder(response: Response) -> None:
    """Take the finder out of the ``meta`` that a callback sees; its requests get it all the same."""
    request = response.request
    finder = None if request is None else request.meta.pop(FOUND_BY, None)
    if finder is not None:
        _finder_of_response[response] = finder


def finder_for(response: Response | None) -> int:
    """Finder of the requests that the callback of a response yields; None is the spider's start.

    A response that is no visit, of a POST say, hands on the finder of its own request. So do redirects, which
    end the visit of the page that was asked for.
    """
    if response is None:
        return START
    request = response.request
    visit = None if request is None else request.meta.get(META)
    if isinstance(visit, dict) and "page" in visit:
        return int(visit["page"]) + 1
    return _finder_of_response.get(response, UNKNOWN_FINDER)


def finder_of(request: Request, store: PageStore) -> int:
    """Finder of a request; unknown where its mark is no page of this store: a JOBDIR may be older."""
    finder = request.meta.get(FOUND_BY, UNKNOWN_FINDER)
    is_page = isinstance(finder, int) and (0 < finder <= store.pages or finder == START)
    return finder if is_page else UNKNOWN_FINDER


# --- requests as JSON


def to_stored(request: Request, spider: Spider) -> StoredRequest:
    """Return what the store keeps of a request, ready for JSON.

    Raises ValueError, with the reason, when the request could not be repeated from it: a callback that is no
    method of the spider, or arguments that JSON would not give back as they are.
    """
    stored: dict[str, Any] = {"url": request.url}
    for name in ("callback", "errback"):
        function = getattr(request, name)
        if function is not None:
            method = getattr(function, "__name__", "")
            if getattr(spider, method, None) != function:
                raise ValueError(f"its {name} {function!r} is no method of the spider")
            stored[name] = method
    arguments: dict[str, Any] = {
        "cb_kwargs": request.cb_kwargs,
        "meta": {key: value for key, value in request.meta.items() if key not in TRANSIENT_META},
        "cookies": request.cookies,
        "headers": {
            key.decode("latin-1"): [value.decode("latin-1") for value in values]
            for key, values in request.headers.items()
        },
    }
    for name, value in arguments.items():
        if value:
            stored[name] = value if name == "headers" else _through_json(name, value)
    if request.dont_filter:
        stored["dont_filter"] = True
    if request.priority:
        stored["priority"] = request.priority
    return cast(StoredRequest, stored)


def _through_json(name: str, value: Any) -> Any:
    """Return what JSON makes of a value: equal to it, and its own object whatever the spider does to it."""
    if type(value) is dict and all(type(k) is str and type(v) in _JSON_SCALARS for k, v in value.items()):
        return dict(value)  # as it is nearly always, and three times as fast
    try:
        repeated: Any = json.loads(json.dumps(value))
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"its {name} cannot be kept as JSON: {error}") from None
    if repeated != value:
        raise ValueError(f"its {name} would come back from JSON as something else")  # which may be secret
    return repeated


def check_stored(stored: StoredRequest) -> None:
    """Check a stored request, which another version or a hand may have written; unknown fields may stand.

    Raises ValueError, which names the field.
    """
    if not isinstance(stored, dict):
        raise ValueError(f"expected an object as the stored request; found {str(stored)[:80]!r}")
    value: Any
    for name, value in {"url": None, **stored}.items():
        types, expected = _FIELDS.get(name, (object, ""))
        is_valid = isinstance(value, types)
        if is_valid and name == "headers":
            lists = value.values()
            is_valid = all(isinstance(v, list) and all(type(text) is str for text in v) for v in lists)
        elif is_valid and name == "cookies" and isinstance(value, list):
            is_valid = all(isinstance(cookie, dict) for cookie in value)
        elif is_valid and name == "lacks":
            is_valid = all(type(text) is str for text in value)
        if not is_valid:
            shown = type(value).__name__ if name in _SECRETIVE else repr(str(value)[:80])
            raise ValueError(f"expected {expected} as the request's {name}; found {shown}")


def from_stored(stored: StoredRequest, spider: Spider) -> Request:
    """Rebuild the request of a planned visit.

    Raises AttributeError when the spider has no such callback any more, ValueError or TypeError for what is
    no request.
    """
    check_stored(stored)
    callbacks = {name: getattr(spider, stored[name]) for name in ("callback", "errback") if name in stored}
    arguments: dict[str, Any] = {name: stored[name] for name in _ARGUMENTS if name in stored}
    request = Request(stored["url"], headers=_header_bytes(stored), **callbacks, **arguments)
    if not request.url.startswith(WEB):  # file: and data: are no pages, whoever wrote the store
        raise ValueError(f"expected an http or https URL; found {stored['url'][:80]!r}")
    return request


def _header_bytes(stored: StoredRequest) -> dict[bytes, list[bytes]]:
    """Headers of a stored request as Scrapy takes them; raises ValueError for what is not Latin-1."""
    return {
        key.encode("latin-1"): [value.encode("latin-1") for value in values]
        for key, values in stored.get("headers", {}).items()
    }


class PageFingerprinter(RequestFingerprinter):
    """Request fingerprinter of Scrapy that ignores the parameters of `GP4C_URL_PARAMS_IGNORED`.

    Two links that differ in these alone are one page, for the store and for the duplicate filter. The request
    that is sent keeps its URL.
    """

    def __init__(self, crawler: Crawler | None = None, ignored: Iterable[str] = IGNORED_PARAMS) -> None:
        super().__init__(crawler)
        self.ignored = tuple(ignored)
        self._fingerprints: WeakKeyDictionary[Request, bytes] = WeakKeyDictionary()

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        ignored = values.names(crawler.settings.get("GP4C_URL_PARAMS_IGNORED", IGNORED_PARAMS))
        return cls(crawler, ignored)

    def fingerprint(self, request: Request) -> bytes:
        """Fingerprint of the page that a request asks for, 20 bytes."""
        url = page_url(request.url, self.ignored)
        if url == request.url:
            return super().fingerprint(request)
        if request not in self._fingerprints:
            self._fingerprints[request] = super().fingerprint(request.replace(url=url))
        return self._fingerprints[request]


class Rebuilder:
    """Turns a spider's requests into stored ones and back, without what is secret on the way."""

    def __init__(self, crawler: Crawler, spider: Spider, credentials: Credentials) -> None:
        """Take the crawler: its fingerprinter tells pages apart, its middlewares may add what is secret."""
        assert crawler.request_fingerprinter is not None
        self._crawler = crawler
        self.spider = spider
        self.credentials = credentials
        self._fingerprint = crawler.request_fingerprinter.fingerprint
        # Exactly these types: a project's own subclass may tell pages apart by anything.
        self.by_url_alone = type(crawler.request_fingerprinter) in (RequestFingerprinter, PageFingerprinter)
        self._ignored: tuple[str, ...] = getattr(crawler.request_fingerprinter, "ignored", ())
        # Another version of Scrapy may hash otherwise: then every fingerprint is Scrapy's own.
        self._hashes_plain = self.by_url_alone and self._fingerprint(
            Request(_PROBE_URL)
        ) == _plain_fingerprint(_PROBE_URL)

    def keys(self, request: Request) -> tuple[int, int]:
        """Key of the request's page, the same whatever its secrets; and the key of the request as it is."""
        url = request.url
        if self._hashes_plain and request.method == "GET" and not request.body and _is_plain(url):
            key = page_key(_plain_fingerprint(url))
            return key, key
        bare = self._without_secrets(request)
        key = page_key(self._fingerprint(bare))
        return key, key if bare is request else page_key(self._fingerprint(request))

    def url_keys(self, urls: Sequence[str]) -> npt.NDArray[np.uint64]:
        """Keys of the pages that plain GETs of URLs would have, ``[U]``; 0 for what is no page's URL."""
        if not (self._hashes_plain and urls):
            return np.array([self._url_key(url) for url in urls], np.uint64)
        digests = b"".join([_plain_fingerprint(url)[:8] for url in urls])
        keys = np.frombuffer(digests, ">u8").astype(np.uint64)
        for row, url in enumerate(urls):
            if _is_plain(url) is None:
                keys[row] = self._url_key(url)
        return keys

    def _url_key(self, url: str) -> int:
        try:
            return self.keys(Request(url))[0] if url.startswith(WEB) else 0
        except ValueError:
            return 0

    def _without_secrets(self, request: Request) -> Request:
        """The request without what is secret, as far as the fingerprint can see it."""
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
        bare_request: Request = request.replace(url=url, headers=_header_bytes(bare), cookies={}, **arguments)
        return bare_request

    def stored(self, request: Request) -> StoredRequest:
        """Return what the store keeps of a request; raises ValueError as `to_stored`."""
        stored = to_stored(request, self.spider)
        # A session of this run would be none in the next; without it, the page can be asked for all the same.
        stored["url"] = without_session(stored["url"], self._ignored)
        return self.credentials.stripped(stored)

    def build(self, stored: StoredRequest) -> tuple[Request, list[str]]:
        """Return the request of a planned visit, and names of the secrets that it lacks and nobody adds.

        Raises what `from_stored` raises, and whatever the spider's method does.
        """
        request = from_stored(stored, self.spider)
        hook = getattr(self.spider, HOOK, None)
        if hook is not None:
            request = self._by_hook(hook, request)
        return request, self._missing_secrets(stored, request)

    def needs_spider(self, stored: StoredRequest) -> bool:
        """Tell whether a stored request lacks secrets, so that only the spider can make it."""
        if not stored.get("lacks"):
            return False
        try:
            return bool(self.build(stored)[1])
        except Exception:  # logged when the page is planned
            return False

    def _by_hook(self, hook: Any, request: Request) -> Request:
        key = self.keys(request)[0]
        changed = hook(request)
        if not isinstance(changed, Request):
            raise TypeError(f"{HOOK} of the spider must return the request; found {type(changed).__name__}")
        if not is_page_request(changed) or self.keys(changed)[0] != key:
            raise ValueError(
                f"{HOOK} of the spider must return a GET of the same page, with what is secret added"
            )
        return changed

    def _missing_secrets(self, stored: StoredRequest, request: Request) -> list[str]:
        lacks = set(stored.get("lacks", ()))
        if lacks:
            try:
                lacks -= set(self.stored(request).get("lacks", ()))
            except ValueError:  # the spider's method has added what cannot be stored
                return []
        if lacks:
            lacks -= self._added_by_scrapy(request)
        return sorted(lacks)

    def _added_by_scrapy(self, request: Request) -> set[str]:
        """Names of what Scrapy's own middlewares add to a request."""
        probe = request.replace(cookies={})
        for kind in _ADDING_SECRETS:
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
