"""Fetchers of a crawl, as its owner (the process with the store) sees them: which pages each has until when.

Dask knows which workers there are and carries the calls. Of each fetcher one call is under way all the time:
it brings results, the fetcher's clock, and a sign of life. A host belongs to one fetcher at a time. A batch
ends by its fetcher's own clock before the owner gives the host to another fetcher: thus one that was stopped
or cut off sends no request to it any more.
"""

import asyncio
import json
import logging
import pickle
import threading
import time
import uuid
from collections import Counter, deque
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit
from weakref import WeakSet

from scrapy import Request
from scrapy.utils.asyncio import call_later
from twisted.internet.defer import Deferred

from scrapy_gp4c.crawling.fetched import (
    FETCHERS_FILE,
    Batch,
    News,
    NotFetchedError,
    PageResult,
    PageTask,
    Reply,
)
from scrapy_gp4c.fetching import fetcher
from scrapy_gp4c.fetching.fetcher import FetcherConfig, clock_s, cookie_key, versions
from scrapy_gp4c.fetching.packing import pack
from scrapy_gp4c.fetching.spider_state import OwnersState
from scrapy_gp4c.foreign_text import counted, foreign_safe_logger

logger = foreign_safe_logger(__name__)

BATCH_PAGES: Final = 100
BATCH_S: Final = 10.0
"""Seconds after which no further request of a batch is sent."""
GRACE_S: Final = 1.0
"""Time after a batch's end in which a request may still be sent, as busy machines are late."""
QUICK_PAGES: Final = 32
"""Most pages of a batch of a host without a delay."""
PAGES_A_REQUEST: Final = 4
"""Most pages of a fetcher for each of `CONCURRENT_REQUESTS`; a batch of a slow host counts as so many."""
CONNECT_S: Final = 10.0
START_LIMIT_S: Final = 30.0
"""Time that a crawl waits for a scheduler before it gives up; once it is connected it waits for ever."""
SILENT_S: Final = 6.0
STUCK_S: Final = 60.0
"""Time that a callback may block its fetcher before the fetcher counts as stuck."""
LATE_S: Final = 5.0
TICK_S: Final = 0.5
REMIND_S: Final = 30.0
MOST_LOSSES: Final = 3
"""Number of fetchers that may end while they have a page, after which the page's visit is an error."""
TURN_S: Final = 0.01
"""Time after which work on many pages pauses for a turn of the reactor."""
TURN_PAGES: Final = 10
"""Most results that are processed in one turn of the reactor, as each makes further work."""


@dataclass(eq=False)
class PendingPage:
    """A page that waits for a fetcher, or for a fetcher's result."""

    request: Request
    task: Callable[[], PageTask]
    """Returns the message for a fetcher; raises ValueError where it cannot be pickled."""
    deferred: Deferred[PageResult]
    is_download: bool
    """Whether a component of the owner waits for it, such as a pipeline for a file of its item."""
    losses: int = 0
    """Number of fetchers that ended while they had the page, or are taken for ended."""
    returns: int = 0
    """Number of fetchers with the page that were taken for ended, and came back."""


@dataclass(eq=False)
class SentBatch:
    """A batch (pages of one host) that a fetcher has."""

    name: str
    host: str
    pages: dict[int, PendingPage]
    """Position in the batch -> unfinished page."""
    sent_s: float
    end_s: float
    """Time by the owner's clock after which no request of the batch is sent."""
    is_suspect: bool
    """Whether the batch is one page, with which other fetchers ended."""


@dataclass(eq=False)
class FetcherState:
    """State of one fetcher, its batches and its clock, as far as the owner knows them."""

    identity: str
    address: str
    name: str
    state: str = "works"
    """``works``, ``refuses``, ``silent``, ``leaves`` or ``gone``."""
    reason: str = ""
    heard_s: float = field(default_factory=clock_s)
    ahead_s: float = 0.0
    """Lower bound of the fetcher's clock minus the owner's."""
    taken: int = 0
    """Number of the last `News` of the fetcher that were processed."""
    finished: int = 0
    batches: dict[str, SentBatch] = field(default_factory=dict)
    cookies: dict[tuple[Any, ...], Any] = field(default_factory=dict)
    load: int = 0
    """Number of its pages, counted as for `PAGES_A_REQUEST`; computed before batches are cut."""
    is_reserved: bool = False
    """Whether the fetcher gets a single page only, because other fetchers have died of that page."""
    lost_pages: WeakSet[PendingPage] = field(default_factory=WeakSet)
    """Pages that were taken back from it since its last reply."""

    @property
    def pages(self) -> int:
        """Number of unfinished pages that it has."""
        return sum(len(batch.pages) for batch in self.batches.values())

    def __str__(self) -> str:
        return f"Fetcher {self.name} ({self.address})"


