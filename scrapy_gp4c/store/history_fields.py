"""Text of an exported history: its header, the records of its cycles, and the line of a page.

A history is text. Its first line is a comment, ``#`` and JSON: the format's name, the number of cycles and,
if gains of a search engine were measured, by which query log. A comment per cycle follows with the cycle's
record, then a line per page:
``site<TAB>page<TAB>bits<TAB>json``. ``site`` is the host, ``page`` the URL. ``bits`` has one character per
cycle from 2 to the last finished one: ``1`` changed, ``0`` unchanged, ``.`` not judged (no visit, or one with
nothing to compare with). ``json`` is a `PageState`, without the fields that have their default.
"""

import json
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, NamedTuple, TypeVar

import msgspec
import numpy as np

from scrapy_gp4c.errors import ImportFileError
from scrapy_gp4c.foreign_text import counted
from scrapy_gp4c.page_state.outcomes import FAILED, OUTCOMES
from scrapy_gp4c.scoring import discovery, first_visits, sizes
from scrapy_gp4c.scoring.hints import KINDS
from scrapy_gp4c.scoring.weights import DEFAULT_WEIGHT, MAX_WEIGHT
from scrapy_gp4c.store.records import CycleRecord, StoredRequest

T = TypeVar("T")

FORMAT: Final = "gp4c-history/1"
HEADER_START: Final = "# {"
CHANGED_BIT, UNCHANGED_BIT, NOT_JUDGED = (ord(character) for character in "10.")
_SHOWN: Final = 80
"""Most characters of a wrong value that an error shows."""

_Hex = Annotated[str, msgspec.Meta(pattern=r"^[0-9A-Fa-f]{1,16}\Z")]
_Share = Annotated[float, msgspec.Meta(ge=0, le=1.001)]  # rounded to 16 bits
_Byte = Annotated[int, msgspec.Meta(ge=0, le=255)]
_Cycle = Annotated[int, msgspec.Meta(ge=0, lt=2**31)]
_Count = Annotated[float, msgspec.Meta(ge=0, lt=2**31)]
_Ppm = Annotated[float, msgspec.Meta(ge=-float(np.finfo("f4").max), le=float(np.finfo("f4").max))]


_Value = Annotated[int, msgspec.Meta(ge=-(2**31), lt=2**31)]
if TYPE_CHECKING:
    _Failure = str
    _Kind = str
else:
    _Failure, _Kind = Literal[tuple(OUTCOMES[code] for code in FAILED)], Literal[KINDS]


class PageState(msgspec.Struct, omit_defaults=True):
    """JSON object of a page in a history: its fields with their types, limits and defaults."""

    first_cycle: _Cycle = 0
    last_cycle: _Cycle = 0
    """Cycle of the last copy, if it is later than that of the last bit ``0`` or ``1``."""
    fingerprint: _Hex | None = None
    """Fingerprint of the last copy, hex digits; None: there is no copy."""
    failures: _Byte = 0
    gone: _Byte = 0
    last_attempt: _Cycle = 0
    """Cycle of the last visit if it failed, else 0; `outcome` is that visit's."""
    outcome: _Failure = "error"
    entered: _Cycle = 0
    found_by: Annotated[int, msgspec.Meta(ge=0, lt=discovery.START)] | Literal["start"] = 0
    """Number of the page line (from 1) of the page that links to it; "start": a start request; 0: unknown."""
    brought: tuple[_Count, _Count, _Cycle] | None = None
    """Columns `BROUGHT`: how many new pages the visits to this page found."""
    links: tuple[_Hex, _Hex, _Share] | None = None
    """Columns `LINKS` of a page that waits for its first visit; bits as hex digits."""
    claims: list[tuple[_Cycle, _Kind, _Value]] = []
    """Cycle, kind and value of each claim (see `scrapy_gp4c.scoring.hints`) about the page."""
    seen_min: Annotated[float, msgspec.Meta(ge=0, lt=65_504)] = 0.0
    weight: Annotated[float, msgspec.Meta(ge=0, le=MAX_WEIGHT)] = DEFAULT_WEIGHT
    size: Annotated[int, msgspec.Meta(ge=0, lt=sizes.CLASSES)] = 0
    latency_ms: Annotated[int, msgspec.Meta(ge=0, lt=2**16)] = 0
    flipped: list[_Hex] = []
    """Old fingerprint XOR new one, in hex digits, for each change, that is each ``1`` among the bits."""
    dq: list[tuple[Annotated[int, msgspec.Meta(ge=1)], _Ppm]] = []
    """Cycle and gain of search quality, in ppm, of each measured visit, in order."""
    etag: str | None = None
    last_modified: str | None = None
    request: dict[str, Any] = {}
    """Stored request without its URL."""


BROUGHT: Final = ("brought_sum", "brought_cycles", "brought_cycle")
"""Columns that count the new pages found by a page's visits: see `scrapy_gp4c.scoring.discovery`."""
LINKS: Final = tuple(first_visits.COLUMNS)
"""Columns that count links to pages without a visit: see `scrapy_gp4c.scoring.first_visits`."""


_WORDS: Final = {
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "str": "a text",
    "array": "a list",
    "object": "an object",
}


