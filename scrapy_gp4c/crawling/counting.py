"""How many pages a store has, by what a cycle does with them; a finished cycle in statistics."""

from __future__ import annotations

from collections import Counter

from scrapy_gp4c.crawling.cycle import Cycle
from scrapy_gp4c.page_state.columns import stages
from scrapy_gp4c.settings import Settings
from scrapy_gp4c.store.page_store import PageStore
from scrapy_gp4c.store.records import CycleRecord

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


def tell(cycle: Cycle, record: CycleRecord) -> None:
    """Say of a finished cycle in Scrapy's statistics what `scrapy gp4c status` would say now."""
    told: dict[str, float | None] = {
        name: record[name] for name in ("judged", "changed", "change_rate", "known")
    }
    counts = page_counts(cycle.store, cycle.settings)
    told |= {f"pages/{name.replace(' ', '_')}": count for name, count in counts.items()}
    if (found := record["panel"]) is not None:
        told["panel/judged"] = found["judged"]
        for name in ("changed_share", "freshness"):
            told[f"panel/{name}"] = found[name]["estimate"]
            told |= {f"panel/{name}_{end}": found[name][end] for end in ("low", "high")}
    if "gained" in record:
        told["gained_ppm"] = record["gained"][1]
    for name, value in told.items():
        if value is not None:
            cycle.stats.set_value(f"gp4c/{name}", value)
