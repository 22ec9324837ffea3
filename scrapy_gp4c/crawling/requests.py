"""Stored requests: how a page's request is made, kept in the store as JSON, and rebuilt for a visit.

A page is remembered with what `Request.to_dict` has of its request: URL, class, names of callback and
errback, ``cb_kwargs``, ``meta``, headers, flags and so on, each only where it is not the default. A rule of a
CrawlSpider is stored by its callback and link extractor, because its number may be another's tomorrow. What
is secret, and what JSON cannot hold, is never stored. A rebuilt request gets it, in this order, from the
spider's method ``gp4c_request(request)``, from Scrapy's settings for HTTP authentication and default headers,
and from the cookies of the session.
"""

import inspect
import json
import re
import sys
from ast import literal_eval
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass
from hashlib import sha1
from importlib import import_module
from typing import Any, Final, Self, cast
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt
from scrapy import Request, Spider
from scrapy.crawler import Crawler
from scrapy.downloadermiddlewares.cookies import CookiesMiddleware
from scrapy.downloadermiddlewares.defaultheaders import DefaultHeadersMiddleware
from scrapy.downloadermiddlewares.httpauth import HttpAuthMiddleware
from scrapy.http import Response
from scrapy.http.request import NO_CALLBACK
from scrapy.spiders import CrawlSpider, Rule
from scrapy.utils.request import RequestFingerprinter, request_from_dict

from scrapy_gp4c.foreign_text import foreign_safe_logger
from scrapy_gp4c.page_state.page_names import IGNORED_PARAMS, page_url, signature_names, without_session
from scrapy_gp4c.page_state.rules import META_KEYS
from scrapy_gp4c.scoring.discovery import START
from scrapy_gp4c.settings import values
from scrapy_gp4c.store.credentials import Credentials, names_in_header
from scrapy_gp4c.store.history_fields import FieldError, converted
from scrapy_gp4c.store.opening import Store
from scrapy_gp4c.store.records import StoredRequest

logger = foreign_safe_logger(__name__)

META: Final = "gp4c"
"""Key in ``Request.meta``; value: False to opt out, a `Claim` during a visit, then the visit's result."""
FOUND_BY: Final = "gp4c_found_by"
"""Key in ``Request.meta``: finder of the request, the page (number + 1) whose callback yielded it."""
WEIGHT: Final = "gp4c_weight"
"""Key in ``Request.meta``: weight of the page, a number from 0 on."""
WISHES: Final = frozenset(META_KEYS)
"""Keys in ``Request.meta`` by which a spider gives a page a weight, promises (see `promises`) or a tag."""
SHARED: Final = "gp4c_shared"
"""Key in ``Request.meta`` of fetchers' requests: field and name of an object in it -> its identity."""
PASSED: Final = "passed"
"""Mark of a request in flight that is no visit, and of its redirects (a GET after a POST) and retries."""
UNKNOWN_FINDER: Final = 0
HOOK: Final = "gp4c_request"
"""Method of a spider that adds to planned requests what the store does not keep: ``(request) -> request``."""
WEB: Final = ("http://", "https://")

FETCH_NOTES: Final = frozenset(
    {"redirect_reasons", "redirect_times", "redirect_ttl", "redirect_urls", "retry_times"}
)
"""Keys of ``meta`` in which Scrapy notes redirects and retries of one fetch."""
TRANSIENT_META: Final = FETCH_NOTES | {
    META, FOUND_BY, SHARED, WEIGHT, "ajax_crawlable", "download_latency", "is_start_request",
}  # fmt: skip
"""Keys of ``meta`` that are not part of how the page is requested."""
JAR: Final = "meta cookiejar"
_SET: Final = "python set"
"""Key of a stored set: texts of its members, as Python writes them."""
NEEDS_CALLBACK: Final = "needs_callback"
FOLLOWS: Final = "follows"
IDENTIFYING: Final = ("cb_kwargs", "meta", "cookies")
"""Fields of a stored request, besides URL and headers, by which a fingerprinter may distinguish pages."""

