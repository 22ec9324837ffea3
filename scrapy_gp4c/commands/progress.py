"""How far something is, on the terminal's last line; nothing where there is no terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from scrapy_gp4c.store.opening import Progress, no_progress

WIDTH: Final = 30
ANEW: Final = "\r\033[K"
"""Begins a terminal's line anew."""
DRAW_S: Final = 0.1
"""From one drawing to the next, but for the end of a step."""


def bar(done: int, of: int) -> str:
    """A bar of `WIDTH` signs; all of it where there is nothing to do."""
    filled = min(WIDTH, WIDTH * done // of) if of else WIDTH
    return "█" * filled + "·" * (WIDTH - filled)


@contextmanager
def shown() -> Iterator[Progress]:
    """What draws a bar of the step that is under way; the line is empty afterwards."""
    if not sys.stderr.isatty():
        yield no_progress
        return
    drawn_s = 0.0

    def draw(what: str, done: int, of: int) -> None:
        nonlocal drawn_s
        now_s = time.monotonic()
        if now_s - drawn_s >= DRAW_S or done >= of:
            drawn_s = now_s
            text = f"{ANEW}{what:<8} {bar(done, of)} {done:,} of {of:,}"
            print(text, end="", file=sys.stderr, flush=True)

    try:
        yield draw
    finally:
        print(ANEW, end="", file=sys.stderr, flush=True)
