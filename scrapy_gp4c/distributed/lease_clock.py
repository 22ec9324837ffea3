"""How long a worker may still act on its lease, by a clock that goes on while the machine sleeps."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

MARGIN: Final = 1 / 3
"""Of the lease: as long as a call that is sent at its end may take."""


def steady_s() -> float:
    """Seconds of a clock that is never set and that, where the system has one, counts suspension."""
    boot = getattr(
        time, "CLOCK_BOOTTIME", None
    )  # Linux; Python's monotonic clock there stops with the machine
    return time.monotonic() if boot is None else time.clock_gettime(boot)


class LeaseClock:
    """When a worker's lease ends, judged by itself: never later than the server does."""

    def __init__(self, lease_s: float, clock: Callable[[], float] = steady_s) -> None:
        """Take the lease's length; it begins with the first `renewed`."""
        self._lease_s = lease_s
        self._clock = clock
        self._since = -float("inf")

    def now(self) -> float:
        """Return the time to give to `renewed`: read it before the renewal is sent."""
        return self._clock()

    def renewed(self, sent: float) -> None:
        """Note that the server renewed the lease by a call that was sent then: its own time was later."""
        self._since = max(self._since, sent)

    @property
    def renewed_s(self) -> float:
        """Seconds since the call was sent that renewed the lease last."""
        return self._clock() - self._since

    @property
    def left_s(self) -> float:
        """Seconds in which the worker may still send and fetch; 0: it waits until a renewal is answered."""
        return max(0.0, self._since + self._lease_s * (1 - MARGIN) - self._clock())
