"""Fields of a page's line in an exported history: one record says how each is written and read.

A history is text. Its first line is a comment, ``#`` and JSON: the format's name, the number of cycles and,
if gains were measured, by what. A comment per cycle follows with the cycle's record, then a line per page:
``site<TAB>page<TAB>bits<TAB>json``. ``site`` is the host, ``page`` the URL. ``bits`` has one character per
cycle from 2 to the last finished one: ``1`` changed, ``0`` unchanged, ``.`` not judged (no visit, or one with
nothing to compare with). ``json`` is an object of the fields `FIELDS`, without those that are missing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from scrapy_gp4c.errors import ImportFileError
from scrapy_gp4c.foreign_text import counted
from scrapy_gp4c.page_state.claims import CLAIM
from scrapy_gp4c.page_state.outcomes import FAILED, OUTCOMES
from scrapy_gp4c.scoring import discovery, sizes
from scrapy_gp4c.scoring.hints import KINDS
from scrapy_gp4c.scoring.weights import DEFAULT_WEIGHT, read_weight
from scrapy_gp4c.store.records import CycleRecord, StoredRequest

FORMAT: Final = "gp4c-history/1"
HEADER_START: Final = "# {"
CHANGED_BIT, UNCHANGED_BIT, NOT_JUDGED = (ord(character) for character in "10.")
DATED: Final = np.dtype([("cycle", "<i4"), *CLAIM.descr])
"""A claim, and the cycle in which it was new."""
BROUGHT: Final = ("brought_sum", "brought_cycles", "brought_cycle")
"""Columns of what a page's visits brought."""
_FAILURES: Final = tuple(OUTCOMES[code] for code in FAILED)
_SHOWN: Final = 80
"""Characters of a wrong value in an error."""


class PageText(NamedTuple):
    """Everything that a page's line is written from."""

    columns: dict[str, Any]
    """Columns of the page, the optional ones too, as Python numbers."""
    last_judged: int
    """Last cycle with a bit other than `NOT_JUDGED`; 1: none."""
    finder_line: int
    """Line of the page that found it, by the column ``found_by``; 0: that is not known."""
    claims: npt.NDArray[Any]
    """Dtype `DATED`."""
    gains: Sequence[tuple[int, float]]
    validators: tuple[str | None, str | None]
    request: dict[str, Any]
    """Stored request without its URL."""


class Field(NamedTuple):
    """Field of a page's JSON object."""

    name: str
    write: Callable[[PageText], Any]
    """Value of a page; None where it is left out."""
    read: Callable[[Any], Any]
    """Checks and converts a value; raises ValueError that says what was expected."""
    missing: Any = None
    """Value of a page whose line has none, before `read`."""


def _shown(value: object) -> str:
    return str(value)[:_SHOWN] if not isinstance(value, str) else repr(value)[:_SHOWN]


def _whole_number(most: int) -> Callable[[Any], int]:
    def read(value: Any) -> int:
        if type(value) is not int or not 0 <= value <= most:
            raise ValueError(f"expected a whole number from 0 to {most}; found {_shown(value)}")
        return value

    return read


def _read_fingerprint(value: Any) -> int | None:
    if value is None:
        return None
    if not isinstance(value, str) or not re.fullmatch("[0-9A-Fa-f]{1,16}", value):
        raise ValueError(f"expected 16 hex digits; found {_shown(value)}")
    return int(value, 16)


def _read_outcome(value: Any) -> int:
    if value not in _FAILURES:
        raise ValueError(f"expected one of {_FAILURES}; found {_shown(value)}")
    return OUTCOMES.index(value)


def _write_found_by(page: PageText) -> int | str | None:
    if page.columns["found_by"] == discovery.START:
        return "start"
    return page.finder_line or None


def _read_found_by(value: Any) -> int:
    if value == "start":
        return int(discovery.START)
    if type(value) is not int or not 0 <= value < discovery.START:
        raise ValueError(f"expected the number of a line, or 'start'; found {_shown(value)}")
    return value


def _write_brought(page: PageText) -> list[float] | None:
    brought = [page.columns[name] for name in BROUGHT]
    return brought if any(brought) else None


def _read_brought(value: Any) -> tuple[float, float, int] | None:
    if value is None:
        return None
    is_sound = isinstance(value, list) and len(value) == len(BROUGHT)
    if not is_sound or not all(_is_number(one) and 0 <= one < 2**31 for one in value):
        raise ValueError(f"expected {len(BROUGHT)} numbers; found {_shown(value)}")
    return value[0], value[1], int(value[2])


def _write_claims(page: PageText) -> list[tuple[int, str, int]] | None:
    return [(int(claim["cycle"]), KINDS[claim["kind"]], int(claim["value"])) for claim in page.claims] or None


def _read_claims(value: Any) -> npt.NDArray[Any]:
    if not isinstance(value, list) or not all(map(_is_claim, value)):
        raise ValueError(
            f"expected lists of cycle, kind ({', '.join(KINDS)}) and value; found {_shown(value)}"
        )
    return np.array([(cycle, 0, KINDS.index(kind), number) for cycle, kind, number in value], DATED)


