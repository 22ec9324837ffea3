"""Admission of requests: each is a new page's, a known page's visit, dropped, or left to Scrapy.

A request is *skipped* (dropped, and those of equal ``name``, URL or page key) if its page needs no visit now.
A page is *restored* if the spider's own request of this run has replaced its stored one. A *finder* is the
page whose callback yielded a request. *Wishes* are what a request's meta says of its page: weight, promises,
tag. A *twin* of a new URL is a planned page that may have moved there.
"""

import dataclasses
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from time import monotonic
from typing import Any, Final, NamedTuple

import numpy as np
from scrapy import Request, Spider
from scrapy.crawler import Crawler
from scrapy.statscollectors import StatsCollector

from scrapy_gp4c.crawling.cycle import Cycle, VisitInfo
from scrapy_gp4c.crawling.promises import has_promise
from scrapy_gp4c.crawling.request_data import RequestData, data_of, has_new_data, has_other_link
from scrapy_gp4c.crawling.requests import (
    FETCH_NOTES,
    FOLLOWS,
    FOUND_BY,
    JAR,
    META,
    NEEDS_CALLBACK,
    PASSED,
    SHARED,
    UNKNOWN_FINDER,
    WEIGHT,
    WISHES,
    Claim,
    Rebuilder,
    finder_of,
    is_opted_out,
    is_page_request,
)
from scrapy_gp4c.crawling.scrapy_internals import has_started, under_way
from scrapy_gp4c.fingerprint.copy_notes import with_sums
from scrapy_gp4c.foreign_text import counted, foreign_safe_logger
from scrapy_gp4c.page_state.groups import place_of_url
from scrapy_gp4c.page_state.page_names import head_and_path, ignored_names, other_ends
from scrapy_gp4c.page_state.rules import STORED_META, contradiction, read_span, read_tag, span_in_meta
from scrapy_gp4c.scoring.discovery import START
from scrapy_gp4c.scoring.first_visits import COUNTED, bit_of
from scrapy_gp4c.scoring.weights import read_weight
from scrapy_gp4c.search.queries import Workload, read_query_log
from scrapy_gp4c.store.records import LastAnswer, StoredRequest

logger = foreign_safe_logger(__name__)

MAX_REMEMBERED: Final = 100_000
"""Most entries of each memory of `Admission`, such as pages whose next request is skipped: about 20 MB."""
MAX_OFFERED: Final = 10_000
"""Most requests kept that only the spider can make, for pages that a later round may plan."""
MAX_START_PAGES: Final = 16
"""Most start pages whose callbacks are waited for before the plan begins."""
MAX_PATH_RETURNS: Final = 5
"""Most redirects of a visit to one path, with other queries, that are followed."""
MAX_REDIRECTS: Final = 10
"""Most redirects of a visit that are followed, as by Googlebot (developers.google.com: How HTTP status codes
affect Google's crawlers)."""
MAX_LOGIN_PAGES: Final = 3
"""Most pages on the way from the spider's start to a login."""
MAX_CLOSERS: Final = 100
"""Most remembered pages whose callbacks close the spider."""
RECENT_PAGES: Final = 1_000
"""Number of a full store's last pages: the warning names their most frequent directory."""
MIN_SPELLINGS: Final = 3
"""Number of dropped requests of one callback, equal but for ignored parameters, that brings a warning."""
MAX_UNCOUNTED: Final = 100
"""Most duplicates that are not in the statistics yet, see `Admission.count_duplicates`."""
# Statistics of requests that are dropped, and of those that are fetched as without the add-on.
DUPLICATE: Final = "gp4c/skipped/duplicate"
NOT_PLANNED: Final = "gp4c/skipped/not_planned"
POSTPONED: Final = "gp4c/skipped/new_page_postponed"
TOO_MANY: Final = "gp4c/skipped/too_many_pages"
TRAPPED: Final = "gp4c/skipped/trap"
SECRET_NOT_GIVEN: Final = "gp4c/secret_not_given"
NEVER: Final = "gp4c/skipped/never"
FROM_CACHE: Final = "gp4c/from_cache"
"""Statistic of responses that came from Scrapy's HTTP cache."""
NO_DOWNLOAD: Final = "gp4c/no_download"
"""Statistic of placeholders of page objects."""
TAG: Final = "gp4c_tag"

Enqueue = Callable[["Request"], bool]
"""Scrapy's own queue: False when its duplicate filter drops the request."""


def log_first(
    stats: StatsCollector,
    name: str,
    line: str,
    extra: dict[str, Any],
    level: int = logging.INFO,
    count: int = 1,
) -> None:
    """Add `count` to Scrapy's statistic `name`, and log `line` if it is the first time in the run."""
    if not stats.get_value(name):
        logger.log(level, "%s (Further ones: stat %s)", line, name, extra=extra)
    stats.inc_value(name, count)


def secret_not_given(stored: StoredRequest) -> str:
    """Return the log line for the first page whose request has secrets that only the spider knows."""
    return (
        f"{stored['url']} is visited in cycles whose plan has it, when the spider asks for it: the store "
        f"does not keep what is secret ({', '.join(stored.get('lacks', ()))}). Give it in a method "
        "gp4c_request(request) of the spider, or take out of GP4C_SECRET_PARAMS what is not secret."
    )


def asked_too_late(stored: StoredRequest) -> str:
    """Return the log line for a page sent as stored before the spider requested it with other data."""
    return (
        f"{stored['url']} was sent with the arguments that the store has before the spider asked for it with "
        "others: its items have data of an earlier run. A policy that takes samples cannot wait for the "
        'spider; set GP4C_POLICY = "top_k", or let the start yield the page.'
    )


