"""The text of an exported history, both ways: the lines of a store, and what the lines say.

One line per page: ``site<TAB>page<TAB>bits<TAB>json``. ``site`` is the host, ``page`` the URL. ``bits`` has
one character per cycle from 2 to the last finished one: ``1`` changed, ``0`` unchanged, ``.`` not judged (no
visit, or one with nothing to compare with). ``json``, a `PageState`, is what restoring the page also needs.
The first line is a comment, ``#`` and JSON: the format's name and the cycles' records.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple, cast
from urllib.parse import urlsplit

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.errors import ImportFileError
from scrapy_gp4c.page_state.columns import Columns
from scrapy_gp4c.page_state.outcomes import CHANGED, FAILED, OUTCOMES, SAME, among
from scrapy_gp4c.store.claims_text import ClaimsState, claims_between, claims_state, read_claims
from scrapy_gp4c.store.credentials import Credentials
from scrapy_gp4c.store.gain_text import MEASURED, GainState, gains_of, measured_by, read_gains
from scrapy_gp4c.store.growth_text import GrowthState, growth_of, read_growth
from scrapy_gp4c.store.page_store import PageStore
from scrapy_gp4c.store.records import CycleRecord, StoredRequest
from scrapy_gp4c.store.weight_text import WeightState, weight_of, weight_state

FORMAT: Final = "gp4c-history/1"
CHANGED_BIT, UNCHANGED_BIT, NOT_JUDGED = (ord(character) for character in "10.")
MATRIX_BYTES: Final = 64_000_000
_FAILURES: Final = tuple(OUTCOMES[code] for code in FAILED)
_NUMBERS: Final = ("first_cycle", "last_cycle", "failures", "gone", "last_attempt", "entered")

ToPage = Callable[[StoredRequest], tuple[int, StoredRequest]]
"""Key and normalised form of a stored request; raises ValueError for a URL that is none."""


class PageState(GrowthState, ClaimsState, GainState, WeightState, total=False):
    """What the bits do not tell of a page: the JSON of its line."""

    first_cycle: int
    last_cycle: int
    fingerprint: str
    """16 hex digits; absent: there is no copy."""
    failures: int
    gone: int
    last_attempt: int
    outcome: str
    etag: str
    last_modified: str
    request: Any
    """The `StoredRequest` without its URL."""


class PageLine(NamedTuple):
    """What one line of a history says of its page."""

    line: int
    key: int
    request: StoredRequest
    bits: bytes
    first_cycle: int
    last_cycle: int
    last_attempt: int
    failures: int
    gone: int
    outcome: int
    """Of the last visit, if it failed: one of `FAILED`."""
    fingerprint: int | None
    entered: int
    found_by: int
    """As the column of this name has it."""
    brought: tuple[float, float, int] | None
    claims: npt.NDArray[Any]
    """Dtype `scrapy_gp4c.store.claims_text.DATED`."""
    seen_min: float
    validators: tuple[str | None, str | None]
    gains: tuple[tuple[int, float], ...]
    """Cycle and gain, in ppm, of each measured visit."""
    weight: float


def lines(
    store: PageStore, credentials: Credentials | None = None, matrix_bytes: int = MATRIX_BYTES
) -> Iterator[str]:
    """Yield the lines of a store's history up to its last finished cycle, without what is secret.

    Of pages that differ in that alone, which stores of earlier versions have, the first is written; a comment
    at the end counts the others. ``credentials``: what is secret; None: what the store's records say;
    ``matrix_bytes``: memory for the bits of the pages of one pass over the visits.
    """
    last = store.last_cycle
    without = _WithoutSecrets(credentials or Credentials.of_store(store.cycles()))
    records = [record for record in store.cycles() if record["cycle"] <= last]
    measured = measured_by(store)
    about = {"format": FORMAT, "cycles": records, **({MEASURED: measured} if measured else {})}
    yield "# " + json.dumps(about)
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
        yield f"# {without.left_out} pages are left out: they differ from others only in what is secret"


class _WithoutSecrets:
    """Takes out of stored requests what is secret, and tells which have become equal by that."""

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials
        self._seen: set[str] = set()
        self._left_out: list[int] = []
        """Pages, ids ascending."""

    @property
    def left_out(self) -> int:
        """How many pages were left out."""
        return len(self._left_out)

    def line_of(self, found_by: int) -> int:
        """Number of the finder's line, by the column `found_by`: those before it may have been left out."""
        before = bisect_left(self._left_out, found_by - 1)
        is_left_out = self._left_out[before : before + 1] == [found_by - 1]
        return 0 if is_left_out else found_by - before

    def __call__(self, page: int, stored: StoredRequest) -> StoredRequest | None:
        """The request without what is secret; None if it is no other page by that."""
        bare = self._credentials.stripped(stored)
        if bare["url"] != stored["url"]:
            if bare["url"] in self._seen:
                self._left_out.append(page)
                return None
            self._seen.add(bare["url"])
        return bare


