"""What differs from fetch to fetch without any change of a page: times, dates, tokens, counters of views.

`mask` replaces each by one sign, so that "3 minutes ago" and "2026-11-21 02:03" are the same text.
docs/fingerprint.md lists what is masked and what is not.

The time is linear in the length of any text: what repeats is possessive, so that no try goes back over what
it took, and a try that may fail at each word of a text takes in a bounded number of words.
"""

from __future__ import annotations

import re
from typing import Final

MASK: Final = "\x7f"  # DEL: no page's text holds it, and an ASCII text stays one (a quarter of the memory)

# Month and weekday names, full and short: English, German, French, Spanish, Portuguese, Italian, Dutch.
_MONTHS: Final = re.findall(
    r"\w+",
    """january february march april may june july august september october november december jan feb
    mar apr jun jul aug sep sept oct nov dec januar jänner februar märz mär mai juni juli oktober
    okt dezember dez janvier janv février févr fév mars avril avr juin juillet juil août aout
    septembre octobre novembre décembre déc enero ene febrero marzo abril abr mayo junio julio
    agosto ago septiembre setiembre octubre noviembre diciembre dic janeiro fevereiro fev março maio
    junho julho setembro set outubro out novembro dezembro gennaio gen febbraio aprile maggio mag
    giugno giu luglio lug settembre ottobre ott dicembre januari februari maart mrt mei augustus""",
)
_MONTH: Final = rf"(?:{'|'.join(sorted(_MONTHS, key=len, reverse=True))})\b\.?"
_WEEKDAY: Final = (
    r"(?:mon|tues?|wed(?:nes)?|thu(?:rs)?|fri|sat(?:ur)?|sun)(?:day)?"
    r"|(?:mon|diens|donners|frei|sams|sonn)tag|mittwoch|sonnabend|mo|di|mi|do|fr|sa|so"
    r"|lundi|mardi|mercredi|jeudi|vendredi|samedi|dimanche|lun|mer|jeu|ven|sam|dim"
    r"|lunes|martes|mi[ée]rcoles|jueves|viernes|s[áa]bado|domingo|mi[ée]|jue|vie|s[áa]b|dom"
    r"|(?:segunda|ter[çc]a|quarta|quinta|sexta)(?:-feira)?"
)
_ZONE: Final = (
    r"(?:\s?(?:z|utc|gmt|[ecmp][sd]t|cest|cet|eet|eest|bst|jst|msk)\b)?(?:\s?[+-](?:0\d|1[0-4]):?[0-5]\d\b)?"
)
_CLOCK: Final = (
    r"(?:[01]?\d|2[0-4]):[0-5]\d(?::[0-6]\d(?:[.,]\d++)?)?(?!:?\d)"
    r"(?:\s?[ap]\.?m\b\.?)?(?:\s?uhr\b)?" + _ZONE
)
_OF: Final = r"(?:st|nd|rd|th|er|º|ª|°)?\.?,?[\s-]{1,3}(?:of |de |del |den )?"
_YEAR: Final = r"(?:19|20)\d\d"
_DAY: Final = r"(?:0?[1-9]|[12]\d|3[01])"
_DAY_FIRST: Final = "|".join(
    (
        *(rf"{_YEAR}{sign}(?:0?[1-9]|1[0-2]){sign}{_DAY}(?!\d)" for sign in ("-", "/", r"\.")),
        rf"{_YEAR}\s?[年년]\s?\d\d?\s?[月월](?:\s?\d\d?\s?[日일])?",
        r"\d\d?\s?[月월]\s?\d\d?\s?[日일]",
        *(rf"\d\d?{sign}\d\d?{sign}{_YEAR}(?!\d)" for sign in ("-", "/", r"\.")),
        r"\d\d?/\d\d?/\d\d(?![\d/])",
        rf"{_DAY}{_OF}{_MONTH}(?:,?[\s-]{{1,3}}(?:de |del )?{_YEAR}\b)?",
    )
)
_MONTH_FIRST: Final = (
    rf"{_MONTH}[\s-]{{1,3}}{_DAY}(?:st|nd|rd|th)?\b(?![.,]?\d)(?:,?[\s-]{{1,3}}{_YEAR}\b)?"
    rf"|{_MONTH}[\s-]{{1,3}}(?:de )?{_YEAR}\b"
)
_SPAN: Final = (
    r"(?:s|sec|secs|seconds?|m|mins?|minutes?|h|hrs?|hours?|d|days?|w|wks?|weeks?|months?|mos?|y|yrs?|years?"
    r"|sekunden?|minuten?|stunden?|tag(?:en)?|wochen?|monat(?:en)?|jahr(?:en)?"
    r"|secondes?|heures?|jours?|semaines?|mois|ans?|segundos?|minutos?|horas?|d[íi]as?|semanas?|mes(?:es)?|a[ñn]os?|anos?)"
)
_THEN: Final = (  # the clock after a date
    r"(?:\s*+(?:,\s*+)?(?:(?:at|um|à|a las|às|alle|t|-|–|\||·|\()\s*+)?"
    rf"(?:{_CLOCK}|(?:[01]?\d|2[0-3])h[0-5]\d\b))?"
)
_NUMBER: Final = r"\d++(?:[.,]\d++)*+"
# What a try may begin with is bounded: in a list without spaces there is a try at each number.
_FIRST_NUMBER: Final = r"[0-9]++(?:[.,][0-9]++){0,8}+"
_VIEWS: Final = (
    r"(?:(?:page ?)?views|impressions|aufrufe|vues|visualizaciones|visualizações"
    r"|(?:users?|visitors?|guests?|members?) online)\b"
)
_DIGIT_FIRST: Final = "|".join(
    (
        rf"(?:{_DAY_FIRST}){_THEN}",
        _CLOCK,
        r"(?:1[0-2]|0?[1-9])\s?(?:[ap]\.m\.|[ap]m\b)",
        r"(?:[01]?\d|2[0-4])(?:[.:][0-5]\d)?\s?uhr\b",
        r"(?:[01]?\d|2[0-3])\s?h\s?[0-5]\d\b",
        r"\d\d?\s?[時时点點시]\s?(?:\d\d?\s?[分분])?(?:\s?\d\d?\s?[秒초])?(?![前전])",
        rf"[0-9]++\+?\s?{_SPAN}(?:(?:\s|,\s| and )[0-9]++\s?{_SPAN})?\s(?:ago|earlier|atr[áa]s)\b",
        r"[0-9]++\s?(?:秒|分钟?|小?时|時間|小時|天|日|週間|か月|年|초|분|시간|일)\s?[前전]",
        r"1[5-9]\d{8}(?:\d{3})?(?:\.\d++)?(?![.,]?\d)",  # Unix time, 2017 to 2033
        rf"{_FIRST_NUMBER}\s?[km]?\s{_VIEWS}",
    )
)
_LETTER_FIRST: Final = "|".join(
    (
        rf"(?:{_WEEKDAY})\b[.,]*+\s{{1,3}}(?:{_DAY_FIRST}|{_MONTH_FIRST}){_THEN}",
        rf"(?:{_MONTH_FIRST}){_THEN}",
        rf"(?:vor|il y a|hace|h[áa])\s(?:etwa |environ |cerca de )?\d++\s?{_SPAN}\b",
        r"(?:generated|rendered|loaded|created|built|served|processed|executed|completed|took|generiert|erstellt"
        rf"|g[ée]n[ée]r[ée]e?|generado|gerado)\b(?:\s\w++){{0,2}}?\s(?:in|en|em)?:?\s?{_NUMBER}"
        r"\s?(?:ms|msecs?|milliseconds?|[µμ]s|s|secs?|seconds?|sekunden|secondes|segundos)\b",
        r"(?:(?:php|j|asp)?sess(?:ion)?_?(?:id)?|sid|csrf\w{0,64}+|nonce)\s?[=:]\s?[\w%+/-]++",
        rf"{_VIEWS}\s?:\s?{_NUMBER}",
    )
)
_NUMERIC: Final = re.compile(
    # Only at the start of a word, the first character choosing the half: five times as fast.
    r"(?<![0-9a-z])(?:(?=[0-9a-f]{8})(?:[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\b"
    r"|(?=[a-f]*+\d)[0-9a-f]{16,}+\b)"
    rf"|(?=[0-9])(?:{_DIGIT_FIRST})|(?=[^\W\d])(?:{_LETTER_FIRST}))"
)
_WORDED: Final = re.compile(rf"\b(?:just now|(?:an?|one|a few|few seconds?) {_SPAN} ago|few seconds ago)\b")
_RUN: Final = re.compile(
    rf"{MASK}(?:[\s,]*+{MASK}|\s(?:19|20)\d\d\b)*"
)  # asctime's year comes after its clock
# The patterns are tried only around clusters of digits (with gaps of at most 16 characters), and only if a
# cheap look finds a shape or a word there that they need: they cost 1.5 us for every character.
_IS_DIGIT: Final = bytes(ord("1") if chr(code) in "0123456789" else ord("0") for code in range(256))
_CLUSTER: Final = re.compile(rb"1(?:0{0,16}+1)*+")
_REACH: Final = 32  # characters around a cluster that a pattern may take in
_SHAPE: Final = re.compile(
    r"[0-9](?::[0-5][0-9]|[-/.][0-9][0-9]?[-/.][0-9]|[0-9]{9}|\s?h\s?[0-9]|\s?[ap]\.?m\b|\s?uhr"
    r"|\s?\w{0,2}[年月日時时点點秒년월일시초前전])"
)
_TOKEN_LENGTH: Final = 16
_HINTS: Final = frozenset(_MONTHS) | frozenset(
    re.findall(
        r"\w+",
        """ago earlier atrás atras uhr vor hace há ha il generated rendered loaded created built
        served processed executed completed took generiert erstellt généré générée generado gerado
        views pageviews impressions aufrufe vues visualizaciones visualizações online sid session
        sessionid phpsessid jsessionid csrf csrftoken nonce""",
    )
)


