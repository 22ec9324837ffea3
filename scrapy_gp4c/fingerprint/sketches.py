"""Sketches of features as 32-bit halves of a fingerprint, and distances of fingerprints."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Final

import numpy as np
import numpy.typing as npt
import xxhash

from scrapy_gp4c.words.shingles import SHINGLE_WORDS, UInt64s


def feature_hashes(names: Sequence[str]) -> UInt64s:
    """Return three hashes per feature, uint64 ``[3 * len(names)]``: a feature weighs as much as a word."""
    digest = xxhash.xxh64_intdigest
    encoded = [name.encode() for name in names]
    return np.array([digest(name, seed) for seed in range(SHINGLE_WORDS) for name in encoded], np.uint64)


# The odd sketch has two blocks of 16 bits; a shingle turns one bit in each, by 4 bits of its hash. One
# block would miss a changed word (six shingles) ten times as often; four would not tell it from a sentence.
_TOGGLES: Final = np.array(
    [1 << high | 1 << (16 + low) for high, low in product(range(16), repeat=2)], np.uint32
)
_ROWS: Final = 255  # the most ones that a byte can count


def sim_half(hashes: UInt64s) -> int:
    """Return the 32-bit SimHash of features with these hashes: the majority of their low 32 bits.

    Equals ``Simhash(features, f=32, hashfunc=...)`` of the simhash package, in a tenth of its time.
    """
    columns = -(-hashes.size // _ROWS)
    low = np.zeros(_ROWS * columns, ">u4")
    low[: hashes.size] = hashes & np.uint64(0xFFFFFFFF)
    bits = np.unpackbits(low.view(np.uint8)).reshape(_ROWS, columns * 32)
    ones = np.add.reduce(bits, axis=0, dtype=np.uint8).reshape(columns, 32).sum(axis=0)
    return int.from_bytes(np.packbits(ones > hashes.size / 2).tobytes(), "big")


def odd_half(hashes: UInt64s) -> int:
    """Return the 32-bit odd sketch of features with these hashes: bits that an odd number of them turned."""
    return int(np.bitwise_xor.reduce(_TOGGLES[(hashes >> np.uint64(56)).astype(np.intp)]))


_BITS_OF_BYTE: Final = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1).sum(
    axis=1, dtype=np.uint8
)
# NumPy 1 has no bitwise_count.


def differ(a: UInt64s, b: UInt64s, distance_bits: int) -> npt.NDArray[np.bool_]:
    """Return `is_changed` of arrays of fingerprints, bool ``[P]``."""
    bits = _BITS_OF_BYTE[(a ^ b).view(np.uint8)].reshape(-1, 8).sum(axis=1, dtype=np.uint8)
    return np.asarray((bits >= distance_bits) | ((a == 0) != (b == 0)))


def distance(a: int, b: int) -> int:
    """Return the Hamming distance of two fingerprints, 0..64 bits."""
    return (a ^ b).bit_count()


def is_changed(a: int, b: int, threshold: int) -> bool:
    """Tell whether a page changed between two fingerprints; text that appears or vanishes always counts."""
    return distance(a, b) >= threshold or (a == 0) != (b == 0)
