"""What the parameters of policies may be."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple


class Parameter(NamedTuple):
    """A parameter of a policy."""

    default: object
    accepts: Callable[[object], bool]
    expected: str
    """What it accepts, in words."""


def whole(default: int | None, low: int, high: int) -> Parameter:
    """A whole number in a range; None too where that is the default."""

    def accepts(value: object) -> bool:
        if value is None:
            return default is None
        return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high

    nothing = ", or None" if default is None else ""
    return Parameter(default, accepts, f"a whole number from {low} to {high}{nothing}")


def is_share(value: object) -> bool:
    """Tell whether a value is a number from 0 to 1."""
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1


def share(default: float) -> Parameter:
    """A number from 0 to 1."""
    return Parameter(default, is_share, "a number from 0 to 1")


def flag(default: bool) -> Parameter:
    """True or False."""
    return Parameter(default, lambda value: isinstance(value, bool), "True or False")


def one_of(default: str, names: Sequence[str]) -> Parameter:
    """One of some names."""
    known = " or ".join(map(repr, names)) if len(names) < 3 else f"one of {', '.join(map(repr, names))}"
    return Parameter(default, lambda value: isinstance(value, str) and value in names, known)


def share_or_one_of(default: str, names: Sequence[str]) -> Parameter:
    """A number from 0 to 1, or one of some names."""
    other = one_of(default, names)
    return Parameter(
        default,
        lambda value: is_share(value) or other.accepts(value),
        f"a number from 0 to 1, or {other.expected}",
    )
