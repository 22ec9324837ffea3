"""Feeds a plan to the scheduler's queue: in score order, in bounded chunks, with many hosts in play.

A plan may have a million pages, and its best hundred may lie on one slow host. So the queue only ever
holds a window of each host's pages; what waits behind the window is kept as page ids, not requests, and the
plan is read ahead until enough hosts are in play.
"""

from __future__ import annotations

from array import array
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final
from urllib.parse import urlsplit

from scrapy_gp4c.store.records import StoredRequest

CHUNK_PAGES: Final = 256
"""Pages of the plan read at a time: a few milliseconds of the reactor's time."""
MIN_HOSTS: Final = 64
"""Read on in the plan while fewer hosts than this have a page to fetch."""
MAX_WAITING: Final = 250_000
"""Stop reading ahead when this many pages wait behind the windows of their hosts."""


class Frontier:
    """The not yet queued part of a plan."""

    def __init__(
        self, pages: Iterable[int], read: Callable[[Sequence[int]], list[StoredRequest]], window: int
    ) -> None:
        """Take the plan.

        ``pages``: page ids in the order to visit; ``read(pages)``: their stored requests, in that order;
        ``window``: how many pages of one host may be in the queue at a time.
        """
        self._plan = array("Q", pages)
        self._read = read
        self._window = window
        self._next = 0
        self._waiting: dict[str, deque[int]] = {}
        self._waiting_pages = 0
        self._queued: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._plan) - self._next + self._waiting_pages

    @property
    def planned(self) -> int:
        """Pages of the plan, those that were fed included."""
        return len(self._plan)

    @property
    def is_read(self) -> bool:
        """Tell whether the plan is read to its end, and only full windows hold pages back."""
        return self._next >= len(self._plan)

    def extend(self, pages: Iterable[int]) -> None:
        """Append pages to the plan."""
        self._plan.extend(pages)

    def forget_queued(self) -> None:
        """Take the windows of all hosts for empty: the queue has lost what was in it."""
        self._queued.clear()

    def feed(self, host_done: str | None = None) -> Iterator[tuple[int, StoredRequest]]:
        """Yield (page, stored request) of the pages to queue now.

        ``host_done``: the host of a page fed earlier that has just left the queue for the downloader.
        """
        if host_done is not None:
            self._queued[host_done] -= 1
            if self._queued[host_done] <= 0:
                del self._queued[host_done]
            if host_done in self._waiting and self._queued[host_done] <= self._window // 2:
                yield from self._refill(host_done)
        if (
            self._next < len(self._plan)
            and len(self._queued) < MIN_HOSTS
            and self._waiting_pages < MAX_WAITING
        ):
            yield from self._read_on()

    def _refill(self, host: str) -> Iterator[tuple[int, StoredRequest]]:
        """Fill the window of a host: half a window at a time, because one read costs as much as ten pages."""
        waiting = self._waiting[host]
        pages = [waiting.popleft() for _ in range(min(len(waiting), self._window - self._queued[host]))]
        if not waiting:
            del self._waiting[host]
        self._waiting_pages -= len(pages)
        self._queued[host] += len(pages)
        yield from zip(pages, self._read(pages), strict=True)

    def _read_on(self) -> Iterator[tuple[int, StoredRequest]]:
        chunk = self._plan[self._next : self._next + CHUNK_PAGES]
        self._next += len(chunk)
        for page, stored in zip(chunk, self._read(chunk), strict=True):
            host = host_of(stored)
            if self._queued[host] < self._window:
                self._queued[host] += 1
                yield page, stored
            else:
                self._waiting.setdefault(host, deque()).append(page)
                self._waiting_pages += 1


def host_of(stored: StoredRequest) -> str:
    """Host (and port) of a stored request: what Scrapy's per-domain limits are about, and no user.

    Empty where there is none to be read: what is wrong with a request is found when it is built.
    """
    try:
        return urlsplit(str(stored["url"])).netloc.rpartition("@")[2]
    except (KeyError, TypeError, ValueError):
        return ""