_SECRETIVE: Final = (*IDENTIFYING, "headers")  # no message shows their values
_JSON_SCALARS: Final = (str, int, bool, type(None))
_PROBE_URL: Final = "https://h.example/a-b/C_d.e~1"
# Middlewares of Scrapy that add what may be secret to requests, in their order.
_ADDING_SECRETS: Final = (HttpAuthMiddleware, DefaultHeadersMiddleware, CookiesMiddleware)
# URLs that Scrapy neither quotes, nor sorts, nor shortens before it hashes them; without secrets.
_is_plain: Final = re.compile(
    r"https?://[a-z0-9.-]*[a-z0-9](?::(?!(?:80|443)/)(?:[1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}))?"
    r"(?:/(?!\.)[A-Za-z0-9._~-]*)+"
).fullmatch
_HASHED_HEAD: Final = b'{"body": "", "headers": {}, "method": "GET", "url": "'
_HASHED_TAIL: Final = b'"}'
_finder_of_response: WeakKeyDictionary[Response, int] = WeakKeyDictionary()
_method_names: WeakKeyDictionary[Spider, dict[Any, str | None]] = WeakKeyDictionary()
_classes_missing: set[str] = set()


class CallbackMissingError(AttributeError):
    """The spider no longer has the callback, errback or rule of a stored request."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A visit that has begun: the mark of its request in ``Request.meta``, kept by retries and redirects."""

    page: int
    kind: str
    score: float
    host: str | None
    """Host in whose window the feeder counts the queued page; None: the feeder did not queue it."""
    run: int
    """Token of the run that began the visit: a JOBDIR brings back visits of earlier runs."""


DIGEST_BYTES: Final = 20
"""Bytes of a request fingerprint of Scrapy, a SHA-1 digest."""


def page_key(fingerprint: bytes) -> int:
    """Return the key of a page: the first 8 bytes, big-endian, of its request's fingerprint.

    A fingerprint of other than 20 bytes is hashed first: a project's own fingerprinter may return the URL,
    whose first bytes all pages share.
    """
    if len(fingerprint) != DIGEST_BYTES:
        fingerprint = sha1(fingerprint).digest()
    return int.from_bytes(fingerprint[:8], "big")


def _plain_fingerprint(url: str) -> bytes:
    """Return Scrapy's default fingerprint of a GET, in a tenth of the time, for a URL that `_is_plain`."""
    return sha1(_HASHED_HEAD + url.encode("utf-8", "replace") + _HASHED_TAIL).digest()


def is_page_request(request: Request) -> bool:
    """Whether a request is a plain GET of a page; all others are Scrapy's, as without this add-on."""
    return (
        request.method == "GET"
        and not request.body
        and request.callback is not NO_CALLBACK
        and not is_opted_out(request)
        and request.url.startswith(WEB)
    )


def is_opted_out(request: Request) -> bool:
    """Whether a request has ``meta={"gp4c": False}``, or a copy of such meta, so that it passes untouched."""
    mark = request.meta.get(META)
    return mark is False or (isinstance(mark, dict) and bool(mark.get("opted_out")))


def site_of(request: Request) -> str:
    """Return the host, with port, of the URL that a request began with, before any redirect."""
    urls: list[str] = request.meta.get("redirect_urls") or [request.url]
    return urlsplit(urls[0]).netloc.rpartition("@")[2]


def without_user(netloc: str) -> str:
    """Return the host of a netloc; after an "@" if it had a user (``user:pw@host`` -> ``@host``).

    Requests with a user may fail where those without do not, so that the two are two hosts.
    """
    return netloc[max(0, netloc.rfind("@")) :]


def unmark(request: Request) -> None:
    """Remove the mark `PASSED` from a request that has come through the scheduler."""
    if request.meta.get(META) == PASSED:
        del request.meta[META]


# --- finders: the page whose response yielded a request


def mark_finder(request: Request, finder: int) -> None:
    """Note in a spider's request its finder, the page whose callback yielded it."""
    if isinstance(request.meta.get(META), Claim):  # a copy of a visit's request is no part of the visit
        del request.meta[META]
    if finder != UNKNOWN_FINDER:
        request.meta[FOUND_BY] = finder
    else:
        request.meta.pop(FOUND_BY, None)  # copied from another request


def hide_finder(response: Response) -> None:
    """Move the finder out of the ``meta`` that a callback sees; `finder_for` still finds it."""
    request = response.request
    finder = None if request is None else request.meta.pop(FOUND_BY, None)
    if finder is not None:
        _finder_of_response[response] = finder


def finder_for(response: Response | None) -> int:
    """Return the finder of the requests that the callback of a response yields: page number + 1, or `START`.

    ``response``: None for the spider's start. A response that is no visit, of a POST say, hands on the finder
    of its own request. A redirect's response counts for the page that was asked for.
    """
    if response is None:
        return START
    request = response.request
    visit = None if request is None else request.meta.get(META)
    if isinstance(visit, dict) and "page" in visit:
        return int(visit["page"]) + 1
    return _finder_of_response.get(response, UNKNOWN_FINDER)


