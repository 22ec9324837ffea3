"""A crawl without HTTP and a replay of one web visit the same pages, round for round."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import pytest_twisted
from scrapy import Request
from scrapy.settings import Settings as ScrapySettings

from scrapy_gp4c.crawling.neighbourhood import Neighbourhood
from scrapy_gp4c.page_state.groupings import NOWHERE, Links, PageGroups
from scrapy_gp4c.page_state.related import RoundState
from scrapy_gp4c.policies import table
from scrapy_gp4c.scoring import discovery, first_visits, functions, hints, measured, refresh_value, terminals
from scrapy_gp4c.scoring.ranking import GOLDEN
from scrapy_gp4c.scoring.sizes import size_class
from scrapy_gp4c.settings import Settings
from scrapy_gp4c.store.opening import open_store
from scrapy_gp4c.store.records import StoredGroups
from tests.support import growing, live_replay
from tests.support.live_replay import CYCLE_STEP
from tests.support.loopback import Listed, Site, crawl, html
from training.histories.from_store import read_with_report
from training.histories.history import ChangeHistory
from training.replaying.dense import replay_dense
from training.replaying.growth import GrowthReplay
from training.replaying.prepared import prepare

RELATED = (
    "t * (X + 0.5) * near",
    "near",
    "near_site + near_dir",
    "t * (rate + spent * spent) * size_lift ** 0.25 * near * sqrt(surprise_site)",
    "rate_site * t + surprise_dir",
    "p * exp(found_t * 0.125) + spent",
    "surprise_dir * random",
    "t * (X + 0.5) * directory_now + site_now",
)


@pytest.mark.parametrize(
    ("policy", "score"), [("top_k", RELATED[3]), *(("rounds(rounds=4)", score) for score in RELATED)]
)
def test_related_pages_tell_a_crawl_what_they_tell_a_replay(policy: str, score: str, tmp_path: Path) -> None:
    """Of a web whose sites and directories change together: each round's pages and scores, bit by bit."""
    changed = live_replay.related_changes(seed=1, cycles=14)
    changed[:, live_replay.SITE == 0] = True
    crawl_settings = {"GP4C_POLICY": policy, "GP4C_SCORE_FUNCTION": score, "GP4C_BUDGET": 0.2, "GP4C_SEED": 3}
    plans = live_replay.crawled(tmp_path / "s", changed, crawl_settings)
    rounds = (14 - live_replay.WARMUP) * (4 if policy != "top_k" else 1)
    assert len(plans) > rounds, "the share of a restless site lets the policy choose again"
    assert plans == live_replay.replayed(live_replay.truth(changed), crawl_settings)
    with open_store(tmp_path / "s", readonly=True) as store:
        assert store.verify() == []


SAMPLING = (
    "rr",
    "gsb(level='directory', sample=2)",
    "db(d=-1, phi='wha', in_flight=3)",
    "groups(order='score', sample=2, in_flight=4)",
)
MORE = ("rns", "gsb", "db(d=2, in_flight=1)", "rounds(rounds=3, sample=0.4, level='directory')")


@pytest.mark.parametrize("policy", [*SAMPLING, *(pytest.param(one, marks=pytest.mark.slow) for one in MORE)])
def test_a_crawl_samples_what_a_replay_samples(policy: str, tmp_path: Path) -> None:
    """Round for round, as far as the budget lasts."""
    changed = live_replay.related_changes(seed=2, cycles=12)
    crawl_settings = {
        "GP4C_POLICY": policy,
        "GP4C_SCORE_FUNCTION": "t * (X + 0.5)",
        "GP4C_BUDGET": 0.4,
        "GP4C_SEED": 3,
    }
    plans = live_replay.crawled(tmp_path / "s", changed, crawl_settings)
    expected = live_replay.replayed(live_replay.truth(changed), crawl_settings)
    assert [plan.pages for plan in plans] == [plan.pages for plan in expected if plan.pages]
    with open_store(tmp_path / "s", readonly=True) as store:
        assert store.verify() == []
        record = store.cycles()[-1]
        assert record["policy"] == policy
        visits = np.concatenate([rows for _, rows in store.visits(record["cycle"], record["cycle"])])
        assert len(visits) == int(0.4 * live_replay.PAGES)
        assert record["panel"] is None


