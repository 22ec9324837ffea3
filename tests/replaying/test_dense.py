"""Dense engine: sums over copies equal recounting, and compiled loops visit what the policies choose."""

from __future__ import annotations

import dataclasses
import math
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scrapy_gp4c.arrays import Ints
from scrapy_gp4c.errors import HistoryError
from scrapy_gp4c.page_state.groupings import NOWHERE, ClusterRanks, Grouping, Links, PageGroups
from scrapy_gp4c.policies import table
from scrapy_gp4c.policies.base import PolicySettings
from scrapy_gp4c.scoring import functions
from scrapy_gp4c.search.queries import parse_query_log
from tests.support.contents import contents_of, random_pages
from training.histories.history import ChangeHistory
from training.replaying import dense
from training.replaying.dense import ContentCopies, Copies, replay_dense
from training.replaying.evidence import ReplayEvidence
from training.replaying.kernels import sampling
from training.replaying.metrics import CONTENT_BITS
from training.replaying.prepared import prepare
from training.replaying.refresh_value import QualityMeasure, with_refresh_values

PAGES = 5
CYCLES = 8
PAGE_SETS = st.lists(st.sets(st.integers(0, PAGES - 1)), min_size=CYCLES, max_size=CYCLES)
WEIGHTS = st.none() | st.lists(
    st.integers(0, 8).map(lambda eighths: eighths / 8), min_size=PAGES, max_size=PAGES
).filter(any)


def array(pages: set[int]) -> np.ndarray:
    """Page numbers, ascending."""
    return np.array(sorted(pages), np.int64)


@given(PAGE_SETS, PAGE_SETS, WEIGHTS, st.booleans())
def test_sums_kept_up_to_date_are_those_of_recounting(
    changes: list[set[int]], visits: list[set[int]], weight: list[float] | None, everything: bool
) -> None:
    """Weight, age and penalty of all copies, after every change and visit; with weights and without."""
    history = ChangeHistory(np.zeros((CYCLES, PAGES), bool), np.zeros(PAGES, int), weight)
    prepared = prepare(history, budget=1, warmup=0)
    copies = Copies(prepared, ("stale_weight", "age_weight", "penalty") if everything else ("age_weight",))
    missed = [0] * PAGES
    first = [0] * PAGES
    each = [1.0] * PAGES if weight is None else weight
    unit = 2.0**prepared.weights.bits
    for cycle, (changed, visited) in enumerate(zip(changes, visits, strict=True), start=1):
        for page in changed:
            first[page] = first[page] if missed[page] else cycle
            missed[page] += 1
        copies.change(cycle, array(changed))
        assert copies.outdated == sum(map(bool, missed))
        renewed = {page for page in visited if missed[page]}
        copies.visit(array(renewed))
        for page in renewed:
            missed[page] = 0
        stale = [page for page in range(PAGES) if missed[page]]
        told = copies.tallies(cycle)
        assert copies.missed.tolist() == missed
        assert copies.outdated == len(stale)
        assert told["stale_weight"] == sum(each[page] for page in stale) * unit
        assert told["age_weight"] == sum(each[page] * (cycle - first[page] + 1) for page in stale) * unit
        penalty = sum(
            Fraction(each[page]) * sum(Fraction(1, i) for i in range(1, missed[page] + 1)) for page in stale
        )
        found = math.ldexp(told["penalty"], -prepared.weights.penalty_bits)
        assert found == pytest.approx(float(penalty) if everything else 0.0, abs=1e-12)
    copies.visit(array({page for page in range(PAGES) if missed[page]}))
    assert not any(copies.tallies(CYCLES).values())


@given(st.sets(st.integers(0, PAGES - 1)), WEIGHTS)
def test_weights_of_pages_add_up(pages: set[int], weight: list[float] | None) -> None:
    """In fixed point; a count of pages where all weigh the same."""
    history = ChangeHistory(np.zeros((2, PAGES), bool), np.zeros(PAGES, int), weight)
    prepared = prepare(history, budget=1, warmup=0)
    found = Copies(prepared, ()).weight(array(pages))
    wanted = len(pages) if weight is None else sum(weight[page] for page in pages)
    assert found == wanted * 2**prepared.weights.bits


def test_what_nobody_asks_for_is_not_summed() -> None:
    """Change rates alone need to know only which copies are out of date."""
    prepared = prepare(ChangeHistory(np.ones((3, 2), bool), np.zeros(2, int)), budget=1, warmup=0)
    copies = Copies(prepared, ())
    copies.change(1, np.array([0, 1]))
    copies.visit(np.array([1]))
    assert (copies.outdated, copies.missed.tolist()) == (1, [1, 0])
    assert copies.tallies(1) == {}


LOG = parse_query_log(["a\t5", "b\t3", "a b\t2", "c d\t1"], "log")


