"""When the next cycle begins, by two clocks: neither a jump of one nor a sleep runs a cycle twice."""

from __future__ import annotations

import random
import re
import time
from argparse import ArgumentTypeError
from dataclasses import dataclass
from typing import Final, NamedTuple

UNITS_S: Final = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([smhd]?)")
_WINDOW: Final = re.compile(r"(\d\d):(\d\d)-(\d\d):(\d\d)")


class Now(NamedTuple):
    """A moment by both clocks, in s."""

    wall: float
    """Since 1970; people and time servers set it, and it goes on while the machine sleeps."""
    steady: float
    """Since any moment; nobody sets it, and it may stand still while the machine sleeps."""


class Window(NamedTuple):
    """The part of a day in which cycles begin, in minutes of local time; it may include midnight."""

    opens: int
    closes: int

    def is_open(self, wall: float) -> bool:
        """Tell whether a cycle may begin now."""
        local = time.localtime(wall)
        minute = local.tm_hour * 60 + local.tm_min
        if self.opens <= self.closes:
            return self.opens <= minute < self.closes
        return minute >= self.opens or minute < self.closes


@dataclass(frozen=True)
class Schedule:
    """How often cycles begin."""

    every_s: float
    jitter: float = 0.0
    """Share of the interval by which each one is longer or shorter, drawn anew."""
    active: Window | None = None
    seed: int = 0

    def interval_s(self, number: int) -> float:
        """The interval after the cycle `number` of this run of the monitor."""
        drawn = random.Random(f"{self.seed} {number}").uniform(-1.0, 1.0)
        return self.every_s * (1.0 + self.jitter * drawn)


class Timer:
    """Runs out when either clock says so: the wall clock after a sleep, the steady one after a step back."""

    def __init__(self, now: Now, wait_s: float) -> None:
        """Start it; what is past runs out at once, and once."""
        self._wall, self._steady = now.wall + wait_s, now.steady + wait_s

    def remaining_s(self, now: Now) -> float:
        """Time left, 0 when it has run out."""
        return max(0.0, min(self._wall - now.wall, self._steady - now.steady))


def duration(text: str) -> float:
    """``1h``, ``30m``, ``45s``, ``2d``, or seconds, above 0. Raises ArgumentTypeError."""
    found = _DURATION.fullmatch(text.strip())
    seconds = float(found[1]) * UNITS_S[found[2] or "s"] if found else 0.0
    if seconds <= 0.0:
        raise ArgumentTypeError(f"expected a duration such as 1h, 30m or 45s; found {text!r}")
    return seconds


def percentage(text: str) -> float:
    """``10%`` or ``0.1``, below 1. Raises ArgumentTypeError."""
    try:
        share = float(text[:-1]) / 100 if text.endswith("%") else float(text)
    except ValueError:
        share = -1.0
    if not 0.0 <= share < 1.0:
        raise ArgumentTypeError(f"expected a share from 0% to below 100%, such as 10%; found {text!r}")
    return share


def window(text: str) -> Window:
    """``07:00-22:00``. Raises ArgumentTypeError."""
    found = _WINDOW.fullmatch(text)
    hours = [int(part) for part in found.groups()] if found else [99] * 4
    opens, closes = hours[0] * 60 + hours[1], hours[2] * 60 + hours[3]
    if max(hours[1], hours[3]) > 59 or opens >= 24 * 60 or closes > 24 * 60 or opens == closes:
        raise ArgumentTypeError(f"expected a part of the day such as 07:00-22:00; found {text!r}")
    return Window(opens, closes)
