"""Shadows of the panel."""

from pathlib import Path

import numpy as np

from scrapy_gp4c.store.lmdb_store.store import Store
from scrapy_gp4c.store.records import SHADOW


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
