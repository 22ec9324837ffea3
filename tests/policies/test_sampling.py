"""Sampling policies against plain Python, visit by visit (Tan et al. 2007)."""

import math
from collections import defaultdict
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scrapy_gp4c.errors import PolicyError
from scrapy_gp4c.page_state import groupings
from scrapy_gp4c.page_state.groupings import NOWHERE, ClusterRanks, Grouping, Links
from scrapy_gp4c.page_state.groups import place_of_url
from scrapy_gp4c.page_state.outcomes import ERROR, GONE, NEIGHBOUR, PANEL, RANKED, SAMPLE, UNCHANGED
from scrapy_gp4c.policies import table
from scrapy_gp4c.policies.base import CycleVisits, PolicySettings, Round, choose, rounds_of
from scrapy_gp4c.policies.members import SampleOutcomes
from scrapy_gp4c.policies.sampling import HISTORY_COLUMNS, PHIS, Follow, FollowParameters
from scrapy_gp4c.scoring import functions
from scrapy_gp4c.scoring.ranking import Purpose, draws
from scrapy_gp4c.scoring.terminals import STATE
from tests.support.policies import Memory

CYCLE, FIRST = 12, 2
DIRECTORIES = ("", "a/", "a/b/", "a/b/c/", "a/d/", "e/", "e/f/")
MASK = 2**64 - 1


class Web(NamedTuple):
    """Pages, what is known of them, and what their visits find."""

    urls: list[str]
    site: list[int]
    n: list[int]
    changes: list[list[int]]
    """Of each page, the positions from 1 on of the visits that found a change."""
    changed: list[bool]
    drawn: list[int]
    popular: list[int]

    def memory(self, block_rows: int = 100) -> Memory:
        pages = len(self.urls)
        state: dict[str, Any] = {name: np.zeros(pages, dtype) for name, dtype in STATE.items()}
        state["n"][:], state["X"][:] = self.n, list(map(len, self.changes))
        state["first_cycle"][:] = FIRST
        state["last_cycle"][:] = CYCLE - 1 - np.arange(pages) % 3
        state["A"][:] = state["A_cycles"][:] = list(map(sum, self.changes))
        memory = Memory(
            state, np.array(self.changed, bool), np.array(self.drawn, np.uint64), block_rows=block_rows
        )
        directory = np.arange(pages)
        places = [place_of_url(url) for url in self.urls]
        memory.groupings = {
            "site": Grouping(np.array(self.site, np.intp), max(self.site, default=0) + 1),
            "tree": groupings.tree_of_directories(
                directory, [(place.site, place.directory) for place in places]
            ),
        }
        memory.popular = np.array(self.popular, np.uint8)
        return memory

    def turn(self, page: int) -> tuple[float, int, int]:
        """Sorts pages as samples: as the terminal random ranks them."""
        return -(self.drawn[page] * 2.0**-64), self.drawn[page], page

    def draw(self, page: int, purpose: Purpose) -> int:
        """What else is drawn of a page."""
        return mixed(self.drawn[page] + purpose * 0x9E3779B97F4A7C15)

    def groups(self) -> dict[int, list[int]]:
        """Site -> its pages in turn."""
        result = defaultdict(list)
        for page in sorted(range(len(self.urls)), key=self.turn):
            result[self.site[page]].append(page)
        return result


def mixed(value: int) -> int:
    value &= MASK
    value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9 & MASK
    value = (value ^ value >> 27) * 0x94D049BB133111EB & MASK
    return value ^ value >> 31


@st.composite
def webs(draw: st.DrawFn) -> Web:
    """Three sites of up to seven directories."""
    pages = draw(st.integers(0, 50))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    site = rng.integers(0, 3, pages).tolist()
    directory = [DIRECTORIES[number] for number in rng.integers(0, len(DIRECTORIES), pages)]
    names = [f"item?id={page}" if page % 5 == 0 else f"{page}.html" for page in range(pages)]
    n = rng.integers(1, 9, pages).tolist()
    return Web(
        [f"http://h{s}.example/{d}{name}" for s, d, name in zip(site, directory, names, strict=True)],
        site,
        n,
        [(1 + np.flatnonzero(rng.random(visits) < 0.3)).tolist() for visits in n],
        (rng.random(pages) < 0.4).tolist(),
        draws(np.arange(pages, dtype=np.uint64), int(rng.integers(0, 99)), CYCLE).tolist(),
        rng.integers(0, 11, pages).tolist(),
    )


