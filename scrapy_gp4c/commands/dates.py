"""Dates on the command line."""

from __future__ import annotations

from argparse import ArgumentTypeError
from datetime import datetime


def date(text: str) -> float:
    """Return s since 1970 of a date, or date and time, of this machine's time zone."""
    try:
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError, OSError):
        raise ArgumentTypeError(f"expected a date such as 2026-11-01; found {text!r}") from None
