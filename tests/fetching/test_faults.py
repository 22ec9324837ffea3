"""Faults of crawls with fetchers: stopped and killed processes, other versions, pages that kill."""

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from benchmarks.trouble.fleet import BIN, ManyMachines, least_gap_s
from tests.fetching.test_fetching import LIMIT_S, Web, visits_of
from tests.support.dask_cluster import certificates
from tests.support.fetched_crawl import HOSTS, PAGES

pytest.importorskip("distributed")
MODULE = "tests.support.fetched_crawl"
DELAY_S = 0.8
SETTINGS: dict[str, Any] = {
    "DOWNLOAD_DELAY": DELAY_S,
    "ITEMS": "items",
    "ITEM_PIPELINES": {f"{MODULE}.Written": 1},
    "DOWNLOAD_HANDLERS": {"http": f"{MODULE}.Noting"},
    "RETRY_ENABLED": False,
}


@pytest.fixture
def web() -> Iterator[Web]:
    """Yield the web of a test."""
    served = Web()
    yield served
    served.server.shutdown()


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[ManyMachines]:
    """Yield a scheduler with TLS in a project's directory."""
    made = ManyMachines(tmp_path / "project", [MODULE], certificates(tmp_path))
    made.scheduler()
    yield made
    made.stop()


def port_of(web: Web) -> int:
    return int(web.server.server_address[1])


def ended(owner: subprocess.Popen[bytes], machines: ManyMachines) -> None:
    """Wait for a crawl to finish."""
    assert owner.wait(LIMIT_S) == 0, machines.log()[-4000:]


