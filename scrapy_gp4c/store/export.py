"""Export of a store's history as text: see `scrapy_gp4c.store.history_fields` for its format."""

import json
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec
import numpy as np

from scrapy_gp4c.arrays import Array
from scrapy_gp4c.foreign_text import counted
from scrapy_gp4c.page_state.claims import CLAIM, DATED_CLAIM
from scrapy_gp4c.page_state.columns import Columns
from scrapy_gp4c.page_state.outcomes import CHANGED, COPIED, OUTCOMES, SAME, among
from scrapy_gp4c.scoring.discovery import START
from scrapy_gp4c.scoring.hints import KINDS
from scrapy_gp4c.scoring.measured import flips
from scrapy_gp4c.scoring.weights import DEFAULT_WEIGHT
from scrapy_gp4c.store.credentials import Credentials
from scrapy_gp4c.store.history_fields import (
    BROUGHT,
    CHANGED_BIT,
    FORMAT,
    LINKS,
    NOT_JUDGED,
    UNCHANGED_BIT,
    PageState,
)
from scrapy_gp4c.store.lmdb_store.store import Store
from scrapy_gp4c.store.records import StoredRequest

MATRIX_BYTES: Final = 64_000_000
_COLUMNS: Final = (
    "first_cycle", "last_cycle", "n", "fingerprint", "has_copy", "failures", "gone", "last_attempt",
    "outcome", "entered", "found_by", *BROUGHT, "seen_min", "weight", "size", "latency_ms", *LINKS,
)  # fmt: skip
FLIPPED: Final = np.dtype([("page", "<u4"), ("cycle", "<i4"), ("bits", "<u8")])
"""A change of a page in a cycle: ``bits`` is the old copy's fingerprint XOR the new one's."""


def lines(
    store: Store, credentials: Credentials | None = None, matrix_bytes: int = MATRIX_BYTES
) -> Iterator[str]:
    """Yield the lines of a store's exported history up to its last finished cycle, without secrets.

    Of pages whose URLs differ only in secrets, the first is written; a comment at the end counts the others.
    ``credentials``: names of secrets; None: those in the store's records; ``matrix_bytes``: memory for change
    bits, which limits how many pages one pass over all visits writes.
    """
    last, all_records = store.last_cycle, store.cycles()
    without = _WithoutSecrets(credentials or Credentials.of_store(all_records))
    records = [record for record in all_records if record["cycle"] <= last]
    header: dict[str, Any] = {"format": FORMAT, "cycles": len(records)}
    if (log := store.gains_log()) is not None:
        header["measured"] = list(log)
    for comment in (header, *records):
        yield "# " + json.dumps(comment)
    cycles = max(1, last - 1)
    group: list[tuple[int, Columns]] = []
    for first, block in store.blocks():
        if group and (first + len(block["n"]) - group[0][0]) * cycles > matrix_bytes:
            yield from _lines(store, group, last, without)
            group = []
        group.append((first, block))
    if group:
        yield from _lines(store, group, last, without)
    if without.left_out:
        pages = counted(without.left_out, "page differs", "pages differ")
        yield f"# {pages} from others only in what is secret: left out"


class _WithoutSecrets:
    """Removes secrets from stored requests, and counts pages that equal an earlier page without them."""

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials
        self._seen: set[str] = set()
        self._left_out: list[int] = []
        """Ids of the pages that equal an earlier one, ascending."""

    @property
    def left_out(self) -> int:
        return len(self._left_out)

    def line_of(self, found_by: int) -> int:
        """Convert column ``found_by`` (page id + 1 of the linking page) to the number of that page's line.

        0: no page, or one that is left out.
        """
        if not found_by or found_by == START:
            return 0
        before = bisect_left(self._left_out, found_by - 1)
        is_left_out = self._left_out[before : before + 1] == [found_by - 1]
        return 0 if is_left_out else found_by - before

    def __call__(self, page: int, stored: StoredRequest) -> StoredRequest | None:
        """Return the request of `page` without secrets; None if its URL is then that of an earlier page."""
        bare = self._credentials.stripped(stored)
        if bare["url"] != stored["url"]:
            if bare["url"] in self._seen:
                self._left_out.append(page)
                return None
            self._seen.add(bare["url"])
        return bare


