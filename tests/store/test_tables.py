"""Weights and sizes of pages in a store: by an oracle, through kills, an export, a repair and `forget`."""

import math
import random
import shutil
import signal
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scrapy_gp4c.errors import ImportFileError, StoreDamagedError, StoreError
from scrapy_gp4c.page_state.groupings import Links, PageGroups
from scrapy_gp4c.scoring import hints, refresh_value
from scrapy_gp4c.scoring.refresh_value import GAIN
from scrapy_gp4c.scoring.sizes import size_class
from scrapy_gp4c.store import export
from scrapy_gp4c.store.history_fields import read_header
from scrapy_gp4c.store.lmdb_store.environment import U32
from scrapy_gp4c.store.lmdb_store.forget import forget
from scrapy_gp4c.store.lmdb_store.recover import recover
from scrapy_gp4c.store.lmdb_store.store import Store
from scrapy_gp4c.store.lmdb_store.tables import GAINS, REFRESH_VALUES, USUAL
from scrapy_gp4c.store.lmdb_store.verify import check
from scrapy_gp4c.store.opening import SEARCH_INDEX, import_history, open_store
from scrapy_gp4c.store.records import NewVisit, StoredGroups, StoredRequest
from tests.replaying.test_growth import Rumours
from tests.store.test_import_history import to_page
from tests.store.test_store_kill import in_child, key, kill_at, wait
from tests.support.claims import Oracle
from tests.support.growing import SMALL, crawl, random_web

PAGES = 11
WEIGHTS = st.floats(0, 1e6)


def filled(path: Path) -> list[float]:
    """A store with weights of its own in two of its three blocks, one cycle, and an open one; the weights."""
    expected = [1.0] * PAGES
    with Store(path, sizes=SMALL) as store:
        store.add_pages(to_page({"url": f"http://h/{page}"}) for page in range(PAGES))
        store.put_weights(np.array([0, 9, 10]), np.array([0.1, 0.0, 2.0]))
        store.begin_cycle({"started": 1.0})
        store.note(1, "weight", 3.5)
        for page in range(PAGES):
            store.record(NewVisit(page, "first", 2.0, fingerprint=page + 1, bytes=2**page))
        store.finish_cycle({"visited": PAGES})
    expected[0], expected[1], expected[9], expected[10] = 0.1, 3.5, 0.0, 2.0
    return expected


