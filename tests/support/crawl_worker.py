"""Crawls in processes of their own, to be killed: forked from a process that has everything imported.

``python crawl_worker.py`` reads one JSON object per line, the arguments of `run`; it answers with the process
id of the crawl at once, and with its exit status (negative: the signal that ended it) when it is over.
"""

import ctypes
import itertools
import json
import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from importlib import import_module
from typing import Any

from scrapy import Spider
from scrapy.crawler import AsyncCrawlerProcess

from scrapy_gp4c.crawling import archiving
from scrapy_gp4c.crawling import run as live_run
from scrapy_gp4c.page_state import columns
from scrapy_gp4c.scheduler import RecrawlScheduler
from scrapy_gp4c.store.lmdb_store.store import Store
from scrapy_gp4c.store.opening import Sizes, open_store

PRELOAD = (
    "requests",  # by tldextract, when it is first asked
    "scrapy.core.downloader.contextfactory",
    "scrapy.core.downloader.handlers.http11",
    "scrapy.core.engine",
    "scrapy.downloadermiddlewares.cookies",
    "scrapy.downloadermiddlewares.httpcompression",
    "scrapy.downloadermiddlewares.robotstxt",
    "scrapy.extensions.feedexport",
    "scrapy.extensions.remote_control",  # since Scrapy 2.19
    "scrapy.utils._remote_control",
    "scrapy_gp4c.middleware",
    "tldextract",
)
"""What a crawl imports beyond the modules above, but for the reactor: each child installs its own."""


class Listed(Spider):
    """Follows every link of the listing, and those of the pages."""

    name = "listed"

    def parse(self, response: Any) -> Iterator[Any]:
        """Follow the links."""
        yield from response.follow_all(css="a")


class SmallSteps(RecrawlScheduler):
    """The scheduler with a store of small blocks and frequent commits."""

    commit_interval_s = 0.05


# No crawl chooses sizes; with these, few pages have blocks, transactions and commits enough to be killed in.
live_run.open_store = partial(
    open_store, sizes=Sizes(block_rows=16, blocks_per_transaction=1, commit_visits=10)
)
archiving.VERSIONS = 50  # type: ignore[misc]  # a test compares the versions of many crawls at their end


def set_clock(off_s: Sequence[float]) -> None:
    """Let the clock of this process be off; what measures time that has passed goes on."""
    start_s, right_s = time.monotonic(), time.time

    def wrong_s() -> float:
        return right_s() + off_s[int((time.monotonic() - start_s) / 0.05) % len(off_s)]

    time.time = wrong_s


def run(
    settings: dict[str, Any],
    url: str,
    commits: str,
    kill_in_fold: int | None = None,
    kill_at_plan: float | None = None,
    clock_off_s: Sequence[float] = (),
    fail_write: int | None = None,
    fail_on: bool = False,
) -> None:
    """Crawl with small blocks and frequent commits.

    ``commits``: a file that gets "cycle visits" after every commit that returned; ``kill_in_fold``: end by
    SIGKILL before this block of the fold is written; ``kill_at_plan``: end so when this plan of the run is
    made (0: the first) and not yet committed, or, with a half added, when it is just committed.
    ``clock_off_s``: how far the clock is off, the next one after every 50 ms; ``fail_write``: this write of
    the store fails, ``fail_on``: and all after it (by a library that is loaded before all others).
    """
    if clock_off_s:
        set_clock(clock_off_s)
    if fail_write is not None:
        ctypes.CDLL(None).fail_disk(ctypes.c_long(fail_write), int(fail_on))
    log = os.open(commits, os.O_APPEND | os.O_CREAT | os.O_WRONLY)
    commit = Store.commit
    apply_visits = columns.apply_visits
    folded = 0

    def noting_commit(self: Store) -> None:
        commit(self)
        if self.open_cycle is not None:
            os.write(log, f"{self.open_cycle} {len(self.open_visits())}\n".encode())

    def killing_apply(*arguments: Any) -> None:
        nonlocal folded
        if folded == kill_in_fold:
            os.kill(os.getpid(), signal.SIGKILL)
        folded += 1
        apply_visits(*arguments)

    add_round = Store.add_round
    moments = itertools.count(0, 0.5)

    def killing_plan(*arguments: Any, **about: Any) -> None:
        if next(moments) == kill_at_plan:
            os.kill(os.getpid(), signal.SIGKILL)
        add_round(*arguments, **about)
        if next(moments) == kill_at_plan:
            os.kill(os.getpid(), signal.SIGKILL)

    Store.add_round = killing_plan  # type: ignore[method-assign]
    Store.commit = noting_commit  # type: ignore[method-assign]
    columns.apply_visits = killing_apply
    process = AsyncCrawlerProcess(settings | {"SCHEDULER": SmallSteps})
    process.crawl(Listed, start_urls=[url])
    process.start()


def main() -> None:
    """Serve the requests on standard input."""
    for name in PRELOAD:
        with suppress(ImportError):
            import_module(name)
    assert "twisted.internet.reactor" not in sys.modules
    for line in sys.stdin:
        pid = os.fork()
        if not pid:
            try:
                run(**json.loads(line))
            finally:
                sys.stdout.flush()
                os._exit(0)
        print(pid, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)


if __name__ == "__main__":
    main()
