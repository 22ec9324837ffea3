"""What a cycle came to: of one store with all pages, or of each shard and of all together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from scrapy_gp4c.crawling import panel
from scrapy_gp4c.crawling.estimates import Tally
from scrapy_gp4c.crawling.new_pages import found_by_hubs
from scrapy_gp4c.crawling.panel import OnPanel
from scrapy_gp4c.page_state.outcomes import CHANGED, JUDGED, OUTCOMES
from scrapy_gp4c.settings import Settings
from scrapy_gp4c.store.page_store import PageStore
from scrapy_gp4c.store.records import CycleRecord


class Report(NamedTuple):
    """What one store or shard counted: pages and visits."""

    known: int
    outcomes: tuple[int, ...]
    """Visits by position in `OUTCOMES`."""
    new: int
    new_by_hubs: int
    panel: OnPanel | None
    """None: there is no panel, or nothing to tell by it."""

    @classmethod
    def of_json(cls, read: Sequence[Any]) -> Report:
        """A report that was written as JSON."""
        known, outcomes, new, new_by_hubs, told = read
        found = None if told is None else OnPanel(Tally(*told[0]), *told[1:])
        return cls(known, tuple(outcomes), new, new_by_hubs, found)


def report_of(store: PageStore, settings: Settings) -> Report:
    """Report on the open cycle of a store, and take its shadows through it: see `panel.close_cycle`."""
    outcomes = np.bincount(store.open_visits()["outcome"], minlength=len(OUTCOMES))
    new = found_by_hubs(store)
    record = store.cycles()[-1]
    found = panel.close_cycle(
        store,
        record,
        settings.panel,
        settings.warmup_visits,
        settings.distance_bits,
        settings.score_function,
    )
    return Report(store.pages, tuple(outcomes.tolist()), new.all, new.by_hubs, found)


def merged(reports: Sequence[Report]) -> CycleRecord:
    """What the record of a cycle says, of the reports of all its shards or of one store."""
    outcomes = np.sum([report.outcomes for report in reports], axis=0).tolist()
    judged, changed = sum(outcomes[code] for code in JUDGED), outcomes[CHANGED]
    found = [report.panel for report in reports]
    return {
        "known": sum(report.known for report in reports),
        "visited": sum(outcomes),
        "judged": judged,
        "changed": changed,
        "change_rate": changed / judged if judged else None,
        "outcomes": dict(zip(OUTCOMES, outcomes, strict=True)),
        "new": sum(report.new for report in reports),
        "new_by_hubs": sum(report.new_by_hubs for report in reports),
        "panel": panel.estimated([one for one in found if one is not None]) if None not in found else None,
    }
