"""What becomes of a request: a new page, the visit of a planned one, dropped, or Scrapy's as ever."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from scrapy_gp4c.crawling import messages
from scrapy_gp4c.crawling.claims import Claim
from scrapy_gp4c.crawling.cycle import Cycle
from scrapy_gp4c.crawling.finders import UNKNOWN, finder_of
from scrapy_gp4c.crawling.limits import TOO_MANY, Limits
from scrapy_gp4c.crawling.rebuilding import Rebuilder
from scrapy_gp4c.crawling.setup_requests import SetupRequests
from scrapy_gp4c.crawling.stored_requests import META, PASSED, is_page_request
from scrapy_gp4c.crawling.weighing import Weighing
from scrapy_gp4c.scoring.discovery import START
from scrapy_gp4c.store.records import StoredRequest

if TYPE_CHECKING:
    from scrapy import Request, Spider

MAX_SETTLED: Final = 100_000
"""Pages of a kind whose next request is skipped without a look into the store: about 20 MB."""
MAX_DROPPED: Final = 100
"""Duplicates that the statistics may be behind; at the end of a run they have all."""
DUPLICATE: Final = "gp4c/skipped/duplicate"
NOT_PLANNED: Final = "gp4c/skipped/not_planned"
POSTPONED: Final = "gp4c/skipped/new_page_postponed"
"""Statistics of the requests that are dropped, and why."""
NOT_STORABLE: Final = "gp4c/not_storable"
SECRET_DIFFERS: Final = "gp4c/secret_differs"
"""Statistics of the requests that are fetched as without the add-on, and why."""
ELSEWHERE: Final = "gp4c/skipped/elsewhere"
"""Statistic of the requests that go to other workers, whose pages they ask for."""
REDIRECTED: Final = "gp4c/redirected_elsewhere"
"""Statistic of the visits that end as they were redirected to such a page, with what JSON cannot carry."""
Enqueue = Callable[["Request"], bool]
"""Scrapy's own queue: False when its duplicate filter drops the request."""


class Abroad(Protocol):
    """What takes requests for pages that others have."""

    def has(self, url: str) -> bool:
        """Tell whether others have the page of this URL."""

    def send(self, key: int, stored: StoredRequest, finder: int) -> None:
        """Let them have a request; ``finder``: as the column ``found_by`` has it."""

    def hand_over(self, request: Request, visit: Claim) -> bool:
        """Let them go on with a visit that was redirected to their page; False: the request cannot travel."""


