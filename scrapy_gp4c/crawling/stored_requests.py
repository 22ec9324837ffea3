"""Between Scrapy requests and what the store keeps of them: JSON, never pickle.

A page is remembered with what its spider needs to visit it again: URL, callback and errback names,
``cb_kwargs``, ``meta``, headers and cookies, each only where it differs from the default.
"""

from __future__ import annotations

import json
import re
from hashlib import sha1
from typing import TYPE_CHECKING, Any, Final, cast

from scrapy import Request
from scrapy.http.request import NO_CALLBACK

from scrapy_gp4c.store.records import StoredRequest

if TYPE_CHECKING:
    from scrapy import Spider

META: Final = "gp4c"
"""Key in ``Request.meta``: False opts out; a `Claim` marks a request in flight; then a result dict."""
FOUND_BY: Final = "gp4c_found_by"
"""Key in ``Request.meta``: who found the request, see `scrapy_gp4c.crawling.finders`."""
PASSED: Final = "passed"
"""Marks a request in flight that is no visit: its redirects and retries, a GET after a POST say, are none."""

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
"""What Scrapy notes in ``meta`` about one fetch: not part of how the page is requested."""


IDENTIFYING: Final = ("cb_kwargs", "meta", "cookies")
"""What of a stored request a fingerprinter may look at, besides URL and headers, to tell pages apart."""
ARGUMENTS: Final = (*IDENTIFYING, "priority", "dont_filter")
"""What of a stored request is an argument of `Request` as it is."""
SECRETIVE: Final = (*IDENTIFYING, "headers")
"""What of a stored request no message shows."""


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
"""Field of a stored request -> its types in JSON, and how they are called."""

WEB: Final = ("http://", "https://")
"""What the URLs of pages begin with."""

_PLAIN: Final = (str, int, bool, type(None))
"""Types of values that JSON gives back as they are."""


is_plain: Final = re.compile(
    r"https?://[a-z0-9.-]+(?::(?:[1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}))?(?:/(?!\.)[A-Za-z0-9._~-]*)+"
).fullmatch
"""Matches URLs that Scrapy neither quotes, nor sorts, nor shortens before it hashes them; without secrets."""
_HEAD: Final = b'{"body": "", "headers": {}, "method": "GET", "url": "'
_TAIL: Final = b'"}'


def page_key(fingerprint: bytes) -> int:
    """Key of a page: the first 8 bytes, big-endian, of its request's fingerprint."""
    return int.from_bytes(fingerprint[:8], "big")


def plain_fingerprint(url: str) -> bytes:
    """Fingerprint of a GET of a plain URL as Scrapy makes it by default, in a tenth of the time."""
    return sha1(_HEAD + url.encode("utf-8", "replace") + _TAIL).digest()


def unmark(request: Request) -> None:
    """Take `PASSED` off a request that has come through."""
    if request.meta.get(META) == PASSED:
        del request.meta[META]


def is_page_request(request: Request) -> bool:
    """Tell whether this is a plain GET of a page: what gets scheduled; all else passes untouched."""
    return (
        request.method == "GET"
        and not request.body
        and request.callback is not NO_CALLBACK
        and request.meta.get(META) is not False
        and request.url.startswith(WEB)
    )


def to_stored(request: Request, spider: Spider) -> StoredRequest:
    """Return what the store keeps of a request, ready for JSON.

    Raises ValueError, with the reason, when the request could not be repeated from it: a callback that
    is no method of the spider, or arguments that JSON would not give back as they are.
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
            stored[name] = value if name == "headers" else _as_json(name, value)
    if request.dont_filter:
        stored["dont_filter"] = True
    if request.priority:
        stored["priority"] = request.priority
    return cast(StoredRequest, stored)


def _as_json(name: str, value: Any) -> Any:
    """Return what JSON makes of a value: equal to it, and its own object whatever the spider does to it."""
    if type(value) is dict and all(type(k) is str and type(v) in _PLAIN for k, v in value.items()):
        return dict(value)  # as it is nearly always, and three times as fast
    try:
        repeated: Any = json.loads(json.dumps(value))
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"its {name} cannot be kept as JSON: {error}") from None
    if repeated != value:
        raise ValueError(f"its {name} would come back from JSON as something else")  # which may be secret
    return repeated


def check_stored(stored: StoredRequest) -> None:
    """Check what a store or a file says of a request; raises ValueError, which names the field.

    Another version may have written it, or a hand. Fields that are not known are left alone.
    """
    if not isinstance(stored, dict):
        raise ValueError(f"expected an object as the stored request; found {str(stored)[:80]!r}")
    value: Any
    for name, value in {"url": None, **stored}.items():
        types, expected = _FIELDS.get(name, (object, ""))
        sound = isinstance(value, types)
        if sound and name == "headers":
            sound = all(isinstance(v, list) and all(type(text) is str for text in v) for v in value.values())
        elif sound and name == "cookies" and isinstance(value, list):
            sound = all(isinstance(cookie, dict) for cookie in value)
        elif sound and name == "lacks":
            sound = all(type(text) is str for text in value)
        if not sound:
            found = type(value).__name__ if name in SECRETIVE else repr(str(value)[:80])
            raise ValueError(f"expected {expected} as the request's {name}; found {found}")


def from_stored(stored: StoredRequest, spider: Spider) -> Request:
    """Rebuild the request of a planned visit.

    Raises AttributeError when the spider has no such callback any more, ValueError or TypeError for what is
    no request.
    """
    check_stored(stored)
    callbacks = {name: getattr(spider, stored[name]) for name in ("callback", "errback") if name in stored}
    arguments: dict[str, Any] = {name: stored[name] for name in ARGUMENTS if name in stored}
    request = Request(stored["url"], headers=header_bytes(stored), **callbacks, **arguments)
    if not request.url.startswith(WEB):  # file: and data: are no pages, whoever wrote the store
        raise ValueError(f"expected an http or https URL; found {stored['url'][:80]!r}")
    return request


def header_bytes(stored: StoredRequest) -> dict[bytes, list[bytes]]:
    """Headers of a stored request as Scrapy takes them; raises ValueError for what is not Latin-1."""
    return {
        key.encode("latin-1"): [value.encode("latin-1") for value in values]
        for key, values in stored.get("headers", {}).items()
    }
