"""What a crawl says of its cycle: one line when it opens, one when it closes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy_gp4c.crawling.estimates import describe
from scrapy_gp4c.store.records import CycleRecord

if TYPE_CHECKING:
    from scrapy_gp4c.crawling.cycle import Cycle


def opening(cycle: Cycle, remaining: int) -> str:
    """Return the line for an opened cycle with so many pages to visit."""
    kinds = ", ".join(f"{count} {kind}" for kind, count in cycle.planned_kinds.items() if count)
    return (
        f"Cycle {cycle.number} {'resumed' if cycle.resumed else 'begun'}: {cycle.store.pages} known pages, "
        f"{cycle.planned} planned ({kinds or 'none'}), {remaining} to visit, "
        f"score function {cycle.settings.score_function.formula}"
    )


def closing(cycle: Cycle, record: CycleRecord) -> str:
    """Return the line for a finished cycle with this record."""
    rate = record["change_rate"]
    return (
        f"Cycle {cycle.number} finished: {record['visited']} visited, {record['changed']} changed "
        f"(change rate {'unknown' if rate is None else f'{rate:.3f}'}), {cycle.store.pages} known pages"
        f"{describe(record['panel'])}; the next run begins cycle {cycle.number + 1}"
    )


def not_storable(request: object, error: Exception) -> str:
    """Return the line for the first request that cannot be planned."""
    return (
        f"{request} is fetched as without scrapy-gp4c, because {error}. Revisits need spider methods as "
        "callbacks and arguments that JSON can hold. (Further ones: stat gp4c/not_storable)"
    )
