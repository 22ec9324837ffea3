"""Page classes: what a cycle may do with a page, told by the page's columns alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

Bools = npt.NDArray[np.bool_]

MAX_WAIT_CYCLES: Final = 32
_WAIT_CYCLES: Final = np.clip(2.0 ** np.arange(-1.0, 255.0), 1, MAX_WAIT_CYCLES).astype(np.int32)
"""By the number of failures in a row, which is a byte: ``[256]``."""


class Stages(NamedTuple):
    """How far pages have come, each bool ``[P]``; every page is in exactly one stage."""

    gone: Bools
    """Not visited any more: ``gone`` so many times in a row."""
    unfetched: Bools
    """Known, and no visit has brought a copy yet."""
    warming: Bools
    """Fetched, and still to get the judged visits that every page gets."""
    settled: Bools
    """The score decides."""


def stages(columns: Mapping[str, npt.NDArray[Any]], warmup_visits: int, gone_after: int) -> Stages:
    """Tell the stage of pages by the columns ``n``, ``has_copy`` and ``gone``, each ``[P]``."""
    gone = np.asarray(columns["gone"] >= gone_after)
    unfetched = ~gone & is_unfetched(columns["n"], columns["has_copy"])
    warming = ~gone & ~unfetched & (columns["n"] < warmup_visits)
    return Stages(gone, unfetched, warming, ~gone & ~unfetched & ~warming)


def is_unfetched(n: Any, has_copy: Any) -> Any:
    """Tell whether pages were never fetched: of numbers or arrays."""
    return (n == 0) & (has_copy == 0)


def is_awake(columns: Mapping[str, npt.NDArray[Any]], cycle: int) -> Bools:
    """Tell which pages may be visited in `cycle`: bool ``[P]``.

    A page whose last visits all failed waits 1, 2, 4, ... at most `MAX_WAIT_CYCLES` cycles between two
    attempts, so that dead hosts do not eat the budget.
    """
    failures, last_attempt = columns["failures"], columns["last_attempt"]
    awake = np.asarray(last_attempt < cycle)
    waiting = np.flatnonzero(failures > 1)  # of most crawls few
    awake[waiting] = cycle - last_attempt[waiting] >= _WAIT_CYCLES[failures[waiting]]
    return awake


def in_panel(keys: npt.NDArray[np.uint64], share: float) -> Bools:
    """Tell which pages are in the panel: bool ``[P]``; ``keys``: uint64 ``[P]``, uniformly distributed.

    A page's key decides, so that the choice is stable while pages come and go, and a larger share keeps
    the panel of a smaller one.
    """
    if share >= 1.0:
        return np.ones(len(keys), np.bool_)
    return np.asarray(keys < np.uint64(share * 2.0**64))
