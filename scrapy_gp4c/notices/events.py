"""Page events as records for people and programs."""

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, fields, make_dataclass
from math import isnan
from typing import Any, Final, NamedTuple

from scrapy_gp4c.page_state.events import EVENTS, CycleEvents
from scrapy_gp4c.page_state.outcomes import KINDS, NO_DISTANCE, OUTCOMES
from scrapy_gp4c.store.opening import Store
from scrapy_gp4c.store.records import StoredRequest

BATCH: Final = 1_000
SUMMARY: Final = {kind: kind for kind in EVENTS} | {"back": "back again"}
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
    distance: int | None
    """Bits in which the fingerprints differ; None: the visit compared nothing."""
    changes: int
    """Changes of the page so far, this one included."""
    diff: tuple[str, ...] | None = None
    """Differences of the texts, a line for each place; None: the archive does not have both texts."""
    reason: str = "other"
    """Why the page was visited: one of `scrapy_gp4c.page_state.outcomes.KINDS`."""
    tag: str | None = None
    """Tag that the page's request has given it, by ``gp4c_tag`` in its meta."""
    final_url: str | None = None
    """URL after redirects, without secrets; None: that of the page."""
    status: int | None = None
    """HTTP status of a visit that failed; None: it did not, or no answer came."""
    error: str | None = None
    """Reason of a failure or doubt that the status does not tell; None: there is none."""
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
"""Differences that a visit found, by page, cycle and fingerprint."""


class EventSource(NamedTuple):
    """Crawl of an event: what a message tells besides the visit."""

    store: Store
    spider: str
    public_url: Callable[[str], str]
    """Takes the secrets out of a URL."""
    arguments: dict[str, str]
    """Arguments of the spider, without secrets."""

    def event(self, page: int, request: StoredRequest, *, distance_bits: int, **visit: Any) -> PageEvent:
        """Event of a page; ``visit``: the fields that its visit says."""
        answer = self.store.answer(page)
        return PageEvent(
            url=self.public_url(request["url"]),
            spider=self.spider,
            distance=None if distance_bits == NO_DISTANCE else distance_bits,
            tag=request.get("meta", {}).get("gp4c_tag"),
            final_url=answer.final_url,
            status=answer.status,
            error=answer.error,
            weight=self.store.weights.of(page),
            arguments=self.arguments,
            **visit,
        )


def page_events(events: CycleEvents, source: EventSource, diff: Diff | None = None) -> Iterator[PageEvent]:
    """Yield the events of a cycle as records; memory is bounded by a batch."""
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
