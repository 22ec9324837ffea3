"""What visits gained a search: kept by visit and by page, through kills, exports, repairs and old schemas."""

import random
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from scrapy_gp4c.errors import ImportFileError, StoreError
from scrapy_gp4c.scoring import refresh_value
from scrapy_gp4c.scoring.refresh_value import GAIN
from scrapy_gp4c.store import export
from scrapy_gp4c.store.history_fields import read_header
from scrapy_gp4c.store.lmdb_store.forget import forget
from scrapy_gp4c.store.lmdb_store.recover import recover
from scrapy_gp4c.store.lmdb_store.store import Store
from scrapy_gp4c.store.lmdb_store.tables import GAINS, REFRESH_VALUES
from scrapy_gp4c.store.lmdb_store.verify import check
from scrapy_gp4c.store.opening import SEARCH_INDEX, import_history
from scrapy_gp4c.store.records import NewVisit
from tests.store.test_import_history import to_page
from tests.store.test_store_kill import SMALL, in_child, kill_at, wait

PAGES, CYCLES = 11, 6


def gains_of(cycle: int, last_cycle: dict[int, int]) -> np.ndarray:
    """What the visits of a cycle gain: every page but each third, some nothing."""
    rows = [
        (page, cycle - last_cycle[page] if page in last_cycle else 0, np.float32(page * cycle % 4) / 3)
        for page in visited(cycle)
        if page % 3
    ]
    return np.array(rows, GAIN)


def visited(cycle: int) -> list[int]:
    """Pages of a cycle: all in the first, then some."""
    return [page for page in range(PAGES) if cycle == 1 or (page + cycle) % 3 < 2]


def crawl(store: Store, cycles: int = CYCLES) -> None:
    """Run, or go on with, some cycles."""
    if not store.pages:
        store.add_pages((n + 1, {"url": f"http://h/{n}"}) for n in range(PAGES))
    store.gains.begin("a log")
    while store.last_cycle < cycles:
        cycle = store.open_cycle or store.begin_cycle({"started": 1.0})
        last_cycle = {page: store.page(page).last_cycle for page in range(PAGES) if store.page(page).has_copy}
        for page in visited(cycle):
            if not store.visited(page):
                outcome = "changed" if page in last_cycle else "first"
                store.record(NewVisit(page, outcome, 1.0, fingerprint=cycle))
        store.commit()
        store.gains.keep(gains_of(cycle, last_cycle))
        store.finish_cycle({"finished": 2.0})


