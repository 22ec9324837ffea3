"""Counts of trouble, and a limit on the time of child processes."""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final, NamedTuple

from tests.store.test_store_kill import in_child, wait

PAGE: Final = 4096
PATIENCE_S: Final = 60.0
"""Time after which a child process counts as hanging."""
DAMAGED, TRACEBACK, DIFFERENT, NO_ROOM = 3, 5, 6, 7
"""Exit statuses of child processes."""


class Count(NamedTuple):
    """Results of one kind of trouble."""

    times: int
    lost: int = 0
    """Number of checks that missed committed visits or pages without an error."""
    doubled: int = 0
    silent: int = 0
    """Number of stores whose content had changed without an error."""
    hangs: int = 0
    ends: int = 0
    """Number of tracebacks, and of processes that ended by a signal that was not sent on purpose."""
    note: str = ""


def damage_count(times: int, ends: list[int], hangs: int) -> Count:
    """Count of children that read what was damaged, by their exit statuses ``ends``."""
    bad = sum(end not in (0, DAMAGED, DIFFERENT) for end in ends)
    note = f"{ends.count(DAMAGED)} told, {ends.count(0)} without effect"
    return Count(times, silent=ends.count(DIFFERENT), hangs=hangs, ends=bad, note=note)


def in_children(times: int, work: Callable[[int], int]) -> tuple[list[int], int]:
    """Run ``work`` in ``times`` child processes; return their exit statuses, and how many hung."""
    ends: list[int] = []
    hangs: list[int] = []

    def quiet(number: int) -> None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        try:
            os._exit(work(number))
        except BaseException:
            os._exit(TRACEBACK)

    for number in range(times):
        pid = in_child(lambda number=number: quiet(number))
        with patience(pid, hangs):
            ends.append(wait(pid))
    return ends, len(hangs)


@contextmanager
def patience(pid: int, hangs: list[int]) -> Iterator[None]:
    """Context after `PATIENCE_S` of which the process ``pid`` is killed and appended to ``hangs``."""

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
