"""Descriptions of copies and clusters of pages in a store: whole or not at all, gone with their pages."""

import signal
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from scrapy_gp4c.errors import StoreDamagedError, StoreError
from scrapy_gp4c.page_state.groupings import Links, PageGroups
from scrapy_gp4c.store.lmdb_store.forget import forget
from scrapy_gp4c.store.lmdb_store.recover import recover
from scrapy_gp4c.store.lmdb_store.store import Store
from scrapy_gp4c.store.lmdb_store.tables import USUAL
from scrapy_gp4c.store.lmdb_store.verify import check
from scrapy_gp4c.store.records import StoredGroups
from tests.store.test_store_kill import in_child, key, kill_at, wait

PAGES, CLUSTERS = 50, 4


def some_groups(seed: int = 1) -> StoredGroups:
    """Clusters and links at random."""
    rng = np.random.default_rng(seed)
    order = np.array([rng.permutation(CLUSTERS) for _ in range(CLUSTERS)], np.int32)
    links = Links(rng.integers(0, PAGES, 80), rng.integers(0, PAGES, 80), PAGES)
    groups = PageGroups(rng.integers(-1, CLUSTERS, PAGES).astype(np.int32), order, links, f"groups {seed}")
    return StoredGroups(
        groups, rng.integers(0, 11, PAGES).astype(np.uint8), {"features": "content", "seed": seed}
    )


def same(one: StoredGroups | None, other: StoredGroups) -> bool:
    """Tell whether two are equal in all that is kept."""
    return (
        one is not None
        and all(
            np.array_equal(first, second)
            for first, second in (
                (one.groups.cluster, other.groups.cluster),
                (one.groups.order, other.groups.order),
                (one.groups.links.source, other.groups.links.source),
                (one.groups.links.target, other.groups.links.target),
                (one.popularity, other.popularity),
            )
        )
        and (one.groups.identity, one.origin) == (other.groups.identity, other.origin)
    )


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A store of some pages, every second one described."""
    with Store(tmp_path / "store") as store:
        store.add_pages((key(page), {"url": f"http://h/{page}"}) for page in range(PAGES))
        for page in range(0, PAGES, 2):
            store.set_description(page, bytes([page]) * 20)
    return tmp_path / "store"


def test_clusters_are_read_as_they_were_written(path: Path) -> None:
    """New clusters replace the ones before."""
    with Store(path) as store:
        assert store.clusters() is None
        for seed in (1, 2):
            store.put_clusters(some_groups(seed))
    with Store(path, readonly=True) as store:
        assert same(store.clusters(), some_groups(2))
        assert store.verify() == []
    assert check(path) == []


def test_clusters_change_in_one_transaction(path: Path) -> None:
    """Killed before its commit, the store has those before; after it, the new ones."""
    with Store(path) as store:
        store.put_clusters(some_groups(1))

    def work(after_commit: bool) -> None:
        with kill_at(1, after_commit), Store(path) as store:
            store.put_clusters(some_groups(2))

    for after_commit, seed in ((False, 1), (True, 2)):
        assert wait(in_child(partial(work, after_commit))) == -signal.SIGKILL
        with Store(path, readonly=True) as store:
            assert same(store.clusters(), some_groups(seed))


def test_a_cycle_keeps_the_clusters_that_it_was_begun_with(path: Path) -> None:
    """What its later rounds choose follows from them, also after a kill."""
    with Store(path) as store:
        store.begin_cycle({"started": 1.0})
        with pytest.raises(StoreError, match=r"cycle 1 .* is not finished.*run the spider"):
            store.put_clusters(some_groups())
        store.finish_cycle({"finished": 2.0})
        store.put_clusters(some_groups())
        assert same(store.clusters(), some_groups())


def test_descriptions_are_committed_with_what_else_is_buffered(path: Path) -> None:
    """And replaced by the next one."""
    with Store(path) as store:
        assert [store.has_description(page) for page in (0, 1)] == [True, False]
        store.set_description(0, b"new")
        assert dict(store.descriptions())[0] == bytes(20), "not yet committed"
        store.commit()
        descriptions = dict(store.descriptions())
        assert descriptions[0] == b"new"
        assert sorted(descriptions) == list(range(0, PAGES, 2))


def test_pages_that_are_forgotten_take_their_descriptions_along(path: Path) -> None:
    """Clusters go: their numbers are by page. They are made anew of what is left."""
    with Store(path) as store:
        store.put_clusters(some_groups())
    gone = np.arange(PAGES) < 10
    assert forget(path, USUAL, lambda store: gone) == 10
    with Store(path, readonly=True) as store:
        assert store.clusters() is None
        assert dict(store.descriptions()) == {page - 10: bytes([page]) * 20 for page in range(10, PAGES, 2)}


def test_damaged_clusters_are_told_and_left_out_by_a_repair(path: Path) -> None:
    """The pages stay, with their descriptions."""
    with Store(path) as store:
        store.put_clusters(some_groups())
        with store.transaction(write=True) as txn:
            txn.put(b"all", b"altered by nobody", db=store.db["clusters"].handle)
        with pytest.raises(StoreDamagedError, match="clusters all: its checksum is another"):
            store.clusters()
    damaged = "what pages are in which cluster, and how they are linked"
    assert check(path) == [f"clusters: all: {damaged} is damaged"]
    lost = recover(path, USUAL, lambda stored: int(stored["url"].rpartition("/")[2])).lost
    assert [one.partition(" values of ")[2] for one in lost] == [f"clusters: {damaged}"]
    with Store(path, readonly=True) as store:
        assert store.clusters() is None
        assert len(dict(store.descriptions())) == PAGES // 2
