"""One suite for any policy: the contract, and that a plan follows from settings, round and evidence alone."""

from typing import Any

import numpy as np
import numpy.typing as npt
from hypothesis import given
from hypothesis import strategies as st

from scrapy_gp4c.page_state import groupings
from scrapy_gp4c.page_state.groupings import NOWHERE, ClusterRanks, Grouping, Links
from scrapy_gp4c.page_state.outcomes import CHANGED
from scrapy_gp4c.policies import table
from scrapy_gp4c.policies.base import (
    NOTHING_CHOSEN,
    Policy,
    PolicySettings,
    Round,
    Selection,
    choose,
    rounds_of,
)
from scrapy_gp4c.scoring import functions
from scrapy_gp4c.scoring.ranking import draws
from scrapy_gp4c.scoring.terminals import STATE
from tests.support.policies import HOST_PAGES, Memory

CYCLE = 30
OWN_POLICY = "tests.support.policies.changed_hosts"
SPENDERS = (
    "top_k", "rounds(rounds=1)", "rounds(rounds=2)", "rounds()", "rounds(rounds=7)", "rounds(sample=0.3)",
    "rns", "rr", "gsb", "gsb(level='directory', sample=2)", "db", "db(d=-2, phi=0.7, in_flight=3)",
    "db(phi='wha')", "cb(d=2)", "lb", "lb(d=-2, phi='pra')", "rounds(rounds=3, sample=0.3, level='cluster')",
    "groups", "groups(level='directory', order='score', in_flight=2)",
)  # fmt: skip
"""Policies that spend the whole budget as long as there are candidates."""
POLICIES = (*SPENDERS, OWN_POLICY)


@st.composite
def evidence(draw: st.DrawFn) -> dict[str, Any]:
    """Pages with few different states, so that ties abound, and what visits would find."""
    pages = draw(st.integers(0, 60))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    state = {name: np.zeros(pages, dtype) for name, dtype in STATE.items()}
    state["n"][:] = rng.integers(2, 5, pages)
    state["X"][:] = rng.integers(0, 3, pages)
    state["last_cycle"][:] = CYCLE - rng.integers(1, 4, pages)
    return {
        "state": state,
        "changed": rng.random(pages) < 0.4,
        "draws": draws(np.arange(pages, dtype=np.uint64), 1, CYCLE),
    }


def make(text: str, score: str = "t * (X + 0.5)") -> Policy:
    """A policy object from its text."""
    return table.load(text).make(PolicySettings(functions.load(score), seed=1))


def plans(text: str, web: dict[str, Any], k: int, block_rows: int = 7) -> list[Selection]:
    """The plans of all rounds of one cycle, each held to the contract."""
    memory = grouped(web, block_rows)
    policy = make(text)
    chosen = []
    for number in rounds_of(policy):
        plan = choose(policy, Round(CYCLE, number, k - len(memory.visited)), memory)
        if policy.rounds is None and not len(plan.pages):
            break
        memory.visit(plan)
        chosen.append(plan)
    return chosen


