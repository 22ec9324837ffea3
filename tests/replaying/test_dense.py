"""Dense engine: sums over copies equal recounting, and compiled loops visit what the policies choose."""

import dataclasses
import math
from fractions import Fraction
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from scrapy_gp4c.arrays import Ints
from scrapy_gp4c.errors import HistoryError, ScoreError
from scrapy_gp4c.page_state.groupings import NOWHERE, ClusterRanks, Grouping, Links, PageGroups
from scrapy_gp4c.page_state.groups import count_visits, directories
from scrapy_gp4c.page_state.related import RecentVisits, Related
from scrapy_gp4c.policies import table
from scrapy_gp4c.policies.base import PolicySettings, Selection
from scrapy_gp4c.policies.table import load as load_policy
from scrapy_gp4c.policies.top_k import CycleScorer, best_candidates
from scrapy_gp4c.scoring import functions, terminals
from scrapy_gp4c.scoring.expression import PRIMITIVES, Expression
from scrapy_gp4c.scoring.ranking import top_k
from scrapy_gp4c.scoring.terminals import ROUND, STATE, compute
from scrapy_gp4c.search.queries import parse_query_log
from tests.support.contents import contents_of, random_pages
from training.histories.history import ChangeHistory
from training.replaying import dense
from training.replaying.dense import (
    BestRows,
    ContentCopies,
    Copies,
    GroupWindow,
    PageStates,
    ReplayEvidence,
    divided,
    replay_dense,
)
from training.replaying.kernels import sampling
from training.replaying.metrics import CONTENT_BITS, METRICS
from training.replaying.prepared import prepare
from training.replaying.refresh_value import QualityMeasure, with_refresh_values
from training.replaying.replay import load, run

PAGES = 5
CYCLES = 8
PAGE_SETS = st.lists(st.sets(st.integers(0, PAGES - 1)), min_size=CYCLES, max_size=CYCLES)
WEIGHTS = st.none() | st.lists(
    st.integers(0, 8).map(lambda eighths: eighths / 8), min_size=PAGES, max_size=PAGES
).filter(any)


def array(pages: set[int]) -> np.ndarray:
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
        cycle_tallies = copies.tallies(cycle)
        assert copies.missed.tolist() == missed
        assert copies.outdated == len(stale)
        assert cycle_tallies["stale_weight"] == sum(each[page] for page in stale) * unit
        assert (
            cycle_tallies["age_weight"]
            == sum(each[page] * (cycle - first[page] + 1) for page in stale) * unit
        )
        penalty = sum(
            Fraction(each[page]) * sum(Fraction(1, i) for i in range(1, missed[page] + 1)) for page in stale
        )
        result = math.ldexp(cycle_tallies["penalty"], -prepared.weights.penalty_bits)
        assert result == pytest.approx(float(penalty) if everything else 0.0, abs=1e-12)
    copies.visit(array({page for page in range(PAGES) if missed[page]}))
    assert not any(copies.tallies(CYCLES).values())


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
    cycle_tallies = {
        name: np.ldexp(row.astype(float), -CONTENT_BITS) for name, row in copies.tallies().items()
    }
    assert cycle_tallies["impact"] == pytest.approx(1 - np.array(lost) / np.mean(never), abs=1e-9)
    assert impact.quality is not None
    assert cycle_tallies["quality"] == pytest.approx(impact.quality(np.array(rows)), abs=1e-9)
    assert cycle_tallies["quality"].min() < 1.0


