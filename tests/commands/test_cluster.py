"""``scrapy gp4c cluster`` and ``python -m training.cluster STORE``."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

from scrapy_gp4c.commands.project import Project
from scrapy_gp4c.errors import HistoryError, SettingsError, StoreError
from scrapy_gp4c.page_state.groupings import NOWHERE
from scrapy_gp4c.scoring.ranking import draws
from scrapy_gp4c.store.lmdb_store.store import Store
from scrapy_gp4c.store.records import NewVisit
from scrapy_gp4c.words.descriptions import describe, pack
from tests.commands.test_commands import in_process, make_project
from tests.support.schemas import checked
from training.cluster import main
from training.clustering.clusters import read_groups
from training.evaluate import main as evaluate
from training.histories.reading import read_history

PAGES = 40
KEYS = draws(np.arange(PAGES, dtype=np.uint64), 1, 1).tolist()


def url(page: int) -> str:
    return f"http://h.example/{page}"


def crawled(path: Path, described: int = PAGES, cycles: int = 5) -> None:
    """A store of a finished crawl: pages on two topics, a chain of links in each, changes by topic."""
    with Store(path) as store:
        store.add_pages((KEYS[page], {"url": url(page)}) for page in range(PAGES))
        for cycle in range(1, cycles + 1):
            store.begin_cycle({"started": 1.0})
            for page in range(PAGES):
                text = ("bread oven flour", "star moon orbit")[page % 2] * 3
                if page < described and cycle == 1:
                    links = [url((page + 2) % PAGES), "http://h.example/unknown"]
                    store.put_value("descriptions", page, pack(describe(text, links, page, 10 * page)))
                outcome = "first" if cycle == 1 else ("changed", "unchanged")[(page + cycle) % 2]
                store.record(NewVisit(page, outcome, float(cycle), "ranked", page + cycle))
            store.finish_cycle({"finished": 2.0})


@pytest.fixture
def project(project_directory: Path, store_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """The `news` spider with a store of a crawl."""
    crawled(store_path)
    return make_project(project_directory, store_path, monkeypatch)


@pytest.mark.slow
def test_topics_are_clusters_and_links_are_known(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    """As text, and as JSON of its schema; what there was is replaced."""
    in_process(project, "cluster", "--clusters", 2, "--features", "content")
    assert capsys.readouterr().out == (
        "40 pages in 2 clusters, 40 links between pages; 0 pages are in no cluster: sampled, never followed\n"
    )
    with project.open_store() as store:
        stored = store.clusters()
    assert stored is not None
    assert len({(number, page % 2) for page, number in enumerate(stored.groups.cluster.tolist())}) == 2
    links = zip(stored.groups.links.source.tolist(), stored.groups.links.target.tolist(), strict=True)
    assert set(links) == {(page, (page + 2) % PAGES) for page in range(PAGES)}
    in_process(project, "cluster", "--clusters", 3, "--features", "page,history", "--seed", 4, "--json")
    assert checked("cluster", capsys.readouterr().out) == {
        "pages": PAGES, "unclustered": 0, "clusters": 3, "links": PAGES,
    }  # fmt: skip
    with project.open_store() as store:
        again = store.clusters()
    assert again is not None
    assert again.groups.identity != stored.groups.identity


def test_what_cannot_be_clustered_so_is_one_line(project: Project) -> None:
    """With what would be accepted; the store stays as it was."""
    with pytest.raises(StoreError, match="--clusters: expected from 1 to 40, the number of pages; found 41"):
        in_process(project, "cluster", "--clusters", 41)
    with pytest.raises(
        StoreError, match="--features: expected some of content,url,page,links,history; found"
    ):
        in_process(project, "cluster", "--clusters", 5, "--features", "content,moods")
    with project.open_store() as store:
        assert store.clusters() is None


def test_without_scikit_learn_the_extra_is_named(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a machine that only crawls need not have it."""
    find = importlib.util.find_spec
    absent = "scrapy_gp4c.commands.learning.find_spec"
    monkeypatch.setattr(absent, lambda name: None if name == "sklearn" else find(name))
    with pytest.raises(SettingsError, match=r"sklearn,.*pip install 'scrapy-gp4c\[cluster\]'"):
        in_process(project, "cluster")


def test_while_a_cycle_is_open_nothing_is_clustered(project: Project) -> None:
    """Said before the work, not after it."""
    with project.open_store(readonly=False) as store:
        store.begin_cycle({"started": 1.0})
    with pytest.raises(StoreError, match=r"cycle 6 of the store .* is not finished"):
        in_process(project, "cluster")


def test_a_store_without_descriptions_says_how_to_get_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The policy that asks for clusters keeps them."""
    crawled(tmp_path / "store", described=0, cycles=2)
    assert main([str(tmp_path / "store"), "-o", str(tmp_path / "groups.npz")]) == 2
    assert "has no descriptions of copies to cluster by: a crawl keeps them if" in capsys.readouterr().err
    with Store(tmp_path / "store") as store:
        store.put_value("descriptions", 3, b"nonsense, but of the right table")
    assert main([str(tmp_path / "store"), "-o", str(tmp_path / "groups.npz")]) == 2
    assert "has a description that cannot be read" in capsys.readouterr().err


def test_groups_of_a_store_serve_replays_of_its_history(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By the keys of pages, whose order in a history is another; of another store's pages there are none."""
    store, groups = tmp_path / "store", tmp_path / "groups.npz"
    crawled(store, described=PAGES - 5)
    command = ["--clusters", "2", "--features", "content", "-o", str(groups)]
    assert main([str(store), *command]) == 0
    assert "5 pages have no description, and no cluster" in capsys.readouterr().out
    history = read_history(store)
    groups_of_store = read_groups(groups, history)
    number = [int(name.rpartition("/")[2]) for name in history.page_names or ()]
    assert number != sorted(number)
    assert [
        page for page, one in zip(number, groups_of_store.cluster.tolist(), strict=True) if one == NOWHERE
    ] == [page for page in number if page >= PAGES - 5]
    expected = {
        (page % 2, one)
        for page, one in zip(number, groups_of_store.cluster.tolist(), strict=True)
        if one != NOWHERE
    }
    assert len(expected) == 2
    for source, target in zip(
        groups_of_store.links.source.tolist(), groups_of_store.links.target.tolist(), strict=True
    ):
        assert (number[source] + 2) % PAGES == number[target]
    arguments = [str(store), "--budget", "0.3", "--warmup", "1", "--groups", str(groups)]
    assert evaluate([*arguments, "--policy", "cb(in_flight=2)", "gsb(level='cluster')", "lb"]) == 0
    crawled(tmp_path / "other")
    with Store(tmp_path / "other") as opened_store:
        assert opened_store.pages == PAGES
    other = read_history(tmp_path / "other")
    foreign = type(other)(
        other.changed, other.site, page_names=other.page_names, key=other.key + np.uint64(1)
    )
    with pytest.raises(HistoryError, match="groups of another store's pages"):
        read_groups(groups, foreign)