def weights_of(path: Path) -> list[float]:
    """Weights of all pages by the columns, which are those that the store tells page by page; sizes hold."""
    with open_store(path, readonly=True) as store:
        result = np.concatenate([block["weight"] for _, block in store.blocks()]).tolist()
        assert result == [store.weight(page) for page in range(store.pages)]
        keys, size = np.array([(page.key, page.size) for page in map(store.page, range(store.pages))]).T
        assert size.tolist() == size_class(2 ** (keys - 1)).tolist()
        ids = np.arange(0, store.pages, 2, dtype=np.uint32)
        assert store.columns_of(ids)["weight"].tolist() == result[::2]
        assert store.verify() == []
    return result


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("note"), st.integers(0, PAGES + 2), WEIGHTS),
            st.tuples(st.just("put"), st.integers(0, PAGES - 1), WEIGHTS),
            st.tuples(st.sampled_from(["reopen", "begin", "finish", "add"]), st.none(), st.none()),
        ),
        max_size=25,
    )
)
def test_the_newest_weight_wins(steps: list[tuple[str, int | None, float | None]]) -> None:
    """Noted in a cycle or put outside of one, reopened at any moment; columns follow with the fold."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "store")
        store = Store(path, sizes=SMALL)
        store.add_pages(to_page({"url": f"http://h/{page}"}) for page in range(PAGES))
        expected = [1.0] * PAGES
        folded = list(expected)
        for what, page, weight in steps:
            if what == "reopen":
                store.close()
                store = Store(path, sizes=SMALL)
            elif what == "begin" and store.open_cycle is None:
                store.begin_cycle({"started": 1.0})
            elif what == "finish" and store.open_cycle is not None:
                store.finish_cycle({})
                folded = list(expected)
            elif what == "add" and store.open_cycle is not None:
                store.add_page(len(expected) + 1, {"url": f"http://h/{len(expected)}"})
                expected.append(1.0)
            elif page is not None and page < len(expected) and weight is not None:
                if what == "put":
                    store.put_weights(np.array([page, page]), np.array([3.0, weight]))
                elif store.open_cycle is not None:
                    store.note(page, "weight", weight)
                else:
                    continue
                expected[page] = weight
                if store.open_cycle is None:
                    folded = list(expected)
            assert [store.weight(one) for one in range(len(expected))] == expected
            columns = np.concatenate([block["weight"] for _, block in store.blocks()]).tolist()
            assert columns == folded[: len(columns)]
        assert store.verify() == []
        store.close()


def test_pages_of_usual_weight_take_no_room(tmp_path: Path) -> None:
    """A block has a value as long as any of its pages has another weight."""
    filled(tmp_path / "s")
    with Store(tmp_path / "s", sizes=SMALL) as store:
        table = store.db["weights"]
        with store.transaction() as txn:
            assert [U32.unpack(key)[0] for key in table.keys(txn)] == [0, 2]
        store.put_weights(np.array([9, 10]), np.array([1.0, 1.0]))
        with store.transaction() as txn:
            assert [U32.unpack(key)[0] for key in table.keys(txn)] == [0]


@pytest.mark.parametrize("batch", [3, 1_000])
def test_an_export_keeps_weights(batch: int, tmp_path: Path) -> None:
    """Bit for bit; lines of pages that weigh 1 say nothing."""
    expected = filled(tmp_path / "s")
    with Store(tmp_path / "s", readonly=True) as store:
        lines = list(export.lines(store, matrix_bytes=100))
    assert sum('"weight"' in line for line in lines) == 4
    assert sum('"size"' in line for line in lines) == PAGES
    import_history(tmp_path / "t", "x", enumerate(lines, 1), to_page, pages_per_batch=batch)
    assert weights_of(tmp_path / "t") == expected


def test_forgetting_pages_keeps_the_weights_of_the_others(tmp_path: Path) -> None:
    """Whose numbers close up."""
    expected = filled(tmp_path / "s")
    assert forget(tmp_path / "s", SMALL, lambda store: np.isin(np.arange(PAGES), (1, 4, 9))) == 3
    assert weights_of(tmp_path / "s") == [expected[page] for page in (0, 2, 3, 5, 6, 7, 8, 10)]


def test_a_repair_keeps_weights(tmp_path: Path) -> None:
    """A sound store keeps all weights; one that lost the request of a page keeps those of the others."""
    expected = filled(tmp_path / "s")
    with Store(tmp_path / "s", sizes=SMALL) as store:
        store.begin_cycle({"started": 5.0})
        store.note(10, "weight", 8.0)
        store.commit()
        store.check_writable()
        with store.transaction(write=True) as txn:
            store.db["urls"].delete(txn, U32.pack(2))
    done = recover(tmp_path / "s", SMALL, lambda request: to_page(request)[0])
    assert [lost for lost in done.lost if "weight" in lost] == []
    with Store(tmp_path / "s", sizes=SMALL) as store:
        assert store.weight(9) == 8.0
        assert store.open_cycle is None  # ended, as ids of pages have changed
    assert weights_of(tmp_path / "s") == [expected[0], expected[1], *expected[3:10], 8.0]


def test_a_lost_block_of_weights_is_counted(tmp_path: Path) -> None:
    """Its pages weigh 1 until somebody says otherwise."""
    expected = filled(tmp_path / "s")
    with Store(tmp_path / "s", sizes=SMALL) as store, store.transaction(write=True) as txn:
        handle = store.db["weights"].handle
        value = bytearray(txn.get(U32.pack(2), db=handle))
        value[3] ^= 1
        txn.put(U32.pack(2), bytes(value), db=handle)
    assert "weights: pages 8 to 10: the weights of a block of pages is damaged" in check(tmp_path / "s")
    done = recover(tmp_path / "s", SMALL, lambda request: to_page(request)[0])
    assert done.lost == ["1 of 2 values of weights: the weights of a block of pages"]
    assert weights_of(tmp_path / "s") == [*expected[:8], 1.0, 1.0, 1.0]


@pytest.mark.parametrize(
    ("block", "weights", "said"),
    [
        (0, [1.0, math.nan], "a page of block 0 has an invalid weight"),
        (2, [-1.0], "a page of block 2 has an invalid weight"),
        (2, [2.0] * 4, "there are weights for 4 pages of block 2 that do not exist"),
        (7, [2.0], "there are weights for 1 page of block 7 that do not exist"),
    ],
)
def test_weights_that_cannot_be_are_found(
    block: int, weights: list[float], said: str, tmp_path: Path
) -> None:
    """Values with the right checksum that fit no page."""
    filled(tmp_path / "s")
    with Store(tmp_path / "s", sizes=SMALL) as store:
        with store.transaction(write=True) as txn:
            store.db["weights"].put(txn, U32.pack(block), np.array(weights).tobytes())
        assert store.verify() == [said]


BUDGET = {"GP4C_BUDGET": 0.4}


def crawled_with_claims(path: Path, seed: int) -> None:
    """A store of a crawl that heard rumours, and was told something after its last cycle."""
    crawl(path, random_web(seed), dict(BUDGET), during=Rumours(seed))
    with Store(path) as store:
        store.claim_changes(np.array([1, 5]), 2e9)


@pytest.fixture(scope="module")
def claims_of_seven(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One such store, which is not written to."""
    path = tmp_path_factory.mktemp("claims") / "s"
    crawled_with_claims(path, 7)
    return path


