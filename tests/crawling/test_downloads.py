"""Policies that sample, on hosts that may be asked seldom: who waits for whom."""

from collections.abc import Iterator
from pathlib import Path
from time import monotonic, time
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pytest
import pytest_twisted
from scrapy import Request as ScrapyRequest
from scrapy.core.downloader import Slot
from scrapy.settings import Settings
from twisted.web.http import Request

from scrapy_gp4c.crawling.cycle import RANK_LEVELS
from scrapy_gp4c.crawling.downloads import TURN_S, Downloads, Load
from scrapy_gp4c.crawling.requests import META, Claim
from scrapy_gp4c.crawling.run import Run
from scrapy_gp4c.page_state.groupings import Links, PageGroups
from scrapy_gp4c.store.lmdb_store.store import Store
from scrapy_gp4c.store.records import CycleRecord, StoredGroups
from tests.support.loopback import Listed, Site, crawl, html, stats

HOSTS = [f"127.0.0.{number}" for number in range(1, 7)]
SLOW, *OTHERS = HOSTS
PAGES, SLOW_PAGES, CLUSTERS, PLACES = 6, 10, 6, 4
SAMPLING = (
    "gsb(level='directory', sample=2)", "groups(sample=5, in_flight=30)", "cb(in_flight=6)",
)  # fmt: skip
"""With as many in flight as there are clusters: fewer may, by their draws, all wait for the slow host."""


@pytest.fixture
def hosts() -> Iterator[Site]:
    """Six hosts with pages in two directories each, most on the first."""
    site = Site(hosts=HOSTS)
    yield site
    pytest_twisted.blockon(site.close())


def fill(site: Site, sizes: dict[str, int]) -> None:
    """Give hosts so many pages, from which a crawl starts."""
    paths = {host: [f"/{host}/{'ab'[page % 2]}/{page}" for page in range(sizes[host])] for host in sizes}
    Listed.start_urls = [site.url(path, host) for host in sizes for path in paths[host]]
    site.pages = {path: html("as ever") for host in sizes for path in paths[host]}


def settings(policy: str, delay_s: float) -> dict[str, Any]:
    """Visit all pages, of the slow host one by one."""
    return {
        "GP4C_POLICY": policy,
        "GP4C_WARMUP_VISITS": 0,
        "GP4C_BUDGET": 1.0,
        "GP4C_DISCOVERY": 0.0,
        "CONCURRENT_REQUESTS": PLACES,
        "DOWNLOAD_TIMEOUT": 15,
        "RETRY_ENABLED": False,
        "DOWNLOAD_SLOTS": {SLOW: {"delay": delay_s, "concurrency": 1, "jitter": 0}},
    }


def cluster(path: Path) -> None:
    """Put all pages into clusters that have pages of every host."""
    with Store(path) as store:
        nobody = np.empty(0, np.intp)
        cluster_of = np.arange(store.pages, dtype=np.int32) % CLUSTERS
        order = np.stack(
            [np.roll(np.arange(CLUSTERS, dtype=np.int32), -number) for number in range(CLUSTERS)]
        )
        groups = PageGroups(cluster_of, order, Links(nobody, nobody, store.pages), "")
        store.put_clusters(StoredGroups(groups, np.zeros(store.pages, np.uint8)))


async def get_to_know(site: Site, path: Path, policy: str) -> None:
    """Crawl all pages once, without a delay."""
    await crawl(Listed, path, settings(policy, 0.0))
    cluster(path)
    site.log.clear()


def changed(path: str) -> str:
    """What a page says when all have changed."""
    return html(f"all has changed on {path} since we were here " * 20)


def last_record(path: Path) -> CycleRecord:
    """Record of the last cycle."""
    with Store(path, readonly=True) as store:
        return store.cycles()[-1]