class DaskLink:
    """Connection to Dask's scheduler, in a thread with a loop of its own."""

    def __init__(self, fetchers: int | str) -> None:
        self._fetchers = fetchers
        self._loop = asyncio.new_event_loop()
        self._client: Any = None
        self._cluster: Any = None

    def start(self, main: Coroutine[Any, Any, None]) -> None:
        """Start the thread, and the coroutine `main` in it."""
        threading.Thread(target=self._loop.run_forever, name="gp4c-fleet", daemon=True).start()
        self.submit(main)

    def submit(self, coroutine: Coroutine[Any, Any, Any]) -> Future[Any]:
        """Start a coroutine in the thread."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    async def addresses(self) -> set[str]:
        """Return the addresses of all workers; raises OSError where the scheduler cannot be reached."""
        distributed: Any = import_module("distributed")
        for name in ("distributed", "distributed.client"):
            logging.getLogger(name).setLevel(logging.CRITICAL)  # the fleet logs what matters
        if isinstance(self._fetchers, int) and self._cluster is None:
            self._cluster = await distributed.LocalCluster(
                n_workers=self._fetchers,
                threads_per_worker=1,
                dashboard_address="127.0.0.1:0",  # any port: several crawls may run at once
                host="127.0.0.1",
                asynchronous=True,
            )
        if self._client is None or self._client.status not in ("running", "connecting"):
            target = self._fetchers if self._cluster is None else self._cluster
            self._client = await distributed.Client(
                target, asynchronous=True, timeout=CONNECT_S, set_as_default=False
            )
        if self._client.status != "running":
            raise OSError("the connection is lost")
        return set(await asyncio.wait_for(self._client.nthreads(), CONNECT_S))

    async def call(self, address: str, function: Any, *arguments: Any) -> Any:
        """Return the result of a function at a worker; raises its exception, or OSError for a lost worker."""
        return (await self._client.run(function, *arguments, workers=[address]))[address]

    async def close(self) -> None:
        """End the connection, and the fetchers if they are the owner's own."""
        for one in (self._client, self._cluster):
            if one is not None:
                with suppress(Exception):
                    await asyncio.wait_for(one.close(), CONNECT_S)


