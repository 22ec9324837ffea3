"""Clusters by contents, links and copies, once or again in the course of a replay."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scrapy_gp4c.errors import HistoryError
from scrapy_gp4c.page_state.groupings import Links, PageGroups
from scrapy_gp4c.policies.base import Selection
from scrapy_gp4c.policies.table import load as load_policy
from scrapy_gp4c.scoring import functions
from scrapy_gp4c.scoring.terminals import compute
from tests.support.contents import contents_of, random_pages
from training.cluster import main
from training.clustering.clusters import (
    FEATURES,
    RecordedCycles,
    bisected,
    count_images,
    counted_words,
    group_pages,
    near_largest,
    nearest,
    read_groups,
    regrouping,
)
from training.evaluate import main as evaluate
from training.histories.contents import ContentHistory, read_contents
from training.histories.history import ChangeHistory
from training.histories.neighbours import Regrouping
from training.histories.reading import read_history
from training.replaying.dense import ReplayEvidence, replay_dense
from training.replaying.prepared import prepare
from training.replaying.replay import run


@given(st.lists(st.sampled_from(["![i](a.png)", "[x](a.md)", ".. image:: a.png", "text", ":doc:`a`"])))
def test_images_are_counted_in_both_formats(parts: list[str]) -> None:
    """Each once; links are none."""
    assert count_images("\n".join(parts)) == sum("image" in part or part[0] == "!" for part in parts)


@pytest.fixture
def contents(tmp_path: Path) -> Path:
    """Two sites of twelve pages: half of each on bread, half on stars; links within a site."""
    path = tmp_path / "contents.jsonl"
    lines = []
    for site in ("a.org", "b.com"):
        for number in range(12):
            topic = "bread flour yeast oven" if number % 2 else "star orbit comet moon"
            text = f"{topic} " * (5 + number) + f"[next](page{(number + 1) % 12}.md) ![i](i.png)"
            folder = "x/" if number < 3 else ""
            versions = {"0": text, str(1 + number % 5): text + " more"}
            lines.append({"site": site, "page": f"{folder}page{number}.md", "versions": versions})
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_pages_that_say_the_same_are_together(contents: Path) -> None:
    """By words alone; with the same seed the same clusters."""
    versions = read_contents(contents)
    groups = group_pages(versions, clusters=2, features=["content"])
    topic = np.array(
        [int(name.rpartition("page")[2].removesuffix(".md")) % 2 for name in versions.history.page_names]
    )
    assert len({*zip(groups.cluster.tolist(), topic.tolist(), strict=True)}) == 2
    again = group_pages(versions, clusters=2, features=["content"])
    assert np.array_equal(groups.cluster, again.cluster)
    assert groups.order.tolist() == [[0, 1], [1, 0]]


def test_equal_pages_are_one_cluster(tmp_path: Path) -> None:
    """More clusters than pages that differ: as many as do."""
    path = tmp_path / "contents.jsonl"
    path.write_text(
        "".join(
            json.dumps(
                {"site": "a", "page": f"{n}.md", "versions": {"0": "bread" if n % 2 else "star", "1": "x"}}
            )
            + "\n"
            for n in range(20)
        )
    )
    groups = group_pages(read_contents(path), clusters=20, features=["content"])
    assert len(groups.order) == 2
    assert sorted(groups.sizes.tolist()) == [10, 10]


def test_nearest_centroids_and_ranks() -> None:
    """Itself first, then by distance; a page's features are ranks of its cluster from the largest ones."""
    assert nearest(np.array([[0.0], [10.0], [4.0]])).tolist() == [[0, 2, 1], [1, 2, 0], [2, 0, 1]]
    label, centres = bisected(np.array([[0.0], [0.1], [9.0], [9.1]]), 2, seed=0)
    assert label[0] == label[1] != label[2] == label[3]
    assert sorted(centres.ravel().round(2).tolist()) == [0.05, 9.05]
    ranks = near_largest(counted_words(["bread oven"] * 20 + ["star orbit"] * 10), seed=0)
    assert ranks.shape == (30, 2)
    assert (ranks[:20, 0] == 0).all()
    assert (ranks[20:, 0] > 0).all()


def test_a_file_of_groups_is_of_its_pages(
    contents: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Written by the command, read by an evaluation; other pages and other files are refused."""
    out = tmp_path / "groups.npz"
    assert main([str(contents), "-o", str(out), "--clusters", "3"]) == 0
    assert "24 pages in 3 clusters" in capsys.readouterr().out
    policies = ["cb", "lb", "cb(phi='pra')", "gsb(level='cluster')", "all"]
    arguments = [str(contents), "--budget", "0.3", "--warmup", "1", "--score", "nad", "--policy"]
    assert evaluate([*arguments, *policies, "--groups", str(out)]) == 0
    assert evaluate([*arguments, "cb"]) == 2
    assert "python -m training.cluster" in capsys.readouterr().err
    other = tmp_path / "other.jsonl"
    other.write_text("".join(contents.read_text().splitlines(keepends=True)[1:]))
    with pytest.raises(HistoryError, match="groups of other pages"):
        read_groups(out, read_history(str(other)))
    with pytest.raises(HistoryError, match="is no file of groups"):
        read_groups(contents, read_history(str(contents)))


def test_what_cannot_be_clustered(
    contents: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One error each: too many clusters, unknown features, no scikit-learn."""
    for wrong, message in (
        (["--clusters", "25"], "from 1 to 24, the number of pages; found 25"),
        (
            ["--clusters", "2", "--features", "colour"],
            "expected some of content,url,page,links; found 'colour'",
        ),
    ):
        assert main([str(contents), "-o", "x.npz", *wrong]) == 2
        assert message in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "sklearn", None)
    assert main([str(contents), "-o", "x.npz", "--clusters", "2"]) == 2
    assert "pip install 'scrapy-gp4c[cluster]'" in capsys.readouterr().err


