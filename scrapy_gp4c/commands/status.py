"""``scrapy gp4c status``: how many pages there are, and how the last cycles went."""

from __future__ import annotations

import json
from argparse import ArgumentParser, Namespace
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from scrapy_gp4c.archive.texts import archive_problem
from scrapy_gp4c.commands.output import add_json, positive, print_json, print_table, say
from scrapy_gp4c.commands.sources import Hub, TrustedSite, hubs, print_sources, trusted_sites
from scrapy_gp4c.crawling import messages
from scrapy_gp4c.crawling.control_group import describe_estimates
from scrapy_gp4c.crawling.expiry import RemovableHost, removable_hosts
from scrapy_gp4c.crawling.fetched import FETCHERS_FILE
from scrapy_gp4c.crawling.forecast import pages_before, rules_before
from scrapy_gp4c.crawling.messages import NO_TEXT
from scrapy_gp4c.crawling.planning import Planner
from scrapy_gp4c.crawling.promises import promises_line, too_small_warning
from scrapy_gp4c.crawling.reports import Resting, count_without_text, page_counts, resting_pages
from scrapy_gp4c.crawling.store_owner import last_warnings, owner_of
from scrapy_gp4c.page_state.outcomes import CHANGED, JUDGED, OUTCOMES
from scrapy_gp4c.store.opening import ARCHIVE
from scrapy_gp4c.store.protocols import PageReader, PageStore
from scrapy_gp4c.store.records import CycleRecord, PanelEstimates, PromiseCounts, local_time, samples_of

if TYPE_CHECKING:
    from scrapy_gp4c.commands.project import Project
    from scrapy_gp4c.settings import Settings

HELP = "pages and last cycles of a spider's store"
SHOWN_HOSTS = 10
REASONS = {
    "vanished": ("of a host that no visit has reached lately", ""),
    "excluded": ("that robots.txt or allowed_domains keeps out", " --excluded"),
}
"""Why pages are visited in vain -> in words, and the option of `forget`."""
HEADER = ("cycle", "started", "finished", "planned", "visited", "changed", "change rate", "score function")


@dataclass(frozen=True)
class Sampled:
    """Visits to samples, and visits that followed from what the samples showed."""

    samples: int
    samples_changed: int
    seeds: int
    """Samples that were followed; of policies by groups: groups that were."""
    neighbours: int
    neighbours_changed: int


@dataclass(frozen=True)
class CycleStatus:
    """Cycle; the numbers of an unfinished cycle count its visits so far."""

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
    sampled: Sampled | None
    """Samples of its policy; None: there are none, or the cycle is not finished."""


@dataclass(frozen=True)
class Share:
    """Estimate for all pages from the control group, with its 95% interval."""

    estimate: float
    low: float
    high: float


@dataclass(frozen=True)
class Estimates:
    """Estimate by the control group of a cycle."""

    cycle: int
    judged: int
    changed_share: Share
    """Pages that had changed since their last visit."""
    freshness: Share
    """Copies that are current."""


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
    """Known pages that it is for."""
    never: bool


@dataclass(frozen=True)
class Status:
    """Pages and last cycles of a store."""

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
    """Reason why no texts are kept, though they should be; empty: they are, or none should be."""
    panel: Estimates | None
    """Estimates of the last cycle that has some."""
    hubs: list[Hub]
    hints: list[TrustedSite]
    promises: PromiseCounts | None
    """None: no page has one."""
    rules: list[RuleStatus]
    cycles: list[CycleStatus]
    leavers: list[RemovableHost]
    """Hosts whose pages are visited in vain; ``why``: `vanished`, all fail, or `excluded` by a rule."""
    fetchers: list[FetcherStatus]
    """Fetchers of the crawl that runs, or of one that was killed."""


DOCUMENT = Status
"""Output of ``--json``."""


def add_options(parser: ArgumentParser) -> None:
    """Add the options of this action."""
    parser.add_argument(
        "--cycles", type=positive, default=10, metavar="N", help="last cycles to show (default: 10)"
    )
    parser.add_argument("--hubs", action="store_true", help="list the pages whose visits bring new ones, too")
    add_json(parser.add_argument)


