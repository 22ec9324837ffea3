"""Data compared by value: JSON, JSON Lines, JSONP, data in scripts and attributes of pages, calendars.

The order of keys is no change, the order of rows is. Clocks, tokens and counters are masked by their keys.
Nothing here raises on any text.
"""

import json
import re
from collections.abc import Iterator
from typing import Any, Final

from scrapy_gp4c.words.masking import CHANGED, DATED, MASK, WORDS

_XSSI: Final = re.compile(r"\s*(?:\)\]\}',?|while\s?\(1\);|for\s?\(;;\);)\s*")
_JSONP: Final = re.compile(r"\s*(?:/\*\*/\s*)?[\w$.]{1,100}\(\s*(?=[\[{])")
_TRACE_KEY: Final = re.compile(
    r"(?:x[-_]?)?(?:req(?:uest)?|trace|correlation|session|transaction|span|visitor|csrf|xsrf|nonce|server|node|instance)"
    r"[-_]?(?:id|token|uuid|key|name)?|_?token|(?>(?:next|prev(?:ious)?|page|end|start|continuation|[-_])*)(?:cursor|token)|build[-_]?id"
    r"|signature|etag|host_?name",
    re.I,
)
_NAME_KEY: Final = re.compile(
    "req(?:uest)?|trace|session|transaction|span|visitor|server|node|instance|token|host_?name", re.I
)
_TOKEN: Final = re.compile(r"\S{16,}|.*\d.*", re.S)
"""Values that look like tokens: long without blanks, or with a digit; others may be names of things."""
_HOST_KEY: Final = re.compile("served_?by|generated_?by_?host", re.I)
_ANSWERED_BY: Final = re.compile("(?:server|host|node|instance|backend|worker)(?:_?(?:name|id))?", re.I)
_CLOCK_KEY: Final = re.compile(
    r"(?:(?:server|current|response|request|query|process(?:ing)?|generation|search|execution|exec|run|up)(?=[-_]?[a-z]{2}|[-_]s)"
    r"|generated|fetched|retrieved|served(?=.)|cached?|render(?:ed)?|elapsed|now|latency|last[-_]?(?:updated?|modified|refresh(?:ed)?|fetch(?:ed)?|sync(?:ed)?|check(?:ed)?)"
    r"|expires?|took|timestamp|time_?stamp|ts|unix|epoch)"
    r"[-_]?(?:time|at|on|ms|s|sec|seconds|millis|date|stamp|timestamp|in|duration|until|age)?(?:[-_]?ms|[-_](?:s|utc|iso))?|ttl",
    re.I,
)
_MOMENT_KEY: Final = re.compile("now|ts|unix|epoch|time_?stamp", re.I)
"""Clock keys without durations: a small number is a price, an epoch of training, a place in a video."""
_MOMENT: Final = re.compile(r"[-/:]|\d{9}|\.\d+\.")
_NO_TIME: Final = re.compile("(?: - |%$|(?:day|week|month|year)s?$)", re.I)
"""Values of other clock keys that are shares, ranges or terms, such as the six weeks of an office."""
MIN_UNIX: Final = 10**9
_COUNT_KEY: Final = re.compile(
    r"(?:page[-_]?)?(?:views?|viewers|watchers|hits|visits|visitors|impressions|online|likes|followers)(?:[-_]?(?:count|total|number|users|now))?",
    re.I,
)
_LEFT_KEY: Final = re.compile(r"(?:x[-_]?)?rate[-_]?limits?[-_]?(?:remaining|reset|used|left)", re.I)
"""Key of how many requests a client has left; the limit itself may be that of a plan to buy."""
_SERVER_KEY: Final = re.compile(
    r"(?:x[-_]?)?rate[-_]?limits?(?:[-_]?\w+)?|cache|debug|trac(?:e|ing)|timings?|profil(?:er|ing)", re.I
)
_CACHE_KEY: Final = re.compile("(?:x[-_]?)?cache(?:[-_]?(?:status|state|hit))?", re.I)
_CACHE_STATE: Final = re.compile("hit|miss", re.I)
_CACHE_FLAG: Final = re.compile(
    "(?:is|was)?[-_]?cached|(?:is|was|served)?[-_]?from[-_]?cache|cache[-_]?(?:hit|miss)", re.I
)
"""Key of a boolean that says whether the answer came from a cache."""
_OWN_DATE_KEY: Final = re.compile(
    "updat|modif|lastmod|build|chang|creat|pub|post|seen|fetch|check|sync|generat|crawl|index|retriev|scrap|stamp|visit"
    "|access|refresh|cach|expir|now|activ|issued|render|as_?of|today",
    re.I,
)
KEY_WORD: Final = re.compile("[A-Z]?[a-z]+|[A-Z]+")
"""Pattern of the words in a key, in camel case, snake case and so on."""
_DATED_WORDS: Final = frozenset(WORDS["dated_keys"].split())
"""Words of keys (such as ``departure``) whose dates are statements, not clocks."""
_NAMES: Final = frozenset(("title", "name", "venue", "location", "place"))
"""Keys of an object that describes a thing, so that its dates are statements, such as the day of an event."""
_ISO: Final = re.compile(r"20\d\d-\d\d-\d\d(?:[T ]\d\d:\d\d\S{0,20})?")
_CLOCK: Final = re.compile(r"[0-2]?\d:[0-5]\d(?::[0-5]\d)?")
_DATE_SIGNS: Final = re.compile("(?<=[0-9])[-T:](?=[0-9])")
_ASSIGNED: Final = re.compile(r"(?:=|\(|,|\breturn\b)\s{0,9}(?:JSON\.parse\(\s{0,9}(['\"])|(?=[\[{]))")
_QUOTED: Final = re.compile(r"'((?>(?:[^'\\]|\\.)*))'")
_STATE: Final = re.compile(r"\b__[A-Za-z]\w{1,40}__\b[\"'\]]{0,2}\s?=")
_FLIGHT: Final = re.compile(r"^\w{1,8}:(?=[\[{])", re.M)
_MOST_TRIES: Final = 200
_CALENDARS: Final = ("BEGIN:VCALENDAR", "BEGIN:VCARD")
_CALENDAR_CLOCK: Final = re.compile(
    r"^(?:DTSTAMP|PRODID|REV|LAST-MODIFIED|CREATED|UID|SEQUENCE|X-[A-Z0-9-]{1,40})[;:].*\n?", re.M
)
_CALENDAR_DATE: Final = re.compile(r"\b(?=(?:\d{8}|\d{4}-\d\d-\d\d)(?:T|\b))")
_PERHAPS_DATE: Final = re.compile(r"\d{1,4}(?:[-/.]\s?\d{1,2}[-/.]|\.?\s\D|年|년)")
_LONGEST_DATE: Final = 40