@pytest.fixture
def with_claims(claims_of_seven: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return Path(shutil.copytree(claims_of_seven, tmp_path / "s"))


def claimed_content(path: Path) -> tuple[dict[str, list[float]], list[tuple[int, bytes]], bytes]:
    """Columns of claims, claims, and counts of sites."""
    with open_store(path, readonly=True) as store:
        blocks = [block for _, block in store.blocks()]
        columns = {name: np.concatenate([block[name] for block in blocks]).tolist() for name in hints.COLUMNS}
        claims: dict[int, list[np.ndarray]] = {}
        for cycle, rows in store.claims_of_cycles(0):
            claims.setdefault(cycle, []).append(rows)
        sorted_claims = [
            (cycle, np.sort(np.concatenate(parts), order=("page", "kind", "value")).tobytes())
            for cycle, parts in sorted(claims.items())
        ]
        return columns, sorted_claims, store.trust().tobytes()


@pytest.mark.parametrize("seed", range(2))
def test_columns_and_counts_are_those_of_an_oracle(seed: int, tmp_path: Path) -> None:
    """Visit by visit and claim by claim."""
    crawled_with_claims(tmp_path / "s", seed)
    with Store(tmp_path / "s") as store:
        Oracle.of(store).agrees(store)
        assert store.verify() == []
        assert len(store.trust()) == 3


def numbered_page(request: StoredRequest) -> tuple[int, StoredRequest]:
    """A page's key by its URL, as `random_web` has it."""
    return int(request["url"].rpartition("/")[2].removesuffix(".html")) + 1, request


@pytest.mark.parametrize("batch", [3, 1_000])
def test_an_export_keeps_all_of_it(batch: int, claims_of_seven: Path, tmp_path: Path) -> None:
    """Columns, claims and counts of the store that is restored from it are the same, bit by bit."""
    with Store(claims_of_seven, readonly=True) as store:
        lines = list(export.lines(store, matrix_bytes=100))
    import_history(tmp_path / "t", "x", enumerate(lines, 1), numbered_page, pages_per_batch=batch)
    assert claimed_content(claims_of_seven) == claimed_content(tmp_path / "t")
    with Store(tmp_path / "t") as store:
        assert store.verify() == []


def test_a_repair_keeps_all_of_it(with_claims: Path) -> None:
    """A sound store keeps all claims."""
    before = claimed_content(with_claims)
    done = recover(with_claims, SMALL, lambda request: numbered_page(request)[0])
    assert done.lost == []
    assert claimed_content(with_claims) == before


def test_old_claims_go_with_old_visits(with_claims: Path) -> None:
    """Columns and counts that old claims have changed stay as they are."""
    columns, claims, trust = claimed_content(with_claims)
    with Store(with_claims) as store:
        store.keep_visits(2)
        last = store.last_cycle
        assert store.verify() == []
    after = claimed_content(with_claims)
    assert (after[0], after[2]) == (columns, trust)
    assert after[1] == [one for one in claims if one[0] > last - 2]


@pytest.mark.parametrize("table", ["hints", "trust", "claims"])
def test_what_was_altered_is_found(table: str, with_claims: Path) -> None:
    """A value with the right checksum that does not fit visits and claims is told by a deep look."""
    with Store(with_claims, sizes=USUAL) as store:
        handle = store.db[table]
        with store.transaction(write=True) as txn:
            key, value = next((key, bytes(value)) for key, value in handle.items(txn) if len(value) > 9)
            if table == "claims":
                handle.delete(txn, key)
            else:
                altered = bytearray(value)
                altered[0 if table == "hints" else 12] ^= 1
                handle.put(txn, key, bytes(altered))
    assert check(with_claims, deep=True)


DESCRIBED, CLUSTERS = 50, 4


def some_groups(seed: int = 1) -> StoredGroups:
    """Clusters and links at random."""
    rng = np.random.default_rng(seed)
    order = np.array([rng.permutation(CLUSTERS) for _ in range(CLUSTERS)], np.int32)
    links = Links(rng.integers(0, DESCRIBED, 80), rng.integers(0, DESCRIBED, 80), DESCRIBED)
    groups = PageGroups(
        rng.integers(-1, CLUSTERS, DESCRIBED).astype(np.int32), order, links, f"groups {seed}"
    )
    return StoredGroups(groups, rng.integers(0, 11, DESCRIBED).astype(np.uint8))


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
        and one.groups.identity == other.groups.identity
    )


