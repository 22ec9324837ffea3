"""Reading of an exported history: see `scrapy_gp4c.store.history_fields` for its format."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from scrapy_gp4c.errors import ImportFileError
from scrapy_gp4c.foreign_text import counted
from scrapy_gp4c.store.history_fields import FORMAT, HEADER_START, NOT_JUDGED, read_fields
from scrapy_gp4c.store.records import CycleRecord, StoredRequest

ToPage = Callable[[StoredRequest], tuple[int, StoredRequest]]
"""Key and normalised form of a stored request; raises ValueError for a URL that is none."""


class HistoryHeader(NamedTuple):
    """First line of a history."""

    cycles: int
    """Number of finished cycles, each with a comment that has its record."""
    measured: tuple[str, int] | None
    """Digest of the log that gains are measured by, and the first cycle measured; None: no gains."""


class PageLine(NamedTuple):
    """Content of one line of a history."""

    line: int
    key: int
    request: StoredRequest
    bits: bytes
    first_cycle: int
    last_cycle: int
    fingerprint: int | None
    """None: there is no copy."""
    failures: int
    gone: int
    last_attempt: int
    outcome: int
    """Code of the last visit's outcome, if it failed: one of `FAILED`."""
    entered: int
    found_by: int
    """As in the column of this name."""
    brought: tuple[float, float, int] | None
    claims: npt.NDArray[Any]
    """Dtype `DATED`."""
    seen_min: float
    weight: float
    size: int
    """As the column of this name."""
    dq: tuple[tuple[int, float], ...]
    """Cycle and gain, in ppm, of each measured visit."""
    etag: str | None
    last_modified: str | None


def is_header(text: str) -> bool:
    """Whether a comment is the header of a history."""
    return text.startswith(HEADER_START) and FORMAT.partition("/")[0] in text


def read_header(name: str, header: str) -> HistoryHeader:
    """Read the first line; raises ImportFileError, which names the file, for another header."""
    try:
        content = json.loads(header[1:])
        cycles, measured = content["cycles"], content.get("measured")
        is_sound = content["format"] == FORMAT and type(cycles) is int and 0 <= cycles < 2**31
        if measured is not None:
            log, since = measured
            is_sound = is_sound and isinstance(log, str) and type(since) is int and since > 0
            measured = log, since
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        is_sound = False
    if not is_sound:
        raise ImportFileError(
            f'{name}, line 1: expected the header of a history, # {{"format": "{FORMAT}", "cycles": N}}; '
            f"found {header[:80]!r}. Export it anew."
        )
    return HistoryHeader(cycles, measured)


def read_record(name: str, number: int, line: str, cycle: int) -> CycleRecord:
    """Read the record of a finished cycle; raises ImportFileError, which names the file and the line."""
    found_line = f"found {line[:80]!r}"
    try:
        record: CycleRecord = json.loads(
            line[1:]
        )  # with fields of other versions, which the check leaves out
        msgspec.convert(record, CycleRecord)
        is_sound = record.get("cycle") == cycle and "finished" in record
    except (ValueError, RecursionError, msgspec.ValidationError) as error:
        is_sound, found_line = False, f"{found_line} ({error})"
    if not is_sound:
        raise ImportFileError(
            f"{name}, line {number}: expected the record of cycle {cycle}, a JSON object with its number and "
            f"finish; {found_line}. Export it anew."
        )
    return record


def read_page(name: str, number: int, line: str, to_page: ToPage) -> PageLine:
    """Read the line of a page; raises ImportFileError, which names the file and the line."""
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
        if not isinstance(state, dict):
            raise ValueError(f"expected a JSON object in the fourth field; found {fields[3][:40]!r}")
        values = read_fields(state)
        stored: Any = {"url": fields[1], **values.pop("request")}
        key, request = to_page(stored)
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise ImportFileError(
            f"{name}, line {number}: {error}. Correct the line; nothing was imported."
        ) from None
    return PageLine(number, key, request, bits, **values)


def check_pages(name: str, pages: Sequence[PageLine], cycles: int, is_known: Callable[[int], bool]) -> None:
    """Check several pages against each other and the number of cycles; raises ImportFileError.

    ``is_known(key)``: whether a page of an earlier call has this key.
    """
    seen: set[int] = set()
    for page in pages:
        problem = None
        judged = 2 + np.flatnonzero(np.frombuffer(page.bits, np.uint8) != NOT_JUDGED)
        dates = [page.first_cycle, page.last_cycle, page.last_attempt]
        all_dates = [*dates, *page.claims["cycle"].tolist(), *(cycle for cycle, _ in page.dq)]
        if len(page.bits) != max(0, cycles - 1):
            bits = f"{max(0, cycles - 1)} bits as for {counted(cycles, 'cycle')}"
            problem = f"expected {bits}; found {len(page.bits)}"
        elif page.key in seen or is_known(page.key):
            problem = f"the page {page.request['url']} comes a second time"
        elif max(all_dates) > cycles:
            problem = f"expected cycles of at most {cycles}; found {all_dates}"
        elif len(judged) and dates[0] >= judged[0]:
            problem = f"the first fetch, cycle {dates[0]}, must come before the first judged {judged[0]}"
        elif len(judged) and 0 < max(dates[1:]) <= judged[-1]:
            problem = f"the last visit cannot come before the last judged cycle {judged[-1]}"
        if problem:
            raise ImportFileError(f"{name}, line {page.line}: {problem}. Nothing was imported.")
        seen.add(page.key)
