"""What a crawl says of its cycle: one line when it opens, one when it closes."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from scrapy_gp4c.crawling.estimates import describe
from scrapy_gp4c.crawling.planning import has_cut
from scrapy_gp4c.policies.table import DEFAULT
from scrapy_gp4c.store.records import CycleRecord, StoredRequest, samples_of

if TYPE_CHECKING:
    from scrapy.statscollectors import StatsCollector

    from scrapy_gp4c.crawling.cycle import Cycle
    from scrapy_gp4c.settings import Settings
    from scrapy_gp4c.store.credentials import Credentials

logger = logging.getLogger(__name__)

NOT_GIVEN: Final = "gp4c/secret_not_given"
"""Statistic of the visits that the spider itself has to ask for, as it alone knows what is secret of them."""


def tell_first(stats: StatsCollector, name: str, line: str, extra: dict[str, Any]) -> None:
    """Count in a statistic; the first one is told."""
    if not stats.get_value(name):
        logger.info("%s", line, extra=extra)
    stats.inc_value(name)


def opening(cycle: Cycle, remaining: int) -> str:
    """Return the line for an opened cycle with so many pages to visit."""
    kinds = ", ".join(f"{count} {kind}" for kind, count in cycle.planned_kinds.items() if count)
    return (
        f"Cycle {cycle.number} {'resumed' if cycle.resumed else 'begun'}: {cycle.store.pages} known pages, "
        f"{cycle.planned} planned ({kinds or 'none'}), {remaining} to visit, "
        f"score function {_formula(cycle)}{_policy(cycle)}"
    )


def _formula(cycle: Cycle) -> str:
    """Return what a resumed cycle was begun with, whatever the settings say by now."""
    return cycle.record.get("formula", cycle.settings.score_function.formula)


def _policy(cycle: Cycle) -> str:
    return "" if cycle.policy == DEFAULT else f", policy {cycle.policy}"


def next_round(cycle: Cycle, pages: int) -> str:
    """Return the line for a further round of so many pages."""
    planned, rounds = cycle.rounds
    number = f"{planned} of {rounds}" if rounds is not None else f"{planned}"
    return (
        f"Cycle {cycle.number}, round {number}: {pages} pages planned by {cycle.policy}, "
        f"{cycle.planned} in all"
    )


def closing(cycle: Cycle, record: CycleRecord) -> str:
    """Return the line for a finished cycle with this record."""
    rate = record["change_rate"]
    return (
        f"Cycle {cycle.number} finished: {record['visited']} visited, {record['changed']} changed "
        f"(change rate {'unknown' if rate is None else f'{rate:.3f}'}), {cycle.store.pages} known pages"
        f"{_found(record)}{_gained(record)}{_sampled(record)}{_panel(cycle, record)}; "
        f"the next run begins cycle {cycle.number + 1}"
    )


def _sampled(record: CycleRecord) -> str:
    """Return what the policy has sampled and followed, if anything."""
    told = samples_of(record)
    return f"; {told}" if told else ""


def _found(record: CycleRecord) -> str:
    """Return what hubs have brought, if anything."""
    return f", {record['new_by_hubs']} of them found by hubs now" if record["new_by_hubs"] else ""


def _gained(record: CycleRecord) -> str:
    """Return what searches gained, where that is measured."""
    if "gained" not in record:
        return ""
    visits, ppm = record["gained"]
    return f"; searches gained {ppm:,.0f} ppm by {visits:,} measured visits"


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


def not_built(stored: StoredRequest, error: Exception, credentials: Credentials) -> str:
    """Return the line for a planned page whose request cannot be built."""
    page = str(stored["url"] if isinstance(stored, dict) and "url" in stored else "a page")[:300]
    remedy = "Rename the method back, or let" if isinstance(error, AttributeError) else "Let"
    line = f"Cannot revisit {page}: {error}. {remedy} the spider request the page again."
    return credentials.url(line)


def not_given(stored: StoredRequest) -> str:
    """Return the line for the first page that only the spider can request."""
    return (
        f"{stored['url']} is visited when, and only when, the spider asks for it: the store does not keep "
        f"what is secret ({', '.join(stored.get('lacks', ()))}). Give it in a method gp4c_request(request) "
        "of the spider, or take out of GP4C_SECRET_PARAMS what is not secret. (Further ones: stat "
        f"{NOT_GIVEN})"
    )


def secret_differs(url: str) -> str:
    """Return the line for the first page that is asked for with two values of a secret parameter."""
    return (
        f"Requests for {url} that differ only in what is called a secret are one page; the second and later "
        "ones are fetched as without scrapy-gp4c. If the parameter tells pages apart, take it out of "
        "GP4C_SECRET_PARAMS. (Further ones: stat gp4c/secret_differs)"
    )


def unreadable(error: Exception, stat: str) -> str:
    """Return the line for the first request in the queue that cannot be read back."""
    return (
        f"A request in the JOBDIR cannot be read ({error!r}) and is left out; planned pages are visited all "
        f"the same. (Further ones: stat {stat})"
    )


def other_policy(settings: Settings) -> str | None:
    """Return the line for a score function that was learned under another policy than the crawl's."""
    learned, policy = settings.score_function.learned_under, settings.policy
    if learned is None or not policy.scored or learned == policy.text:
        return None
    return (
        f"The score function {settings.score_function.text} was learned under the policy {learned}, and this "
        f"crawl has {policy.text}: it may find less than its file says. Set GP4C_POLICY = {learned!r}, or "
        f'learn anew with `python -m training.learn --policy "{policy.text}"`'
    )