def finder_of(request: Request, store: Store) -> int:
    """Return the finder that a request's meta has; `UNKNOWN_FINDER` where that is no page of this store."""
    finder = request.meta.get(FOUND_BY, UNKNOWN_FINDER)
    is_page = isinstance(finder, int) and (0 < finder <= store.pages or finder == START)
    return finder if is_page else UNKNOWN_FINDER


# --- requests as JSON


def to_stored(request: Request, spider: Spider) -> StoredRequest:
    """Return what the store keeps of a request, ready for JSON.

    Its field ``unstorable`` names what cannot be kept, and a visit needs: a callback that is no method of the
    spider, or arguments that JSON would not give back as they are.
    """
    stored: dict[str, Any] = {"url": request.url}
    unstorable: list[str] = []
    for name in ("callback", "errback"):
        function = getattr(request, name)
        if function is not None:
            method = method_name(spider, function)
            if method is None:
                unstorable.append(name)
            else:
                stored[name] = method
    meta = {key: value for key, value in request.meta.items() if key not in TRANSIENT_META}
    if (rule := _rule_of(meta, spider)) is not None:
        stored["rule"] = _rule_identity(rule)
        del meta["rule"]
    for name, value in (("cb_kwargs", request.cb_kwargs), ("meta", meta)):
        if value:
            storable = _storable(name, value, unstorable)
            if storable:
                stored[name] = storable
    if request.cookies:
        try:
            stored["cookies"] = _through_json(request.cookies)
        except ValueError:
            unstorable.append("cookies")
    if request.headers:
        stored["headers"] = {
            key.decode("latin-1"): [value.decode("latin-1") for value in values]
            for key, values in request.headers.items()
        }
    if request.dont_filter:
        stored["dont_filter"] = True
    if request.priority:
        stored["priority"] = request.priority
    if request.flags:
        stored["flags"] = list(map(str, request.flags))
    if request.encoding != "utf-8":
        stored["encoding"] = request.encoding
    if type(request) is not Request:
        _store_class(request, stored, unstorable)
    if unstorable:
        stored["unstorable"] = unstorable
    return cast(StoredRequest, stored)


def _store_class(request: Request, stored: dict[str, Any], unstorable: list[str]) -> None:
    kind = type(request)
    stored["_class"] = f"{kind.__module__}.{kind.__qualname__}"
    names = [name for name in kind.attributes if name not in Request.attributes]
    attributes = _storable("attribute", {name: getattr(request, name) for name in names}, unstorable)
    if attributes:
        stored["attributes"] = attributes


def method_name(spider: Spider, function: Any) -> str | None:
    """Return the attribute of the spider that holds a callback; None: `function` is no method of the spider.

    It is found by identity where ``__name__`` is not its name: of decorated and private (``__x``) methods,
    and of functions assigned in the class body.
    """
    name = getattr(function, "__name__", "")
    if isinstance(name, str) and name and getattr(spider, name, None) == function:
        return name
    inner = getattr(function, "__func__", None)
    if inner is None or getattr(function, "__self__", None) not in (spider, type(spider)):
        return None
    names = _method_names.setdefault(spider, {})
    if inner not in names:
        attributes = (
            attribute
            for attribute in dir(spider)
            if not isinstance(inspect.getattr_static(spider, attribute, None), property)
        )
        names[inner] = next(
            (name for name in attributes if getattr(getattr(spider, name, None), "__func__", None) is inner),
            None,
        )
    return names[inner]


# --- rules of a CrawlSpider


def _rule_of(meta: dict[str, Any], spider: Spider) -> Rule | None:
    """Return the rule of a CrawlSpider that made the request with this meta; None: no rule did."""
    number = meta.get("rule")
    if not isinstance(spider, CrawlSpider) or type(number) is not int:
        return None
    return spider.rules[number] if 0 <= number < len(spider.rules) else None


def _rule_identity(rule: Rule) -> list[str | None]:
    """Return what identifies a CrawlSpider rule wherever it stands: callback, digest of link extractor."""
    callback = rule.callback
    name = callback if isinstance(callback, str) or callback is None else getattr(callback, "__name__", "")
    extractor = rule.link_extractor
    described = f"{type(extractor).__qualname__} {_described(vars(extractor))}"
    return [name, sha1(described.encode("utf-8", "replace")).hexdigest()]


