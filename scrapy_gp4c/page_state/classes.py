"""Page classes: what a cycle does with a page, told by the page's columns alone."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


def in_panel(keys: npt.NDArray[np.uint64], share: float) -> npt.NDArray[np.bool_]:
    """Tell which pages are in the panel: bool ``[P]``; ``keys``: uint64 ``[P]``, uniformly distributed.

    A page's key decides, so that the choice is stable while pages come and go, and a larger share keeps
    the panel of a smaller one.
    """
    if share >= 1.0:
        return np.ones(len(keys), np.bool_)
    return np.asarray(keys < np.uint64(share * 2.0**64))
