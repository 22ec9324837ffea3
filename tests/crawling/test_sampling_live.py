"""Policies that sample, over HTTP and a request at a time: visit by visit what a replay visits."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import pytest_twisted
from scrapy import Request
from scrapy.settings import Settings as ScrapySettings

from scrapy_gp4c.page_state.groupings import NOWHERE, Links, PageGroups
from scrapy_gp4c.policies import table
from scrapy_gp4c.scoring.ranking import GOLDEN
from scrapy_gp4c.settings import Settings
from scrapy_gp4c.store.opening import open_store
from scrapy_gp4c.store.records import StoredGroups
from tests.support.live_replay import CYCLE_STEP
from tests.support.loopback import Listed, Site, crawl, html
from training.histories.history import ChangeHistory
from training.replaying.dense import replay_dense
from training.replaying.prepared import prepare

PAGES, CYCLES, WARMUP, BUDGET, CLUSTERS = 30, 11, 1, 12, 4
"""Cycles that compare: the first is the warm-up's, ten are planned."""
SITE = np.arange(PAGES, dtype=np.int32) % 2
NAMES = [f"{('', 'a/', 'a/b/')[page % 3]}{page}" for page in range(PAGES)]
POLICIES = (
    "top_k", "tests.support.policies.siblings", "gsb(level='cluster')",
    "lb(d=2, phi=0.7, in_flight=3)", "cb(d=1, phi='pra', in_flight=4)",
)  # fmt: skip
MORE = (
    "rounds(rounds=3)", "rns", "rr", "gsb(sample=2)", "db(d=-1, phi='wha', in_flight=3)",
    "db(phi='ha', clock='visits', in_flight=1)",
    "groups(level='cluster', order='score', sample=1, in_flight=2)",
    "rounds(rounds=3, sample=0.4, level='cluster')",
)  # fmt: skip
"""Policies whose crawls `tests.crawling.test_crawl_and_replay` compares with replays, without HTTP."""
SCORE = "t * (X + 0.5) * cluster_now + 0.125 * cluster_recent"


class Numbered:
    """Keys of pages that are their numbers, so that a crawl and a replay draw alike."""

    def fingerprint(self, request: Request) -> bytes:
        """The number at the end of the path."""
        return int(request.url.rpartition("/")[2]).to_bytes(8, "big") + bytes(12)


def groups() -> PageGroups:
    """Clusters across sites, of which some pages are in none, and links within sites."""
    rng = np.random.default_rng(3)
    cluster = rng.integers(0, CLUSTERS, PAGES).astype(np.int32)
    cluster[::9] = NOWHERE
    order = np.array([[(a + b) % CLUSTERS for b in range(CLUSTERS)] for a in range(CLUSTERS)], np.int32)
    source = rng.integers(0, PAGES, 40)
    target = (source + 2 * rng.integers(1, 9, 40)) % PAGES
    return PageGroups(cluster, order, Links(source, target, PAGES), "of the test")


def web() -> npt.NDArray[np.bool_]:
    """Changes by cluster, and by themselves."""
    rng = np.random.default_rng(11)
    together = rng.random((CYCLES, CLUSTERS + 1)) < 0.3
    takes_part = rng.random((CYCLES, PAGES)) < 0.8
    alone = rng.random((CYCLES, PAGES)) < 0.2
    return np.asarray(alone | takes_part & together[:, groups().cluster])


def settings(policy: str) -> dict[str, Any]:
    """A crawl that has one request under way."""
    return {
        "GP4C_POLICY": policy, "GP4C_SCORE_FUNCTION": SCORE, "GP4C_BUDGET": BUDGET, "GP4C_DISCOVERY": 0.0,
        "GP4C_SITE_SHARE": 1.0,
        "GP4C_WARMUP_VISITS": WARMUP, "CONCURRENT_REQUESTS": 1, "CONCURRENT_REQUESTS_PER_DOMAIN": 100,
        "REQUEST_FINGERPRINTER_CLASS": Numbered, "SCHEDULER_MEMORY_QUEUE": "scrapy.squeues.FifoMemoryQueue",
    }  # fmt: skip


def replayed(policy: str, changed: npt.NDArray[np.bool_]) -> list[list[int]]:
    """Pages in the order of visit, by planned cycle, with the draws of a crawl that was one cycle further."""
    history = ChangeHistory(changed, SITE, page_names=NAMES)
    history.neighbours.groups_by_content = groups()
    loaded = Settings.load(ScrapySettings(settings(policy)))
    seed = (loaded.seed + CYCLE_STEP * pow(GOLDEN, -1, 2**64)) % 2**64
    visits: list[list[int]] = []

    def watch(cycle: int, pages: npt.NDArray[np.int64], changed_pages: npt.NDArray[np.bool_]) -> None:
        visits.append(pages.tolist())

    prepared = prepare(history, budget=BUDGET, warmup=WARMUP, seed=seed)
    replay_dense(prepared, loaded.score_function, (), watch, table.load(policy))
    return visits


@pytest.fixture
def other_site() -> Iterator[Site]:
    """A second site on the same host, so that Scrapy has one queue for both, in the order of the plan."""
    served = Site()
    yield served
    pytest_twisted.blockon(served.close())


@pytest.mark.parametrize("policy", [*POLICIES, *(pytest.param(one, marks=pytest.mark.slow) for one in MORE)])
async def test_ten_cycles_over_http_visit_what_a_replay_visits(
    policy: str, site: Site, other_site: Site, store_path: Path
) -> None:
    """Page by page, in the same order: samples act as soon as as many are in as may be in flight."""
    changed = web()
    versions = np.concatenate((np.zeros((1, PAGES), int), np.cumsum(changed, axis=0)))
    sites = site, other_site
    urls = [sites[of].url(f"/{name}") for name, of in zip(NAMES, SITE.tolist(), strict=True)]
    Listed.start_urls = urls
    for cycle in range(CYCLES + 1):
        site.pages = other_site.pages = {
            f"/{name}": html(f"page {page}: {f'version{versions[cycle, page]}of{page} ' * 20}")
            for page, name in enumerate(NAMES)
        }
        await crawl(Listed, store_path, settings(policy))
        if not cycle:
            with open_store(store_path) as store:
                assert [request["url"] for request in store.requests(range(PAGES))] == urls
                store.put_clusters(StoredGroups(groups(), groups().popularity(), {}))
            Listed.start_urls = []  # what the spider asks for would come in its own order
    with open_store(store_path, readonly=True) as store:
        crawled = [
            np.concatenate([rows["page"] for _, rows in store.visits(cycle, cycle)]).tolist()
            for cycle in range(WARMUP + 2, CYCLES + 2)
        ]
        assert store.verify() == []
    assert crawled == replayed(policy, changed)
    assert {len(pages) for pages in crawled} == {BUDGET}