def data_text(source: str) -> str | None:
    """Return the text of JSON or JSON Lines, with sorted keys and without clocks; None for other sources."""
    if (prefix := _XSSI.match(source)) is not None:
        source = source[prefix.end() :]
    if (call := _JSONP.match(source)) is not None:
        source = source[call.end() :].rstrip().rstrip(";").rstrip(")")
    try:
        return _values(_loads(source))
    except RecursionError:
        return None
    except ValueError:
        lines = source.splitlines()
    rows = []
    try:
        for line in lines:
            if line.strip():
                rows.append(_values(_loads(line)))
    except (RecursionError, ValueError):
        return None
    return "\n".join(rows) if len(rows) > 1 else None


def calendar_text(source: str) -> str | None:
    """Return the text of an iCalendar or vCard, dates included; None for other sources."""
    if not source.startswith(_CALENDARS):
        return None
    unfolded = source.replace("\r\n", "\n").replace("\n ", "").replace("\n\t", "")
    return _CALENDAR_DATE.sub(DATED, _CALENDAR_CLOCK.sub("", unfolded))


def script_data(script: str) -> Iterator[str]:
    """Yield the texts of JSON values in a script: those assigned, passed to a function, or all of it."""
    if script.lstrip()[:1] in ("{", "[", '"') and (text := data_text(script)) is not None:
        yield text
        return
    has_data = False
    position = 0
    for _ in range(_MOST_TRIES):
        if (start := _ASSIGNED.search(script, position)) is None:
            break
        position = start.end()
        try:
            if start[1] is None:
                value, position = _DECODER.raw_decode(script, position)
            elif start[1] == '"':
                text, position = _DECODER.raw_decode(script, position - 1)
                value = _loads(text)
            elif (quoted := _QUOTED.match(script, position - 1)) is not None:
                position = quoted.end()
                value = _loads(quoted[1].replace("\\'", "'").replace("\\\\", "\\"))
            else:
                continue
        except (RecursionError, TypeError, ValueError):
            continue
        if isinstance(value, list) and len(value) == 2 and isinstance(value[1], str):
            # A part of a page as React's server components send it: lines of a number and JSON.
            for part in _FLIGHT.split(value[1]):
                if part.strip():
                    has_data = True
                    yield data_text(part) or part
        elif isinstance(value, dict | list) and value:
            has_data = True
            yield _values(value)
    if not has_data and (state := _STATE.search(script)) is not None:
        yield script[state.end() :]  # an object as JavaScript writes it


def _loads(source: str) -> Any:
    return json.loads(source, object_pairs_hook=_object, parse_float=_number)


def _number(text: str) -> float | int | str:
    value = float(text)
    return int(value) if value.is_integer() and abs(value) < 2**53 else value


def _object(pairs: list[tuple[str, Any]]) -> Any:
    """Return a JSON object without clocks, tokens and counters; its list of pairs if a key occurs twice."""
    made: dict[str, Any] = {}
    is_named = any(key.lower() in _NAMES for key, _ in pairs)
    for key, value in pairs:
        if key in made:
            return [[key, value] for key, value in pairs]
        if isinstance(value, list):
            value = [
                _row(row) if isinstance(row, dict) else dated_value(key, row) if isinstance(row, str) else row
                for row in value
            ]
        elif isinstance(value, str) and value[:2] == "20" and _ISO.fullmatch(value) is not None:
            words = {word.lower() for word in KEY_WORD.findall(key)}
            # An hour at which something expires is that of a token or a cache.
            is_stated = is_named and _OWN_DATE_KEY.search(key) is None and _CLOCK_KEY.fullmatch(key) is None
            if is_stated or (
                not words.isdisjoint(_DATED_WORDS) and (len(value) == 10 or "expires" not in words)
            ):
                value = _DATE_SIGNS.sub(r" \g<0> ", value)
        made[key] = MASK if _is_noise(key, value) else value
    return made


