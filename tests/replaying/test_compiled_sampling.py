"""Compiled loops of sampling policies visit what the policies choose."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scrapy_gp4c.arrays import Ints
from scrapy_gp4c.page_state.groupings import NOWHERE, ClusterRanks, Grouping, Links, PageGroups
from scrapy_gp4c.policies import table
from scrapy_gp4c.policies.base import PolicySettings
from scrapy_gp4c.scoring import functions
from training.histories.history import ChangeHistory
from training.replaying import compiled_sampling
from training.replaying.compiled_sampling import compiled_loop
from training.replaying.dense import replay_dense
from training.replaying.evidence import ReplayEvidence
from training.replaying.kernels import sampling
from training.replaying.prepared import prepare

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
    result = ChangeHistory(rng.random((cycles, pages)) < rng.beta(0.5, 1.0, pages), site, page_names=names)
    order = np.array([[(a + b) % CLUSTERS for b in range(CLUSTERS)] for a in range(CLUSTERS)], np.int32)
    cluster = rng.integers(NOWHERE, CLUSTERS, pages).astype(np.int32)
    nobody = np.empty(0, np.intp)
    result.neighbours.groups_by_content = PageGroups(cluster, order, Links(nobody, nobody, pages), "")
    return result


def visits(history_: ChangeHistory, policy: str, k: int, by_rounds: bool) -> list[tuple[int, list[int]]]:
    """Pages of every cycle in the order of visit."""
    cycle_tallies: list[tuple[int, list[int]]] = []

    def watch(cycle: int, pages: Ints, changed: np.ndarray) -> None:
        cycle_tallies.append((cycle, pages.tolist()))

    prepared = prepare(history_, budget=k, warmup=1)
    choice = table.load(policy)
    replay_dense(prepared, functions.load("t * X"), (), watch, choice, by_rounds=by_rounds)
    return cycle_tallies


@pytest.mark.slow
@given(
    policy=st.sampled_from(POLICIES),
    seed=st.integers(0, 2**32),
    pages=st.integers(1, 120),
    share=st.floats(0, 1),
)
@settings(max_examples=120)
def test_a_compiled_cycle_is_that_of_the_policy(policy: str, seed: int, pages: int, share: float) -> None:
    """Whatever the budget, the groups and the changes."""
    result = history(seed, pages)
    k = max(1, round(share * pages))
    assert visits(result, policy, k, by_rounds=False) == visits(result, policy, k, by_rounds=True)


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["rns", "gsb(sample=50)", "db(d=2)", "cb(in_flight=5)"])
def test_a_compiled_cycle_of_many_pages_is_that_of_the_policy(policy: str) -> None:
    """Sorts of many numbers, and samples by sorting instead of inserting."""
    result = history(1, 4000, 3)
    cycle_tallies = visits(result, policy, 700, by_rounds=False)
    assert cycle_tallies == visits(result, policy, 700, by_rounds=True)
    assert [len(pages) for _, pages in cycle_tallies] == [700, 700]


def evidence(history_: ChangeHistory, columns: tuple[str, ...] = ()) -> ReplayEvidence:
    prepared = prepare(history_, budget=5, warmup=1)
    made = ReplayEvidence(prepared, columns)
    made.begin(2, prepared.salts[0])
    return made


def test_only_what_has_a_loop_is_compiled() -> None:
    """Links, groups by a terminal, scores and policies of users plan by themselves."""
    settings = PolicySettings(functions.load("t"), 1)
    evidence_ = evidence(history(3, 30))
    has_loop = {
        text: compiled_loop(table.load(text).make(settings), evidence_) is not None
        for text in ("rns", "db", "cb", "gsb", "lb", "groups", "top_k", "rr", "rounds")
    }
    assert [text for text in has_loop if has_loop[text]] == ["rns", "db", "cb", "gsb"]


def test_equal_turns_and_too_many_rings_are_left_to_the_policy(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop decides by whole draws, a turn is a float of them; and rings are not listed beyond a limit."""
    result = history(4, 30)
    evidence_ = evidence(result)
    drawing = compiled_sampling._Draws(evidence_)
    drawing.draw()
    assert drawing.turns(30) is not None
    drawing.drawn[3] = drawing.drawn[7] + np.uint64(1)
    assert drawing.turns(30) is None
    monkeypatch.setattr(compiled_sampling, "MOST_NEAR", 20)
    order = np.array([[(a + b) % 9 for b in range(9)] for a in range(9)])
    grouping = Grouping(np.arange(30) % 9, 9, ClusterRanks(order))
    assert compiled_sampling._all_rings(grouping, 0) is not None
    assert compiled_sampling._all_rings(grouping, 2) is None


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
    sampling._highest_draws(pages, drawn, first)
    assert first.tolist() == pages[np.argsort(~drawn[pages])][:wanted].tolist()


def test_an_engine_that_is_asked_for_plans_by_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that the statement and the loop can be compared from a command line."""
    from training.replaying import replay

    result = history(7, 50)
    asked: list[bool] = []

    def note(*arguments: object, **choices: object) -> object:
        asked.append(bool(choices["by_rounds"]))
        return replay_dense(*arguments, **choices)  # type: ignore[arg-type]

    monkeypatch.setattr(replay, "replay_dense", note)
    prepared = prepare(result, budget=5, warmup=1)
    one = replay.run(prepared, "t", policy="db", engine="dense")
    other = replay.run(prepared, "t", policy="db")
    assert asked == [True, False]
    for field in dataclasses.fields(one):
        np.testing.assert_array_equal(getattr(one, field.name), getattr(other, field.name))
