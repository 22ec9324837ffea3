"""Dtypes of visits and plans, outcomes of visits, and kinds of visits (their reasons)."""

import struct
from typing import Any, Final

import numpy as np
import numpy.typing as npt

OUTCOMES: Final = ("first", "unchanged", "changed", "not_modified", "error", "gone", "excluded", "doubtful")
"""Outcomes of a visit; a visit and the page columns hold the position in this tuple."""
FIRST, UNCHANGED, CHANGED, NOT_MODIFIED, ERROR, GONE, EXCLUDED, DOUBTFUL = range(len(OUTCOMES))

JUDGED: Final = (UNCHANGED, CHANGED, NOT_MODIFIED)
"""Outcomes that show whether the page changed since the visit before."""
SAME: Final = (UNCHANGED, NOT_MODIFIED)
"""Outcomes that prove that the page did not change."""
COPIED: Final = (FIRST, UNCHANGED, CHANGED)
"""Outcomes that brought a copy of the page, and its fingerprint."""
FAILED: Final = (ERROR, GONE, EXCLUDED, DOUBTFUL)
"""Outcomes without content that is surely the page's; all others are successes."""


KINDS: Final = (
    "new", "warmup", "panel", "ranked", "other", "hub", "sample", "neighbour", "recheck", "promised",
)  # fmt: skip
"""Reasons of visits; a visit and a plan hold the position in this tuple."""
NEW, WARMUP, PANEL, RANKED, OTHER, HUB, SAMPLE, NEIGHBOUR, RECHECK, PROMISED = range(len(KINDS))
CHOSEN: Final = (RANKED, SAMPLE, NEIGHBOUR)
"""Kinds of the pages that a policy chooses."""


NO_DISTANCE: Final = 255


VISIT: Final = np.dtype(
    [
        ("time", "<f8"),  # s since 1970
        ("fingerprint", "<u8"),
        ("page", "<u4"),
        ("bytes", "<u4"),
        ("latency_ms", "<u2"),  # of the last download, saturating; 0: not measured
        ("kind", "u1"),
        ("outcome", "u1"),
        ("distance", "u1"),  # bits; NO_DISTANCE: nothing to compare with
    ]
)


VISIT_BYTES: Final = struct.Struct("<dQIIHBBB")
"""The bytes of one visit, in the order of `VISIT`."""


PLAN: Final = np.dtype([("score", "<f8"), ("page", "<u4"), ("kind", "u1")])


def among(outcome: npt.NDArray[Any], codes: tuple[int, ...]) -> npt.NDArray[np.bool_]:
    """Whether each outcome is one of `codes`: bool, in the shape of `outcome`, which is uint8."""
    matches = np.zeros(outcome.shape, np.bool_)
    for code in codes:  # np.isin takes ten times as long
        matches |= outcome == code
    return matches
