"""Claims in a store: by the oracle, through an export, a repair and the removal of old cycles."""

from pathlib import Path

import numpy as np
import pytest

from scrapy_gp4c.page_state.columns import EXTRAS
from scrapy_gp4c.store import export
from scrapy_gp4c.store.lmdb_store.recover import recover
from scrapy_gp4c.store.lmdb_store.store import Store
from scrapy_gp4c.store.lmdb_store.tables import USUAL
from scrapy_gp4c.store.lmdb_store.verify import check
from scrapy_gp4c.store.opening import import_history, open_store
from scrapy_gp4c.store.records import StoredRequest
from tests.replaying.test_growth import Rumours
from tests.support.claims import Oracle
from tests.support.growing import SMALL, crawl, random_web

BUDGET = {"GP4C_BUDGET": 0.4}


def crawled(path: Path, seed: int) -> None:
    """A store of a crawl that heard rumours, and was told something after its last cycle."""
    crawl(path, random_web(seed), dict(BUDGET), during=Rumours(seed))
    with Store(path) as store:
        store.hints.tell(np.array([1, 5]), 2e9)


def content(path: Path) -> tuple[dict[str, list[float]], list[tuple[int, bytes]], bytes]:
    """Columns of claims, claims, and counts of sites."""
    with open_store(path, readonly=True) as store:
        blocks = [block for _, block in store.blocks()]
        columns = {name: np.concatenate([block[name] for block in blocks]).tolist() for name in EXTRAS}
        claims: dict[int, list[np.ndarray]] = {}
        for cycle, rows in store.hints.of_cycles(0):
            claims.setdefault(cycle, []).append(rows)
        sorted_claims = [
            (cycle, np.sort(np.concatenate(parts), order=("page", "kind", "value")).tobytes())
            for cycle, parts in sorted(claims.items())
        ]
        return columns, sorted_claims, store.trust().tobytes()


@pytest.mark.parametrize("seed", range(2))
def test_columns_and_counts_are_those_of_an_oracle(seed: int, tmp_path: Path) -> None:
    """Visit by visit and claim by claim."""
    crawled(tmp_path / "s", seed)
    with Store(tmp_path / "s") as store:
        Oracle.of(store).agrees(store)
        assert store.verify() == []
        assert len(store.trust()) == 3


def to_page(request: StoredRequest) -> tuple[int, StoredRequest]:
    """A page's key by its URL, as `random_web` has it."""
    return int(request["url"].rpartition("/")[2].removesuffix(".html")) + 1, request


@pytest.mark.parametrize("batch", [3, 1_000])
def test_an_export_keeps_all_of_it(batch: int, tmp_path: Path) -> None:
    """Columns, claims and counts of the store that is restored from it are the same, bit by bit."""
    crawled(tmp_path / "s", 7)
    with Store(tmp_path / "s", readonly=True) as store:
        lines = list(export.lines(store, matrix_bytes=100))
    import_history(tmp_path / "t", "x", enumerate(lines, 1), to_page, pages_per_batch=batch)
    assert content(tmp_path / "s") == content(tmp_path / "t")
    with Store(tmp_path / "t") as store:
        assert store.verify() == []


def test_a_repair_keeps_all_of_it(tmp_path: Path) -> None:
    """Of a sound store."""
    crawled(tmp_path / "s", 3)
    before = content(tmp_path / "s")
    done = recover(tmp_path / "s", SMALL, lambda request: to_page(request)[0])
    assert done.lost == []
    assert content(tmp_path / "s") == before


def test_old_claims_go_with_old_visits(tmp_path: Path) -> None:
    """What they did to columns and counts stays."""
    crawled(tmp_path / "s", 5)
    columns, claims, trust = content(tmp_path / "s")
    with Store(tmp_path / "s") as store:
        store.keep_visits(2)
        last = store.last_cycle
        assert store.verify() == []
    after = content(tmp_path / "s")
    assert (after[0], after[2]) == (columns, trust)
    assert after[1] == [one for one in claims if one[0] > last - 2]


@pytest.mark.parametrize("table", ["hints", "trust", "claims"])
def test_what_was_altered_is_found(table: str, tmp_path: Path) -> None:
    """A value with the right checksum that does not fit visits and claims is told by a deep look."""
    crawled(tmp_path / "s", 11)
    with Store(tmp_path / "s", sizes=USUAL) as store:
        handle = store.db[table]
        with store.transaction(write=True) as txn:
            key, value = next((key, bytes(value)) for key, value in handle.items(txn) if len(value) > 9)
            if table == "claims":
                handle.delete(txn, key)
            else:
                altered = bytearray(value)
                altered[0 if table == "hints" else 12] ^= 1
                handle.put(txn, key, bytes(altered))
    assert check(tmp_path / "s", deep=True)