def test_copies_of_contents_lose_what_their_versions_lose(tmp_path: Path) -> None:
    """Impact by its definition from the versions held; quality of a search of just these."""
    history = with_refresh_values(contents_of(tmp_path, random_pages(7)), QualityMeasure(LOG))
    impact = history.impact
    assert impact is not None
    prepared = prepare(history, budget=2, warmup=2)
    rng = np.random.default_rng(1)
    copies = ContentCopies(prepared)
    held = impact.version[2].copy()
    rows = []
    for cycle in range(3, history.cycles + 1):
        pages = rng.permutation(history.pages)[:2]
        copies.visit(cycle, pages, history.changed[cycle - 1, pages])
        held[pages] = impact.version[cycle, pages]
        assert copies.held.tolist() == held.tolist()
        rows.append(held.copy())
    never = [impact.between(impact.version[2], live).sum() for live in impact.version[3:]]
    lost = [impact.between(row, live).sum() for row, live in zip(rows, impact.version[3:], strict=True)]
    told = {name: np.ldexp(row.astype(float), -CONTENT_BITS) for name, row in copies.tallies().items()}
    assert told["impact"] == pytest.approx(1 - np.array(lost) / np.mean(never), abs=1e-9)
    assert impact.quality is not None
    assert told["quality"] == pytest.approx(impact.quality(np.array(rows)), abs=1e-9)
    assert told["quality"].min() < 1.0


def test_where_nothing_is_to_be_gained_nothing_is_lost(tmp_path: Path) -> None:
    """Contents whose changes no query sees: every copy is as good as the page."""
    log = parse_query_log(["z\t1"], "log")
    history = with_refresh_values(
        contents_of(tmp_path, [{0: "a", 1: "b", 2: "c"}, {0: "z"}]), QualityMeasure(log)
    )
    copies = ContentCopies(prepare(history, budget=1, warmup=1))
    copies.visit(2, np.array([1]), np.array([False]))
    told = copies.tallies()
    assert told["impact"].tolist() == told["quality"].tolist() == [2**CONTENT_BITS]


def test_contents_are_needed() -> None:
    """The error names the metrics and the option."""
    prepared = prepare(ChangeHistory(np.ones((3, 2), bool), np.zeros(2, int)), budget=1)
    with pytest.raises(HistoryError, match=r"impact and quality need contents.*--query-log"):
        ContentCopies(prepared)


POLICIES = (
    "rns", "gsb", "gsb(level='directory')", "gsb(level='cluster', sample=40)", "gsb(sample=1)", "db",
    "db(d=0)", "db(d=-2, phi=0.6, in_flight=3)", "db(d=3, gate=True, phi='wha')", "db(phi=0)",
    "db(phi='ha', in_flight=1)", "cb", "cb(d=2, in_flight=1)", "cb(d=9, phi=1)",
    "cb(phi='wha', clock='visits')",
    "rounds(rounds=3, sample=0.4)", "rounds(rounds=1, sample=1, level='cluster')",
)  # fmt: skip
CLUSTERS = 5


def history(seed: int, pages: int, cycles: int = 6) -> ChangeHistory:
    """Pages in directories within each other; some belong to no cluster."""
    rng = np.random.default_rng(seed)
    names = [f"{'a/' * rng.integers(0, 3)}{'b/' * rng.integers(0, 2)}{page}" for page in range(pages)]
    site = rng.integers(0, 3, pages).astype(np.int32)
    found = ChangeHistory(rng.random((cycles, pages)) < rng.beta(0.5, 1.0, pages), site, page_names=names)
    order = np.array([[(a + b) % CLUSTERS for b in range(CLUSTERS)] for a in range(CLUSTERS)], np.int32)
    cluster = rng.integers(NOWHERE, CLUSTERS, pages).astype(np.int32)
    nobody = np.empty(0, np.intp)
    found.neighbours.groups_by_content = PageGroups(cluster, order, Links(nobody, nobody, pages), "")
    return found


def visits(found: ChangeHistory, policy: str, k: int, by_rounds: bool) -> list[tuple[int, list[int]]]:
    """Pages of every cycle in the order of visit."""
    told: list[tuple[int, list[int]]] = []

    def watch(cycle: int, pages: Ints, changed: np.ndarray) -> None:
        told.append((cycle, pages.tolist()))

    prepared = prepare(found, budget=k, warmup=1)
    choice = table.load(policy)
    replay_dense(prepared, functions.load("t * X"), (), watch, choice, by_rounds=by_rounds)
    return told


@pytest.mark.slow
@given(
    policy=st.sampled_from(POLICIES),
    seed=st.integers(0, 2**32),
    pages=st.integers(1, 120),
    share=st.floats(0, 1),
)
@settings(max_examples=120, deadline=None)
def test_a_compiled_cycle_is_that_of_the_policy(policy: str, seed: int, pages: int, share: float) -> None:
    """Whatever the budget, the groups and the changes."""
    found = history(seed, pages)
    k = max(1, round(share * pages))
    assert visits(found, policy, k, by_rounds=False) == visits(found, policy, k, by_rounds=True)


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["rns", "gsb(sample=50)", "db(d=2)", "cb(in_flight=5)"])
def test_a_compiled_cycle_of_many_pages_is_that_of_the_policy(policy: str) -> None:
    """Sorts of many numbers, and samples by sorting instead of inserting."""
    found = history(1, 4000, 3)
    told = visits(found, policy, 700, by_rounds=False)
    assert told == visits(found, policy, 700, by_rounds=True)
    assert [len(pages) for _, pages in told] == [700, 700]


