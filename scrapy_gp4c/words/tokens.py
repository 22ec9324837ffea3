"""Tokens: what pages, queries and the search index have in common."""

from __future__ import annotations

import re
from typing import Final

from scrapy_gp4c.words.normal import normalise

_TOKEN: Final = re.compile(r"[^\W_]+")


def tokens_of(normal: str) -> list[str]:
    """Return the tokens of a text that is normalised already."""
    return _TOKEN.findall(normal)


def tokens(text: str) -> list[str]:
    """Return the tokens of a text: normalised as for the fingerprint, cut at all that is no letter or digit.

    Scripts written without spaces give a token per character; times, dates and session tokens, which are
    masked, give none.
    """
    return tokens_of(normalise(text))
