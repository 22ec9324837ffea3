"""Visits of pages: how a response or exception ends the visit that its request carries, with one outcome."""

import logging
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Final, NoReturn
from urllib.parse import urlsplit

import numpy as np
from scrapy import Request
from scrapy.exceptions import IgnoreRequest
from scrapy.http import HtmlResponse, Response, TextResponse
from scrapy.settings import default_settings
from scrapy.utils.asyncgen import as_async_generator
from scrapy.utils.defer import deferred_from_coro, maybe_deferred_to_future
from scrapy.utils.misc import load_object
from scrapy.utils.spider import iterate_spider_output
from twisted.internet.defer import Deferred

from scrapy_gp4c.crawling.admission import FROM_CACHE, NO_DOWNLOAD, log_first
from scrapy_gp4c.crawling.cycle import Cycle, Refusal, VisitInfo, retry_after
from scrapy_gp4c.crawling.doubt import (
    ALTERNATING,
    MAX_SHARING,
    NO_DOUBT,
    NO_REFUSALS,
    ONCE_MORE,
    Changed,
    Doubt,
    SharedTexts,
)
from scrapy_gp4c.crawling.fetched import FetchedResponse, Judgement, KnownCopy, NotFetchedError
from scrapy_gp4c.crawling.hidden_data import different_part, header_sum
from scrapy_gp4c.crawling.hints import PageClaims
from scrapy_gp4c.crawling.messages import refusing
from scrapy_gp4c.crawling.repeats import MAX_REMEMBERED, are_related, canonical_url
from scrapy_gp4c.crawling.requests import META, Claim, site_of, without_user
from scrapy_gp4c.crawling.run import Run
from scrapy_gp4c.crawling.scrapy_internals import awaitable
from scrapy_gp4c.errors import StoreError
from scrapy_gp4c.fingerprint import (
    NOT_WATCHED_REASON,
    ComparedPart,
    PageReading,
    compared_part,
    has_parts,
    is_changed,
    part_sum,
    read,
    read_bytes,
)
from scrapy_gp4c.fingerprint.answers import html_source
from scrapy_gp4c.fingerprint.copy_notes import (
    LOW,
    MAX_LEARNED_BYTES,
    CopyState,
    asks_password,
    compare_bytes,
    compared,
    unpack,
    with_sums,
)
from scrapy_gp4c.fingerprint.description import description
from scrapy_gp4c.fingerprint.markup_data import data_sum
from scrapy_gp4c.fingerprint.worker_process import FingerprintProcess, needs_process
from scrapy_gp4c.foreign_text import foreign_safe_logger
from scrapy_gp4c.page_state.outcomes import CHANGED, DOUBTFUL, EXCLUDED, NOT_MODIFIED, SAME
from scrapy_gp4c.page_state.page_names import link_sum, plainer_urls
from scrapy_gp4c.page_state.rules import PageRule
from scrapy_gp4c.scoring.discovery import START
from scrapy_gp4c.store.credentials import Credentials
from scrapy_gp4c.store.records import SAME_PAGE, LastAnswer, StoredRequest

logger = foreign_safe_logger(__name__)

LATENCY: Final = "download_latency"
"""Key in ``Request.meta`` of the download's time, s; other handlers than Scrapy's may not measure it."""
GONE_STATUS: Final = (404, 410)
NO_CONTENT: Final = (204, 205)
"""Statuses of answers that have no body, so that they say nothing of the page (RFC 9110, 15.3.5)."""
REFUSALS: Final = frozenset((403, 418, 420, 429, 430, 502, 503, 504, 509, 511, *range(520, 531), 999))
"""Statuses of a site that refuses a crawl or is out of order, whatever the page.

Besides those of RFCs: of Twitter (420), Shopify (430), cPanel (509), Cloudflare (520 to 530), LinkedIn (999).
"""
UNREACHABLE: Final[tuple[type[Exception], ...]] = tuple(
    one if isinstance(one, type) else load_object(str(one)) for one in default_settings.RETRY_EXCEPTIONS
)
"""Exceptions of downloads that mean that the server does not answer."""
REDIRECTS: Final = (301, 302, 303, 307, 308)
PERMANENT: Final = (301, 308)
CONDITIONS: Final = ("If-None-Match", "If-Modified-Since")
"""Request headers that ask for a 304; a 304 to a request without them says nothing of the page."""
UNCONDITIONAL: Final = 8
"""One of so many compared visits of a page goes without validators; the page's key decides which."""
MAX_VALIDATOR_BYTES: Final = 1_024
"""Longest remembered ETag or Last-Modified: every page may have one, and servers refuse long headers."""
MAX_LIES: Final = 3
"""Pages with false 304s after which no request to their site has validators."""
MAX_LYING_SITES: Final = 1_000
"""Most sites with a false 304 that are remembered, in the cycle's record."""
MAX_TWIN_WAITS: Final = 8
"""Most visits in a row in which a twin (second URL of a page) stays one although their texts differ."""
MIN_TWIN_VISITS: Final = 2
"""Fewest compared visits of each of two URLs that may be one page."""
MIN_RETURNS: Final = 2
"""Fewest returns of a page to its text before the last change, for it to count as alternating."""
CUT_OFF: Final = "dataloss"
"""Flag of a body that lacks its end; ``partial`` only means that no length was sent (RFC 9112, 6.3)."""


class Unchanged(IgnoreRequest):
    """Exception by which ``GP4C_SKIP_UNCHANGED`` skips an unchanged page; its request's errback gets it."""

    def __init__(self, response: Response) -> None:
        super().__init__("unchanged since the last visit")
        self.response = response
        """The page's response, as `HttpError` has it, which errbacks expect."""


