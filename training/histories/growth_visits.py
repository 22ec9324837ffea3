"""Growth in what a crawl visited: the pages that were judged in every cycle since they became known."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.errors import HistoryError
from scrapy_gp4c.page_state.claims import finder_pages, renumbered
from scrapy_gp4c.page_state.groups import place_of_url
from training.histories.growth import NOBODY, TOLD, GrowthHistory
from training.histories.history import ChangeHistory, unless_usual

Array = npt.NDArray[Any]

MAX_MISSED: Final = 2
"""Cycles without an outcome that a page may have: they count as unchanged."""


class Visited(NamedTuple):
    """What a crawl of C finished cycles tells of P pages."""

    source: str
    judged: npt.NDArray[np.bool_]
    """``[C + 1, P]``; row c is cycle c, as in the next."""
    changed: npt.NDArray[np.bool_]
    entered: Array
    """``[P]``: cycle in which each became known; 0: not known."""
    first_cycle: Array
    """``[P]``: cycle of its first copy; 0: there is none."""
    found_by: Array
    """``[P]``: as the column of this name, of the pages 0..P-1."""
    urls: Callable[[npt.NDArray[np.intp]], Sequence[str]]
    """Those of some pages."""
    key: npt.NDArray[np.uint64] | None
    weight: npt.NDArray[np.float64]
    """``[P]``"""
    claims: Array
    """With fields as `TOLD` has them, but in the crawl's cycles; in order of these."""


def growth_of(visited: Visited) -> GrowthHistory:
    """Pages, births, finders and claims of a crawl that visited its pages in every cycle.

    A page is born in the cycle in which the crawl found it, at the latest. Cycle c of the crawl is c - 1 of
    the history. Raises HistoryError for pages that were visited now and then.
    """
    last, pages = len(visited.judged) - 1, visited.judged.shape[1]
    if last < 2:
        raise HistoryError(f"{visited.source} has {last} closed cycle(s); growth begins with the second")
    entered = np.maximum(visited.entered, 1)
    since = np.arange(last + 1)[:, None] > entered
    missed = np.count_nonzero(since & ~visited.judged, axis=0)
    kept = np.flatnonzero((missed <= MAX_MISSED) & (visited.first_cycle > 0))
    if len(kept) * 2 < pages or not pages:
        raise HistoryError(
            f"{visited.source}: of its {pages:,} pages, {len(kept):,} were judged in all but {MAX_MISSED} "
            "cycles since they became known; set GP4C_BUDGET or GP4C_PANEL to 1.0 for some cycles"
        )
    position = np.full(pages + 1, NOBODY, np.int32)
    position[kept] = np.arange(len(kept))
    finder = position[finder_pages(visited.found_by[kept])]  # the last place stands for -1
    names = visited.urls(kept)
    sites, site = np.unique([place_of_url(name).site for name in names], return_inverse=True)
    history = ChangeHistory(
        changed=np.ascontiguousarray((visited.changed & since)[2:, kept]),
        site=site.astype(np.int32),
        weight=unless_usual(visited.weight[kept]),
        site_names=sites.tolist(),
        page_names=names,
        key=None if visited.key is None else visited.key[kept],
        source=visited.source,
    )
    claims = _claims(visited.claims, position)
    return GrowthHistory(history, (entered[kept] - 1).astype(np.int32), finder.astype(np.int32), claims)


def _claims(claims: Array, position: Array) -> Array:
    """Claims of the pages that are kept, in cycles of the history."""
    own = claims[position[claims["page"]] != NOBODY]
    told = np.empty(len(own), TOLD)
    told["cycle"], told["kind"] = own["cycle"] - 1, own["kind"]
    told["page"] = position[own["page"]]
    told["value"] = renumbered(own["kind"], own["value"], 1)
    return told
