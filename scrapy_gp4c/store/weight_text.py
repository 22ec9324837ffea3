"""What a line of an exported history says of a page's weight."""

from __future__ import annotations

from typing import TypedDict

from scrapy_gp4c.page_state.columns import Columns
from scrapy_gp4c.scoring.weights import DEFAULT_WEIGHT, read_weight


class WeightState(TypedDict, total=False):
    """Field of a line's JSON; absent where a page weighs 1."""

    weight: float


def weight_state(block: Columns, row: int) -> WeightState:
    """What is to be written of a page."""
    weight = float(block["weight"][row])
    return {} if weight == DEFAULT_WEIGHT else {"weight": weight}


def weight_of(state: WeightState) -> float:
    """The weight of a line; raises ValueError."""
    return read_weight(state.get("weight", DEFAULT_WEIGHT))