def content(path: Path) -> dict[str, bytes]:
    """Gains by visit and by page."""
    with Store(path, sizes=SMALL) as store:
        assert store.verify() == []
        result = {
            name: b"".join(block[name].tobytes() for _, block in store.blocks())
            for name in refresh_value.COLUMNS
        }
        return result | {str(cycle): gains.tobytes() for cycle, gains in store.gains.of_cycles()}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A store whose crawl is over."""
    with Store(tmp_path / "store", sizes=SMALL) as store:
        crawl(store)
    return tmp_path / "store"


def test_columns_are_what_the_visits_of_each_page_gained(path: Path) -> None:
    """The mean per cycle waited, the last and the recent ones; the first fetch counts for nothing."""
    gained: dict[int, list[tuple[float, int]]] = {}
    with Store(path, readonly=True) as store:
        for _, gains in store.gains.of_cycles():
            for page, gap, ppm in gains.tolist():
                gained.setdefault(page, []).append((ppm, gap))
        blocks = list(store.blocks())
        some = store.columns_of(np.array([1, 5, 9], np.uint32))
    columns = {name: np.concatenate([block[name] for _, block in blocks]) for name in refresh_value.COLUMNS}
    assert {name: some[name].tolist() for name in refresh_value.COLUMNS} == {
        name: column[[1, 5, 9]].tolist() for name, column in columns.items()
    }
    for page in range(PAGES):
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
        assert store.gains.log is None
        assert not refresh_value.COLUMNS.keys() & dict(store.blocks())[0].keys()
        assert not refresh_value.COLUMNS.keys() & store.columns_of(np.zeros(1, np.uint32)).keys()
        assert list(store.gains.of_cycles()) == []


def test_a_crawl_killed_in_any_transaction_gains_what_it_would_have(tmp_path: Path, path: Path) -> None:
    """Before and in the fold, before and after a commit: no gain is lost, none counts twice."""
    expected, killed, kills = content(path), tmp_path / "killed", 0
    numbers = random.Random(7)

    def work(transactions: int, after_commit: bool) -> None:
        with kill_at(transactions, after_commit), Store(killed, sizes=SMALL) as store:
            crawl(store)

    while (status := wait(in_child(partial(work, numbers.choice((2, 3, 5, 7)), kills % 2 == 0)))) != 0:
        assert status == -signal.SIGKILL
        kills += 1
    assert kills > 15
    assert content(killed) == expected


def test_another_log_begins_anew_and_forgets_no_visit(path: Path) -> None:
    """The columns start at 0; what was measured before stays where it was, and counts no more."""
    before = content(path)
    with Store(path, sizes=SMALL) as store:
        assert not store.gains.begin("a log")
        assert store.gains.begin("another log")
        assert store.gains.since == CYCLES + 1
        assert all(not block[name].any() for _, block in store.blocks() for name in refresh_value.COLUMNS)
        assert {str(cycle): one.tobytes() for cycle, one in store.gains.of_cycles()}.items() <= before.items()
        assert store.verify() == []
        assert '"dq"' not in "".join(export.lines(store))
    with Store(path, readonly=True) as store, pytest.raises(StoreError, match="for reading only"):
        store.gains.begin("a third")


def numbered(path: Path) -> Iterator[tuple[int, str]]:
    """The lines of an export."""
    with Store(path, readonly=True) as store:
        yield from enumerate(list(export.lines(store)), 1)


@pytest.mark.parametrize("pages_per_batch", [3, 10_000])
def test_an_export_carries_them(path: Path, tmp_path: Path, pages_per_batch: int) -> None:
    """Imported, every visit has its gain, bit for bit, and every page what they come to."""
    other = tmp_path / "other"
    import_history(other, "history", numbered(path), to_page, pages_per_batch=pages_per_batch)
    with Store(path, readonly=True) as one, Store(other, readonly=True) as two:
        assert (two.gains.log, two.gains.since) == (one.gains.log, one.gains.since)
        for cycle, gains in one.gains.of_cycles():
            assert np.sort(two.gains.of(cycle), order="page").tobytes() == gains.tobytes()
        assert list(export.lines(two)) == list(export.lines(one))
    assert {name: content(other)[name] for name in refresh_value.COLUMNS} == {
        name: content(path)[name] for name in refresh_value.COLUMNS
    }


@pytest.mark.parametrize("measured", ["5", "[1, 2]", '["a"]', '["a", 0]', '{"log": 1}'])
def test_a_foreign_header_is_refused(measured: str) -> None:
    """With the name of the file."""
    with pytest.raises(ImportFileError, match=r"h\.tsv, line 1: expected the header"):
        read_header("h.tsv", f'# {{"format": "gp4c-history/1", "cycles": 3, "measured": {measured}}}')


def test_a_gain_of_a_cycle_to_come_is_refused(path: Path, tmp_path: Path) -> None:
    """The whole import is, as for any date."""
    lines = [
        (n, text.replace('"dq": [[', '"dq": [[', 1).replace(f"[{CYCLES}, ", "[77, "))
        for n, text in numbered(path)
    ]
    with pytest.raises(ImportFileError, match=r"expected cycles of at most 6; found .*77"):
        import_history(tmp_path / "other", "history", iter(lines), to_page)


def test_verifying_tells_columns_that_no_visit_explains(path: Path) -> None:
    """And gains of pages that do not exist."""
    with Store(path, sizes=SMALL) as store:
        state = store.gains.counted()
        state["dq_sum"][5] += 1.0
        store.put_values(REFRESH_VALUES, np.arange(store.merged_pages), state)
        assert store.verify() == ["page 5 has gained otherwise than by its visits (1 such page)"]
        with store.transaction(write=True) as txn:
            GAINS.put(txn, store.db, 2, 7, np.array([(99, 1, 1.0)], GAIN))
        assert any("gains 2, 0: it has a page that does not exist" in one for one in store.verify())


def test_visits_that_are_dropped_leave_what_they_came_to(path: Path) -> None:
    """As with all that old visits did to pages."""
    before = content(path)
    with Store(path, sizes=SMALL) as store:
        store.keep_visits(2)
        assert [cycle for cycle, _ in store.gains.of_cycles()] == [5, 6]
    after = content(path)
    assert {name: after[name] for name in refresh_value.COLUMNS} == {
        name: before[name] for name in refresh_value.COLUMNS
    }


@pytest.mark.parametrize("dropped", [False, True])
def test_a_repaired_store_has_them_too(path: Path, dropped: bool) -> None:
    """Computed from the gains, or taken over where the visits are dropped."""
    with Store(path, sizes=SMALL) as store:
        if dropped:
            store.keep_visits(2)
    before = content(path)
    assert recover(path, SMALL, lambda request: 0).lost == []
    assert content(path) == before
    assert check(path, deep=True) == []


def test_pages_that_are_forgotten_take_theirs_with_them(path: Path) -> None:
    """The others keep them under their new numbers; the index, which has texts of both, goes and refills."""
    before = content(path)
    (path / SEARCH_INDEX).write_bytes(b"texts")
    gone = np.isin(np.arange(PAGES), (0, 4, 5))
    assert forget(path, SMALL, lambda store: gone) == 3
    assert not (path / SEARCH_INDEX).exists()
    after = content(path)
    for name, dtype in refresh_value.COLUMNS.items():
        assert (
            np.frombuffer(after[name], dtype).tolist() == np.frombuffer(before[name], dtype)[~gone].tolist()
        )
    for cycle in range(1, CYCLES + 1):
        old, new = (np.frombuffer(one[str(cycle)], GAIN) for one in (before, after))
        assert new["ppm"].tolist() == old["ppm"][~gone[old["page"]]].tolist()
    assert check(path, deep=True) == []
