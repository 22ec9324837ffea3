"""What a crawl says of its cycle: one line when it opens, one when it closes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy_gp4c.crawling.estimates import describe
from scrapy_gp4c.crawling.planning import has_cut
from scrapy_gp4c.policies.table import DEFAULT
from scrapy_gp4c.store.records import CycleRecord, StoredRequest

if TYPE_CHECKING:
    from scrapy_gp4c.crawling.cycle import Cycle


def opening(cycle: Cycle, remaining: int) -> str:
    """Return the line for an opened cycle with so many pages to visit."""
    kinds = ", ".join(f"{count} {kind}" for kind, count in cycle.planned_kinds.items() if count)
    return (
        f"Cycle {cycle.number} {'resumed' if cycle.resumed else 'begun'}: {cycle.store.pages} known pages, "
        f"{cycle.planned} planned ({kinds or 'none'}), {remaining} to visit, "
        f"score function {cycle.settings.score_function.formula}{_policy(cycle)}"
    )


def _policy(cycle: Cycle) -> str:
    return "" if cycle.policy == DEFAULT else f", policy {cycle.policy}"


def next_round(cycle: Cycle, pages: int) -> str:
    """Return the line for a further round of so many pages."""
    planned, rounds = cycle.rounds
    return (
        f"Cycle {cycle.number}, round {planned} of {rounds}: {pages} pages planned by {cycle.policy}, "
        f"{cycle.planned} in all"
    )


def closing(cycle: Cycle, record: CycleRecord) -> str:
    """Return the line for a finished cycle with this record."""
    rate = record["change_rate"]
    return (
        f"Cycle {cycle.number} finished: {record['visited']} visited, {record['changed']} changed "
        f"(change rate {'unknown' if rate is None else f'{rate:.3f}'}), {cycle.store.pages} known pages"
        f"{_panel(cycle, record)}; the next run begins cycle {cycle.number + 1}"
    )


def _panel(cycle: Cycle, record: CycleRecord) -> str:
    if record["panel"] is None and cycle.planned_kinds["panel"] and not has_cut(cycle.record["plan"]):
        return (
            f"; no estimate by the panel, because the policy {cycle.policy} does not divide pages by a score"
        )
    return describe(record["panel"])


def not_storable(request: object, error: Exception) -> str:
    """Return the line for the first request that cannot be planned."""
    return (
        f"{request} is fetched as without scrapy-gp4c, because {error}. Revisits need spider methods as "
        "callbacks and arguments that JSON can hold. (Further ones: stat gp4c/not_storable)"
    )


def not_built(stored: StoredRequest, error: Exception) -> str:
    """Return the line for a planned page whose request cannot be built."""
    page = str(stored["url"] if isinstance(stored, dict) and "url" in stored else stored)[:300]
    remedy = "Rename the method back, or let" if isinstance(error, AttributeError) else "Let"
    return f"Cannot revisit {page}: {error}. {remedy} the spider request the page again."


def unreadable(error: Exception, stat: str) -> str:
    """Return the line for the first request in the queue that cannot be read back."""
    return (
        f"A request in the JOBDIR cannot be read ({error!r}) and is left out; planned pages are visited all "
        f"the same. (Further ones: stat {stat})"
    )
