"""Page events as records for people and programs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from math import isnan
from typing import Any, Final
from urllib.parse import unquote

from scrapy_gp4c.page_state.events import EVENTS, CycleEvents
from scrapy_gp4c.page_state.outcomes import NO_DISTANCE, OUTCOMES

BATCH: Final = 1_000
SUMMARY: Final = {
    "new": "new",
    "changed": "changed",
    "gone": "gone",
    "back": "back again",
    "failing": "failing",
    "doubtful": "doubtful",
}
"""Kind of an event -> words for a message."""


@dataclass(frozen=True)
class PageEvent:
    """Event of one page, found by one visit."""

    kind: str
    """One of `scrapy_gp4c.page_state.events.EVENTS`."""
    url: str
    """URL of the page, without secrets."""
    spider: str
    cycle: int
    time: float
    """Time of the visit, s since 1970."""
    previous_time: float | None
    """Time of the page's visit before; None: none is known."""
    outcome: str
    """Outcome of the visit."""
    distance: int | None
    """Bits in which the fingerprints differ; None: the visit compared nothing."""
    changes: int
    """Changes of the page so far, this one included."""
    diff: tuple[str, ...] | None = None
    """Differences of the texts, a line for each place; None: the archive does not have both texts."""

    def to_json(self) -> str:
        """The event as one line of JSON."""
        return json.dumps(asdict(self), ensure_ascii=False, allow_nan=False)


Requests = Callable[[Any], list[Any]]
"""Stored requests of pages, aligned with their numbers."""
Diff = Callable[[int, int, int], "tuple[str, ...] | None"]
"""Differences that a visit found, by page, cycle and fingerprint."""


def page_events(
    events: CycleEvents,
    spider: str,
    requests: Requests,
    public_url: Callable[[str], str],
    diff: Diff | None = None,
) -> Iterator[PageEvent]:
    """Yield the events of a cycle as records; memory is bounded by a batch.

    ``public_url``: takes the secrets out of a URL.
    """
    for first in range(0, len(events.kinds), BATCH):
        rows = slice(first, first + BATCH)
        visits = events.visits[rows]
        columns = (visits[name].tolist() for name in ("page", "time", "outcome", "distance", "fingerprint"))
        state = (column[rows].tolist() for column in (events.kinds, events.previous_s, events.changes))
        for request, page, time_s, outcome, bits, fingerprint, kind, previous_s, changes in zip(
            requests(visits["page"]), *columns, *state, strict=True
        ):
            is_change = EVENTS[kind] == "changed"
            yield PageEvent(
                kind=EVENTS[kind],
                url=public_url(request["url"]),
                spider=spider,
                cycle=events.cycle,
                time=time_s,
                previous_time=None if isnan(previous_s) else previous_s,
                outcome=OUTCOMES[outcome],
                distance=None if bits == NO_DISTANCE else bits,
                changes=changes,
                diff=diff(page, events.cycle, fingerprint) if diff is not None and is_change else None,
            )


def url_matches(url: str, pattern: str) -> bool:
    """Whether a URL, as it is or decoded, matches a glob (``*?[``) or contains a plain text."""
    if not set(pattern) & set("*?["):
        return pattern in url or pattern in unquote(url)
    return fnmatchcase(url, pattern) or fnmatchcase(unquote(url), pattern)
