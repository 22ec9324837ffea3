"""Progress of long work on the terminal's last line; nothing where there is no terminal."""

from __future__ import annotations

from typing import Final

WIDTH: Final = 30
ANEW: Final = "\r\033[K"
"""Begins a terminal's line anew."""


def bar(done: int, of: int) -> str:
    """A bar of `WIDTH` signs; all of it where there is nothing to do."""
    filled = min(WIDTH, WIDTH * done // of) if of else WIDTH
    return "█" * filled + "·" * (WIDTH - filled)
