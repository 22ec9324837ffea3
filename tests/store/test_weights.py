"""Weights and sizes of pages in a store: by an oracle, through kills, an export, a repair and `forget`."""

import math
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scrapy_gp4c.scoring.sizes import size_class
from scrapy_gp4c.store import export
from scrapy_gp4c.store.lmdb_store.environment import U32
from scrapy_gp4c.store.lmdb_store.forget import forget
from scrapy_gp4c.store.lmdb_store.recover import recover
from scrapy_gp4c.store.lmdb_store.store import Store
from scrapy_gp4c.store.lmdb_store.verify import check
from scrapy_gp4c.store.opening import import_history, open_store
from scrapy_gp4c.store.records import NewVisit
from tests.store.test_import_history import to_page
from tests.support.growing import SMALL

PAGES = 11
WEIGHTS = st.floats(0, 1e6)


def filled(path: Path) -> list[float]:
    """A store with weights of its own in two of its three blocks, one cycle, and an open one; the weights."""
    expected = [1.0] * PAGES
    with Store(path, sizes=SMALL) as store:
        store.add_pages(to_page({"url": f"http://h/{page}"}) for page in range(PAGES))
        store.weights.put(np.array([0, 9, 10]), np.array([0.1, 0.0, 2.0]))
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
        assert result == [store.weights.of(page) for page in range(store.pages)]
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
                    store.weights.put(np.array([page, page]), np.array([3.0, weight]))
                elif store.open_cycle is not None:
                    store.note(page, "weight", weight)
                else:
                    continue
                expected[page] = weight
                if store.open_cycle is None:
                    folded = list(expected)
            assert [store.weights.of(one) for one in range(len(expected))] == expected
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
        store.weights.put(np.array([9, 10]), np.array([1.0, 1.0]))
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
    """Of a sound store; of one that lost the request of a page, those of the others; noted ones too."""
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
        assert store.weights.of(9) == 8.0
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
        (0, [1.0, math.nan], "a page of block 0 has a weight that is none"),
        (2, [-1.0], "a page of block 2 has a weight that is none"),
        (2, [2.0] * 4, "weights are kept of 4 pages of block 2, which there are not"),
        (7, [2.0], "weights are kept of 1 page of block 7, which there are not"),
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
