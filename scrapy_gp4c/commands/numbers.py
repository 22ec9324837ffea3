"""Numbers on the command line."""

from __future__ import annotations

from argparse import ArgumentTypeError


def positive(text: str) -> int:
    """A count of at least 1; raises ArgumentTypeError."""
    number = int(text)
    if number < 1:
        raise ArgumentTypeError(f"expected a count of at least 1; found {text!r}")
    return number