OUTSIDE = [
    name
    for name in terminals.NAMES
    if not {*terminals.columns_of([name])} <= {*terminals.STATE, "draw"}
    and name not in refresh_value.TERMINALS
]
"""Terminals that something else than the outcomes of the page's own visits decides.

Those of searches are in `tests/crawling/test_measuring.py`: their replays read contents.
"""
Values = dict[str, tuple[list[float], list[float]]]
"""Terminal -> its values in a crawl and in a replay."""


def of_changes(path: Path) -> Values:
    """Values of every candidate of every round, of pages with clusters, weights, sizes and download times."""
    changed, pages = live_replay.related_changes(2, cycles=12), live_replay.PAGES
    web = live_replay.truth(changed, np.random.default_rng(2).choice([0.0, 0.1, 1.0, 3.7], pages))
    order = np.array([[(a + b) % 6 for b in range(6)] for a in range(6)], np.int32)
    links = Links(np.empty(0, np.intp), np.empty(0, np.intp), pages)
    web.neighbours.groups_by_content = PageGroups(np.arange(pages, dtype=np.int32) % 7 - 1, order, links, "")
    live_replay.weigh(path / "store", web.weights)
    with open_store(path / "store") as store:
        groups = StoredGroups(web.neighbours.groups_by_content, np.zeros(pages, np.uint8))
        store.put_clusters(groups)
    settings = {"GP4C_POLICY": "rounds(rounds=3)", "GP4C_SCORE_FUNCTION": "t * near * w", "GP4C_BUDGET": 12}
    names = (*live_replay.OF_CHANGES, *terminals.CLUSTERED)
    live = live_replay.crawled(path / "store", changed, settings, names)
    replayed = live_replay.replayed(web, settings, names)
    assert len(live) == len(replayed) == 3 * (12 - live_replay.WARMUP)
    assert [plan[:3] for plan in live] == [plan[:3] for plan in replayed]
    return {name: (noted(live, name), noted(replayed, name)) for name in names}


def noted(plans: list[live_replay.Plan], name: str) -> list[float]:
    """Values of a terminal in all plans, on both clocks."""
    parts = [plan.terminals[f"{name} by {clock}"] for plan in plans for clock in terminals.CLOCKS]
    values: list[float] = np.frombuffer(b"".join(parts)).tolist()
    return values


def of_growth(path: Path) -> Values:
    """Values of all pages after a crawl that a web with claims made larger, which popular pages ranked."""
    score, names = "t * (X + 0.5) * popularity", (*discovery.TERMINALS, *measured.LINKED, *hints.TERMINALS)
    grown = growing.random_web(1, pages=40)
    settings = {"GP4C_SCORE_FUNCTION": score, "GP4C_POLICY": "top_k", "GP4C_BUDGET": 0.3}
    crawled = growing.crawl(path / "grown", grown, settings, during=growing.Rumours(1))
    with open_store(path / "grown", readonly=True) as store:
        assert store.verify() == []
        claims, cycle = growing.claims_in(store), store.last_cycle + 1
        pages = np.arange(store.pages)
        known = store.columns_of(pages.astype(np.uint32))
        neighbourhood = Neighbourhood(store, cycle, terminals.columns_of(names))
        related = neighbourhood.seen_by()
        state = RoundState(
            neighbourhood.columns(known, pages), slice(None), related, lambda rows: known["key"]
        )
        live = terminals.compute(names, state, cycle)
    web = GrowthReplay(dataclasses.replace(grown, claims=claims), growing.crawl_of(score, budget=0.3))
    for number in range(1, grown.history.cycles + 1):
        web.cycle(number)
    assert {
        page: int(web.state["entered"][page]) for page in np.flatnonzero(web.known)
    } == crawled.first_visit
    web.open(grown.history.cycles + 1)
    replayed = terminals.compute(names, web.rows(known["key"].astype(int) - 1).state, cycle - 1)
    return {name: (live[name].tolist(), replayed[name].tolist()) for name in names}


