"""Data that requests hand to callbacks (``cb_kwargs``, ``meta``, ...), and what of it varies between runs."""

from collections.abc import Collection, Iterator
from typing import Any, Final

from scrapy import Request

from scrapy_gp4c.crawling.cycle import Cycle
from scrapy_gp4c.crawling.requests import JAR, SHARED, TRANSIENT_META, Rebuilder, is_plugins
from scrapy_gp4c.foreign_text import counted, foreign_safe_logger
from scrapy_gp4c.page_state.page_names import page_url
from scrapy_gp4c.store.records import StoredRequest

logger = foreign_safe_logger(__name__)

MAX_VARYING: Final = 20
"""Most names of varying data that are remembered."""
MIN_STEADY: Final = 5
"""Fewest times that data had the value of the run before, for it to count as steady."""
MAX_REMEMBERED: Final = 100_000
"""Most pages with new data, and most shared objects, that are remembered."""
_OPTIONS: Final = (
    "dont_",
    "download_",
    "gp4c_",
    "handle_httpstatus_",
    "max_retry_times",
    "playwright",
    "splash",
    "zyte_api",
)
_NO_DATA: Final = frozenset({"cookiejar", "depth", "dumps_kwargs", "link_text"})
_FOR_SERVER: Final = ("cookies", "flags", "header ", "meta proxy", JAR)
_FIELDS: Final = frozenset({"attributes", "cookies", "flags", "cb_kwargs", "headers", "meta", "session"})
"""Fields of a stored request that may have data."""


def data_of(stored: StoredRequest) -> dict[str, Any]:
    """Return the data of a request for its callback or the server: name, such as ``meta price``, -> value.

    These may have other values in another run. Download options, such as ``playwright`` in ``meta``, are left
    out.
    """
    if not isinstance(stored, dict) or _FIELDS.isdisjoint(stored):
        return {}
    data: dict[str, Any] = {name: stored[name] for name in ("cookies", "flags") if stored.get(name)}
    parts = (stored.get(name) for name in ("cb_kwargs", "headers", "meta", "attributes"))
    cb_kwargs, headers, meta, attributes = (values if isinstance(values, dict) else {} for values in parts)
    data |= {f"cb_kwargs {name}": value for name, value in cb_kwargs.items()}
    data |= {f"attribute {name}": value for name, value in attributes.items() if not _is_option(name)}
    data |= {f"header {name}": value for name, value in headers.items() if name != "Referer"}
    for name, value in meta.items():
        if not isinstance(value, bool) and not _is_option(name):
            data[f"meta {name}"] = value
    if stored.get("session"):
        data[JAR] = meta.get("cookiejar")
    return data


def _is_option(name: str) -> bool:
    return name in _NO_DATA or name.startswith(_OPTIONS) or is_plugins(name)


def has_new_data(before: StoredRequest, now: StoredRequest) -> bool:
    """Whether a request's callback, or the data that it gets, differs; unstorable values count as new."""
    old, new = _data_for_callback(before), _data_for_callback(now)
    return (
        bool(new_data(before, now))
        or old.keys() != new.keys()
        or before.get("callback") != now.get("callback")
    )


def has_other_link(before: StoredRequest, now: StoredRequest) -> bool:
    """Whether the link to a page has another text (in meta) than before, or spells the URL otherwise."""
    old, new = (request.get("meta", {}).get("link_text") for request in (before, now))
    return old != new or before["url"] != now["url"]


def new_data(before: StoredRequest, now: StoredRequest) -> dict[str, Any]:
    """Return the data that a callback gets now and did not get before: name -> value.

    What the store cannot keep counts as new, with an object for its value that equals no other.
    """
    old = _data_for_callback(before)
    new = {name: value for name, value in _data_for_callback(now).items() if old.get(name) != value}
    for name in now.get("unstorable", ()):
        field, _, key = name.partition(" ")
        if field in ("cb_kwargs", "callback", "attribute") or (field == "meta" and not _is_option(key)):
            new[name] = object()  # equal to no other
    return new