def visits(text: str, web: Web, k: int) -> list[int]:
    """The pages that a policy visits, in order."""
    return visited(text, web.memory(), k)[0]


def distance(seed: str, page: str) -> int:
    """Equation 2 with the sign mended, for two pages of a site, from their URLs alone."""
    u, v = (url.removeprefix("http://").partition("?")[0].split("/") for url in (seed, page))
    m, n = len(u), len(v)
    c = 0
    while c < min(m, n) - 1 and u[c] == v[c]:  # pages are leaves: none is a directory above another
        c += 1
    return ((m - c) + (n - c) - 2) * (1 if m >= n else -1)


def by_history(web: Web, page: int, clock: str, weighted: bool) -> float:
    """Equations 5, 6 and 8 after the sample's own outcome."""
    past = [web.changes[page], web.n[page] + 1]
    age = past[1] if clock == "visits" else CYCLE - FIRST
    changes = past[0] + [age] * web.changed[page]
    if weighted:
        # The cycles of past changes are those that `Web.memory` says: equal to the visits' numbers.
        return 1 - math.exp(-sum(changes) / (age * (age + 1) / 2))
    return 1 - math.exp(-len(changes) / age)


CHANCES: dict[str, Callable[[Web, int], float]] = {
    "'change'": lambda web, page: float(web.changed[page]),
    "0": lambda web, page: 0.0,
    "1": lambda web, page: 1.0,
    "0.5": lambda web, page: 0.5,
    "'ha'": lambda web, page: by_history(web, page, "cycles", False),
    "'wha', clock='visits'": lambda web, page: by_history(web, page, "visits", True),
    "'ha', clock='visits'": lambda web, page: by_history(web, page, "visits", False),
    "'wha'": lambda web, page: by_history(web, page, "cycles", True),
    "'pra'": lambda web, page: (web.popular[page] + 1) / 11,
    "'pra', gate=True": lambda web, page: web.changed[page] * (web.popular[page] + 1) / 11,
}


@given(
    web=webs(),
    k=st.integers(0, 60),
    d=st.integers(-4, 5),
    phi=st.sampled_from(list(CHANCES)),
    in_flight=st.sampled_from([1, 3, 16]),
)
def test_db_is_algorithm_1(web: Web, k: int, d: int, phi: str, in_flight: int) -> None:
    """Samples in turn, and near those that are followed all within d steps, the nearest first."""

    def near(page: int) -> list[set[int]]:
        pages = [other for other, site in enumerate(web.site) if site == web.site[page]]
        way = {other: distance(web.urls[page], web.urls[other]) for other in pages}
        return [
            {other for other in pages if way[other] == (at if d >= 0 else -at)} for at in range(abs(d) + 1)
        ]

    result = visited(f"db(d={d}, phi={phi}, in_flight={in_flight})", web.memory(), k)
    assert list(zip(*result, strict=True)) == cycle_of(web, k, near, phi, in_flight)


def test_distances_are_those_of_the_example() -> None:
    """From /dir1/i, as section 4.2 and its figure want it."""
    pages = {"/dir1/x": 0, "/x": 1, "/dir2/x": 2, "/dir1/a/x": -1, "/dir2/a/x": -3, "/dir1/y?q=a/b": 0}
    for page, expected in pages.items():
        assert distance("http://h/dir1/i", f"http://h{page}") == expected
    places = [place_of_url(f"http://h{path}") for path in ("/dir1/i", *pages)]
    grouping = groupings.tree_of_directories(
        np.arange(7), [(place.site, place.directory) for place in places]
    )
    for d in range(-3, 4):
        rings = [set(ring.tolist()) for ring in grouping.rings(0, d)]
        for page, expected in enumerate(pages.values(), start=1):
            for at, ring in enumerate(rings):
                assert (page in ring) == (expected == (at if d >= 0 else -at))


