"""What a cycle learns of pages beside its visits: who found them, and what sites claim of them.

Its fold puts that in their columns.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.scoring.discovery import START
from scrapy_gp4c.scoring.hints import KINDS

Array = npt.NDArray[Any]

SET: Final = ("found_by",)
"""Columns that notes set."""
WHAT: Final = (*SET, *KINDS, "weight", "brought")
"""What notes are about: a column, a kind of claims, which `scrapy_gp4c.page_state.claims` makes of them, the
weight of a page, or how many pages of other shards it has found; a note holds the position in this tuple. The
value of a claim is a time, s since 1970, or of a span its s."""
CLAIM_KINDS: Final = len(KINDS)
"""How many kinds of claims there are."""
NOTE: Final = np.dtype([("page", "<u4"), ("what", "u1"), ("value", "<f8")])
"""What one note sets for a page."""
NO_NOTES: Final = np.empty(0, NOTE)


def apply_notes(columns: dict[str, Array], rows: npt.NDArray[np.intp], notes: Array) -> None:
    """Set the columns, in place, as notes say; of several for a page the last counts.

    ``columns``: writable, each ``[P]``; ``notes``: dtype `NOTE` ``[N]``; ``rows``: of their pages, ``[N]``.
    """
    for what, name in enumerate(SET):
        chosen = notes["what"] == what
        columns[name][rows[chosen]] = notes["value"][chosen].astype(columns[name].dtype)


def of_claims(notes: Array) -> npt.NDArray[np.bool_]:
    """Tell which notes are claims: bool ``[N]``."""
    return np.asarray((notes["what"] >= len(SET)) & (notes["what"] < len(SET) + CLAIM_KINDS))


def of_weights(notes: Array) -> npt.NDArray[np.bool_]:
    """Tell which notes are weights: bool ``[N]``."""
    return np.asarray(notes["what"] == WHAT.index("weight"))


def weights_said(parts: Iterable[Array]) -> dict[int, float]:
    """Page -> the weight that notes said last; ``parts``: dtype `NOTE`, in order."""
    said: dict[int, float] = {}
    for notes in parts:
        own = notes[of_weights(notes)]
        said.update(zip(own["page"].tolist(), own["value"].tolist(), strict=True))
    return said


def brought(notes: Array, pages: int) -> npt.NDArray[np.int64]:
    """How many new pages each page has brought by the notes of a cycle: ``[pages]``.

    Those of other shards are told in one sum, the last of which counts.
    """
    finders = finder_pages(notes["value"][notes["what"] == WHAT.index("found_by")])
    elsewhere = np.zeros(pages, np.int64)
    sums = notes[notes["what"] == WHAT.index("brought")]
    elsewhere[sums["page"]] = sums["value"]
    return elsewhere + np.bincount(finders[(finders >= 0) & (finders < pages)], minlength=pages)


def finder_pages(found_by: Array) -> npt.NDArray[np.int64]:
    """Ids of the pages that found others, by the column ``found_by`` of these; -1: no page did."""
    return np.where(found_by == START, 0, found_by).astype(np.int64) - 1
