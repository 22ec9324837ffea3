"""Messages between fetchers (download processes) and the crawl's own process, here called the owner."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from scrapy.exceptions import IgnoreRequest
from scrapy.http import Response

from scrapy_gp4c.crawling.doubt import NO_DOUBT, Doubt
from scrapy_gp4c.fingerprint import PageReading
from scrapy_gp4c.page_state.rules import PageRule

FETCHERS_FILE: Final = "fetchers.json"
"""File in the store's directory: the fetchers of the crawl that runs, for `scrapy gp4c status`."""

VISIT_META: Final = ("download_latency", "redirect_urls", "redirect_reasons")
"""Keys that a download adds to ``Request.meta``, and that a visit reads."""


class NotFetchedError(IgnoreRequest):
    """Raised for a page that was not requested, as the crawl closes or its batch ended: it is due again."""


class KnownCopy(NamedTuple):
    """Data of a page's copy and last visit, with which its new answer is compared."""

    page: int
    fingerprint: int | None
    """Fingerprint of the page's copy; None: there is none."""
    notes: bytes | None
    """Packed notes of the copy, see `scrapy_gp4c.fingerprint.copy_notes`."""
    is_believed: bool
    """Whether answers were doubted so often that the next one counts as the page."""
    needs_text: bool
    """Whether the text is needed even if the body is that of the copy."""
    rule: PageRule
    distance_bits: int
    was_redirected: bool
    """Whether the page's last answer came after a redirect."""
    was_doubtful: bool
    was_excluded: bool
    """Whether the page only repeated another at its last visit."""


class Judgement(NamedTuple):
    """Result of the comparison of an answer with the page's copy."""

    reading: PageReading | None = None
    """Text and fingerprint of the page; None: it has none, by its status or by `error`."""
    error: Exception | None = None
    """Error that kept the fingerprint from being made."""
    is_known: bool = False
    """Whether the body is byte by byte that of the page's copy."""
    is_rebased: bool = False
    """Whether another rule made the copy, so that the page is compared anew."""
    doubt: Doubt = NO_DOUBT
    """Whether the answer may not be the page."""
    notes: bytes | None = None
    """Packed notes of the new copy, see `scrapy_gp4c.fingerprint.copy_notes`; None: no new ones."""


NOT_JUDGED: Final = Judgement()


@dataclass(frozen=True)
class PageTask:
    """One page that a fetcher is to fetch, with what it needs to compare it and run its callback."""

    request: dict[str, Any]
    """`Request.to_dict`, without marks of the add-on."""
    copy: KnownCopy | None
    """None: the request is no visit of a page, but a POST or the like."""
    info: dict[str, Any] = field(default_factory=dict)
    """Fields of ``response.meta["gp4c"]`` that are known before the visit."""
    previous_text: str | None = None
    """Text of the copy that was delivered last, from the archive."""
    delivered: tuple[str, int | None] | None = None
    """Outcome for the callback of an undelivered page, and fingerprint of the copy that was delivered last.

    With a fingerprint, the comparison with that copy makes the outcome. None: the page was delivered."""
    needs_callback: bool = False
    """Whether the callback is to run though the page did not change."""
    follows: bool = False
    """Whether the callback follows links, and is to run where these have changed."""
    hidden_parts: Sequence[str] = ()
    """Parts of the answer whose differences let the callback run, see `scrapy_gp4c.crawling.hidden_data`."""
    is_download: bool = False
    """Whether no callback runs, and the owner gets the whole response, as for its item pipelines."""


@dataclass(frozen=True)
class Batch:
    """Pages of one host, in the order of the plan, that a fetcher is to fetch within a time."""

    name: str
    host: str
    """Downloader slot of all its pages."""
    tasks: list[bytes]
    """Pickled `PageTask` of each page."""
    pause_s: float
    """Pause before the first request: another fetcher may have asked the host just now."""
    end_s: float
    """Time by the fetcher's own clock after which no request of the batch is sent."""
    cookies: list[tuple[Any, Any]]
    """Cookies of the host, each with the key of its jar."""
    doubted: list[int]
    """Fingerprints of texts that earlier cycles have doubted."""
    changes: list[dict[str, Any]]
    """Changes of the spider's attributes in other processes."""