class SetupRequests:
    """The first requests of a spider, such as a login, for which the plan waits, callbacks included.

    Planned pages may need the session that those requests set up, or what a callback has kept. Once they are
    through, the plan is never held back again. Nothing is sent before the start has yielded a request.
    """

    def __init__(self, crawler: Crawler, cycle: Cycle, patience_s: float) -> None:
        """Take the crawler, whose engine knows which requests are under way.

        ``patience_s``: longest wait, s, for a start that yields nothing, and for pages that are no login.
        """
        self._crawler = crawler
        self._cycle = cycle
        self._waits_for_pages = cycle.rounds[1] is not None  # a policy that samples needs its answers at once
        self._until_s = monotonic() + patience_s
        self._queued = 0  # not a set: a request comes back from the disk queue as another object
        self._sent: set[Request] = set()
        self._pages: dict[int, bool] = {}
        """Page of the start -> whether it leads to a login."""
        self._over = False
        self.has_begun = False
        """Whether the spider has made a request."""

    def queued(self) -> None:
        """Note that a request that is no visit, such as a POST, was queued."""
        self._queued += 1

    def add_page(self, page: int, *, is_login: bool) -> None:
        """Wait for a page too: it leads to a login (`is_login`), or the start asks for it."""
        if is_login or (self._waits_for_pages and len(self._pages) < MAX_START_PAGES):
            self._pages[page] = is_login

    def left_queue(self, request: Request) -> None:
        """Note that a request that is no visit, such as a POST, goes to the downloader."""
        if not self._over:
            self._sent.add(request)
        self._queued = max(0, self._queued - 1)

    def forget_queued(self) -> None:
        """Wait no longer for queued requests, as the queue has lost them."""
        self._queued = 0

    def is_over(self) -> bool:
        """Whether the plan may begin: all first requests of the spider have ended, or took too long."""
        if not self._over:
            self._sent.intersection_update(under_way(self._crawler))
            is_late = monotonic() > self._until_s
            has_begun = self.has_begun or is_late or has_started(self._crawler)
            pages = [page for page, is_login in self._pages.items() if is_login or not is_late]
            self._over = has_begun and not (self._queued or self._sent or any(map(self._is_ahead, pages)))
        return self._over

    def _is_ahead(self, page: int) -> bool:
        """Whether a request of a page's visit is queued, sent or held.

        If not, a middleware has dropped it, which Scrapy tells nobody.
        """
        claims = (request.meta.get(META) for request in under_way(self._crawler))
        is_sent = any(isinstance(claim, Claim) and claim.page == page for claim in claims)
        return is_sent or self._cycle.is_queued(page) or page in self._cycle.held


MAX_PAGES: Final = 100_000_000
"""Most pages of a store: beyond them, no new page is remembered or fetched."""


_KEPT_IN_PART: Final = frozenset(("unstorable", "session"))
"""Fields of stored requests of which the store keeps a part, so that plans wait for the spider's request."""


class _Asked(NamedTuple):
    """A request that asks for a page."""

    request: Request
    name: str | int
    """Its URL, or the page's key where URLs do not suffice: equal requests have equal names."""
    key: int
    """Key of the page."""
    finder: int
    is_login: bool
    """Whether the page leads to a login."""
    is_duplicate: bool
    """Whether the project's own duplicate filter calls it a duplicate."""
    is_further: bool
    """Whether it is to be sent though the page has another request: ``dont_filter``, or by the own filter."""


