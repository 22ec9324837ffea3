"""What shards tell each other: JSON, deflated; checked when it is read, whoever wrote it.

A letter is written in the flush of the visits that led to it, and consumed in the flush that has what it
led to. What is no message is counted and left out; nothing is ever unpickled.
"""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple, NoReturn

from scrapy_gp4c.distributed.connection import Transaction
from scrapy_gp4c.distributed.log import Letter
from scrapy_gp4c.page_state.outcomes import KINDS, OUTCOMES
from scrapy_gp4c.store.records import NewVisit, StoredRequest

LETTER_BYTES: Final = 2**18
"""Of a letter, inflated, that is written; one message may be longer."""
MOST_BYTES: Final = 2**24
"""Of a letter, inflated, that is read: more is none of ours."""
LETTERS: Final = 32
"""Read at once."""
REMEMBERED: Final = 1_000_000
"""New URLs that a sender remembers to have sent in a cycle."""


class Found(NamedTuple):
    """A page of the receiver that a page of the sender led to."""

    key: int
    request: StoredRequest
    finder: int
    """Key of the page whose response yielded it; 0: the start."""


class Brought(NamedTuple):
    """So many pages became known to the sender by a page of the receiver."""

    finder: int
    pages: int


class Handover(NamedTuple):
    """A visit to a page of the sender was redirected to a host of the receiver, which goes on with it."""

    key: int
    request: StoredRequest
    """To be sent next."""
    kind: str
    times: int
    """Redirects so far."""


class Returned(NamedTuple):
    """What a visit came to that the receiver had handed over."""

    key: int
    visit: NewVisit
    """Its `page` is 0: page ids are the receiver's own."""


Message = Found | Brought | Handover | Returned


class Received(NamedTuple):
    """What a letter says."""

    messages: tuple[Message, ...]
    refused: int
    """Messages, or letters as a whole, that are none."""


class Waiting(NamedTuple):
    """A letter that nobody consumed yet."""

    id: int
    cycle: int
    letter: Letter


class Sender:
    """Collects what shards of one worker have to tell; a URL goes to its shard once a cycle."""

    def __init__(self, remembered: int = REMEMBERED) -> None:
        """Remember so many sent URLs; beyond, the oldest may go again, and their receivers know them."""
        self._sent: dict[int, None] = {}
        self._remembered = remembered
        self._waiting: dict[tuple[int, int], list[Message]] = {}

    def add(self, sender: int, receiver: int, message: Message) -> bool:
        """Let a shard tell another one something; False for a URL that was sent in this cycle."""
        if isinstance(message, Found):
            if message.key in self._sent:
                return False
            self._sent[message.key] = None
            if len(self._sent) > self._remembered:
                del self._sent[next(iter(self._sent))]
        self._waiting.setdefault((sender, receiver), []).append(message)
        return True

    def letters(self) -> tuple[Letter, ...]:
        """Return what is to be sent, which is the next flush's from now on."""
        waiting, self._waiting = self._waiting, {}
        return tuple(
            Letter(sender, receiver, body)
            for (sender, receiver), messages in waiting.items()
            for body in write(messages)
        )

    def next_cycle(self) -> None:
        """Forget what was sent."""
        self._sent.clear()


def write(messages: Iterable[Message]) -> list[bytes]:
    """Return the bodies of letters that hold these messages, in order."""
    bodies: list[bytes] = []
    texts: list[str] = []
    size = 0
    for message in messages:
        text = json.dumps([_NAMES[type(message)], *message], separators=(",", ":"))
        if texts and size + len(text) > LETTER_BYTES:
            bodies.append(zlib.compress(f"[{','.join(texts)}]".encode()))
            texts, size = [], 0
        texts.append(text)
        size += len(text)
    if texts:
        bodies.append(zlib.compress(f"[{','.join(texts)}]".encode()))
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


def waiting(tx: Transaction, shards: Sequence[int], but: Sequence[int] = ()) -> list[Waiting]:
    """Return letters to shards that nobody consumed, oldest first, but not those with these ids."""
    rows = tx.execute(
        "SELECT id, cycle, sender, receiver, CASE WHEN octet_length(body) <= %s THEN body ELSE '' END"
        " FROM gp4c.mail WHERE receiver = ANY(%s) AND id <> ALL(%s::bigint[]) ORDER BY id LIMIT %s",
        (MOST_BYTES, sorted(shards), list(but), LETTERS),
        binary=True,
    ).fetchall()
    return [Waiting(row[0], row[1], Letter(row[2], row[3], bytes(row[4]))) for row in rows]


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"expected a number; found {text}")


def _message(item: Any, check: Callable[[StoredRequest], object]) -> Message:
    """Return what a part of a letter says; raises one of what `read` catches where it is no message."""
    name, *fields = item
    if name == "found":
        key, request, finder = fields
        check(request)
        return Found(_whole(key, 2**64), request, _whole(finder, 2**64))
    if name == "brought":
        finder, pages = fields
        return Brought(_whole(finder, 2**64), _whole(pages, 2**32))
    if name == "handover":
        key, request, kind, times = fields
        check(request)
        return Handover(_whole(key, 2**64), request, _one_of(kind, KINDS), _whole(times, 2**16))
    if name == "returned":
        key, visit = fields
        return Returned(_whole(key, 2**64), _visit(*visit))
    raise ValueError(f"expected one of {sorted(_NAMES.values())}; found another kind of message")


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
    if type(value) not in (int, float) or not math.isfinite(value) or value < 0:
        raise ValueError("expected a number from 0 on")
    return float(value)


def _one_of(value: Any, names: tuple[str, ...]) -> str:
    if value not in names:
        raise ValueError(f"expected one of {', '.join(names)}")
    return str(value)


_NAMES: Final[dict[type, str]] = {
    Found: "found",
    Brought: "brought",
    Handover: "handover",
    Returned: "returned",
}
