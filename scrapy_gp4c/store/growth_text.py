"""What a line of an exported history says of growth: when and by whom a page was found, what it brought."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypedDict

from scrapy_gp4c.page_state.columns import Columns
from scrapy_gp4c.scoring import discovery

BROUGHT: Final = ("brought_sum", "brought_cycles", "brought_cycle")
"""What a page's line keeps of what its visits brought."""


class GrowthState(TypedDict, total=False):
    """Fields of a line's JSON; each is absent where nothing is known."""

    entered: int
    """Cycle in which the page became known."""
    found_by: int | str
    """Number of the finder's line among the lines of pages, from 1; ``start``: a start request."""
    brought: list[float]
    """The columns `BROUGHT`."""


def growth_of(block: Columns, row: int, line_of: Callable[[int], int]) -> GrowthState:
    """What is to be written of a page; ``line_of``: number of the line of a column ``found_by``, 0: none."""
    value = {name: block[name][row].item() for name in discovery.COLUMNS}
    extra: GrowthState = {}
    if value["entered"]:
        extra["entered"] = value["entered"]
    if value["found_by"] == discovery.START:
        extra["found_by"] = "start"
    elif value["found_by"] and (line := line_of(value["found_by"])):
        extra["found_by"] = line
    brought = [value[name] for name in BROUGHT]
    if any(brought):
        extra["brought"] = brought
    return extra


def read_growth(state: GrowthState) -> tuple[int, tuple[float, float, int] | None]:
    """Finder and sums of a line; raises ValueError."""
    found_by = state.get("found_by", 0)
    if found_by == "start":
        found_by = discovery.START
    elif not isinstance(found_by, int) or not 0 <= found_by < discovery.START:
        raise ValueError(f"expected the number of a line, or 'start', as found_by; found {found_by!r}")
    brought = state.get("brought")
    if brought is None:
        return found_by, None
    sound = isinstance(brought, list) and len(brought) == len(BROUGHT)
    if not sound or not all(isinstance(one, int | float) and 0 <= one < 2**31 for one in brought):
        raise ValueError(f"expected {len(BROUGHT)} numbers as brought; found {str(brought)[:80]}")
    return found_by, (brought[0], brought[1], int(brought[2]))
