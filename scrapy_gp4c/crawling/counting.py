"""How many pages a store has, by what a cycle does with them."""

from __future__ import annotations

from collections import Counter

from scrapy_gp4c.page_state.classes import stages
from scrapy_gp4c.settings import Settings
from scrapy_gp4c.store.page_store import PageStore

CLASSES = ("never fetched", "in warm-up", "ranked", "gone")


def page_counts(store: PageStore, settings: Settings) -> dict[str, int]:
    """Count the pages by `CLASSES`; they sum up to the known pages."""
    counts: Counter[str] = Counter()
    for _, block in store.blocks():
        stage = stages(block, settings.warmup_visits, settings.gone_after)
        for name, pages in zip(
            CLASSES, (stage.unfetched, stage.warming, stage.settled, stage.gone), strict=True
        ):
            counts[name] += int(pages.sum())
    counts["never fetched"] += store.pages - store.merged_pages  # found in the open cycle
    return {name: counts[name] for name in CLASSES}