def of_first_visits(path: Path) -> Values:
    """Values of all pages that wait, in every cycle, where links, their sites and their words count."""
    grown = growing.random_web(1, pages=60, is_linked=True)
    function = " + ".join(growing.WAITING)
    settings = {"GP4C_SCORE_FUNCTION": "t * (X + 0.5)", "GP4C_POLICY": "top_k", "GP4C_BUDGET": 0.3}
    settings |= {"GP4C_NEW_PAGES": 2, "GP4C_NEW_PAGE_FUNCTION": function, "GP4C_WARMUP_VISITS": 0}
    (path / "queries").write_text("bread\t1\n")
    with pytest.MonkeyPatch.context() as patch:
        live = growing.noted_scores(patch, function)
        crawled = growing.crawl(path / "new", grown, settings | {"GP4C_QUERY_LOG": str(path / "queries")})
    choices = dataclasses.replace(
        growing.crawl_of("t * (X + 0.5)", budget=0.3),
        new_pages=2,
        new_page_function=functions.load(function),
        warmup=0,
    )
    with pytest.MonkeyPatch.context() as patch:
        replayed = growing.noted_scores(patch, function)
        web = GrowthReplay(grown, choices)
        for cycle in range(1, grown.history.cycles + 1):
            web.cycle(cycle)
    first = {page: int(web.state["first_cycle"][page]) for page in np.flatnonzero(web.known)}
    assert first == crawled.first_visit
    return {
        name: ([row[at] for rows in live for row in rows], [row[at] for rows in replayed for row in rows])
        for at, name in enumerate(growing.WAITING)
        if name in first_visits.TERMINALS
    }


@pytest.fixture(scope="module")
def values(tmp_path_factory: pytest.TempPathFactory) -> Values:
    """Values of all terminals from outside, in crawls and in replays of the same webs."""
    path = tmp_path_factory.mktemp("outside")
    return of_changes(path) | of_growth(path) | of_first_visits(path)


@pytest.mark.parametrize("name", OUTSIDE)
def test_a_terminal_from_outside_has_the_values_of_a_crawl_in_a_replay(name: str, values: Values) -> None:
    """All there are, bit for bit, and not one value alone."""
    live, replayed = values[name]
    assert live == replayed
    assert len(set(live)) > 1


@pytest.mark.parametrize("policy", ["top_k", "rounds(rounds=4)"])
def test_the_history_that_a_crawl_leaves_replays_to_its_visits(policy: str, tmp_path: Path) -> None:
    """What it did not see is imputed in agreement with its visits: a replay visits the same again."""
    changed = live_replay.related_changes(seed=5, cycles=12)
    crawl_settings = {
        "GP4C_POLICY": policy,
        "GP4C_SCORE_FUNCTION": "t * (w + rate + spent * spent) * near * sqrt(surprise_dir) * size_lift"
        " * distance_mean / cost_s",
        "GP4C_BUDGET": 0.5,
    }
    weight = np.random.default_rng(5).random(live_replay.PAGES)
    live_replay.weigh(tmp_path / "s", weight)
    plans = live_replay.crawled(tmp_path / "s", changed, crawl_settings)
    history, report = read_with_report(tmp_path / "s", max_errors=12)
    assert history.weights.tolist() == weight.tolist()
    assert history.sizes.tolist() == size_class(live_replay.SIZE_BYTES).tolist()
    assert history.latencies_ms.tolist() == live_replay.LATENCY_MS.tolist()
    assert (report.pages, report.first_cycle, report.last_cycle) == (live_replay.PAGES, 2, 13)
    assert (history.changed != changed).any()
    assert plans == live_replay.replayed(history, crawl_settings)


PAGES, CYCLES, WARMUP, BUDGET, CLUSTERS = 30, 11, 1, 12, 4
"""Cycles that compare: the first is the warm-up's, ten are planned."""
SITE = np.arange(PAGES, dtype=np.int32) % 2
NAMES = [f"{('', 'a/', 'a/b/')[page % 3]}{page}" for page in range(PAGES)]
POLICIES = ("top_k", "gsb(level='cluster')", "cb(d=1, phi='pra', in_flight=4)")
MORE_OVER_HTTP = (
    "tests.support.policies.siblings", "lb(d=2, phi=0.7, in_flight=3)",
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


@pytest.mark.parametrize(
    "policy", [*POLICIES, *(pytest.param(one, marks=pytest.mark.slow) for one in MORE_OVER_HTTP)]
)
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
                store.put_clusters(StoredGroups(groups(), groups().popularity()))
            Listed.start_urls = []  # what the spider asks for would come in its own order
    with open_store(store_path, readonly=True) as store:
        crawled = [
            np.concatenate([rows["page"] for _, rows in store.visits(cycle, cycle)]).tolist()
            for cycle in range(WARMUP + 2, CYCLES + 2)
        ]
        assert store.verify() == []
    assert crawled == replayed(policy, changed)
    assert {len(pages) for pages in crawled} == {BUDGET}