_DECODER: Final = json.JSONDecoder(object_pairs_hook=_object, parse_float=_number)


def _row(row: dict[str, Any]) -> dict[str, Any]:
    """Put the dates of a row (object in a list) into a form that is not masked, in place; return the row."""
    for key, value in row.items():
        if isinstance(value, dict):
            _row(value)
        elif isinstance(value, str):
            row[key] = dated_value(key, value)
    return row


def dated_text(key: str, value: str, is_row: bool = True) -> str:
    """Return a value of a table or XML with the sign `DATED` before its date, which is then not masked.

    A date gets no sign if `key` says when its row was made, or, unless `is_row`, has none of `_DATED_WORDS`.
    """
    if (
        len(value) > _LONGEST_DATE
        or _PERHAPS_DATE.match(value) is None
        or _OWN_DATE_KEY.search(key) is not None
        or CHANGED.search(key.lower()) is not None
        or not (is_row or _DATED_WORDS.intersection(word.lower() for word in KEY_WORD.findall(key)))
    ):
        return value
    return DATED + value


def dated_value(key: str, value: str) -> str:
    """Return a value of a row; a date, unless it is when the row was made, gets a form that is not masked."""
    is_date = value[:2] == "20" and _ISO.fullmatch(value) is not None
    if not (is_date or _CLOCK.fullmatch(value) is not None) or _OWN_DATE_KEY.search(key) is not None:
        return value
    return _DATE_SIGNS.sub(r" \g<0> ", value)


def is_clock(key: str, value: str) -> bool:
    """Whether an XML element's value is the time when the document was made, by the element's name `key`."""
    return value[:1].isdigit() and _CLOCK_KEY.fullmatch(key) is not None


def is_noise_of_answer(key: str, value: str) -> bool:
    """Whether an attribute of an XML root is noise: a clock, or the name of the server that has answered."""
    is_server = _ANSWERED_BY.fullmatch(key) is not None and any(map(str.isdigit, value))
    return is_server or _is_noise(key, value)


def _is_noise(key: str, value: object) -> bool:
    if isinstance(value, dict | list):
        return _SERVER_KEY.fullmatch(key) is not None
    if _TRACE_KEY.fullmatch(key):
        if (
            isinstance(value, str)
            and _NAME_KEY.fullmatch(key) is not None
            and _TOKEN.fullmatch(value) is None
        ):
            return False
        return (isinstance(value, str) and len(value) >= 6) or (isinstance(value, int) and abs(value) > 10**6)
    if isinstance(value, str) and _HOST_KEY.fullmatch(key):
        return len(value) >= 6 or any(map(str.isdigit, value))
    if isinstance(value, str) and _CACHE_STATE.fullmatch(value) is not None:
        return _CACHE_KEY.fullmatch(key) is not None
    if isinstance(value, bool):
        return _CACHE_FLAG.fullmatch(key) is not None
    if _CLOCK_KEY.fullmatch(key):
        is_moment = _MOMENT_KEY.fullmatch(key) is not None
        if isinstance(value, str):
            is_time = _MOMENT.search(value) is not None if is_moment else _NO_TIME.search(value) is None
            return value[:1].isdigit() and is_time
        return isinstance(value, int | float) and (not is_moment or value > MIN_UNIX)
    is_number = isinstance(value, int | float) or (isinstance(value, str) and value.isdecimal())
    return is_number and (_COUNT_KEY.fullmatch(key) or _LEFT_KEY.fullmatch(key)) is not None


def _values(data: Any) -> str:
    if isinstance(data, list):
        data = [_row(row) if isinstance(row, dict) else row for row in data]
    return json.dumps(data, sort_keys=True, ensure_ascii=False, separators=(" , ", " : "))


def leaves(text: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the pieces of a text of `data_text` in order: values with their keys, and text between them.

    Text between values (brackets, keys) comes with ``()``. RecursionError or ValueError: it is no such text.
    """
    for line in text.split("\n"):
        yield from _leaves(json.loads(line), ())
        yield "\n", ()


def _leaves(value: Any, keys: tuple[str, ...]) -> Iterator[tuple[str, tuple[str, ...]]]:
    if isinstance(value, dict):
        yield "{", ()
        for number, (key, inner) in enumerate(sorted(value.items())):
            yield f"{' , ' if number else ''}{json.dumps(key, ensure_ascii=False)} : ", ()
            yield from _leaves(inner, (*keys, key))
        yield "}", ()
    elif isinstance(value, list):
        yield "[", ()
        for number, inner in enumerate(value):
            if number:
                yield " , ", ()
            yield from _leaves(inner, (*keys, ""))
        yield "]", ()
    else:
        yield json.dumps(value, ensure_ascii=False), keys