def _data_for_callback(stored: StoredRequest) -> dict[str, Any]:
    """Return the data of a request that goes to its callback and not to the server: name -> value."""
    return {name: value for name, value in data_of(stored).items() if not name.startswith(_FOR_SERVER)}


def objects_of(values: dict[str, dict[str, Any]]) -> Iterator[tuple[str, str, Any]]:
    """Yield the mutable objects that a request hands to its callback: field, name and object.

    ``values``: the request's attributes ``cb_kwargs`` and ``meta``, by name.
    """
    for field in ("cb_kwargs", "meta"):
        for name, value in values[field].items():
            is_plain = isinstance(value, str | bytes | int | float | tuple | frozenset | None)
            if not (is_plain or name in TRANSIENT_META or _is_option(name)):
                yield field, name, value


class SharedObjects:
    """Memory of a run for objects, such as an item, that several requests hand to their callbacks.

    Scrapy passes them on without a copy, and the last callback often yields what all have filled: each has to
    run, whether its page changed or not.
    """

    def __init__(self) -> None:
        self._objects: dict[object, tuple[Any, str, set[int]]] = {}
        """Identity -> object, its `repr` when it was first seen, and the pages whose requests have it."""
        self._filled: set[object] = set()
        """Identities of objects that callbacks on fetchers have changed."""
        self._fetchers: dict[tuple[object, bytes], set[str]] = {}
        """Identity and version of an object -> fetchers whose callbacks had it."""

    def note(self, page: int, request: Request) -> None:
        """Note the objects that a request for `page` hands to its callback."""
        if len(self._objects) >= MAX_REMEMBERED:
            self._objects.clear()
            self._fetchers.clear()
        identities = request.meta.get(SHARED, {})
        for field, name, value in objects_of({"cb_kwargs": request.cb_kwargs, "meta": request.meta}):
            identity = identities.get((field, name), id(value))
            if identity not in self._objects:
                self._objects[identity] = value, repr(value), set()
            self._objects[identity][2].add(page)

    def note_use(self, identity: object, version: bytes, fetcher: str, is_filled: bool) -> bool:
        """Note that a callback on a fetcher had an object; returns whether two fetchers fill copies of it.

        ``identity``: of all copies; ``version``: digest of what was sent; ``is_filled``: by the callback.
        """
        if identity not in self._objects:
            return False
        if is_filled:
            self._filled.add(identity)
        fetchers = self._fetchers.setdefault((identity, version), set())
        fetchers.add(fetcher)
        return identity in self._filled and len(fetchers) > 1 and len(self._objects[identity][2]) > 1

    def pages(self) -> set[int]:
        """Return the pages whose callbacks have filled an object together with others."""
        groups = (
            pages
            for identity, (value, text, pages) in self._objects.items()
            if len(pages) > 1 and (identity in self._filled or repr(value) != text)
        )
        return set().union(*groups)


