"""Messages that shards send each other, and the letters they are in: JSON, deflated.

What is read is checked, whoever wrote it: what is no message is counted and left out; nothing is ever
unpickled.
"""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple, NoReturn

from scrapy_gp4c.distributed.segments import deflated
from scrapy_gp4c.page_state.outcomes import KINDS, OUTCOMES
from scrapy_gp4c.scoring import hints
from scrapy_gp4c.store.records import NewVisit, StoredRequest
from scrapy_gp4c.store.shards.placing import MOST_SHARDS

LETTER_BYTES: Final = 2**18
"""Of a letter, inflated, that is written; one message may be longer."""
MOST_BYTES: Final = 2**24
"""Of a letter, inflated, that is read: more is none of ours."""


class Found(NamedTuple):
    """A page of the receiver that a page of the sender led to."""

    key: int
    request: StoredRequest
    finder: int
    """Key of the page whose response yielded it; 0: the start."""
    shard: int
    """That of the finder."""


class Tries(NamedTuple):
    """What Scrapy has noted of a fetch so far, see `scrapy_gp4c.crawling.stored_requests.TRANSIENT_META`."""

    redirects: int
    left: int
    """Redirects that are still allowed."""
    urls: tuple[str, ...]
    """Where the redirects were."""
    reasons: tuple[int | str, ...]
    retries: int


class Copy(NamedTuple):
    """What a visit is compared with, and what its callback hears of the page."""

    has_copy: bool
    fingerprint: int
    n: int
    X: int


class Handover(NamedTuple):
    """A visit was redirected to a host of the receiver, which goes on with it."""

    key: int
    shard: int
    """Key and shard of the page that was to be visited."""
    request: StoredRequest
    """To be sent next."""
    tries: Tries
    kind: str
    score: float | None
    copy: Copy


class Returned(NamedTuple):
    """What a visit came to that had been handed over."""

    key: int
    visit: NewVisit
    """Its `page` is 0: page ids are the receiver's own."""
    validators: tuple[str | None, str | None] | None = None
    """ETag and Last-Modified of the new copy; None: they are not asked for."""
    body_sum: int | None = None
    claims: tuple[tuple[str, float], ...] = ()
    """What the answer said of its page: kind of claim, value."""


Message = Found | Handover | Returned


class Received(NamedTuple):
    """What a letter says."""

    messages: tuple[Message, ...]
    refused: int
    """Messages, or letters as a whole, that are none."""


def write(messages: Iterable[Message]) -> list[bytes]:
    """Return the bodies of letters that hold these messages, in order."""
    bodies: list[bytes] = []
    texts: list[str] = []
    size = 0
    for message in messages:
        text = json.dumps([_NAMES[type(message)], *message], separators=(",", ":"))
        if texts and size + len(text) > LETTER_BYTES:
            bodies.append(deflated(f"[{','.join(texts)}]".encode()))
            texts, size = [], 0
        texts.append(text)
        size += len(text)
    if texts:
        bodies.append(deflated(f"[{','.join(texts)}]".encode()))
    return bodies


def read(body: bytes, check: Callable[[StoredRequest], object]) -> Received:
    """Return the messages of a letter; whatever it holds, this raises nothing.

    ``check``: what an import checks requests by; raises ValueError for one that is none.
    """
    try:
        inflate = zlib.decompressobj()
        text = inflate.decompress(body, MOST_BYTES)
        items = json.loads(text, parse_constant=_no_number) if inflate.eof else None
    except (zlib.error, ValueError, RecursionError):
        items = None
    if not isinstance(items, list):
        return Received((), 1)
    messages: list[Message] = []
    for item in items:
        try:
            messages.append(_message(item, check))
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
            continue
    return Received(tuple(messages), len(items) - len(messages))


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"expected a number; found {text}")


def _message(item: Any, check: Callable[[StoredRequest], object]) -> Message:
    """Return what a part of a letter says; raises one of what `read` catches where it is no message."""
    name, *fields = item
    if name == "found":
        key, request, finder, shard = fields
        check(request)
        return Found(_whole(key, 2**64), request, _whole(finder, 2**64), _whole(shard, MOST_SHARDS))
    if name == "handover":
        return _handover(check, *fields)
    if name == "returned":
        key, visit, validators, body_sum, claims = fields
        return Returned(
            _whole(key, 2**64),
            _visit(*visit),
            None if validators is None else _validators(*validators),
            None if body_sum is None else _whole(body_sum, 2**64),
            tuple((_one_of(kind, hints.KINDS), _number(value)) for kind, value in claims),
        )
    raise ValueError(f"expected one of {sorted(_NAMES.values())}; found another kind of message")


def _handover(check: Callable[[StoredRequest], object], *fields: Any) -> Handover:
    key, shard, request, tries, kind, score, copy = fields
    check(request)
    redirects, left, urls, reasons, retries = tries
    has_copy, fingerprint, n, changes = copy
    if type(has_copy) is not bool:
        raise ValueError("expected true or false")
    return Handover(
        _whole(key, 2**64),
        _whole(shard, MOST_SHARDS),
        request,
        Tries(
            _whole(redirects, 2**16),
            _whole(left, 2**16),
            tuple(_text(url) for url in urls),
            tuple(_whole(one, 1000) if type(one) is int else _text(one) for one in reasons),
            _whole(retries, 2**16),
        ),
        _one_of(kind, KINDS),
        None if score is None else _finite(score),
        Copy(has_copy, _whole(fingerprint, 2**64), _whole(n, 2**32), _whole(changes, 2**32)),
    )


def _validators(etag: Any, last_modified: Any) -> tuple[str | None, str | None]:
    """As headers have them: Latin-1."""
    for value in (etag, last_modified):
        if value is not None:
            _text(value).encode("latin-1")
    return etag, last_modified


def _visit(*fields: Any) -> NewVisit:
    page, outcome, time, kind, fingerprint, distance, size, latency_s = fields
    return NewVisit(
        _whole(page, 1),
        _one_of(outcome, OUTCOMES),
        _number(time),
        _one_of(kind, KINDS),
        _whole(fingerprint, 2**64),
        _whole(distance, 256),
        _whole(size, 2**63),
        _number(latency_s),
    )


def _whole(value: Any, end: int) -> int:
    if type(value) is not int or not 0 <= value < end:
        raise ValueError(f"expected a whole number from 0 to {end - 1}")
    return value


def _number(value: Any) -> float:
    if _finite(value) < 0:
        raise ValueError("expected a number from 0 on")
    return float(value)


def _finite(value: Any) -> float:
    if type(value) not in (int, float) or not math.isfinite(value):
        raise ValueError("expected a number")
    return float(value)


def _text(value: Any) -> str:
    if type(value) is not str:
        raise ValueError("expected a text")
    return value


def _one_of(value: Any, names: tuple[str, ...]) -> str:
    if value not in names:
        raise ValueError(f"expected one of {', '.join(names)}")
    return str(value)


_NAMES: Final[dict[type, str]] = {
    Found: "found",
    Handover: "handover",
    Returned: "returned",
}
