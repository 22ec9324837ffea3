"""Crawls in forks of a process that has everything imported, to be killed.

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
"""Modules that a crawl imports besides those above, without the reactor: each child installs its own."""


class Listed(Spider):
    """Follows every link of the listing and of its pages."""

    name = "listed"

    def parse(self, response: Any) -> Iterator[Any]:
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
    """Make ``time.time`` of this process wrong by each of ``off_s`` in turn; ``monotonic`` stays right."""
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

    ``commits``: a file that gets a line "cycle visits" after every commit that returned. ``kill_in_fold``:
    number of the fold's block before which SIGKILL ends the process. ``kill_at_plan``: number n of a round's
    plan, from 0: SIGKILL comes before its commit, for n + 0.5 right after. ``clock_off_s``: errors of the
    clock, each for 50 ms. ``fail_write``: number of the store's write that fails, with ``fail_on`` all later
    ones too (by a preloaded library).
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
    """Run the crawls that standard input asks for."""
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