class News(NamedTuple):
    """Results of a fetcher since its last `News`, repeated until the owner has acknowledged them."""

    number: int
    results: list[tuple[str, int, bytes]]
    """Batch, position of the page in it, and pickled `PageResult`; ``b""``: the batch ended before it."""
    changes: list[dict[str, Any]]
    """Changes of the spider's attributes by callbacks."""
    stats: dict[tuple[str, str], Any]
    """Method of the statistics collector and name of the statistic -> value."""
    delays_s: dict[str, float]
    """Host -> present delay between two requests."""
    cookies: list[tuple[Any, Any]]
    """Cookies that have changed."""
    answers: list[tuple[str, int, dict[bytes, list[bytes]], bytes]]
    """URL, status, headers and body of robots.txt files, which name sitemaps."""


class Reply(NamedTuple):
    """Answer to the owner's call: a fetcher's state, and its `News`, if its reactor works."""

    clock_s: float
    """Time by the fetcher's clock when it wrote this."""
    batches: frozenset[str]
    """Batches whose results the owner has not all acknowledged."""
    is_leaving: bool
    """Whether the fetcher has been asked to end, and takes no further batch."""
    stuck_s: float
    """Seconds since the fetcher's reactor had a turn, if it is stuck (in a callback, say)."""
    news: News | None = None
    """Results since the last reply; None: the reactor is stuck."""


@dataclass
class PageResult:
    """Result of one page at a fetcher: its answer, the comparison with the copy, the callback's output."""

    url: str = ""
    status: int = 0
    headers: dict[bytes, list[bytes]] = field(default_factory=dict)
    flags: list[str] = field(default_factory=list)
    body: bytes = b""
    """Body of a download for the owner, or of a sitemap or feed, which the owner reads itself; else empty."""
    size_bytes: int = 0
    meta: dict[str, Any] = field(default_factory=dict)
    """Entries of the last request's ``meta`` that visits read: `VISIT_META`."""
    judgement: Judgement = NOT_JUDGED
    verdict: bool | None = None
    """Whether the page changed, by the callback; None: the fingerprint decides."""
    withdrawn: str | None = None
    """Why the answer is not the page, as the callback said by `VisitInfo.withdraw`; None: it did not."""
    description: bytes | None = None
    items: list[Any] = field(default_factory=list)
    requests: list[tuple[bytes, list[str]]] = field(default_factory=list)
    """Requests of the callback, grouped: pickled fields that a group shares, see `pack_request`, and URLs."""
    markup_sum: int = 0
    """Checksum of data in the markup, and of the links if the callback follows them; 0: not known."""
    hidden_part: str | None = None
    """Part of the answer (`BODY`, `HEADERS`) for whose difference alone the callback ran; None: none."""
    shared: list[tuple[object, bytes, str, bool]] = field(default_factory=list)
    """Objects in the request's data that other requests may have, too: identity, version, fetcher, and
    whether the callback has changed it."""
    has_downloads: bool = False
    """Whether the callback has downloaded something by itself."""
    not_sendable: str = ""
    """Text for the log: the callback's first request that the fetcher had to send itself, and why."""
    callback_error: str = ""
    """Traceback of a callback or pipeline that failed; empty: none did."""
    close_reason: str = ""
    """Why the callback closes the spider; empty: it does not."""
    failure: str | None = None
    """Exception of the callback, even if a middleware has handled it; None: it raised none."""
    is_used: bool = False
    """`VisitInfo.is_used` after the callback."""
    excluded: str = ""
    """Reason why a rule kept the page out: robots.txt, an off-site host."""
    failed: str = ""
    """Error of the download."""
    elsewhere: dict[str, Any] | None = None
    """Request for the URL at another host that the page redirects to; None: it does not."""


class FetchedResponse(Response):
    """The owner's response for a page that a fetcher has fetched; the body stays with the fetcher."""

    result: PageResult

    @classmethod
    def of(cls, result: PageResult) -> "FetchedResponse":
        """Return the response with status and headers of a result."""
        response = cls(result.url, result.status, result.headers, result.body, flags=list(result.flags))
        response.result = result
        return response
