"""Pages that a fetcher has fetched for the owner of a crawl, and the owner's responses of them."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from scrapy.exceptions import IgnoreRequest
from scrapy.http import Response

from scrapy_gp4c.crawling.doubt import NO_DOUBT, Doubt
from scrapy_gp4c.fingerprint import PageReading
from scrapy_gp4c.page_state.rules import PageRule

FETCHERS_FILE: Final = "fetchers.json"
"""File beside the store: the fetchers of the crawl that runs, for ``status``."""

VISIT_META: Final = ("download_latency", "redirect_urls", "redirect_reasons")
"""Keys that a download adds to ``Request.meta``, and that a visit reads."""


class NotFetchedError(IgnoreRequest):
    """A page was not asked for, because the crawl closes or a fetcher's batch ended: it is due again."""


class KnownCopy(NamedTuple):
    """Data of a visited page that its judgement needs."""

    page: int
    fingerprint: int | None
    """Fingerprint of the page's copy; None: there is none."""
    notes: bytes | None
    """Packed notes of the copy, see `scrapy_gp4c.fingerprint.copy_notes`."""
    is_believed: bool
    """Whether answers were doubted so often that the next one is the page."""
    needs_text: bool
    """Whether the owner needs the text of a body that is the copy's."""
    rule: PageRule
    distance_bits: int
    was_redirected: bool
    """Whether the page's last answer came after a redirect."""
    was_doubtful: bool
    was_excluded: bool
    """Whether the page only repeated another at its last visit."""


class Judgement(NamedTuple):
    """Page as its body is, compared with its copy."""

    reading: PageReading | None = None
    """None: the page has no fingerprint, as its status says, or as `error` says."""
    error: Exception | None = None
    """Error that kept the fingerprint from being made."""
    is_known: bool = False
    """Whether the body is that of the page's copy."""
    is_rebased: bool = False
    """Whether another rule made the copy, so that the page is compared anew."""
    doubt: Doubt = NO_DOUBT
    """Whether the answer is the page."""
    notes: bytes | None = None
    """Packed notes of this copy; None: they stay as they are."""


NOT_JUDGED: Final = Judgement()


@dataclass(frozen=True)
class PageTask:
    """One page of a batch."""

    request: dict[str, Any]
    """`Request.to_dict`, without marks of the add-on."""
    copy: KnownCopy | None
    """None: the request is no visit of a page, but a POST or the like."""
    info: dict[str, Any] = field(default_factory=dict)
    """Fields of ``response.meta["gp4c"]`` that are known before the visit."""
    previous_text: str | None = None
    """Text of the copy that was delivered last, from the archive."""
    delivered: tuple[str, int | None] | None = None
    """Where the copy was not delivered to the spider: outcome of this visit for the callback, or else the
    fingerprint that it is compared with."""
    needs_callback: bool = False
    """Whether the callback is to run though the page did not change."""
    follows: bool = False
    """Whether the callback follows links, and is to run unless these are the same."""
    hidden_parts: Sequence[str] = ()
    """Parts of the answer by whose differences alone the callback runs."""
    is_download: bool = False
    """Whether no callback runs, and the owner gets the whole response, as for its item pipelines."""


@dataclass(frozen=True)
class Batch:
    """Pages of one host, in the order of the plan."""

    name: str
    host: str
    """Downloader slot of all its pages."""
    tasks: list[bytes]
    """Pickled `PageTask` of each page."""
    pause_s: float
    """Pause before the first request: another fetcher may have asked the host just now."""
    end_s: float
    """Time by the fetcher's own clock from on which nothing of it is sent."""
    cookies: list[tuple[Any, Any]]
    """Cookies of the host, each with the key of its jar."""
    doubted: list[int]
    """Fingerprints that cycles before have doubted."""
    changes: list[dict[str, Any]]
    """How attributes of the spider have changed elsewhere."""


class News(NamedTuple):
    """Results of a fetcher since its last news, which it repeats until the owner has acknowledged them."""

    number: int
    results: list[tuple[str, int, bytes]]
    """Batch, position of the page in it, and the pickled `PageResult`; empty: the batch ended before it."""
    changes: list[dict[str, Any]]
    """How callbacks have changed the spider's attributes."""
    stats: dict[tuple[str, str], Any]
    """Method of the statistics collector and name of the statistic -> value."""
    delays_s: dict[str, float]
    """Present delays of hosts."""
    cookies: list[tuple[Any, Any]]
    """Cookies that have changed."""
    answers: list[tuple[str, int, dict[bytes, list[bytes]], bytes]]
    """URL, status, headers and body of robots.txt files, for their hints."""


class Reply(NamedTuple):
    """Answer of a fetcher to its owner."""

    clock_s: float
    """Time by the fetcher's clock when it wrote this."""
    batches: frozenset[str]
    """Batches of which the owner has not acknowledged all results."""
    is_leaving: bool
    """Whether it has been asked to end, and takes no further batch."""
    stuck_s: float
    """Time since its reactor had a turn, if that is stuck."""
    news: News | None = None
    """None: the reactor is stuck."""


@dataclass
class PageResult:
    """One page as a fetcher has found it."""

    url: str = ""
    status: int = 0
    headers: dict[bytes, list[bytes]] = field(default_factory=dict)
    flags: list[str] = field(default_factory=list)
    body: bytes = b""
    """Empty but for downloads, and files of claims, which the owner reads itself."""
    size_bytes: int = 0
    meta: dict[str, Any] = field(default_factory=dict)
    """Entries of the last request's ``meta`` that visits read: `VISIT_META`."""
    judgement: Judgement = NOT_JUDGED
    verdict: bool | None = None
    """Whether the page changed, by the callback; None: the fingerprint decides."""
    withdrawn: str | None = None
    """Why the answer is not the page, by the callback."""
    description: bytes | None = None
    items: list[Any] = field(default_factory=list)
    requests: list[tuple[bytes, list[str]]] = field(default_factory=list)
    """Requests that differ in their URLs alone: all else, pickled, as `pack_request` has it, and the URLs."""
    markup_sum: int = 0
    """Checksum of data in the markup, and of the links if the callback follows them; 0: not known."""
    hidden_part: str | None = None
    """Part of the answer by whose difference alone the callback has run."""
    shared: list[tuple[object, bytes, str, bool]] = field(default_factory=list)
    """Objects of the request that others may have, too: identity, version, fetcher, whether the callback has
    changed it."""
    has_downloads: bool = False
    """Whether the callback has downloaded something by itself."""
    not_sendable: str = ""
    """First request of the callback that the fetcher had to send itself, and why."""
    callback_error: str = ""
    """Traceback of the spider's callback, or of a pipeline."""
    close_reason: str = ""
    """Why the callback closes the spider; empty: it does not."""
    failure: str | None = None
    """Exception of the callback, which a middleware may have hidden."""
    excluded: str = ""
    """Reason why a rule kept the page out: robots.txt, an off-site host."""
    failed: str = ""
    """Error of the download."""
    elsewhere: dict[str, Any] | None = None
    """Request of another host that the page redirects to."""


class FetchedResponse(Response):
    """Response of a page that a fetcher has fetched; its body stays with the fetcher."""

    result: PageResult

    @classmethod
    def of(cls, result: PageResult) -> "FetchedResponse":
        """Response with the status and headers of a result."""
        response = cls(result.url, result.status, result.headers, result.body, flags=list(result.flags))
        response.result = result
        return response
