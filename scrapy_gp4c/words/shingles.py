"""Hashes of a text's words and of its shingles of three words, 64 bits each.

NumPy works on all bytes of a text at once, because calling a hash function for each shingle would take three
times as long as parsing the page. Hashes depend neither on the machine nor on the position in the text.
"""

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import xxhash

SHINGLE_WORDS: Final = 3

UInt64s = npt.NDArray[np.uint64]

_MULTIPLIER: Final = np.uint64(0x9E3779B97F4A7C15)  # 2^64 / golden ratio (Knuth, TAOCP 3, section 6.4): odd
_POSITION_FACTORS: Final = np.array(
    [0xE7037ED1A0B428DB, 0xA0761D6478BD642F, 0xD6E8FEB86659FD93], np.uint64
)  # all odd
_FIRST_BYTES: Final = np.array([(1 << 8 * size) - 1 for size in range(9)], np.uint64)
_MAX_VECTOR_BYTES: Final = 64  # of a longer word the rest is hashed on its own: bounds the time of any text


def shingle_hashes(normal: str) -> UInt64s:
    """Return a hash per shingle of a text: uint64 ``[words + 2]`` with shorter ones at its ends, or empty."""
    return hashes_of_shingles(word_hashes(normal.encode("utf-8", "surrogatepass")))


def hashes_of_shingles(words: UInt64s) -> UInt64s:
    """Return `shingle_hashes` of a text; ``words``: its `word_hashes`."""
    if words.size == 0:
        return words
    # A sum of words times odd constants, modulo 2^64: another word at one place is always another sum.
    hashes = np.convolve(words, _POSITION_FACTORS)
    # xor-shift, multiply, xor-shift: every bit of the sum reaches the low half and the highest byte.
    hashes ^= hashes >> np.uint64(32)
    hashes *= _MULTIPLIER
    hashes ^= hashes >> np.uint64(32)
    return hashes


class Words(NamedTuple):
    """Positions of a text's words, which blanks and control bytes (up to 32) separate."""

    padded: npt.NDArray[np.uint8]
    """Bytes of the text, between one blank and nine blanks."""
    starts: npt.NDArray[np.intp]
    """Position of each word in `padded` ``[words]``."""
    sizes: npt.NDArray[np.intp]
    """Size of each word in bytes ``[words]``."""
    heads: UInt64s
    """First 8 bytes of each word as a little-endian number ``[words]``."""


def words_in(text: bytes) -> Words:
    """Return the words of a text in UTF-8."""
    data = np.frombuffer(b" " + text + b" " * 9, np.uint8)
    inside = data > 32
    edges = (inside[1:] != inside[:-1]).nonzero()[0]
    edges += 1
    starts = edges[::2]
    sizes = edges[1::2] - starts
    heads: UInt64s = _eights(data)[starts]
    heads &= _FIRST_BYTES.take(sizes, mode="clip")
    return Words(data, starts, sizes, heads)


def _eights(data: npt.NDArray[np.uint8]) -> UInt64s:
    """Return bytes i..i+7 as one little-endian number, for each position i."""
    return np.ndarray((data.size - 7,), "<u8", data, 0, (1,))


def word_hashes(text: bytes) -> UInt64s:
    """Return a number per word, uint64 ``[words]``: its bytes, or their hash if there are more than 8."""
    return hashes_of_words(words_in(text))


def hashes_of_words(words_of_text: Words) -> UInt64s:
    """Return `word_hashes` of a text; ``words_of_text``: result of `words_in`."""
    data, starts, sizes, words = words_of_text
    longer = (sizes > 8).nonzero()[0]
    for done in range(8, _MAX_VECTOR_BYTES, 8):
        if not longer.size:
            return words
        further = _eights(data)[starts[longer] + done]
        further &= _FIRST_BYTES.take(sizes[longer] - done, mode="clip")
        words[longer] = words[longer] * _MULTIPLIER + further
        longer = longer[sizes[longer] > done + 8]
    for word in longer.tolist():
        start = int(starts[word])
        words[word] = xxhash.xxh64_intdigest(data[start : start + int(sizes[word])].tobytes())
    return words