@pytest.mark.parametrize(("policy", "jobdir"), [*((policy, False) for policy in SAMPLING), ("db", True)])
async def test_the_rounds_of_a_policy_that_samples_do_not_wait_for_a_slow_host(
    policy: str, jobdir: bool, hosts: Site, store_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its first page answers only when all pages of the other hosts were asked for, however many rounds these
    take; its others wait behind that one, and come in their turn."""
    fill(hosts, {SLOW: SLOW_PAGES, **dict.fromkeys(OTHERS, PAGES)})
    await get_to_know(hosts, store_path, policy)
    held: list[Request] = []

    def slow(request: Request) -> bytes | None:
        held.append(request)
        return release()

    def quick(request: Request) -> bytes:
        release()
        return changed(request.uri.decode()).encode()

    def release() -> None:
        if held and sum(f"/{SLOW}/" not in path for path in hosts.fetched()) == PAGES * len(OTHERS):
            request = held.pop()
            request.write(changed(request.uri.decode()).encode())
            request.finish()

    hosts.pages = {path: slow if f"/{SLOW}/" in path else quick for path in hosts.pages}
    asked: list[Run] = []
    next_request = Run.next_request

    def counted(run: Run, *queue: Any) -> ScrapyRequest | None:
        asked.append(run)
        return next_request(run, *queue)

    monkeypatch.setattr(Run, "next_request", counted)
    crawl_settings = settings(policy, 0.25) | ({"JOBDIR": str(tmp_path / "job")} if jobdir else {})
    crawler = await crawl(Listed, store_path, crawl_settings)
    assert len(asked) < 10 * len(hosts.pages), "while nothing can be sent, Scrapy is seldom asked"
    assert stats(crawler)["outcome/changed"] == len(hosts.pages)
    assert sorted(path for _, path in hosts.log) == sorted(hosts.pages)
    assert [f"/{SLOW}/" in path for _, path in hosts.log][-SLOW_PAGES + 1 :] == [True] * (SLOW_PAGES - 1)
    assert len(last_record(store_path)["rounds"]) > 1


async def test_samples_act_before_the_pages_of_busier_hosts_are_through(
    hosts: Site, store_path: Path
) -> None:
    """All hosts have a delay, and each is a group: the last to be followed is not the last to be asked."""
    policy = "groups(level='site', sample=1, in_flight=1)"
    fill(hosts, dict.fromkeys(HOSTS, PAGES))
    await get_to_know(hosts, store_path, policy)
    hosts.pages = {path: changed(path) for path in hosts.pages}
    slots = {host: {"delay": 0.1, "concurrency": 1, "jitter": 0} for host in HOSTS}
    await crawl(Listed, store_path, settings(policy, 0.0) | {"DOWNLOAD_SLOTS": slots})
    rounds = last_record(store_path)["rounds"]
    assert sum(one["planned"] for one in rounds) == len(hosts.pages)
    assert rounds[-1]["seen"] < len(hosts.pages) - PAGES, "those of the other hosts are not through"


@pytest.mark.parametrize("policy", ["db(in_flight=4)", "cb(in_flight=4)"])
async def test_a_host_without_others_is_not_planned_ahead_of(
    policy: str, hosts: Site, store_path: Path
) -> None:
    """Nobody else could use the places that its delay leaves free: its samples are in before what follows."""
    fill(hosts, {SLOW: SLOW_PAGES})
    await get_to_know(hosts, store_path, policy)
    hosts.pages = {path: changed(path) for path in hosts.pages}
    await crawl(Listed, store_path, settings(policy, 0.25))
    planned = 0
    for one in last_record(store_path)["rounds"]:
        assert one["seen"] >= planned - 1
        planned += one["planned"]
    assert planned == SLOW_PAGES


def nobody(claim: Claim) -> bool:
    """Of no visit the outcome is missing."""
    return False


def downloads(delay_s: float, active: list[str], seen_s: float = 0.0, sites: int = len(HOSTS)) -> Downloads:
    """Downloads of a crawler with requests to some hosts under way, all last asked at `seen_s`."""
    slots = {host: Slot(8, delay_s, 0) for host in HOSTS}
    for slot in slots.values():
        slot.lastseen = seen_s
    downloader = SimpleNamespace(
        active=[ScrapyRequest(f"http://{host}/") for host in active],
        slots=slots,
        get_slot_key=lambda request: urlsplit(request.url).hostname,
    )
    crawler: Any = SimpleNamespace(
        settings=Settings({"DOWNLOAD_DELAY": delay_s}), engine=SimpleNamespace(downloader=downloader)
    )
    return Downloads(crawler, sites, ())


def sample(one: Downloads, host: str, page: int) -> tuple[Claim, ScrapyRequest]:
    """A sample that is queued."""
    claim = Claim(page, "sample", 0.0, host, 1)
    request = ScrapyRequest(f"http://{host}/{page}", meta={META: claim})
    one.expect(request)
    return claim, request


def test_a_host_is_free_when_its_delay_has_passed() -> None:
    """Until then a page of it would only wait in one of the downloader's places."""
    assert downloads(30.0, OTHERS, time()).load([SLOW], nobody) is Load.HELD
    assert downloads(30.0, OTHERS, time() - 31).load([SLOW], nobody) is Load.FREE
    assert downloads(0.0, OTHERS, time()).load([SLOW], nobody) is Load.FREE


def test_a_host_with_a_delay_and_an_answer_out_is_busy() -> None:
    """Scrapy's queue would give pages of others first."""
    busy = downloads(0.1, HOSTS)
    busy._downloader.slots[SLOW].transferring.update(busy._downloader.active[:1])
    assert busy.load([SLOW], nobody) is Load.BUSY


@pytest.mark.parametrize("delay_s", [30.0, 0.0])
def test_samples_that_are_in_let_a_round_be_planned_while_pages_can_be_sent(delay_s: float) -> None:
    """Where hosts have delays: one that comes late is through late."""
    one = downloads(delay_s, [])
    first, second = sample(one, OTHERS[0], 1)[0], sample(one, OTHERS[1], 2)[0]
    assert one.load([SLOW], {first, second}.__contains__) is Load.FREE
    assert one.load([SLOW], {second}.__contains__) is Load.FREE, "which can be sent at once"
    heard = Load.SAMPLED if delay_s else Load.FREE
    assert one.load(HOSTS, nobody) is Load.FREE, "no host has nothing to do"
    assert one.load([SLOW], nobody) is heard
    one.planned_ahead(True, monotonic())
    assert one.load([SLOW], nobody) is Load.FREE, "nothing has been heard since"


def test_a_sample_behind_another_of_its_host_is_not_waited_for() -> None:
    """It has to wait for the delay; one that was sent just now is waited for."""
    one = downloads(30.0, [])
    (first, request), (second, _) = sample(one, SLOW, 1), sample(one, SLOW, 2)
    assert one.awaits({first, second}.__contains__)
    slot = one._downloader.slots[SLOW]
    one._downloader.active.append(request)
    slot.transferring.add(request)
    slot.lastseen = time()
    assert one.awaits({first, second}.__contains__)
    slot.lastseen = time() - 1
    assert not one.awaits({first, second}.__contains__), "it was sent long ago"
    assert not one.awaits({second}.__contains__)


@pytest.mark.parametrize(("delay_s", "sites", "first"), [(30.0, 6, True), (0.0, 6, False), (30.0, 1, False)])
def test_samples_come_first_where_others_may_wait_for_them(delay_s: float, sites: int, first: bool) -> None:
    """Before all other pages of a host with a delay; where there is no other, in the order of the plan."""
    one = downloads(delay_s, [], sites=sites)
    assert sample(one, SLOW, 1)[1].priority == (RANK_LEVELS if first else 0)


def test_planning_ahead_takes_half_of_the_time() -> None:
    """A round that took long is followed by a rest as long; short ones are planned in a row, for a while."""
    one = downloads(0.1, HOSTS)
    one.load(HOSTS, nobody)
    assert not one.rests()
    one.planned_ahead(False, monotonic() - TURN_S / 4)
    assert not one.rests()
    for _ in range(10):
        one.planned_ahead(False, monotonic() - TURN_S / 4)
    assert one.rests()
    one.load([], nobody)
    assert not one.rests(), "with nothing queued the policy has to go on"
