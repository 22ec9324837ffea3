"""Page events as records, from stores that have dropped visits."""

from pathlib import Path

from scrapy_gp4c.notices.events import dropped_state
from scrapy_gp4c.page_state.events import EVENTS, recorded_events
from scrapy_gp4c.store.lmdb_store.store import Store
from scrapy_gp4c.store.records import NewVisit
from tests.support.stores import pages

OUTCOMES = [
    ["first", "changed", "changed", "changed", "unchanged"],
    ["first", "gone", "gone", "gone", "gone"],
    ["first", "error", "error", "error", "error"],
    ["first", "error", "unchanged", "error", "error"],
    ["first", "unchanged", "unchanged", "doubtful", "unchanged"],
    ["first", "unchanged", "gone", "gone", "gone"],
]
"""Outcomes of each page, by cycle."""


def events_from(store: Store, first: int) -> list[tuple[int, int, str, int]]:
    """Cycle, page, kind and number of changes of the events from cycle `first` on."""
    return [
        (events.cycle, int(visit["page"]), EVENTS[kind], int(changes))
        for events in recorded_events(store.visits(), dropped_state(store), 4, first)
        for visit, kind, changes in zip(events.visits, events.kinds, events.changes, strict=True)
    ]


def test_events_are_the_same_after_earlier_visits_were_dropped(tmp_path: Path) -> None:
    """No page fails anew, and one that is gone at last is told: its first answers of 404 still count."""
    with Store(tmp_path / "store") as store:
        store.add_pages(pages(len(OUTCOMES)))
        for outcomes in zip(*OUTCOMES, strict=True):
            store.begin_cycle({"started": 1.0})
            for page, outcome in enumerate(outcomes):
                store.record(NewVisit(page, outcome, 1.0))
            store.finish_cycle({})
        before = events_from(store, 4)
        store.keep_visits(2)
        assert events_from(store, 4) == before
    assert (5, 1, "gone", 0) in before
