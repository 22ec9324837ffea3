"""The store as a whole: calls that it refuses, and what it makes of its arguments."""

import struct
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scrapy_gp4c.page_state import columns
from scrapy_gp4c.page_state.outcomes import PLAN
from scrapy_gp4c.scoring import first_visits
from scrapy_gp4c.store.lmdb_store.store import Store
from scrapy_gp4c.store.lmdb_store.tables import USUAL, Sizes
from scrapy_gp4c.store.records import NewVisit
from tests.support.stores import pages


def test_wrong_calls_are_refused(tmp_path: Path) -> None:
    """Calls that would break the store's rules raise ValueError and leave it as it was."""
    with Store(tmp_path / "store") as store:
        store.add_pages(pages(3))
        for call in (
            lambda: store.record(NewVisit(0, "first", time=0.0)),
            lambda: store.finish_cycle({}),
            lambda: store.add_page(1, {}),
            lambda: store.add_round(np.empty(0, PLAN), seen=0),
        ):
            with pytest.raises(ValueError, match="no cycle is open"):
                call()
        store.begin_cycle({})
        with pytest.raises(ValueError, match="not finished"):
            store.begin_cycle({})
        for page in (-1, 3):
            with pytest.raises(ValueError, match="there is no page"):
                store.record(NewVisit(page, "first", time=0.0))
            with pytest.raises(ValueError, match="there is no page"):
                store.request(page)
        with pytest.raises(ValueError, match="not in"):
            store.record(NewVisit(0, "perhaps", time=0.0))
        with pytest.raises(struct.error):
            store.record(NewVisit(0, "first", time=0.0, bytes=2**32))
        with pytest.raises(TypeError):
            store.set_request(0, {"url": object()})
        assert not store.visited(0)
        assert len(store.open_visits()) == 0
        assert store.verify() == []


def test_an_import_that_fails_keeps_what_it_added(tmp_path: Path) -> None:
    """When the source of pages raises, whole batches before it stay, and the store is sound."""

    def failing() -> object:
        yield from pages(USUAL.pages_per_transaction + 10)
        raise RuntimeError("the source broke")

    with Store(tmp_path / "store") as store:
        with pytest.raises(RuntimeError, match="the source broke"):
            store.add_pages(failing())
        assert store.pages == USUAL.pages_per_transaction
        assert store.find(1) == 0


def test_latency_is_kept_in_milliseconds(tmp_path: Path) -> None:
    """Rounded up, so that 0 means not measured; more than the field holds saturates."""
    with Store(tmp_path / "store") as store:
        store.add_pages(pages(4))
        store.begin_cycle({"started": 1.0})
        for page, latency_s in enumerate((0.0, 0.0001, 0.25, 120.0)):
            store.record(NewVisit(page, "first", time=1.0, latency_s=latency_s))
        assert store.open_visits()["latency_ms"].tolist() == [0, 1, 250, 65_535]


@given(st.sets(st.integers(0, 49)), st.integers(1, 60))
def test_columns_of_some_pages(chosen: set[int], block_rows: int) -> None:
    """As in the blocks, whatever these hold; of no pages, no rows."""
    with TemporaryDirectory() as directory, Store(directory, sizes=Sizes(block_rows=block_rows)) as store:
        store.add_pages(pages(50))
        ids = np.array(sorted(chosen), np.uint32)
        result = store.columns_of(ids)
        assert result["key"].tolist() == [store.page(page).key for page in ids.tolist()]
        assert result.keys() == {*columns.COLUMNS, *columns.EXTRAS, *first_visits.COLUMNS, "weight"}
        few = store.columns_of(ids, ("group", "key"))
        assert few.keys() == {"group", "key"}
        assert few["key"].tolist() == result["key"].tolist()
        assert few["key"].dtype == result["key"].dtype


def test_a_record_keeps_what_it_does_not_know(tmp_path: Path) -> None:
    """Keys of another version, and the order of all, as they were written."""
    with Store(tmp_path / "store") as store:
        store.begin_cycle({"started": 1.0, "later": {"b": 1, "a": None}, "budget": 0.5})
        store.amend_record(seed=3, started=2.0)
        store.finish_cycle({"reason": "finished", "finished": 4.0})
    with Store(tmp_path / "store") as store:
        (record,) = store.cycles()
    expected = {"cycle": 1, "started": 2.0, "later": {"b": 1, "a": None}, "budget": 0.5, "seed": 3}
    assert list(record.items()) == [*expected.items(), ("finished", 4.0), ("reason", "finished")]


class Watched:
    """LMDB's environment with a note of what was called."""

    def __init__(self, environment: Any, calls: list[str]) -> None:
        self._environment, self._calls = environment, calls

    def __getattr__(self, name: str) -> Any:
        if name in ("sync", "close", "begin"):
            self._calls.append(name)
        return getattr(self._environment, name)


def test_the_last_commit_is_synced_when_a_cycle_and_the_store_close(tmp_path: Path) -> None:
    """Header and all: nothing is written between it and the return of `finish_cycle`, or the close."""
    calls: list[str] = []
    store = Store(tmp_path / "store")
    store.environment.lmdb = Watched(store.environment.lmdb, calls)
    store.begin_cycle({})
    store.finish_cycle({})
    assert calls[-1] == "sync"
    store.begin_cycle({})
    store.close()
    assert calls[-2:] == ["sync", "close"]
    with Store(tmp_path / "store", readonly=True) as reader:
        reader.environment.lmdb = Watched(reader.environment.lmdb, calls)
    assert calls[-2:] == ["sync", "close"] or calls[-1] == "close"
    assert calls.count("sync") == 2


def test_a_cycle_does_not_import_masked_arrays(tmp_path: Path) -> None:
    """NumPy does so for some calls, which takes longer than opening and closing a store."""
    lines = """
import sys
from scrapy_gp4c.store.lmdb_store.store import Store
from scrapy_gp4c.store.records import NewVisit
for cycle in range(2):
    with Store(sys.argv[1]) as store:
        store.check_sample()
        store.begin_cycle({})
        page = store.add_page(cycle + 1, {"url": f"http://h.example/{cycle}"})
        store.record(NewVisit(page, "first", time=0.0))
        store.finish_cycle({})
assert "numpy.ma" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", lines, str(tmp_path / "store")], check=True)
