"""What is kept of a copy of a page to tell which pages are alike: at most 1.5 KB, without the text.

Counts; which pages of the site the main content links to, as hashes of URLs; and a sketch of the words: of
the distinct ones those of the lowest hashes, with how often each stands there. Pages that say the same keep
the same words, whatever else they say, so that two sketches compare as the texts do (bottom-k sampling: E.
Cohen & H. Kaplan 2007, "Summarizing data using bottom-k sketches", PODC).
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import xxhash

from scrapy_gp4c.words.normal import normalise
from scrapy_gp4c.words.shingles import word_hashes

UInt64s = npt.NDArray[np.uint64]

MOST_TERMS: Final = 256
MOST_LINKS: Final = 72
MOST_BYTES: Final = 1536
"""Of a packed description; a test holds the parts to it."""
_TERM_BITS: Final = 24
_LINK_BITS: Final = 48
_HEAD: Final = struct.Struct("<IIIHB")
"""Words, images, bytes of the body; terms, links."""
_WORDS_ALONE: Final = bytes(
    byte if byte > 127 or chr(byte).isalnum() or chr(byte) == "_" else 32 for byte in range(256)
)
"""ASCII's punctuation stands between words."""
_MULTIPLIER: Final = np.uint64(0xD6E8FEB86659FD93)


class Described(NamedTuple):
    """What a copy is like."""

    words: int
    images: int
    size_bytes: int
    """Of the body."""
    terms: npt.NDArray[np.uint32]
    """``[T]``, ascending: hashes of words, 24 bits."""
    counts: npt.NDArray[np.uint8]
    """``[T]``: how often each stands there, at most 255."""
    links: UInt64s
    """``[L]``, ascending: `link_hash` of pages of the site that the main content links to."""


def describe(text: str, links: list[str], images: int, size_bytes: int) -> Described:
    """Describe a copy by its text, the URLs of its links, and counts."""
    plain = (
        text.lower() if text.isascii() else normalise(text)
    )  # times need no mask here: a third of the time
    found = word_hashes(plain.encode("utf-8", "surrogatepass").translate(_WORDS_ALONE))
    mixed = found * _MULTIPLIER
    mixed ^= mixed >> np.uint64(32)
    mixed *= _MULTIPLIER
    terms, counts = np.unique(mixed >> np.uint64(64 - _TERM_BITS), return_counts=True)
    hashes = np.array(sorted({link_hash(url) for url in links})[:MOST_LINKS], np.uint64)
    return Described(
        len(found),
        images,
        size_bytes,
        terms[:MOST_TERMS].astype(np.uint32),
        np.minimum(counts[:MOST_TERMS], 255).astype(np.uint8),
        hashes,
    )


def link_hash(url: str) -> int:
    """48 bits that tell a page from others, by its URL without scheme and fragment."""
    rest = url.partition("#")[0].partition("://")[2]
    host, slash, path = rest.partition("/")
    return xxhash.xxh64_intdigest(f"{host.lower()}{slash or '/'}{path}".encode("utf-8", "replace")) >> 16


def pack(described: Described) -> bytes:
    """As the store keeps it."""
    words, images, size_bytes, terms, counts, links = described
    head = _HEAD.pack(*(min(one, 2**32 - 1) for one in (words, images, size_bytes)), len(terms), len(links))
    return b"".join((head, _cut(terms.astype("<u4"), 3), counts.tobytes(), _cut(links.astype("<u8"), 6)))


def unpack(packed: bytes) -> Described:
    """Read what `pack` made; raises ValueError for anything else."""
    if len(packed) < _HEAD.size:
        raise ValueError(f"expected at least {_HEAD.size} bytes; found {len(packed)}")
    words, images, size_bytes, terms, links = _HEAD.unpack_from(packed)
    parts = [_HEAD.size, 3 * terms, terms, 6 * links]
    if len(packed) != sum(parts):
        raise ValueError(f"expected {sum(parts)} bytes; found {len(packed)}")
    _, of_terms, of_counts, of_links = (
        np.frombuffer(packed, np.uint8, size, sum(parts[:number])) for number, size in enumerate(parts)
    )
    return Described(
        words,
        images,
        size_bytes,
        _joined(of_terms, 3, "<u4").astype(np.uint32),
        of_counts.copy(),
        _joined(of_links, 6, "<u8").astype(np.uint64),
    )


def _cut(numbers: npt.NDArray[np.unsignedinteger], size: int) -> bytes:
    """The low bytes of little-endian numbers."""
    return numbers.view(np.uint8).reshape(len(numbers), numbers.itemsize)[:, :size].tobytes()


def _joined(raw: npt.NDArray[np.uint8], size: int, dtype: str) -> npt.NDArray[np.unsignedinteger]:
    whole = np.zeros((len(raw) // size, np.dtype(dtype).itemsize), np.uint8)
    whole[:, :size] = raw.reshape(-1, size)
    return whole.view(dtype).ravel()
