"""Fingerprint of a page: 64 bits whose Hamming distance says how much the page's text changed.

response -> compared text -> normal form with masks -> hashes of word 3-shingles -> two sketches:

- bits 63..32: SimHash (Charikar 2002; Manku et al. 2007, section 2): the share of the page that changed;
- bits 31..0: odd sketch (Mitzenmacher, Pagh & Pham 2014, section 3): the number of changed shingles,
  whatever the length of the page.

SimHash alone moves 1.7 of 64 bits when a price changes on a page of 1,000 words, so that a threshold of 3
cannot see the change; the odd sketch moves about 10 bits on a page of any length. docs/fingerprint.md has
the measurements. The SimHash of a page without visible text is 0. Nothing here raises on any body.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import numpy as np
import xxhash
from scrapy.http import Response
from simhash import Simhash

from scrapy_gp4c.fingerprint.answers import Answer, answer, bytes_of, page_text
from scrapy_gp4c.fingerprint.sketches import feature_hashes, odd_half, sim_half
from scrapy_gp4c.words.masking import FRENCH_AGO, FRENCH_UNITS, MASK, RELATIVE_WORDS, mask_relative
from scrapy_gp4c.words.normal import normalise, readable
from scrapy_gp4c.words.shingles import (
    SHINGLE_WORDS,
    UInt64s,
    Words,
    hashes_of,
    hashes_of_words,
    word_hashes,
    words_in,
)

KINDS: Final = ("html", "json", "csv", "xml", "pdf", "text", "bytes", "features")
"""Kinds of answers; features for the user's own."""
Features = Callable[[Response], Sequence[str]]


class PageReading(NamedTuple):
    """Fingerprint of a response, and what it is made of."""

    fingerprint: int
    """uint64; below 2**32 if the page has no visible text, 0 if it has nothing to compare."""
    normal: str | None = None
    """Normal form of the compared text if texts are wanted; "" if the response is no text."""
    text: str | None = None
    """Compared text as a visitor reads it if texts are wanted, whatever the features."""
    kind: str = "text"
    """One of `KINDS`."""
    words: int = 0
    """Number of compared words."""
    masked: int = 0
    """Number of masked times, dates, tokens and counters."""
    left_out: tuple[tuple[str, int], ...] = ()
    """Reasons to leave text out, with the number of words."""
    is_cut: bool = False
    """Whether only the head of the page is compared."""
    copy_fingerprint: int | None = None
    """Fingerprint to keep of the copy if it is not the compared one: the page's clock was learned."""
    without_noise: tuple[int, int | None, bytes] | None = None
    """`fingerprint`, `copy_fingerprint` and what is learned of noise, made beside the crawl; None: not."""

    @property
    def kept_fingerprint(self) -> int:
        """Fingerprint to keep of the copy."""
        return self.fingerprint if self.copy_fingerprint is None else self.copy_fingerprint


def features(text: str) -> list[str]:
    """Return the word 3-shingles of a text, character 3-shingles where a script has no spaces.

    The text is padded on both sides, so that every word is part of three shingles; "" has none.
    """
    words = re.split("[\x00-\x20]+", _shingles(normalise(text))[0])
    words = [word for word in words if word]
    if not words:
        return []
    words = ["", "", *words, "", ""]
    return [" ".join(words[i : i + SHINGLE_WORDS]) for i in range(len(words) - SHINGLE_WORDS + 1)]


def main_features(response: Response) -> list[str]:
    """Return the shingles of the main content only (for ``GP4C_FEATURES``): of `<main>` or `<article>`."""
    return features(page_text(response, "main,[role=main],article"))


def simhash_words(response: Response) -> list[str]:
    """Return the words of the compared text as they stand (``GP4C_FINGERPRINT = "simhash"``).

    `read` makes a 64-bit SimHash of them by the simhash package (thesis 4.2; Manku et al. 2007): nothing is
    masked, and nothing learned.
    """
    return readable(page_text(response)).split()


def _simhash(names: list[str]) -> int:
    """Return the 32-bit SimHash of features by the simhash package, with xxHash64 as its hash function."""
    return int(Simhash(names, f=32, hashfunc=xxhash.xxh64_digest).value)


def _sketch(hashes: UInt64s, *, has_text: bool = True) -> int:
    if hashes.size == 0:
        return 0
    if not has_text:
        return odd_half(hashes) or 1
    return (sim_half(hashes) or 1) << 32 | odd_half(hashes)


def fingerprint_of_text(text: str) -> int:
    """Return the fingerprint of a text as uint64; 0 if and only if it has no words."""
    return _sketch(_shingles(normalise(text))[1])


def fingerprint(response: Response, features: Features | None = None) -> int:
    """Return the fingerprint of a response as uint64; 0 if nothing of it can be compared.

    ``features`` names what counts instead of the page's text: one changed string moves about 10 bits. A
    body without text (an image) gives its xxHash64, so that any other byte is a change.
    """
    return read(response, features).fingerprint