def ignore_repeat(response: Response, **cb_kwargs: Any) -> None:
    """Callback of a second answer with the text of the first, whose items have come."""


async def without_output(errback: Callable[[Any], Any], failure: Any) -> None:
    """Call an errback for an unchanged page and drop its output, which is mostly meant for failures."""
    output: Any = iterate_spider_output(errback(failure))
    if isinstance(output, Deferred):
        output = await maybe_deferred_to_future(output)
    async for _ in as_async_generator(output):
        pass


class Visits:
    """Maker of the `Visit` of each request, with what all visits share: cycle, settings, worker process."""

    def __init__(self, run: Run, process: FingerprintProcess) -> None:
        run.has_middleware = True
        self.cycle: Cycle = run.cycle
        self.store = self.cycle.store
        self.deliveries = self.cycle.deliveries
        self.hints = run.hints
        self.spider = run.extra["spider"]
        self.process = process
        settings = self.cycle.settings
        self.features = settings.features
        self.skip_unchanged = settings.skip_unchanged
        self.url_keys = run.admission.rebuilder.url_keys
        self.link_params = run.admission.rebuilder.link_params
        self.reaches_spider = run.reaches_spider
        self.describes = settings.asks_for_clusters
        self.texts = SharedTexts(self.store.newest_value("doubted", []))
        run.doubted = lambda: list(self.texts.doubted)
        self.public_url = Credentials(settings.secret_params).url
        self.named: dict[int, int] = {}
        """Key of a canonical URL without a copy -> first page of this run that named it."""
        self.lies: dict[str, list[int]] = self.store.newest_value("lies", {})
        self.with_text = self.cycle.measuring is not None or self.cycle.archive is not None

    def of(self, request: Request) -> "Visit | None":
        """Return the visit, without an outcome yet, that a request carries in its meta; None: it has none."""
        claim = request.meta.get(META)
        if isinstance(claim, Claim) and self.cycle.is_under_way(claim):
            return Visit(self, claim, request)
        return None

    def close(self) -> None:
        """End the worker processes, which fingerprint large pages and read hints."""
        self.process.close()
        self.hints.close()

    async def pass_by(self, response: Response) -> Response:
        """Return a response that is no visit, after its hints (of a robots.txt or sitemap, say) were read."""
        self.hints.read(response, None, await self.hints.read_file(response))
        return response