def _lines(
    store: Store, group: list[tuple[int, Columns]], last: int, without: _WithoutSecrets
) -> Iterator[str]:
    first = group[0][0]
    stop = group[-1][0] + len(group[-1][1]["n"])
    bits = np.full((stop - first, max(0, last - 1)), NOT_JUDGED, np.uint8)
    for cycle, visits in store.visits(2, last):
        visits = visits[(visits["page"] >= first) & (visits["page"] < stop)]
        for codes, bit in (((CHANGED,), CHANGED_BIT), (SAME, UNCHANGED_BIT)):
            bits[visits["page"][among(visits["outcome"], codes)] - first, cycle - 2] = bit
    claims, gains = claims_between(store, first, stop), _gains_between(store, first, stop)
    of_page = np.searchsorted(claims["page"], np.arange(first, stop + 1)).tolist()
    flipped = flipped_between(store, first, stop)
    changes = np.searchsorted(flipped["page"], np.arange(first, stop + 1)).tolist()
    for start, block in group:
        requests = store.requests(np.arange(start, start + len(block["n"])))
        rows = zip(*(block[name].tolist() for name in _COLUMNS), strict=True)
        for page, (stored, row) in enumerate(zip(requests, rows, strict=True), start):
            request = without(page, stored)
            if request is None:
                continue
            columns = dict(zip(_COLUMNS, row, strict=True))
            text = bits[page - first].tobytes().decode("ascii")
            last_judged = max(text.rfind("0"), text.rfind("1")) + 2
            state = _state(columns, last_judged)
            state.found_by = "start" if columns["found_by"] == START else without.line_of(columns["found_by"])
            page_claims = claims[of_page[page - first] : of_page[page - first + 1]].tolist()
            state.claims = [(cycle, KINDS[kind], value) for cycle, _, kind, value in page_claims]
            state.dq = gains.get(page, [])
            page_flipped = flipped["bits"][changes[page - first] : changes[page - first + 1]]
            state.flipped = [f"{bits:x}" for bits in page_flipped.tolist()] if page_flipped.any() else []
            state.etag, state.last_modified = store.validators(page)
            state.request = {name: value for name, value in request.items() if name != "url"}
            url = request["url"]
            yield "\t".join((urlsplit(url).netloc, url, text, json.dumps(msgspec.to_builtins(state))))


def _state(columns: dict[str, Any], last_judged: int) -> PageState:
    """Make a page's JSON object from its `columns`; ``last_judged``: last cycle whose bit is 0 or 1."""
    names = ["first_cycle", "entered", "seen_min", "size", "latency_ms"]
    brought = [columns[name] for name in BROUGHT]
    values: dict[str, Any] = {"brought": brought if any(brought) else None}
    if columns["failures"]:
        names += ["failures", "gone", "last_attempt"]
        values["outcome"] = OUTCOMES[columns["outcome"]]
    if columns["n"] and columns["last_cycle"] > last_judged:
        names.append("last_cycle")
    if columns["has_copy"]:
        values["fingerprint"] = f"{columns['fingerprint']:016x}"
    if any(linked := [columns[name] for name in LINKS]):
        page_bits, site_bits, anchor = linked
        values["links"] = f"{page_bits:x}", f"{site_bits:x}", anchor
    if columns["weight"] != DEFAULT_WEIGHT:
        values["weight"] = columns["weight"]
    # msgspec takes 0.0 for no default.
    return PageState(**values, **{name: columns[name] for name in names if columns[name]})


def claims_between(store: Store, first: int, stop: int) -> Array:
    """Read all claims about the pages first..stop-1: dtype `DATED_CLAIM`, by page, then in stored order."""
    parts = [np.empty(0, DATED_CLAIM)]
    for cycle, claimed in store.claims_of_cycles(0):
        chosen = claimed[(claimed["page"] >= first) & (claimed["page"] < stop)]
        dated = np.empty(len(chosen), DATED_CLAIM)
        dated["cycle"] = cycle
        for name in CLAIM.names or ():
            dated[name] = chosen[name]
        parts.append(dated)
    claims = np.concatenate(parts)
    return claims[np.argsort(claims["page"], kind="stable")]


def flipped_between(store: Store, first: int, stop: int) -> Array:
    """Read the changes that visits to the pages first..stop-1 found: dtype `FLIPPED`, by page and cycle."""
    parts, copies = [np.empty(0, FLIPPED)], np.zeros(stop - first, np.uint64)
    for cycle, visits in store.visits(1, store.last_cycle):
        of_pages = (visits["page"] >= first) & (visits["page"] < stop)
        visits = visits[of_pages & among(visits["outcome"], COPIED)]
        changed = visits[visits["outcome"] == CHANGED]
        of_cycle = np.empty(len(changed), FLIPPED)
        of_cycle["page"], of_cycle["cycle"] = changed["page"], cycle
        of_cycle["bits"] = flips(copies[changed["page"] - first], changed["fingerprint"])
        copies[visits["page"] - first] = visits["fingerprint"]
        parts.append(of_cycle)
    flipped = np.concatenate(parts)
    return flipped[np.argsort(flipped["page"], kind="stable")]


def _gains_between(store: Store, first: int, stop: int) -> dict[int, list[tuple[int, float]]]:
    """Page -> (cycle, gain in ppm) pairs, for pages first..stop-1, as measured by the query log in use."""
    gains: defaultdict[int, list[tuple[int, float]]] = defaultdict(list)
    log = store.gains_log()
    for cycle, rows in () if log is None else store.gains_of_cycles(log[1]):
        chosen = rows[(rows["page"] >= first) & (rows["page"] < stop)]
        for page, ppm in zip(chosen["page"].tolist(), chosen["ppm"], strict=True):
            gains[page].append((cycle, float(str(ppm))))  # as many digits as a float32 has
    return gains
