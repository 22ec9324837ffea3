"""Page events as records with the page's URL and request data, from which notices are made."""

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, fields, make_dataclass
from math import isnan
from typing import Any, Final, NamedTuple

import numpy as np

from scrapy_gp4c.arrays import Ints
from scrapy_gp4c.page_state.events import EVENTS, CycleEvents
from scrapy_gp4c.page_state.outcomes import (
    CHANGED,
    ERROR,
    FAILED,
    FIRST,
    GONE,
    KINDS,
    NO_DISTANCE,
    OUTCOMES,
    among,
)
from scrapy_gp4c.store.opening import Store
from scrapy_gp4c.store.records import StoredRequest

BATCH: Final = 1_000
SUMMARY: Final = {kind: kind for kind in EVENTS} | {"back": "back again"}
"""Kind of an event -> its words in messages."""


@dataclass(frozen=True)
class PageEvent:
    """One event (new, changed, gone, ...) of one page, found by one visit."""

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
    distance: int | None
    """Bits in which the fingerprints differ; None: the visit compared nothing."""
    changes: int
    """Changes of the page so far, this one included."""
    diff: tuple[str, ...] | None = None
    """Differences of the texts, a line for each changed passage; None: the archive lacks one of the texts."""
    reason: str = "other"
    """Why the page was visited: one of `scrapy_gp4c.page_state.outcomes.KINDS`."""
    tag: str | None = None
    """Value of ``gp4c_tag`` in the meta of the page's request."""
    final_url: str | None = None
    """URL after redirects, without secrets; None: that of the page."""
    status: int | None = None
    """HTTP status of a visit that failed; None: it did not, or no answer came."""
    error: str | None = None
    """Reason of a failed or doubtful visit, where `status` does not say it; None: there is none."""
    weight: float = 1.0
    arguments: dict[str, str] = field(default_factory=dict)
    """Arguments of the spider, without secrets."""

    def to_json(self) -> str:
        return json.dumps(asdict(self), ensure_ascii=False, allow_nan=False)


PageChange = make_dataclass(
    "PageChange",
    [(one.name, one.type, field(default=None)) for one in fields(PageEvent)],
    namespace={"__doc__": "Event of a page as an item that pipelines may change.", "__module__": __name__},
)


Diff = Callable[[int, int, int], "tuple[str, ...] | None"]
"""Function from page, cycle and fingerprint of a visit to `PageEvent.diff`."""


class EventSource(NamedTuple):
    """Maker of `PageEvent` records, with the fields that all events of a crawl share."""

    store: Store
    spider: str
    public_url: Callable[[str], str]
    """Function that removes the secrets from a URL."""
    arguments: dict[str, str]
    """Arguments of the spider, without secrets."""

    def event(self, page: int, request: StoredRequest, *, distance_bits: int, **visit: Any) -> PageEvent:
        """Make the record of an event of `page`, with its stored `request`; ``visit``: the other fields."""
        answer = self.store.answer(page)
        return PageEvent(
            url=self.public_url(request["url"]),
            spider=self.spider,
            distance=None if distance_bits == NO_DISTANCE else distance_bits,
            tag=request.get("meta", {}).get("gp4c_tag"),
            final_url=answer.final_url,
            status=answer.status,
            error=answer.error,
            weight=self.store.weight(page),
            arguments=self.arguments,
            **visit,
        )


def dropped_state(store: Store) -> dict[str, Ints]:
    """Columns of pages before the visits that the store still has, ``[P]``, for `recorded_events`.

    Of a page that has succeeded since, the failures before are not known: it counts as one without.
    """
    state = {name: np.zeros(store.pages, np.int64) for name in ("X", "gone", "failures")}
    if store.dropped:
        for first, block in store.blocks(state.keys()):
            for name, column in state.items():
                column[first : first + len(block[name])] = block[name]
        for _, visits in store.visits():
            page, outcome = visits["page"], visits["outcome"]
            state["X"][page[outcome == CHANGED]] -= 1
            state["gone"][page[outcome == GONE]] -= 1
            state["failures"][page[among(outcome, FAILED)]] -= 1
    outcomes = np.where(state["failures"] > 0, ERROR, FIRST)
    return {"X": state["X"], "gone": np.maximum(state["gone"], 0), "outcome": outcomes}


def page_events(events: CycleEvents, source: EventSource, diff: Diff | None = None) -> Iterator[PageEvent]:
    """Yield the events of a cycle as records, `BATCH` in memory at a time; `diff` is called for changes."""
    for first in range(0, len(events.kinds), BATCH):
        rows = slice(first, first + BATCH)
        visits = events.visits[rows]
        names = ("page", "time", "outcome", "kind", "distance", "fingerprint")
        columns = (visits[name].tolist() for name in names)
        state = (column[rows].tolist() for column in (events.kinds, events.previous_s, events.changes))
        for request, page, time_s, outcome, reason, bits, fingerprint, kind, previous_s, changes in zip(
            source.store.requests(visits["page"]), *columns, *state, strict=True
        ):
            is_change = EVENTS[kind] == "changed"
            yield source.event(
                page,
                request,
                distance_bits=bits,
                kind=EVENTS[kind],
                cycle=events.cycle,
                time=time_s,
                previous_time=None if isnan(previous_s) else previous_s,
                outcome=OUTCOMES[outcome],
                changes=changes,
                reason=KINDS[reason],
                diff=diff(page, events.cycle, fingerprint) if diff is not None and is_change else None,
            )
