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


# The odd sketch has three blocks of 11, 11 and 10 bits, and a shingle turns one bit of each. An odd number of
# shingles turns at least one bit a block. Of the six shingles of a changed word fewer than three bits
# stay turned once in 15,000 times; with two blocks it was once in 1,500, after a removed word once in 400.
_BLOCKS: Final = (11, 11, 10)
_TOGGLES: Final = np.array(
    [1 << a | 1 << (11 + b) | 1 << (22 + c) for a, b, c in product(*map(range, _BLOCKS))], np.uint32
)
_TO_16_BITS: Final = np.uint64(48)
_OCCURRENCE: Final = np.uint64(0x9FB21C651E98DF25)  # odd
_ROWS: Final = 255  # the most ones that a byte can count


def sim_half(hashes: UInt64s) -> int:
    """Return the 32-bit SimHash of features with these hashes: the majority of their low 32 bits.

    Equals ``Simhash(features, f=32, hashfunc=...)`` of the simhash package, in a tenth of its time.
    """
    columns = -(-hashes.size // _ROWS)
    low = hashes.astype(">u4")  # the low 32 bits
    if columns > 1:
        low = np.concatenate((low, np.zeros(_ROWS * columns - low.size, ">u4")))
    bits = np.unpackbits(low.view(np.uint8)).reshape(-1, columns * 32)
    ones = np.add.reduce(bits, axis=0, dtype=np.uint8)
    if columns > 1:
        ones = ones.reshape(columns, 32).sum(axis=0)
    return int.from_bytes(np.packbits(ones > hashes.size / 2).tobytes(), "big")


def odd_half(hashes: UInt64s) -> int:
    """Return the 32-bit odd sketch of features with these hashes (Mitzenmacher, Pagh & Pham 2014, section 3).

    An odd sketch is of a set: of a feature that occurs several times, each occurrence is another element.
    """
    top = (distinct_hashes(hashes) >> _TO_16_BITS).view(np.int64)
    top *= len(_TOGGLES)
    top >>= 16
    return int(np.bitwise_xor.reduce(_TOGGLES.take(top)))


def distinct_hashes(hashes: UInt64s) -> UInt64s:
    """Return hashes of (feature, number of its occurrence), uint64 in any order.

    Without them a row that a page shows twice cancels itself in every XOR, and its change went unseen.
    """
    ordered = np.sort(hashes)
    repeats = (ordered[1:] == ordered[:-1]).nonzero()[0]
    if repeats.size:
        ranks = np.arange(repeats.size)
        runs = repeats - ranks  # equal within a run of repeats
        repeats += 1
        # The number of an occurrence: how far back its run begins.
        numbers = ranks - runs.searchsorted(runs) + 1
        mixed = ordered[repeats] + numbers.astype(np.uint64) * _OCCURRENCE
        mixed ^= mixed >> np.uint64(31)
        mixed *= _OCCURRENCE
        ordered[repeats] = mixed ^ mixed >> np.uint64(29)
    return ordered


_BITS_OF_BYTE: Final = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1).sum(
    axis=1, dtype=np.uint8
)
# NumPy 1 has no bitwise_count.


_HAS_TEXT: Final = np.uint64(2**32)


def differ(a: UInt64s, b: UInt64s, distance_bits: int) -> npt.NDArray[np.bool_]:
    """Return `is_changed` of arrays of fingerprints, bool ``[P]``."""
    bits = _BITS_OF_BYTE[(a ^ b).view(np.uint8)].reshape(-1, 8).sum(axis=1, dtype=np.uint8)
    appeared = (a >= _HAS_TEXT) != (b >= _HAS_TEXT)
    return np.asarray((bits >= distance_bits) | appeared | ((a == 0) != (b == 0)))


def distance(a: int, b: int) -> int:
    """Return the Hamming distance of two fingerprints, 0..64 bits."""
    return (a ^ b).bit_count()


def lacks_text(has_copy: npt.NDArray[np.uint8], fingerprints: UInt64s) -> npt.NDArray[np.bool_]:
    """Return which pages have a copy without visible text, bool ``[P]``."""
    return np.asarray((has_copy != 0) & (fingerprints < _HAS_TEXT))


def has_text(fingerprint: int) -> bool:
    """Whether the page of a fingerprint has visible text."""
    return fingerprint >= int(_HAS_TEXT)


def is_changed(a: int, b: int, threshold: int) -> bool:
    """Whether a page changed between two fingerprints; text that appears or vanishes always counts."""
    return distance(a, b) >= threshold or (a == 0) != (b == 0) or has_text(a) != has_text(b)
