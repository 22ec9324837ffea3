"""``scrapy gp4c status``: numbers of pages by class, sites with reliable claims of changes, last cycles."""

import dataclasses
import json
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from scrapy_gp4c.archive.texts import archive_problem
from scrapy_gp4c.commands.action import JSON, Action, option, positive, print_json, print_table, say
from scrapy_gp4c.commands.project import Project
from scrapy_gp4c.crawling import messages
from scrapy_gp4c.crawling.control_group import describe_estimates
from scrapy_gp4c.crawling.fetched import FETCHERS_FILE
from scrapy_gp4c.crawling.forecast import pages_before, rules_before
from scrapy_gp4c.crawling.planning import Planner
from scrapy_gp4c.crawling.promises import promises_line, too_small_warning
from scrapy_gp4c.crawling.reports import Resting, count_without_text, page_counts, resting_pages
from scrapy_gp4c.crawling.store_owner import last_warnings, owner_of
from scrapy_gp4c.foreign_text import counted
from scrapy_gp4c.page_state.outcomes import CHANGED, JUDGED, OUTCOMES
from scrapy_gp4c.scoring import hints
from scrapy_gp4c.settings import Settings
from scrapy_gp4c.store.opening import ARCHIVE, Store
from scrapy_gp4c.store.records import (
    CycleRecord,
    PromiseCounts,
    SampledCounts,
    ShareEstimate,
    local_time,
    samples_of,
)

MAX_SITES: Final = 10
"""Most sites that are shown."""
LEARNABLE_CYCLES: Final = 10
"""Least cycles to learn from: the first finds no change; training, validation and test get three each."""
HEADER = ("cycle", "started", "finished", "planned", "visited", "changed", "change rate", "score function")


@dataclass(frozen=True)
class TrustedSite:
    """A site whose claims of one kind predict changes, with counts of visits; older visits count less."""

    site: str
    hints: str
    """Kind of the claims, one of `scrapy_gp4c.scoring.hints.KINDS`."""
    claimed_changed: float
    claimed_unchanged: float
    silent_changed: float
    """Visits that found a change although none was claimed."""
    silent_unchanged: float


@dataclass(frozen=True)
class CycleStatus:
    """A finished cycle, or the open one with its visits so far."""

    cycle: int
    started: float | None
    """s since 1970, as is `finished`."""
    finished: float | None
    is_finished: bool
    planned: int | None
    visited: int | None
    changed: int | None
    change_rate: float | None
    score_function: str
    policy: str
    sampled: SampledCounts | None
    """Counts of a sampling policy; None: it takes no samples, or the cycle is not finished."""


@dataclass(frozen=True)
class Estimates:
    """Estimates of all pages by a cycle's control group (pages visited in every cycle, `GP4C_PANEL`)."""

    cycle: int
    judged: int
    changed_share: ShareEstimate
    """Share of pages that had changed since their last visit."""
    freshness: ShareEstimate
    """Share of copies that are up to date."""


@dataclass(frozen=True)
class FetcherStatus:
    """One fetcher of the crawl that runs."""

    name: str
    address: str
    state: str
    """``works``, ``refuses``, ``silent``, ``leaves`` or ``gone``."""
    reason: str
    pages: int
    """Pages that it has fetched."""


@dataclass(frozen=True)
class RuleStatus:
    """One rule of ``GP4C_RULES``."""

    rule: str
    pages: int
    """Number of known pages that match it."""
    never: bool