def run(project: Project, options: Namespace) -> None:
    """Print the status."""
    with project.open_store() as store:
        cycles = store.cycles()
        estimated = next((record for record in reversed(cycles) if record.get("panel")), None)
        shown = cycles[-options.cycles :] if options.cycles > 0 else []
        promises, rules = _promises(store, project.settings)
        status = Status(
            str(store.path),
            store.store_id,
            owner_of(store.path).get("arguments", {}),
            last_warnings(store.path),
            store.pages,
            page_counts(store, project.settings),
            resting_pages(store, project.settings, store.last_cycle + 1),
            cycles[-1].get("left_alone", {}) if cycles else {},
            next((cycle["lies"] for cycle in reversed(cycles) if "lies" in cycle), {}),
            count_without_text(store),
            archive_problem(store.path / ARCHIVE),
            None if estimated is None else _estimates(estimated["cycle"], estimated["panel"]),
            hubs(store),
            trusted_sites(store),
            promises,
            rules,
            [_status(store, record) for record in shown],
            removable_hosts(store, project.is_offsite),
            _fetchers(store.path),
        )
    if options.json:
        print_json(status)
        return
    say(f"store           {status.store} ({status.store_id})")
    if status.arguments:
        say(f"arguments       {', '.join(f'{name}={value}' for name, value in status.arguments.items())}")
    for line in status.warnings:
        say(f"last run        {line}")
    say(f"pages           {status.pages:,}")
    for name, count in status.counts.items():
        say(f"  {name.replace('_', ' ').replace('warm up', 'warm-up'):<14}{count:,}")
    for line in messages.resting(status.resting, store_cycle(cycles)):
        say(line)
    if (refusing := messages.left_alone(status.left_alone)) is not None:
        say(refusing)
    if (lying := messages.lying(status.lies)) is not None:
        say(lying)
    if status.no_text:
        say(f"{status.no_text:,} pages have {NO_TEXT}")
    if status.archive:
        say(f"no texts are kept: {status.archive}")
    if estimated is not None:
        say(f"cycle {estimated['cycle']}{describe_estimates(estimated['panel'])}")
    if promises is not None:
        say(promises_line(promises))
        if (warning := too_small_warning(promises)) is not None:
            say(warning)
    for rule in status.rules:
        nothing = "its pages are never visited" if rule.never else "no page matches it"
        say(f"{rule.rule}: {f'{rule.pages:,} pages' if rule.pages else nothing}")
    print_sources(status.hubs if options.hubs else [], status.hints)
    if status.cycles:
        say()
        print_table([HEADER, *map(_row, status.cycles)])
    if shown and (samples := samples_of(shown[-1])):
        policy = shown[-1].get("policy", "-")
        say(f"cycle {shown[-1]['cycle']} by {policy}: {samples}")
    if status.fetchers:
        say()
        columns = ("fetcher", "address", "state", "pages", "")
        rows = [(one.name, one.address, one.state, _number(one.pages), one.reason) for one in status.fetchers]
        print_table([columns, *rows])
    _print_leavers(status, project.spider_class.name)


def _fetchers(path: Path) -> list[FetcherStatus]:
    """Fetchers as the owner of the crawl last wrote them."""
    try:
        written = json.loads((path / FETCHERS_FILE).read_text("utf-8"))
        return [FetcherStatus(**one) for one in written["fetchers"]]
    except (OSError, ValueError):
        return []


def store_cycle(cycles: list[CycleRecord]) -> int:
    """Number of the cycle that comes next, or is under way."""
    return sum("finished" in record for record in cycles[-1:]) + (cycles[-1]["cycle"] if cycles else 1)


def _print_leavers(status: Status, spider: str) -> None:
    """Print which hosts are visited in vain, and how their pages are forgotten."""
    if status.leavers:
        say()
    for leaver in status.leavers[:SHOWN_HOSTS]:
        what, option = REASONS[leaver.why]
        remedy = f"scrapy gp4c forget {spider}{option} --host {leaver.host}"
        say(f"{leaver.host}: {leaver.pages:,} page{'s' * (leaver.pages != 1)} {what}: {remedy}")
    if (more := len(status.leavers) - SHOWN_HOSTS) > 0:
        say(f"and {more:,} more such hosts: see --json")


def _promises(store: PageStore, settings: Settings) -> tuple[PromiseCounts | None, list[RuleStatus]]:
    """Promises as the next cycle would find them, and the rules with their pages."""
    rules = rules_before(store, settings)
    if rules is None:
        return None, []
    pages, cycle = pages_before(store)
    planner = Planner(pages, settings, cycle, rules=rules)
    counts = rules.pages_of()
    counted = [RuleStatus(rule.name, counts[rule.number], rule.never) for rule in settings.rules]
    return planner.plan_first().counts.get("promises"), counted


def _estimates(cycle: int, panel: PanelEstimates | None) -> Estimates | None:
    if panel is None:
        return None
    return Estimates(cycle, panel["judged"], Share(**panel["changed_share"]), Share(**panel["freshness"]))


def _status(store: PageReader, record: CycleRecord) -> CycleStatus:
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
        Sampled(**record["sampled"]) if "sampled" in record else None,
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