class Visit:
    """The visit of one page: its request, and the response or exception that ends it with one outcome."""

    __slots__ = ("_claim", "_hidden_part", "_page_claims", "_request", "_rule_of_page", "_visits", "_watched")

    def __init__(self, visits: Visits, claim: Claim, request: Request) -> None:
        self._visits, self._claim, self._request = visits, claim, request
        self._page_claims: PageClaims | None = None
        self._watched: ComparedPart | None = None
        """Compared part of the page, where it is not cut out of the body: the target of a read redirect."""
        self._rule_of_page: PageRule | None = None
        self._hidden_part: str | None = None
        """Part of the answer (`BODY`, `HEADERS`, ...) that differs though the text does not; None: none."""

    @property
    def _rule(self) -> PageRule:
        if self._rule_of_page is None:
            self._rule_of_page = self._visits.cycle.rules.of_page(self._claim.page)
        return self._rule_of_page

    def add_validators(self) -> None:
        """Add the page's validators to the request if GP4C_SKIP_UNCHANGED is set (RFC 9110, 13)."""
        visits = self._visits
        self._request.meta.pop(LATENCY, None)  # left by a retry or redirect
        if self._is_led_elsewhere:
            for name in CONDITIONS:
                self._request.headers.pop(name, None)
            return
        page, deliveries = self._claim.page, visits.deliveries
        if not visits.skip_unchanged or page in deliveries.pages or page in deliveries.again:
            return
        if "splash" in self._request.meta:
            return  # it would render the empty body of a 304, with status 200
        try:
            if "cookiejar" in self._request.meta and not visits.store.request(page).get("session"):
                return  # the first page of a session: a 304 may set no cookies
            visits.cycle.hidden_data.try_callback(page, visits.store.request(page), visits.spider)
            row, lies = visits.store.page(page), visits.lies.get(site_of(self._request), ())
            if row.failures:
                return  # maybe by its validators: too long a header is answered 400, for ever
            measuring = visits.cycle.measuring
            lacks_text = measuring is not None and measuring.lacks(page, row)
            notes = visits.store.value("copies", page) if row.has_copy else None
            if lacks_text or is_rebased(notes, self._rule) or visits.cycle.needs_callback(page):
                return
            if is_full_visit(row.key, row.n) or page in lies or len(lies) >= MAX_LIES:
                return  # a server that answers 304 whatever happens would hide all changes
            etag, last_modified = visits.store.validators(page)
        except StoreError as error:
            visits.cycle.failure = error
            return
        if etag:
            self._request.headers.setdefault("If-None-Match", etag.encode("latin-1"))
        if last_modified:
            self._request.headers.setdefault("If-Modified-Since", last_modified.encode("latin-1"))

    def fail(self, exception: Exception) -> None:
        """End the visit by an exception: as excluded for IgnoreRequest (robots.txt, off-site), else an error.

        A page of a site that is left alone, or that a fetcher did not fetch, is left out without an outcome.
        """
        cycle = self._visits.cycle
        try:
            is_ignored = isinstance(exception, IgnoreRequest)
            is_left_alone = without_user(urlsplit(self._request.url).netloc) in cycle.patience.left_alone
            if isinstance(exception, NotFetchedError) or (is_ignored and is_left_alone):
                cycle.leave_out(self._claim)
                return
            outcome = "excluded" if is_ignored else "error"
            why = self._visits.public_url(str(exception))[:200] if outcome == "excluded" else ""
            if is_ignored and self._visits.store.page(self._claim.page).has_copy:
                line = (
                    f"{self._visits.public_url(self._url)} was read before, and is excluded now: "
                    f"{why or type(exception).__name__}. `scrapy gp4c forget` takes it out for good."
                )
                log_first(cycle.stats, "gp4c/excluded_now", line, {}, logging.WARNING)
            answer = LastAnswer(error=why or type(exception).__name__)
            if isinstance(exception, UNREACHABLE):
                self._note_refusal(0.0)
            asked_by = self._request if outcome == "error" else None
            self._request.meta[META] = cycle.end(self._claim, outcome, request=asked_by, answer=answer)
        except StoreError as error:
            cycle.failure = error

    async def respond(self, response: Response) -> Response:
        """End the visit by its response, which the callback gets with the outcome in its ``meta``.

        Slow work is done in other threads and processes, while the visit is under way. Where the store cannot
        be read any more, the callback gets the response as it is, and the crawl ends. Raises `Unchanged` for
        an unchanged page that is to be skipped.
        """
        visits, claim = self._visits, self._claim
        try:
            if "redirect_urls" in self._request.meta and response.status == 200:
                self._learn_move(response)
            if response.status == 304:
                self._read_hints(response)
            if self._is_no_download(response):
                visits.cycle.leave_out(claim)
                excluded = VisitInfo({"page": claim.page, "outcome": "excluded", "changed": None})
                self._attach(response, excluded)
                return response
            if (outcome := self._outcome(response)) is not None:
                row = visits.store.page(claim.page)
                if outcome == "not_modified" and row.outcome == CHANGED and is_full_visit(row.key, row.n - 1):
                    self._note_lie()  # it was requested with validators of the copy before
                is_lost = outcome == "error" and visits.cycle.may_blame_host(
                    claim.page, site_of(self._request)
                )
                is_refusal = is_lost or response.status in REFUSALS
                self._note_refusal(wait_of(response) if is_refusal else None)
                error = "the body lacks its end" if CUT_OFF in response.flags else None
                is_empty = visits.skip_unchanged and response.status == 304  # without a body
                request = None if is_empty else self._request
                return self._finish(response, self._end(response, outcome, error, request))
            self._page_claims = await visits.hints.read_file(response)
            judgement = await self._judged(response)
            if judgement is not None and visits.cycle.is_under_way(claim):
                return self._end_judged(response, judgement)
        except StoreError as error:
            visits.cycle.failure = error
        return response

    async def _judged(self, response: Response) -> Judgement | None:
        """Return the page's comparison with its copy, by its fetcher or made here; None: the visit ended."""
        if isinstance(response, FetchedResponse):
            return response.result.judgement
        visits, request = self._visits, self._request
        copy = known_copy(visits.cycle, self._claim, is_redirected="redirect_urls" in request.meta)
        try:
            watched = await self._compared_part(response)
            if (judgement := known_judgement(request, watched, copy, visits.texts)) is not None:
                return judgement
            reading = await self._read(watched, copy)
        except Exception as error:
            if isinstance(error, ChildProcessError):
                line = f"{response} is not read: {error}. Its visit is an error; give the crawl more memory"
                log_first(visits.cycle.stats, "gp4c/not_read", line, {}, logging.WARNING)
            return Judgement(error=error)
        if not visits.cycle.is_under_way(self._claim):
            return None
        return judge(request, response, watched, reading, copy, visits.texts)

    async def _compared_part(self, response: Response) -> ComparedPart:
        """Return the part of a response that is compared; a worker process cuts it out of a large one.

        Raises TimeoutError: a comparison of the whole page instead would find a change where there is none.
        """
        visits, rule = self._visits, self._rule
        if self._watched is not None:
            return self._watched
        if not (has_parts(response, rule.watch, rule.ignore) and needs_process(response, None)):
            return compared_part(response, visits.features, rule.watch, rule.ignore)
        try:
            cut = visits.process.cut(response, visits.features, rule.watch, rule.ignore)
            return await awaitable(cut)
        except TimeoutError:
            line = (
                f"What {rule.name} cuts out of {response} takes too long to find. Its visit is an error; "
                "give the rule simpler selectors"
            )
            log_first(visits.cycle.stats, "gp4c/too_slow", line, {}, logging.WARNING)
            raise

    async def _read(self, watched: ComparedPart, copy: KnownCopy) -> PageReading:
        """Return text and fingerprint of the part `watched`; a worker process reads a large page."""
        visits, response, features = self._visits, watched.response, watched.features
        if not needs_process(response, features):
            return read(response, features, with_text=visits.with_text)
        state = None
        if copy.fingerprint is not None and not is_rebased(copy.notes, copy.rule):
            learned = b"" if copy.notes is None else unpack(copy.notes).learned
            state = CopyState(copy.fingerprint, learned, copy.distance_bits)
        try:
            return await awaitable(
                visits.process.read(response, features, with_text=visits.with_text, copy=state)
            )
        except TimeoutError:
            line = f"{response} takes too long to read: its bytes are compared"
            log_first(visits.cycle.stats, "gp4c/too_slow", line, {}, logging.WARNING)
            return read_bytes(response)

    def _read_hints(self, response: Response) -> None:
        """Read the hints of a response just before its visit is recorded: a commit has both or none."""
        self._visits.hints.read(response, self._claim.page, self._page_claims)

    @property
    def _latency_s(self) -> float:
        return self._request.meta.get(LATENCY, 0.0)

    def _outcome(self, response: Response) -> str | None:
        """Return the outcome that a response has whatever its text is; None: the text decides."""
        if "cached" in response.flags and self._visits.store.page(self._claim.page).has_copy:
            return "not_modified"  # the server has validated it
        outcome = plain_outcome(response, self._request)
        return None if outcome == "error" and self._is_read_redirect(response) else outcome

    def _is_read_redirect(self, response: Response) -> bool:
        """Whether the callback gets this redirect itself; then the redirect's target is what is compared."""
        location = response.headers.get("Location")
        if response.status not in REDIRECTS or location is None:
            return False
        if not self._visits.reaches_spider(self._request, response):
            return False
        text = f"{response.status} {location.decode('latin-1')}".encode()
        self._watched = ComparedPart(TextResponse(response.url, body=text), None)
        return True

    def _is_no_download(self, response: Response) -> bool:
        """Whether the response is scrapy-poet's placeholder or of Scrapy's cache; logs the first of each."""
        url, stats = self._request.url, self._visits.cycle.stats
        if is_dummy(response):
            line = (
                f"{url} is fetched by its page object, if at all: such pages are neither compared "
                "nor counted as visits. Annotate the callback's response as a Response to have them compared."
            )
            log_first(stats, NO_DOWNLOAD, line, {}, logging.WARNING)
            return True
        if "cached" not in response.flags or LATENCY in self._request.meta:
            return False
        line = (
            f"{url} comes from Scrapy's HTTP cache, which says nothing of the page as it is now: no change "
            "is found as long as it does. Set HTTPCACHE_ENABLED = False, or HTTPCACHE_POLICY to "
            "scrapy.extensions.httpcache.RFC2616Policy, and where that one answers too, "
            "HTTPCACHE_IGNORE_RESPONSE_CACHE_CONTROLS to ['max-age']."
        )
        log_first(stats, FROM_CACHE, line, {}, logging.WARNING)
        return True

    def _end_judged(self, response: Response, judgement: Judgement) -> Response:
        """End the visit by the page's judgement, its comparison with the copy; an error if there is none."""
        visits, page = self._visits, judgement.reading
        if page is None:
            self._read_hints(response)
            reason = "its text cannot be read" if visits.features is None else "GP4C_FEATURES failed"
            if not isinstance(judgement.error, ChildProcessError):
                logger.error("No fingerprint of %s: %s", response, reason, exc_info=judgement.error)
            return self._finish(response, self._end(response, "error", reason))
        self._note_doubt(response, page, judgement.doubt)
        first = visits.cycle.asked_again.get(self._claim.page)
        if first is not None and first.is_used and first.fingerprint == page.fingerprint:
            (response.request or self._request).callback = ignore_repeat
        if (doubt := judgement.doubt.reason) is not None:
            info = self._end(response, "doubtful", doubt, self._request)
            info["doubtful"], info.fingerprint = doubt, page.fingerprint
            return self._finish(response, info)
        self._note_refusal(None)
        if not judgement.is_rebased and (other := self._repeated(response, page)) is not None:
            return self._finish(response, self._end_repeat(response, page, other))
        notes = visits.store.value("copies", self._claim.page) if visits.skip_unchanged else None
        if visits.cycle.failure is None and judgement.notes is not None:
            self._note_alternating(judgement.notes)
            visits.store.put_value("copies", self._claim.page, judgement.notes)
        if judgement.is_rebased:
            line = (
                f"{response.url} is compared anew from this visit on: GP4C_RULES watches other parts of it."
            )
            log_first(visits.cycle.stats, "gp4c/compared_anew", line, {})
        copy = visits.store.page(self._claim.page).fingerprint
        info = visits.cycle.end(
            self._claim,
            "",
            _size_of(response),
            self._latency_s,
            self._request,
            LastAnswer(final_url=self._final_url(response)),
            reading=page,
            read_hints=partial(self._read_hints, response),
            is_rebased=judgement.is_rebased,
            is_same_answer=partial(self._is_same_answer, response, judgement, notes),
        )
        if info.held is not None and visits.skip_unchanged:
            info.held.hidden_part = self._hidden_part or info.held.hidden_part
            info.held.markup_sum = partial(markup_sum, response, visits.link_params, follows=True)
            self._keep_sums(response)
        if info.outcome == "first":
            self._note_first(page, response)
        elif info.outcome == "changed" and self._is_compared_whole:
            url = visits.store.request(self._claim.page)["url"]
            visits.cycle.repeats.parts.note_change(url, copy, page.kept_fingerprint)
        if page.is_cut and info.outcome == "first":
            logger.warning("Only the first megabyte of the text of %s is compared", response)
        return self._finish(response, info)

    def _is_same_answer(self, response: Response, judgement: Judgement, notes: bytes | None) -> bool:
        """Whether an unchanged page's markup, headers and so on have nothing new for the callback either.

        ``notes``: packed notes of the page's copy, see `scrapy_gp4c.fingerprint.copy_notes`.
        """
        page, cycle = self._claim.page, self._visits.cycle
        if not judgement.is_known:
            follows = cycle.follows(page)
            current_sum = markup_sum(response, self._visits.link_params, follows=follows)
            if not has_same_markup(notes, current_sum, follows=follows):
                return False
        if isinstance(response, FetchedResponse):
            self._hidden_part = response.result.hidden_part
        elif notes is not None:
            parts = cycle.hidden_data.parts(self._visits.store.request(page))
            self._hidden_part = different_part(notes, judgement, response, parts)
        return self._hidden_part is None

    def _keep_sums(self, response: Response) -> None:
        """Store checksums of headers and markup, which the callback may read besides the text."""
        store, page = self._visits.store, self._claim.page
        if (notes := store.value("copies", page)) is not None:
            sums = {"header_sum": header_sum(response)}
            if not self._visits.cycle.follows(page):
                sums["markup_sum"] = markup_sum(response, self._visits.link_params, follows=False)
            store.put_value("copies", page, with_sums(notes, **sums))

    def _end(
        self, response: Response, outcome: str, error: str | None = None, request: Request | None = None
    ) -> VisitInfo:
        """End a visit without comparing texts; ``error``: why it failed, where the status does not say it."""
        status = None if outcome == "not_modified" else response.status
        answer = LastAnswer(status, error, final_url=self._final_url(response))
        size_bytes = _size_of(response)
        return self._visits.cycle.end(
            self._claim, outcome, size_bytes, self._latency_s, request, answer=answer
        )

    def _final_url(self, response: Response) -> str | None:
        """Return the URL after redirects, without secrets; None: there was no redirect."""
        return self._visits.public_url(response.url) if "redirect_urls" in self._request.meta else None

    def _note_doubt(self, response: Response, page: PageReading, doubt: Doubt) -> None:
        """Count a doubt about an answer, and take back changes that were the same block or error page."""
        visits = self._visits
        if doubt.reason == NOT_WATCHED_REASON:
            line = (
                f"{self._rule.name} leaves nothing of {response.url} to compare: correct its `watch` or "
                "`ignore` if the page is right."
            )
            log_first(visits.cycle.stats, "gp4c/nothing_watched", line, {}, logging.WARNING)
            return
        for changed in doubt.taken_back:
            if visits.cycle.doubt(changed.page, changed.notes):
                self._note_doubtful(response, changed.page)
        if doubt.is_remembered and page.fingerprint not in visits.texts.doubted:
            visits.store.amend_record(doubted=visits.texts.remember_doubted(page.fingerprint))
        if doubt.reason in (ONCE_MORE, ALTERNATING):
            self._note_refusal(None)
        elif doubt.reason not in NO_REFUSALS:
            self._note_doubtful(response, self._claim.page)

    @property
    def _url(self) -> str:
        """URL of the page, before any redirect."""
        return _first_url(self._request)

    def _repeated(self, response: Response, page: PageReading) -> int | None:
        """Return the page that this one only repeats under another URL; None: it repeats none."""
        number = self._claim.page
        if self._visits.store.page(number).found_by == START:
            return None
        if (twin := self._twin(response, page)) is not None:
            return twin
        if not self._is_compared_whole:
            return None
        return self._visits.cycle.repeats.original(number, self._url, page.fingerprint)

    @property
    def _is_compared_whole(self) -> bool:
        """Whether all of the page's text is compared; of parts, such as prices, many pages have the same."""
        return self._visits.features is None and not self._rule.watch

    def _twin(self, response: Response, page: PageReading) -> int | None:
        """Return the page of which this one is a second URL, by redirect, canonical link or a plainer URL.

        The two have the same text and callback; besides, both were compared in `MIN_TWIN_VISITS` visits, or
        the redirect is permanent, or this page's copy was once the other's text. Pages that name the same
        URL without a copy (a shop's product under two categories, RFC 6596) are second URLs of one of them.
        None: there is no such page.
        """
        visits, number = self._visits, self._claim.page
        store, row = visits.store, visits.store.page(number)
        url = canonical_url(response, self._url)
        least = 0 if self._is_permanent or url not in (None, response.url) else MIN_TWIN_VISITS
        if row.n < least:
            return None
        is_looked_for = row.n < UNCONDITIONAL or row.outcome == EXCLUDED or is_full_visit(row.key, row.n)
        if url is None:
            urls = list(plainer_urls(self._url)) if is_looked_for else []
        else:
            is_named = "redirect_urls" in self._request.meta or are_related(url, self._url)
            urls = [url] if is_named else []
        keys = visits.url_keys(urls).tolist() if urls else []
        twin = next((one for one in map(store.find, keys) if one is not None), None)
        if url is not None and keys and (twin is None or not store.page(twin).has_copy):
            twin = self._first_named(keys[0])
        if twin is None or twin == number or twin in visits.cycle.repeats.excluded:
            return None
        other, bits = store.page(twin), visits.cycle.settings.distance_bits
        is_moved = url is not None and row.has_copy and self._has_had_text(row.fingerprint, twin)
        if not other.has_copy or (other.n < least and not is_moved) or other.failures:
            return None
        texts = {page.fingerprint}
        if row.has_copy and not is_changed(page.fingerprint, row.fingerprint, bits):
            texts.add(row.fingerprint)  # unchanged, so that its copy stands for it
        if _callback_of(store.request(twin)) != _callback_of(store.request(number)):
            return None
        is_same = any(not is_changed(text, other.fingerprint, bits) for text in texts)
        # The other page, maybe still to be visited, reports a change of both.
        is_known = self._is_permanent or row.outcome == EXCLUDED or is_moved
        may_wait = is_known and row.failures <= MAX_TWIN_WAITS
        return twin if is_same or (may_wait and not self._is_as_before(twin)) else None

    def _first_named(self, key: int) -> int | None:
        """Return the page that stands for a canonical URL without a copy, by its `key`: the first of a run.

        A page that was a second URL at its last visit stays one of the same page, whatever the order is.
        """
        visits, page = self._visits, self._claim.page
        _, is_repeat, url = (visits.store.answer(page).error or "").partition(SAME_PAGE)
        earlier = visits.store.find(visits.url_keys([url]).tolist()[0]) if is_repeat else None
        named = visits.named
        if earlier is not None or len(named) >= MAX_REMEMBERED:
            return named.get(key) if earlier is None else earlier
        return named.setdefault(key, page)

    def _has_had_text(self, copy: int, twin: int) -> bool:
        """Whether page `twin` has the text of `copy`, a fingerprint, or had it before its last change."""
        store, bits = self._visits.store, self._visits.cycle.settings.distance_bits
        notes, other = store.value("copies", twin), store.page(twin)
        is_earlier = notes is not None and unpack(notes).earlier == copy & LOW
        return is_earlier or not is_changed(copy, other.fingerprint, bits)

    @property
    def _is_permanent(self) -> bool:
        """Whether the answer came after redirects that are all permanent."""
        reasons = self._request.meta.get("redirect_reasons", ())
        return bool(reasons) and all(status in PERMANENT for status in reasons)

    @property
    def _is_led_elsewhere(self) -> bool:
        """Whether the answer came after a temporary redirect, so that its validators are not the page's."""
        return bool(self._request.meta.get("redirect_reasons")) and not self._is_permanent

    def _is_as_before(self, page: int) -> bool:
        """Whether `page` was visited in this cycle, and proved unchanged."""
        visits = self._visits.store.open_visits()
        return bool(np.isin(visits["outcome"][visits["page"] == page], SAME).any())

    def _end_repeat(self, response: Response, page: PageReading, other: int) -> VisitInfo:
        visits, number = self._visits, self._claim.page
        url = visits.public_url(visits.store.request(other)["url"])
        row = visits.store.page(number)
        if not row.has_copy and not row.failures:
            self._note_first(page, response, is_repeat=True)
        visits.cycle.repeats.excluded.add(number)
        line = f"{visits.public_url(self._url)} is the same page as {url}, and is looked at ever more rarely."
        log_first(visits.cycle.stats, "gp4c/repeats", line, {})
        return self._end(response, "excluded", SAME_PAGE + url)

    def _note_first(self, page: PageReading, response: Response, *, is_repeat: bool = False) -> None:
        """Count the text of a new page, or of a second URL (`is_repeat`); warn where it reveals a trap."""
        if not self._is_compared_whole:
            return
        repeats = self._visits.cycle.repeats
        warning = repeats.note_first(self._url, page.kept_fingerprint, is_repeat=is_repeat)
        may_be_trap = warning is None and not is_repeat and repeats.trap_of(self._url) is None
        if may_be_trap and not isinstance(response, FetchedResponse) and not needs_process(response, None):
            warning = repeats.note_numberless(self._url, partial(_normal_text, page, response))
        if warning is not None:
            logger.warning("%s", warning)
        first = repeats.first_url(self._url, page.kept_fingerprint)
        if first != self._url and asks_password(response):
            url, other = map(self._visits.public_url, (self._url, first))
            line = (
                f"{url} asks for a password from its first visit on, with the text of {other}: nothing "
                "behind it is compared. Let the spider log in, and keep it out of links such as /logout, "
                "which end the session for all pages after them."
            )
            log_first(self._visits.cycle.stats, "gp4c/logins", line, {}, logging.WARNING)

    def _note_refusal(self, until_s: float | None) -> None:
        """Count an answer of the site as good or as a refusal; warn if the site is left alone by it.

        ``until_s``: as in `Patience.note`: None for a good answer. A refusal that has an errback is counted
        later, as the errback may ask for the page again.
        """
        cycle, host = self._visits.cycle, site_of(self._request)
        if until_s is not None and self._request.errback is not None:
            good = cycle.patience.good[host]
            cycle.refusals.append(Refusal(self._claim.page, self._request, host, until_s, good))
        elif cycle.patience.note(host, until_s):
            cycle.keep_left_alone()
            logger.warning("%s", refusing(host, cycle.patience.left_alone[host]))

    def _note_doubtful(self, response: Response, page: int) -> None:
        """Note a doubtful answer for `page`, to count as a refusal if its callback does not ask again."""
        if page in self._visits.cycle.asked_again:
            return  # the site answers others well
        held = self._visits.cycle.held.get(page)
        request = self._request if held is None or held.request is None else held.request
        cycle, host = self._visits.cycle, site_of(request)
        cycle.refusals.append(Refusal(page, request, host, wait_of(response), cycle.patience.good[host]))

    def _note_alternating(self, notes: bytes) -> None:
        """Log the first page that alternates between two texts, by the packed `notes` of its new copy."""
        if (returns := unpack(notes).returns) < MIN_RETURNS:
            return
        packed = self._visits.store.value("copies", self._claim.page)
        if packed is None or returns == unpack(packed).returns:
            return
        line = (
            f"{self._visits.public_url(self._url)} has come back {returns} times to the text before its last "
            "change: its answers differ from request to request, maybe by language, cookie, variant of a "
            "test, advertisement or server. Send a fixed Accept-Language and cookies, or name what counts "
            "with `watch` or `ignore` in GP4C_RULES."
        )
        log_first(self._visits.cycle.stats, "gp4c/alternates", line, {}, logging.WARNING)

    def _finish(self, response: Response, info: VisitInfo) -> Response:
        """Pass the response on with the result of the visit, or skip it."""
        self._attach(response, info)
        if self._visits.describes:
            self._describe(response, info.outcome)
        if self._visits.skip_unchanged:
            self._note_validators(response, info)
            if info.outcome in ("unchanged", "not_modified") and info.held is None:
                self._skip(response)
        return response

    def _describe(self, response: Response, outcome: str | None) -> None:
        """Store words that describe the page, for clusters, if its copy is new or none are stored."""
        store, page = self._visits.store, self._claim.page
        if outcome in ("first", "changed") or (
            outcome == "unchanged" and store.value("descriptions", page) is None
        ):
            fetched = response.result.description if isinstance(response, FetchedResponse) else None
            store.put_value("descriptions", page, description(response) if fetched is None else fetched)

    def _note_validators(self, response: Response, info: VisitInfo) -> None:
        """Store the validators of a copy, or detect by them that the page's last 304 was false.

        A page that changed at a full visit (`is_full_visit`) keeps its old ones: a 304 to these is false.
        """
        store, page = self._visits.store, self._claim.page
        row = store.page(page)
        if info.outcome != "changed" or not is_full_visit(row.key, row.n):
            if info.outcome in ("first", "changed", "unchanged"):
                self._keep_validators(response, info)
        elif row.outcome == NOT_MODIFIED and validators_of(response) == store.validators(page):
            self._note_lie()

    def _skip(self, response: Response) -> NoReturn:
        """Raise `Unchanged`, so that no callback runs; a Playwright page that it would close is closed."""
        browser_page = self._request.meta.get("playwright_page")
        if browser_page is not None and self._request.errback is None:  # an errback would close it
            deferred_from_coro(browser_page.close())
        if self._request.errback is not None:
            self._request.errback = partial(without_output, self._request.errback)
        raise Unchanged(response)

    def _attach(self, response: Response, info: VisitInfo) -> None:
        self._request.meta[META] = info
        if response.request is not None:  # a middleware may have replaced the request
            response.request.meta[META] = info

    def _keep_validators(self, response: Response, info: VisitInfo) -> None:
        """Store the validators of this response's copy, which the next visit's request will have."""
        store, page = self._visits.store, self._claim.page
        etag, last_modified = (None, None) if self._is_led_elsewhere else validators_of(response)
        if info.held is not None:  # stored unless the callback fails
            info.held.validators = etag, last_modified
        elif (etag, last_modified) != store.validators(page):
            store.set_validators(page, etag, last_modified)

    def _learn_move(self, response: Response) -> None:
        """Learn from a permanent redirect how a site's URLs have moved, and log each new move rule."""
        meta, moves = self._request.meta, self._visits.cycle.moves
        if not self._is_permanent:
            return
        if moves.learn(meta["redirect_urls"][0], response.url):
            self._visits.store.amend_record(moved=moves.rules)
            new_begin, new_end, old_begin, old_end = moves.rules[-1]
            logger.info(
                "Pages have moved from %s...%s to %s...%s: they keep their history.",
                *(old_begin, old_end, new_begin, new_end),
            )

    def _note_lie(self) -> None:
        """Note that the page's last 304 was false: from now on the page is asked for without validators."""
        visits, site = self._visits, site_of(self._request)
        pages = visits.lies.pop(site, [])
        visits.lies[site] = [*pages, self._claim.page][:MAX_LIES]
        while len(visits.lies) > MAX_LYING_SITES:
            del visits.lies[next(iter(visits.lies))]
        visits.store.amend_record(lies=visits.lies)
        line = (
            f"{visits.public_url(self._request.url)} was answered 304 though it had changed: it is "
            f"asked for without validators from now on, and so is its whole site after {MAX_LIES} such pages."
        )
        log_first(visits.cycle.stats, "gp4c/false_not_modified", line, {}, logging.WARNING)


