"""Page rules (``GP4C_RULES``): for pages that match, how often they are visited and what is compared."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

from scrapy_gp4c.foreign_text import counted
from scrapy_gp4c.scoring.weights import read_weight

UNITS_S: Final = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}
_TIME: Final = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([smhdw])\s*")
_CYCLES: Final = re.compile(r"\s*(\d+)\s*cycles?\s*")
_XN_LABEL: Final = re.compile(r"\bxn--[a-z0-9-]+", re.I)
_DISTANCE: Final = re.compile(r"words:(\d+)|share:(\d+(?:\.\d+)?)%")
MOST_CYCLES: Final = 1_000_000
MOST_S: Final = 1e10
"""Longest time in a page rule: some 300 years."""


class Span(NamedTuple):
    """Time between two visits of a page, in cycles or in seconds; the field of the other unit is 0."""

    cycles: int = 0
    seconds: float = 0.0

    def __str__(self) -> str:
        if self.cycles:
            return counted(self.cycles, "cycle")
        return time_text(self.seconds)


def time_text(seconds: float) -> str:
    """Format a time as in page rules, such as ``6h``."""
    unit = next((name for name in "dhm" if abs(seconds) >= UNITS_S[name]), "s")
    return f"{round(seconds / UNITS_S[unit], 1):g}{unit}"


def read_span(value: Any) -> Span:
    """Read ``"1d"``, ``"6h"``, ``"3 cycles"`` or a number of cycles. Raises ValueError."""
    expected = (
        "expected a time such as '6h' or '1d' (units: s, m, h, d, w), or a number of cycles of at least 1"
    )
    if isinstance(value, str):
        time = _TIME.fullmatch(value)
        if time is not None and 0 < (seconds := float(time[1]) * UNITS_S[time[2]]) <= MOST_S:
            return Span(seconds=seconds)
        if cycles := _CYCLES.fullmatch(value):
            value = int(cycles[1])
        elif value.strip().isdigit():
            raise ValueError(
                f"expected a time with its unit, such as '{value}h' or '{value} cycles'; found {value!r}"
            )
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MOST_CYCLES:
        raise ValueError(f"{expected}; found {value!r}")
    return Span(cycles=value)


class Distance(NamedTuple):
    """Least difference of two texts that counts as a change, in words or as a share of the words."""

    words: int = 0
    share: float = 0.0

    @property
    def counts_words(self) -> bool:
        """Whether a change is judged by counting words, and not by fingerprints alone."""
        return bool(self.words or self.share)

    def is_reached(self, differing: int, words: int) -> bool:
        """Whether `differing` words of a text of `words` words are a change."""
        return differing > 0 and differing >= self.words and differing >= self.share * words


def read_distance(value: Any) -> Distance:
    """Read ``"any"``, ``"words:3"`` or ``"share:1%"``. Raises ValueError."""
    if value == "any":
        return Distance()
    parts = _DISTANCE.fullmatch(value) if isinstance(value, str) else None
    if parts is None:
        raise ValueError(f"expected 'any', 'words:3' or 'share:1%'; found {value!r}")
    if float(parts[2] or 0) > 100:
        raise ValueError(f"a share is at most 100%; found {value!r}")
    return Distance(int(parts[1] or 0), float(parts[2] or 0) / 100)


def _texts(value: Any) -> tuple[str, ...]:
    texts = (value,) if isinstance(value, str) else tuple(value) if isinstance(value, list | tuple) else ()
    if not texts or not all(isinstance(text, str) and text.strip() for text in texts):
        raise ValueError(f"expected a CSS selector or XPath, or a list of these; found {value!r}")
    return texts


def _true(value: Any) -> bool:
    if value is not True and value is not False:
        raise ValueError(f"expected True; found {value!r}")
    return bool(value)


def read_tag(value: Any) -> str:
    """Read a tag: a text that is not empty. Raises ValueError."""
    if not isinstance(value, str) or not value:
        raise ValueError(f"expected a text; found {value!r}")
    return value


READERS: Final = {
    "max_age": read_span,
    "min_interval": read_span,
    "weight": read_weight,
    "watch": _texts,
    "ignore": _texts,
    "distance": read_distance,
    "never": _true,
}
"""Key of a page rule -> function that reads its value; raises ValueError."""


@dataclass(frozen=True)
class PageRule:
    """One page rule; None and () are fields that the rule does not set."""

    number: int = 0
    """Position in the list of rules, from 1; 0: no rule, only values that a request's meta gives."""
    match: str | None = None
    """Glob of URLs; None: the rule is for requests with the tag `tag`."""
    tag: str | None = None
    max_age: Span | None = None
    """Longest time that may pass between two visits of a page; None: no promise."""
    min_interval: Span | None = None
    """Shortest time between two visits of a page."""
    weight: float | None = None
    watch: tuple[str, ...] = ()
    """Selectors of the parts of the page that are compared; empty: all of it."""
    ignore: tuple[str, ...] = ()
    """Selectors of the parts of the page that are not compared."""
    distance: Distance | None = None
    """Difference of texts that is a change; None: ``GP4C_DISTANCE``."""
    never: bool = False
    """Whether the pages are never visited."""

    def is_for(self, url: str, tag: str | None) -> bool:
        """Whether the rule matches a page with this URL and tag."""
        return url_matches(url, self.match) if self.match is not None else tag == self.tag

    @property
    def name(self) -> str:
        """Name of the rule in messages: its number, and its glob or tag."""
        pages = repr(self.match) if self.match is not None else f"{{'tag': {self.tag!r}}}"
        return f"rule {self.number} ({pages})" if self.number else "the request itself"


