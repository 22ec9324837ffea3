"""Log lines about a cycle: when it opens and closes, and warnings in between."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from scrapy_gp4c.crawling.control_group import describe_estimates
from scrapy_gp4c.crawling.cycle import Cycle
from scrapy_gp4c.crawling.planning import has_cut
from scrapy_gp4c.crawling.promises import too_small_warning
from scrapy_gp4c.crawling.reports import Resting
from scrapy_gp4c.foreign_text import counted
from scrapy_gp4c.policies.table import DEFAULT
from scrapy_gp4c.settings import Settings
from scrapy_gp4c.store.records import CycleRecord, local_time, samples_of


def opening(cycle: Cycle, remaining: int) -> str:
    """Return the line for an opened cycle with so many pages to visit."""
    kinds = ", ".join(f"{count} {kind}" for kind, count in cycle.planned_kinds.items() if count)
    # A resumed cycle keeps its formula, whatever the settings are now.
    formula = cycle.record.get("formula", cycle.settings.score_function.formula)
    policy = "" if cycle.policy == DEFAULT else f", policy {cycle.policy}"
    return (
        f"Cycle {cycle.number} {'resumed' if cycle.resumed else 'begun'}: "
        f"{counted(cycle.store.pages, 'known page')}, "
        f"{cycle.planned} planned ({kinds or 'none'}), {remaining} to visit, "
        f"score function {formula}{policy}"
    )


def next_round(cycle: Cycle, pages: int) -> str:
    """Return the line for a further round of so many pages."""
    planned, rounds = cycle.rounds
    number = f"{planned} of {rounds}" if rounds is not None else f"{planned}"
    return (
        f"Cycle {cycle.number}, round {number}: {counted(pages, 'page')} planned by {cycle.policy}, "
        f"{cycle.planned} in all"
    )


def earlier_start(cycle: Cycle, pages: Sequence[int], shown_url: str) -> str:
    """Return the line for visited `pages` that only the start of earlier runs has requested."""
    return (
        f"Of {counted(cycle.recorded, 'visited page')}, {counted(len(pages), 'is', 'are')} of the start of "
        f"an earlier run and not of this one's. The first is {shown_url}. Take out what is not wanted any "
        "more by `scrapy gp4c forget`. If callbacks fill a queue of the start, the pages of those callbacks "
        "were unchanged or not visited."
    )


NO_TEXT: Final = (
    "no visible text: a browser would build it. Render such pages (scrapy-playwright), crawl their JSON "
    "endpoints, or name what counts in GP4C_FEATURES."
)
"""Remedy for pages without text, as log lines give it."""


def without_text(pages: int) -> str:
    """Return the line for pages without visible text."""
    return f"{counted(pages, 'page has', 'pages have')} {NO_TEXT}"


def resting(waiting: Resting, cycle: int) -> Iterator[str]:
    """Yield lines about pages that wait after failed visits, by their counts; ``cycle``: the next one."""
    if waiting.gone:
        due = f"{waiting.gone_due:,} of them in cycle {cycle:,}" if waiting.gone_due else ""
        first = due or f"the first in cycle {waiting.gone_cycle:,}"
        gone = counted(waiting.gone, "page is", "pages are")
        yield f"{gone} gone and looked at again ever more rarely, {first}"
    if waiting.failed:
        until = f"the first until cycle {waiting.failed_cycle:,}"
        yield f"{counted(waiting.failed, 'page waits', 'pages wait')} after failed visits, {until}"


def promises(cycle: Cycle) -> str | None:
    """Return the line for a budget that cannot keep all promises about pages; None: it can."""
    counts = cycle.record["plan"].get("promises")
    return None if counts is None or cycle.resumed else too_small_warning(counts)


def limited_sites(cycle: Cycle) -> str | None:
    """Return the line for sites that would draw most of the budget; None: there are none."""
    sites = {key for of_round in cycle.record["plan"].get("site_cuts", ()) for key, *_ in of_round}
    if not sites:
        return None
    return (
        f"{counted(len(sites), 'site has', 'sites have')} pages that change at every visit or "
        f"never, or ever more pages. Each gets at most {cycle.settings.site_share:.0%} of the budget, at "
        "least an equal share (GP4C_SITE_SHARE). `scrapy gp4c why URL` tells whether that leaves a page out"
    )


def nothing_visited(cycle: Cycle, waiting: Resting) -> str:
    """Return the line for a cycle that visited no page, and the reason."""
    pages = cycle.store.pages
    if not pages:
        return (
            f"Cycle {cycle.number} visited nothing, and no page is known: the spider has yielded no plain "
            "GET request that robots.txt and allowed_domains let pass. Check its start, or import URLs with "
            "`scrapy gp4c import`."
        )
    reasons = list(resting(waiting, cycle.number))
    if hosts := cycle.patience.left_alone:
        reasons.append(f"{', '.join(list(hosts)[:5])} refused the crawl")
    others = pages - waiting.gone - waiting.failed
    if others:
        what = (
            f"{counted(cycle.planned, 'page was', 'pages were')} planned, and no request for them was sent"
            if cycle.planned
            else f"the budget, the caps and the schedule left out {counted(others, 'other')}"
        )
        reasons.append(what)
    return f"Cycle {cycle.number} visited none of {counted(pages, 'known page')}: {'; '.join(reasons)}."


def cut_short(cycle: Cycle, reason: str) -> str:
    """Return the line for a run that was closed before it had visited its plan."""
    return (
        f"Cycle {cycle.number} left out {cycle.without_outcome:,} of "
        f"{counted(cycle.planned, 'planned page')}, because the run was closed by {reason!r}; the next run "
        "plans anew. If runs always end like this, "
        "set a lower GP4C_BUDGET, or stop runs by SIGTERM: then the next one goes on."
    )


def closing(cycle: Cycle, record: CycleRecord) -> str:
    """Return the line for a finished cycle with this record."""
    rate = record["change_rate"]
    hubs = f", {record['new_by_hubs']} of them found by hubs now" if record["new_by_hubs"] else ""
    sampled = f"; {samples}" if (samples := samples_of(record)) else ""
    return (
        f"Cycle {cycle.number} finished: {record['visited']} visited, {record['changed']} changed "
        f"(change rate {'unknown' if rate is None else f'{rate:.3f}'}), "
        f"{counted(cycle.store.pages, 'known page')}"
        f"{hubs}{_gained(record)}{sampled}{_panel(cycle, record)}; "
        f"the next run begins cycle {cycle.number + 1}"
    )


def _gained(record: CycleRecord) -> str:
    if "gained" not in record:
        return ""
    visits, ppm = record["gained"]
    return f"; searches gained {ppm:,.0f} ppm by {counted(visits, 'measured visit')}"


def _panel(cycle: Cycle, record: CycleRecord) -> str:
    if record["panel"] is None and cycle.planned_kinds["panel"] and not has_cut(cycle.record["plan"]):
        return (
            f"; no estimate by the panel, because the policy {cycle.policy} does not divide pages by a score"
        )
    return describe_estimates(record["panel"])


def refusing(host: str, until_s: float) -> str:
    """Return the line for a host that is left alone from now on; ``until_s``: see `Patience.left_alone`."""
    until = f" and until {local_time(until_s)}, as its Retry-After asks" if until_s else ""
    return (
        f"{host} is left alone for the rest of the cycle{until}: its last answers were blocks, refusals "
        "or failures of the server. Ask it less (DOWNLOAD_DELAY), or name the crawler in USER_AGENT."
    )


def left_alone(hosts: Mapping[str, float]) -> str | None:
    """Return the line for hosts that are left alone when a cycle begins; None: there are none."""
    if not hosts:
        return None
    until = (f"{host} until {local_time(until_s)}" if until_s else host for host, until_s in hosts.items())
    return f"Left alone, as their last answers refused the crawl: {', '.join(until)}"


def lying(sites: Mapping[str, Sequence[int]]) -> str | None:
    """Return the line for sites with false answers "not modified"; None: there are none."""
    if not sites:
        return None
    counts = ", ".join(f"{site} ({counted(len(pages), 'page')})" for site, pages in sites.items())
    return (
        f'Answered "not modified" though pages had changed: {counts}. These pages, and from 3 on their whole '
        "site, are asked for without ETag and Last-Modified"
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