@pytest.fixture
def described(tmp_path: Path) -> Path:
    """A store of some pages, every second one described."""
    with Store(tmp_path / "store") as store:
        store.add_pages((key(page), {"url": f"http://h/{page}"}) for page in range(DESCRIBED))
        for page in range(0, DESCRIBED, 2):
            store.put_value("descriptions", page, bytes([page]) * 20)
    return tmp_path / "store"


def test_clusters_are_read_as_they_were_written(described: Path) -> None:
    """New clusters replace the ones before."""
    with Store(described) as store:
        assert store.clusters() is None
        for seed in (1, 2):
            store.put_clusters(some_groups(seed))
    with Store(described, readonly=True) as store:
        assert same(store.clusters(), some_groups(2))
        assert store.verify() == []
    assert check(described) == []


def test_clusters_change_in_one_transaction(described: Path) -> None:
    """Killed before its commit, the store has those before; after it, the new ones."""
    with Store(described) as store:
        store.put_clusters(some_groups(1))

    def work(after_commit: bool) -> None:
        with kill_at(1, after_commit), Store(described) as store:
            store.put_clusters(some_groups(2))

    for after_commit, seed in ((False, 1), (True, 2)):
        assert wait(in_child(partial(work, after_commit))) == -signal.SIGKILL
        with Store(described, readonly=True) as store:
            assert same(store.clusters(), some_groups(seed))


def test_a_cycle_keeps_the_clusters_that_it_was_begun_with(described: Path) -> None:
    """What its later rounds choose follows from them, also after a kill."""
    with Store(described) as store:
        store.begin_cycle({"started": 1.0})
        with pytest.raises(StoreError, match=r"cycle 1 .* is not finished.*run the spider"):
            store.put_clusters(some_groups())
        store.finish_cycle({"finished": 2.0})
        store.put_clusters(some_groups())
        assert same(store.clusters(), some_groups())