def _lines(
    store: PageStore, group: list[tuple[int, Columns]], last: int, without: _WithoutSecrets
) -> Iterator[str]:
    first = group[0][0]
    stop = group[-1][0] + len(group[-1][1]["n"])
    bits = np.full((stop - first, max(0, last - 1)), NOT_JUDGED, np.uint8)
    for cycle, visits in store.visits(2, last):
        visits = visits[(visits["page"] >= first) & (visits["page"] < stop)]
        for codes, bit in (((CHANGED,), CHANGED_BIT), (SAME, UNCHANGED_BIT)):
            bits[visits["page"][among(visits["outcome"], codes)] - first, cycle - 2] = bit
    claims = claims_between(store, first, stop)
    of_page = np.searchsorted(claims["page"], np.arange(first, stop + 1))
    gains = gains_of(store, first, stop)
    for start, block in group:
        ids = np.arange(start, start + len(block["n"]))
        for row, stored in enumerate(store.requests(ids)):
            request = without(start + row, stored)
            if request is None:
                continue
            text = bits[start - first + row].tobytes().decode("ascii")
            url = request["url"]
            extra = _state(block, row, text)
            own = claims[slice(*of_page[start - first + row :][:2])]
            told = {**claims_state(block, row, own), **weight_state(block, row)}
            extra = cast(PageState, {**extra, **growth_of(block, row, without.line_of), **told})
            etag, last_modified = store.validators(start + row)
            if start + row in gains:
                extra["dq"] = gains[start + row]
            if etag is not None:
                extra["etag"] = etag
            if last_modified is not None:
                extra["last_modified"] = last_modified
            if rest := {name: value for name, value in request.items() if name != "url"}:
                extra["request"] = rest
            yield "\t".join((urlsplit(url).netloc, url, text, json.dumps(extra)))


def _state(block: Columns, row: int, text: str) -> PageState:
    """Return what the bits do not tell of a page's columns."""
    value = {name: column[row].item() for name, column in block.items() if name not in ("A", "G")}
    extra: PageState = {}
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


def is_header(text: str) -> bool:
    """Tell whether a comment is the header of a history."""
    return text.startswith("# {") and FORMAT.partition("/")[0] in text


def read_header(name: str, header: str) -> list[CycleRecord]:
    """Return the records of the cycles; raises ImportFileError, which names the file, for another header."""
    try:
        content = json.loads(header[1:])
        records: list[CycleRecord] = content["cycles"]
        sound = content["format"] == FORMAT and all("finished" in record for record in records)
    except (ValueError, KeyError, TypeError, RecursionError):
        sound = False
    if not sound:
        raise ImportFileError(
            f'{name}, line 1: expected the header of a history, # {{"format": "{FORMAT}", "cycles": [...]}}; '
            f"found {header[:80]!r}. Export it anew."
        )
    return records


def read_page(name: str, number: int, line: str, to_page: ToPage) -> PageLine:
    """Return what a line says; raises ImportFileError, which names the file and the line."""
    try:
        fields = line.split("\t")
        if len(fields) not in (3, 4):
            raise ValueError(
                f"expected site, page, bits and JSON with tabs between; found {len(fields)} fields"
            )
        bits = fields[2].encode()
        if bits.strip(b"01."):
            raise ValueError(f"expected bits of '0', '1' and '.'; found {fields[2][:40]!r}")
        state = json.loads(fields[3]) if len(fields) == 4 else {"first_cycle": 1}
        if not isinstance(state, dict) or not isinstance(state.get("request", {}), dict):
            raise ValueError(f"expected a JSON object in the fourth field; found {fields[3][:40]!r}")
        stored: Any = {"url": fields[1], **state.get("request", {})}
        key, request = to_page(stored)
        for column in _NUMBERS:
            if not isinstance(state.get(column, 0), int):
                raise ValueError(f"expected a whole number as {column}; found {state[column]!r}")
        fingerprint = int(state["fingerprint"], 16) if "fingerprint" in state else None
        outcome = state.get("outcome", "error")
        if outcome not in _FAILURES:
            raise ValueError(f"expected one of {_FAILURES} as outcome; found {outcome!r}")
        found_by, brought = read_growth(cast(GrowthState, state))
        claims, seen_min = read_claims(cast(ClaimsState, state))
        gains = read_gains(cast(GainState, state))
        weight = weight_of(cast(WeightState, state))
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise ImportFileError(
            f"{name}, line {number}: {error}. Correct the line; nothing was imported."
        ) from None
    return PageLine(
        number,
        key,
        request,
        bits,
        **{column: state.get(column, 0) for column in _NUMBERS},
        outcome=OUTCOMES.index(outcome),
        fingerprint=fingerprint,
        found_by=found_by,
        brought=brought,
        claims=claims,
        seen_min=seen_min,
        validators=(state.get("etag"), state.get("last_modified")),
        gains=gains,
        weight=weight,
    )


def check_pages(name: str, pages: Sequence[PageLine], cycles: int, is_known: Callable[[int], bool]) -> None:
    """Check what concerns several pages, or a page and the number of cycles; raises ImportFileError.

    ``is_known(key)``: whether a page of an earlier call has this key.
    """
    seen: set[int] = set()
    for page in pages:
        problem = None
        judged = [cycle for cycle, bit in enumerate(page.bits, 2) if bit != NOT_JUDGED]
        dates = [page.first_cycle, page.last_cycle, page.last_attempt]
        told = [*page.claims["cycle"].tolist(), *(cycle for cycle, _ in page.gains[-1:])]
        if len(page.bits) != max(0, cycles - 1):
            problem = f"expected {max(0, cycles - 1)} bits as for {cycles} cycles; found {len(page.bits)}"
        elif page.key in seen or is_known(page.key):
            problem = f"the page {page.request['url']} comes a second time"
        elif not all(0 <= date <= cycles for date in [*dates, *told]):
            problem = f"expected cycles of at most {cycles}; found {[*dates, *told]}"
        elif judged and dates[0] >= judged[0]:
            problem = f"the first fetch, cycle {dates[0]}, must come before the first judged {judged[0]}"
        elif judged and 0 < max(dates[1:]) <= judged[-1]:
            problem = f"the last visit cannot come before the last judged cycle {judged[-1]}"
        if problem:
            raise ImportFileError(f"{name}, line {page.line}: {problem}. Nothing was imported.")
        seen.add(page.key)