def greedy(web: Web, k: int, sample: int | None) -> list[int]:
    """Section 2, with reading i."""
    groups = web.groups()
    drawn = {site: web.draw(pages[0], Purpose.GROUP) for site, pages in groups.items()}
    each = sample or max(1, round(math.sqrt(k / max(1, len(groups)))))
    samples = [page for site in sorted(groups, key=drawn.__getitem__) for page in groups[site][:each]][:k]
    share = {site: [web.changed[page] for page in pages if page in samples] for site, pages in groups.items()}
    order = sorted(
        (site for site in groups if share[site]),
        key=lambda site: (-sum(share[site]) / len(share[site]), drawn[site]),
    )
    return (samples + [page for site in order for page in groups[site] if page not in samples])[:k]


@given(web=webs(), k=st.integers(1, 60), sample=st.sampled_from([None, 1, 2, 7]))
def test_gsb_fetches_the_groups_with_most_changed_samples(web: Web, k: int, sample: int | None) -> None:
    """Equal samples first; if these are above the budget, groups are drawn."""
    assert visits(f"gsb(sample={sample})", web, k) == greedy(web, k, sample)


@given(web=webs(), k=st.integers(1, 60), heard=st.integers(0, 60))
def test_gsb_plans_ahead_what_it_would_fetch_in_any_case(web: Web, k: int, heard: int) -> None:
    """While samples are out the best group whose samples are in has its turn; others, if the budget lasts for
    those that are out, too."""
    memory = web.memory()
    policy = table.load("gsb").make(PolicySettings(functions.load("t * X"), 1))
    memory.visit(choose(policy, Round(CYCLE, 0, k), memory))
    in_the_end = greedy(web, k, None)
    out = {web.site[page] for page in memory.visited[heard:].tolist()}
    memory.known_outcomes = heard
    ahead = choose(policy, Round(CYCLE, 1, k - len(memory.visited)), memory).pages.tolist()
    sites = list(dict.fromkeys(web.site[page] for page in ahead))
    assert out.isdisjoint(sites)
    assert all(page in in_the_end for page in ahead if web.site[page] != sites[0])
    assert out or ahead == in_the_end[len(memory.visited) :]


def group_by_group(web: Web, k: int, sample: int | None, threshold: float, in_flight: int) -> list[int]:
    """Groups by their mean nad: samples of several at a time, the rests of those that passed."""
    groups = web.groups()
    drawn = {site: web.draw(pages[0], Purpose.GROUP) for site, pages in groups.items()}
    last = web.memory().state["last_cycle"]
    value = {
        site: sum(1 - math.exp(-len(web.changes[p]) / web.n[p] * (CYCLE - int(last[p]))) for p in pages)
        / len(pages)
        for site, pages in groups.items()
    }
    order = sorted(groups, key=lambda site: (-value[site], drawn[site]))
    each = sample or max(1, round(math.sqrt(k / max(1, len(groups)))))
    visited: list[int] = []
    share: dict[int, float] = {}
    waiting = list(order)
    heard: list[int] = []
    while True:
        near = [
            p for s in order if s in heard and share[s] >= threshold for p in groups[s] if p not in visited
        ]
        visited = (visited + near)[:k]
        if len(visited) == k:
            return visited
        begun_groups, sent = [], 0
        while waiting and sent < min(in_flight, k - len(visited)):
            begun_groups.append(waiting.pop(0))
            sent += len(groups[begun_groups[-1]][:each])
        fresh = [page for site in begun_groups for page in groups[site][:each]][: k - len(visited)]
        if not near and not fresh:
            rest = sorted(heard, key=lambda site: (-share[site], order.index(site)))
            return (visited + [page for site in rest for page in groups[site] if page not in visited])[:k]
        visited += fresh
        for site in begun_groups:
            outcomes = [web.changed[page] for page in fresh if web.site[page] == site]
            share[site] = sum(outcomes) / max(1, len(outcomes))
        heard += begun_groups