def test_texts_without_a_second_word_are_one_cluster() -> None:
    """Nothing to project on, and less than twenty pages: every page is at its own cluster."""
    assert near_largest(counted_words(["bread"] * 9), seed=3).tolist() == [[0.0]] * 9


def test_there_are_ten_columns_at_most() -> None:
    """One for each of the ten largest first clusters, ranks from 0 to one below their number."""
    ranks = near_largest(
        counted_words([f"word{number % 12} other{number % 7}" for number in range(130)]), seed=1
    )
    assert ranks.shape == (130, 10)
    assert set(np.unique(ranks)) <= set(range(13))
    nearest = (ranks == 0).sum(axis=1)
    assert set(nearest.tolist()) == {0, 1}  # three clusters are not among the ten largest
    assert (ranks == 0).any(axis=0).all()


@pytest.mark.parametrize("feature", FEATURES)
def test_each_feature_alone_makes_clusters(contents: Path, feature: str) -> None:
    """Every page is in one of them, and the links are told whatever the features."""
    versions = read_contents(contents)
    groups = group_pages(versions, clusters=4, features=[feature])
    assert set(groups.cluster.tolist()) <= set(range(4))
    assert groups.order.shape == (len(groups.sizes),) * 2
    assert groups.order[:, 0].tolist() == list(range(len(groups.sizes)))
    assert 2 <= len(groups.sizes) <= 4  # equal pages are one cluster
    assert len(groups.links.source) > 0
    names = versions.history.page_names
    for source, target in zip(groups.links.source.tolist(), groups.links.target.tolist(), strict=True):
        assert versions.history.site[source] == versions.history.site[target]
        assert names[target].rpartition("/")[2] != names[source].rpartition("/")[2]


def test_later_versions_do_not_look_ahead(contents: Path, tmp_path: Path) -> None:
    """Pages that say other things later are clustered as before."""
    later = tmp_path / "later.jsonl"
    later.write_text(contents.read_text().replace(" more", " comet comet comet bread"))
    one, other = (group_pages(read_contents(path), clusters=3) for path in (contents, later))
    assert np.array_equal(one.cluster, other.cluster)
    assert np.array_equal(one.links.target, other.links.target)


@pytest.mark.parametrize("features", [[], ["content", "colour"]])
def test_features_are_known_ones(contents: Path, features: list[str]) -> None:
    """None at all is no choice either."""
    with pytest.raises(HistoryError, match="--features: expected some of content,url,page,links"):
        group_pages(read_contents(contents), clusters=2, features=features)


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
    results: Visits = []
    replay_dense(
        prepare(history, budget=4, warmup=warmup, seed=1),
        functions.load(SCORE),
        (),
        lambda cycle, pages, _: results.append((cycle, pages.tolist())),
        load_policy(policy),
    )
    return results


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
        json.dumps({"site": "a", "page": f"{page % 2}/page{page}", "versions": versions_of_page})
        for page, versions_of_page in enumerate(versions)
    )
    path.write_text("".join(f"{line}\n" for line in lines))
    return read_contents(path)


@pytest.mark.slow
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
        {key: text for key, text in early.items() if int(key) <= first}
        | {key: text for key, text in other.items() if int(key) > first}
        for early, other in zip(ours, later, strict=True)
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
    later_texts = iter(made[1:])
    history.neighbours.regrouping = Regrouping(1, lambda copies: next(later_texts))
    prepared = prepare(history, budget=3, warmup=2)
    evidence = ReplayEvidence(prepared, ("last_cycle", "cluster_recent"))
    log = [(cycle, page, bool(history.changed[cycle - 1, page])) for cycle in (1, 2) for page in range(6)]
    for number, (cycle, salt) in enumerate(
        zip(prepared.scored_cycles.tolist(), prepared.salts, strict=True), 1
    ):
        evidence.begin(cycle, salt)
        cluster = numbers[number]
        result = compute(("cluster_recent",), evidence.rows(np.arange(6, dtype=np.uint32)).state, cycle)[
            "cluster_recent"
        ]
        for page in range(6):
            hits = [hit for when, other, hit in log if cycle - 3 <= when and cluster[other] == cluster[page]]
            assert result[page] == (sum(hits) + 0.1) / (len(hits) + 1)
        pages = rng.permutation(6)[:3].astype(np.uint32)
        outcomes = history.changed[cycle - 1, pages]
        evidence.visit(Selection(pages, np.zeros(3), None), outcomes)
        log += [(cycle, page, hit) for page, hit in zip(pages.tolist(), outcomes.tolist(), strict=True)]
        evidence.observe()


def test_copies_are_of_recorded_cycles(tmp_path: Path) -> None:
    """A history of every second cycle from the third on; groups as of the texts themselves; sites stay."""
    contents = contents_of(tmp_path, random_pages(1, 12, 9))
    copies = np.array([page % 4 for page in range(12)])
    result = RecordedCycles(1, 2).texts(contents, copies)
    assert result == [contents.texts_at(2 * (1 + cycle))[page] for page, cycle in enumerate(copies.tolist())]
    groups = regrouping(contents, 1, RecordedCycles(1, 2), clusters=3).group(copies)
    expected = group_pages(contents, 3, texts=result)
    assert np.array_equal(groups.cluster, expected.cluster)
    near = contents.history.neighbours
    near.groups_by_content = expected
    by_site = near.grouping("site")
    other = near.regrouped(groups)
    assert other.grouping("site") is by_site
    assert other.grouping("cluster") is not near.grouping("cluster")


@pytest.mark.slow
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
