"""When a worker's run looks at what is to be done: once a second, and sooner where it is asked to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from twisted.internet.task import LoopingCall

FLUSH_S: Final = 1.0
"""From one turn that is due to the next: one flush, and one look at the ledger."""
SOON_S: Final = 0.2
"""Until a turn that is not."""


class Turns:
    """Calls back in the reactor until it is stopped, and no more often than it has to."""

    def __init__(self, turn: Callable[[bool], object]) -> None:
        """``turn``: is told whether it is due."""
        self._turn = turn
        self._sooner: Any = None
        """The call that comes before its time; None: there is none."""
        self._due = LoopingCall(turn, True)
        self._due.start(FLUSH_S, now=False)

    def soon(self) -> None:
        """Take a turn before it is due, unless one is on its way."""
        from twisted.internet import reactor  # which one it is, is settled when the crawl starts

        loop: Any = reactor
        if self._sooner is None and self._due.running:
            self._sooner = loop.callLater(SOON_S, self._take)

    def postpone(self) -> None:
        """Take the next due one a whole while from now, as its flush was sent; and one that is not, soon."""
        if self._due.running:
            self._due.reset()
            self.soon()

    def stop(self) -> None:
        """Take no further turn."""
        self._due.stop()
        if self._sooner is not None:
            self._sooner.cancel()

    def _take(self) -> None:
        self._sooner = None
        self._turn(False)
