"""Visits under way: what travels with a request until its visit has an outcome."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Claim:
    """A visit under way; it travels in ``Request.meta`` through retries and redirects."""

    page: int
    kind: str
    score: float
    host: str | None
    """Set for a page fed from the plan: the host whose window it takes a place in."""
    run: int
    """Token of the run that began it: the queue of a JOBDIR brings back visits of earlier runs."""