class Fleet:
    """Distributes pages over fetchers in batches, and hands results to those who wait for them."""

    def __init__(
        self,
        fetchers: int | str,
        config: FetcherConfig,
        spider_state: OwnersState,
        revision: str | None,
        folder: Path,
        *,
        delay_s: float,
        doubted: Callable[[], list[int]],
        on_news: Callable[[News], None],
        on_no_fetchers: Callable[[], None],
        is_left_alone: Callable[[Request], bool],
        is_closing: Callable[[], bool],
    ) -> None:
        """Connect to Dask's scheduler.

        ``fetchers``: number of local ones to start, or address of a scheduler; ``config``, ``spider_state``:
        sent to each fetcher; ``revision``: `GP4C_REVISION`; ``folder``: the store's directory; ``delay_s``:
        delay of a host until a fetcher reports it; ``doubted``: returns fingerprints of doubted texts;
        ``on_news``, ``on_no_fetchers``: called with each `News`, and when no fetcher comes.
        """
        self._asks_to_close = is_closing
        self._spider_state = spider_state
        self.run = uuid.uuid4().hex
        self._address = fetchers
        self._is_local = config.is_local
        self._needed = versions(config.features, revision)
        self._packed = pack(config)
        self._delay_s = delay_s
        self._doubted, self._on_news, self._on_no_fetchers = doubted, on_news, on_no_fetchers
        self._is_left_alone = is_left_alone
        concurrency = config.settings.get("CONCURRENT_REQUESTS")
        self._concurrency = int(16 if concurrency is None else concurrency) or 100
        self._link = DaskLink(fetchers)
        reactor: Any = import_module("twisted.internet.reactor")
        self._to_reactor = reactor.callFromThread
        self._waiting: dict[str, deque[PendingPage]] = {}
        self._fetchers: dict[str, FetcherState] = {}
        self._holders: dict[str, FetcherState] = {}
        """Host -> fetcher that has, or had, its pages."""
        self._free_s: dict[str, float] = {}
        """Host -> time from which on another fetcher may have it."""
        self._out: Counter[str] = Counter()
        """Host -> number of pages that a fetcher has."""
        self._delays_s: dict[str, float] = {}
        self._cookies: dict[tuple[Any, ...], tuple[Any, Any]] = {}
        self._arrived: deque[tuple[PendingPage, PageResult | bytes]] = deque()
        """Pages with results to be processed, still pickled."""
        self._numbers = 0
        self._is_cut_planned = self._is_stopped = self._is_closed = False
        self._is_connected = self._is_silent_scheduler = False
        self._begun_s = self._ticked_s = self._reminded_s = self._written_s = self._worked_s = clock_s()
        self._file = folder / FETCHERS_FILE
        self._hold_until_s = self._begun_s + (0.0 if config.is_local else _left_behind_s(self._file, delay_s))
        self._link.start(self._watch())
        call_later(TICK_S, self._tick)

    # --- pages

    def add(self, page: PendingPage) -> None:
        """Queue a page for a fetcher."""
        host = page.request.meta["download_slot"]
        self._waiting.setdefault(host, deque()).append(page)
        self._plan_cut()

    def close(self) -> Future[Any]:
        """End the connection; returns a future that is done when it has ended."""
        self._is_closed = True
        self._file.unlink(missing_ok=True)
        return self._link.submit(self._close())

    async def _close(self) -> None:
        for state in list(self._fetchers.values()):
            if state.state in ("works", "leaves"):
                with suppress(Exception):
                    call = self._link.call(state.address, fetcher.close_crawl, self.run)
                    await asyncio.wait_for(call, CONNECT_S)
        await self._link.close()

    def stop(self) -> None:
        """Send only files of items from now on, as the crawl closes; pages that wait get no outcome."""
        self._is_stopped = True
        for host in list(self._waiting):
            self._give_back(host, "the crawl closes")
        for state in self._fetchers.values():
            if state.batches:
                self._link.submit(self._try(state, fetcher.cut_short, self.run))

    def _plan_cut(self) -> None:
        if not self._is_cut_planned:
            self._is_cut_planned = True
            call_later(0.02, self._cut)

    def _cut(self) -> None:
        """Cut batches of the waiting hosts, in their order, and send them to fetchers with room."""
        self._is_cut_planned = False
        now_s = clock_s()
        working = [state for state in self._fetchers.values() if state.state == "works"]
        if now_s < self._hold_until_s or not working:
            return
        if now_s - self._written_s > LATE_S:
            self._write()  # the next owner reads its time, see `_left_behind_s`
        for one in working:
            one.load = sum(self._weight(sent) for sent in one.batches.values())
        cut: dict[str, list[Batch]] = {}
        end_s = now_s + TURN_S
        for host in list(self._waiting):
            if self._is_left_alone(self._waiting[host][0].request):
                self._give_back(host, "the host is left alone")
            if host not in self._waiting or (state := self._fetcher_for(host, working, now_s)) is None:
                continue
            if (batch := self._batch_for(host, state, now_s)) is not None:
                cut.setdefault(state.identity, []).append(batch)
            if clock_s() > end_s:
                self._plan_cut()
                break
        for identity, batches in cut.items():  # one call each: it costs both sides some ms
            state = self._fetchers[identity]
            self._link.submit(self._try(state, fetcher.give, self.run, pack(batches)))

    def _give_back(self, host: str, reason: str, *, are_downloads_kept: bool = True) -> None:
        """End the waiting pages of a host without an outcome, so that their visits are due again.

        Downloads for items wait on if `are_downloads_kept`.
        """
        pages = self._waiting.pop(host)
        if are_downloads_kept and (downloads := deque(page for page in pages if page.is_download)):
            self._waiting[host] = downloads
        for page in pages:
            if not (are_downloads_kept and page.is_download):
                page.deferred.errback(NotFetchedError(reason))

    def _fetcher_for(self, host: str, working: list[FetcherState], now_s: float) -> FetcherState | None:
        """Return the fetcher that gets pages of a host now; None: no fetcher does."""
        holder, is_suspect = self._holders.get(host), self._waiting[host][0].losses >= MOST_LOSSES - 1
        if self._out[host]:
            is_kept = holder in working and self._out[host] < self._most(host) // 2 and not is_suspect
            return holder if is_kept and self._has_room(holder) else None
        if is_suspect:
            least = min(working, key=lambda state: (not state.is_reserved, state.load))
            least.is_reserved = True
        else:
            free = [state for state in working if self._has_room(state)]
            if not free:
                return None
            least = min(free, key=lambda state: state.load)
            if holder in free and holder.load <= least.load + QUICK_PAGES // 2:
                least = holder
        if least is not holder and now_s < self._free_s.get(host, 0.0):
            return None
        return None if is_suspect and least.batches else least

    def _has_room(self, state: FetcherState | None) -> bool:
        most = PAGES_A_REQUEST * self._concurrency
        return state is not None and not state.is_reserved and state.load < most

    def _weight(self, sent: SentBatch) -> int:
        return PAGES_A_REQUEST if self._delay_of(sent.host) else len(sent.pages)

    def _delay_of(self, host: str) -> float:
        return self._delays_s.get(host, self._delay_s)

    def _most(self, host: str) -> int:
        delay_s = self._delay_of(host)
        return min(BATCH_PAGES, max(2, int(BATCH_S / delay_s))) if delay_s else QUICK_PAGES

    def _batch_for(self, host: str, state: FetcherState, now_s: float) -> Batch | None:
        """Cut a batch for a fetcher, smaller the more fetchers its pages have lost; None: no page."""
        waiting = self._waiting[host]
        losses = waiting[0].losses
        is_suspect = losses >= MOST_LOSSES - 1
        most = 1 if is_suspect else max(1, self._most(host) // 10**losses)
        pages: list[PendingPage] = []
        tasks = []
        while waiting and len(pages) < most and waiting[0].losses == losses:
            page = waiting.popleft()
            try:
                tasks.append(pack(page.task()))
                pages.append(page)
            except Exception as error:  # whatever the objects of its request raise as they are pickled
                reason = f"it cannot be sent to a fetcher: {type(error).__name__}: {error}"
                self._resolve(page, PageResult(failed=reason))
        if not waiting:
            del self._waiting[host]
        if not pages:
            return None
        holder = self._holders.get(host)
        pause_s = 0.0 if holder in (None, state) else self._delay_of(host)
        self._numbers += 1
        end_s = now_s + pause_s + BATCH_S
        sent = SentBatch(f"{host}-{self._numbers}", host, dict(enumerate(pages)), now_s, end_s, is_suspect)
        cookies = [
            (key, cookie)
            for name, (key, cookie) in self._cookies.items()
            if _is_cookie_of(cookie, host) and state.cookies.get(name) != cookie.value
        ]
        state.cookies.update({cookie_key(key, cookie): cookie.value for key, cookie in cookies})
        end_there_s, changes = end_s + state.ahead_s, self._spider_state.unsent(state.identity)
        state.batches[sent.name] = sent
        state.load += self._weight(sent)
        self._holders[host] = state
        self._out[host] += len(pages)
        self._free_s[host] = max(self._free_s.get(host, 0.0), end_s + GRACE_S)
        if waiting:
            self._plan_cut()
        return Batch(sent.name, host, tasks, pause_s, end_there_s, cookies, self._doubted(), changes)

    async def _try(self, state: FetcherState, function: Any, *arguments: Any) -> None:
        try:
            await self._link.call(state.address, function, *arguments)
        except (TypeError, AttributeError, ImportError, pickle.UnpicklingError) as error:
            what = f"{type(error).__name__}: {error}"
            reason = f"it cannot read its pages: {what}; deploy the same project there"
            self._to_reactor(self._note_fetcher, state, reason)
        except Exception:  # a lost message: as the next reply lacks the batch, it is made again
            return

    def _resolve(self, page: PendingPage, result: PageResult | bytes) -> None:
        self._arrived.append((page, result))
        if len(self._arrived) == 1:
            call_later(0, self._hand_over)

    def _hand_over(self) -> None:
        for _ in range(min(TURN_PAGES, len(self._arrived))):
            page, packed = self._arrived.popleft()
            result = _unpacked(packed) if isinstance(packed, bytes) else packed
            if result.elsewhere is None:
                page.deferred.callback(result)
            else:
                self._follow(page, result.elsewhere)
        if self._arrived:
            call_later(0, self._hand_over)

    # --- results

    def _process_reply(self, state: FetcherState, reply: Reply) -> None:
        if state.state in ("silent", "gone"):
            state.state = "works"
            self._note(state, "answers again")
        for page in state.lost_pages:
            if page.returns < MOST_LOSSES:  # a callback may block each fetcher
                page.returns += 1
                page.losses -= 1
        state.lost_pages.clear()
        if reply.is_leaving and state.state == "works":
            state.state = "leaves"
            self._note(state, "leaves: it ends what it has, and gets no more")
        if reply.news is not None and reply.news.number > state.taken:
            self._take_news(state, reply.news)
        now_s = clock_s()
        for sent in list(state.batches.values()):
            if sent.name not in reply.batches and now_s - sent.sent_s > LATE_S:
                self._give_up(state, sent, is_loss=False)  # the batch has not arrived
        self._plan_cut()

    def _take_news(self, state: FetcherState, news: News) -> None:
        state.taken = news.number
        self._delays_s.update(news.delays_s)
        for key, cookie in news.cookies:
            name = cookie_key(key, cookie)
            self._cookies[name] = key, cookie
            state.cookies[name] = cookie.value
        self._on_news(news)
        again: dict[str, list[PendingPage]] = {}
        for batch, position, packed in news.results:
            sent = state.batches.get(batch)
            page = None if sent is None else sent.pages.pop(position, None)
            if sent is None or page is None:
                continue  # given up: another fetcher has the page
            self._out[sent.host] -= 1
            if not sent.pages:
                self._end_batch(state, sent)
            if packed:
                state.finished += 1
                self._resolve(page, packed)
            else:
                again.setdefault(sent.host, []).append(page)
        self._spider_state.take(state.identity, news.changes, is_last=not self._out.total())
        for host, pages in again.items():
            self._wait_again(host, pages)

    def _follow(self, page: PendingPage, stored: dict[str, Any]) -> None:
        task = page.task()
        meta = {name: value for name, value in stored.get("meta", {}).items() if name != "download_slot"}
        moved = replace(task, request={**task.request, **stored, "meta": meta})
        page.task = lambda: moved
        self._wait_again(urlsplit(stored["url"]).hostname or "", [page])

    def _wait_again(self, host: str, pages: list[PendingPage]) -> None:
        if pages:
            self._waiting.setdefault(host, deque()).extendleft(reversed(pages))
            self._plan_cut()
            if self._is_stopped:
                self._give_back(host, "the crawl closes")

    def _end_batch(self, state: FetcherState, sent: SentBatch) -> None:
        del state.batches[sent.name]
        if sent.is_suspect:
            state.is_reserved = False
        if not self._out[sent.host]:
            del self._out[sent.host]
            self._free_s[sent.host] = clock_s()

    def _give_up(self, state: FetcherState, sent: SentBatch, *, is_loss: bool) -> None:
        """Take a batch's pages back from a fetcher; `is_loss`: it may have died of one, which they count."""
        pages = list(sent.pages.values())
        self._out[sent.host] -= len(pages)
        free_s = max(clock_s(), sent.end_s + GRACE_S)
        self._end_batch(state, sent)
        self._free_s[sent.host] = free_s
        self._spider_state.forget(state.identity)
        again = []
        state.lost_pages.update(pages if is_loss else ())
        for page in pages:
            page.losses += is_loss
            if page.losses < MOST_LOSSES:
                again.append(page)
                continue
            logger.error(
                "%s is an error: %d fetchers ended while they had it, the last with this page alone. Look "
                "into their logs for what kills them (a callback, memory).",
                page.request.url,
                MOST_LOSSES,
            )
            self._resolve(page, PageResult(failed=f"{MOST_LOSSES} fetchers ended while they had it"))
        self._wait_again(sent.host, again)

    # --- who is there

    async def _watch(self) -> None:
        """Look for new fetchers again and again, in the thread of Dask, and start `_talk` for each."""
        talks: dict[str, asyncio.Task[None]] = {}
        while not self._is_closed:
            try:
                addresses = await self._link.addresses()
            except Exception as error:
                self._to_reactor(self._no_scheduler, f"{type(error).__name__}: {error}")
                for talk in talks.values():
                    talk.cancel()
                talks.clear()
            else:
                self._to_reactor(self._connected, addresses)
                for address in addresses - talks.keys():
                    talks[address] = asyncio.ensure_future(self._talk(address))
                for address in talks.keys() - addresses:
                    talks.pop(address).cancel()
                for address in [address for address, talk in talks.items() if talk.done()]:
                    del talks[address]
            await asyncio.sleep(1.0)

    async def _talk(self, address: str) -> None:
        try:
            identity, name, refusal = await self._link.call(
                address, fetcher.open_crawl, self.run, self._needed, self._packed
            )
        except OSError:  # stopped or cut off: tried again in a second
            self._to_reactor(self._note_silent_worker, address)
            return
        except Exception as error:
            name = address.rpartition("/")[2]
            identity, refusal = address, f"it cannot open the spider: {type(error).__name__}: {error}"
        state = self._fetchers.get(identity) or FetcherState(identity, address, name)
        state.address = address
        if refusal is not None:
            self._to_reactor(self._note_fetcher, state, refusal)
            while not self._is_closed:  # until it is gone; no second try
                await asyncio.sleep(1.0)
            return
        with suppress(Exception):  # lost, or it has closed the crawl after `IDLE_S`
            await self._ask(state)

    async def _ask(self, state: FetcherState) -> None:
        is_met, taken = False, state.taken
        while not self._is_closed:
            reply: Reply = pickle.loads(await self._link.call(state.address, fetcher.take, self.run, taken))
            now_s = clock_s()
            if reply.stuck_s < STUCK_S:
                state.heard_s = now_s
            state.ahead_s = reply.clock_s - now_s
            if reply.news is not None:
                taken = max(taken, reply.news.number)
            if not is_met:
                self._to_reactor(self._note_fetcher, state, None)
                is_met = True
            self._to_reactor(self._process_reply, state, reply)

    def _note_silent_worker(self, address: str) -> None:
        if all(state.address != address for state in self._fetchers.values()):
            state = FetcherState(address, address, address.rpartition("/")[2], "silent")
            self._fetchers[address] = state
            self._note(state, "does not answer", logging.WARNING)

    def _note_fetcher(self, state: FetcherState, refusal: str | None) -> None:
        known = self._fetchers.get(state.identity)
        for other in self._fetchers.values():
            if other.address == state.address and other is not state:
                other.state = "gone"
                self._spider_state.forget(other.identity)
        self._fetchers[state.identity] = state
        if refusal is not None:
            state.state, state.reason = "refuses", refusal
            self._write()
            logger.warning("%s refuses: %s. It gets no pages.", state, refusal)
        elif known is None or known.state != "works":
            state.state = "works"
            self._note(state, "works")
        self._plan_cut()

    def _note(self, state: FetcherState, what: str, level: int = logging.INFO) -> None:
        works = sum(one.state == "works" for one in self._fetchers.values())
        logger.log(level, "%s %s; %d work%s", state, what, works, "s" * (works == 1))
        self._write()

    def _connected(self, addresses: set[str]) -> None:
        self._is_connected = True
        if self._is_silent_scheduler:
            self._is_silent_scheduler = False
            logger.info("The scheduler %s is back", self._address)
            for state in self._fetchers.values():
                state.heard_s = clock_s()
        for state in self._fetchers.values():
            if state.address not in addresses and state.state != "gone":
                was, state.state = state.state, "gone"
                self._spider_state.forget(state.identity)
                if was != "refuses":
                    level = logging.INFO if was == "leaves" and not state.batches else logging.WARNING
                    lost = f", with {counted(state.pages, 'page')}, which others get" if state.batches else ""
                    self._note(state, f"is gone{lost}", level)

    def _no_scheduler(self, reason: str) -> None:
        now_s = clock_s()
        if self._is_connected:
            if now_s - self._reminded_s > REMIND_S or not self._is_silent_scheduler:
                self._reminded_s = now_s
                logger.warning(
                    "The scheduler %s cannot be reached (%s): the crawl waits for it.", self._address, reason
                )
            self._is_silent_scheduler = True
        elif now_s - self._begun_s > START_LIMIT_S:
            logger.critical(
                "No fetchers (GP4C_FETCHERS = %r): %s. Start the scheduler, or correct the address. The "
                "next run goes on with this cycle.",
                self._address,
                reason,
            )
            self._on_no_fetchers()

    def _tick(self) -> None:
        """Take pages back from fetchers that are gone or silent, once their batches have ended."""
        if self._is_closed:
            return
        call_later(TICK_S, self._tick)
        if self._asks_to_close() and not self._is_stopped:
            self.stop()
        now_s = clock_s()
        before_s, self._ticked_s = self._ticked_s, now_s
        if now_s - before_s > 3 * TICK_S + 1:
            return  # this process stood still: first it reads the others' replies
        if self._is_silent_scheduler and not self._is_stopped:
            return  # fetchers go on with what they have, and give it back when there is a scheduler again
        for state in self._fetchers.values():
            if state.state == "works" and now_s - state.heard_s > SILENT_S:
                state.state = "silent"
                self._note(state, f"does not answer for {SILENT_S:g} s", logging.WARNING)
            if state.state not in ("silent", "gone"):
                continue
            for sent in list(state.batches.values()):
                is_surely_dead = state.state == "gone" and self._is_local
                has_ended = now_s >= sent.end_s + GRACE_S
                if is_surely_dead or has_ended or not self._delay_of(sent.host):
                    self._give_up(state, sent, is_loss=True)
                    if is_surely_dead:
                        self._free_s[sent.host] = now_s
        self._plan_cut()
        works = any(state.state == "works" for state in self._fetchers.values())
        if works:
            self._worked_s = now_s
        elif self._is_stopped and now_s - self._worked_s > START_LIMIT_S:
            for host in list(self._waiting):
                self._give_back(host, "the crawl closes, and no fetcher works", are_downloads_kept=False)
        refusing = [state for state in self._fetchers.values() if state.state == "refuses"]
        if self._is_local and not works and len(refusing) == self._address and not self._is_stopped:
            logger.critical(
                "No fetcher works: %s. Correct that, or crawl without GP4C_FETCHERS. The next run goes on "
                "with this cycle.",
                refusing[0].reason,
            )
            self._on_no_fetchers()
        elif self._waiting and not works and now_s - self._reminded_s > REMIND_S and self._is_connected:
            self._reminded_s = now_s
            command = f"scrapy gp4c fetcher SPIDER --connect {self._address}"
            how = "" if self._is_local else f": start some ({command})"
            hosts = counted(len(self._waiting), "host")
            logger.warning("No fetcher works, and pages of %s wait%s", hosts, how)
        if now_s - self._written_s > LATE_S:
            self._write()

    def _write(self) -> None:
        self._written_s = clock_s()
        shown = [
            {"name": one.name, "address": one.address, "state": one.state, "reason": one.reason,
             "pages": one.finished}
            for one in self._fetchers.values()
        ]  # fmt: skip
        with suppress(OSError):
            draft = self._file.with_suffix(".new")
            draft.write_text(json.dumps({"time": time.time(), "fetchers": shown}), "utf-8")
            draft.replace(self._file)


def _unpacked(packed: bytes) -> PageResult:
    try:
        result: PageResult = pickle.loads(packed)
    except Exception as error:  # an item's class may differ here
        return PageResult(failed=f"the owner cannot read what came of it: {type(error).__name__}: {error}")
    return result


def _left_behind_s(file: Path, delay_s: float) -> float:
    """Return the seconds that batches of a killed owner may still be under way, by its `FETCHERS_FILE`."""
    try:
        longest_s = LATE_S + delay_s + BATCH_S + GRACE_S
        return max(0.0, file.stat().st_mtime + longest_s - time.time())
    except OSError:
        return 0.0


def _is_cookie_of(cookie: Any, host: str) -> bool:
    domain = cookie.domain.lstrip(".")
    return host == domain or host.endswith("." + domain)
