"""Counts of trouble, and the time that anything may take."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final, NamedTuple

PAGE: Final = 4096
PATIENCE_S: Final = 60.0
"""Time after which anything is taken to hang."""
DAMAGED, TRACEBACK, DIFFERENT, NO_ROOM = 3, 5, 6, 7
"""Exit statuses of children."""


class Count(NamedTuple):
    """Results of one kind of trouble."""

    times: int
    lost: int = 0
    """Committed visits, or pages, that were not there afterwards though nothing said so."""
    doubled: int = 0
    silent: int = 0
    """Number of stores whose content had changed without an error."""
    hangs: int = 0
    ends: int = 0
    """Number of tracebacks, and of processes that ended by a signal that was not sent on purpose."""
    note: str = ""


@contextmanager
def patience(pid: int, hangs: list[int]) -> Iterator[None]:
    """Kill a process that takes too long, and note it."""

    def end() -> None:
        hangs.append(pid)
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)

    timer = threading.Timer(PATIENCE_S, end)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
