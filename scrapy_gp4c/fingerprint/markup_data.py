"""Data of an HTML page that no text shows: prices, stocks, ratings and its picture, in markup and scripts."""

import re
from functools import lru_cache
from typing import Final

import xxhash

_NAMES: Final = ("price", "stock", "availab", "rating", "og:image")
_tags: Final = re.compile(r"<[^<>]{1,2000}>").findall
_class_finder: Final = re.compile(r"class\s{0,3}=\s{0,3}[\"']([^\"'<>]{1,200})[\"']").findall
_value_finders: Final = tuple(
    re.compile(name + rest).findall
    for name in _NAMES  # each begins with a text, which makes it fast
    for rest in (
        r"[\w-]{0,20}[\"']?\s{0,3}[:=]\s{0,3}[\"']?([^\"'<>\s;,&]{1,40})",
        r"[\w-]{0,20}[\"']?\s[^<>]{0,80}?(?:value|content|max)=[\"']?([^\"'<>\s?]{1,300})",
    )
)


@lru_cache(1)  # a visit asks for it when it compares the page, and when its callback has run
def data_sum(source: str) -> int:
    """Return a checksum of named data (prices, stocks, ...) in HTML's markup, uint64; 0: there is none."""
    lower = source.lower()
    if not any(name in lower for name in _NAMES):
        return 0
    head, *scripts = lower.split("<script")
    pieces = _tags(head)
    for part in scripts:
        script, _, behind = part.partition("</script")
        pieces += [script, *_tags(behind)]
    markup = "\n".join(pieces)
    entries = [value for find in _value_finders for value in find(markup)]
    entries += [names for names in _class_finder(markup) if any(name in names for name in _NAMES)]
    return xxhash.xxh64_intdigest("\n".join(entries).encode("utf-8", "replace")) if entries else 0
