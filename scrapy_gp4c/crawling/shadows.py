"""Shadows: the state that a panel page would have if it were no panel page."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.page_state import columns
from scrapy_gp4c.scoring import terminals
from scrapy_gp4c.scoring.terminals import Array
from scrapy_gp4c.store.records import SHADOW


def enter(pages: npt.NDArray[np.uint32], state: columns.Columns) -> Array:
    """Shadows of pages visited as panel pages for the first time, equal to the pages themselves.

    ``pages``: uint32 ``[S]``; ``state``: their columns ``[S]``. Dtype `SHADOW` ``[S]``.
    """
    shadows = np.zeros(len(pages), SHADOW)
    shadows["page"] = pages
    for name in ("key", *terminals.STATE):
        shadows[name] = state[name]
    shadows["current"] = shadows["copy"] = state["fingerprint"]
    return shadows
