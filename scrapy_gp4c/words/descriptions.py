"""Descriptions of pages for clustering: at most 1.5 KB each, without the text.

A description has counts, hashes of the URLs on the same site that the main content links to, and a sketch of
the words: those distinct words with the lowest hashes, and how often each occurs. Pages with common words
keep the same ones, so that two sketches compare as the texts do (bottom-k sampling: Cohen & Kaplan 2007,
"Summarizing data using bottom-k sketches", PODC).
"""

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
"""Largest packed description, in bytes."""
_TERM_BITS: Final = 24
_HEAD: Final = struct.Struct("<IIIHB")
"""Head of a packed description: numbers of words, images, bytes of the body, terms and links."""
_WITHOUT_PUNCTUATION: Final = bytes(
    byte if byte > 127 or chr(byte).isalnum() or chr(byte) == "_" else 32 for byte in range(256)
)
"""Translation table of bytes that turns ASCII punctuation into blanks."""
_MULTIPLIER: Final = np.uint64(0xD6E8FEB86659FD93)


class Description(NamedTuple):
    """Counts, words and links of a page."""

    words: int
    images: int
    size_bytes: int
    """Size of the body."""
    terms: npt.NDArray[np.uint32]
    """Hashes of words, 24 bits each, ascending ``[T]``."""
    counts: npt.NDArray[np.uint8]
    """Occurrences of each word, at most 255 ``[T]``."""
    links: UInt64s
    """`link_hash` of each page of the site that the main content links to, ascending ``[L]``."""


def describe(text: str, links: list[str], images: int, size_bytes: int) -> Description:
    """Return the description of a page; ``links``: URLs in its main content; ``images``: their number."""
    # Times need no mask here, which would triple the time of an ASCII text.
    plain = text.lower() if text.isascii() else normalise(text)
    words = word_hashes(plain.encode("utf-8", "surrogatepass").translate(_WITHOUT_PUNCTUATION))
    mixed = words * _MULTIPLIER
    mixed ^= mixed >> np.uint64(32)
    mixed *= _MULTIPLIER
    terms, counts = np.unique(mixed >> np.uint64(64 - _TERM_BITS), return_counts=True)
    hashes = np.array(sorted({link_hash(url) for url in links})[:MOST_LINKS], np.uint64)
    return Description(
        len(words),
        images,
        size_bytes,
        terms[:MOST_TERMS].astype(np.uint32),
        np.minimum(counts[:MOST_TERMS], 255).astype(np.uint8),
        hashes,
    )


def link_hash(url: str) -> int:
    """Return 48 bits of the hash of a URL without scheme and fragment."""
    host, slash, path = url.partition("#")[0].partition("://")[2].partition("/")
    return xxhash.xxh64_intdigest(f"{host.lower()}{slash or '/'}{path}".encode("utf-8", "replace")) >> 16


def pack(description: Description) -> bytes:
    """Return the bytes of a description, as the store keeps them."""
    words, images, size_bytes, terms, counts, links = description
    head = _HEAD.pack(*(min(one, 2**32 - 1) for one in (words, images, size_bytes)), len(terms), len(links))
    return b"".join(
        (head, _narrow(terms.astype("<u4"), 3), counts.tobytes(), _narrow(links.astype("<u8"), 6))
    )


def unpack(packed: bytes) -> Description:
    """Return the description of `pack`'s bytes; raises ValueError for other bytes."""
    if len(packed) < _HEAD.size:
        raise ValueError(f"expected at least {_HEAD.size} bytes; found {len(packed)}")
    words, images, size_bytes, terms, links = _HEAD.unpack_from(packed)
    sizes = [_HEAD.size, 3 * terms, terms, 6 * links]
    if len(packed) != sum(sizes):
        raise ValueError(f"expected {sum(sizes)} bytes; found {len(packed)}")
    _, term_bytes, count_bytes, link_bytes = (
        np.frombuffer(packed, np.uint8, size, sum(sizes[:number])) for number, size in enumerate(sizes)
    )
    return Description(
        words,
        images,
        size_bytes,
        _widen(term_bytes, 3, "<u4").astype(np.uint32),
        count_bytes.copy(),
        _widen(link_bytes, 6, "<u8").astype(np.uint64),
    )


def _narrow(numbers: npt.NDArray[np.unsignedinteger], size: int) -> bytes:
    """Return the `size` low bytes of each number, little-endian."""
    return numbers.view(np.uint8).reshape(len(numbers), numbers.itemsize)[:, :size].tobytes()


def _widen(raw: npt.NDArray[np.uint8], size: int, dtype: str) -> npt.NDArray[np.unsignedinteger]:
    wide = np.zeros((len(raw) // size, np.dtype(dtype).itemsize), np.uint8)
    wide[:, :size] = raw.reshape(-1, size)
    return wide.view(dtype).ravel()
