"""Write the table of words of dates and relative times of 80 languages, from Babel's CLDR and dateparser.

Run: ``python -m tools.date_words``, with both installed, to write scrapy_gp4c/words/date_words.json again.
"""

from __future__ import annotations

import json
import re
import sys
import unicodedata
from collections.abc import Iterator
from importlib import import_module
from itertools import product
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
MORE_MONTHS = """sept jänner feber fevereiro setiembre mrt नवम्बर दिसम्बर सितम्बर
فروردین اردیبهشت خرداد تیر مرداد شهریور مهر آبان آذر دی بهمن اسفند"""
MORE_WEEKDAYS = "tues thur thurs segunda terça terca quarta quinta sexta mittw sonnabend"
MORE_UNITS = "sec secs min mins hr hrs wk wks mo mos yr yrs"
MORE_AGO = {"fa": ["قبل"], "et": ["tagasi"], "pt": ["atrás"], "ta": ["முன்பு"]}
NOT_AGO = ("before", "for")  # "for 5 timer siden" is past, "for 5 timer" is not
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


def phrases(locale: Locale) -> Iterator[str]:
    """Yield the names of days that are several words."""
    for name in locale.days["format"]["wide"].values():
        for form in (name, name.replace("\u200c", " ")):
            if len(normal(form).split()) == 2:
                yield normal(form)


def recent(locale: Locale) -> Iterator[str]:
    """Yield "today", "yesterday", "last week"."""
    fields: Any = locale._data["date_fields"]
    for unit in UNITS[:4]:
        for distance, phrase in dict(fields[unit].get("relative", {})).items():
            if distance <= 0 and len(normal(phrase).split()) <= 3:
                yield normal(phrase).replace("’", "'")


def parser_words(language: str) -> tuple[list[str], set[str]]:
    """Return the words for "ago" and the units of time that dateparser knows."""
    try:
        info = import_module(f"dateparser.data.date_translation_data.{language}").info
    except ImportError:
        return [], set()
    ago = [*map(normal, info.get("ago") or ()), *MORE_AGO.get(language, ())]
    units = {normal(word) for unit in UNITS for word in info.get(unit) or ()}
    return [word for word in ago if " " not in word and word not in NOT_AGO], units


def counted_units(locale: Locale) -> set[str]:
    """Return the one-word forms of units behind numbers: "tundi" as well as "tund"."""
    patterns: Any = locale._data["unit_patterns"]
    forms = (form for unit in UNITS for form in patterns[f"duration-{unit}"]["long"].items())
    words = (normal(form.partition("{0}")[2]) for count, form in forms if count != "per")
    return {word for word in words if WORD.fullmatch(word)}


def past(locale: Locale) -> Iterator[tuple[str, str]]:
    """Yield (before, after) of the number in "5 hours ago"; ("before", "two-hours") where a word has both."""
    fields: Any = locale._data["date_fields"]
    for unit in UNITS:
        for width in ("", "-short", "-narrow"):
            if f"{unit}{width}" not in fields:
                continue
            for pattern in dict(fields[f"{unit}{width}"].get("past", {})).values():
                before, number, after = normal(pattern).replace("({0})", "").partition("{0}")
                if number:
                    yield before.strip(), after.strip()
                elif len(words := WORD.findall(before)) >= 2 and locale.language in ("ar", "he"):
                    yield words[0], words[1]


def table() -> dict[str, list[Any]]:
    """Return names of months and days, pairs of words of relative times, and suffixes of unspaced scripts."""
    names_of: dict[str, set[str]] = {
        "months": set(MORE_MONTHS.split()),
        "weekdays": set(MORE_WEEKDAYS.split()),
        "weekday_phrases": set(),
        "short_weekdays": set(),
        "recent": {"igår", "idag"},
        "until": set(),
        "unspaced": set(),
        "day_periods": set(),
    }
    before_unit: set[tuple[str, str]] = set()
    unit_after = {(unit, after) for unit in MORE_UNITS.split() for after in ("ago", "earlier")}
    for name in LANGUAGES.split():
        locale = Locale.parse(name)
        for month in names(locale, "months"):
            if len(month) > 3 or name in SHORT_MONTHS or not month.isascii():
                names_of["months"].add(month)
        names_of["weekdays"].update(names(locale, "days"))
        for width in ("wide", "abbreviated"):
            periods = locale.day_periods["format"].get(width, {})
            names_of["day_periods"].update(
                word for half in ("am", "pm") if not (word := normal(periods.get(half, "am"))).isascii()
            )
        names_of["weekday_phrases"].update(phrases(locale))
        names_of["short_weekdays"].update(
            word
            for name in locale.days["format"]["abbreviated"].values()
            if len(word := normal(name).rstrip(".")) == 2
        )
        names_of["recent"].update(recent(locale))
        for pattern in dict(locale._data["date_fields"]["hour"].get("future", {})).values():
            names_of["until"].update(WORD.findall(normal(pattern).partition("{0}")[0])[-1:])
        agos, units = parser_words(locale.language)
        units |= counted_units(locale)
        known = set()
        after_here: set[tuple[str, str]] = set()
        for before, after in past(locale):
            words = [word for word in WORD.findall(after) if word != "de"]  # acum 25 de minute
            known |= {*WORD.findall(before), words[-1] if words else ""}
            units |= {word for word in words[:1] if name not in UNSPACED}
            if before and WORD.findall(before) and words:  # vor 5 Stunden; for 5 timer siden
                before_unit.add((WORD.findall(before)[-1], words[0]))
                if len(both := WORD.findall(before)) == 2:  # πριν από 5 ώρες, πριν 5 ώρες
                    before_unit.add((both[0], words[0]))
                if len(words) > 1:
                    unit_after.add((words[0], words[-1]))
            elif name in UNSPACED and not before:
                names_of["unspaced"].add(after)
            elif len(words) > 1:  # 5 hours ago
                after_here.add((words[0], words[-1]))
            elif len(words) == 1 and not before:  # 5 oraja: the unit says that it is past
                names_of["unspaced"].add(after)
        unit_after |= {*product({unit for unit, _ in after_here}, {after for _, after in after_here})}
        if name == "th":  # 月前 is "before March" as well
            names_of["unspaced"] |= {unit + ago for unit, ago in product(units, agos)}
        elif name not in UNSPACED:
            for unit, ago in product(units, set(agos) - known):
                unit_after.add((unit, ago))
                before_unit.add((ago, unit))
            unit_after |= {
                (unit, ago) for unit, ago in product(units, agos) if any(a == ago for _, a in unit_after)
            }
            before_unit |= {
                (ago, unit) for unit, ago in product(units, agos) if any(a == ago for a, _ in before_unit)
            }
    before_unit = {pair for pair in before_unit if pair[0] not in NOT_AGO}
    unit_after |= {(unit, "earlier") for unit, after in unit_after if after == "ago"}
    names_of["weak_months"] = names_of["months"] & set(WEAK_MONTHS.split())
    names_of["months"] -= names_of["weak_months"]
    made: dict[str, list[Any]] = {key: sorted(words) for key, words in names_of.items()}
    return {**made, "before_unit": sorted(before_unit), "unit_after": sorted(unit_after)}


def main() -> int:
    """Write the table."""
    rows = (
        f"{json.dumps(key)}: {json.dumps(words, ensure_ascii=False)}"
        for key, words in sorted(table().items())
    )
    TABLE.write_text("{\n" + ",\n".join(rows) + "\n}\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
