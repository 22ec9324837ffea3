"""The text of an exported history."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import urlsplit

import numpy as np

from scrapy_gp4c.page_state.columns import Columns
from scrapy_gp4c.page_state.outcomes import CHANGED, NOT_MODIFIED, OUTCOMES, UNCHANGED
from scrapy_gp4c.store.page_store import PageStore

FORMAT: Final = "gp4c-history/1"


CHANGED_BIT, UNCHANGED_BIT, NOT_JUDGED = (ord(character) for character in "10.")


MATRIX_BYTES = 64_000_000
"""Memory for the bits of the pages exported in one pass over the visits."""


def lines(store: PageStore) -> Iterator[str]:
    """Yield the lines of a store's history up to its last finished cycle."""
    last = store.last_cycle
    records = [record for record in store.cycles() if record["cycle"] <= last]
    yield "# " + json.dumps({"format": FORMAT, "cycles": records})
    cycles = max(1, last - 1)
    group: list[tuple[int, Columns]] = []
    for first, block in store.blocks():
        if group and (first + len(block["n"]) - group[0][0]) * cycles > MATRIX_BYTES:
            yield from _lines(store, group, last)
            group = []
        group.append((first, block))
    if group:
        yield from _lines(store, group, last)


def _lines(store: PageStore, group: list[tuple[int, Columns]], last: int) -> Iterator[str]:
    first = group[0][0]
    stop = group[-1][0] + len(group[-1][1]["n"])
    bits = np.full((stop - first, max(0, last - 1)), NOT_JUDGED, np.uint8)
    for cycle, visits in store.visits(2, last):
        visits = visits[(visits["page"] >= first) & (visits["page"] < stop)]
        for outcomes, bit in (((CHANGED,), CHANGED_BIT), ((UNCHANGED, NOT_MODIFIED), UNCHANGED_BIT)):
            bits[visits["page"][np.isin(visits["outcome"], outcomes)] - first, cycle - 2] = bit
    for start, block in group:
        ids = np.arange(start, start + len(block["n"]))
        for row, request in enumerate(store.requests(ids)):
            text = bits[start - first + row].tobytes().decode("ascii")
            url = request["url"]
            extra = _state(block, row, text) | _validators(store, start + row)
            if rest := {name: value for name, value in request.items() if name != "url"}:
                extra["request"] = rest
            yield "\t".join((urlsplit(url).netloc, url, text, json.dumps(extra)))


def _state(block: Columns, row: int, text: str) -> dict[str, Any]:
    """Return what the bits do not tell of a page's columns."""
    value = {name: column[row].item() for name, column in block.items() if name not in ("A", "G")}
    extra: dict[str, Any] = {}
    if value["first_cycle"]:
        extra["first_cycle"] = value["first_cycle"]
    last_judged = max(text.rfind("0"), text.rfind("1")) + 2
    if value["n"] and value["last_cycle"] > last_judged:
        extra["last_cycle"] = value["last_cycle"]
    if value["has_copy"]:
        extra["fingerprint"] = f"{value['fingerprint']:016x}"
    if value["failures"]:
        extra["failures"] = value["failures"]
        extra["gone"] = value["gone"]
        extra["last_attempt"] = value["last_attempt"]
        extra["outcome"] = OUTCOMES[value["outcome"]]
    return extra


def _validators(store: PageStore, page: int) -> dict[str, Any]:
    values = zip(("etag", "last_modified"), store.validators(page), strict=True)
    return {name: value for name, value in values if value is not None}


def is_header(text: str) -> bool:
    """Tell whether a comment is the header of a history."""
    return text.startswith("# {") and FORMAT.partition("/")[0] in text