def known_copy(cycle: Cycle, claim: Claim, *, is_redirected: bool = True) -> KnownCopy:
    """Return the data of a claimed page's copy with which its answer is compared.

    ``is_redirected``: whether the answer came, or may come, after a redirect.
    """
    page, store = claim.page, cycle.store
    row, rule = store.page(page), cycle.rules.of_page(page)
    archive, measuring = cycle.archive, cycle.measuring
    needs_text = measuring is not None and measuring.lacks(page, row)
    if archive is not None:  # an undelivered page is compared with the text of an older copy
        needs_text |= page in cycle.deliveries.pages or archive.lacks(row)
    was_doubtful = page in cycle.asked_again or (
        # A cycle that was cut short did not ask once more.
        row.outcome == DOUBTFUL and store.answer(page).error != ONCE_MORE
    )
    return KnownCopy(
        page,
        row.fingerprint if row.has_copy else None,
        store.value("copies", page) if row.has_copy else None,
        cycle.believes(row),
        needs_text,
        rule,
        cycle.distance_bits(rule),
        is_redirected and cycle.was_redirected(page),
        was_doubtful,
        row.outcome == EXCLUDED,
    )


def is_rebased(notes: bytes | None, rule: PageRule) -> bool:
    """Whether a page's copy, by its packed `notes`, was cut out by a rule with other `watch` or `ignore`."""
    return notes is not None and unpack(notes).part_sum != part_sum(rule.watch, rule.ignore)


