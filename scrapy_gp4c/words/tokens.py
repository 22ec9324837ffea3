"""Tokens: what pages, queries and the search index have in common."""

from __future__ import annotations

import re
from typing import Final

import numpy as np

from scrapy_gp4c.words.normal import normalise

_TOKEN: Final = re.compile(r"[^\W_]+")
_ASCII: Final = "".join(letter if letter.isalnum() else " " for letter in map(chr, range(128)))
"""By code: a letter or digit, or a blank for what is neither."""
_ASCII_BYTES: Final = _ASCII.encode() + b" " * 128


def tokens_of(normal: str) -> list[str]:
    """Return the tokens of a text that is normalised already."""
    if normal.isascii():  # most texts: less than half of the pattern's time
        return normal.translate(_ASCII).split()
    return _TOKEN.findall(normal)


def spaced(normal: str) -> bytes:
    """Return `tokens_of` a normalised text in UTF-8, a blank between each two; none is made on its own."""
    if not normal.isascii():
        return " ".join(_TOKEN.findall(normal)).encode()
    letters = np.frombuffer(normal.encode().translate(_ASCII_BYTES), np.uint8)
    kept = letters != 32
    kept[:-1] |= kept[1:]  # the last of the blanks before a token
    found: bytes = letters[kept].tobytes()
    return found.lstrip()


def tokens(text: str) -> list[str]:
    """Return the tokens of a text: normalised as for the fingerprint, cut at all that is no letter or digit.

    Scripts written without spaces give a token per character; times, dates and session tokens, which are
    masked, give none.
    """
    return tokens_of(normalise(text))
