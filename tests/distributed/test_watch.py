"""One thread that watches over many calls, each with a time of its own."""

from __future__ import annotations

import threading
import time

from scrapy_gp4c.distributed.watch import Watch

LONG_S = 60.0


def test_what_lasts_too_long_is_told_once() -> None:
    """The call back comes when the time is over, also where a later moment was expected before."""
    told = threading.Semaphore(0)
    watch = Watch(told.release)
    watch.expect(time.monotonic() + LONG_S)
    watch.rest()
    begun = time.monotonic()
    watch.expect(begun + 0.05)
    assert told.acquire(timeout=LONG_S / 2)
    assert time.monotonic() - begun >= 0.05
    watch.rest()
    watch.expect(time.monotonic() + LONG_S)
    watch.end()
    assert not told.acquire(blocking=False)


def test_what_rests_in_time_is_not_told() -> None:
    """Hundreds of expectations are one thread, which ends; the next one begins another."""
    told: list[int] = []
    watch = Watch(lambda: told.append(1))
    before = set(threading.enumerate())
    for _ in range(300):
        watch.expect(time.monotonic() + LONG_S)
        watch.rest()
    (thread,) = set(threading.enumerate()) - before
    watch.end()
    thread.join()
    now = threading.Event()
    watch = Watch(now.set)
    watch.expect(time.monotonic())
    assert now.wait(LONG_S)
    watch.end()
    assert not told