def _described(value: Any) -> str:
    """Return a text for a value that is the same in every process, without addresses of objects."""
    if isinstance(value, re.Pattern):
        return f"/{value.pattern}/{value.flags}"
    if isinstance(value, dict):
        return str({key: _described(entry) for key, entry in value.items()})
    if isinstance(value, set | frozenset):
        return str(sorted(map(_described, value)))
    if isinstance(value, list | tuple):
        return str([_described(entry) for entry in value])
    if value is None or isinstance(value, str | int | float | bytes):
        return repr(value)
    return str(getattr(value, "__qualname__", type(value).__qualname__))


def _rule_number(identity: Any, url: str, spider: Spider) -> int:
    """Return the number that a stored CrawlSpider rule has now; ``identity``: its `_rule_identity`.

    If that rule is gone, another with the same callback stands in: the first that extracts `url`, or else the
    first. Raises CallbackMissingError if there is none.
    """
    rules = list(spider.rules) if isinstance(spider, CrawlSpider) else []
    identities = [_rule_identity(rule) for rule in rules]
    if list(identity) in identities:
        return identities.index(list(identity))
    numbers = [number for number, (name, _) in enumerate(identities) if identity and name == identity[0]]
    if not numbers:
        raise CallbackMissingError(f"a rule with the callback {identity[0] if identity else None!r}")
    for number in numbers:
        matches = getattr(rules[number].link_extractor, "matches", None)
        if matches is not None and matches(url):
            return number
    return numbers[0]


# --- values as JSON


def _storable(name: str, values: dict[str, Any], unstorable: list[str]) -> dict[str, Any]:
    """Return the entries of `values` that JSON can hold; others are added to ``unstorable`` as "name key"."""
    if all(type(key) is str and type(value) in _JSON_SCALARS for key, value in values.items()):
        return dict(values)  # nearly always, and three times as fast
    storable = {}
    for key, value in values.items():
        try:
            storable.update(_through_json({key: value}))
        except ValueError:
            if is_plugins(key) and isinstance(value, Set) and all(type(one) in (str, bytes) for one in value):
                storable[key] = {_SET: sorted(map(repr, value))}
            else:
                unstorable.append(f"{name} {key}")
    return storable


def is_plugins(key: object) -> bool:
    """Whether a key in ``Request.meta`` begins with an underscore, as plugins' do: it is no data."""
    return isinstance(key, str) and key.startswith("_")


def _loaded(key: str, value: Any) -> Any:
    """Return the value in ``Request.meta`` for a stored one; a set is stored as a dictionary with `_SET`."""
    is_set = is_plugins(key) and isinstance(value, dict) and _SET in value
    return set(map(literal_eval, value[_SET])) if is_set else value


def _through_json(value: Any) -> Any:
    """Return a copy of a value by way of JSON, so that the spider cannot change it any more.

    Raises ValueError for a value that would come back as something else.
    """
    try:
        repeated: Any = json.loads(json.dumps(value))
    except (TypeError, RecursionError) as error:
        raise ValueError(str(error)) from None
    if repeated != value:
        raise ValueError("it would come back from JSON as something else")
    return repeated


def check_stored(stored: StoredRequest) -> None:
    """Check types of a stored request, which another version or a person may have written.

    Unknown fields are allowed. Raises ValueError, which names the field.
    """
    try:
        converted({"url": None, **stored} if isinstance(stored, dict) else stored, StoredRequest)
    except FieldError as error:
        shown = type(error.value).__name__ if error.field in _SECRETIVE else repr(str(error.value)[:80])
        of_field = f" as the request's {error.field}" if error.field else " as the stored request"
        raise ValueError(f"{error.problem}{of_field}; found {shown}") from None


def from_stored(stored: StoredRequest, spider: Spider) -> Request:
    """Rebuild the request of a planned visit.

    Raises CallbackMissingError when the spider has no such callback or rule any more, ValueError or TypeError
    for what is no request.
    """
    check_stored(stored)
    fields: dict[str, Any] = {**stored, **stored.get("attributes", {}), "headers": _header_bytes(stored)}
    for name in ("callback", "errback"):
        if name in fields and not hasattr(spider, fields[name]):
            raise CallbackMissingError(f"{name} {fields[name]}")
    if "meta" in stored:
        fields["meta"] = {key: _loaded(key, value) for key, value in stored["meta"].items()}
    if "rule" in stored:
        number = _rule_number(stored["rule"], stored["url"], spider)
        fields["meta"] = {**fields.get("meta", {}), "rule": number}
    path = fields.pop("_class", None)
    if path is not None and _is_loadable(path, spider):
        fields["_class"] = path
    request = request_from_dict(fields, spider=spider)
    if not request.url.startswith(WEB):  # a store of others may have file: and data:
        raise ValueError(f"expected an http or https URL; found {stored['url'][:80]!r}")
    return request


