"""One terminal, a value of a page that a score function reads; `scrapy_gp4c.scoring.terminals` has all."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from scrapy_gp4c.arrays import Array

Formula = Callable[[Mapping[str, Array], int], Array]
"""``formula(state, cycle)``: values ``[P]`` at planning cycle ``cycle`` (the state is older)."""


class Terminal(NamedTuple):
    """A terminal by one of the clocks: its formula, the columns that this reads, and its meaning."""

    columns: tuple[str, ...]
    """Columns that the formula reads: pages equal in these have the same value."""
    formula: Formula
    meaning: str


def of_column(name: str) -> Formula:
    """Return the formula of a terminal that has the values of the column `name`."""
    return lambda state, cycle: state[name]


def of_columns(meanings: Mapping[str, str]) -> dict[str, Terminal]:
    """Return terminals that have the values of the column of their name; ``meanings``: name -> meaning."""
    return {name: Terminal((name,), of_column(name), meaning) for name, meaning in meanings.items()}
