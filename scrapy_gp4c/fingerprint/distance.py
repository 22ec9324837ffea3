"""How far two fingerprints are apart, and whether that is a change."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

_BITS: Final = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1).sum(axis=1, dtype=np.uint8)
"""Bits of every byte; NumPy 1 has no bitwise_count."""


def differ(a: npt.NDArray[np.uint64], b: npt.NDArray[np.uint64], distance_bits: int) -> npt.NDArray[np.bool_]:
    """`is_changed` for arrays of fingerprints: bool ``[P]``."""
    bits = _BITS[(a ^ b).view(np.uint8)].reshape(-1, 8).sum(axis=1, dtype=np.uint8)
    return np.asarray((bits >= distance_bits) | ((a == 0) != (b == 0)))


def distance(a: int, b: int) -> int:
    """Return the Hamming distance of two fingerprints: 0..64 bits."""
    return (a ^ b).bit_count()


def is_changed(a: int, b: int, threshold: int) -> bool:
    """Tell whether the page changed between two fingerprints; text that appears or vanishes always counts."""
    return distance(a, b) >= threshold or (a == 0) != (b == 0)