def test_descriptions_are_committed_with_what_else_is_buffered(described: Path) -> None:
    """And replaced by the next one."""
    with Store(described) as store:
        assert [store.value("descriptions", page) is not None for page in (0, 1)] == [True, False]
        store.put_value("descriptions", 0, b"new")
        assert dict(store.descriptions())[0] == bytes(20), "not yet committed"
        store.commit()
        descriptions = dict(store.descriptions())
        assert descriptions[0] == b"new"
        assert sorted(descriptions) == list(range(0, DESCRIBED, 2))


def test_pages_that_are_forgotten_take_their_descriptions_along(described: Path) -> None:
    """Clusters go: their numbers are by page. They are made anew of what is left."""
    with Store(described) as store:
        store.put_clusters(some_groups())
    gone = np.arange(DESCRIBED) < 10
    assert forget(described, USUAL, lambda store: gone) == 10
    with Store(described, readonly=True) as store:
        assert store.clusters() is None
        assert dict(store.descriptions()) == {
            page - 10: bytes([page]) * 20 for page in range(10, DESCRIBED, 2)
        }


def test_damaged_clusters_are_told_and_left_out_by_a_repair(described: Path) -> None:
    """The pages stay, with their descriptions."""
    with Store(described) as store:
        store.put_clusters(some_groups())
        with store.transaction(write=True) as txn:
            txn.put(b"all", b"altered by nobody", db=store.db["clusters"].handle)
        with pytest.raises(StoreDamagedError, match="clusters all: its checksum is another"):
            store.clusters()
    damaged = "what pages are in which cluster, and how they are linked"
    assert check(described) == [f"clusters: all: {damaged} is damaged"]
    lost = recover(described, USUAL, lambda stored: int(stored["url"].rpartition("/")[2])).lost
    assert [one.partition(" values of ")[2] for one in lost] == [f"clusters: {damaged}"]
    with Store(described, readonly=True) as store:
        assert store.clusters() is None
        assert len(dict(store.descriptions())) == DESCRIBED // 2


MEASURED, CYCLES = 11, 6


def gains_of(cycle: int, last_cycle: dict[int, int]) -> np.ndarray:
    """What the visits of a cycle gain: every page but each third, some nothing."""
    rows = [
        (page, cycle - last_cycle[page] if page in last_cycle else 0, np.float32(page * cycle % 4) / 3)
        for page in visited_in(cycle)
        if page % 3
    ]
    return np.array(rows, GAIN)


def visited_in(cycle: int) -> list[int]:
    """Pages of a cycle: all in the first, then some."""
    return [page for page in range(MEASURED) if cycle == 1 or (page + cycle) % 3 < 2]


def measured_crawl(store: Store, cycles: int = CYCLES) -> None:
    """Run, or go on with, some cycles."""
    if not store.pages:
        store.add_pages((n + 1, {"url": f"http://h/{n}"}) for n in range(MEASURED))
    store.set_gains_log("a log")
    while store.last_cycle < cycles:
        cycle = store.open_cycle or store.begin_cycle({"started": 1.0})
        last_cycle = {
            page: store.page(page).last_cycle for page in range(MEASURED) if store.page(page).has_copy
        }
        for page in visited_in(cycle):
            if not store.visited(page):
                outcome = "changed" if page in last_cycle else "first"
                store.record(NewVisit(page, outcome, 1.0, fingerprint=cycle))
        store.commit()
        store.put_gains(gains_of(cycle, last_cycle))
        store.finish_cycle({"finished": 2.0})


def content_of(measured: Path) -> dict[str, bytes]:
    """Gains by visit and by page."""
    with Store(measured, sizes=SMALL) as store:
        assert store.verify() == []
        result = {
            name: b"".join(block[name].tobytes() for _, block in store.blocks())
            for name in refresh_value.COLUMNS
        }
        return result | {str(cycle): gains.tobytes() for cycle, gains in store.gains_of_cycles()}


@pytest.fixture
def measured(tmp_path: Path) -> Path:
    """A store whose measured_crawl is over."""
    with Store(tmp_path / "store", sizes=SMALL) as store:
        measured_crawl(store)
    return tmp_path / "store"


