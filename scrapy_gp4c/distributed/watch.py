"""A thread that does something when what is expected did not happen in time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


class Watch:
    """Calls back when an expectation lasts beyond its time; used by one thread.

    One thread for all expectations, which sleeps until the earliest moment that it was ever told: a thread
    for each of them (`threading.Timer`) costs a third of what a short call to a ledger does.
    """

    def __init__(self, late: Callable[[], object]) -> None:
        """``late``: is called in the watch's own thread, which begins with the first expectation."""
        self._late = late
        self._condition = threading.Condition()
        self._until: float | None = None
        self._wakes: float | None = None
        """When the thread looks next; None: when it is told to."""
        self._thread: threading.Thread | None = None

    def expect(self, until: float) -> None:
        """Call back at that moment, of `time.monotonic`, unless `rest` comes first."""
        with self._condition:
            self._until = until
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="gp4c-watch", daemon=True)
                self._thread.start()
            elif self._wakes is None or until < self._wakes:
                self._condition.notify()

    def rest(self) -> None:
        """Expect nothing; a call back that has begun is waited for."""
        with self._condition:
            self._until = None

    def end(self) -> None:
        """End the thread; a later expectation begins another one."""
        with self._condition:
            self._until, self._thread = None, None
            self._condition.notify()

    def _run(self) -> None:
        own = threading.current_thread()
        with self._condition:
            while self._thread is own:
                now = time.monotonic()
                if self._until is not None and now >= self._until:
                    self._until = None
                    self._late()
                if self._until is not None:
                    self._wakes = self._until
                elif self._wakes is not None and self._wakes <= now:
                    self._wakes = None  # nothing was expected since: it sleeps until it is told
                self._condition.wait(None if self._wakes is None else self._wakes - now)
