"""One random number per page and cycle: pure functions of seed, cycle and page key."""

from __future__ import annotations

from enum import IntEnum
from functools import lru_cache
from typing import Final

import numpy as np
import numpy.typing as npt

_MIX_1: Final = np.uint64(0xBF58476D1CE4E5B9)

_MIX_2: Final = np.uint64(0x94D049BB133111EB)

GOLDEN: Final = 0x9E3779B97F4A7C15


def mix(values: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Finaliser of SplitMix64 (Steele, Lea & Flood 2014): a bijection with good avalanche."""
    values = (values ^ (values >> np.uint64(30))) * _MIX_1
    values = (values ^ (values >> np.uint64(27))) * _MIX_2
    return values ^ (values >> np.uint64(31))


@lru_cache(16)  # that of the open cycle
def draw_salt(seed: int, cycle: int) -> np.uint64:
    """What distinguishes the draws of (seed, cycle) from all others; see `draws`."""
    stream = (seed * GOLDEN + cycle * 0xD1342543DE82EF95) % 2**64
    with np.errstate(over="ignore"):
        return np.uint64(mix(np.array([stream], dtype=np.uint64))[0])


def salted_draws(keys: npt.NDArray[np.uint64], salt: np.uint64) -> npt.NDArray[np.uint64]:
    """Draws of one cycle, given its `draw_salt`: uint64 ``[P]``. Distinct keys draw distinct numbers."""
    with np.errstate(over="ignore"):
        return mix(mix(keys + np.uint64(GOLDEN)) ^ salt)


def draws(keys: npt.NDArray[np.uint64], seed: int, cycle: int) -> npt.NDArray[np.uint64]:
    """One random number per page, drawn anew in every cycle: uint64 ``[P]``.

    A pure function of (seed, cycle, key), so that it needs no state, is the same in any order of
    evaluation and can be repeated from the seed alone. ``keys``: uint64 ``[P]``, distinct per page.
    """
    return salted_draws(keys, draw_salt(seed, cycle))


class Purpose(IntEnum):
    """What else a page's draw of a cycle decides, besides its rank."""

    FOLLOW = 1
    """Whether a sample's neighbours are fetched."""
    NEIGHBOUR = 2
    """Which of equally near neighbours come first."""
    GROUP = 3
    """Which of equal groups comes first: its own highest draw would favour the large ones."""


def drawn_for(drawn: npt.NDArray[np.uint64], purpose: Purpose) -> npt.NDArray[np.uint64]:
    """Numbers that tell nothing of the draws that they follow from, nor of those for other purposes."""
    with np.errstate(over="ignore"):
        return mix(drawn + np.uint64(purpose * GOLDEN % 2**64))


def uniform(drawn: npt.NDArray[np.uint64]) -> npt.NDArray[np.float64]:
    """Draws as numbers in [0, 1), each a multiple of 2**-53."""
    return np.asarray((drawn >> np.uint64(11)) * 2.0**-53)