def test_columns_are_what_the_visits_of_each_page_gained(measured: Path) -> None:
    """The mean per cycle waited, the last and the recent ones; the first fetch counts for nothing."""
    gained: dict[int, list[tuple[float, int]]] = {}
    with Store(measured, readonly=True) as store:
        for _, gains in store.gains_of_cycles():
            for page, gap, ppm in gains.tolist():
                gained.setdefault(page, []).append((ppm, gap))
        blocks = list(store.blocks())
        some = store.columns_of(np.array([1, 5, 9], np.uint32))
    columns = {name: np.concatenate([block[name] for _, block in blocks]) for name in refresh_value.COLUMNS}
    assert {name: some[name].tolist() for name in refresh_value.COLUMNS} == {
        name: column[[1, 5, 9]].tolist() for name, column in columns.items()
    }
    for page in range(MEASURED):
        per_cycle = [ppm / gap for ppm, gap in gained.get(page, ()) if gap]
        assert columns["dq_n"][page] == len(per_cycle)
        assert columns["dq_sum"][page] == pytest.approx(sum(per_cycle))
        assert columns["dq_last"][page] == (per_cycle[-1] if per_cycle else 0.0)
        faded = sum(x * 2 ** (-age / refresh_value.HALF_LIFE) for age, x in enumerate(reversed(per_cycle)))
        assert columns["dq_recent"][page] == pytest.approx(faded)
    assert any(gap > 1 for pairs in gained.values() for _, gap in pairs)


def test_a_store_that_measures_nothing_has_no_such_columns(tmp_path: Path) -> None:
    """No log, no table, no column."""
    with Store(tmp_path / "store", sizes=SMALL) as store:
        store.add_pages([(1, {"url": "http://h/"})])
        store.begin_cycle({})
        store.record(NewVisit(0, "first", 1.0))
        store.finish_cycle({})
        assert store.gains_log() is None
        assert not refresh_value.COLUMNS.keys() & dict(store.blocks())[0].keys()
        assert not refresh_value.COLUMNS.keys() & store.columns_of(np.zeros(1, np.uint32)).keys()
        assert list(store.gains_of_cycles()) == []


def test_a_crawl_killed_in_any_transaction_gains_what_it_would_have(tmp_path: Path, measured: Path) -> None:
    """Before and in the fold, before and after a commit: no gain is lost, none counts twice."""
    expected, killed, kills = content_of(measured), tmp_path / "killed", 0
    numbers = random.Random(7)

    def work(transactions: int, after_commit: bool) -> None:
        with kill_at(transactions, after_commit), Store(killed, sizes=SMALL) as store:
            measured_crawl(store)

    while (status := wait(in_child(partial(work, numbers.choice((2, 3, 5, 7)), kills % 2 == 0)))) != 0:
        assert status == -signal.SIGKILL
        kills += 1
    assert kills > 15
    assert content_of(killed) == expected


def test_another_log_begins_anew_and_forgets_no_visit(measured: Path) -> None:
    """The columns start at 0; what was measured before stays where it was, and counts no more."""
    before = content_of(measured)
    with Store(measured, sizes=SMALL) as store:
        assert not store.set_gains_log("a log")
        assert store.set_gains_log("another log")
        assert store.gains_log() == ("another log", CYCLES + 1)
        assert all(not block[name].any() for _, block in store.blocks() for name in refresh_value.COLUMNS)
        assert {str(cycle): one.tobytes() for cycle, one in store.gains_of_cycles()}.items() <= before.items()
        assert store.verify() == []
        assert '"dq"' not in "".join(export.lines(store))
    with Store(measured, readonly=True) as store, pytest.raises(StoreError, match="for reading only"):
        store.set_gains_log("a third")


def numbered(measured: Path) -> Iterator[tuple[int, str]]:
    """The lines of an export."""
    with Store(measured, readonly=True) as store:
        yield from enumerate(list(export.lines(store)), 1)