@pytest.mark.slow
def test_no_fault_asks_a_host_within_its_delay_by_two_or_loses_a_page(
    web: Web, machines: ManyMachines
) -> None:
    """A stopped fetcher that comes back, a killed owner, and a fetcher of another version.

    Each is named in the log or by status, the others go on, and every page has one outcome and its item.
    """
    for name, revision in (("a", "new"), ("b", "new"), ("old", "old")):
        machines.fetcher(name, "pages", REVISION=revision)
    settings = {**SETTINGS, "GP4C_REVISION": "new"}
    owner = machines.owner("pages", settings, port=port_of(web))
    machines.wait(lambda: len(machines.sent()) > 8 and "Fetcher old" in machines.log())
    owner.send_signal(signal.SIGSTOP)  # on a slow machine the crawl would end before the command begins
    status = subprocess.run(
        [BIN / "scrapy", "gp4c", "status", "pages", "--json"],
        cwd=machines.folder, env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    fetchers = {one["name"]: one for one in json.loads(status.stdout)["fetchers"]}
    assert fetchers["old"]["state"] == "refuses"
    assert "GP4C_REVISION: old there, new here" in fetchers["old"]["reason"]
    # The owner dies, and the next goes on with its cycle.
    owner.kill()
    owner.wait()
    owner = machines.owner("pages", settings, port=port_of(web))
    machines.wait(lambda: machines.log().count("; 2 work\n") == 2)
    done = len(machines.sent())
    machines.wait(lambda: len(machines.sent()) > done + 4)
    # A fetcher is stopped, and comes back when others have its pages.
    (stopped, _), *_ = Counter(one.process for one in machines.sent()[done:]).most_common(1)
    os.kill(stopped, signal.SIGSTOP)
    machines.wait(lambda: "does not answer" in machines.log(), 12)
    time.sleep(6)
    os.kill(stopped, signal.SIGCONT)
    ended(owner, machines)
    cycles = visits_of(machines.folder)
    assert Counter(outcome for outcome, *_ in cycles[0].values()) == {"first": HOSTS * PAGES, "gone": HOSTS}
    sent = machines.sent()
    assert least_gap_s(sent) > 0.8 * DELAY_S
    stands_s = max(b.time_s - a.time_s for a, b in pairwise(sent))
    assert stands_s < 30
    items = {json.loads(line)["url"] for line in (machines.folder / "items").read_text().splitlines()}
    assert len(items) == HOSTS * PAGES


@pytest.mark.slow
def test_a_fetcher_that_comes_back_has_killed_no_page(web: Web, machines: ManyMachines) -> None:
    """It is stopped three times with the same pages: they were errors, as if they killed fetchers."""
    fetcher = machines.fetcher("a", "pages")
    settings = {**SETTINGS, "DOWNLOAD_DELAY": 5, "CONCURRENT_REQUESTS": 1}
    owner = machines.owner("pages", settings, port=port_of(web))
    machines.wait(lambda: len(machines.sent()) > HOSTS)

    def has_said(words: str, times: int) -> bool:
        return machines.log().count(words) >= times

    for stops in (1, 2, 3):
        os.killpg(fetcher.pid, signal.SIGSTOP)
        machines.wait(partial(has_said, "does not answer", stops), 30)
        time.sleep(10)
        os.killpg(fetcher.pid, signal.SIGCONT)
        machines.wait(partial(has_said, "answers again", stops), 30)
    owner.send_signal(signal.SIGINT)
    owner.wait(60)
    assert " is an error" not in machines.log()


@pytest.mark.slow
def test_fetchers_go_on_while_the_scheduler_is_away(web: Web, machines: ManyMachines) -> None:
    """Their results wait for it: no page is fetched twice. A fetcher needs no directory for a store."""
    scheduler = machines.processes[0]
    (machines.folder / ".scrapy").symlink_to("scrapy.cfg/none")  # cannot be made, as on a read-only disk
    machines.fetcher("a", "pages", STORE="")
    owner = machines.owner("pages", SETTINGS, port=port_of(web))
    machines.wait(lambda: len(machines.sent()) > 4)
    scheduler.kill()
    scheduler.wait()
    machines.wait(lambda: "cannot be reached" in machines.log(), 12)
    machines.scheduler()
    ended(owner, machines)
    (cycle,) = visits_of(machines.folder)
    assert len(cycle) == len(machines.sent()) == HOSTS * (PAGES + 1)


EDITED = """
import os
if "EDITED" in os.environ:
    from scrapy_gp4c.crawling.fetched import Batch
    def fail(self, state):
        raise TypeError("there is no such field")
    Batch.__setstate__ = fail
"""


@pytest.mark.slow
def test_a_fetcher_that_cannot_read_its_pages_gets_no_more(web: Web, machines: ManyMachines) -> None:
    """Code that was edited has the same version: the crawl stood still, and nobody said why."""
    (machines.folder / "sitecustomize.py").write_text(EDITED)
    machines.fetcher("edited", "pages", EDITED="1")
    owner = machines.owner("pages", SETTINGS, port=port_of(web))
    machines.wait(lambda: "refuses: it cannot read its pages: TypeError" in machines.log())
    machines.fetcher("a", "pages")
    ended(owner, machines)


SILENT = """
import asyncio, pickle, sys, time
from scrapy import Request, Spider
from scrapy.crawler import CrawlerProcess
from scrapy_gp4c.crawling.fetched import News, PageResult, Reply
from scrapy_gp4c.fetching import fetcher, fleet
fleet.BATCH_S, fleet.SILENT_S = 0.6, 0.2

class Link(fleet.DaskLink):
    give_times, results, replies = [], [], 0

    async def addresses(self):
        return {"first", "second"} if self.give_times else {"first"}

    async def call(self, address, function, *arguments):
        if function is fetcher.open_crawl:
            return address, address, None
        if function is fetcher.give:
            self.give_times.append(time.monotonic())
            for batch in pickle.loads(arguments[1]):
                self.results += [(batch.name, number, pickle.dumps(PageResult(failed="it is none")))
                                 for number in range(len(batch.tasks))]
        elif function is fetcher.take:
            await asyncio.sleep(0.05 if not self.give_times or address == "second" else 1000)
            Link.replies += 1
            news = News(self.replies, self.results, [], {}, {}, [], []) if address == "second" else None
            return pickle.dumps(Reply(fetcher.clock_s(), frozenset(), False, 0.0, news))

class One(Spider):
    name, start_urls = "one", ["http://127.0.0.1:9/"]

fleet.DaskLink = Link
process = CrawlerProcess({
    "ADDONS": {"scrapy_gp4c.Addon": 500}, "GP4C_STORE": sys.argv[1], "DOWNLOAD_DELAY": 0.1,
    "GP4C_FETCHERS": "tcp://127.0.0.1:9", "TELNETCONSOLE_ENABLED": False,
})
process.crawl(One)
process.start()
print(Link.give_times[1] - Link.give_times[0])
"""


@pytest.mark.slow
def test_a_host_has_a_grace_after_a_batch_that_did_not_come_back(tmp_path: Path) -> None:
    """A request that left at the batch's end may still be on its way when the next fetcher gets the host."""
    command = [sys.executable, "-c", SILENT, str(tmp_path / "store")]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=LIMIT_S)
    assert float(done.stdout) > 0.6 + 0.9, done.stderr


@pytest.mark.slow
def test_a_page_that_kills_three_fetchers_is_an_error_of_its_own(web: Web, machines: ManyMachines) -> None:
    """It is named, and no other page suffers by it."""
    started = [machines.fetcher(name, "killing") for name in "abcd"]
    owner = machines.owner("killing", {**SETTINGS, "DOWNLOAD_DELAY": 0}, port=port_of(web))
    ended(owner, machines)
    assert sum(process.poll() is not None for process in started) == 3
    (cycle,) = visits_of(machines.folder)
    assert [name for name, (outcome, *_) in cycle.items() if outcome == "error"] == ["127.0.0.1/p7"]
    assert len(cycle) == HOSTS * (PAGES + 1)
    assert f"http://127.0.0.1:{port_of(web)}/p7 is an error: 3 fetchers ended" in machines.log()
