"""The text fingerprint of a page: 64 bits whose Hamming distance says how much the text changed.

response -> visible text -> times masked -> word 3-shingles -> one 64-bit hash each -> two sketches:

- bits 63..32: SimHash (Charikar 2002; Manku et al. 2007, section 2): which share of the page changed;
- bits 31..0: odd sketch (Mitzenmacher, Pagh and Pham 2014, section 3): how many shingles changed
  *in number*, whatever the length of the page.

SimHash alone moves 1.7 of 64 bits when a price changes on a page of 1,000 words, so a threshold of 3
cannot see it; the odd sketch moves about 9 bits on a page of any length. docs/fingerprint.md has the
measurements. Nothing here raises on any body.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

import xxhash
from scrapy.http import Response, TextResponse
from simhash import Simhash

from scrapy_gp4c.fingerprint.sketches import feature_hashes, odd_half, sim_half
from scrapy_gp4c.fingerprint.text import page_text
from scrapy_gp4c.words.normal import normalise
from scrapy_gp4c.words.shingles import SHINGLE_WORDS, UInt64s, shingle_hashes

Features = Callable[[Response], Sequence[str]]


class PageReading(NamedTuple):
    """What is read of a response."""

    fingerprint: int
    """uint64; 0 for a page without text."""
    normal: str | None = None
    """Its normalised text, if texts were asked for; "" where it is no text."""
    text: str | None = None
    """Its text as a visitor reads it, whatever the features; likewise."""


def features(text: str) -> list[str]:
    """Return the word 3-shingles of a text, character 3-shingles where a script has no spaces.

    The text is padded on both sides, so that every word is part of three shingles; "" has none.
    """
    words = re.split("[\x00-\x20]+", normalise(text))
    words = [word for word in words if word]
    if not words:
        return []
    words = ["", "", *words, "", ""]
    return [" ".join(words[i : i + SHINGLE_WORDS]) for i in range(len(words) - SHINGLE_WORDS + 1)]


def main_features(response: Response) -> list[str]:
    """Return the shingles of the main content only (for ``GP4C_FEATURES``): of `<main>` or `<article>`."""
    return features(page_text(response, "main,[role=main],article"))


def _simhash(names: list[str]) -> int:
    """Return the 32-bit SimHash of features by the simhash package, with xxHash64 as its hash function."""
    return int(Simhash(names, f=32, hashfunc=xxhash.xxh64_digest).value)


def _sketch(hashes: UInt64s) -> int:
    if hashes.size == 0:
        return 0
    return (sim_half(hashes) << 32 | odd_half(hashes)) or 1


def fingerprint_of_text(text: str) -> int:
    """Return the fingerprint of a text as uint64; 0 if and only if it has no words."""
    return _sketch(shingle_hashes(normalise(text)))


def fingerprint(response: Response, features: Features | None = None) -> int:
    """Return the fingerprint of a response as uint64; 0 for a page without text.

    ``features`` names what counts instead of the page's text: one changed string moves about 7 bits. A body
    that is not text (an image, a PDF) gives its xxHash64, so any other byte is a change.
    """
    if features is not None:
        names = [name.encode("utf-8", "replace").decode() for name in features(response)]  # lone surrogates
        if not names:
            return 0
        return (_simhash(names) << 32 | odd_half(feature_hashes(names))) or 1
    if isinstance(response, TextResponse):
        return fingerprint_of_text(page_text(response))
    return (xxhash.xxh64_intdigest(response.body) or 1) if response.body else 0


def read(response: Response, features: Features | None = None, *, with_text: bool = False) -> PageReading:
    """Return the fingerprint of a response, as `fingerprint` does, and its texts if these are asked for."""
    if not with_text:
        return PageReading(fingerprint(response, features))
    text = page_text(response)
    normal = normalise(text)
    if features is None and isinstance(response, TextResponse):
        return PageReading(_sketch(shingle_hashes(normal)), normal, text)
    return PageReading(fingerprint(response, features), normal, text)