@pytest.mark.parametrize("pages_per_batch", [3, 10_000])
def test_an_export_carries_them(measured: Path, tmp_path: Path, pages_per_batch: int) -> None:
    """Imported, every visit has its gain, bit for bit, and every page what they come to."""
    other = tmp_path / "other"
    import_history(other, "history", numbered(measured), to_page, pages_per_batch=pages_per_batch)
    with Store(measured, readonly=True) as one, Store(other, readonly=True) as two:
        assert two.gains_log() == one.gains_log()
        for cycle, gains in one.gains_of_cycles():
            assert np.sort(two.gains_of(cycle), order="page").tobytes() == gains.tobytes()
        assert list(export.lines(two)) == list(export.lines(one))
    assert {name: content_of(other)[name] for name in refresh_value.COLUMNS} == {
        name: content_of(measured)[name] for name in refresh_value.COLUMNS
    }


@pytest.mark.parametrize("measured", ["5", "[1, 2]", '["a"]', '["a", 0]', '{"log": 1}'])
def test_a_foreign_header_is_refused(measured: str) -> None:
    """With the name of the file."""
    with pytest.raises(ImportFileError, match=r"h\.tsv, line 1: expected the header"):
        read_header("h.tsv", f'# {{"format": "gp4c-history/1", "cycles": 3, "measured": {measured}}}')


def test_a_gain_of_a_cycle_to_come_is_refused(measured: Path, tmp_path: Path) -> None:
    """The whole import is, as for any date."""
    lines = [
        (n, text.replace('"dq": [[', '"dq": [[', 1).replace(f"[{CYCLES}, ", "[77, "))
        for n, text in numbered(measured)
    ]
    with pytest.raises(ImportFileError, match=r"expected cycles of at most 6; found .*77"):
        import_history(tmp_path / "other", "history", iter(lines), to_page)


def test_verifying_tells_columns_that_no_visit_explains(measured: Path) -> None:
    """And gains of pages that do not exist."""
    with Store(measured, sizes=SMALL) as store:
        state = store.summed_gains(1)
        state["dq_sum"][5] += 1.0
        store.put_values(REFRESH_VALUES, np.arange(store.merged_pages), state)
        assert store.verify() == ["the gain of page 5 is not that of its visits (1 such page in its block)"]
        with store.transaction(write=True) as txn:
            GAINS.put(txn, store.db, 2, 7, np.array([(99, 1, 1.0)], GAIN))
        assert any("gains 2, 0: it has a page that does not exist" in one for one in store.verify())


def test_visits_that_are_dropped_leave_what_they_came_to(measured: Path) -> None:
    """As with all that old visits did to pages."""
    before = content_of(measured)
    with Store(measured, sizes=SMALL) as store:
        store.keep_visits(2)
        assert [cycle for cycle, _ in store.gains_of_cycles()] == [5, 6]
    after = content_of(measured)
    assert {name: after[name] for name in refresh_value.COLUMNS} == {
        name: before[name] for name in refresh_value.COLUMNS
    }


@pytest.mark.parametrize("dropped", [False, True])
def test_a_repaired_store_has_them_too(measured: Path, dropped: bool) -> None:
    """Computed from the gains, or taken over where the visits are dropped."""
    with Store(measured, sizes=SMALL) as store:
        if dropped:
            store.keep_visits(2)
    before = content_of(measured)
    assert recover(measured, SMALL, lambda request: 0).lost == []
    assert content_of(measured) == before
    assert check(measured, deep=True) == []


def test_pages_that_are_forgotten_take_theirs_with_them(measured: Path) -> None:
    """The others keep them under their new numbers; the index, which has texts of both, goes and refills."""
    before = content_of(measured)
    (measured / SEARCH_INDEX).write_bytes(b"texts")
    gone = np.isin(np.arange(MEASURED), (0, 4, 5))
    assert forget(measured, SMALL, lambda store: gone) == 3
    assert not (measured / SEARCH_INDEX).exists()
    after = content_of(measured)
    for name, dtype in refresh_value.COLUMNS.items():
        assert (
            np.frombuffer(after[name], dtype).tolist() == np.frombuffer(before[name], dtype)[~gone].tolist()
        )
    for cycle in range(1, CYCLES + 1):
        old, new = (np.frombuffer(one[str(cycle)], GAIN) for one in (before, after))
        assert new["ppm"].tolist() == old["ppm"][~gone[old["page"]]].tolist()
    assert check(measured, deep=True) == []
