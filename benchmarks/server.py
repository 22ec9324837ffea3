"""A fast web server on loopback: an asyncio protocol that sends ready-made responses.

It runs in a process of its own, so that the crawler has a core to itself.
"""

import asyncio
import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import NamedTuple, Protocol, Self

WORDS_PER_PAGE = 1_500
WORDS_PER_PARAGRAPH = 75
VOCABULARY = 4_000


class _Number(Protocol):
    value: float


class Pace(NamedTuple):
    """Values shared with the running server: its delay, and the count of its responses."""

    delay_s: _Number
    """Seconds from a request to its response."""
    served: _Number
    """Number of responses since this was last set to 0."""

    @classmethod
    def at_once(cls) -> Self:
        """Values of a server without delay."""
        context = get_context("spawn")
        return cls(context.Value("d", 0.0, lock=False), context.Value("d", 0.0, lock=False))


@contextmanager
def server(
    pages: int | list[bytes], hosts: Sequence[str] = ("127.0.0.1",), pace: Pace | None = None
) -> Iterator[int]:
    """Serve ``pages`` (a number, or bodies) as /0, /1, ... on every host; yields their port."""
    context = get_context("spawn")
    receiver, sender = context.Pipe()
    process = context.Process(target=_serve, args=(pages, hosts, pace, sender), daemon=True)
    process.start()
    try:
        if not receiver.poll(60):
            raise TimeoutError("the server did not start within 60 s")
        yield receiver.recv()
    finally:
        process.terminate()
        process.join()


def _serve(pages: int | list[bytes], hosts: Sequence[str], pace: Pace | None, started: Connection) -> None:
    bodies = _pages(pages) if isinstance(pages, int) else pages
    responses = {f"/{number}".encode(): _response(page) for number, page in enumerate(bodies)}

    async def run() -> None:
        loop = asyncio.get_running_loop()
        port = 0
        for host in hosts:
            listener = await loop.create_server(lambda: _Served(responses, pace), host, port)
            port = listener.sockets[0].getsockname()[1]
        started.send(port)
        await asyncio.Event().wait()  # until terminated

    asyncio.run(run())


class _Served(asyncio.Protocol):
    def __init__(self, responses: dict[bytes, bytes], pace: Pace | None) -> None:
        self._responses, self._pace = responses, pace
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._received += data
        while b"\r\n\r\n" in self._received:
            head, _, self._received = self._received.partition(b"\r\n\r\n")
            path = head.split(b" ", 2)[1]
            self._answer(self._responses.get(path) or _NOT_FOUND)

    def _answer(self, response: bytes) -> None:
        if self._pace is None:
            self._transport.write(response)
        elif not self._pace.delay_s.value:
            self._now(response)
        else:
            asyncio.get_running_loop().call_later(self._pace.delay_s.value, self._now, response)

    def _now(self, response: bytes) -> None:
        assert self._pace is not None
        self._pace.served.value += 1
        self._transport.write(response)


def _response(body: bytes, status: str = "200 OK") -> bytes:
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


_NOT_FOUND = _response(b"<html><body>not here</body></html>", "404 Not Found")


def vocabulary(dice: random.Random) -> list[str]:
    """Words of the pages, the most frequent and shortest first: 4.6 letters on average in running text."""
    return [
        "".join(dice.choices("etaoinshrdlucmfwypvbgk", k=max(2, round(dice.gauss(2 + rank**0.22, 1)))))
        for rank in range(1, VOCABULARY + 1)
    ]


def _pages(count: int) -> Iterator[bytes]:
    """Yield pages of about 10 KB: text of Zipf-distributed words in paragraphs, navigation, links.

    Page i links to pages 2i + 1 and 2i + 2, so that all are reached from page 0, and to nine others; none
    links to page 0, which Scrapy would fetch a second time (start requests skip its duplicate filter).
    """
    dice = random.Random(1)
    known = vocabulary(dice)
    weights = list(accumulate(1 / rank for rank in range(1, VOCABULARY + 1)))
    for number in range(count):
        words = dice.choices(known, cum_weights=weights, k=WORDS_PER_PAGE)
        paragraphs = "\n".join(
            f"<p>{' '.join(words[start : start + WORDS_PER_PARAGRAPH])}.</p>"
            for start in range(0, WORDS_PER_PAGE, WORDS_PER_PARAGRAPH)
        )
        numbers = [2 * number + 1, 2 * number + 2, *(dice.randrange(1, count) for _ in range(8))]
        links = "\n".join(
            f'<li><a href="/{other}">{" ".join(words[9 * position : 9 * position + 3])}</a></li>'
            for position, other in enumerate(numbers)
            if other < count
        )
        yield (
            f"<!DOCTYPE html>\n<html lang='en'><head><title>Page {number}</title></head>\n<body>\n"
            f'<nav class="menu"><ul><li><a href="/1">Start</a></li></ul></nav>\n'
            f"<h1>Page {number}</h1>\n<div class='content'>\n{paragraphs}\n</div>\n"
            f"<ul class='related'>\n{links}\n</ul>\n"
            "<footer>Updated on 12 May 2024, 10:15</footer>\n</body></html>\n"
        ).encode()