def known_judgement(
    request: Request, watched: ComparedPart, copy: KnownCopy, texts: SharedTexts
) -> Judgement | None:
    """Return the judgement of a body that is byte by byte the copy's, without reading it; else None.

    ``request``: as it was sent last; ``watched``: compared part; ``texts``: of pages compared before.
    """
    if copy.fingerprint is None or copy.notes is None or copy.needs_text:
        return None
    is_same, notes = compare_bytes(watched.response, watched.features, copy.fingerprint, copy.notes)
    if not is_same:
        return None
    doubt = _doubt_of_unchanged(
        request, Changed(copy.page, copy.fingerprint, copy.notes, _first_url(request)), texts
    )
    return Judgement(PageReading(copy.fingerprint), is_known=True, doubt=doubt, notes=notes)


def _first_url(request: Request) -> str:
    url: str = (request.meta.get("redirect_urls") or [request.url])[0]
    return url


def _doubt_of_unchanged(request: Request, copy: Changed, texts: SharedTexts) -> Doubt:
    """Note that a page still has its copy's text; returns the doubt that takes back changes of others."""
    site, pages = site_of(request), texts.unchanged
    text = site, copy.copy
    one = pages.get(text, copy)
    pages[text] = copy if one is not None and one.page == copy.page else None
    if len(pages) > MAX_SHARING:
        del pages[next(iter(pages))]
    if text not in texts.sharing and copy.page not in texts.asked_once_more:
        return NO_DOUBT
    return Doubt(None, taken_back=texts.to_take_back(site, copy))


