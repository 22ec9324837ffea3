"""Write the table of words of dates and relative times of 80 languages, from Unicode's CLDR as Babel has it.

Run: ``python -m tools.date_words``, with Babel installed, to write scrapy_gp4c/words/date_words.json again.
"""

from __future__ import annotations

import json
import re
import sys
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from babel import Locale

TABLE = Path(__file__).parents[1] / "scrapy_gp4c" / "words" / "date_words.json"
LANGUAGES = """
af am ar ar_LB az be bg bn bs ca cs cy da de de_AT el en es et eu fa fi fil fr ga gl gu he hi hr hu
hy id is it ja ka kk km kn ko ky lb lo lt lv mk ml mn mr ms mt my nb ne nl nn pa pl ps pt ro ru si
sk sl sq sr sr_Latn sv sw ta te th tr uk ur uz vi zh zh_Hant zu
"""
UNSPACED = ("ja", "km", "ko", "lo", "my", "th", "zh", "zh_Hant")
UNITS = ("year", "month", "week", "day", "hour", "minute", "second")
WORD = re.compile(r"[^\s0-9!-/:-@\[-`{-~{}]+")
# What CLDR lacks: months of the Persian calendar, short English days, Austrian and older forms.
MORE_MONTHS = """sept jänner feber fevereiro setiembre mrt
فروردین اردیبهشت خرداد تیر مرداد شهریور مهر آبان آذر دی بهمن اسفند"""
MORE_WEEKDAYS = "tues thur thurs segunda terça terca quarta quinta sexta mittw sonnabend"
MORE_UNITS = "sec secs min mins hr hrs wk wks mo mos yr yrs"
# Months that are common words where no year stands beside them.
WEAK_MONTHS = """
may march mars out set ago mar maja ocak mag ta tir led pro lis lip ara tem kas sty gen
giu gru haz nis oca sie dub ian lut agu
"""
SHORT_MONTHS = ("cs", "da", "de", "en", "es", "fr", "id", "it", "nb", "nl", "pl", "pt", "ro", "sv", "tr")


def normal(text: str) -> str:
    """Return a name in the form in which pages are compared."""
    return unicodedata.normalize("NFKC", text).lower().replace("\u200f", "").replace("\u200e", "").strip()


def names(locale: Locale, table: str) -> Iterator[str]:
    """Yield the one-word names of months or days, with Hebrew's prefix."""
    for context in ("format", "stand-alone"):
        for width in ("wide", "abbreviated"):
            for name in getattr(locale, table)[context].get(width, {}).values():
                word = normal(name).rstrip(".")
                if WORD.fullmatch(word) and len(word) > 2:
                    yield word
                    if locale.language == "he":
                        yield f"ב{word}"
                elif len(first := WORD.findall(word)) == 2 and locale.language == "ar":
                    yield first[0]


def past(locale: Locale) -> Iterator[tuple[str, str]]:
    """Yield (before, after) of the number in "5 hours ago"."""
    fields: Any = locale._data["date_fields"]
    for unit in UNITS:
        for width in ("", "-short", "-narrow"):
            if f"{unit}{width}" not in fields:
                continue
            for pattern in dict(fields[f"{unit}{width}"].get("past", {})).values():
                before, number, after = normal(pattern).partition("{0}")
                if number:
                    yield before.strip(), after.strip()


def table() -> dict[str, list[Any]]:
    """Return names of months and days, pairs of words of relative times, and suffixes of unspaced scripts."""
    names_of: dict[str, set[str]] = {
        "months": set(MORE_MONTHS.split()),
        "weekdays": set(MORE_WEEKDAYS.split()),
        "unspaced": set(),
    }
    before_unit: set[tuple[str, str]] = set()
    unit_after = {(unit, after) for unit in MORE_UNITS.split() for after in ("ago", "earlier")}
    for name in LANGUAGES.split():
        locale = Locale.parse(name)
        for month in names(locale, "months"):
            if len(month) > 3 or name in SHORT_MONTHS or not month.isascii():
                names_of["months"].add(month)
        names_of["weekdays"].update(names(locale, "days"))
        for before, after in past(locale):
            words = [word for word in WORD.findall(after) if word != "de"]  # acum 25 de minute
            if before and WORD.findall(before) and words:  # vor 5 Stunden; for 5 timer siden
                before_unit.add((WORD.findall(before)[-1], words[0]))
                if len(words) > 1:
                    unit_after.add((words[0], words[-1]))
            elif name in UNSPACED and not before:
                names_of["unspaced"].add(after)
            elif len(words) > 1:  # 5 hours ago
                unit_after.add((words[0], words[-1]))
            elif len(words) == 1 and not before:  # 5 oraja: the unit says that it is past
                names_of["unspaced"].add(after)
    # Danish and Norwegian say "for 5 timer siden", but "for 5 timer" is no past.
    before_unit = {pair for pair in before_unit if pair[0] not in ("for", "fyrir")}
    unit_after |= {(unit, "earlier") for unit, after in unit_after if after == "ago"}
    names_of["weak_months"] = names_of["months"] & set(WEAK_MONTHS.split())
    names_of["months"] -= names_of["weak_months"]
    made: dict[str, list[Any]] = {key: sorted(words) for key, words in names_of.items()}
    return {**made, "before_unit": sorted(before_unit), "unit_after": sorted(unit_after)}


def main() -> int:
    """Write the table."""
    text = json.dumps(table(), ensure_ascii=False, indent=0, sort_keys=True)
    TABLE.write_text(text + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
