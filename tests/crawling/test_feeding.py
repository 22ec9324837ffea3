"""Order in which the pages of a plan go into Scrapy's queue, and out of it; the frontier."""

from collections import Counter, deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from scrapy_gp4c.crawling import feeding
from scrapy_gp4c.crawling.feeding import CHUNK_PAGES, MIN_HOSTS, Frontier, host_of
from tests.support.loopback import Pages, Site, crawl, html

PAGES = 6


async def test_a_small_plan_is_visited_best_first(site: Site, store_path: Path) -> None:
    """Though all of it is read at once, and Scrapy's queue gives what came last first."""
    urls = [site.url(f"/{page}") for page in range(PAGES)]
    settings = {
        "GP4C_SCORE_FUNCTION": "X",
        "GP4C_BUDGET": 1.0,
        "GP4C_WARMUP_VISITS": 1,
        "GP4C_DISCOVERY": 0,
        "CONCURRENT_REQUESTS": 1,
    }
    for cycle in range(PAGES + 1):
        for page in range(PAGES):
            version = f"version {min(cycle, page)} " * 30  # it has changed in as many cycles as its number
            site.pages[f"/{page}"] = html(f"a page about {page} with {version}")
        site.log.clear()
        await crawl(Pages, store_path, settings, urls=urls if cycle == 0 else ())
    assert [path for _, path in site.log if path[1:].isdigit()] == [
        f"/{page}" for page in reversed(range(PAGES))
    ]


def url(host: int, page: int) -> str:
    """URL of a page on a numbered host."""
    return f"http://h{host}:8080/{page}"


class Reader:
    """Stored requests of pages on given hosts; remembers how much was read at a time."""

    def __init__(self, hosts: Sequence[int]) -> None:
        self.hosts = hosts
        self.read = 0
        self.largest = 0

    def __call__(self, pages: Sequence[int]) -> list[dict[str, Any]]:
        self.read += len(pages)
        self.largest = max(self.largest, len(pages))
        return [{"url": url(self.hosts[page], page)} for page in pages]


def drain(front: Frontier, window: int, in_flight: int) -> list[int]:
    """Crawl it all with `in_flight` places in the downloader; checks the windows at every step."""
    queue: deque[tuple[int, str]] = deque()
    fed: list[int] = []
    queued: Counter[str] = Counter()

    def feed(host_done: str | None) -> None:
        for page, stored in front.feed(host_done):
            host = host_of(stored)
            queue.append((page, host))
            fed.append(page)
            queued[host] += 1
            assert queued[host] <= window

    while True:
        feed(None)
        if not queue:
            return fed
        for _ in range(min(in_flight, len(queue))):
            _, host = queue.popleft()
            queued[host] -= 1
            feed(host)


@given(
    st.lists(st.integers(0, 6), max_size=200),
    st.integers(1, 5),
    st.integers(1, 20),
    st.integers(0, 200),
    st.integers(0, 2**32),
)
def test_every_page_is_fed_exactly_once(
    hosts: list[int], window: int, in_flight: int, first: int, seed: int
) -> None:
    """Whatever the hosts and the speed of the crawl, each page leaves once, also those added later."""
    plan = list(range(len(hosts)))
    front = Frontier(plan[:first], Reader(hosts), window)
    front.extend(plan[first:])
    assert len(front) == len(plan)
    fed = drain(front, window, in_flight)
    assert sorted(fed) == plan
    assert len(front) == 0


@given(st.lists(st.integers(0, 3), min_size=1, max_size=100), st.integers(1, 4))
def test_pages_of_one_host_come_in_the_order_of_the_plan(hosts: list[int], window: int) -> None:
    """A host's better pages are fetched before its worse ones."""
    fed = drain(Frontier(range(len(hosts)), Reader(hosts), window), window, 3)
    for host in set(hosts):
        of_host = [page for page in fed if hosts[page] == host]
        assert of_host == sorted(of_host)


def test_one_slow_host_does_not_hold_the_others() -> None:
    """With a thousand best pages on a host that never answers, the other hosts' pages are still fed."""
    slow, others = 1_000, 50
    hosts = [0] * slow + list(range(1, others + 1))
    front = Frontier(range(len(hosts)), Reader(hosts), window=4)
    fed: set[int] = set()
    for _ in range(slow // CHUNK_PAGES + 2):
        fed.update(page for page, _ in front.feed())
    assert fed == {0, 1, 2, 3, *range(slow, slow + others)}


def test_a_plan_is_read_ahead_only_until_enough_hosts_are_in_play() -> None:
    """With many hosts, no more than a chunk beyond the needed hosts is read before anything is fetched."""
    hosts = list(range(10_000))
    reader = Reader(hosts)
    front = Frontier(range(len(hosts)), reader, window=16)
    for _ in range(100):
        list(front.feed())
    assert MIN_HOSTS <= reader.read <= MIN_HOSTS + CHUNK_PAGES
    assert reader.largest <= CHUNK_PAGES


def test_reading_ahead_on_one_host_is_bounded(monkeypatch: Any) -> None:
    """A plan that lies on a single host is not read to its end before the first page is fetched."""
    monkeypatch.setattr(feeding, "MAX_WAITING", 1_000)
    reader = Reader([0] * 10_000)
    front = Frontier(range(10_000), reader, window=2)
    for _ in range(100):
        list(front.feed())
    assert reader.read <= 1_000 + CHUNK_PAGES
    assert sorted(drain_rest(front, fed=2)) == list(range(2, 10_000))


def drain_rest(front: Frontier, fed: int) -> list[int]:
    """Pages fed when `fed` pages of the only host leave the queue one by one."""
    pages: list[int] = []
    waiting = fed
    while waiting:
        waiting -= 1
        new = [page for page, _ in front.feed("h0:8080")]
        pages += new
        waiting += len(new)
    return pages


def test_host_includes_the_port() -> None:
    """Two ports of one name are two slots for Scrapy's downloader, so they are two hosts here."""
    assert host_of({"url": "http://127.0.0.1:80/a"}) != host_of({"url": "http://127.0.0.1:81/a"})
    assert host_of({"url": "http://[h/"}) == ""