def _is_loadable(path: str, spider: Spider) -> bool:
    """Whether a dotted path leads to a class of requests; warns the first time that it does not.

    A store is data, for which only modules of the spider's own package are imported.
    """
    module_name, _, name = path.rpartition(".")
    module = sys.modules.get(module_name)
    root = type(spider).__module__.partition(".")[0]
    if module is None and module_name.partition(".")[0] == root:
        try:
            module = import_module(module_name)
        except ImportError:
            module = None
    kind = getattr(module, name, None)
    if isinstance(kind, type) and issubclass(kind, Request):
        return True
    if path not in _classes_missing:
        _classes_missing.add(path)
        line = "Requests of the class %s are rebuilt as plain ones, because it cannot be imported."
        logger.warning(line, path, extra={"spider": spider})
    return False


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
        self._hashes_plain = super().fingerprint(Request(_PROBE_URL)) == _plain_fingerprint(_PROBE_URL)

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        ignored = values.names(crawler.settings.get("GP4C_URL_PARAMS_IGNORED", IGNORED_PARAMS))
        return cls(crawler, ignored)

    def fingerprint(self, request: Request) -> bytes:
        """Return the fingerprint of the page that a request asks for, 20 bytes."""
        if self._hashes_plain and request.method == "GET" and not request.body and _is_plain(request.url):
            return _plain_fingerprint(request.url)
        url = page_url(request.url, self.ignored)
        return super().fingerprint(request if url == request.url else request.replace(url=url))