def mask(text: str) -> str:
    """Return a lower-case text with every time, date, session token and view counter replaced by `MASK`."""
    if " ago" in text or "just now" in text:
        text = _WORDED.sub(MASK, text)
    # One byte for each character, whatever its script.
    digits = text.encode("ascii", "replace").translate(_IS_DIGIT)
    pieces: list[str] = []
    done = 0
    for cluster in _CLUSTER.finditer(digits):
        first, last = cluster.span()
        if last <= done:
            continue
        words = text[max(first - _REACH, done) : last + _REACH].replace("=", " ").replace(":", " ").split()
        if (
            _SHAPE.search(text, first, last + 6) is None
            and max(map(len, words)) < _TOKEN_LENGTH
            and _HINTS.isdisjoint([word.strip("(),.:;[]|=-") for word in words])
        ):
            continue
        # Whole words only: a window that cut one would let \b match inside it.
        start = max(done, text.rfind(" ", done, max(first - _REACH, 0)) + 1)
        end = text.find(" ", last + _REACH, last + 2 * _REACH)
        end = min(end if end >= 0 else last + 2 * _REACH, len(text))
        pieces += (text[done:start], _NUMERIC.sub(MASK, text[start:end]))
        done = end
    pieces.append(text[done:])
    masked = "".join(pieces)
    return _RUN.sub(MASK, masked) if MASK in masked else masked
