"""Reports: record of a finished cycle, counts of pages by class, and statistics."""

from collections import Counter
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from scrapy.statscollectors import StatsCollector

from scrapy_gp4c.crawling.control_group import close_cycle
from scrapy_gp4c.fingerprint import lacks_text
from scrapy_gp4c.page_state import claims
from scrapy_gp4c.page_state.columns import next_attempt, stages
from scrapy_gp4c.page_state.outcomes import CHANGED, HUB, JUDGED, NEIGHBOUR, OUTCOMES, SAMPLE
from scrapy_gp4c.settings import Settings
from scrapy_gp4c.store.opening import Store
from scrapy_gp4c.store.records import CycleRecord, SampledCounts

CLASSES: Final = ("never_fetched", "in_warm_up", "ranked", "gone")


def count_new_pages(store: Store) -> tuple[int, int]:
    """Count the pages that became known in the open cycle, and those of them that visits to hubs found."""
    visits = store.open_visits()
    brought = claims.count_brought(store.notes(), store.pages)
    hubs = visits["page"][visits["kind"] == HUB]
    return sum(1 for _ in store.new_pages()), int(brought[hubs].sum())


def report_of(store: Store, settings: Settings) -> CycleRecord:
    """Store the control group's state after the open cycle, and return its record's fields about visits."""
    outcomes = np.bincount(store.open_visits()["outcome"], minlength=len(OUTCOMES)).tolist()
    judged, changed = sum(outcomes[code] for code in JUDGED), outcomes[CHANGED]
    new, new_by_hubs = count_new_pages(store)
    record = store.cycles(store.last_cycle)[-1]
    return {
        "known": store.pages,
        "visited": sum(outcomes),
        "judged": judged,
        "changed": changed,
        "change_rate": changed / judged if judged else None,
        "outcomes": dict(zip(OUTCOMES, outcomes, strict=True)),
        "new": new,
        "new_by_hubs": new_by_hubs,
        "panel": close_cycle(store, record, settings),
    }


def sampled_counts(visits: npt.NDArray[Any], seeds: int) -> SampledCounts | None:
    """Return counts of samples and neighbours among a cycle's visits, dtype `VISIT`; None: no samples.

    ``seeds``: number of samples for which the policy visited neighbours.
    """
    changed = visits["outcome"] == CHANGED
    samples, neighbours = visits["kind"] == SAMPLE, visits["kind"] == NEIGHBOUR
    if not samples.any() and not neighbours.any():
        return None
    return {
        "samples": int(samples.sum()),
        "samples_changed": int(np.count_nonzero(samples & changed)),
        "seeds": seeds,
        "neighbours": int(neighbours.sum()),
        "neighbours_changed": int(np.count_nonzero(neighbours & changed)),
    }


def page_counts(store: Store, settings: Settings) -> dict[str, int]:
    """Count the pages by `CLASSES`; the counts add up to the known pages."""
    counts: Counter[str] = Counter()
    for _, block in store.blocks():
        stage = stages(block, settings.warmup_visits, settings.gone_after)
        by_class = (stage.unfetched, stage.warming, stage.settled, stage.gone)
        for name, pages in zip(CLASSES, by_class, strict=True):
            counts[name] += int(pages.sum())
    counts["never_fetched"] += store.pages - store.merged_pages  # discovered in the open cycle
    return {name: counts[name] for name in CLASSES}


def mean_age_cycles(store: Store) -> float | None:
    """Return the mean number of cycles since copies were last compared; None: no page has a copy."""
    ages, copies = 0, 0
    for _, block in store.blocks({"last_cycle", "has_copy"}):
        last = block["last_cycle"][block["has_copy"] > 0]
        ages += int((store.last_cycle - last).sum())
        copies += len(last)
    return ages / copies if copies else None


@dataclass(frozen=True)
class Resting:
    """Pages that wait after failed visits, in the cycle that comes next."""

    gone: int
    gone_due: int
    """Number of gone pages that have waited long enough."""
    gone_cycle: int
    """First cycle in which a gone page is due; 0: none is gone."""
    failed: int
    """Number of other pages that wait."""
    failed_cycle: int
    """First cycle in which one of them is due; 0: none waits."""


def resting_pages(store: Store, settings: Settings, cycle: int) -> Resting:
    """Count the pages that wait after failed visits when `cycle` is planned."""
    gone = due = failed = 0
    gone_cycles: list[int] = []
    failed_cycles: list[int] = []
    for _, block in store.blocks():
        is_gone = block["gone"] >= settings.gone_after
        again = np.maximum(next_attempt(block), cycle)
        waits = ~is_gone & (block["failures"] > 0) & (again > cycle) & ~settings.in_every_cycle(block)
        gone += int(is_gone.sum())
        due += int((again[is_gone] == cycle).sum())
        failed += int(waits.sum())
        gone_cycles += [int(again[is_gone].min())] if is_gone.any() else []
        failed_cycles += [int(again[waits].min())] if waits.any() else []
    return Resting(gone, due, min(gone_cycles, default=0), failed, min(failed_cycles, default=0))


def count_without_text(store: Store) -> int:
    """Count the fetched pages without visible text, which stay unchanged whatever a browser would show."""
    return sum(
        int(np.count_nonzero(lacks_text(block["has_copy"], block["fingerprint"])))
        for _, block in store.blocks()
    )


def collect_stats(stats: StatsCollector, store: Store, settings: Settings, record: CycleRecord) -> None:
    """Put into Scrapy's statistics what `scrapy gp4c status` shows of a finished cycle, by its `record`."""
    values: dict[str, float | None] = {
        name: record[name] for name in ("judged", "changed", "change_rate", "known")
    }
    counts = page_counts(store, settings)
    values |= {f"pages/{name}": count for name, count in counts.items()}
    values["pages/no_text"] = count_without_text(store)
    if (panel := record["panel"]) is not None:
        values["panel/judged"] = panel["judged"]
        for name in ("changed_share", "freshness"):
            values[f"panel/{name}"] = panel[name]["estimate"]
            values |= {f"panel/{name}_{end}": panel[name][end] for end in ("low", "high")}
    if "gained" in record:
        values["gained_ppm"] = record["gained"][1]
    for name, value in values.items():
        if value is not None:
            stats.set_value(f"gp4c/{name}", value)