class RequestData:
    """Learns over several runs which data of requests varies, and warns where items were made of old data."""

    def __init__(self, cycle: Cycle, rebuilder: Rebuilder, extra: dict[str, Any]) -> None:
        """Read what earlier cycles have learned; ``extra``: fields for log lines."""
        self._cycle, self._extra = cycle, extra
        self._public_url, self._named_params = rebuilder.credentials.url, rebuilder.named_params
        self.varying = set(cycle.store.newest_value("varying_data", ()))
        """Names of data that the spider hands on with other values in other runs."""
        self._steady = dict(cycle.store.newest_value("steady_data", {}))
        """Name of data -> how often it had the value of the run before, up to `MIN_STEADY`."""
        self._outdated: dict[int, StoredRequest] = {}
        """Page queued by its stored request, with data that may be old -> that request."""
        self.shared = SharedObjects()
        self._handed: dict[int, Collection[str]] = {}
        """Page -> names of data that the spider's request of this run has with new values."""
        self._handed_values: dict[str, Any] = {}
        """Name of such data -> the value that all pages get; None: they get different ones."""

    def of(self, stored: StoredRequest) -> dict[str, Any]:
        """Return a request's data, with its ``URL`` if that has an ignored parameter, such as a token."""
        data, url = data_of(stored), stored["url"]
        return data if page_url(url, self._named_params) == url else data | {"URL": url}

    def note_queued(self, page: int, stored: StoredRequest) -> None:
        """Note that a page's stored request is queued, to warn of its data if the spider's differ later."""
        if self.of(stored):
            self._outdated[page] = stored

    def note_replaced(self, page: int, before: StoredRequest, now: StoredRequest) -> None:
        """Compare the spider's request of today with the stored one that it replaces."""
        data, is_same = self.of(now), now == before and "unstorable" not in now
        old_data = data if is_same else self.of(before)
        names = old_data.keys() & data.keys()
        self._count_steady({name for name in names if old_data[name] == data[name]})
        if is_same:
            return
        varying = {name for name in names if old_data[name] != data[name]}
        jars = [request.get("meta", {}).get("cookiejar") for request in (before, now)]
        if None not in jars and jars[0] != jars[1]:  # of the page that sets up the session, too
            varying.add(JAR)
        if not varying <= self.varying and len(self.varying) < MAX_VARYING:
            self.varying |= varying
            self._cycle.store.amend_record(varying_data=sorted(self.varying))
        handed = new_data(before, now)
        for name, value in handed.items():
            if self._handed_values.setdefault(name, value) != value:
                self._handed_values[name] = None
        if handed and len(self._handed) < MAX_REMEMBERED:
            self._handed[page] = handed.keys()

    def _count_steady(self, names: Collection[str]) -> None:
        steady = self._steady
        for name in names:
            if steady.get(name, 0) < MIN_STEADY and len(steady) < MAX_VARYING:
                steady[name] = steady.get(name, 0) + 1
                self._cycle.store.amend_record(steady_data=steady.copy())

    def warn(self) -> None:
        """Warn of visits with data of an earlier run, and of data of this run whose pages got no visit."""
        self._warn_of_outdated()
        self._warn_of_handed()

    def _warn_of_outdated(self) -> None:
        """Warn of visited pages whose callbacks got data of an earlier run that varies, or may vary."""
        cycle = self._cycle
        steady = {name for name, times in self._steady.items() if times >= MIN_STEADY} - self.varying
        doubted = {
            page: self.of(stored).keys() - steady
            for page, stored in self._outdated.items()
            if page not in cycle.requested and cycle.store.visited(page)
        }
        pages = [page for page, names in doubted.items() if names]
        if not pages:
            return
        cycle.stats.inc_value("gp4c/data_of_earlier_run", len(pages))
        names = set.intersection(*(doubted[page] for page in pages))
        logger.warning(
            "Of %s, %d got data of an earlier run (%s), and no request of the spider in this run. The "
            'first is %s. Give the requests of the pages that hand it on meta={"gp4c_max_age": 1}: then each '
            "cycle visits these. What the start hands on, it has to yield in every run.",
            counted(cycle.recorded, "visited page"),
            len(pages),
            ", ".join(sorted(names)) or "of several names",
            self._public_url(self._outdated[pages[0]]["url"]),
            extra=self._extra,
        )

    def _warn_of_handed(self) -> None:
        """Warn of pages whose requests of today had new data, and which were not visited: items are old."""
        store = self._cycle.store
        of_pages = {name for name, value in self._handed_values.items() if value is None}  # no date of today
        pages = [
            page
            for page, names in self._handed.items()
            if not of_pages.isdisjoint(names) and not store.visited(page)
        ]
        if not pages:
            return
        self._cycle.stats.inc_value("gp4c/handed_and_not_visited", len(pages))
        logger.warning(
            "%s new data (%s) and no visit in this cycle: what a callback would make of it is missing. "
            "The first is %s. If an item is made of several pages, "
            'give the further requests meta={"gp4c": False}; else raise GP4C_BUDGET, or yield the item where '
            "the data is.",
            counted(len(pages), "known page got", "known pages got"),
            ", ".join(sorted(of_pages)[:MAX_VARYING]),
            self._public_url(store.request(pages[0])["url"]),
            extra=self._extra,
        )