def _is_claim(claim: object) -> bool:
    if not isinstance(claim, list) or len(claim) != 3 or claim[1] not in KINDS:
        return False
    cycle, _, value = claim
    are_numbers = type(cycle) is int and type(value) is int
    return are_numbers and 0 <= cycle < 2**31 and -(2**31) <= value < 2**31


def _read_minutes(value: Any) -> float:
    if not _is_number(value) or not 0 <= value < 65_504:
        raise ValueError(f"expected minutes; found {_shown(value)}")
    return float(value)


def _read_gains(value: Any) -> tuple[tuple[int, float], ...]:
    is_list = isinstance(value, list) and all(isinstance(one, list) and len(one) == 2 for one in value)
    if not is_list or not all(type(cycle) is int and cycle > 0 and _is_gain(ppm) for cycle, ppm in value):
        raise ValueError(f"expected pairs of a cycle and a number; found {_shown(value)}")
    cycles = [cycle for cycle, _ in value]
    if cycles != sorted(set(cycles)):
        raise ValueError(f"expected each cycle once, in order; found {_shown(cycles)}")
    return tuple((cycle, float(ppm)) for cycle, ppm in value)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_gain(value: Any) -> bool:
    return _is_number(value) and abs(value) <= float(np.finfo(np.float32).max)


def _read_text(value: Any) -> str | None:
    if value is not None and not isinstance(value, str):
        raise ValueError(f"expected a text; found {_shown(value)}")
    return value


def _read_request(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"expected a JSON object; found {_shown(value)}")
    return value


def _column(name: str, default: float = 0) -> Callable[[PageText], Any]:
    """Writer of a column, which omits default values."""
    return lambda page: None if page.columns[name] == default else page.columns[name]


def _if_failed(name: str) -> Callable[[PageText], Any]:
    """Writer of a column for pages whose last visits failed."""
    return lambda page: page.columns[name] if page.columns["failures"] else None


def _write_last_cycle(page: PageText) -> int | None:
    """Cycle of the last copy, where no bit tells it."""
    last = page.columns["last_cycle"]
    return last if page.columns["n"] and last > page.last_judged else None


def _write_fingerprint(page: PageText) -> str | None:
    return f"{page.columns['fingerprint']:016x}" if page.columns["has_copy"] else None


def _write_outcome(page: PageText) -> str | None:
    return OUTCOMES[page.columns["outcome"]] if page.columns["failures"] else None


_CYCLE: Final = _whole_number(2**31 - 1)
_READ_SIZE: Final = _whole_number(sizes.CLASSES - 1)
FIELDS: Final = (
    Field("first_cycle", _column("first_cycle"), _CYCLE, 0),
    Field("last_cycle", _write_last_cycle, _CYCLE, 0),
    Field("fingerprint", _write_fingerprint, _read_fingerprint),
    Field("failures", _if_failed("failures"), _whole_number(255), 0),
    Field("gone", _if_failed("gone"), _whole_number(255), 0),
    Field("last_attempt", _if_failed("last_attempt"), _CYCLE, 0),
    Field("outcome", _write_outcome, _read_outcome, "error"),
    Field("entered", _column("entered"), _CYCLE, 0),
    Field("found_by", _write_found_by, _read_found_by, 0),
    Field("brought", _write_brought, _read_brought),
    Field("claims", _write_claims, _read_claims, []),
    Field("seen_min", _column("seen_min"), _read_minutes, 0.0),
    Field("weight", _column("weight", DEFAULT_WEIGHT), read_weight, DEFAULT_WEIGHT),
    Field("size", _column("size"), _READ_SIZE, 0),
    Field("dq", lambda page: list(page.gains) or None, _read_gains, []),
    Field("etag", lambda page: page.validators[0], _read_text),
    Field("last_modified", lambda page: page.validators[1], _read_text),
    Field("request", lambda page: page.request or None, _read_request, {}),
)
"""Fields of a page's JSON object, in their order."""


def read_fields(state: dict[str, Any]) -> dict[str, Any]:
    """Values of all fields of a page's JSON object; raises ValueError that names the field."""
    values = {}
    for name, _, read, missing in FIELDS:
        try:
            values[name] = read(state.get(name, missing))
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None
    return values


def weight_and_size_of(state: object) -> tuple[float, int]:
    """Weight and class of the size in a page's JSON object; raises ValueError for another value."""
    if not isinstance(state, dict):
        return DEFAULT_WEIGHT, 0
    return read_weight(state.get("weight", DEFAULT_WEIGHT)), _READ_SIZE(state.get("size", 0))


def joined(claims: Sequence[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    """Claims of the pages 0..P-1, dtype `DATED`; the field ``page`` is the page's position."""
    together = np.concatenate([np.empty(0, DATED), *claims])
    together["page"] = np.repeat(np.arange(len(claims)), [len(one) for one in claims])
    return together


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
            is_sound = is_sound and isinstance(log, str) and type(since) is int and 0 < since < 2**31
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