class Rebuilder:
    """Turns a spider's requests into stored ones without secrets, and back, with its present secrets."""

    def __init__(self, crawler: Crawler, spider: Spider, credentials: Credentials) -> None:
        """Take the crawler, whose fingerprinter makes page keys, and whose middlewares may add secrets."""
        assert crawler.request_fingerprinter is not None
        self._crawler = crawler
        self.spider = spider
        self.credentials = credentials
        self._fingerprint = crawler.request_fingerprinter.fingerprint
        # Exactly these types: a project's own subclass may tell pages apart by anything.
        self.by_url_alone = type(crawler.request_fingerprinter) in (RequestFingerprinter, PageFingerprinter)
        self._ignored: tuple[str, ...] = getattr(crawler.request_fingerprinter, "ignored", ())
        self.named_params = tuple(name for name in self._ignored if name not in IGNORED_PARAMS)
        """Ignored URL parameters that the project has named, without those of campaigns."""
        self.link_params = tuple(name for name in self._ignored if name in IGNORED_PARAMS)
        """Ignored URL parameters of campaigns: to a callback, links that differ in these are the same."""
        # Where this version of Scrapy hashes otherwise, every fingerprint is Scrapy's own.
        self._hashes_plain = self.by_url_alone and self._fingerprint(
            Request(_PROBE_URL)
        ) == _plain_fingerprint(_PROBE_URL)

    def keys(self, request: Request) -> tuple[int, int]:
        """Return the page key of a request without its secrets, and the key with them."""
        if request.method == "GET" and not request.body and (key := self._plain_key(request.url)):
            return key, key
        bare = self._without_secrets(request)
        key = page_key(self._fingerprint(bare))
        return key, key if bare is request else page_key(self._fingerprint(request))

    def url_keys(self, urls: Sequence[str]) -> npt.NDArray[np.uint64]:
        """Return the keys of the pages that GETs of `urls` would ask for, ``[U]``; 0 for no http(s) URL."""
        return np.array([self._plain_key(url) or self._url_key(url) for url in urls], np.uint64)

    def _plain_key(self, url: str) -> int | None:
        """Return the key of a GET of a plain URL without building a request; None for another URL."""
        is_plain = self._hashes_plain and _is_plain(url)
        return page_key(_plain_fingerprint(url)) if is_plain else None

    def _url_key(self, url: str) -> int:
        try:
            return self.keys(Request(url))[0] if url.startswith(WEB) else 0
        except ValueError:
            return 0

    def _without_secrets(self, request: Request) -> Request:
        """Return a copy of a request without secrets, to fingerprint; the request itself if it has none."""
        url = self.credentials.url(request.url)
        if self.by_url_alone:
            return request if url == request.url else Request(url)
        stored = to_stored(request, self.spider)
        if stored.get("unstorable"):
            return request
        bare = self.credentials.stripped(stored)
        if bare is stored:
            return request
        arguments: dict[str, Any] = {name: bare.get(name) for name in ("meta", "cb_kwargs")}
        return request.replace(url=url, headers=_header_bytes(bare), cookies={}, **arguments)

    def stored(self, request: Request) -> StoredRequest:
        """Return what the store keeps of a request, as `to_stored` does, without what is secret."""
        stored = to_stored(request, self.spider)
        if self._ignored and (names := signature_names(stored["url"])):
            stored["lacks"] = [f"query {name}" for name in names]
        # The session in a URL is of no use in the next run, and the page can be requested without it.
        stored["url"] = without_session(stored["url"], self._ignored)
        if self._has_session(request):
            stored["session"] = True
        return self.credentials.stripped(stored)

    def _has_session(self, request: Request) -> bool:
        """Whether a request with a ``cookiejar`` of its own finds cookies there."""
        jar, cookies = request.meta.get("cookiejar"), None
        if jar is not None:
            cookies = self._crawler.get_downloader_middleware(CookiesMiddleware)
        return isinstance(cookies, CookiesMiddleware) and jar in cookies.jars and len(cookies.jars[jar]) > 0

    def count_cookies(self) -> int:
        """Return the number of cookies in Scrapy's default cookie jar."""
        cookies: Any = self._crawler.get_downloader_middleware(CookiesMiddleware)
        return len(cookies.jars[None]) if isinstance(cookies, CookiesMiddleware) else 0

    def build(self, stored: StoredRequest, varying: Set[str] = frozenset()) -> tuple[Request, list[str]]:
        """Return the request of a planned visit, and names of secrets and values that it still lacks.

        ``varying``: names of data that differ from run to run; with `JAR`, a session lacks its cookies.
        Raises what `from_stored` and the spider's method `HOOK` do.
        """
        request = self._by_hook(from_stored(stored, self.spider))
        lacks = self._missing_secrets(stored, request) + _missing_values(stored, request)
        if stored.get("session") and (JAR in varying or not self._has_session(request)):
            lacks.append("cookies of its cookiejar")
        return request, lacks

    def needs_spider(self, stored: StoredRequest) -> bool:
        """Whether a stored request lacks secrets even after `HOOK`, so that only the spider can make it."""
        if not stored.get("lacks"):
            return False
        try:
            return bool(self._missing_secrets(stored, self._by_hook(from_stored(stored, self.spider))))
        except Exception:  # logged when the page is planned
            return False

    def _by_hook(self, request: Request) -> Request:
        hook: Any = getattr(self.spider, HOOK, None)
        if hook is None:
            return request
        key = self.keys(request)[0]
        changed = hook(request)
        if not isinstance(changed, Request):
            raise TypeError(f"{HOOK} of the spider must return the request; found {type(changed).__name__}")
        if not is_page_request(changed) or self.keys(changed)[0] != key:
            raise ValueError(
                f"{HOOK} of the spider must return a GET of the same page, with what is missing added"
            )
        return changed

    def _missing_secrets(self, stored: StoredRequest, request: Request) -> list[str]:
        lacks = set(stored.get("lacks", ()))
        if lacks:
            rebuilt = self.stored(request)
            lacks -= {*rebuilt.get("lacks", ()), *rebuilt.get("unstorable", ())}
        if lacks:
            lacks -= self._added_by_scrapy(request)
        return sorted(lacks)

    def _added_by_scrapy(self, request: Request) -> set[str]:
        """Return names, such as ``cookie sid``, of what Scrapy's own middlewares add to a request."""
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


def _missing_values(stored: StoredRequest, request: Request) -> list[str]:
    """Return names of values that could not be stored and that `request`, the rebuilt one, lacks."""
    missing = []
    for name in stored.get("unstorable", ()):
        field, _, key = name.partition(" ")
        values: Any = {"meta": request.meta, "cb_kwargs": request.cb_kwargs}.get(field)
        has_it = key in values if values is not None else getattr(request, key or field, None)
        if not has_it:
            missing.append(name)
    return missing
