"""Discovery of new pages: an estimate of how many new pages per cycle the visits of a page find (bring).

A visit after a gap of g cycles that finds b unknown pages adds b to one sum and g to another, both first
decayed by ``2 ** (-g / 8)``. New pages per cycle are the mean of a Gamma posterior,
``(sum + 0.5) / (cycles + 1)``: a page visited once begins at one in two cycles, and a page that brings
nothing sinks. First visits count in neither sum: links older than the crawl are no growth.
"""

from collections.abc import Mapping, MutableMapping
from typing import Final

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.arrays import Array
from scrapy_gp4c.scoring.expression import Terminal

COLUMNS: Final[dict[str, str]] = {
    "found_by": "<u4",  # number of the page whose visit found this one, plus 1; 0: not known; see `START`
    "entered": "<i4",  # cycle in which the page became known; 0: not known
    "brought_sum": "<f2",  # decayed number of new pages that its visits brought
    "brought_cycles": "<f2",  # decayed number of cycles that these visits looked back on
    "brought_cycle": "<i4",  # cycle of the last visit that brought one; of the first fetch if none did
}
"""Column name -> little-endian dtype."""
START: Final = 2**32 - 1
"""``found_by`` of the spider's start requests."""
HALF_LIFE_CYCLES: Final = 8.0
PRIOR_PAGES: Final = 0.5
PRIOR_CYCLES: Final = 1.0
LEAST_EXPECTED: Final = 0.2
"""Least expected number of new pages for which a hub is visited."""
LEAST_BROUGHT: Final = 0.05
"""Least ``brought_sum`` for which a page that is no start request counts as a hub."""
_MOST: Final = float(np.finfo(np.float16).max)


def observe(state: MutableMapping[str, Array], brought: Array, cycle: int) -> None:
    """Add one visit at `cycle` and the new pages it found to every row, in place; before `terminals.observe`.

    ``state``: ``last_cycle`` and the three columns ``brought_...``, each ``[P]``, of pages that have a copy;
    ``brought``: new pages ``[P]``.
    """
    gap_cycles = (cycle - state["last_cycle"]).astype(np.float64)
    decay = np.exp2(-gap_cycles / HALF_LIFE_CYCLES)
    for name, added in (("brought_sum", brought), ("brought_cycles", gap_cycles)):
        state[name][:] = np.minimum(state[name] * decay + added, _MOST)
    np.copyto(state["brought_cycle"], cycle, where=np.asarray(brought) > 0)


def rate(state: Mapping[str, Array], cycle: int) -> Array:
    """Expected new pages per cycle, by ``brought_sum`` and ``brought_cycles``: float64 ``[P]``."""
    return np.asarray(
        (state["brought_sum"].astype(np.float64) + PRIOR_PAGES)
        / (state["brought_cycles"].astype(np.float64) + PRIOR_CYCLES)
    )


def is_hub(state: Mapping[str, Array], cycle: int) -> npt.NDArray[np.bool_]:
    """Mask ``[P]`` of hubs: pages with a copy that deserve a visit for the new pages it may find.

    The next visit to a hub is expected to find at least `LEAST_EXPECTED` new pages. Besides, earlier visits
    have found some, or it is a start page and expected to find as many in a single cycle.
    """
    has_brought = state["brought_sum"].view(np.uint16) != 0  # comparing float16 takes 20 times as long
    hubs = (state["found_by"] == START) | has_brought
    rows = np.flatnonzero(hubs)  # few in most crawls, and only these need a rate
    of_hubs = {name: state[name][rows] for name in ("brought_sum", "brought_cycles", "last_cycle")}
    expected, has_yield = rate(of_hubs, cycle), of_hubs["brought_sum"] >= LEAST_BROUGHT
    promises = expected * (cycle - of_hubs["last_cycle"]) >= LEAST_EXPECTED
    is_start = state["found_by"][rows] == START
    hubs[rows] = promises & (has_yield | (is_start & (expected >= LEAST_EXPECTED)))
    return np.asarray(hubs)


TERMINALS: Final = {
    "brought": Terminal(
        ("brought_sum", "brought_cycles"),
        rate,
        "new pages that its visits bring per cycle: (decayed sum + 0.5) / (decayed cycles + 1)",
    ),
    "brought_t": Terminal(
        ("brought_cycle",),
        lambda s, cycle: cycle - s["brought_cycle"],
        "cycles since a visit last brought a new page",
    ),
}
