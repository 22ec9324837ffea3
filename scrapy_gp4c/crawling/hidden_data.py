"""Hidden data, which callbacks read and the compared text lacks: in attributes, scripts, headers, the spider.

The body of an unchanged page may differ from its copy's by an item's data, or by a token. The spider may have
another exchange rate than in the run before, or a counter. Whether that matters, only the items show. So the
callback runs for some such pages, and its items are compared with those that it made before. From the first
other item on, it runs for each such page.
"""

import ast
import inspect
import re
import sys
import time
from collections import Counter, deque
from collections.abc import Collection
from functools import lru_cache
from typing import Any, Final
from zlib import crc32

from itemadapter import ItemAdapter, is_item
from scrapy import Spider
from scrapy.http import Response

from scrapy_gp4c.crawling.fetched import Judgement
from scrapy_gp4c.fingerprint.copy_notes import unpack
from scrapy_gp4c.store.opening import Store
from scrapy_gp4c.store.records import StoredRequest

BODY: Final = "body"
HEADERS: Final = "headers"
LINK: Final = "link"
"""Hidden data: the text of the link to a page, or the spelling of its URL."""
SPIDER: Final = "spider"
"""Hidden data: attributes of the spider."""
_OF_SCRAPY: Final = frozenset(("crawler", "settings", "name", "start_urls", "state"))
MAX_ATTRIBUTES: Final = 50
"""Most attributes of a spider that are remembered."""
PAUSE: Final = 20
"""Pause between two checks of the spider's attributes, in durations of the last: large tables take long."""
TRIALS: Final = 10
"""Number of runs of a callback, with the same items as before, after which a difference is ignored."""
PROBES: Final = 2
"""Number of runs in each later cycle, after `TRIALS`: the site may have changed."""
MAX_CALLBACKS: Final = 100
NO_ITEMS: Final = 1
"""Checksum of a visit without items; 0: the items are not known."""
_volatile: Final = re.compile(
    rb"age|alt-svc|cf-|connection|content-length|content-security|date|etag|expires|keep-alive|nel|report"
    rb"|server|set-cookie|transfer|vary|via|x-amz|x-cache|x-served|x-timer|.*(?:\bid|nonce|rate-?limit|request"
    rb"|time|trace)",
    re.IGNORECASE,
).match
"""Response headers that say nothing of a page, or differ from answer to answer."""


class HiddenData:
    """Decides whether callbacks run if only hidden data changed, by the items that came of it so far."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._trials: dict[str, list[int]] = dict(store.newest_value("hidden_data", {}))
        """Part of an answer, and callback -> numbers of its runs with the same items and with others."""
        self._probes: Counter[str] = Counter()
        self.trials: dict[int, str] = {}
        """Page under way -> why its callback runs whatever the answer is: `LINK` or `SPIDER`."""
        self.linked: set[int] = set()
        """Pages whose link has another text or spelling than in the run before."""
        self._before = dict(store.newest_value("spider_sums", {}))
        self._first: dict[str, int] | None = None
        self._due_s = 0.0
        self._is_other = False
        self.edited_cycle = 0
        """First cycle with the spider's code of now."""

    def note_code(self, spider: Spider, cycle: int) -> bool:
        """Compare the spider's code with that of the last run, and store that; returns whether it is new."""
        now = _code_sum(spider)
        before, self.edited_cycle = self._store.newest_value("code", (0, 0))
        is_edited = before not in (0, now) and now != 0
        if is_edited:
            self.edited_cycle = cycle
        if now not in (0, before):
            self._store.amend_record(code=[now, self.edited_cycle])
        return is_edited

    def parts(self, stored: StoredRequest) -> list[str]:
        """Return the parts (`BODY`, `HEADERS`) whose difference lets the callback of `stored` run."""
        return [part for part in (BODY, HEADERS) if self._may_run(_name(part, stored))]

    def try_callback(self, page: int, stored: StoredRequest, spider: Spider) -> None:
        """Put a page into `trials`, so that its callback runs, if its link's text or the spider differs."""
        packed = self._store.value("copies", page)
        if packed is None or unpack(packed).item_sum <= NO_ITEMS:
            return
        if page in self.linked and self._may_run(_name(LINK, stored)):
            self.trials[page] = LINK
        elif self._may_run(name := _name(SPIDER, stored)) and (
            self._trials.get(name, (0, 0))[1] or self._has_other_spider(spider)
        ):
            self.trials[page] = SPIDER

    def _has_other_spider(self, spider: Spider) -> bool:
        """Whether the spider has other attributes than at the beginning and end of the run before."""
        begun_s = time.perf_counter()
        if begun_s >= self._due_s:
            now = _attribute_sums(spider)
            self._first = now if self._first is None else self._first
            self._is_other = any(value not in self._before.get(name, ()) for name, value in now.items())
            end_s = time.perf_counter()
            self._due_s = end_s + PAUSE * (end_s - begun_s)
        return self._is_other

    def keep_spider(self, spider: Spider) -> None:
        """Store checksums of the spider's attributes, of this run's first visit and of now."""
        last = _attribute_sums(spider)
        first = last if self._first is None else self._first
        sums = {name: sorted({first.get(name, value), value}) for name, value in last.items()}
        if sums != self._before:
            self._store.amend_record(spider_sums=sums)

    def _may_run(self, name: str) -> bool:
        same, others = self._trials.get(name, (0, 0))
        return others > 0 or same < TRIALS or self._probes[name] < PROBES

    def note(self, stored: StoredRequest, part: str, *, is_same: bool) -> None:
        """Note whether a callback that ran because `part` differed made the same items as before.

        ``stored``: the page's request, which names the callback.
        """
        name = _name(part, stored)
        same, others = self._trials.get(name, (0, 0))
        self._probes[name] += 1
        if others or (is_same and same >= TRIALS) or len(self._trials) >= MAX_CALLBACKS:
            return
        self._trials[name] = [same + is_same, others + (not is_same)]
        self._store.amend_record(hidden_data=self._trials.copy())


