"""Tokens: what pages, queries and the search index have in common."""

from __future__ import annotations

import re
from typing import Final

from scrapy_gp4c.words.normal import normalise

_TOKEN: Final = re.compile(r"[^\W_]+")
_ASCII: Final = "".join(letter if letter.isalnum() else " " for letter in map(chr, range(128)))
"""By code: a letter or digit, or a blank for what is neither."""


def tokens_of(normal: str) -> list[str]:
    """Return the tokens of a text that is normalised already."""
    if normal.isascii():  # most texts: less than half of the pattern's time
        return normal.translate(_ASCII).split()
    return _TOKEN.findall(normal)


def tokens(text: str) -> list[str]:
    """Return the tokens of a text: normalised as for the fingerprint, cut at all that is no letter or digit.

    Scripts written without spaces give a token per character; times, dates and session tokens, which are
    masked, give none.
    """
    return tokens_of(normalise(text))
