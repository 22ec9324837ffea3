"""Policies that follow samples: by clusters and by links in plain Python, phi, and what nobody knows."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scrapy_gp4c.errors import PolicyError
from scrapy_gp4c.page_state.groupings import NOWHERE, ClusterRanks, Grouping, Links
from scrapy_gp4c.page_state.outcomes import NEIGHBOUR, SAMPLE
from scrapy_gp4c.policies import table
from scrapy_gp4c.policies.follow import HISTORY_COLUMNS, PHIS, Follow, Following
from scrapy_gp4c.policies.policy import PolicySettings, Round, choose, rounds_of
from scrapy_gp4c.policies.sampling import Sampled
from scrapy_gp4c.scoring import functions
from scrapy_gp4c.scoring.draws import Purpose
from scrapy_gp4c.scoring.terminals import STATE
from tests.policies.test_sampling import CHANCES, CYCLE, Web, webs
from tests.support.policies import Memory

Near = Callable[[int], list[set[int]]]
"""Page -> the pages at distance 0, 1, ... of it."""
SETTINGS = PolicySettings(functions.load("t"), 1)


def visited(text: str, memory: Memory, k: int) -> tuple[list[int], list[int]]:
    """Pages and kinds of a cycle's visits, in order."""
    policy = table.load(text).make(SETTINGS)
    for number in rounds_of(policy):
        chosen = choose(policy, Round(CYCLE, number, k - len(memory.visited)), memory)
        if not len(chosen.pages):
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
@settings(max_examples=40, deadline=None)
def test_cb_visits_clusters_by_rank(web: Web, k: int, d: int, phi: str, in_flight: int, seed: int) -> None:
    """A followed sample brings its own cluster, then the d nearest; a page of none brings nobody."""
    rng = np.random.default_rng(seed)
    centre = rng.random(4)
    order = [sorted(range(4), key=lambda other: abs(centre[other] - centre[own])) for own in range(4)]
    cluster = rng.integers(NOWHERE, 4, len(web.urls)).tolist()

    def near(page: int) -> list[set[int]]:
        if cluster[page] == NOWHERE:
            return []
        ranked = order[cluster[page]][: 1 + max(d, 0)]
        return [{other for other, own in enumerate(cluster) if own == number} for number in ranked]

    memory = web.memory()
    ranks = ClusterRanks(np.array(order, np.int32))
    memory.groupings["cluster"] = Grouping(np.array(cluster, np.intp), 4, ranks)
    found = visited(f"cb(d={d}, phi={phi}, in_flight={in_flight})", memory, k)
    assert list(zip(*found, strict=True)) == cycle_of(web, k, near, phi, in_flight)


@given(
    web=webs(),
    k=st.integers(0, 60),
    d=st.integers(-3, 3),
    phi=st.sampled_from(list(CHANCES)),
    in_flight=st.sampled_from([1, 4, 16]),
    seed=st.integers(0, 99),
)
@settings(max_examples=40, deadline=None)
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
    found = visited(f"lb(d={d}, phi={phi}, in_flight={in_flight})", memory, k)
    assert list(zip(*found, strict=True)) == cycle_of(web, k, near, phi, in_flight)


def one_page(n: int, changes: list[int], popular: int = 0) -> Memory:
    """A page known since cycle 0 with its changes in these cycles, visited in all of them."""
    state: dict[str, Any] = {name: np.zeros(1, dtype) for name, dtype in STATE.items()}
    state["n"][:], state["X"][:], state["last_cycle"][:] = n, len(changes), n
    state["A"][:] = state["A_cycles"][:] = sum(changes)
    memory = Memory(state, np.array([True]), np.array([7], np.uint64), block_rows=1)
    memory.popular = np.array([popular], np.uint8)
    return memory


@given(
    n=st.integers(1, 40),
    share=st.sampled_from([0.0, 0.2, 1.0]),
    changed=st.booleans(),
    clock=st.sampled_from(["cycles", "visits"]),
)
def test_phi_by_history_counts_the_samples_own_outcome(
    n: int, share: float, changed: bool, clock: str
) -> None:
    """Equations 5 to 8: 1 - exp(-rate) with the visit that has just been made, evenly or by recency."""
    changes = list(range(1, round(n * share) + 1))
    memory = one_page(n, changes)
    before = {name: column.copy() for name, column in memory.state.items()}
    sample = Sampled(np.array([0], np.uint32), np.array([changed]))
    now = [*changes, *([n + 1] if changed else [])]
    ha, wha = (PHIS[name](sample, memory, n + 1, clock)[0] for name in ("ha", "wha"))  # type: ignore[arg-type]
    assert ha == pytest.approx(1 - math.exp(-len(now) / (n + 1)))
    assert wha == pytest.approx(1 - math.exp(-sum(now) / ((n + 1) * (n + 2) / 2)))
    assert all(np.array_equal(memory.state[name], column) for name, column in before.items())


def test_phi_by_outcome_and_by_popularity() -> None:
    """1 after a change and 0 without; from 1/11 for the least popular to 1 for the most popular."""
    two = Sampled(np.array([0, 0], np.uint32), np.array([True, False]))
    assert PHIS["change"](two, one_page(1, []), 5, "cycles").tolist() == [1.0, 0.0]
    for popular, expected in ((0, 1 / 11), (4, 5 / 11), (10, 1.0)):
        assert PHIS["pra"](two, one_page(1, [], popular), 5, "cycles").tolist() == [expected] * 2


def test_phi_reads_no_column_that_it_does_not_declare() -> None:
    """A crawl prepares the declared columns alone."""
    memory = one_page(4, [2])
    memory.state = {name: column for name, column in memory.state.items() if name in HISTORY_COLUMNS}
    sample = Sampled(np.array([0], np.uint32), np.array([True]))
    for phi in PHIS.values():
        for clock in ("cycles", "visits"):
            assert 0.0 < phi(sample, memory, 6, clock)[0] <= 1.0  # type: ignore[arg-type]


class Ignorant(Memory):
    """Evidence that knows neither groups nor popularity."""

    def grouping(self, name: str) -> Grouping:
        """Refuse."""
        raise PolicyError(f"no {name}")

    def popularity(self) -> Any:
        """Refuse."""
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
    assert Follow(SETTINGS, Following("cb", "cluster", 2)).name == (
        "cb(d=2, phi='change', gate=False, clock='cycles', in_flight=16)"
    )
    assert table.load("lb( phi = .25, gate=True )").make(SETTINGS).name == (
        "lb(d=3, phi=0.25, gate=True, clock='cycles', in_flight=16)"
    )
