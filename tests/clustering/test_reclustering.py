"""Clusters made anew in a replay: of the copies that a policy has fetched by then, and of nothing else."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scrapy_gp4c.page_state.groupings import Links, PageGroups
from scrapy_gp4c.policies.base import Selection
from scrapy_gp4c.policies.table import load as load_policy
from scrapy_gp4c.scoring import functions
from scrapy_gp4c.scoring.terminals import compute
from tests.support.contents import contents_of, random_pages
from training.clustering.clusters import FEATURES, RecordedCycles, group_pages, group_texts, regrouping
from training.histories.contents import ContentHistory, read_contents
from training.histories.history import ChangeHistory
from training.histories.neighbours import Regrouping
from training.replaying.dense import replay_dense
from training.replaying.evidence import ReplayEvidence
from training.replaying.prepared import prepare
from training.replaying.replay import run

PAGES, CYCLES = 8, 4
SCORE = "t * (X + 0.5) * cluster_now"
POLICIES = (
    "cb(in_flight=1)",
    "lb(in_flight=2)",
    "gsb(level='cluster')",
    "rounds(rounds=3, sample=0.4, level='cluster')",
)
WORDS = ("content",)
Visits = list[tuple[int, list[int]]]


def visits(history: ChangeHistory, policy: str, warmup: int = 0) -> Visits:
    """Cycle and pages of all visits, in their order."""
    found: Visits = []
    replay_dense(
        prepare(history, budget=4, warmup=warmup, seed=1),
        functions.load(SCORE),
        (),
        lambda cycle, pages, _: found.append((cycle, pages.tolist())),
        load_policy(policy),
    )
    return found


def reclustered(contents: ContentHistory, every_cycles: int) -> ChangeHistory:
    """Its history, with clusters made anew after so many cycles."""
    near = contents.history.neighbours
    near.groups_by_content = group_pages(contents, 3, WORDS)
    near.regrouping = regrouping(contents, every_cycles, clusters=3, features=WORDS)
    return contents.history


def texts(draw: np.random.Generator, changes: list[list[bool]]) -> list[dict[str, str]]:
    """Versions of pages that change so, ``[pages][cycles]``: a topic's words, and links."""
    return [
        {
            str(
                cycle
            ): f"{'bread' if draw.random() < 0.5 else 'star'} {draw.random()} [x](page{draw.integers(PAGES)})"
            for cycle, has_changed in enumerate([True, *row])
            if has_changed
        }
        for row in changes
    ]


def written(path: Path, versions: list[dict[str, str]]) -> ContentHistory:
    """Contents of so many pages of one site, in two directories."""
    lines = (
        json.dumps({"site": "a", "page": f"{page % 2}/page{page}", "versions": own})
        for page, own in enumerate(versions)
    )
    path.write_text("".join(f"{line}\n" for line in lines))
    return read_contents(path)


@settings(max_examples=10)
@given(
    data=st.data(),
    seed=st.integers(0, 10**6),
    first=st.integers(1, CYCLES - 1),
    every=st.integers(1, 2),
    policy=st.sampled_from(POLICIES),
)
def test_what_comes_later_alters_no_earlier_visit(
    tmp_path_factory: pytest.TempPathFactory,
    data: st.DataObject,
    seed: int,
    first: int,
    every: int,
    policy: str,
) -> None:
    """Two files that are equal up to a cycle: the visits up to the next are the same, whatever follows."""
    rows = st.lists(st.lists(st.booleans(), min_size=CYCLES, max_size=CYCLES), min_size=PAGES, max_size=PAGES)
    ours = texts(np.random.default_rng(seed), data.draw(rows))
    later = texts(np.random.default_rng(seed + 1), data.draw(rows))
    theirs = [
        {key: text for key, text in own.items() if int(key) <= first}
        | {key: text for key, text in other.items() if int(key) > first}
        for own, other in zip(ours, later, strict=True)
    ]
    for versions in (ours, theirs):
        versions[0][str(CYCLES)] = "the end"  # both files have all cycles
    folder = tmp_path_factory.mktemp("contents")
    one, other = (
        visits(reclustered(written(folder / name, versions), every), policy)
        for name, versions in (("ours", ours), ("theirs", theirs))
    )
    # A cycle's first round knows nothing of it: what it finds may differ from cycle first + 1 on.
    assert [pages for cycle, pages in one if cycle <= first] == [
        pages for cycle, pages in other if cycle <= first
    ]