def read(response: Response, features: Features | None = None, *, with_text: bool = False) -> PageReading:
    """Return the reading of a response: fingerprint, counts, and texts if they are wanted."""
    if features is None:
        content = answer(response)
        reading, normal = _reading(content)
        return reading._replace(normal=normal, text=readable(content.content.text)) if with_text else reading
    if features is simhash_words:
        content = answer(response)
        reading, normal = _reading(content)
        text = readable(content.content.text)
        if content.data is None and content.content.has_text and (words := text.split()):
            value = int(Simhash(words).value)
            # A value below 2**32 would say that the page has no visible text.
            reading = reading._replace(fingerprint=value if value >> 32 else value | 1 << 32, masked=0)
        return reading._replace(normal=normal, text=text) if with_text else reading
    names = [name.encode("utf-8", "replace").decode() for name in features(response)]  # lone surrogates
    value = (_simhash(names) or 1) << 32 | odd_half(feature_hashes(names)) if names else 0
    reading = PageReading(value, kind="features", words=len(names))
    if not with_text:
        return reading
    text = page_text(response)
    return reading._replace(normal=normalise(text), text=readable(text))


def read_bytes(response: Response) -> PageReading:
    """Return the fingerprint of a response by its bytes alone."""
    return _reading(bytes_of(response))[0]


_SPREAD: Final = np.uint64(0x9E3779B97F4A7C15)  # odd: spreads the hashes of short words
_TO_16_BITS: Final = np.uint64(48)


def _hashes_of_relative(words: frozenset[str]) -> UInt64s:
    return word_hashes(" ".join(word + end for word in words for end in ("", ".", ",", ")", ":")).encode())


_RELATIVE: Final = frozenset(_hashes_of_relative(RELATIVE_WORDS).tolist())
_FRENCH_RELATIVE: Final = _RELATIVE | frozenset(_hashes_of_relative(FRENCH_UNITS).tolist())
_MAY_BE_RELATIVE: Final = np.zeros(2**16, bool)
_MAY_BE_RELATIVE[_hashes_of_relative(RELATIVE_WORDS | FRENCH_UNITS) * _SPREAD >> _TO_16_BITS] = True


def _shingles(normal: str) -> tuple[str, UInt64s]:
    """Return a normal form without relative times in words, and the hashes of its shingles."""
    words = words_in(normal.encode("utf-8", "surrogatepass"))
    hashes = hashes_of(words)
    # The hashes say in a few microseconds whether the text has any word of these times, and where.
    candidates = _MAY_BE_RELATIVE.take((hashes * _SPREAD >> _TO_16_BITS).view(np.int64)).nonzero()[0]
    values = zip(candidates.tolist(), hashes.take(candidates).tolist(), strict=True)
    relative = [(place, value) for place, value in values if value in _FRENCH_RELATIVE]
    is_french = bool(relative) and FRENCH_AGO in normal
    places = [place for place, value in relative if is_french or value in _RELATIVE]
    if places and (masked := _without_relative_times(words, places)) is not None:
        return masked, hashes_of_words(word_hashes(masked.encode("utf-8", "surrogatepass")))
    return normal, hashes_of_words(hashes)


def _without_relative_times(words: Words, places: list[int]) -> str | None:
    """Mask relative times around some words; None if there are none."""
    text, count = words.padded.tobytes(), len(words.starts)
    pieces: list[bytes] = []
    done = 1  # behind the padding
    for number in places:
        if words.starts[number] < done:
            continue
        start = max(int(words.starts[max(number - 4, 0)]), done)
        last = min(number + 3, count - 1)
        end = int(words.starts[last] + words.sizes[last])
        window = text[start:end].decode("utf-8", "surrogatepass")
        masked = mask_relative(window)
        if masked != window:
            pieces += (text[done:start], masked.encode("utf-8", "surrogatepass"))
            done = end
    if not pieces:
        return None
    return b"".join((*pieces, text[done:])).decode("utf-8", "surrogatepass").rstrip()


def _reading(page_content: Answer) -> tuple[PageReading, str]:
    kind, content, data, is_cut = page_content
    if data is not None:
        value = (xxhash.xxh64_intdigest(data) or 1) if data else 0
        return PageReading(value, kind=kind), ""
    normal, hashes = _shingles(normalise(content.text))
    left_out: dict[str, int] = {}
    for one in content.left_out:
        left_out[one.reason] = left_out.get(one.reason, 0) + one.words
    reading = PageReading(
        _sketch(hashes, has_text=content.has_text),
        kind=kind,
        words=max(hashes.size - SHINGLE_WORDS + 1, 0),
        masked=normal.count(MASK),
        left_out=tuple(left_out.items()),
        is_cut=is_cut,
    )
    return reading, normal