def judge(
    request: Request,
    response: Response,
    watched: ComparedPart,
    reading: PageReading,
    copy: KnownCopy,
    texts: SharedTexts,
) -> Judgement:
    """Compare a page with its copy, and decide whether the answer is the page at all (`Judgement.doubt`).

    ``request``: as it was sent last; ``watched``: compared part of the response; ``reading``: text and
    fingerprint of that part; ``texts``: those of pages judged before, for texts that many pages share.
    """
    if watched.is_missing and not copy.is_believed:
        return Judgement(reading, doubt=Doubt(NOT_WATCHED_REASON))
    is_anew, doubt = is_rebased(copy.notes, copy.rule), NO_DOUBT
    if not copy.is_believed and not is_anew:
        before = None
        if copy.fingerprint is not None and copy.notes is not None and watched.features is None:
            before = Changed(copy.page, copy.fingerprint, copy.notes, _first_url(request))
        doubt = texts.judge(
            request,
            response,
            reading,
            before,
            copy.distance_bits,
            was_redirected=copy.was_redirected,
            was_doubtful=copy.was_doubtful,
            was_excluded=copy.was_excluded,
        )
        if doubt.reason is not None:
            return Judgement(reading, doubt=doubt)
        if before is not None and not is_changed(reading.fingerprint, before.copy, copy.distance_bits):
            doubt = _doubt_of_unchanged(request, before, texts)
    reading, notes = compared(
        watched.response,
        reading,
        watched.features,
        copy.fingerprint,
        copy.notes,
        copy.distance_bits,
        part_sum(copy.rule.watch, copy.rule.ignore),
        is_believed=copy.is_believed,
    )
    return Judgement(reading, is_rebased=is_anew, doubt=doubt, notes=notes)