def test_clusters_are_of_the_copies_that_were_fetched() -> None:
    """In plain Python: every two cycles, by each page's last visit; the warm-up is one."""
    rng = np.random.default_rng(2)
    history = ChangeHistory(
        rng.random((9, 8)) < 0.4, np.zeros(8, np.int32), page_names=[f"{n}" for n in range(8)]
    )
    nobody = np.empty(0, np.intp)
    asked: list[list[int]] = []

    def group(copies: np.ndarray) -> PageGroups:
        asked.append(copies.tolist())
        cluster = (np.arange(8) + len(asked)).astype(np.int32) % 2
        return PageGroups(cluster, np.array([[0, 1], [1, 0]], np.int32), Links(nobody, nobody, 8), "")

    history.neighbours.groups_by_content = group(np.zeros(8, np.int64))
    history.neighbours.regrouping = Regrouping(2, group)
    copies = [1] * 8
    expected = [[0] * 8]
    for cycle, pages in visits(history, "cb(in_flight=1)", warmup=1):
        for page in pages:
            copies[page] = cycle
        if cycle in (2, 4, 6, 8):
            expected.append([*copies])
    assert asked == expected


def test_recent_visits_are_counted_by_the_clusters_of_now() -> None:
    """`cluster_recent` of the new clusters, from the visits of three cycles, those of the warm-up too."""
    rng = np.random.default_rng(4)
    history = ChangeHistory(rng.random((8, 6)) < 0.5, np.zeros(6, np.int32))
    nobody, order = np.empty(0, np.intp), np.zeros((3, 3), np.int32)
    numbers = [rng.integers(0, 3, 6).astype(np.int32) for _ in range(9)]
    made = [PageGroups(cluster, order, Links(nobody, nobody, 6), "") for cluster in numbers]
    history.neighbours.groups_by_content = made[0]
    left = iter(made[1:])
    history.neighbours.regrouping = Regrouping(1, lambda copies: next(left))
    prepared = prepare(history, budget=3, warmup=2)
    evidence = ReplayEvidence(prepared, ("last_cycle", "cluster_recent"))
    log = [(cycle, page, bool(history.changed[cycle - 1, page])) for cycle in (1, 2) for page in range(6)]
    for number, (cycle, salt) in enumerate(
        zip(prepared.scored_cycles.tolist(), prepared.salts, strict=True), 1
    ):
        evidence.begin(cycle, salt)
        cluster = numbers[number]
        found = compute(("cluster_recent",), evidence.rows(np.arange(6, dtype=np.uint32)).state, cycle)[
            "cluster_recent"
        ]
        for page in range(6):
            hits = [hit for when, other, hit in log if cycle - 3 <= when and cluster[other] == cluster[page]]
            assert found[page] == (sum(hits) + 0.1) / (len(hits) + 1)
        pages = rng.permutation(6)[:3].astype(np.uint32)
        outcomes = history.changed[cycle - 1, pages]
        evidence.visit(Selection(pages, np.zeros(3), None), outcomes)
        log += [(cycle, page, hit) for page, hit in zip(pages.tolist(), outcomes.tolist(), strict=True)]
        evidence.observe()


def test_copies_are_of_recorded_cycles(tmp_path: Path) -> None:
    """A history of every second cycle from the third on; groups as of the texts themselves; sites stay."""
    contents = contents_of(tmp_path, random_pages(1, 12, 9))
    copies = np.array([page % 4 for page in range(12)])
    found = RecordedCycles(1, 2).texts(contents, copies)
    assert found == [contents.texts_at(2 * (1 + cycle))[page] for page, cycle in enumerate(copies.tolist())]
    groups = regrouping(contents, 1, RecordedCycles(1, 2), clusters=3).group(copies)
    expected = group_texts(contents, found, 3, FEATURES)
    assert np.array_equal(groups.cluster, expected.cluster)
    near = contents.history.neighbours
    near.groups_by_content = expected
    by_site = near.grouping("site")
    other = near.regrouped(groups)
    assert other.grouping("site") is by_site
    assert other.grouping("cluster") is not near.grouping("cluster")


def test_both_engines_and_a_late_first_time(tmp_path: Path) -> None:
    """Engines agree; clusters that are made anew after the end change nothing."""
    contents = contents_of(tmp_path, random_pages(5, 12, 6))
    history = reclustered(contents, 2)
    prepared = prepare(history, budget=4, warmup=1, seed=3)
    for policy in POLICIES[:3]:
        one, other = (run(prepared, "random", policy=policy, engine=engine) for engine in ("auto", "dense"))
        assert np.array_equal(one.change_rate, other.change_rate)
    history.neighbours.regrouping = None
    before = visits(history, POLICIES[0])
    history.neighbours.regrouping = regrouping(contents, 100, clusters=3)
    assert visits(history, POLICIES[0]) == before
