"""Terminals of measurements: download time, bits by which fingerprints change, PageRank.

A change of d bits between two fingerprints adds d to ``distance_sum`` and 1 to ``distance_n``; a change whose
fingerprints are unknown, as an imported one, adds nothing. The download time is that of the first visit that
measured one, so that a replay, which visits in other cycles, has the same.
"""

from collections.abc import Mapping, MutableMapping
from typing import Final

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.arrays import Array, Floats
from scrapy_gp4c.scoring.expression import Terminal, of_columns

COLUMNS: Final[dict[str, str]] = {
    "latency_ms": "<u2",  # from the request to the answer's headers, of the first visit that measured it
    "distance_sum": "<u4",  # bits in which the fingerprints of its changes differed
    "distance_n": "<u2",  # changes in this sum, saturating
}
"""Column name -> little-endian dtype; 0: not known."""
UNMEASURED_MS: Final = 1_000
"""Assumed download time of a page without a measured one."""


def flips(before: npt.NDArray[np.uint64], after: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """XOR of fingerprints `before` and `after` visits, ``[P]``; 0 where either is 0, that is unknown."""
    return np.where((before == 0) | (after == 0), np.uint64(0), before ^ after)


def observe(state: MutableMapping[str, Array], flipped: npt.NDArray[np.uint64]) -> None:
    """Add a change to each row of known fingerprints, in place; ``flipped``: result of `flips`, ``[P]``.

    ``state``: ``distance_sum`` and ``distance_n``, each ``[P]``.
    """
    counted = (flipped != 0) & (state["distance_n"] < np.iinfo(np.uint16).max)
    bits = np.unpackbits(flipped.astype("<u8").view(np.uint8).reshape(-1, 8), axis=1).sum(1)
    state["distance_sum"] += np.where(counted, bits, 0).astype(np.uint32)
    state["distance_n"] += counted


def costs_ms(latency_ms: Array) -> npt.NDArray[np.int64]:
    """Download times of visits, ``[P]``, with the assumed `UNMEASURED_MS` in place of 0 (not measured)."""
    return np.where(latency_ms > 0, latency_ms, UNMEASURED_MS).astype(np.int64)


def _distance_mean(state: Mapping[str, Array], cycle: int) -> Floats:
    return np.asarray(state["distance_sum"] / np.maximum(state["distance_n"], 1))


TERMINALS: Final = {
    "cost_s": Terminal(
        ("latency_ms",),
        lambda s, cycle: costs_ms(s["latency_ms"]) / 1000.0,
        "download time of the page in s, of the first visit that measured it; 1 where none did",
    ),
    "distance_mean": Terminal(
        ("distance_sum", "distance_n"),
        _distance_mean,
        "bits in which its fingerprint differs after a change, in the mean; 0 before the first change",
    ),
}
LINKED: Final = of_columns(
    {"popularity": "PageRank among the links that the crawl knows, 1 in the mean of all pages"}
)
"""Terminal whose column is computed in every cycle, by `scrapy_gp4c.page_state.groupings`."""