def _callback_of(stored: StoredRequest) -> tuple[object, ...]:
    """Callback, its arguments and CrawlSpider rule: pages that differ in these give different items."""
    return tuple(stored.get(name) for name in ("callback", "cb_kwargs", "rule"))


def is_full_visit(key: int, n: int) -> bool:
    """Whether a page's visit after `n` compared ones goes without validators, to detect false 304s."""
    return n >= UNCONDITIONAL and (n + key) % UNCONDITIONAL == 0


def wait_of(response: Response) -> float:
    """Time, s since 1970, until which a response's Retry-After wants no other request; 0: it has none."""
    return retry_after(response.headers.get("Retry-After"), time.time())


def validators_of(response: Response) -> tuple[str | None, str | None]:
    """ETag and Last-Modified of a response; None for a missing, empty or very long one."""
    values = [response.headers.get(name) or b"" for name in ("ETag", "Last-Modified")]
    etag, last_modified = (
        value.decode("latin-1") if 0 < len(value) <= MAX_VALIDATOR_BYTES else None for value in values
    )
    return etag, last_modified


def plain_outcome(response: Response, request: Request) -> str | None:
    """Return the outcome that status and flags of a response decide; None: the text decides."""
    if is_dummy(response):
        return "excluded"
    if response.status == 304 and any(name in request.headers for name in CONDITIONS):
        return "not_modified"
    if response.status in GONE_STATUS:
        return "gone"
    is_part = response.status == 206 and "Range" not in request.headers  # nobody has asked for a part
    has_page = 200 <= response.status < 300 and response.status not in NO_CONTENT
    return None if has_page and not is_part and CUT_OFF not in response.flags else "error"


