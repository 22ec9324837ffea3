"""What a line of an exported history says of claims: in which cycle what was said of the page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypedDict

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.page_state.claims import CLAIM
from scrapy_gp4c.page_state.columns import Columns
from scrapy_gp4c.scoring.hints import KINDS
from scrapy_gp4c.store.page_store import PageStore

Array = npt.NDArray[Any]

DATED: Final = np.dtype([("cycle", "<i4"), *CLAIM.descr])
"""A claim, and the cycle that was told of it."""


class ClaimsState(TypedDict, total=False):
    """Fields of a line's JSON; each is absent where nothing is known."""

    claims: list[tuple[int, str, int]]
    """Cycle, kind, and value of each claim, see `scrapy_gp4c.page_state.claims.CLAIM`."""
    seen_min: float
    """As the column of this name has it."""


def claims_between(store: PageStore, first: int, stop: int) -> Array:
    """Claims about the pages first..stop-1, dtype `DATED`, by page, those of a page in their order."""
    parts = [np.empty(0, DATED)]
    for cycle, claimed in store.hints.of_cycles(0):
        own = claimed[(claimed["page"] >= first) & (claimed["page"] < stop)]
        part = np.empty(len(own), DATED)
        part["cycle"] = cycle
        for name in CLAIM.names or ():
            part[name] = own[name]
        parts.append(part)
    found = np.concatenate(parts)
    return found[np.argsort(found["page"], kind="stable")]


def claims_state(block: Columns, row: int, own: Array) -> ClaimsState:
    """What is to be written of a page; ``own``: its claims, dtype `DATED`."""
    extra: ClaimsState = {}
    if len(own):
        extra["claims"] = [(int(claim["cycle"]), KINDS[claim["kind"]], int(claim["value"])) for claim in own]
    if block["seen_min"][row]:
        extra["seen_min"] = float(block["seen_min"][row])
    return extra


def read_claims(state: ClaimsState) -> tuple[Array, float]:
    """Claims of a line, dtype `DATED`, whose pages are 0, and its ``seen_min``; raises ValueError."""
    told, seen_min = state.get("claims", []), state.get("seen_min", 0.0)
    if not isinstance(seen_min, int | float) or not 0 <= seen_min < 65_504:
        raise ValueError(f"expected minutes as seen_min; found {seen_min!r}")
    if not isinstance(told, list) or not all(map(_is_sound, told)):
        raise ValueError(
            f"expected claims as lists of cycle, kind ({', '.join(KINDS)}) and value; found {str(told)[:80]}"
        )
    return np.array([(cycle, 0, KINDS.index(kind), value) for cycle, kind, value in told], DATED), seen_min


def _is_sound(claim: object) -> bool:
    if not isinstance(claim, list) or len(claim) != 3 or claim[1] not in KINDS:
        return False
    return all(type(number) is int and 0 <= number < 2**31 for number in (claim[0], claim[2]))


def joined(claims: Sequence[Array]) -> Array:
    """Claims of the pages 0..P-1, by page, as one array, dtype `DATED`, whose field ``page`` tells them."""
    found = np.concatenate([np.empty(0, DATED), *claims])
    found["page"] = np.repeat(np.arange(len(claims)), [len(one) for one in claims])
    return found
