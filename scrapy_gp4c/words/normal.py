"""Normal form of texts, in which they are compared, shingled and searched. No text makes it raise."""

import re
import unicodedata
from functools import lru_cache
from typing import Final

from scrapy_gp4c.words.masking import (
    CLOCK_BEGIN,
    CLOCK_END,
    DATED,
    MASK,
    PROSE_BEGIN,
    PROSE_END,
    is_dated,
    mask,
)

MAX_GROWN_CHARACTERS: Final = 2**20
"""Length up to which a text may grow by NFKC: one character may become 18."""

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

CODE_FORM: Final = "\x06"
"""Sign before a word that encodes the case and indentation of code on a page, which the text lacks."""
_FORM: Final = re.compile(f" ?{CODE_FORM}[g-v]{{8}}")
_INVISIBLE: Final = frozenset(
    map(
        chr,
        (
            *(0xAD, 0x640, 0xFE0E, 0xFE0F, 0xFEFF),
            *range(0x200B, 0x2010),
            *range(0x202A, 0x202F),
            *range(0x2060, 0x2065),
            *range(0x10FF00, 0x10FF80),
        ),
    )
)
_SIGNS: Final = (CLOCK_BEGIN, CLOCK_END, DATED, PROSE_BEGIN, PROSE_END)
_CONTROLS: Final = frozenset(map(chr, (*range(9), *range(14, 28), *range(127, 160)))).difference(_SIGNS)


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


_PRINTABLE: Final = bytes(range(ord(" "), ord("~") + 1))

# A superscript behind a digit is another number: 10² is not 102. Behind a letter it is how some write m2.
_RAISED_SIGNS: Final = frozenset(
    map(chr, (0xB2, 0xB3, 0xB9, *range(0xBC, 0xBF), *range(0x2070, 0x209D), *range(0x2150, 0x215F)))
)
_RAISED: Final = re.compile(f"[{''.join(sorted(_RAISED_SIGNS))}](?<=[0-9].)")
_TWINS: Final = {
    **dict.fromkeys("“”„‟«»″〝〞״", '"'),
    **dict.fromkeys("‘’‚‛‹›′ʼ׳", "'"),
    **dict.fromkeys("‐‑‒–—―−﹣־", "-"),
    **dict.fromkeys("⁄∕", "/"),
    "×": "x",
    **dict.fromkeys("،፣٬", ","),
    "٫": ".",
    "៖": ":",
}
"""Typographic character -> plain ASCII one."""

_MOMENT: Final = re.compile(f"{CLOCK_BEGIN}[^{CLOCK_BEGIN}{CLOCK_END}]*+{CLOCK_END}")
_NO_SIGNS: Final = str.maketrans("", "", "".join(_SIGNS))
_YEAR: Final = re.compile("(?:19|20)[0-9][0-9]")


def readable(text: str) -> str:
    """Return the text of a page as a visitor reads it, without the signs of clocks, statements and code."""
    if CODE_FORM in text:
        text = _FORM.sub("", text)
    return text.translate(_NO_SIGNS) if any(sign in text for sign in _SIGNS) else text


def _masked_moment(moment: re.Match[str]) -> str:
    """Return the mask for a time that markup says is a clock, or the time if its words say a statement."""
    if DATED in moment[0][:4]:
        return moment[0][1:-1]
    before = moment.string[max(moment.start() - 64, 0) : moment.start()]
    return moment[0][1:-1] if _YEAR.search(moment[0]) and is_dated(before, "") else MASK


def normalise(text: str) -> str:
    """Return the normal form of a text: NFKC, plain punctuation and digits, lower case, times masked."""
    text, has_unspaced = (text.lower(), False) if text.isascii() else _plain(text)
    if CLOCK_BEGIN in text:
        text = _MOMENT.sub(_masked_moment, text)
    masked = mask(text)
    for sign in (DATED, PROSE_BEGIN, PROSE_END):
        if sign in masked:
            masked = masked.replace(sign, "")
    return _UNSPACED.sub(_spaced, masked) if has_unspaced else masked


def plain_form(text: str) -> str:
    """Return the normal form of a text, but without masks."""
    text = readable(text)
    return text.lower() if text.isascii() else _UNSPACED.sub(_spaced, _plain(text)[0])


def _plain(text: str) -> tuple[str, bool]:
    """Return the unmasked normal form of a text, and whether it may have scripts without spaces."""
    rare = _beyond_ascii(text)  # one look at which signs there are spares most texts a pattern for each kind
    if not rare.isdisjoint(_RAISED_SIGNS):
        text = _RAISED.sub(r" ^\g<0>", text)
    if any(map(_is_mark, rare)):
        text = _PERHAPS_MARKS.sub(_divided, text)
    # Most texts are in NFKC once each of their signs is: a form of all the text takes ten times as long.
    for sign in [*rare]:
        if (normal := unicodedata.normalize("NFKC", sign)) != sign:
            text = text.replace(sign, normal)[: max(len(text), MAX_GROWN_CHARACTERS)]
            rare = rare.difference(sign).union(normal)
    if not unicodedata.is_normalized("NFKC", text):
        text = unicodedata.normalize("NFKC", text)
        rare = _beyond_ascii(text)
    if "«" in rare:  # French quotes have blanks inside
        text = text.replace("« ", "«").replace(" »", "»")
    if "।" in rare:  # some write a blank before the full stop of Hindi
        text = text.replace(" ।", "।")
    replaced = {sign: _TWINS[sign] for sign in rare & _TWINS.keys()}
    replaced |= dict.fromkeys(rare & _INVISIBLE, "") | dict.fromkeys(rare & _CONTROLS, " ")
    replaced |= {sign: str(unicodedata.digit(sign)) for sign in rare if sign.isdecimal()}
    for sign, plain in replaced.items():
        text = text.replace(sign, plain)
    has_unspaced = any(sign >= "\u0e00" and not "\u2000" <= sign < "\u3000" for sign in rare)
    return " ".join(text.split()).lower(), has_unspaced


def _beyond_ascii(text: str) -> set[str]:
    rare = text.encode("utf-8", "surrogatepass").translate(None, _PRINTABLE)
    return set(rare.decode("utf-8", "surrogatepass"))


def _spaced(run: re.Match[str]) -> str:
    """Return a run of a script without spaces with a blank around each character, as words."""
    return f" {' '.join(run[0])} "