class Admission:
    """Decides about each request of a run.

    A plain GET to an unknown page is a new page; to a known page it is admitted if the plan has it, or if
    only the spider can make it, and dropped otherwise. All else (POST, ``meta={"gp4c": False}``, retries,
    redirects) is Scrapy's as ever.
    """

    def __init__(
        self, cycle: Cycle, rebuilder: Rebuilder, setup: SetupRequests, spider: Spider, enqueue: Enqueue
    ) -> None:
        """Take the cycle, and Scrapy's queue."""
        given = cycle.settings
        extra = {"spider": spider}
        self._limits = Limits(cycle.store, given.max_pages, given.max_pages_per_site, extra)
        self._cycle = cycle
        self.rebuilder = rebuilder
        self._setup = setup
        self._spider = spider
        self._enqueue = enqueue
        self._stats = cycle.stats
        self._weighing = Weighing(cycle.store, cycle.stats, rebuilder.credentials, spider)
        self._by_url_alone = rebuilder.by_url_alone
        self._duplicates: set[str | int] = set()
        """What tells a request apart at least cost, its URL or else its key, where the cycle visits its page:
        the next one is skipped, whatever is planned further."""
        self._dropped = 0
        """Duplicates that are not in the statistics yet."""
        self._settled: dict[str | int, str] = {}
        """The same of others -> why they are skipped in this round."""
        self._left_out: dict[str, int] = {}
        """URL -> its page, for which a round had no visit."""
        self._called_back: dict[int, tuple[Any, Any]] = {}
        """Page -> callbacks of its stored request."""
        self.abroad: Abroad | None = None
        """Takes requests for pages of other workers; None: there are none."""
        self._asked_as: dict[int, int] = {}
        """Key of a page asked for with secrets in its URL -> key of that request, secrets and all."""

    def forget_settled(self) -> None:
        """Look at pages anew that no visit was planned for: a further round is planned."""
        self._settled.clear()

    def skips(self, request: Request) -> bool:
        """Tell whether a request is skipped for its URL alone, as most links are; it is counted then."""
        return (
            self._by_url_alone
            and request.meta.get(META) is None
            and is_page_request(request)
            and self._is_settled(request, request.url)
        )

    def admit(self, request: Request) -> bool:
        """Queue, drop or pass a request; False when it is dropped."""
        mark, weight = request.meta.get(META), None
        if isinstance(mark, Claim) and self._cycle.is_under_way(mark):
            return self._queue_again(request, mark)
        if mark == PASSED or not is_page_request(request):
            return self._queue_untouched(request)
        if mark is not None:
            weight = self._weighing.said_by(request)
        # Before a fingerprint is made, which costs more; but what a request says of its page is to be noted.
        if weight is None and self._by_url_alone and self._is_settled(request, request.url):
            return False
        return self._admit_page(request, weight)

    def _queue_again(self, request: Request, claim: Claim) -> bool:
        """Queue a retry or redirect of a visit under way: it costs no budget and ends the same visit."""
        claim = dataclasses.replace(claim, host=None)
        if self.abroad is not None and self.abroad.has(request.url):
            if self.abroad.hand_over(request, claim):
                return True
            self._stats.inc_value(REDIRECTED)
            request.meta[META] = self._cycle.end(claim, "excluded")
            return False
        if self.queue_claim(request, claim):
            self._cycle.back_in_queue(claim)
            return True
        # Scrapy drops a redirect onto a URL it has already seen, and tells nobody.
        request.meta[META] = self._cycle.end(claim, "excluded")
        return False

    def _queue_untouched(self, request: Request) -> bool:
        if request.meta.get(META) is not False:
            request.meta[META] = PASSED
        queued = self._enqueue(request)
        if queued:
            self._setup.queued()
        return queued

    def _admit_page(self, request: Request, weight: float | None) -> bool:
        cycle, store = self._cycle, self._cycle.store
        key, full_key = self.rebuilder.keys(request)
        if full_key != key and self._is_asked_otherwise(key, full_key, request):
            return self._queue_untouched(request)
        known_as = request.url if self._by_url_alone else key
        if weight is None and not self._by_url_alone and self._is_settled(request, known_as):
            return False
        page = self._left_out.get(request.url)
        if page is None:
            page = store.find(key)
        if page is None and full_key != key:  # an earlier version told pages apart by their secrets
            page = store.find(full_key)
        finder = finder_of(request, store)
        if page is not None and finder == START and store.page(page).found_by == UNKNOWN:
            store.note(page, "found_by", START)  # of a store that is older than this column
        if page is not None:
            self._weighing.note(page, weight)
        if page is not None and cycle.is_claimed(page):
            if request.dont_filter and cycle.is_repeated(page, request.meta.get(META)):
                return self._queue_untouched(request)
            cycle.asked.add(page)
            return self._skip(known_as, DUPLICATE)
        try:
            stored = self.rebuilder.stored(request)
        except ValueError as error:
            bare = self.rebuilder.credentials.url(str(request))
            self._count(NOT_STORABLE, messages.not_storable(bare, error))
            return self._queue_untouched(request)
        claim: Claim | None
        if page is None and self.abroad is not None and self.abroad.has(request.url):
            self.abroad.send(key, stored, finder)
            return self._skip(known_as, ELSEWHERE)
        if page is None:
            if not self._limits.takes(stored):
                return self._skip(known_as, TOO_MANY)
            page = store.add_page(key, stored)
            if finder != UNKNOWN:
                store.note(page, "found_by", finder)
            self._weighing.note(page, weight)
            claim = cycle.claim_new(page)
            self._stats.inc_value("gp4c/new_pages")
            if claim is None:
                return self._skip(known_as, POSTPONED)
        else:
            claim = self._claim_known(page, stored)
            if claim is None:
                if self._by_url_alone:
                    _with_room(self._left_out)[request.url] = page
                return self._skip(known_as, NOT_PLANNED)
        cycle.asked.add(page)
        _with_room(self._duplicates).add(known_as)
        if self.queue_claim(request, claim):
            return True
        request.meta[META] = cycle.end(claim, "excluded")
        return False

    def _claim_known(self, page: int, stored: StoredRequest) -> Claim | None:
        """Start the visit of a known page, and keep how it is asked for now; None: there is no visit."""
        cycle, store = self._cycle, self._cycle.store
        claim = cycle.claim(page)
        if claim is None and stored.get("lacks") and not self.rebuilder.is_given(stored):
            # No plan can ever have it, hence the spider's request is its visit, budget or not.
            claim = cycle.claim(page, "")
            claim = claim and dataclasses.replace(claim, host=None)
            self._count(messages.NOT_GIVEN, messages.not_given(stored))
        callbacks = _callbacks(stored)
        if claim is None and self._called_back.get(page) == callbacks:
            return None
        known = store.request(page)
        if stored != known and (claim is not None or callbacks != _callbacks(known)):
            store.set_request(page, stored)
        _with_room(self._called_back)[page] = callbacks
        return claim

    def _is_asked_otherwise(self, key: int, full_key: int, request: Request) -> bool:
        """Tell whether the spider has asked for the page with another value of a secret in this run.

        For Scrapy these are two requests, and what is called ``key`` may be no secret: no page is to be lost.
        """
        if request.dont_filter or _with_room(self._asked_as).setdefault(key, full_key) == full_key:
            return False
        self._count(SECRET_DIFFERS, messages.secret_differs(self.rebuilder.credentials.url(request.url)))
        return True

    def _count(self, name: str, line: str) -> None:
        messages.tell_first(self._stats, name, line, {"spider": self._spider})

    def _is_settled(self, request: Request, known_as: str | int) -> bool:
        """Tell whether a request is skipped like the one before it, and count it then."""
        if request.dont_filter:
            return False
        if known_as in self._duplicates:
            self._dropped += 1
            if self._dropped >= MAX_DROPPED:
                self.tell_dropped()
            return True
        if (why := self._settled.get(known_as)) is None:
            return False
        self._stats.inc_value(why)
        return True

    def tell_dropped(self) -> None:
        """Add to the statistic of duplicates what it lacks: a call for each costs as much as the rest."""
        if self._dropped:
            self._stats.inc_value(DUPLICATE, self._dropped)
            self._dropped = 0

    def _skip(self, known_as: str | int, why: str) -> bool:
        """Skip a request, and further ones of its page, which are most links of a site, at little cost."""
        if why == DUPLICATE:
            _with_room(self._duplicates).add(known_as)
        else:
            _with_room(self._settled)[known_as] = why
        self._stats.inc_value(why)
        return False

    def queue_claim(self, request: Request, claim: Claim) -> bool:
        """Queue a claimed page; False when Scrapy's duplicate filter drops it, which it may do to new pages.

        A known page ends with an outcome of its own: what other pages redirect to, or what an earlier run
        with the same JOBDIR fetched, must not decide it.
        """
        request.meta[META] = claim
        dont_filter = request.dont_filter  # it stays what the spider set: it bypasses the off-site filter too
        request.dont_filter = dont_filter or claim.host is not None or claim.kind != "new"
        queued = self._enqueue(request)
        request.dont_filter = dont_filter
        return queued


Kept = TypeVar("Kept", set[Any], dict[Any, Any])


def _with_room(kept: Kept) -> Kept:
    """Return what is kept of pages, emptied where it has become too large."""
    if len(kept) >= MAX_SETTLED:
        kept.clear()
    return kept


def _callbacks(stored: StoredRequest) -> tuple[Any, Any]:
    return stored.get("callback"), stored.get("errback")
