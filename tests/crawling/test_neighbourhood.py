"""Neighbourhood of pages in a crawl: the tree of directories, clusters of copies, and their policies."""

import logging
from argparse import Namespace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pytest_twisted
from hypothesis import given, settings
from hypothesis import strategies as st
from scrapy.settings import Settings as ScrapySettings

from scrapy_gp4c.commands.learning import CLUSTER
from scrapy_gp4c.crawling.control_group import LeaveOneOut, PanelVisits
from scrapy_gp4c.crawling.forecast import forecasts
from scrapy_gp4c.crawling.neighbourhood import Neighbourhood
from scrapy_gp4c.page_state import groupings
from scrapy_gp4c.page_state.groupings import NOWHERE, Links, PageGroups
from scrapy_gp4c.page_state.groups import GROUP_VISITS, NO_VISITS, Directories, place_of_url
from scrapy_gp4c.page_state.outcomes import KINDS, NEIGHBOUR, SAMPLE
from scrapy_gp4c.page_state.related import Clustered, PageSums, RecentVisits, Related
from scrapy_gp4c.policies.base import budget_pages
from scrapy_gp4c.settings import Settings
from scrapy_gp4c.store.lmdb_store import store as store_module
from scrapy_gp4c.store.lmdb_store.store import Store
from scrapy_gp4c.store.lmdb_store.tables import Sizes
from scrapy_gp4c.store.opening import open_store
from scrapy_gp4c.store.records import SHADOW, StoredGroups
from scrapy_gp4c.words.descriptions import unpack
from tests.support import live_replay
from tests.support.loopback import Listed, Site, crawl

PATHS = st.lists(st.sampled_from("ab"), max_size=2).map(lambda names: "".join(f"{name}/" for name in names))
SITES = st.sampled_from(["x.example", "y.example"])


@given(st.lists(st.tuples(SITES, PATHS), min_size=1, max_size=30), st.sampled_from([1, 3, 1_000]))
@settings(max_examples=25)
def test_the_tree_of_a_store_is_that_of_its_urls(
    tmp_path_factory: pytest.TempPathFactory, places: list[tuple[str, str]], size: int
) -> None:
    """Of one page of each directory: the first one, wherever a slice of the pages or a block ends."""
    urls = [f"http://{site}/{path}{page}.html" for page, (site, path) in enumerate(places)]
    path = Path(tmp_path_factory.mktemp("tree"), "store")
    with pytest.MonkeyPatch.context() as patch, Store(path, sizes=Sizes(block_rows=4)) as store:
        patch.setattr(store_module, "_READ_PAGES", size)
        store.add_pages((page + 1, {"url": url}) for page, url in enumerate(urls))
        result = Neighbourhood(store, 1, ()).grouping("tree")
    places_of_urls = [place_of_url(url) for url in urls]
    known = list(dict.fromkeys(places_of_urls))
    number = np.array([known.index(directory) for directory in places_of_urls])
    expected = groupings.tree_of_directories(
        number, [(directory.site, directory.directory) for directory in known]
    )
    assert result.number.tolist() == expected.number.tolist()
    assert result.groups == expected.groups
    for page in range(len(urls)):
        for d in (-3, 3):
            rings = [[ring.tolist() for ring in one.rings(page, d)] for one in (result, expected)]
            assert rings[0] == rings[1]


TOPICS = ("bread flour yeast oven crust", "star orbit comet moon planet", "sail mast keel harbour wind")
PAGES_OF_TOPIC = 12


class OneStore:
    """What the command needs of a project."""

    def __init__(self, path: Path) -> None:
        self.store_path = path

    def open_store(self, *, readonly: bool = True) -> Store:
        """Open it."""
        return open_store(self.store_path, readonly=readonly)


def page(number: int, version: int = 0) -> str:
    """A page on one of the topics, with a link to the next one of it."""
    topic = TOPICS[number % 3]
    following = (number + 3) % (3 * PAGES_OF_TOPIC)
    link = f"<a href='/{following}'>next</a> <a href='http://elsewhere.example/'>else</a>"
    text = f"{topic * 3} page{number} {f'new{version} ' * version}"
    return f"<html><body><main>{text}{link}<img src='a.png'></main></body></html>"


def settings(policy: str, **others: Any) -> dict[str, Any]:
    """A crawl without panel and hubs, half of the pages a cycle."""
    return {
        "GP4C_POLICY": policy,
        "GP4C_WARMUP_VISITS": 0,
        "GP4C_BUDGET": 0.5,
        "GP4C_DISCOVERY": 0.0,
        **others,
    }


def clustered(path: Path, clusters: int = 3) -> None:
    """``scrapy gp4c cluster``."""
    CLUSTER(OneStore(path), Namespace(clusters=clusters, features="content", seed=0, json=False))  # type: ignore[arg-type]