@given(
    web=webs(),
    k=st.integers(1, 60),
    sample=st.sampled_from([None, 1, 4]),
    threshold=st.sampled_from([0.0, 0.5, 1.0]),
    in_flight=st.sampled_from([1, 16]),
)
def test_groups_go_by_what_is_known_of_their_pages(
    web: Web, k: int, sample: int | None, threshold: float, in_flight: int
) -> None:
    """Thesis 2.5: a sample, then the rest if that changed; last what is left, by the share that changed."""
    text = f"groups(order='nad', sample={sample}, threshold={threshold}, in_flight={in_flight})"
    assert visits(text, web, k) == group_by_group(web, k, sample, threshold, in_flight)


@given(web=webs(), k=st.integers(0, 60))
def test_the_baselines(web: Web, k: int) -> None:
    """`rns` takes pages in turn, as `db` does that follows nothing; `rr` the oldest ones in their order."""
    in_turn = sorted(range(len(web.urls)), key=web.turn)[:k]
    assert visits("rns", web, k) == visits("db(phi=0)", web, k) == in_turn
    last = web.memory().state["last_cycle"].tolist()
    assert visits("rr", web, k) == sorted(range(len(last)), key=lambda page: (last[page], page))[:k]


@given(web=webs(), k=st.integers(0, 60), share=st.sampled_from([0.1, 0.5, 1.0]))
def test_rounds_begin_with_a_sample_of_every_group(web: Web, k: int, share: float) -> None:
    """One page of each, then another of each that has one left; then the highest scores in equal parts."""
    result = visits(f"rounds(rounds=2, sample={share})", web, k)
    unsampled = web.groups()
    sample = result[: int(share * k + 1e-9)]
    at = 0
    while at < len(sample):
        layer = sample[at : at + len(unsampled)]
        assert len({web.site[page] for page in layer}) == len(layer)
        for page in layer:
            assert unsampled[web.site[page]].pop(0) == page
        unsampled = {site: pages for site, pages in unsampled.items() if pages}
        at += len(layer)
    assert result == [*sample, *[page for page in visits("top_k", web, 60) if page not in sample]][:k]


def test_what_tells_and_what_does_not() -> None:
    """A page that is gone now counts as changed, one that was gone before and an error tell nothing."""
    web = Web(
        [f"http://h/{name}" for name in "abcdef"],
        [0] * 6,
        [3] * 6,
        [[]] * 6,
        [False] * 6,
        [9, 8, 7, 6, 5, 4],
        [0] * 6,
    )
    for outcome, gone, kind, followed in (
        (GONE, 0, SAMPLE, True),
        (GONE, 2, SAMPLE, False),
        (ERROR, 0, SAMPLE, False),
        (UNCHANGED, 0, SAMPLE, False),
        (GONE, 0, NEIGHBOUR, False),
        (GONE, 0, PANEL, True),
    ):
        memory = web.memory()
        memory.state = {**memory.state, "gone": np.full(6, gone)}
        policy = table.load("db(in_flight=1)").make(PolicySettings(functions.load("t"), 1))
        memory.visited, memory.kinds = np.array([0], np.uint32), np.array([kind], np.uint8)
        heard = CycleVisits(memory.visited, np.array([outcome], np.uint8), memory.kinds)
        memory.visits = lambda heard=heard: heard  # type: ignore[method-assign, misc]
        chosen = choose(policy, Round(CYCLE, 1, 5), memory)
        assert len(chosen.pages) == (5 if followed else 1)
        assert chosen.kinds_of_pages().tolist() == [NEIGHBOUR if followed else SAMPLE] * len(chosen.pages)