def markup_sum(response: Response, ignored: tuple[str, ...], *, follows: bool) -> int:
    """Return the checksum of the data in a page's markup, and of its links if the callback `follows` links.

    0 for an answer that is not HTML or is too long, and without data if the callback follows no links.
    ``ignored``: query parameters of links that do not count.
    """
    if isinstance(response, FetchedResponse):
        return response.result.markup_sum
    if not isinstance(response, HtmlResponse) or len(response.body) > MAX_LEARNED_BYTES:
        return 0
    source = html_source(response)
    data = data_sum(source)
    return (data ^ link_sum(source, ignored)) or 1 if follows else data


def has_same_markup(notes: bytes | None, markup: int, *, follows: bool) -> bool:
    """Whether `markup`, a `markup_sum`, is that of the page's copy, by its packed `notes`.

    If the callback `follows` links, missing notes or a `markup` of 0 mean False; else missing notes mean
    True.
    """
    if notes is None or (follows and not markup):
        return not follows
    return markup == unpack(notes).markup_sum


def is_dummy(response: Response) -> bool:
    """Whether a response is scrapy-poet's placeholder, for a callback that gets the page by page objects."""
    return any(kind.__name__ == "DummyResponse" for kind in type(response).__mro__)


def _normal_text(page: PageReading, response: Response) -> str:
    """Return the normal form of a page's text; the response is read again where `page` has not kept it."""
    return page.normal or read(response, with_text=True).normal or ""


def _size_of(response: Response) -> int:
    return response.result.size_bytes if isinstance(response, FetchedResponse) else len(response.body)