@pytest.fixture
def web(site: Site) -> Site:
    """All pages, listed."""
    paths = [f"/{number}" for number in range(3 * PAGES_OF_TOPIC)]
    Listed.start_urls = [site.url(path) for path in paths]
    site.pages = {path: page(number) for number, path in enumerate(paths)}
    return site


@pytest.mark.slow
@pytest_twisted.ensureDeferred
async def test_a_changed_sample_brings_its_cluster(
    web: Site, store_path: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    """First all are samples, as one line says; with clusters, the pages of a topic come together."""
    await crawl(Listed, store_path, settings("cb(in_flight=3)"))
    with caplog.at_level(logging.WARNING):
        await crawl(Listed, store_path, settings("cb(in_flight=3)"))
    assert any("`scrapy gp4c cluster SPIDER`" in record.getMessage() for record in caplog.records)
    with open_store(store_path, readonly=True) as store:
        ((_, visits),) = store.visits(2, 2)
        assert set(visits["kind"]) == {SAMPLE}
        assert "groups" not in store.cycles()[-1]
        descriptions = {page_: unpack(packed) for page_, packed in store.descriptions()}
    assert sorted(descriptions) == list(range(3 * PAGES_OF_TOPIC))
    assert all((one.images, len(one.links)) == (1, 1) for one in descriptions.values())
    clustered(store_path)
    assert "36 pages in 3 clusters, 36 links" in capsys.readouterr().out
    for number in range(1, 3 * PAGES_OF_TOPIC, 3):  # all of one topic change
        web.pages[f"/{number}"] = page(number, 3)
    caplog.clear()
    await crawl(Listed, store_path, settings("cb(in_flight=3)", GP4C_BUDGET=1.0))
    assert not caplog.records
    with open_store(store_path, readonly=True) as store:
        stored = store.clusters()
        assert stored is not None
        urls = [request["url"] for request in store.requests(range(store.pages))]
        topic = np.array([int(url.rpartition("/")[2]) % 3 for url in urls])
        assert len({*zip(stored.groups.cluster.tolist(), topic.tolist(), strict=True)}) == 3
        record = store.cycles()[-1]
        assert record["groups"] == stored.groups.identity
        ((_, visits),) = store.visits(3, 3)
        near = visits["page"][visits["kind"] == NEIGHBOUR]
        assert set(topic[near]) == {1}
        assert record["changed"] == PAGES_OF_TOPIC
        assert store.verify() == []


@pytest.mark.slow
@pytest_twisted.ensureDeferred
async def test_links_and_popularity_come_from_the_store(web: Site, store_path: Path) -> None:
    """The next page of a topic is one hop away; all pages have one link, and are equally popular."""
    await crawl(Listed, store_path, settings("lb(d=1, phi='pra', in_flight=1)"))
    clustered(store_path)
    await crawl(Listed, store_path, settings("lb(d=1, phi=1, in_flight=1)"))
    with open_store(store_path, readonly=True) as store:
        stored = store.clusters()
        assert stored is not None
        assert stored.popularity.tolist() == [0] * (3 * PAGES_OF_TOPIC)
        urls = [request["url"] for request in store.requests(range(store.pages))]
        number = np.array([int(url.rpartition("/")[2]) for url in urls])
        ((_, visits),) = store.visits(2, 2)
    sampled = set(number[visits["page"][visits["kind"] == SAMPLE]].tolist())
    near = number[visits["page"][visits["kind"] == NEIGHBOUR]].tolist()
    assert {(one - 3) % (3 * PAGES_OF_TOPIC) for one in near} <= sampled
    assert len(near) >= 5


@pytest.mark.slow
@pytest_twisted.ensureDeferred
async def test_pages_that_come_later_are_in_no_cluster(web: Site, store_path: Path) -> None:
    """They are samples, when there is budget left; a page that changes is described anew."""
    await crawl(Listed, store_path, settings("gsb(level='cluster')"))
    clustered(store_path)
    Listed.start_urls = [*Listed.start_urls, web.url("/late")]
    web.pages["/late"] = page(0, 5)
    web.pages["/0"] = page(0, 4)
    await crawl(Listed, store_path, settings("gsb(level='cluster')", GP4C_BUDGET=1.0))
    await crawl(Listed, store_path, settings("gsb(level='cluster')", GP4C_BUDGET=1.0))
    with open_store(store_path, readonly=True) as store:
        late = store.pages - 1
        assert store.request(late)["url"].endswith("/late")
        ((_, visits),) = store.visits(3, 3)
        assert len(visits) == 3 * PAGES_OF_TOPIC + 1
        assert KINDS[visits["kind"][visits["page"] == late][0]] == "sample"
        stored = store.clusters()
        assert stored is not None
        assert len(stored.groups.cluster) == late
        assert NOWHERE not in stored.groups.cluster
        first = next(one for one in range(late) if store.request(one)["url"] == web.url("/0"))
        descriptions = dict(store.descriptions())
    assert unpack(descriptions[first]).words > unpack(descriptions[late - 1]).words


@pytest.mark.parametrize(
    ("settings", "asks"),
    [
        ({"GP4C_POLICY": "cb"}, True),
        ({"GP4C_POLICY": "lb(phi=1)"}, True),
        ({"GP4C_POLICY": "db(phi='pra')"}, True),
        ({"GP4C_POLICY": "rounds(sample=0.1, level='cluster')"}, True),
        ({"GP4C_SCORE_FUNCTION": "t * cluster_recent"}, True),
        ({"GP4C_POLICY": "db"}, False),
        ({}, False),
    ],
)
def test_descriptions_are_kept_where_somebody_asks(settings: dict[str, str], asks: bool) -> None:
    """They cost a parse of every new copy."""
    assert Settings.load(ScrapySettings(settings)).asks_for_clusters == asks


def test_shadows_are_told_of_clusters_without_their_own_pages() -> None:
    """The visits of a panel page go, and those that its shadow would have had take their place."""
    visits = np.array([(0, 10, 4, 0.0, 0, 0), (1, 5, 5, 0.0, 0, 0)], GROUP_VISITS)
    now = np.array([(0, 3, 2, 0.0, 0, 0)], GROUP_VISITS)
    related = Related(
        Directories(np.zeros(1, np.intp), 1),
        RecentVisits(9, [NO_VISITS]),
        lambda: PageSums(np.zeros(1), np.zeros(1)),
        Clustered(2, [visits], now),
    )
    shadows = np.zeros(3, SHADOW)
    for name, bits in {"judged": 0b11, "changed": 0b01, "visited": 0b10, "outdated": 0b10}.items():
        shadows[name] = bits
    panel = PanelVisits({}, np.array([True, False, True]), np.array([True, False, True]), np.zeros(3))
    state = {"cluster": np.array([0, 1, NOWHERE]), "group": np.zeros(3, np.intp)}
    apart = LeaveOneOut(related, shadows, panel, 9)
    recent = [(4 - 1 + 1 + 0.1) / (10 - 2 + 1 + 1), (5 - 1 + 1 + 0.1) / (5 - 2 + 1 + 1), 0.1]
    assert apart.column("cluster_recent", state, 3).tolist() == recent
    expected = [(2 - 1 + recent[0]) / (3 - 1 + 1), recent[1], 0.1]
    assert apart.column("cluster_now", state, 3).tolist() == expected


@pytest.mark.parametrize(
    "policy", ["top_k", "rounds(rounds=4)", "rounds(rounds=3, sample=0.3, level='cluster')"]
)
def test_terminals_of_clusters_tell_a_crawl_what_they_tell_a_replay(policy: str, tmp_path: Path) -> None:
    """Each round's pages and scores, bit by bit; forecasts of the next cycles know the clusters too."""
    changed = live_replay.related_changes(seed=7, cycles=10)
    cluster_of = np.arange(live_replay.PAGES, dtype=np.int32) % 7 - 1
    order = np.array([[(a + b) % 6 for b in range(6)] for a in range(6)], np.int32)
    nobody = np.empty(0, np.intp)
    groups = PageGroups(cluster_of, order, Links(nobody, nobody, len(cluster_of)), "of the test")
    crawl_settings = {
        "GP4C_POLICY": policy,
        "GP4C_SCORE_FUNCTION": "t * (X + 0.5) * cluster_now + cluster_recent * random",
        "GP4C_BUDGET": 0.2,
    }
    with open_store(tmp_path / "s") as store:
        urls = zip(live_replay.KEYS.tolist(), live_replay.URLS, strict=True)
        store.add_pages((key, {"url": url}) for key, url in urls)
        store.put_clusters(StoredGroups(groups, np.zeros(len(cluster_of), np.uint8)))
    plans = live_replay.crawled(tmp_path / "s", changed, crawl_settings)
    history = live_replay.truth(changed)
    history.neighbours.groups_by_content = groups
    assert plans == live_replay.replayed(history, crawl_settings)
    with open_store(tmp_path / "s", readonly=True) as store:
        plans_ahead = forecasts(store, store.last_cycle + 1, live_replay.settings_of(crawl_settings))
        budget = budget_pages(live_replay.settings_of(crawl_settings).budget, live_replay.PAGES)
        assert [len(next(plans_ahead).plan) for _ in range(3)] == [budget] * 3
