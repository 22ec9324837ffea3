"""Texts in the form that is compared, shingled and searched. Nothing here raises on any text."""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache
from typing import Final

from scrapy_gp4c.words.masking import mask

MAX_GROWN_CHARACTERS: Final = 2**20
"""Length up to which a text may grow by normalising: one sign may become 18."""


# Scripts written without spaces between words: Thai, Lao, Myanmar, Khmer, kana, Han.
_UNSPACED: Final = re.compile(
    "([\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff])"
)


# Sorting n combining marks in a row takes n^2 steps. UAX #15, section 13, divides runs of more than 30; that
# would change pages with stacked marks ("Zalgo"), and 128 bound the time as well.
MAX_MARKS: Final = 128


_JOINER: Final = "\u034f"  # combining grapheme joiner: no mark is sorted across it


# No mark is a letter or digit, but for two of half width. What else is caught (a line of dashes) stays.
# One class of its own to begin with: ASCII is passed over fast.
_PERHAPS_MARKS: Final = re.compile(rf"[^\x00-\x7f](?:[^\w\x00-\x7f]|[\uff9e\uff9f]){{{MAX_MARKS},}}+")


_INVISIBLE: Final = re.compile("[\u00ad\u200b-\u200f\u202a-\u202e\u2060-\u2064\ufeff]")


_UNICODE_SPACE: Final = re.compile(r"[\s\x00-\x20\x7f-\xa0]+")


@lru_cache(4096)
def _is_mark(character: str) -> bool:
    return unicodedata.combining(unicodedata.normalize("NFKD", character)[0]) > 0


def _divided(run: re.Match[str]) -> str:
    marks = 0
    characters: list[str] = []
    for character in run[0]:
        marks = marks + 1 if _is_mark(character) else 0
        if marks > MAX_MARKS:
            characters.append(_JOINER)
            marks = 1
        characters.append(character)
    return "".join(characters)


def _nfkc(text: str) -> str:
    """Return the text in NFKC, in time linear in its length: long runs of marks are divided.

    One sign may become 18: the text is cut at twice its length, or `MAX_GROWN_CHARACTERS`.
    """
    normal = unicodedata.normalize("NFKC", _PERHAPS_MARKS.sub(_divided, text))
    return normal[: max(2 * len(text), MAX_GROWN_CHARACTERS)]


def normalise(text: str) -> str:
    """Return the text in the form that is compared: NFKC, lower case, times masked."""
    if not text.isascii():
        text = _nfkc(text)
        text = _UNICODE_SPACE.sub(" ", _INVISIBLE.sub("", text))
        return _UNSPACED.sub(r" \1 ", mask(text.lower()))
    return mask(text.lower())