@pytest.mark.parametrize("text", ["rns", "rr", "gsb", "db", "groups", "rounds(sample=0.5)"])
def test_plans_say_why_pages_are_visited(text: str) -> None:
    """Samples, neighbours, or ranked; no score chose the first two, so that the panel is not asked."""
    web = Web(
        [f"http://h{n % 2}/{n}" for n in range(12)],
        [n % 2 for n in range(12)],
        [3] * 12,
        [[1]] * 12,
        [True] * 12,
        draws(np.arange(12, dtype=np.uint64), 1, CYCLE).tolist(),
        [0] * 12,
    )
    policy = table.load(text).make(PolicySettings(functions.load("t"), 1))
    chosen = choose(policy, Round(CYCLE, 0, 8), web.memory())
    expected = RANKED if text == "rr" else SAMPLE
    assert set(chosen.kinds_of_pages().tolist()) == {expected}
    assert chosen.cut is None
    assert np.isnan(chosen.scores).all()


Near = Callable[[int], list[set[int]]]
"""Page -> the pages at distance 0, 1, ... of it."""
SETTINGS = PolicySettings(functions.load("t"), 1)


def visited(text: str, memory: Memory, k: int) -> tuple[list[int], list[int]]:
    """Pages and kinds of a cycle's visits, in order."""
    policy = table.load(text).make(SETTINGS)
    for number in rounds_of(policy):
        chosen = choose(policy, Round(CYCLE, number, k - len(memory.visited)), memory)
        if policy.rounds is None and not len(chosen.pages):
            break
        memory.visit(chosen)
    return memory.visited.tolist(), memory.kinds.tolist()


def cycle_of(web: Web, k: int, near: Near, phi: str, in_flight: int) -> list[tuple[int, int]]:
    """A cycle in plain Python: page and kind of every visit."""
    waiting = sorted(range(len(web.urls)), key=web.turn)
    done: dict[int, int] = {}
    flight: list[int] = []
    while len(done) < k:
        before = len(done)
        for sample in flight:  # they were sent in turn
            if web.draw(sample, Purpose.FOLLOW) / 2**64 < CHANCES[phi](web, sample):
                for ring in near(sample):
                    for page in sorted(ring - set(done), key=lambda page: web.draw(page, Purpose.NEIGHBOUR)):
                        if len(done) < k:
                            done[page] = NEIGHBOUR
        flight = [page for page in waiting if page not in done][: min(in_flight, k - len(done))]
        done |= dict.fromkeys(flight, SAMPLE)
        if len(done) == before:
            break
    return list(done.items())


@given(
    web=webs(),
    k=st.integers(0, 60),
    d=st.integers(-2, 4),
    phi=st.sampled_from(list(CHANCES)),
    in_flight=st.sampled_from([1, 4, 16]),
    seed=st.integers(0, 99),
)
def test_cb_visits_clusters_by_rank(web: Web, k: int, d: int, phi: str, in_flight: int, seed: int) -> None:
    """A followed sample brings its own cluster, then the d nearest; a page of none brings nobody."""
    rng = np.random.default_rng(seed)
    centre = rng.random(4)
    order = [
        sorted(range(4), key=lambda other: abs(centre[other] - centre[cluster_])) for cluster_ in range(4)
    ]
    cluster = rng.integers(NOWHERE, 4, len(web.urls)).tolist()

    def near(page: int) -> list[set[int]]:
        if cluster[page] == NOWHERE:
            return []
        ranked = order[cluster[page]][: 1 + max(d, 0)]
        return [{other for other, cluster_ in enumerate(cluster) if cluster_ == number} for number in ranked]

    memory = web.memory()
    ranks = ClusterRanks(np.array(order, np.int32))
    memory.groupings["cluster"] = Grouping(np.array(cluster, np.intp), 4, ranks)
    result = visited(f"cb(d={d}, phi={phi}, in_flight={in_flight})", memory, k)
    assert list(zip(*result, strict=True)) == cycle_of(web, k, near, phi, in_flight)


