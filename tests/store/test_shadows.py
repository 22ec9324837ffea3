"""Shadows of the panel, also those that the version before kept."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from scrapy_gp4c.store.lmdb_store.sealed import encode
from scrapy_gp4c.store.lmdb_store.store import Store
from scrapy_gp4c.store.opening import open_store
from scrapy_gp4c.store.records import SHADOW
from tests.support.older_stores import ADDED, OLD_SHADOW, make_older

AS_KEPT = list(OLD_SHADOW.names or ())
NEW = [name for name in SHADOW.names or () if name not in (*AS_KEPT, *ADDED)]


def some(dtype: np.dtype) -> np.ndarray:
    """Two shadows: the last visit of the first found a change, that of the second did not."""
    shadows = np.zeros(2, dtype)
    for number, name in enumerate(dtype.names or ()):
        shadows[name] = number + 1
    shadows["page"], shadows["X"] = (4, 9), (2, 3)
    shadows["first_cycle"], shadows["last_cycle"], shadows["last"] = (1, 2), (7, 6), (1, 0)
    return shadows


def test_shadows_are_kept_for_two_cycles(tmp_path: Path) -> None:
    """Those of the cycle before stay; older ones and those of other cycles are none."""
    with Store(tmp_path) as store:
        for cycle in (1, 2, 3):
            store.keep_shadows(cycle, some(SHADOW)[: 3 - cycle])
        assert [len(store.shadows(cycle)) for cycle in range(5)] == [0, 0, 1, 0, 0]
        assert store.shadows(2).tolist() == some(SHADOW)[:1].tolist()
        store.keep_shadows(3, some(SHADOW))
    with Store(tmp_path, readonly=True) as store:
        assert store.shadows(3).tolist() == some(SHADOW).tolist()
        assert store.shadows(3).dtype == SHADOW


@pytest.mark.parametrize("readonly", [False, True])
def test_shadows_of_the_version_before_are_not_lost(tmp_path: Path, readonly: bool) -> None:
    """What it kept stays; what rates are made of is taken for what is most likely."""
    with Store(tmp_path) as store:
        old = some(OLD_SHADOW)
        for cycle in (6, 7):
            head = encode({"cycle": cycle, "columns": OLD_SHADOW.descr})
            with store.tables.transaction(write=True) as txn:
                meta = store.tables.db["meta"]
                meta.put(txn, b"shadows%d" % (cycle % 2), head + b"\n" + old.tobytes())
    make_older(tmp_path)
    with open_store(tmp_path, readonly=readonly) as kept:
        for cycle in (6, 7):
            shadows = kept.shadows(cycle)
            assert shadows.dtype == SHADOW
            assert shadows[AS_KEPT].tolist() == old[AS_KEPT].tolist()
            assert not any(shadows[name].any() for name in NEW)
            assert shadows["E"].tolist() == [2.0, 3.0]
            assert shadows["T"].tolist() == [6, 4]
            assert shadows["found_cycle"].tolist() == [7, 2]
        assert len(kept.shadows(5)) == 0
