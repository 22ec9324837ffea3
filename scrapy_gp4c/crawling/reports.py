"""Record of a finished cycle: what its visits came to, and the estimates by the control group."""

from __future__ import annotations

import numpy as np

from scrapy_gp4c.crawling import panel
from scrapy_gp4c.crawling.new_pages import found_by_hubs
from scrapy_gp4c.page_state.outcomes import CHANGED, JUDGED, OUTCOMES
from scrapy_gp4c.settings import Settings
from scrapy_gp4c.store.page_store import PageStore
from scrapy_gp4c.store.records import CycleRecord


def report_of(store: PageStore, settings: Settings) -> CycleRecord:
    """Report on the open cycle of a store, and take its shadows through it: see `panel.close_cycle`."""
    outcomes = np.bincount(store.open_visits()["outcome"], minlength=len(OUTCOMES)).tolist()
    judged, changed = sum(outcomes[code] for code in JUDGED), outcomes[CHANGED]
    new = found_by_hubs(store)
    return {
        "known": store.pages,
        "visited": sum(outcomes),
        "judged": judged,
        "changed": changed,
        "change_rate": changed / judged if judged else None,
        "outcomes": dict(zip(OUTCOMES, outcomes, strict=True)),
        "new": new.all,
        "new_by_hubs": new.by_hubs,
        "panel": panel.close_cycle(
            store,
            store.cycles()[-1],
            settings.panel,
            settings.warmup_visits,
            settings.distance_bits,
            settings.score_function,
        ),
    }