def evidence(found: ChangeHistory, columns: tuple[str, ...] = ()) -> ReplayEvidence:
    """Evidence of the first scored cycle."""
    prepared = prepare(found, budget=5, warmup=1)
    made = ReplayEvidence(prepared, columns)
    made.begin(2, prepared.salts[0])
    return made


def test_only_what_has_a_loop_is_compiled() -> None:
    """Links, groups by a terminal, scores and policies of users plan by themselves."""
    given_ = PolicySettings(functions.load("t"), 1)
    own = evidence(history(3, 30))
    has_loop = {
        text: dense.compiled_loop(table.load(text).make(given_), own) is not None
        for text in ("rns", "db", "cb", "gsb", "lb", "groups", "top_k", "rr", "rounds")
    }
    assert [text for text in has_loop if has_loop[text]] == ["rns", "db", "cb", "gsb"]


def test_equal_turns_and_too_many_rings_are_left_to_the_policy(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop decides by whole draws, a turn is a float of them; and rings are not listed beyond a limit."""
    found = history(4, 30)
    own = evidence(found)
    drawing = dense._Draws(own)
    drawing.draw()
    assert drawing.turns(30) is not None
    drawing.drawn[3] = drawing.drawn[7] + np.uint64(1)
    assert drawing.turns(30) is None
    monkeypatch.setattr(dense, "MOST_NEAR", 20)
    order = np.array([[(a + b) % 9 for b in range(9)] for a in range(9)])
    grouping = Grouping(np.arange(30) % 9, 9, ClusterRanks(order))
    assert dense._all_rings(grouping, 0) is not None
    assert dense._all_rings(grouping, 2) is None


def test_rings_are_those_that_the_grouping_tells() -> None:
    """Every group has as many, some of them empty."""
    grouping = history(5, 60).neighbours.grouping("tree")
    for d in (0, 2, -3):
        rings = dense._all_rings(grouping, d)
        assert rings is not None
        assert rings.of_group == abs(d) + 1
        assert grouping.distances is not None
        for group in range(grouping.groups):
            own = [ring.tolist() for ring in grouping.distances.rings(group, d)]
            at = range(group * rings.of_group, (group + 1) * rings.of_group)
            listed = [rings.near[rings.begin[row] : rings.begin[row + 1]].tolist() for row in at]
            assert listed == own + [[]] * (rings.of_group - len(own))


def test_keys_that_agree_in_their_high_bits_are_still_in_order() -> None:
    """Positions ride in the low bits of the numbers that are sorted: then those must be looked at."""
    keys = np.random.default_rng(1).permutation(200).astype(np.uint64)
    assert sampling._order(keys).tolist() == np.argsort(keys).tolist()
    spread = keys << np.uint64(50)
    assert sampling._order(spread).tolist() == np.argsort(spread).tolist()


@pytest.mark.parametrize("bits", [64, 40])
@pytest.mark.parametrize("wanted", [1, 32, 40])
def test_the_first_of_a_group_are_found_whatever_its_draws(bits: int, wanted: int) -> None:
    """Also where fewer than are wanted draw as high as so many mostly do."""
    drawn = np.random.default_rng(bits).permutation(3000).astype(np.uint64) << np.uint64(bits - 12)
    pages, first = np.arange(500, 2900), np.empty(wanted, np.uint32)
    sampling._earliest(pages, drawn, first)
    assert first.tolist() == pages[np.argsort(~drawn[pages])][:wanted].tolist()


def test_samples_of_groups_are_listed_as_the_policy_lists_them() -> None:
    """As many of each group as are needed, the earliest turns first."""
    found = history(6, 90)
    own = evidence(found)
    grouping = found.neighbours.grouping("directory")
    pages, begin, numbers = own.first_of_groups(grouping, 3)
    turn = dict(zip(range(90), own.rows(np.arange(90, dtype=np.uint32)).state["draw"].tolist(), strict=True))
    for row, number in enumerate(numbers.tolist()):
        members = np.flatnonzero(grouping.number == number).tolist()
        expected = sorted(members, key=turn.__getitem__, reverse=True)[:3]
        assert pages[begin[row] : begin[row + 1]].tolist() == expected
    assert len(numbers) == len(np.unique(grouping.number))


def test_an_engine_that_is_asked_for_plans_by_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that the statement and the loop can be compared from a command line."""
    from training.replaying import replay

    found = history(7, 50)
    asked: list[bool] = []

    def note(*given_: object, **choices: object) -> object:
        asked.append(bool(choices["by_rounds"]))
        return replay_dense(*given_, **choices)  # type: ignore[arg-type]

    monkeypatch.setattr(replay, "replay_dense", note)
    prepared = prepare(found, budget=5, warmup=1)
    one = replay.run(prepared, "t", policy="db", engine="dense")
    other = replay.run(prepared, "t", policy="db")
    assert asked == [True, False]
    for field in dataclasses.fields(one):
        np.testing.assert_array_equal(getattr(one, field.name), getattr(other, field.name))