class FieldError(ValueError):
    """A field of JSON that was read from outside has a wrong type or value."""

    def __init__(self, field: str, problem: str, value: object) -> None:
        """``field``: its name, "" for the whole content; ``problem``: such as "expected a number"."""
        super().__init__(f"{field}: {problem}; found {repr(value)[:_SHOWN]}")
        self.field, self.problem, self.value = field, problem, value


def converted(content: Any, kind: type[T]) -> T:
    """Convert decoded JSON to the type `kind`; raises FieldError where a field does not fit."""
    try:
        return msgspec.convert(content, kind)
    except msgspec.ValidationError as error:
        reason, _, json_path = str(error).partition(" - at `$.")
        reason = re.sub("`([^`]*)`", lambda kinds: _in_words(kinds[1]), reason.partition(", got")[0])
        field = re.split(r"\W", json_path)[0]
        value = content.get(field) if field and isinstance(content, dict) else content
        raise FieldError(field, reason[0].lower() + reason[1:], value) from None


def _in_words(kinds: str) -> str:
    return " or ".join(_WORDS.get(kind, kind) for kind in kinds.split(" | "))


def read_state(content: Any) -> PageState:
    """Convert the decoded JSON object of a page line; raises ValueError that names the wrong field."""
    state = converted(content, PageState)
    cycles = [cycle for cycle, _ in state.dq]
    if cycles != sorted(set(cycles)):
        raise ValueError(f"dq: expected each cycle once, in order; found {str(cycles)[:_SHOWN]}")
    return state


EVIDENCE: Final = ("weight", "size", "latency_ms", "flipped")
"""Fields of `PageState` that a replay reads; the others keep their defaults there."""


def read_evidence(state: object) -> PageState:
    """Convert only the fields `EVIDENCE` of a page's decoded JSON; raises ValueError for a wrong value."""
    known = state if isinstance(state, dict) else {}
    return read_state({name: known[name] for name in EVIDENCE if name in known})


ToPage = Callable[[StoredRequest], tuple[int, StoredRequest]]
"""Function from a stored request to its page key and normalised form; raises ValueError for a bad URL."""


class HistoryHeader(NamedTuple):
    """First line of an exported history, parsed."""

    cycles: int
    """Number of finished cycles; a comment with the record of each follows the header."""
    measured: tuple[str, int] | None
    """Digest of the query log that gains are measured by, and the first measured cycle; None: no gains."""


class PageLine(NamedTuple):
    """One page's line of a history, parsed."""

    line: int
    """Number of the line in the file, from 1."""
    key: int
    """Page key: first 8 bytes of the request's fingerprint."""
    request: StoredRequest
    bits: bytes
    state: PageState


def is_header(text: str) -> bool:
    """Whether a comment is the header of a history."""
    return text.startswith(HEADER_START) and FORMAT.partition("/")[0] in text


def read_header(name: str, header: str) -> HistoryHeader:
    """Parse `header`, the first line of a history; raises ImportFileError, which names the file `name`."""
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
    """Parse the comment with the record of cycle `cycle`; raises ImportFileError, which names the line."""
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
    """Parse a page's line; `to_page` gives key and request. Raises ImportFileError, which names the line."""
    try:
        fields = line.split("\t")
        if len(fields) not in (3, 4):
            raise ValueError(
                f"expected site, page, bits and JSON with tabs between; found {counted(len(fields), 'field')}"
            )
        bits = fields[2].encode()
        if bits.strip(b"01."):
            raise ValueError(f"expected bits of '0', '1' and '.'; found {fields[2][:40]!r}")
        state = read_state(json.loads(fields[3]) if len(fields) == 4 else {"first_cycle": 1})
        stored: Any = {"url": fields[1], **state.request}
        key, request = to_page(stored)
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise ImportFileError(
            f"{name}, line {number}: {error}. Correct the line; nothing was imported."
        ) from None
    return PageLine(number, key, request, bits, state)


def check_pages(name: str, pages: Sequence[PageLine], cycles: int, is_known: Callable[[int], bool]) -> None:
    """Check that no page comes twice and that all bits and dates fit `cycles`; raises ImportFileError.

    ``pages``: next lines of file `name`; ``cycles``: number of cycles; ``is_known(key)``: whether an earlier
    line has the page.
    """
    seen: set[int] = set()
    for page in pages:
        problem = None
        judged = 2 + np.flatnonzero(np.frombuffer(page.bits, np.uint8) != NOT_JUDGED)
        state = page.state
        dates = [state.first_cycle, state.last_cycle, state.last_attempt]
        all_dates = [*dates, *(claim[0] for claim in state.claims), *(cycle for cycle, _ in state.dq)]
        if len(page.bits) != max(0, cycles - 1):
            bits = f"{counted(max(0, cycles - 1), 'bit')} as for {counted(cycles, 'cycle')}"
            problem = f"expected {bits}; found {len(page.bits)}"
        elif state.flipped and len(state.flipped) != page.bits.count(CHANGED_BIT):
            changes = counted(page.bits.count(CHANGED_BIT), "change")
            problem = f"flipped: expected {changes} as among the bits; found {len(state.flipped)}"
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