def grouped(web: dict[str, Any], block_rows: int) -> Memory:
    """Evidence with sites of ten pages, of four directories each, one of which lies within another."""
    memory = Memory(**web, block_rows=block_rows)
    pages = np.arange(len(memory.draws))
    places = [(str(number // 4), ("", "a/", "a/b/", "c/")[number % 4]) for number in range(24)]
    directory = pages // HOST_PAGES * 4 + pages % 4
    memory.groupings = {
        "site": Grouping(pages // HOST_PAGES, 6),
        "directory": Grouping(directory, 24),
        "tree": groupings.tree_of_directories(directory, places),
        "cluster": Grouping(
            np.where(pages % 9, pages % 5, NOWHERE),
            5,
            ClusterRanks(np.array([[(a + b) % 5 for b in range(5)] for a in range(5)])),
        ),
        "links": Grouping(pages, len(pages), Links(pages[:-1], pages[1:], len(pages))),
    }
    return memory


def same(one: list[Selection], other: list[Selection]) -> bool:
    """Tell whether two cycles were planned alike, cuts and scores included."""
    return len(one) == len(other) and all(
        np.array_equal(a.pages, b.pages)
        and a.scores.tobytes() == b.scores.tobytes()
        and a.cut == b.cut
        and np.array_equal(a.kinds_of_pages(), b.kinds_of_pages())
        for a, b in zip(one, other, strict=True)
    )


def visited(chosen: list[Selection]) -> npt.NDArray[np.uint32]:
    """All pages of a cycle in the order of the plans."""
    return np.concatenate([NOTHING_CHOSEN.pages, *[plan.pages for plan in chosen]])


@given(text=st.sampled_from(POLICIES), web=evidence(), share=st.floats(0, 1.2))
def test_a_cycle_keeps_its_budget_and_visits_no_page_twice(
    text: str, web: dict[str, Any], share: float
) -> None:
    """Whatever the budget, from nothing to more than all pages."""
    pages = len(web["draws"])
    k = int(share * pages)
    result = visited(plans(text, web, k))
    assert len(np.unique(result)) == len(result) <= k
    if text in SPENDERS:
        assert len(result) == min(k, pages)


@given(text=st.sampled_from(POLICIES), web=evidence(), k=st.integers(0, 60), block_rows=st.integers(1, 70))
def test_the_size_of_blocks_does_not_matter(text: str, web: dict[str, Any], k: int, block_rows: int) -> None:
    """Ties are broken by what belongs to the page, not by where it stands in a block."""
    assert same(plans(text, web, k, block_rows), plans(text, web, k, 100))


@given(text=st.sampled_from(POLICIES), web=evidence(), k=st.integers(0, 60), late=st.integers(0, 2**32))
def test_a_crawl_resumes_from_any_prefix_of_its_log(
    text: str, web: dict[str, Any], k: int, late: int
) -> None:
    """Outcomes come late: in every round an object that knows nothing plans what one plans that was there."""
    memory, policy = grouped(web, 7), make(text)
    delays = np.random.default_rng(late)
    memory.known_outcomes = 0
    for number in rounds_of(policy):
        memory.known_outcomes = int(delays.integers(memory.known_outcomes, len(memory.visited) + 1))
        round = Round(CYCLE, number, k - len(memory.visited))
        plan = choose(policy, round, memory)
        assert same([plan], [choose(make(text), round, memory)])
        if policy.rounds is None and not len(plan.pages):
            if memory.known_outcomes == len(memory.visited):
                break
            memory.known_outcomes = len(memory.visited)
        memory.visit(plan)
    assert len(np.unique(memory.visited)) == len(memory.visited) <= k
    if text in SPENDERS:
        assert len(memory.visited) == min(k, len(memory.draws))


@given(text=st.sampled_from(POLICIES), web=evidence(), k=st.integers(0, 60))
def test_planning_changes_nothing_it_is_shown(text: str, web: dict[str, Any], k: int) -> None:
    """The columns are the store's own memory."""
    before = {name: column.copy() for name, column in web["state"].items()}
    plans(text, web, k)
    assert all(np.array_equal(column, web["state"][name]) for name, column in before.items())


@given(web=evidence(), k=st.integers(0, 60), rounds=st.integers(1, 9))
def test_rounds_visit_what_top_k_visits(web: dict[str, Any], k: int, rounds: int) -> None:
    """Scores of a page's own past are the same in every round: so are the pages, and their order."""
    one, other = plans(f"rounds(rounds={rounds})", web, k), plans("top_k", web, k)
    assert visited(one).tolist() == visited(other).tolist()
    sizes = [len(plan.pages) for plan in one]
    assert len(one) == rounds
    if k >= len(web["draws"]):  # there is nothing to choose
        assert sizes[0] == sum(sizes)
    else:
        assert max(sizes) - min(sizes) <= 1


@given(web=evidence(), k=st.integers(0, 60))
def test_the_second_round_knows_what_the_first_found(web: dict[str, Any], k: int) -> None:
    """The tests' own policy visits only hosts with changes, and all of them that the budget allows."""
    first, second = plans(OWN_POLICY, web, k)
    hosts = set((first.pages[web["changed"][first.pages]] // HOST_PAGES).tolist())
    open_pages = [
        page
        for page in range(len(web["draws"]))
        if page // HOST_PAGES in hosts and page not in first.pages.tolist()
    ]
    assert {page // HOST_PAGES for page in second.pages.tolist()} <= hosts
    assert len(second.pages) == min(k - len(first.pages), len(open_pages))
    assert CHANGED == 2