def test_where_nothing_is_to_be_gained_nothing_is_lost(tmp_path: Path) -> None:
    """Contents whose changes no query sees: every copy is as good as the page."""
    log = parse_query_log(["z\t1"], "log")
    history = with_refresh_values(
        contents_of(tmp_path, [{0: "a", 1: "b", 2: "c"}, {0: "z"}]), QualityMeasure(log)
    )
    copies = ContentCopies(prepare(history, budget=1, warmup=1))
    copies.visit(2, np.array([1]), np.array([False]))
    cycle_tallies = copies.tallies()
    assert cycle_tallies["impact"].tolist() == cycle_tallies["quality"].tolist() == [2**CONTENT_BITS]


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
@example(policy="gsb(level='cluster', sample=40)", seed=122838, pages=1, share=0.0)  # in no group
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
        text: dense.compiled_loop(table.load(text).make(settings), evidence_) is not None
        for text in ("rns", "db", "cb", "gsb", "lb", "groups", "top_k", "rr", "rounds")
    }
    assert [text for text in has_loop if has_loop[text]] == ["rns", "db", "cb", "gsb"]


def test_equal_turns_and_too_many_rings_are_left_to_the_policy(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop decides by whole draws, a turn is a float of them; and rings are not listed beyond a limit."""
    result = history(4, 30)
    evidence_ = evidence(result)
    drawing = dense._Draws(evidence_)
    drawing.draw()
    assert drawing.turns(30) is not None
    drawing.drawn[3] = drawing.drawn[7] + np.uint64(1)
    assert drawing.turns(30) is None
    monkeypatch.setattr(dense, "MOST_NEAR", 20)
    order = np.array([[(a + b) % 9 for b in range(9)] for a in range(9)])
    grouping = Grouping(np.arange(30) % 9, 9, ClusterRanks(order))
    assert dense._all_rings(grouping, 0) is not None
    assert dense._all_rings(grouping, 2) is None


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


SCORES = st.one_of(
    st.sampled_from([0.0, -0.0, 1.0, -1.0, 1e-300, 5e-324, -5e-324, 1e300, -1e300, 0.1, 0.1 + 1e-16]),
    st.floats(allow_nan=False, allow_infinity=False),
)


@example([0.0, 0.0, 0.0, 0.0, -0.0], 2, 1)
@example([1.0, 2.0] * 60, 110, 1)
@given(st.lists(SCORES, min_size=1, max_size=80), st.integers(0, 80), st.integers(0, 2**32))
def test_it_selects_what_a_ranking_of_all_would(scores, k, seed):
    """The same rows in the same order as `top_k`, whatever the scores, with equal ties and large ones."""
    values = np.array(scores)
    rng = np.random.default_rng(seed)
    ties = rng.permutation(len(values)).astype(np.uint64)
    k = min(k, len(values))
    selection = BestRows(len(values))
    for few in (0, len(values) - 1, 100):  # its memory is used again
        with patch.object(dense, "FEW", few):
            chosen = selection.best(values, k, lambda rows: ties[rows])
        assert chosen.tolist() == top_k(values, ties, k).tolist()


NAMES = ("n", "X", "t", "sad", "near", "site_now", "spent", "random", "rate_site", "cluster_recent")
LEAVES = st.one_of(st.sampled_from(NAMES), st.sampled_from([0.0, 0.5, -3.0, 1e300]))


def _trees(inner):
    def of(name):
        return st.tuples(*[inner] * PRIMITIVES[name].arity).map(
            lambda parts: (name, *(token for part in parts for token in part))
        )

    return st.sampled_from(sorted(PRIMITIVES)).flatmap(of)


TREES = st.recursive(LEAVES.map(lambda leaf: (leaf,)), _trees, max_leaves=12)


@given(tokens=TREES, seed=st.integers(0, 2**32))
def test_the_parts_put_together_score_as_the_whole(tokens, seed):
    """Bit for bit."""
    function = functions.of_expression(Expression(tokens))
    parts_of_function = divided(function)
    rng = np.random.default_rng(seed)
    state = {name: rng.integers(0, 5, 7).astype(dtype) for name, dtype in terminals.STATE.items()}
    state |= {name: rng.random(7) for name in terminals.ROUND} | {"draw": rng.integers(0, 9, 7)}
    values = {
        name: parts_of_function.value(name, level, state, 9)
        for level, parts in parts_of_function.parts.items()
        for name in parts
    }
    out = np.empty(7)
    parts_of_function.finish(values, state, 9, out)
    assert out.tobytes() == function.scores(state, 9).tobytes()


TALLIES = {metric.tally for metric in METRICS.values() if metric.tally is not None}


@pytest.mark.parametrize("policy", ["top_k", "rounds(rounds=3)", "rounds(rounds=3, sample=0.3)"])
@pytest.mark.parametrize(
    "score",
    [
        "t * (X + 0.5) * near",
        "(t + spent) * X * size_lift",
        "p / near_dir - near_site",
        "random * surprise_dir",
    ],
)
def test_states_that_are_dropped_on_the_way_change_no_replay(score, policy):
    """All visits and all metrics are the same, however soon states without pages are dropped."""
    rng = np.random.default_rng(3)
    pages = 300
    names = [f"d{rng.integers(0, 9)}/{page}" for page in range(pages)]
    changed = rng.random((14, pages)) < rng.random(pages)
    site = rng.integers(0, 5, pages).astype(np.int32)
    history = ChangeHistory(changed, site, page_names=names, size=rng.integers(0, 9, pages))
    prepared = prepare(history, budget=0.2)
    replays = []
    for slack in (0, dense.SLACK):
        visits = []
        with patch.object(dense, "SLACK", slack):
            tallies = replay_dense(
                prepared,
                load(score),
                TALLIES,
                lambda cycle, pages, changed, to=visits: to.append((cycle, pages.tolist(), changed.tolist())),
                load_policy(policy),
            )
        replays.append((visits, {name: tallies[name].tolist() for name in TALLIES}))
    assert replays[0] == replays[1]


def test_it_counts_as_going_through_the_visits_does():
    """Cycle for cycle, within a cycle too; cycles before the window are left out."""
    rng = np.random.default_rng(1)
    tree = directories(rng.integers(0, 4, 12))
    finished = []

    def cycle_tallies(window, plain):
        for level in ("directory", "site"):
            for mine, other in ((window.window, plain.window), (window.this_cycle, plain.this_cycle)):
                for one, same in zip(mine(level), other(level), strict=True):
                    assert one.tolist() == same.tolist()

    window = GroupWindow(tree, finished)
    for cycle in range(1, 8):
        rows, changed = np.empty(0, np.intp), np.empty(0, np.bool_)
        for visits in (0, 30, 0, 7):
            drawn = rng.integers(0, 12, visits), rng.random(visits) < 0.5
            window.add(*drawn)
            rows, changed = np.append(rows, drawn[0]), np.append(changed, drawn[1])
            cycle_tallies(
                window,
                Related(tree, RecentVisits(cycle, finished, count_visits(rows, changed, None)), lambda: None),
            )
        finished = [count_visits(rows, changed, None), *finished]
        window.finish()
        cycle_tallies(window, Related(tree, RecentVisits(cycle, finished), lambda: None))
    cycle_tallies(GroupWindow(tree, finished), Related(tree, RecentVisits(cycle, finished), lambda: None))


class _Passing:
    """Evidence that must be gone through block by block, with a sample that may mislead: the first block."""

    def __init__(self, evidence, share):
        self.candidates, self.visits = evidence.candidates, evidence.visits
        self._share = share

    def sample(self):
        return next(self.candidates()), self._share


TEXTS = (
    "t * X", "t * near", "random", "t * rate_site * surprise_dir + spent", "size_lift", "-near",
    "near * near", "t * (X + 0.5) * near", "1e300 * X * (1e300 * near)", "log(t) - near / X",
    "(t + spent) * near * sqrt(surprise_site)", "random * X * surprise_site * near",
    "tests.scoring.test_functions.half_of_x",
)  # fmt: skip


@given(
    seed=st.integers(0, 2**32),
    scores=st.tuples(st.sampled_from(TEXTS), st.sampled_from(TEXTS)),
    ties=st.sampled_from(["random", "order"]),
    block_rows=st.integers(1, 30),
    k=st.integers(0, 40),
    share=st.sampled_from([0.0, 0.2, 1.0]),
)
def test_ranking_all_at_hand_is_ranking_in_passing(seed, scores, ties, block_rows, k, share):
    """Round for round, by one function and another: pages, scores and cut of a pass over the candidates."""
    rng = np.random.default_rng(seed)
    pages = 40
    history = ChangeHistory(
        changed=rng.random((6, pages)) < 0.3,
        site=rng.integers(0, 3, pages).astype(np.int32),
        page_names=[f"d{rng.integers(0, 4)}/{page}" for page in range(pages)],
        size=rng.integers(0, 4, pages),
    )
    prepared = prepare(history, budget=0.5, ties=ties, seed=seed % 100)
    with patch.object(dense, "BLOCK_ROWS", block_rows):
        evidence = ReplayEvidence(prepared, (*STATE, *ROUND))
        by_turns = [functions.load(score) for score in scores]
        for cycle, salt in zip(prepared.scored_cycles.tolist(), prepared.salts, strict=True):
            evidence.begin(cycle, salt)
            for number in range(5):
                scores_of = CycleScorer(by_turns[number // 2 % 2], cycle)
                one = best_candidates(scores_of, min(k, 10), evidence)
                other = best_candidates(scores_of, min(k, 10), _Passing(evidence, share))
                assert one.pages.tolist() == other.pages.tolist()
                assert one.scores.tobytes() == other.scores.tobytes()
                assert one.cut == other.cut
                evidence.visit(one, history.changed[cycle - 1, one.pages])
            evidence.observe()


def test_a_history_without_names_has_sites_alone():
    """Terminals of directories are refused by name, those of sites are known."""
    history = ChangeHistory(changed=np.eye(6, 40, dtype=bool), site=np.zeros(40, np.int32))
    prepared = prepare(history, budget=0.1)
    assert run(prepared, "t * near_site * surprise_site * rate_site").k == 4
    for name in ("near", "near_dir", "surprise_dir"):
        with pytest.raises(ScoreError, match=f"the terminal '{name}' needs the directories"):
            run(prepared, f"t * {name}")


def test_it_trusts_what_it_has_just_ranked_alone():
    """Not for a copy, for pages that were written to, or for those of a round before."""
    history = ChangeHistory(changed=np.eye(6, 40, dtype=bool), site=np.zeros(40, np.int32))
    prepared = prepare(history, budget=0.1)
    evidence = ReplayEvidence(prepared, ("last_cycle", "X"))
    scores_of = CycleScorer(functions.load("t * X"), 3)
    evidence.begin(3, prepared.salts[0])
    chosen = evidence.best(scores_of, 4)
    assert evidence.trusts(chosen)
    assert not evidence.trusts(chosen._replace(pages=chosen.pages[::-1]))
    chosen.pages.flags.writeable = True
    assert not evidence.trusts(chosen)
    chosen = evidence.best(scores_of, 4)
    evidence.visit(chosen, np.zeros(4, np.bool_))
    assert not evidence.trusts(chosen)
    assert not evidence.may_visit(chosen.pages).any()


def clustered(clusters: bool) -> ChangeHistory:
    """Six pages of three clusters, which go across directories."""
    changed = np.random.default_rng(3).random((9, 6)) < 0.4
    result = ChangeHistory(changed, np.zeros(6, np.int32), page_names=[f"{n // 3}/{n}" for n in range(6)])
    if clusters:
        nobody = np.empty(0, np.intp)
        result.neighbours.groups_by_content = PageGroups(
            np.array([0, 1, 2, 0, 1, 2], np.int32), np.zeros((3, 3), np.int32), Links(nobody, nobody, 6), ""
        )
    return result


def test_clusters_are_told_from_their_visits() -> None:
    """In plain Python, in every round of every cycle: the share so far, begun with that of three cycles."""
    cycle_tallies = clustered(clusters=True)
    prepared = prepare(cycle_tallies, budget=4, warmup=2)
    names = ("cluster_now", "cluster_recent")
    evidence = ReplayEvidence(prepared, ("last_cycle", *names))
    cluster = [0, 1, 2, 0, 1, 2]
    log = [
        (cycle, page, bool(cycle_tallies.changed[cycle - 1, page])) for cycle in (1, 2) for page in range(6)
    ]
    draws = np.random.default_rng(1)
    for cycle, salt in zip(prepared.scored_cycles.tolist(), prepared.salts, strict=True):
        evidence.begin(cycle, salt)
        pages = draws.permutation(6).astype(np.uint32)
        for part in (pages[:2], pages[2:4]):
            values = compute(names, evidence.rows(np.arange(6, dtype=np.uint32)).state, cycle)
            for page in range(6):
                visits_of_cluster = [visit for visit in log if cluster[visit[1]] == cluster[page]]
                before = [hit for when, _, hit in visits_of_cluster if cycle - 3 <= when < cycle]
                now = [hit for when, _, hit in visits_of_cluster if when == cycle]
                recent = (sum(before) + 0.1) / (len(before) + 1)
                assert values["cluster_recent"][page] == recent
                assert values["cluster_now"][page] == (sum(now) + recent) / (len(now) + 1)
            result = cycle_tallies.changed[cycle - 1, part]
            evidence.visit(Selection(part, np.zeros(2), None), result)
            log += [(cycle, page, hit) for page, hit in zip(part.tolist(), result.tolist(), strict=True)]
        evidence.observe()


def test_without_clusters_their_terminals_are_one_error() -> None:
    """With the command that makes them."""
    assert run(prepare(clustered(clusters=True), budget=2), "t * cluster_now").k == 2
    with pytest.raises(ScoreError, match=r"python -m training\.cluster"):
        run(prepare(clustered(clusters=False), budget=2), "t * cluster_recent")


STATE_PAGES = 60


def _as_bits(values):
    return values.astype(np.float64).tobytes()


@given(seed=st.integers(0, 2**32), slack=st.sampled_from([0, 4096]))
def test_pages_have_what_observing_each_by_itself_gives(seed, slack):
    """Whatever is visited: all columns are those of pages that are observed one by one."""
    rng = np.random.default_rng(seed)
    expected = terminals.new_state(STATE_PAGES)
    with patch.object(dense, "SLACK", slack):
        states = PageStates(terminals.new_state(1), np.zeros(STATE_PAGES, np.uint32))
        for cycle in range(1, 12):
            pages = rng.permutation(STATE_PAGES)[: rng.integers(0, STATE_PAGES)]
            changed = rng.random(len(pages)) < 0.4
            visited = {name: values[pages] for name, values in expected.items()}
            terminals.observe(visited, changed, cycle)
            for name, values in visited.items():
                expected[name][pages] = values
            states.observe(pages, changed, cycle)
            if cycle == 3:
                states["E"]  # kept for each page from now on
            for name, values in states.columns.items():
                assert _as_bits(values[states.number]) == _as_bits(expected[name])
            assert _as_bits(states["E"]) == _as_bits(expected["E"])
    assert _as_bits(states["X"]) == _as_bits(expected["X"])


def test_pages_in_equal_state_share_it():
    """Two ways to one state end in one; states without pages are dropped when they are many."""
    state = {name: values for name, values in terminals.new_state(1).items() if name in ("X", "last_cycle")}
    with patch.object(dense, "SLACK", 0):
        states = PageStates(state, np.zeros(4, np.uint32))
        states.observe(np.array([0, 1]), np.array([True, False]), 1)
        states.observe(np.array([0, 1]), np.array([False, True]), 2)
        assert states.number[0] == states.number[1]
        assert states.number[2] == states.number[3]
        for cycle in range(3, 30):
            states.observe(np.array([0, 1]), np.array([False, False]), cycle)
        assert states.states <= 6