@dataclass(frozen=True)
class Status:
    """State of a store: pages by class, problems, and last cycles."""

    store: str
    store_id: str
    arguments: dict[str, str]
    """Arguments of the spider that the store belongs to."""
    warnings: list[str]
    """Warnings and errors of the last run."""
    pages: int
    counts: dict[str, int]
    """Pages by class, such as gone, in warm-up, ranked."""
    resting: Resting
    """Pages that wait after failed visits."""
    left_alone: dict[str, float]
    """Host that refused the last cycle -> until when it wants no request, s since 1970; 0: no time."""
    lies: dict[str, list[int]]
    """Host -> up to three pages that it answered "not modified" though they had changed."""
    no_text: int
    """Fetched pages without visible text."""
    archive: str
    """Reason why no texts are kept although ``GP4C_ARCHIVE`` is set; "" if none."""
    panel: Estimates | None
    """Estimates of the newest cycle that has any."""
    hints: list[TrustedSite]
    promises: PromiseCounts | None
    """Counts of promises; None: no page has one."""
    rules: list[RuleStatus]
    cycles: list[CycleStatus]
    fetchers: list[FetcherStatus]
    """Fetchers of the crawl that runs, or of one that was killed."""


def _run(project: Project, options: Namespace) -> None:
    with project.open_store() as store:
        cycles, next_cycle = store.cycles(), store.last_cycle + 1
        estimates = None
        for record in cycles:
            if (panel := record.get("panel")) is not None:
                parts = panel["judged"], panel["changed_share"], panel["freshness"]
                estimates = Estimates(record["cycle"], *parts)
        shown = cycles[-options.cycles :] if options.cycles > 0 else []
        promises, rules = _promises(store, project.settings)
        status = Status(
            str(store.path),
            store.store_id,
            owner_of(store.path).get("arguments", {}),
            last_warnings(store.path),
            store.pages,
            page_counts(store, project.settings),
            resting_pages(store, project.settings, next_cycle),
            cycles[-1].get("left_alone", {}) if cycles else {},
            next((cycle["lies"] for cycle in reversed(cycles) if "lies" in cycle), {}),
            count_without_text(store),
            archive_problem(store.path / ARCHIVE),
            estimates,
            trusted_sites(store),
            promises,
            rules,
            [_status(store, record) for record in shown],
            _fetchers(store.path),
        )
    if options.json:
        print_json(status)
    else:
        _print(status, project.settings, cycles, next_cycle)


def _print(status: Status, settings: Settings, cycles: Sequence[CycleRecord], next_cycle: int) -> None:
    say(f"store           {status.store} ({status.store_id})")
    if status.arguments:
        say(f"arguments       {', '.join(f'{name}={value}' for name, value in status.arguments.items())}")
    for line in status.warnings:
        say(f"last run        {line}")
    say(f"pages           {status.pages:,}")
    for name, count in status.counts.items():
        say(f"  {name.replace('_', ' ').replace('warm up', 'warm-up'):<14}{count:,}")
    if (needs := _learning_needs(settings, next_cycle - 1)) is not None:
        say(f"learning        {needs}")
    for line in messages.resting(status.resting, next_cycle):
        say(line)
    if (refusing := messages.left_alone(status.left_alone)) is not None:
        say(refusing)
    if (lying := messages.lying(status.lies)) is not None:
        say(lying)
    if status.no_text:
        say(messages.without_text(status.no_text))
    if status.archive:
        say(f"no texts are kept: {status.archive}")
    if status.panel is not None:
        panel = next(record["panel"] for record in cycles if record["cycle"] == status.panel.cycle)
        say(f"cycle {status.panel.cycle}{describe_estimates(panel)}")
    if status.promises is not None:
        say(promises_line(status.promises))
        if (warning := too_small_warning(status.promises)) is not None:
            say(warning)
    for rule in status.rules:
        nothing = "its pages are never visited" if rule.never else "no page matches it"
        say(f"{rule.rule}: {counted(rule.pages, 'page') if rule.pages else nothing}")
    if status.hints:
        say()
        columns = ("site", "hints that hold", "claimed: changed", "unchanged", "silent: changed", "unchanged")
        print_table([columns, *(tuple(map(str, dataclasses.astuple(site))) for site in status.hints)])
    if status.cycles:
        say()
        print_table([HEADER, *map(_row, status.cycles)])
    if status.cycles and (samples := samples_of(cycles[-1])):
        say(f"cycle {cycles[-1]['cycle']} by {cycles[-1].get('policy', '-')}: {samples}")
    if status.fetchers:
        say()
        rows = [
            (fetcher.name, fetcher.address, fetcher.state, _number(fetcher.pages), fetcher.reason)
            for fetcher in status.fetchers
        ]
        print_table([("fetcher", "address", "state", "pages", ""), *rows])


