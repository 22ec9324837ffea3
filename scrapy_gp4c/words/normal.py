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
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]+"
)


# Sorting n combining marks in a row takes n^2 steps. UAX #15, section 13, divides runs of more than 30; that
# would change pages with stacked marks ("Zalgo"), and 128 bound the time as well.
MAX_MARKS: Final = 128


_JOINER: Final = "\u034f"  # combining grapheme joiner: no mark is sorted across it


# No mark is a letter or digit, but for two of half width. What else is caught (a line of dashes) stays.
# One class of its own to begin with: ASCII is passed over fast.
_PERHAPS_MARKS: Final = re.compile(rf"[^\x00-\x7f](?:[^\w\x00-\x7f]|[\uff9e\uff9f]){{{MAX_MARKS},}}+")


_INVISIBLE: Final = re.compile(
    "[\u00ad\u200b-\u200f\u202a-\u202e\u2060-\u2064\ufeff\u0640\U0010ff00-\U0010ff7f]"
)


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


# A superscript behind a digit is another number: 10² is not 102. Behind a letter it is how some write m2.
_RAISED: Final = re.compile("(?<=[0-9])([\u00b2\u00b3\u00b9\u00bc-\u00be\u2070-\u209c\u2150-\u215e])")
_OTHER_DIGIT: Final = re.compile(r"[^\W\D0-9]")
_TWINS: Final = (
    *(('"', quote) for quote in "“”„‟«»″〝〞"),
    *(("'", quote) for quote in "‘’‚‛‹›′ʼ"),
    *(("-", dash) for dash in "‐‑‒–—―−﹣"),
    *(("/", slash) for slash in "⁄∕"),
    ("x", "×"),
)
"""Typographic signs and their plain twins."""


def normalise(text: str) -> str:
    """Return the text in the form that is compared: NFKC, plain signs and digits, lower case, masked."""
    if text.isascii():
        return mask(text.lower())
    return _UNSPACED.sub(_spaced, mask(_plain(text)))


def plain_form(text: str) -> str:
    """Return the text in the form that is compared, but for the masks."""
    return text.lower() if text.isascii() else _UNSPACED.sub(_spaced, _plain(text))


def _plain(text: str) -> str:
    text = _nfkc(_RAISED.sub(r" ^\1", text))
    for plain, sign in _TWINS:
        if sign in text:
            text = text.replace(sign, plain)
    if _OTHER_DIGIT.search(text) is not None:
        text = _OTHER_DIGIT.sub(lambda digit: str(unicodedata.digit(digit[0])), text)
    return _UNICODE_SPACE.sub(" ", _INVISIBLE.sub("", text)).lower()


def _spaced(run: re.Match[str]) -> str:
    """Characters of a script without spaces as words."""
    return f" {' '.join(run[0])} "