def _decoded_label(label: str) -> str:
    """Decode a host's label ``xn--...`` (IDNA); an invalid label is returned unchanged."""
    try:
        return label.encode().decode("idna")
    except UnicodeError:
        return label


def url_matches(url: str, pattern: str) -> bool:
    """Whether a URL, decoded or not, matches the glob `pattern`, or contains one that is without ``*?[``."""
    urls = [url, unquote(url)] if "%" in url else [url]
    if "xn--" in url:
        urls.append(_XN_LABEL.sub(lambda label: _decoded_label(label[0]), urls[-1]))
    if not set(pattern) & set("*?["):
        return any(pattern in one for one in urls)
    return any(fnmatchcase(one, pattern) for one in urls)


def read_rules(value: Any) -> tuple[PageRule, ...]:
    """Read a list of page rules, each a dict; raises ValueError, which names rule, key and correct form."""
    if value in (None, ""):
        return ()
    if not isinstance(value, list | tuple):
        raise ValueError(f"expected a list of dicts, or one as JSON; found {type(value).__name__}")
    return tuple(_rule(number, one) for number, one in enumerate(value, 1))


def _rule(number: int, value: Any) -> PageRule:
    where = f"rule {number}"
    if not isinstance(value, Mapping):
        raise ValueError(f"{where}: expected a dict such as {{'match': '*/news/*', 'max_age': '6h'}}")
    if unknown := [key for key in value if key != "match" and key not in READERS]:
        raise ValueError(
            f"{where}: there is no key {unknown[0]!r}; the keys are match, {', '.join(READERS)}: correct "
            "or remove it"
        )
    match = value.get("match")
    tag = match.get("tag") if isinstance(match, Mapping) and set(match) == {"tag"} else None
    is_tag = isinstance(tag, str) and tag != ""
    if not is_tag and (not isinstance(match, str) or not match):
        raise ValueError(
            f"{where}: 'match' must be a glob of URLs such as '*/news/*', or {{'tag': 'news'}}; found "
            f"{match!r}"
        )
    if len(value) < 2:
        raise ValueError(f"{where}: it says nothing about its pages; give one of {', '.join(READERS)}")
    fields: dict[str, Any] = {}
    for key, read in READERS.items():
        if key in value:
            try:
                fields[key] = read(value[key])
            except ValueError as error:
                raise ValueError(f"{where}: {key!r}: {error}") from None
    rule = PageRule(number, None if is_tag else match, tag if is_tag else None, **fields)
    if rule.never and rule.max_age is not None:
        raise ValueError(
            f"{where}: never visits its pages, and max_age promises visits: leave one of them out"
        )
    if problem := contradiction(rule.max_age, rule.min_interval):
        raise ValueError(f"{where}: {problem}")
    return rule


def contradiction(most: Span | None, least: Span | None) -> str | None:
    """Reason why a page cannot have this ``max_age`` and this ``min_interval``; None: it can."""
    if most is None or least is None:
        return None
    if bool(most.cycles) != bool(least.cycles):
        return (
            f"max_age ({most}) and min_interval ({least}) cannot be compared: give both as times, or both in "
            "cycles"
        )
    if least > most:
        return f"min_interval ({least}) must not be longer than max_age ({most})"
    return None


META_KEYS: Final = {
    "gp4c_max_age": "max_age",
    "gp4c_min_interval": "min_interval",
    "gp4c_weight": "weight",
    "gp4c_tag": "tag",
}
"""Key in a request's meta -> field of `PageRule`."""
STORED_META: Final = ("gp4c_max_age", "gp4c_min_interval", "gp4c_tag")
"""Keys of `META_KEYS` that are stored with the page's request; weights are in another table."""
NO_RULE: Final = PageRule()


def rule_of(rules: Sequence[PageRule], url: str, meta: Mapping[str, Any]) -> PageRule:
    """Return the page rule of a page: the first that matches, overridden by its request's `meta`.

    ``gp4c_max_age`` and ``gp4c_min_interval`` in `meta` replace those of the rule. If one contradicts the
    rule's other limit, that is dropped. A value in `meta` that cannot be read is ignored.
    """
    tag = meta.get("gp4c_tag")
    rule = next((one for one in rules if one.is_for(url, tag)), NO_RULE)
    most, least = span_in_meta(meta, "gp4c_max_age"), span_in_meta(meta, "gp4c_min_interval")
    if rule.never or most is least is None or contradiction(most, least):
        return rule
    return replace(
        rule,
        max_age=most or (None if contradiction(rule.max_age, least) else rule.max_age),
        min_interval=least or (None if contradiction(most, rule.min_interval) else rule.min_interval),
    )


def span_in_meta(meta: Mapping[str, Any], key: str) -> Span | None:
    """Read the `Span` under `key` of a request's meta; None: it is missing or cannot be read."""
    try:
        return read_span(meta[key]) if key in meta else None
    except ValueError:
        return None
