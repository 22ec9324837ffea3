"""``scrapy gp4c history``: every recorded visit of one page."""

from argparse import Namespace
from dataclasses import dataclass

import numpy as np

from scrapy_gp4c.commands.action import JSON, Action, option, print_json, print_table, say
from scrapy_gp4c.commands.project import Project
from scrapy_gp4c.commands.why import find_page
from scrapy_gp4c.crawling.notifying import open_texts
from scrapy_gp4c.foreign_text import counted
from scrapy_gp4c.page_state.outcomes import CHANGED, KINDS, NO_DISTANCE, OUTCOMES
from scrapy_gp4c.store.records import local_time


@dataclass(frozen=True)
class PageVisit:
    cycle: int
    time: float
    """s since 1970."""
    outcome: str
    kind: str
    """Reason of the visit."""
    distance: int | None
    """Bits in which the fingerprints differ; None: the visit compared nothing."""
    bytes: int
    diff: list[str] | None
    """Differences of the texts, a line for each changed passage; None: the archive lacks one of them."""


@dataclass(frozen=True)
class PageHistory:
    """Recorded visits of a page, oldest first."""

    url: str
    visits: list[PageVisit]


def _run(project: Project, options: Namespace) -> None:
    """Print the page's visits, those of the open cycle included; raises UnknownPageError, ArchiveError."""
    with project.open_store() as store, open_texts(store) as texts:
        page = find_page(project, store, options.url)
        cycles = list(store.visits())
        if store.open_cycle is not None:
            cycles.append((store.open_cycle, store.open_visits()))
        visits = []
        for cycle, rows in cycles:
            for row in rows[rows["page"] == page]:
                is_change = row["outcome"] == CHANGED
                lines = texts.diff(page, cycle, int(row["fingerprint"])) if is_change else None
                visits.append(
                    PageVisit(
                        cycle,
                        float(row["time"]),
                        OUTCOMES[row["outcome"]],
                        KINDS[row["kind"]],
                        None if row["distance"] == NO_DISTANCE else int(row["distance"]),
                        int(row["bytes"]),
                        None if lines is None else list(lines),
                    )
                )
        url = project.credentials.url(store.request(page)["url"])
    if options.json:
        print_json(PageHistory(url, visits))
    else:
        _show(url, visits)
    if texts.problem is not None:
        raise texts.problem


def _show(url: str, visits: list[PageVisit]) -> None:
    say(url)
    if not visits:
        say("no visit of it is recorded (GP4C_KEEP_CYCLES may have dropped them)")
        return
    print_table([("cycle", "time", "outcome", "bits", "why", "difference"), *map(_row, visits)])
    changed = sum(visit.outcome == "changed" for visit in visits)
    judged = np.count_nonzero(
        [visit.distance is not None or visit.outcome == "not_modified" for visit in visits]
    )
    say(f"{counted(len(visits), 'visit')}, {judged:,} of them compared it, {changed:,} found a change")


def _row(visit: PageVisit) -> tuple[str, ...]:
    bits = "-" if visit.distance is None else str(visit.distance)
    difference = "; ".join(visit.diff or ())
    return str(visit.cycle), local_time(visit.time), visit.outcome, bits, visit.kind, difference


HISTORY = Action(
    "every recorded visit of a page: outcome, distance, and what changed",
    _run,
    [option("url", metavar="URL", help="of the page, as the spider requests it"), JSON],
    PageHistory,
)
