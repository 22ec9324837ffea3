"""Fields of a page's line in an exported history: one record says how each is written and read.

A history is text. Its first line is a comment, ``#`` and JSON: the format's name, the number of cycles and,
if gains were measured, by what. A comment per cycle follows with the cycle's record, then a line per page:
``site<TAB>page<TAB>bits<TAB>json``. ``site`` is the host, ``page`` the URL. ``bits`` has one character per
cycle from 2 to the last finished one: ``1`` changed, ``0`` unchanged, ``.`` not judged (no visit, or one with
nothing to compare with). ``json`` is an object of the fields `FIELDS`, without those that are missing.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.page_state.claims import CLAIM
from scrapy_gp4c.page_state.outcomes import FAILED, OUTCOMES
from scrapy_gp4c.scoring import discovery, sizes
from scrapy_gp4c.scoring.hints import KINDS
from scrapy_gp4c.scoring.weights import DEFAULT_WEIGHT, read_weight

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


def _found(value: object) -> str:
    return str(value)[:_SHOWN] if not isinstance(value, str) else repr(value)[:_SHOWN]


def _whole(most: int) -> Callable[[Any], int]:
    def read(value: Any) -> int:
        if type(value) is not int or not 0 <= value <= most:
            raise ValueError(f"expected a whole number from 0 to {most}; found {_found(value)}")
        return value

    return read


def _read_fingerprint(value: Any) -> int | None:
    if value is None:
        return None
    if not isinstance(value, str) or not re.fullmatch("[0-9A-Fa-f]{1,16}", value):
        raise ValueError(f"expected 16 hex digits; found {_found(value)}")
    return int(value, 16)


def _read_outcome(value: Any) -> int:
    if value not in _FAILURES:
        raise ValueError(f"expected one of {_FAILURES}; found {_found(value)}")
    return OUTCOMES.index(value)


def _write_found_by(page: PageText) -> int | str | None:
    if page.columns["found_by"] == discovery.START:
        return "start"
    return page.finder_line or None


def _read_found_by(value: Any) -> int:
    if value == "start":
        return int(discovery.START)
    if type(value) is not int or not 0 <= value < discovery.START:
        raise ValueError(f"expected the number of a line, or 'start'; found {_found(value)}")
    return value


def _write_brought(page: PageText) -> list[float] | None:
    brought = [page.columns[name] for name in BROUGHT]
    return brought if any(brought) else None


def _read_brought(value: Any) -> tuple[float, float, int] | None:
    if value is None:
        return None
    is_sound = isinstance(value, list) and len(value) == len(BROUGHT)
    if not is_sound or not all(_is_number(one) and 0 <= one < 2**31 for one in value):
        raise ValueError(f"expected {len(BROUGHT)} numbers; found {_found(value)}")
    return value[0], value[1], int(value[2])


def _write_claims(page: PageText) -> list[tuple[int, str, int]] | None:
    return [(int(claim["cycle"]), KINDS[claim["kind"]], int(claim["value"])) for claim in page.claims] or None


def _read_claims(value: Any) -> npt.NDArray[Any]:
    if not isinstance(value, list) or not all(map(_is_claim, value)):
        raise ValueError(
            f"expected lists of cycle, kind ({', '.join(KINDS)}) and value; found {_found(value)}"
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
        raise ValueError(f"expected minutes; found {_found(value)}")
    return float(value)


def _read_gains(value: Any) -> tuple[tuple[int, float], ...]:
    is_list = isinstance(value, list) and all(isinstance(one, list) and len(one) == 2 for one in value)
    if not is_list or not all(type(cycle) is int and cycle > 0 and _is_gain(ppm) for cycle, ppm in value):
        raise ValueError(f"expected pairs of a cycle and a number; found {_found(value)}")
    cycles = [cycle for cycle, _ in value]
    if cycles != sorted(set(cycles)):
        raise ValueError(f"expected each cycle once, in order; found {_found(cycles)}")
    return tuple((cycle, float(ppm)) for cycle, ppm in value)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_gain(value: Any) -> bool:
    return _is_number(value) and math.isfinite(value) and abs(value) <= float(np.finfo(np.float32).max)


def _read_text(value: Any) -> str | None:
    if value is not None and not isinstance(value, str):
        raise ValueError(f"expected a text; found {_found(value)}")
    return value


def _read_request(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"expected a JSON object; found {_found(value)}")
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


_CYCLE: Final = _whole(2**31 - 1)
_READ_SIZE: Final = _whole(sizes.CLASSES - 1)
FIELDS: Final = (
    Field("first_cycle", _column("first_cycle"), _CYCLE, 0),
    Field("last_cycle", _write_last_cycle, _CYCLE, 0),
    Field("fingerprint", _write_fingerprint, _read_fingerprint),
    Field("failures", _if_failed("failures"), _whole(255), 0),
    Field("gone", _if_failed("gone"), _whole(255), 0),
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
    """Weight and class of the size in a page's JSON object; raises ValueError for what is none."""
    if not isinstance(state, dict):
        return DEFAULT_WEIGHT, 0
    return read_weight(state.get("weight", DEFAULT_WEIGHT)), _READ_SIZE(state.get("size", 0))


def joined(claims: Sequence[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    """Claims of the pages 0..P-1, dtype `DATED`; the field ``page`` is the page's position."""
    together = np.concatenate([np.empty(0, DATED), *claims])
    together["page"] = np.repeat(np.arange(len(claims)), [len(one) for one in claims])
    return together