@given(
    web=webs(),
    k=st.integers(0, 60),
    d=st.integers(-3, 3),
    phi=st.sampled_from(list(CHANCES)),
    in_flight=st.sampled_from([1, 4, 16]),
    seed=st.integers(0, 99),
)
def test_lb_visits_siblings_and_then_hop_by_hop(
    web: Web, k: int, d: int, phi: str, in_flight: int, seed: int
) -> None:
    """Pages that a parent links to as well, then along the links, or against them where d is negative."""
    pages = len(web.urls)
    rng = np.random.default_rng(seed)
    edges = sorted({(int(a), int(b)) for a, b in rng.integers(0, max(1, pages), (pages, 2)) if a != b})
    steps = edges if d >= 0 else [(b, a) for a, b in edges]

    def near(page: int) -> list[set[int]]:
        parents = {a for a, b in edges if b == page}
        siblings = {b for a, b in edges if a in parents} - {page}
        rings, seen, front = [siblings], {page}, {page}
        for _ in range(abs(d)):
            front = {b for a, b in steps if a in front} - seen
            seen |= front
            rings.append(front - siblings)
        return rings

    memory = web.memory()
    links = Links(np.array([a for a, _ in edges], np.intp), np.array([b for _, b in edges], np.intp), pages)
    memory.groupings["links"] = Grouping(np.arange(pages), pages, links)
    result = visited(f"lb(d={d}, phi={phi}, in_flight={in_flight})", memory, k)
    assert list(zip(*result, strict=True)) == cycle_of(web, k, near, phi, in_flight)


def one_page(n: int, changes: list[int], popular: int = 0) -> Memory:
    """A page known since cycle 0 with its changes in these cycles, visited in all of them."""
    state: dict[str, Any] = {name: np.zeros(1, dtype) for name, dtype in STATE.items()}
    state["n"][:], state["X"][:], state["last_cycle"][:] = n, len(changes), n
    state["A"][:] = state["A_cycles"][:] = sum(changes)
    memory = Memory(state, np.array([True]), np.array([7], np.uint64), block_rows=1)
    memory.popular = np.array([popular], np.uint8)
    return memory


def test_phi_reads_no_column_that_it_does_not_declare() -> None:
    """A crawl prepares the declared columns alone."""
    memory = one_page(4, [2])
    memory.state = {name: column for name, column in memory.state.items() if name in HISTORY_COLUMNS}
    sample = SampleOutcomes(np.array([0], np.uint32), np.array([True]))
    for phi in PHIS.values():
        for clock in ("cycles", "visits"):
            assert 0.0 < phi(sample, memory, 6, clock)[0] <= 1.0  # type: ignore[arg-type]


class Ignorant(Memory):
    """Evidence that knows neither groups nor popularity."""

    def grouping(self, name: str) -> Grouping:
        raise PolicyError(f"no {name}")

    def popularity(self) -> Any:
        raise PolicyError("no popularity")


@pytest.mark.parametrize(
    ("text", "missed"),
    [
        ("cb", "no cluster"),
        ("lb", "no links"),
        ("db(phi=0.001)", "no tree"),
        ("db(phi='pra')", "no tree"),
        ("cb(phi=0)", None),
        ("db(phi=0.0)", None),
    ],
)
def test_what_nobody_knows_is_missed_before_the_first_visit(text: str, missed: str | None) -> None:
    """Not only when a sample happens to be followed; a policy that follows nothing asks for nothing."""
    page = one_page(1, [])
    memory = Ignorant(page.state, page.changed, page.draws, block_rows=1)
    policy = table.load(text).make(SETTINGS)
    if missed is None:
        assert choose(policy, Round(CYCLE, 0, 1), memory).pages.tolist() == [0]
    else:
        with pytest.raises(PolicyError, match=missed):
            choose(policy, Round(CYCLE, 0, 1), memory)


def test_a_policys_name_tells_all_its_parameters() -> None:
    """With the defaults filled in, as it may be given again."""
    assert Follow(SETTINGS, FollowParameters("cb", "cluster", 2)).name == (
        "cb(d=2, phi='change', gate=False, clock='cycles', in_flight=16)"
    )
    assert table.load("lb( phi = .25, gate=True )").make(SETTINGS).name == (
        "lb(d=3, phi=0.25, gate=True, clock='cycles', in_flight=16)"
    )
