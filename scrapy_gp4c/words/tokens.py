"""Tokens of pages, queries and the search index."""

import re
from typing import Final

import numpy as np

from scrapy_gp4c.words.normal import normalise

_TOKEN: Final = re.compile(r"[^\W_]+")
_ASCII: Final = "".join(letter if letter.isalnum() else " " for letter in map(chr, range(128)))
"""Translation table of ASCII characters: a blank for all but letters and digits."""
_ASCII_BYTES: Final = _ASCII.encode() + b" " * 128


def tokens_of(normal: str) -> list[str]:
    """Return the tokens of a normalised text: runs of letters and digits."""
    if normal.isascii():  # most texts: less than half of the pattern's time
        return normal.translate(_ASCII).split()
    return _TOKEN.findall(normal)


def spaced(normal: str) -> bytes:
    """Return `tokens_of` a normalised text, joined by blanks, in UTF-8; no list of tokens is made."""
    if not normal.isascii():
        return " ".join(_TOKEN.findall(normal)).encode()
    letters = np.frombuffer(normal.encode().translate(_ASCII_BYTES), np.uint8)
    is_letter = letters != 32
    is_letter[:-1] |= is_letter[1:]  # the last of the blanks before a token
    joined: bytes = letters[is_letter].tobytes()
    return joined.lstrip()


def tokens(text: str) -> list[str]:
    """Return the tokens of a text: runs of letters and digits of its normal form.

    Scripts without spaces give a token per character. Masked dates, times and session tokens give none.
    """
    return tokens_of(normalise(text))