class Admission:
    """Decides about each request of a run.

    A plain GET to an unknown page is a new page; to a known page it is admitted if the plan has it, or if
    only the spider can make it, and dropped otherwise. The spider's first request for a page in a run is how
    the page is requested from now on: it replaces the stored one, and the one in the queue. All else (POST,
    ``meta={"gp4c": False}``, retries, redirects) is Scrapy's as ever.
    """

    def __init__(
        self, cycle: Cycle, rebuilder: Rebuilder, setup: SetupRequests, spider: Spider, enqueue: Enqueue
    ) -> None:
        settings = cycle.settings
        self._extra = {"spider": spider}
        self._cycle = cycle
        self.rebuilder = rebuilder
        self.data = RequestData(cycle, rebuilder, self._extra)
        self._setup = setup
        self._enqueue = enqueue
        self._stats = cycle.stats
        # Names of requests below are URLs, which cost less, or page keys where URLs do not suffice.
        self._by_url_alone = rebuilder.by_url_alone
        self._duplicates: set[str | int] = set()
        """Requests of pages that the cycle visits: equal ones are skipped, whatever is planned later."""
        self._uncounted = 0
        """Number of duplicates that are not in the statistics yet."""
        self._settled: dict[str | int, str] = {}
        """Skipped requests -> statistic that counts them: equal requests are skipped until the next round."""
        self._unplanned: dict[str, int] = {}
        """URL -> its page, which no round has planned so far."""
        self.restored: set[int] = set()
        """Pages whose stored request is the spider's of this run."""
        self.offered: dict[int, Request] = {}
        """Page -> its request of this run, which only the spider can make; a later round may send it."""
        self._todays: dict[int, Request] = {}
        """Page in the queue -> the spider's request of this run, which is sent instead."""
        self._start_heads: set[str] | None = None
        """Schemes and hosts of the pages that the start has asked for; None: not read yet."""
        self.waiting_for_twins: list[tuple[int, Request]] = []
        """Requests for unknown URLs to which planned pages may have moved: see `_waits_for_twin`."""
        self._may_wait = True
        self._copies: dict[int, list[Request]] = {}
        """Page that a later round may plan -> further requests of the spider for it."""
        self._unfiltered: set[int] = set()
        """Pages that this run has only requested with ``dont_filter``, unknown to Scrapy's own filter."""
        self.requests_elsewhere = 0
        """Number of requests that neither the start nor a callback has yielded, but an errback or a queue."""
        self._has_start_pages = self._has_forgotten = False
        self._is_promised = cycle.store.newest_value("promised", None) is not None
        self._logins: set[int] = set(cycle.store.newest_value("logins", ()))
        """Keys of the pages by which the spider comes to its first POST."""
        keys = cycle.store.newest_value("closers", ())
        self.closers = {page for key in keys if (page := cycle.store.find(key)) is not None}
        """Pages whose callbacks have closed the spider, which are visited after all others."""
        self._closing: set[int] = set()
        self._has_posted = False
        self._skips_unchanged = settings.skip_unchanged
        self._spellings: Counter[tuple[int, int]] = Counter()
        """Page and finder -> requests of its callback dropped for other values of ignored parameters."""
        self._followers: set[int] = set()
        """Pages whose callbacks have followed links in this run."""
        self._may_log_in, self._cookies = True, 0
        self._finders: dict[int, int] = {}
        """First new pages of the run -> their finders, which the store has from the end of the cycle on."""
        self._is_seen: Callable[[Request], bool] | None = None
        function = cycle.settings.new_page_function
        read = () if function is None else COUNTED if function.callable else function.columns
        self._counts_links = not set(COUNTED).isdisjoint(read)
        self._links: set[tuple[int, int]] = set()
        """Noted links, as linked page and finder, so that a link on several pages of a list counts once."""
        self._secret_keys: dict[int, int] = {}
        """Key of a page that was asked for with secrets in its URL -> key of that request with them."""
        self._memories: tuple[set[Any] | dict[Any, Any], ...] = (
            self._duplicates, self._settled, self._unplanned, self.restored, self.offered, self._copies,
            self._secret_keys, self._links, self._followers, self._unfiltered, self._spellings,
        )  # fmt: skip

    def use_filter(self, is_seen: Callable[[Request], bool]) -> None:
        """Let a project's own duplicate filter say which requests for one page are duplicates.

        Without it the page's key does, as Scrapy's filter goes by the same fingerprint.
        """
        self._is_seen, self._by_url_alone = is_seen, False

    def offer_again(self, requests: Mapping[int, Request | None]) -> None:
        """Keep requests of pages, as they were before redirects, as the store may lack a part of them."""
        for page, request in requests.items():
            if request is None:
                continue
            url = (request.meta.get("redirect_urls") or [request.url])[0]
            meta = {name: value for name, value in request.meta.items() if name not in FETCH_NOTES}
            self.offered[page] = request.replace(url=url, meta=meta)

    def pages_of_earlier_start(self) -> list[int]:
        """Return visited start pages that this run's start did not request; [] if it requested none."""
        if self._has_forgotten or not self._has_start_pages:
            return []
        visited = np.unique(self._cycle.store.open_visits()["page"])
        starts = visited[self._cycle.finders(visited.tolist()) == START].tolist()
        return [one for one in starts if one not in self.restored and one not in self._cycle.requested]

    def forget_settled(self) -> None:
        """Forget which requests were skipped because no visit was planned, as a further round is planned."""
        self._settled.clear()

    def skips(self, request: Request) -> bool:
        """Whether a request is equal, by its URL alone, to a skipped one; if so, it is counted as skipped."""
        return (
            self._by_url_alone
            and request.meta.get(META) is None
            and WISHES.isdisjoint(request.meta)
            and is_page_request(request)
            and self._is_settled(request, request.url)
        )

    def unsettled(self, shared: dict[str, Any], urls: list[str]) -> Iterator[str]:
        """Yield those of a fetcher's requests, by their `urls`, that equal no skipped one; count the rest.

        ``shared``: fields that all the requests have, besides the URL, without defaults.
        """
        may_skip = (
            self._by_url_alone
            and shared.keys().isdisjoint(("method", "body", "dont_filter"))
            and shared.get("meta", {}).keys().isdisjoint((META, *WISHES))
        )
        for url in urls:
            if not (may_skip and self._is_known(url)):
                yield url

    def admit(self, request: Request) -> bool:
        """Queue or drop a request, which may be no page's; returns whether it was queued."""
        mark, weight = request.meta.get(META), None
        if isinstance(mark, Claim) and self._cycle.is_under_way(mark):
            return self._queue_again(request, mark)
        if isinstance(mark, VisitInfo) and (reopened := self._cycle.reopen(mark, request)) is not None:
            return self._queue_again(request, reopened)
        self._setup.has_begun = True
        self.requests_elsewhere += FOUND_BY not in request.meta
        if mark == PASSED or not is_page_request(request):
            return self._queue_untouched(request)
        if WEIGHT in request.meta:
            weight = self._weight_of(request)
        has_wishes = self._check_wishes(request)
        if self._skips_unchanged:
            self.note_follower(finder_of(request, self._cycle.store))
        # Saves a fingerprint, but not where the request has notes for its page.
        has_notes = weight is not None or has_wishes
        if not has_notes and self._by_url_alone and self._is_settled(request, request.url):
            return False
        return self._admit_page(request, weight, has_wishes)

    def _queue_again(self, request: Request, claim: Claim) -> bool:
        """Queue a retry or redirect of a visit under way, outside the budget; False: the visit has ended."""
        claim = dataclasses.replace(claim, host=None)
        urls = list(request.meta.get("redirect_urls", ()))
        returns = urls.count(request.url)
        path_returns = [url.partition("?")[0] for url in urls].count(request.url.partition("?")[0])
        is_endless = len(urls) > MAX_REDIRECTS or path_returns >= MAX_PATH_RETURNS
        if returns < 2 and path_returns > 0 and not is_endless and self._leads_back(request, urls):
            request.dont_filter = True  # it may have set a cookie
        elif returns or is_endless:  # Scrapy would follow 20 times
            url = self.rebuilder.credentials.url(urls[0])
            line = f"{url} redirects to itself, or without end: its visit is an error."
            self._log_first("gp4c/redirects_to_itself", line, logging.WARNING)
            self._cycle.note_endless_redirect(claim.page, request)
            answer = LastAnswer(error="redirects to itself, or without end")
            request.meta[META] = self._cycle.end(claim, "error", answer=answer)
            return False
        if self.queue_claim(request, claim):
            self._cycle.back_in_queue(claim)
            return True
        # Scrapy drops a redirect onto a URL it has already seen, without a signal.
        request.meta[META] = self._cycle.end(claim, "excluded")
        return False

    def _leads_back(self, request: Request, urls: Iterable[str]) -> bool:
        """Whether a redirect leads to a page that its visit has already requested by one of `urls`."""
        key = self.rebuilder.keys(request)[0]
        return any(self.rebuilder.keys(request.replace(url=url))[0] == key for url in urls)

    def _queue_untouched(self, request: Request, *, is_filtered: bool = True) -> bool:
        if request.method == "POST" and not self._has_posted:
            self._has_posted = True
            self._note_login(request)
        self._note_needed_callback(request)
        request.meta[META] = False if is_opted_out(request) else PASSED
        queued = self._enqueue(request) if is_filtered else self._enqueue_unfiltered(request)
        if queued:
            self._setup.queued()
            self._cycle.child_queued(finder_of(request, self._cycle.store) - 1)
        return queued

    def _note_needed_callback(self, request: Request) -> None:
        """Note that a page's callback yielded `request`, which no plan can make: a POST, or one with data.

        With ``GP4C_SKIP_UNCHANGED`` that callback runs from now on for an unchanged page, too.
        """
        finder = finder_of(request, self._cycle.store)
        if finder not in (UNKNOWN_FINDER, START):
            self.need_callback(finder - 1, "always")

    def need_callback(self, page: int, how: str) -> None:
        """Let the callback of a page run though the page did not change; ``how``: ``always`` or ``once``."""
        stored = self._cycle.store.request(page)
        if self._cycle.settings.skip_unchanged and stored.get(NEEDS_CALLBACK) not in (how, "always"):
            self._cycle.store.set_request(page, {**stored, NEEDS_CALLBACK: how})

    def _note_objects(self, page: int, request: Request) -> None:
        if self._skips_unchanged or SHARED in request.meta:
            self.data.shared.note(page, request)

    def need_shared_callbacks(self) -> None:
        """Let callbacks that fill one item together always run, as the item needs each of them."""
        for page in self.data.shared.pages():
            self.need_callback(page, "always")

    def note_close(self, page: int) -> bool:
        """Note that a page's callback closes the spider; returns whether it did so in an earlier cycle."""
        self._closing.add(page)
        return page in self.closers

    def keep_closers(self) -> None:
        """Store the pages whose callbacks close the spider; earlier ones only if they got no visit now."""
        store = self._cycle.store
        closers = self._closing | {page for page in self.closers if not store.visited(page)}
        if closers != self.closers:
            keys = sorted(store.page(page).key for page in sorted(closers)[:MAX_CLOSERS])
            store.amend_record(closers=keys)

    def note_follower(self, finder: int) -> None:
        """Note that the callback of `finder` follows links, so that it also runs if only links changed."""
        page = finder - 1
        if not self._skips_unchanged or finder in (UNKNOWN_FINDER, START) or page in self._followers:
            return
        self._followers.add(page)
        store, held = self._cycle.store, self._cycle.held.get(page)
        stored, notes = store.request(page), store.value("copies", page)
        if FOLLOWS not in stored:
            store.set_request(page, {**stored, FOLLOWS: True})
        if held is not None and notes is not None and (markup_sum := held.markup_sum()):
            store.put_value("copies", page, with_sums(notes, markup_sum=markup_sum))

    @cached_property
    def _query_log(self) -> Workload | None:
        path = self._cycle.settings.query_log
        return None if path is None else read_query_log(path)

    def _note_link(self, page: int, finder: int, request: Request, statistic: str) -> bool:
        """Skip a request for a page without a visit so far, and note the link; returns False for `admit`."""
        store = self._cycle.store
        self._stats.inc_value(statistic)
        if finder not in (UNKNOWN_FINDER, START) and (page, finder) not in self._links:
            self._links.add((page, finder))
            site = place_of_url(store.request(finder - 1)["url"]).site_key
            store.note(page, "link", bit_of(store.page(finder - 1).key))
            store.note(page, "link_site", bit_of(site))
        text = request.meta.get("link_text")  # a rule of Scrapy's CrawlSpider sets it
        if isinstance(text, str) and (log := self._query_log) and (share := log.asked_share(text)):
            store.note(page, "anchor", share)
        return False

    def _note_login(self, request: Request, what: str = "first POST") -> None:
        """Store the pages that led from the spider's start to `request`, which may be a login.

        The spider visits them in every run, and before the plan, as without them it would have no session.
        ``what``: words for the request in the log.
        """
        keys = self._way_to(request)
        if not keys:
            return
        if not self._logins.issuperset(keys):
            url = self.rebuilder.credentials.url(request.url)
            line = (
                f"The way to the {what}, {url}, may be a login: "
                f"{counted(len(keys), 'page of it is', 'pages of it are')} visited in every cycle, "
                'before the others. Requests with meta={"gp4c": False} are left alone.'
            )
            self._log_first("gp4c/leads_to_login", line)
        self._logins.update(keys)
        self._cycle.store.amend_record(logins=sorted(self._logins))

    def _way_to(self, request: Request) -> list[int]:
        """Return keys of the pages by which the start led to a request; [] above `MAX_LOGIN_PAGES`."""
        store, finder, keys = self._cycle.store, finder_of(request, self._cycle.store), list[int]()
        while finder not in (UNKNOWN_FINDER, START) and len(keys) < MAX_LOGIN_PAGES:
            page = store.page(finder - 1)
            keys.append(page.key)
            finder = page.found_by or self._finders.get(finder - 1, UNKNOWN_FINDER)
        return keys if finder == START else []

    def _note_session(self, request: Request) -> None:
        """Treat the run's first pages as a login if all of them led to `request` and new cookies came."""
        ended, cookies = self._cycle.ended_visits, self.rebuilder.count_cookies()
        self._may_log_in = ended <= MAX_LOGIN_PAGES
        if cookies > self._cookies and not self._cycle.is_busy:
            keys = self._way_to(request)
            if len(keys) == ended and self._logins <= set(keys):
                self._note_login(request, "first page with cookies")
        self._cookies = cookies

    def _admit_page(self, request: Request, weight: float | None, has_wishes: bool) -> bool:
        self._bound_memories()
        for note in FETCH_NOTES & request.meta.keys():  # copied from the meta of another page
            del request.meta[note]
        key, full_key = self.rebuilder.keys(request)
        if full_key != key and self._is_other_secret(key, full_key, request):
            return self._queue_untouched(request)
        name = request.url if self._by_url_alone else key
        has_notes = weight is not None or has_wishes
        if not (has_notes or self._by_url_alone or self._is_seen) and self._is_settled(request, name):
            return False
        is_duplicate = self._is_seen is not None and not request.dont_filter and self._is_seen(request)
        is_further = request.dont_filter or (self._is_seen is not None and not is_duplicate)
        page = self._find_page(request, key, full_key)
        if page is None and self._by_url_alone and self._waits_for_twin(request):
            return False
        finder = finder_of(request, self._cycle.store)
        if self._may_log_in:
            self._note_session(request)
        self._has_start_pages |= finder == START
        asked = _Asked(request, name, key, finder, key in self._logins, is_duplicate, is_further)
        if page is None:
            return self._admit_new(asked, weight)
        self._note_asked(page, asked, weight, has_wishes)
        if self._cycle.is_claimed(page):
            return self._admit_claimed(page, asked)
        return self._admit_known(page, asked)

    def _bound_memories(self) -> None:
        for memory in self._memories:
            if len(memory) >= MAX_REMEMBERED:
                memory.clear()
                self._has_forgotten = True

    def _find_page(self, request: Request, key: int, full_key: int) -> int | None:
        """Return the known page that a request asks for; ``key``, ``full_key``: without and with secrets."""
        store = self._cycle.store
        page = self._unplanned.get(request.url)
        if page is None:
            page = store.find(key)
        if page is None and full_key != key:  # the parameter was no secret when the page was found
            page = store.find(full_key)
        return self._page_before_move(request) if page is None and self._by_url_alone else page

    def _note_asked(self, page: int, asked: _Asked, weight: float | None, has_wishes: bool) -> None:
        store = self._cycle.store
        if asked.finder == START and store.page(page).found_by == UNKNOWN_FINDER:
            store.note(page, "found_by", START)  # an imported page: only now its finder is known
        self._note_weight(page, weight)
        if has_wishes:
            self._note_wishes(page, asked.request)
        self._note_objects(page, asked.request)

    def _read_request(self, request: Request) -> tuple[StoredRequest, bool]:
        """Return the stored form of a request, and whether it lacks secrets that only the spider has."""
        stored = self.rebuilder.stored(request)
        if "unstorable" in stored:
            self._log_first("gp4c/not_storable", _not_storable(stored))
        is_bare = "unstorable" not in stored and not data_of(stored).keys() - {JAR}
        needs_spider = self.rebuilder.needs_spider(stored)
        if request.dont_filter or not is_bare or needs_spider:
            self._note_needed_callback(request)
        return stored, needs_spider

    def _admit_new(self, asked: _Asked, weight: float | None) -> bool:
        """Add a page to the store, and queue its first visit if the cycle has room for it."""
        cycle, store, request, finder = self._cycle, self._cycle.store, asked.request, asked.finder
        stored, needs_spider = self._read_request(request)
        if (statistic := self._limit_reached(stored, request, finder, asked.is_duplicate)) is not None:
            return self._skip(asked.name, statistic)
        rule = cycle.rules.note_new(stored)
        if rule.never:
            return self._skip(asked.name, NEVER)
        page = store.add_page(asked.key, stored)
        self.restored.add(page)
        self._note_objects(page, request)
        if finder != UNKNOWN_FINDER:
            store.note(page, "found_by", finder)
        if len(self._finders) < MAX_START_PAGES:
            self._finders[page] = finder
        self._note_weight(page, rule.weight if weight is None else weight)
        claim = cycle.claim_new(page, finder)
        self._stats.inc_value("gp4c/new_pages")
        if claim is not None:
            return self._queue_visit(page, asked, claim)
        if needs_spider or not _KEPT_IN_PART.isdisjoint(stored):
            self.offered[page] = request
        if self._counts_links:
            return self._note_link(page, finder, request, POSTPONED)
        return self._skip(asked.name, POSTPONED)

    def _admit_known(self, page: int, asked: _Asked) -> bool:
        """Queue a known page's visit if it is planned, or if only the spider can request the page."""
        cycle, request = self._cycle, asked.request
        stored, needs_spider = self._read_request(request)
        if page in self.closers and cycle.is_due(page):
            cycle.requested.add(page)
            self._restore(page, stored, request)
            self._todays[page] = request
            return False
        is_further = page in self.restored and (
            asked.is_further or self._note_other(page, request, asked.finder)
        )
        claim = self._claim_known(page, stored, asked, needs_spider)
        if claim is not None:
            if asked.finder == START or asked.is_login:
                self._setup.add_page(page, is_login=asked.is_login)
            return self._queue_visit(page, asked, claim)
        cycle.note_link(page)
        if is_further and not cycle.rounds_over:
            self._copies.setdefault(page, []).append(request)
        is_spiders = needs_spider or not _KEPT_IN_PART.isdisjoint(stored)
        if is_spiders and (not cycle.rounds_over or len(self.offered) < MAX_OFFERED):
            self.offered[page] = request
        if self._by_url_alone:
            self._unplanned[request.url] = page
        if request.dont_filter and page not in self._unfiltered:
            self._unfiltered.add(page)
            self._stats.inc_value(NOT_PLANNED)
            return False
        if self._counts_links and not cycle.store.page(page).has_copy:
            return self._note_link(page, asked.finder, request, NOT_PLANNED)
        return self._skip(asked.name, NOT_PLANNED)

    def _queue_visit(self, page: int, asked: _Asked, claim: Claim) -> bool:
        self._cycle.requested.add(page)
        self._note_filtered(page, asked)
        if self.queue_claim(asked.request, claim):
            return True
        asked.request.meta[META] = self._cycle.end(claim, "excluded")
        return False

    def _note_filtered(self, page: int, asked: _Asked) -> None:
        """Skip equal requests from now on, if Scrapy's duplicate filter would drop them."""
        if asked.request.dont_filter:
            self._unfiltered.add(page)
        else:
            self._duplicates.add(asked.name)

    def _note_other(self, page: int, request: Request, finder: int) -> bool:
        """Note a further request for a page; returns whether it differs, and Scrapy would send it.

        Scrapy's duplicate filter ignores requests with ``dont_filter``, such as those for start URLs. The
        first other request for such a page, as by a rule for a link of the page to itself, is sent.
        """
        is_noted = page in self._unfiltered
        if not is_noted and finder == page + 1 and page not in self._cycle.requested:
            is_noted = self._cycle.store.page(page).found_by == START  # the start has not come to it yet
        self._unfiltered.discard(page)
        return is_noted and has_new_data(self._cycle.store.request(page), self.rebuilder.stored(request))

    def _admit_claimed(self, page: int, asked: _Asked) -> bool:
        """Admit a request for a page whose visit has begun: a login, a repetition, or a replacement."""
        cycle, request = self._cycle, asked.request
        is_repeated = asked.is_further and cycle.is_repeated(page, request.meta.get(META), asked.finder)
        if not asked.is_further and self._note_other(page, request, asked.finder):
            self._duplicates.add(asked.name)
            return self._queue_untouched(request, is_filtered=False)
        is_over = page not in cycle.requested and not cycle.is_ahead(page)
        if is_over and asked.is_login and cycle.resumed:  # by an interrupted run, whose session is gone
            cycle.requested.add(page)
            return self._queue_untouched(request)
        if is_repeated:
            cycle.requested.add(page)  # copies of this request by its callback are repeated, too
            return self._queue_untouched(request, is_filtered=False)
        return self._replace_queued(page, asked)

    def _limit_reached(
        self, stored: StoredRequest, request: Request, finder: int, is_duplicate: bool
    ) -> str | None:
        """Return the name of the statistic for the limit that keeps a new page out; None: no limit does."""
        if is_duplicate:
            return DUPLICATE
        store = self._cycle.store
        if store.pages >= MAX_PAGES:
            if not self._stats.get_value(TOO_MANY):
                recent = range(max(0, store.pages - RECENT_PAGES), store.pages)
                places = Counter(place_of_url(store.request(page)["url"]) for page in recent)
                ((place, _),) = places.most_common(1)
                logger.warning(
                    "No further page is remembered or fetched: the store has reached the limit of %s pages, "
                    "the last ones mostly in %s/%s. Keep the spider out of what is no content (rules, "
                    "allowed paths, DEPTH_LIMIT), or `scrapy gp4c forget` some. (Requests dropped: stat %s)",
                    *(f"{MAX_PAGES:,}", place.site, place.directory, TOO_MANY),
                    extra=self._extra,
                )
            return TOO_MANY
        is_linked = "?" in request.url and finder not in (UNKNOWN_FINDER, START)
        finder_url = self._cycle.store.request(finder - 1)["url"] if is_linked else ""
        return None if self._cycle.repeats.takes(stored["url"], finder_url) else TRAPPED

    def _page_before_move(self, request: Request) -> int | None:
        """Return the known page that moved with its site to the URL of this request; None: no page."""
        for url in self._cycle.moves.old_names(request.url):
            page = self._cycle.store.find(self.rebuilder.keys(request.replace(url=url))[0])
            if page is not None:
                return page
        return None

    def _waits_for_twin(self, request: Request) -> bool:
        """Hold back a request for a new URL if its twin has still to be visited; returns whether."""
        if not self._cycle.store.merged_pages:  # a first cycle has none, and many new links
            return False
        for url in (*other_ends(request.url), *self._at_start_hosts(request.url)):
            page = self._cycle.store.find(self.rebuilder.keys(request.replace(url=url))[0])
            if page is not None and self._may_wait and self._cycle.is_awaited(page):
                self.waiting_for_twins.append((page, request))
                return True
        return False

    def _at_start_hosts(self, url: str) -> Iterator[str]:
        """Yield a new page's `url` moved to hosts of known start pages, unless it is at one of them.

        The user may have edited the start URL together with the move of its site.
        """
        store = self._cycle.store
        if self._start_heads is None:
            self._start_heads = set()
            for first, block in store.blocks({"found_by"}):
                starts = np.flatnonzero(block["found_by"] == START)[:MAX_START_PAGES]
                self._start_heads.update(
                    head_and_path(store.request(first + row)["url"])[0] for row in starts.tolist()
                )
        head, path = head_and_path(url)
        if head not in self._start_heads and len(self._start_heads) <= MAX_START_PAGES:
            yield from (f"{other}{path}" for other in self._start_heads)

    def admit_twins(self, may_wait: bool = True) -> bool:
        """Admit the requests in `waiting_for_twins` whose twin was visited; returns whether there were any.

        Without ``may_wait``: all of them.
        """
        waiting, self.waiting_for_twins = self.waiting_for_twins, []
        self._may_wait = may_wait
        for page, request in waiting:
            if may_wait and self._cycle.is_awaited(page):
                self.waiting_for_twins.append((page, request))
            else:
                self.admit(request)
        self._may_wait = True
        return len(self.waiting_for_twins) < len(waiting)

    def _claim_known(
        self, page: int, stored: StoredRequest, asked: _Asked, needs_spider: bool
    ) -> Claim | None:
        """Begin the visit of a known page, and store its request of this run; None: it gets no visit."""
        cycle = self._cycle
        claim = cycle.claim(page)
        if asked.is_login and claim is None:
            url = self.rebuilder.credentials.url(stored["url"])
            line = f"{url} may lead to a login, or bring the session: it is visited beyond the budget."
            self._log_first("gp4c/beyond_budget", line)
        if asked.is_login:
            claim = claim or cycle.claim(page, "")
        if claim is not None and (needs_spider or asked.is_login):
            claim = dataclasses.replace(claim, host=None)  # the queue has no request of the plan for it
        if needs_spider:
            self._log_first(SECRET_NOT_GIVEN, secret_not_given(stored))
        self._restore(page, stored, asked.request)
        return claim

    def _replace_queued(self, page: int, asked: _Asked) -> bool:
        """Send the spider's first request of this run for `page` in place of the queued one.

        Returns False, and counts a duplicate, if none is queued, or the spider has asked before.
        """
        request = asked.request
        if page in self._cycle.requested:
            self._note_spelling(page, request)
            return self._skip(asked.name, DUPLICATE)
        self._cycle.requested.add(page)
        stored = self.rebuilder.stored(request)
        is_queued = self._cycle.is_queued(page)
        if not is_queued and data_of(stored) != data_of(self._cycle.store.request(page)):
            self._cycle.asked_too_late.add(page)
            self._log_first("gp4c/asked_too_late", asked_too_late(stored), logging.WARNING)
        self._restore(page, stored, request)
        if not is_queued:
            return self._skip(asked.name, DUPLICATE)
        self._note_filtered(page, asked)
        self._todays[page] = request
        return True

    def _note_spelling(self, page: int, request: Request) -> None:
        """Warn where requests of one callback are one page, as they differ in ignored parameters alone."""
        if not self._by_url_alone or "?" not in request.url:
            return
        names = ignored_names(request.url, self._cycle.settings.url_params_ignored)
        if not all(name.startswith("utm_") for name in names):  # these never tell pages apart
            finding = page, finder_of(request, self._cycle.store)
            self._spellings[finding] += 1
            if self._spellings[finding] == MIN_SPELLINGS:
                line = (
                    f"Requests such as {self.rebuilder.credentials.url(request.url)} are one page, whatever "
                    f"{', '.join(names)} may be: all but the first of a run are dropped. If they lead to "
                    "different pages, take the name out of GP4C_URL_PARAMS_IGNORED, or set that to [] if it "
                    "does not have the name, which then looks like a session or signature."
                )
                self._log_first("gp4c/ignored_params_differ", line, logging.WARNING)

    def todays(self, request: Request, claim: Claim) -> Request:
        """Return the spider's request of this run for a planned page, else `request`; queues further ones."""
        for copy in self._copies.pop(claim.page, ()):
            self._queue_untouched(copy, is_filtered=False)
        newer = self._todays.pop(claim.page, None)
        if newer is None or claim.host is None:
            return request
        newer.meta[META] = claim
        return newer

    def _restore(self, page: int, stored: StoredRequest, request: Request) -> None:
        """Replace the stored request of a page by the spider's, once in a run; its depth grows no more."""
        if page in self.restored:
            return
        self.restored.add(page)
        depth = self._cycle.store.request(page).get("meta", {}).get("depth")
        if depth is not None and request.meta.get("depth", depth) > depth:
            # A cycle may come to a page by a link back alone: depths would grow from run to run.
            request.meta["depth"] = depth
            stored = {**stored, "meta": {**stored["meta"], "depth": depth}}
        self._replace(page, stored)

    def _replace(self, page: int, stored: StoredRequest) -> None:
        """Replace the stored request of a page; its promises stay where the new one has none."""
        before = self._cycle.store.request(page)
        wishes = {name: value for name, value in before.get("meta", {}).items() if name in WISHES}
        if wishes:
            stored = {**stored, "meta": {**wishes, **stored.get("meta", {})}}
        if FOLLOWS in before:
            stored = {**stored, FOLLOWS: True}
        if NEEDS_CALLBACK in before:
            stored = {**stored, NEEDS_CALLBACK: before[NEEDS_CALLBACK]}
        elif self._cycle.settings.skip_unchanged and has_new_data(before, stored):
            stored = {**stored, NEEDS_CALLBACK: "once"}
        elif self._skips_unchanged and has_other_link(before, stored):
            self._cycle.hidden_data.linked.add(page)
        self.data.note_replaced(page, before, stored)
        if stored != before:
            self._cycle.store.set_request(page, stored)

    def _is_other_secret(self, key: int, full_key: int, request: Request) -> bool:
        """Whether the spider has requested the page with another value of a secret in this run.

        Such a request is sent beside the visit, as by Scrapy: a parameter named ``key``, say, may be no
        secret. ``key``, ``full_key``: keys of the request without and with its secrets.
        """
        if request.dont_filter or self._secret_keys.setdefault(key, full_key) == full_key:
            return False
        self._log_first(
            "gp4c/secret_differs",
            f"Requests for {self.rebuilder.credentials.url(request.url)} that differ only in what is called "
            "a secret are one page; the second and later ones are fetched as without scrapy-gp4c. If the "
            "parameter tells pages apart, take it out of GP4C_SECRET_PARAMS.",
        )
        return True

    def _log_first(self, name: str, line: str, level: int = logging.INFO) -> None:
        log_first(self._stats, name, line, self._extra, level)

    # --- weights: that of the page's newest request wins, sent or dropped; it counts from the next cycle on

    def _weight_of(self, request: Request) -> float | None:
        """Return the weight that a request gives its page; None for a wrong one, which is counted."""
        try:
            return read_weight(request.meta[WEIGHT])
        except ValueError as error:
            self._log_first(
                "gp4c/no_weight",
                f"{self.rebuilder.credentials.url(request.url)} keeps the weight that it has: {error}. Give "
                f'meta={{"{WEIGHT}": 3.0}}, or no weight.',
                logging.WARNING,
            )
            return None

    def _note_weight(self, page: int, weight: float | None) -> None:
        if weight is not None and weight != self._cycle.store.weight(page):
            self._cycle.store.note(page, "weight", weight)

    # --- promises (gp4c_max_age, ...): that of the page's newest request wins; the stored request keeps it

    def _check_wishes(self, request: Request) -> bool:
        """Return whether a request has a promise or tag for its page, after wrong ones are taken out."""
        if not has_promise(request.meta):
            return False
        for name, read in (("gp4c_max_age", read_span), ("gp4c_min_interval", read_span), (TAG, read_tag)):
            if name in request.meta:
                try:
                    read(request.meta[name])
                except ValueError as error:
                    del request.meta[name]
                    url = self.rebuilder.credentials.url(request.url)
                    line = f"{url}: {name} in its meta is not used: {error}. Correct it, or leave it out."
                    self._log_first("gp4c/no_promise", line, logging.WARNING)
        spans = (span_in_meta(request.meta, name) for name in ("gp4c_max_age", "gp4c_min_interval"))
        if problem := contradiction(*spans):
            del request.meta["gp4c_max_age"], request.meta["gp4c_min_interval"]
            url = self.rebuilder.credentials.url(request.url)
            line = f"{url}: gp4c_max_age and gp4c_min_interval in its meta are not used: {problem}."
            self._log_first("gp4c/no_promise", line, logging.WARNING)
        if has_promise(request.meta) and not self._is_promised:
            self._is_promised = True
            self._cycle.store.amend_record(promised=True)
        return has_promise(request.meta)

    def _note_wishes(self, page: int, request: Request) -> None:
        """Add the promises of a request to its page's stored request, whether it is sent or dropped."""
        store = self._cycle.store
        before = store.request(page)
        wishes: dict[str, Any] = {name: request.meta[name] for name in STORED_META if name in request.meta}
        if wishes.items() - before.get("meta", {}).items():
            meta = {**before.get("meta", {}), **wishes}
            if contradiction(span_in_meta(meta, "gp4c_max_age"), span_in_meta(meta, "gp4c_min_interval")):
                # The newest request counts: promises of earlier ones that contradict it are dropped.
                meta = {
                    name: value
                    for name, value in meta.items()
                    if name in wishes or name not in STORED_META[:2]
                }
            store.set_request(page, {**before, "meta": meta})

    # --- repeated requests for a page, which are most links of a site, are skipped at little cost

    def _is_settled(self, request: Request, name: str | int) -> bool:
        """Whether a request is skipped because one of equal `name` was; it is counted like that one."""
        return not request.dont_filter and self._is_known(name)

    def _is_known(self, name: str | int) -> bool:
        if name in self._duplicates:
            self._uncounted += 1
            if self._uncounted >= MAX_UNCOUNTED:
                self.count_duplicates()
            return True
        if (statistic := self._settled.get(name)) is None:
            return False
        self._stats.inc_value(statistic)
        return True

    def count_duplicates(self) -> None:
        """Add the duplicates counted so far to the statistic: a call for each costs as much as all else."""
        if self._uncounted:
            self._stats.inc_value(DUPLICATE, self._uncounted)
            self._uncounted = 0

    def _skip(self, name: str | int, statistic: str) -> bool:
        """Skip a request, count it, and skip all of equal `name` to come; returns False for `admit`."""
        if statistic == DUPLICATE:
            self._duplicates.add(name)
        else:
            self._settled[name] = statistic
        self._stats.inc_value(statistic)
        return False

    def queue_claim(self, request: Request, claim: Claim) -> bool:
        """Queue the request of a visit; False when Scrapy's duplicate filter drops it, for a new page.

        The visit of a page of earlier cycles passes the filter: what other pages redirect to, or an earlier
        run with the same JOBDIR fetched, must not decide its outcome.
        """
        if not isinstance(request.meta.get(META), Claim):  # it is no retry, and no redirect
            request.priority += self._cycle.turn_priority(claim.page, request)
        request.meta[META] = claim
        is_known = claim.host is not None or claim.page < self._cycle.store.merged_pages
        return self._enqueue_unfiltered(request) if is_known or self._is_seen else self._enqueue(request)

    def _enqueue_unfiltered(self, request: Request) -> bool:
        dont_filter = request.dont_filter  # it stays what the spider set: it bypasses the off-site filter too
        request.dont_filter = True
        queued = self._enqueue(request)
        request.dont_filter = dont_filter
        return queued


def _not_storable(stored: StoredRequest) -> str:
    return (
        f"{stored['url']} is visited in cycles whose plan has it, when the spider asks for it: the store "
        f"cannot keep {', '.join(stored['unstorable'])}. Revisits without the spider's request need methods "
        "of the spider as callbacks and arguments that JSON can hold, or a method gp4c_request(request) that "
        "adds the rest."
    )
