"""Report of a crawl: its cycles, visits, outcomes and hosts, read from its store in one pass."""

from __future__ import annotations

import datetime
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import numpy as np
import numpy.typing as npt
from markupsafe import Markup

from scrapy_gp4c.errors import Gp4cError, HistoryError, StoreError
from scrapy_gp4c.page_state.outcomes import CHANGED, FAILED, JUDGED, KINDS, OUTCOMES
from scrapy_gp4c.scoring import functions
from scrapy_gp4c.store.credentials import Credentials
from scrapy_gp4c.store.opening import open_store
from scrapy_gp4c.store.protocols import PageReader
from scrapy_gp4c.store.records import CycleRecord, local_time, samples_of
from training.reporting.crawl_sections import (
    hints_section,
    last_changes_section,
    link,
    new_pages_section,
    weighted_section,
)
from training.reporting.figures import Chart, Line, shown
from training.reporting.page import Card, ReportPage, Section, defined, figure, fold_away, paragraph, table
from training.reporting.score import Formula, formula_section

TOP_PAGES: Final = 20
MOST_POINTS: Final = 150
"""Points of a chart; with more cycles, each stands for several."""
MOST_ROWS: Final = 200
"""Last cycles in the table."""


@dataclass
class Host:
    """A host's pages and visits over all finished cycles."""

    name: str
    pages: int = 0
    visits: int = 0
    judged: int = 0
    changed: int = 0
    failed: int = 0
    """Visits without a copy: error, gone, excluded."""
    latencies_ms: list[npt.NDArray[Any]] = field(default_factory=list)

    def latency_ms(self, percentile: float) -> float:
        """Percentile of the measured latencies; nan where none was measured."""
        measured = np.concatenate([*self.latencies_ms, np.empty(0)])
        return float(np.percentile(measured, percentile)) if len(measured) else float("nan")


@dataclass
class TopPage:
    """A page that changes often."""

    url: str
    n: int
    X: int
    age_cycles: int
    outcome: str


@dataclass
class Story:
    """Data of a crawl's report."""

    path: str
    store_id: str
    records: list[CycleRecord]
    """Of the finished cycles, oldest first."""
    counts: npt.NDArray[np.int64]
    """``[cycles, kinds, outcomes]``: visits."""
    known: int
    last_outcomes: dict[str, int]
    """Outcome of the last visit -> pages; ``never visited``."""
    hosts: list[Host]
    top: list[TopPage]
    open_cycle: int | None

    def rate(self, cycle: int | slice, kinds: tuple[str, ...] = KINDS) -> float:
        """Change rate of the visits of these kinds; nan where none was judged."""
        counts = self.counts[cycle].reshape(-1, len(KINDS), len(OUTCOMES))
        chosen = counts[:, [KINDS.index(kind) for kind in kinds]].sum(axis=(0, 1))
        judged = int(chosen[list(JUDGED)].sum())
        return int(chosen[CHANGED]) / judged if judged else float("nan")


def read_story(path: Path) -> Story:
    """Data of a store's report. Raises HistoryError without a store or a finished cycle."""
    try:
        with open_store(path, readonly=True) as store:
            if not store.last_cycle:
                raise HistoryError(
                    f"the store {path} has no finished cycle: there is nothing to report yet; let the "
                    "crawl finish"
                )
            return _read(store, str(path))
    except StoreError as error:
        raise HistoryError(f"there is no crawl to report in {path}: {error}") from error


