"""Random numbers of pages, one per page and cycle: pure functions of seed, cycle and page key."""

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


@lru_cache(16)
def draw_salt(seed: int, cycle: int) -> np.uint64:
    """Number mixed into all draws of a seed and cycle, see `draws`."""
    stream = (seed * GOLDEN + cycle * 0xD1342543DE82EF95) % 2**64
    with np.errstate(over="ignore"):
        return np.uint64(mix(np.array([stream], dtype=np.uint64))[0])


def salted_draws(keys: npt.NDArray[np.uint64], salt: np.uint64) -> npt.NDArray[np.uint64]:
    """Draws of one cycle by its `draw_salt`: uint64 ``[P]``. Distinct keys draw distinct numbers."""
    with np.errstate(over="ignore"):
        return mix(mix(keys + np.uint64(GOLDEN)) ^ salt)


def draws(keys: npt.NDArray[np.uint64], seed: int, cycle: int) -> npt.NDArray[np.uint64]:
    """Random numbers of pages, new in every cycle: uint64 ``[P]``.

    A pure function of seed, cycle and key: it needs no state and can be repeated in any order. ``keys``:
    uint64 ``[P]``, distinct per page.
    """
    return salted_draws(keys, draw_salt(seed, cycle))


class Purpose(IntEnum):
    """Decisions that a page's draw makes in a cycle, besides its rank."""

    FOLLOW = 1
    """Whether a sample's neighbours are fetched."""
    NEIGHBOUR = 2
    """Which of equally near neighbours come first."""
    GROUP = 3
    """Which of equal groups comes first: its own highest draw would favour the large ones."""


def drawn_for(drawn: npt.NDArray[np.uint64], purpose: Purpose) -> npt.NDArray[np.uint64]:
    """Draws for one purpose, independent of the draws for rank and for other purposes."""
    with np.errstate(over="ignore"):
        return mix(drawn + np.uint64(purpose * GOLDEN % 2**64))


def uniform(drawn: npt.NDArray[np.uint64]) -> npt.NDArray[np.float64]:
    """Draws as numbers in [0, 1), each a multiple of 2**-53."""
    return np.asarray((drawn >> np.uint64(11)) * 2.0**-53)
