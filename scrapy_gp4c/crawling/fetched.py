"""Pages that a fetcher has fetched for the owner of a crawl, and the owner's responses of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from scrapy.http import Response

from scrapy_gp4c.errors import FetcherError
from scrapy_gp4c.fingerprint import PageReading
from scrapy_gp4c.fingerprint.description import description


@dataclass(frozen=True)
class KnownCopy:
    """Data of a visited page that its fetcher needs."""

    fingerprint: int | None
    """Fingerprint of the page's copy; None: there is none."""
    notes: bytes | None
    """Packed notes of the copy, see `scrapy_gp4c.fingerprint.copy_notes`."""
    delivered: tuple[str, int | None] | None
    """Where the copy was not delivered to the spider: outcome of this visit for the callback, or else the
    fingerprint that it is compared with."""
    info: dict[str, Any]
    """Fields of ``response.meta["gp4c"]`` that are known before the visit: page, cycle, kind, score, n, X."""


@dataclass(frozen=True)
class PageTask:
    """One page of a batch."""

    request: dict[str, Any]
    """`Request.to_dict`, without marks of the add-on."""
    copy: KnownCopy | None
    """None: the request is no visit of a page, but a POST or the like."""


@dataclass(frozen=True)
class Batch:
    """Pages of one host, in the order of the plan."""

    tasks: list[PageTask]
    delay_s: float
    """Pause before the first request: the fetcher before may have asked the host just now."""


@dataclass
class PageResult:
    """One page as a fetcher has found it."""

    url: str = ""
    status: int = 0
    headers: dict[bytes, list[bytes]] = field(default_factory=dict)
    flags: list[str] = field(default_factory=list)
    body: bytes = b""
    """Empty but for files of claims, which the owner reads itself."""
    size_bytes: int = 0
    latency_s: float = 0.0
    reading: PageReading | None = None
    """None: the page has no fingerprint, as its status says, or as `unread` says."""
    unread: str = ""
    """Error that kept the fingerprint from being made."""
    notes: bytes = b""
    """Packed notes of this copy."""
    verdict: bool | None = None
    """Whether the page changed, by the callback; None: the fingerprint decides."""
    withdrawn: str | None = None
    """Why the answer is not the page, by the callback."""
    description: bytes | None = None
    items: list[Any] = field(default_factory=list)
    requests: list[dict[str, Any]] = field(default_factory=list)
    """`Request.to_dict` of each."""
    callback_error: str = ""
    """Traceback of the spider's callback."""
    excluded: str = ""
    """Reason why a rule kept the page out: robots.txt, an off-site host."""
    failed: str = ""
    """Error of the download."""


class FetchedResponse(Response):
    """Response of a page that a fetcher has fetched; its body stays with the fetcher."""

    result: PageResult

    @classmethod
    def of(cls, result: PageResult) -> FetchedResponse:
        """Response with the status and headers of a result."""
        response = cls(result.url, result.status, result.headers, result.body, flags=list(result.flags))
        response.result = result
        return response

    def reading(self) -> PageReading | Exception:
        """Fingerprint of the page, or the error that kept it from being made."""
        return self.result.reading or FetcherError(self.result.unread or "the fetcher made no fingerprint")


def size_of(response: Response) -> int:
    """Bytes of a body, which may be a fetcher's."""
    return response.result.size_bytes if isinstance(response, FetchedResponse) else len(response.body)


def description_of(response: Response) -> bytes:
    """Description of a page, which a fetcher may have made."""
    made = response.result.description if isinstance(response, FetchedResponse) else None
    return description(response) if made is None else made