def _read(store: PageReader, path: str) -> Story:
    cycles = store.last_cycle
    hosts: dict[str, Host] = {}
    host_of = np.empty(store.merged_pages, np.int32)
    numbers: dict[str, int] = {}
    last_outcomes: dict[str, int] = {}
    best: list[tuple[int, int, int]] = []
    shown = Credentials.of_store(store.cycles()).url
    for first, block in store.blocks():
        rows = len(block["n"])
        for row, request in enumerate(store.requests(np.arange(first, first + rows))):
            name = urlsplit(shown(request["url"])).netloc
            host_of[first + row] = numbers.setdefault(name, len(numbers))
        attempted = block["last_attempt"] > 0
        for code, count in enumerate(np.bincount(block["outcome"][attempted], minlength=len(OUTCOMES))):
            last_outcomes[OUTCOMES[code]] = last_outcomes.get(OUTCOMES[code], 0) + int(count)
        last_outcomes["never visited"] = last_outcomes.get("never visited", 0) + int((~attempted).sum())
        order = np.lexsort((block["n"], -block["X"].astype(np.int64)))[:TOP_PAGES]
        best += [(-int(block["X"][row]), int(block["n"][row]), first + int(row)) for row in order]
    pages = np.bincount(host_of, minlength=len(numbers))
    hosts = {name: Host(name, pages=int(pages[number])) for name, number in numbers.items()}
    counts = np.zeros((cycles, len(KINDS), len(OUTCOMES)), np.int64)
    listed = list(hosts.values())
    for cycle, visits in store.visits(1, cycles):
        np.add.at(counts[cycle - 1], (visits["kind"], visits["outcome"]), 1)
        _count_hosts(listed, host_of[visits["page"]], visits)
    top = []
    for changes, visited, page in sorted(best)[:TOP_PAGES]:
        if changes:
            columns = store.page(page)
            top.append(
                TopPage(
                    shown(store.request(page)["url"]),
                    visited,
                    -changes,
                    cycles + 1 - columns.last_cycle,
                    OUTCOMES[columns.outcome],
                )
            )
    records = [record for record in store.cycles() if record["cycle"] <= cycles]
    return Story(
        path, store.store_id, records, counts, store.pages, last_outcomes, listed, top, store.open_cycle
    )


def _count_hosts(hosts: list[Host], number: npt.NDArray[np.int32], visits: npt.NDArray[Any]) -> None:
    order = np.argsort(number, kind="stable")
    present, starts = np.unique(number[order], return_index=True)
    for host, rows in zip(present.tolist(), np.split(order, starts[1:]), strict=True):
        outcome, latency_ms = visits["outcome"][rows], visits["latency_ms"][rows]
        one = hosts[host]
        one.visits += len(rows)
        judged = int(np.isin(outcome, JUDGED).sum())
        one.judged += judged
        one.changed += int((outcome == CHANGED).sum())
        one.failed += int(np.isin(outcome, FAILED).sum())
        one.latencies_ms.append(latency_ms[latency_ms > 0])


CHOSEN: Final = ("ranked",)
"""Kinds of visits that the score function chose."""
VISITS: Final = {
    "chosen by score": "ranked",
    "warm-up": "warmup",
    "new pages": "new",
    "promised": "promised",
    "hubs": "hub",
    "panel": "panel",
    "samples": "sample",
    "near samples": "neighbour",
    "other": "other",
}
"""Name in the report -> kind of visit."""
PARTS: Final = (weighted_section, new_pages_section, hints_section)
"""Sections that a store may lack the data for."""
SLOWEST: Final = 10
LEAST_VISITS: Final = 50
"""Least judged warm-up visits of a cycle whose rate is shown."""


def crawl_page(path: Path) -> ReportPage:
    """The report of the store in a directory. Raises HistoryError as `read_story`."""
    story = read_story(path)
    rate = story.rate(slice(None), CHOSEN)
    if math.isnan(rate):
        rate = story.rate(slice(None))
        headline = "of the visits found a change. The score function has not chosen any visit yet."
    else:
        headline = "of the visits that the score function chose found a change."
        panel = story.rate(slice(None), ("panel",))
        if not math.isnan(yardstick := _random_rate(story)):
            headline += f" Visiting at random would have found {shown(yardstick, True)}."
        elif not math.isnan(panel):
            headline += f" Of the panel, a random share of all pages, {shown(panel, True)} did."
        else:
            headline += " GP4C_PANEL = 0.05 would tell what visits at random find."
    more = (section(path) for section in PARTS)
    sections = [
        last_changes_section(path),
        _top(story),
        _cycles(story),
        _score(story),
        *(one for one in more if one is not None),
    ]
    last = story.records[-1]
    visits = int(story.counts.sum())
    changed = int(story.counts[:, :, CHANGED].sum())
    judged = int(story.counts[:, :, list(JUDGED)].sum())
    cards = [
        Card("cycle", f"{len(story.records)}", [f"the last one ended {_time(last.get('finished'))}"]),
        Card("pages", f"{story.known:,}", [f"on {len(story.hosts):,} hosts"]),
        Card("visits", f"{visits:,}", [f"{judged:,} of them judged"]),
        Card(
            "change_rate",
            shown(story.rate(slice(None)), True),
            [f"over all visits: {changed:,} changes in {judged:,} judged visits"],
        ),
    ]
    facts = [
        ("Store", f"{story.path} ({story.store_id})"),
        (
            "Cycles",
            f"1 to {len(story.records)}, {_time(story.records[0].get('started'))} to "
            f"{_time(last.get('finished'))}",
        ),
        ("Budget", f"{_budget(last.get('budget'))} per cycle"),
    ]
    if samples := samples_of(last):
        facts.append((f"Cycle {last['cycle']} by {last.get('policy')}", samples))
    if story.open_cycle is not None:
        facts.append(("Open cycle", f"{story.open_cycle} is not finished and not in this report"))
    return ReportPage(
        f"Crawl “{Path(story.path).name}”",
        headline,
        shown(rate, True),
        "visited pages that had changed / visited pages with a known outcome",
        cards,
        [*sections, _outcomes(story), _hosts(story)],
        facts,
        datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    )