def _attribute_sums(spider: Spider) -> dict[str, int]:
    """Return checksums of a spider's attributes, but for Scrapy's own, and collections (lists, sets)."""
    attributes = [
        (name, value)
        for name, value in vars(spider).items()
        if not (name in _OF_SCRAPY or callable(value) or isinstance(value, list | set | deque))
    ]
    return {name: item_sum(value) for name, value in attributes[:MAX_ATTRIBUTES]}


def _code_sum(spider: Spider) -> int:
    """Return the checksum of a spider's modules, without comments, and its link rules; 0: not known."""
    kinds = [kind for kind in type(spider).__mro__ if not kind.__module__.startswith(("builtins", "scrapy."))]
    modules = dict.fromkeys(kind.__module__ for kind in kinds)
    try:
        sources = [inspect.getsource(sys.modules[module]) for module in modules]
        trees = [ast.dump(ast.parse(source)) for source in sources]
    except (OSError, TypeError, SyntaxError, KeyError):
        return 0
    domains = sorted(map(str, getattr(spider, "allowed_domains", None) or ()))
    limits = domains, spider.settings.getint("DEPTH_LIMIT")
    return crc32(repr(([kind.__qualname__ for kind in kinds], trees, limits)).encode()) or 1


def _name(part: str, stored: StoredRequest) -> str:
    return f"{part} {stored.get('callback')} {stored.get('rule')}"


def different_part(
    packed: bytes, judgement: Judgement, response: Response, parts: Collection[str]
) -> str | None:
    """Return the first of `parts` in which the answer of an unchanged page differs from the copy's.

    None: it differs in none. ``packed``: notes of the page's copy; ``parts``: as by `HiddenData.parts`.
    """
    before = unpack(packed)
    if before.item_sum <= NO_ITEMS:  # the links are compared
        return None
    now = before if judgement.is_known or judgement.notes is None else unpack(judgement.notes)
    if now.body_sum != before.body_sum:
        return BODY if BODY in parts else None
    is_same = before.header_sum in (0, header_sum(response))
    return HEADERS if HEADERS in parts and not is_same else None


def header_sum(response: Response) -> int:
    """Return the checksum of headers that may be data, and of the URL after redirects, 16 bits, never 0."""
    lines = sorted((name, values) for name, values in response.headers.items() if not _volatile(name))
    return crc32(repr((response.url, lines)).encode()) & 0xFFFF or 1


def item_sum(item: Any) -> int:
    """Return the checksum of an item, without times within a day of now, when it may have been made."""
    text = repr(ItemAdapter(item).asdict() if is_item(item) else item)
    now_s = time.time()
    text = _times_of(int(now_s // 86_400), int(now_s // 100_000)).sub("", text)
    return crc32(text.encode("utf-8", "replace"))


@lru_cache(1)
def _times_of(day: int, prefix: int) -> re.Pattern[str]:
    """Return the pattern of memory addresses (``0x7f...``) and of times within a day of now.

    ``day``: days since 1970; ``prefix``: first digits of the seconds since 1970.
    """
    dates = [time.gmtime(86_400 * (day + other))[:3] for other in (-1, 0, 1)]
    iso = "|".join(f"{year}-{month:02}-{date:02}" for year, month, date in dates)
    parts = "|".join(f"{year}, {month}, {date}" for year, month, date in dates)
    return re.compile(
        rf"(?:{iso})[T ]?[\d:.,+Z]*|\((?:{parts})[^)]*\)|\b{prefix}\d{{5,}}[\d.]*| at 0x[0-9a-f]+"
    )