STATUS = Action(
    "pages and last cycles of a spider's store",
    _run,
    [
        option("--cycles", type=positive, default=10, metavar="N", help="last cycles to show (default: 10)"),
        JSON,
    ],
    Status,
)


def _learning_needs(settings: Settings, cycles: int) -> str | None:
    """Return what the store lacks for ``scrapy gp4c learn``, in words; None: nothing."""
    needs = []
    if cycles < LEARNABLE_CYCLES:
        needs.append(f"{LEARNABLE_CYCLES} cycles (there {'is' if cycles == 1 else 'are'} {cycles})")
    if settings.panel == 0.0 and str(settings.budget) != "1.0":  # 1 is one page
        needs.append("pages that every cycle visits: set GP4C_PANEL = 0.05, say")
    return f"needs {' and '.join(needs)}" if needs else None


def _fetchers(path: Path) -> list[FetcherStatus]:
    try:
        written = json.loads((path / FETCHERS_FILE).read_text("utf-8"))
        return [FetcherStatus(**one) for one in written["fetchers"]]
    except (OSError, ValueError):
        return []


def _promises(store: Store, settings: Settings) -> tuple[PromiseCounts | None, list[RuleStatus]]:
    """Return counts of promises (``max_age``) for the next cycle, and rules with their numbers of pages."""
    rules = rules_before(store, settings)
    if rules is None:
        return None, []
    pages, cycle = pages_before(store)
    planner = Planner(pages, settings, cycle, rules=rules)
    counts = rules.pages_by_rule()
    by_rule = [RuleStatus(rule.name, counts[rule.number], rule.never) for rule in settings.rules]
    return planner.plan_first().counts.get("promises"), by_rule


def _status(store: Store, record: CycleRecord) -> CycleStatus:
    if record["cycle"] == store.open_cycle:
        outcomes = np.bincount(store.open_visits()["outcome"], minlength=len(OUTCOMES))
        judged = int(outcomes[list(JUDGED)].sum())
        changed = int(outcomes[CHANGED])
        record = {
            **record,
            "visited": int(outcomes.sum()),
            "changed": changed,
            "change_rate": changed / judged if judged else None,
        }
    return CycleStatus(
        record["cycle"],
        record.get("started"),
        record.get("finished"),
        "finished" in record,
        record.get("planned"),
        record.get("visited"),
        record.get("changed"),
        record.get("change_rate"),
        str(record.get("score_function", "-")),
        str(record.get("policy", "-")),
        record.get("sampled"),
    )


def _row(one: CycleStatus) -> tuple[str, ...]:
    return (
        str(one.cycle),
        local_time(one.started),
        local_time(one.finished) if one.is_finished else "unfinished",
        _number(one.planned),
        _number(one.visited),
        _number(one.changed),
        "-" if one.change_rate is None else f"{one.change_rate:.3f}",
        one.score_function,
    )


def _number(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"


def trusted_sites(store: Store) -> list[TrustedSite]:
    """Return at most `MAX_SITES` sites with reliable hints, those with most visits after a hint first."""
    rows = store.trust()
    where, kind = np.nonzero(hints.holds(rows["counts"]))
    weight = rows["counts"][where, kind].sum(axis=(1, 2))
    best = np.argsort(-weight, kind="stable")[:MAX_SITES]
    names = store.site_names(rows["site"][where[best]].tolist())
    trusted = []
    for row, number in zip(where[best], kind[best], strict=True):
        (silent, silent_changed), (claimed, claimed_changed) = rows["counts"][row, number].round(1).tolist()
        name = names.get(int(rows["site"][row]), "?")
        trusted.append(
            TrustedSite(name, hints.KINDS[number], claimed_changed, claimed, silent_changed, silent)
        )
    return trusted