def _time(seconds: float | None) -> str:
    return "–" if seconds is None else local_time(seconds)


def _budget(budget: Any) -> str:
    return f"{budget:.1%} of the pages" if isinstance(budget, float) else f"{budget} pages"


def _random_rate(story: Story) -> float:
    """Share of pages that had changed since their last visits, by the control group; nan: not known."""
    panels = [panel for record in story.records if (panel := record.get("panel")) is not None]
    return float(np.mean([panel["changed_share"]["estimate"] for panel in panels])) if panels else math.nan


def _cycles(story: Story) -> Section:
    each = -(-len(story.records) // MOST_POINTS)
    spans = [slice(start, start + each) for start in range(0, len(story.records), each)]
    cycles = [float(story.records[span][-1]["cycle"]) for span in spans]
    none = [math.nan] * len(spans)
    kinds = {
        name: np.array([story.counts[span, KINDS.index(kind)].sum() for span in spans])
        for name, kind in VISITS.items()
    }
    rates = {
        "chosen by score": [story.rate(span, CHOSEN) for span in spans],
        "warm-up": [_unless_few(story, span) for span in spans],
        "panel": [story.rate(span, ("panel",)) for span in spans],
        "samples": [story.rate(span, ("sample",)) for span in spans],
        "near samples": [story.rate(span, ("neighbour",)) for span in spans],
    }
    lines = [Line(name, values, none) for name, values in rates.items() if not np.isnan(values).all()]
    section = Section("Cycle by cycle")
    if each > 1:
        section.lead = f"Each point stands for {each:,} cycles: there are {len(story.records):,}."
    if lines:
        chart = Chart("rates", "Change rate", "cycle", "change rate", cycles, lines, True)
        caption = Markup(
            "{} by {}. Warm-up visits go to every page, so they show what visits without a choice find."
        )
        section.blocks.append(
            figure(chart, caption.format(defined("change_rate"), defined("kind", "kind of visit")))
        )
    totals = [
        Line(name, values.astype(float).tolist(), none) for name, values in kinds.items() if values.any()
    ]
    chart = Chart("visits", "Visits", "cycle", "visits", cycles, totals, False, True)
    section.blocks.append(figure(chart, Markup("Visits by {}.").format(defined("kind", "kind"))))
    rows = []
    first = max(0, len(story.records) - MOST_ROWS)
    for i, record in enumerate(story.records[first:], first):
        ended, started = record.get("finished"), record.get("started")
        took = "–" if ended is None or started is None else f"{ended - started:,.0f} s"
        counts = story.counts[i]
        rows.append(
            [
                f"{record['cycle']}",
                Markup('<span class="time">{}</span>').format(_time(started)),
                took,
                _budget(record.get("budget")),
                _count(record.get("known")),
                _count(record.get("planned")),
                f"{int(counts.sum()):,}",
                f"{int(counts[:, CHANGED].sum()):,}",
                shown(story.rate(i), True),
                shown(story.rate(i, CHOSEN), True),
            ]
        )
    head = [
        defined("cycle", "cycle"), "started", "took", defined("budget"), "known", "planned",
        defined("visits", "visited"), "changed", defined("change_rate"), "of chosen visits",
    ]  # fmt: skip
    summary = "All finished cycles"
    if first:
        summary = f"The last {MOST_ROWS} finished cycles; `scrapy gp4c status --cycles N` has all"
    section.blocks.append(fold_away(summary, table(head, rows, words=2)))
    return section


def _unless_few(story: Story, cycles: slice) -> float:
    """Change rate of some cycles' warm-up visits; nan if they are few."""
    judged = story.counts[cycles, KINDS.index("warmup")][:, list(JUDGED)].sum()
    return story.rate(cycles, ("warmup",)) if judged >= LEAST_VISITS else math.nan


def _count(value: int | None) -> str:
    return "–" if value is None else f"{value:,}"


def _score(story: Story) -> Section:
    last = story.records[-1]
    text = str(last.get("formula") or last.get("score_function"))
    name = str(last.get("score_function"))
    try:
        expression = functions.recorded(text).expression
    except Gp4cError:  # a dotted path: what a store names is not imported
        expression = None
    if expression is None:
        section = Section(
            "The score function in use", f"{name}: a function of the project, not an expression."
        )
    else:
        shown_name = "In the last cycle" if name == text else f"In the last cycle: {name}"
        section = formula_section([Formula(shown_name, expression.text, {})])
        section.title = "The score function in use"
    used: list[tuple[str, int, int]] = []
    for record in story.records:
        function, cycle = str(record.get("score_function")), int(record["cycle"])
        if used and used[-1][0] == function:
            used[-1] = (function, used[-1][1], cycle)
        else:
            used.append((function, cycle, cycle))
    if len(used) > 1:
        rows = [
            [function, f"{first}–{end}", shown(story.rate(slice(first - 1, end), CHOSEN), True)]
            for function, first, end in used
        ]
        head = ["score function", "cycles", Markup("{} of chosen visits").format(defined("change_rate"))]
        section.blocks.append(table(head, rows, "Score functions over time", words=1))
    return section


def _outcomes(story: Story) -> Section:
    visits = story.counts.sum(axis=(0, 1))
    total = max(1, int(visits.sum()))
    rows = [
        [
            name.replace("_", " "),
            f"{int(visits[OUTCOMES.index(name)]):,}" if name in OUTCOMES else "–",
            shown(int(visits[OUTCOMES.index(name)]) / total, True) if name in OUTCOMES else "–",
            f"{pages:,}",
        ]
        for name, pages in story.last_outcomes.items()
    ]
    head = [defined("outcome", "outcome"), "visits", "share of visits", "pages whose last visit ended so"]
    return Section("Pages and visits by outcome", "", [table(head, rows)])


def _hosts(story: Story) -> Section:
    section = Section("Slowest hosts")
    measured = [host for host in story.hosts if any(len(section) for section in host.latencies_ms)]
    if not measured:
        section.lead = "No visit of this store has a latency: the download handler does not measure it."
        return section
    measured.sort(key=lambda host: -host.latency_ms(50))
    rows = [
        [
            host.name,
            f"{host.latency_ms(50):,.0f} ms",
            f"{host.latency_ms(95):,.0f} ms",
            f"{host.pages:,}",
            f"{host.visits:,}",
            f"{host.failed:,}",
            shown(host.changed / host.judged, True) if host.judged else "–",
        ]
        for host in measured[:SLOWEST]
    ]
    middle = float(np.median([host.latency_ms(50) for host in measured]))
    section.lead = Markup("By median {}. Half of the {} hosts answer within {:,.0f} ms.").format(
        defined("latency"), f"{len(measured):,}", middle
    )
    head = [
        "host", "median", "95th percentile", "pages", defined("visits"), "failed", defined("change_rate"),
    ]  # fmt: skip
    section.blocks.append(table(head, rows))
    return section


def _top(story: Story) -> Section:
    section = Section("Most changing pages")
    if not story.top:
        section.blocks.append(paragraph("No page has changed yet."))
        return section
    rows = [
        [
            link(page.url),
            f"{page.X:,}",
            f"{page.n:,}",
            f"{page.age_cycles:,}",
            page.outcome.replace("_", " "),
        ]
        for page in story.top
    ]
    head = ["page", defined("X"), defined("n"), defined("t"), "last outcome"]
    section.blocks.append(table(head, rows))
    return section
