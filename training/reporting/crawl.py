"""Report of a crawl: its cycles, visits, outcomes and hosts, read from its store in one pass."""

import datetime
import math
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

import numpy as np
import numpy.typing as npt
from markupsafe import Markup

from scrapy_gp4c.archive.differences import Hunk, differences, text_of
from scrapy_gp4c.archive.texts import Texts
from scrapy_gp4c.arrays import Array, Floats
from scrapy_gp4c.errors import ArchiveError, Gp4cError, HistoryError, StoreError
from scrapy_gp4c.foreign_text import counted
from scrapy_gp4c.page_state.claims import finder_pages
from scrapy_gp4c.page_state.outcomes import CHANGED, FAILED, FIRST, JUDGED, KINDS, OUTCOMES, among
from scrapy_gp4c.scoring import discovery, functions, hints
from scrapy_gp4c.scoring.weights import DEFAULT_WEIGHT
from scrapy_gp4c.store.credentials import Credentials
from scrapy_gp4c.store.opening import ARCHIVE, Store, open_store
from scrapy_gp4c.store.records import CycleRecord, local_time, samples_of
from training.reporting.figures import Chart, plain_line, shown
from training.reporting.page import Card, ReportPage, Section, defined, figure, fold_away, paragraph, table
from training.reporting.score import Formula, formula_section

MOST_HUBS: Final = 10
HUB: Final = KINDS.index("hub")
UNKNOWN: Final = -1
_COLUMNS: Final = ("entered", "found_by", "first_cycle", "brought_sum", "brought_cycles", "brought_cycle")


class Bringer(NamedTuple):
    """Page with links to new pages, and the numbers of pages found by them."""

    url: str
    brought: int
    """Number of new pages found by its links since its first visit."""
    hub_visits: int
    """Number of its recorded visits as a hub (made to find new links)."""
    rate: float
    """Expected new links per cycle."""
    last_cycle: int
    """Last cycle that brought a new page."""


class NewPages(NamedTuple):
    """Pages that became known after the first cycle, and the pages that linked to them."""

    entered: npt.NDArray[np.int64]
    """``[P]``: cycle in which each page became known, from 2."""
    by_hub: npt.NDArray[np.bool_]
    """``[P]``: whether a visit to a hub showed the link."""
    delay: npt.NDArray[np.int64]
    """``[P]``: most cycles from the first visit that could have shown the link to the first copy; `UNKNOWN`
    where nobody had looked before, or there is no copy yet."""
    bringers: list[Bringer]
    """Pages whose links led to most new pages, best first."""


def new_pages_section(path: Path) -> Section | None:
    """Section on new pages by cycle, their delays and the pages that brought them; None for one cycle."""
    with open_store(path, readonly=True) as store:
        cycles, new_pages = store.last_cycle, read_new_pages(store)
    if new_pages is None:
        return None
    section = Section("New pages")
    if not len(new_pages.entered):
        section.blocks.append(paragraph("No page became known after the first cycle."))
        return section
    section.lead = _lead(new_pages)
    every = np.arange(2, cycles + 1)
    section.blocks += _charts(new_pages, every)
    rows: list[list[str | Markup]] = [
        [
            one.url,
            f"{one.brought:,}",
            f"{one.hub_visits:,}",
            shown(one.rate, percent=False, digits=0),
            f"{one.last_cycle}",
        ]
        for one in new_pages.bringers
    ]
    if rows:
        as_hub = Markup("visits as {}").format(defined("hub", "hub"))
        head = ["page", "new pages", as_hub, "expected per cycle", "last in cycle"]
        section.blocks.append(table(head, rows, "Pages whose visits brought most new ones"))
    return section


def _lead(new_pages: NewPages) -> Markup:
    known = new_pages.delay[new_pages.delay != UNKNOWN]
    lead = Markup("{} known after the first cycle, {} of them on visits to {}.").format(
        counted(len(new_pages.entered), "page became", "pages became"),
        shown(float(new_pages.by_hub.mean()), percent=True),
        defined("hub"),
    )
    if len(known):
        lead += Markup(
            " Of {} of them the {} is known: at most {} cycles in the mean, {} in the 90th percentile."
        ).format(
            f"{len(known):,}",
            defined("delay"),
            f"{known.mean():.2f}",
            f"{np.quantile(known, 0.9):.1f}",
        )
    return lead


def _charts(new_pages: NewPages, cycles: npt.NDArray[np.int64]) -> list[Markup]:
    x = cycles.astype(float).tolist()
    lines = []
    for name, chosen in (("by hubs", new_pages.by_hub), ("by other visits", ~new_pages.by_hub)):
        count = np.bincount(new_pages.entered[chosen], minlength=int(cycles[-1]) + 1)[cycles]
        lines.append(plain_line(name, count.astype(np.float64)))
    drawn = Chart("found", "New pages", "cycle", "new pages", x, lines, False, True)
    caption = Markup("Pages that became known, by whose visit showed their link: that of a {}, or another.")
    blocks = [figure(drawn, caption.format(defined("hub", "hub")))]
    known = new_pages.delay != UNKNOWN
    if known.any() and len(cycles) > 1:
        size = int(cycles[-1]) + 1
        pages = np.bincount(new_pages.entered[known], minlength=size)[cycles]
        total = np.bincount(new_pages.entered[known], new_pages.delay[known], minlength=size)[cycles]
        mean = np.where(pages > 0, total / np.maximum(pages, 1), math.nan).tolist()
        drawn = Chart("delay", "Delay", "cycle", "cycles, at most", x, [plain_line("mean", mean)], False)
        caption = Markup("{} of the pages that became known in a cycle, in the mean.")
        blocks.append(figure(drawn, caption.format(defined("delay", "Delay"))))
    return blocks


def read_new_pages(store: Store) -> NewPages | None:
    """New pages of a store; None for a store of one cycle."""
    blocks = [block for _, block in store.blocks()]
    if store.last_cycle < 2 or not blocks:
        return None
    columns = {name: np.concatenate([block[name] for block in blocks]) for name in _COLUMNS}
    entered, first = columns["entered"].astype(np.int64), columns["first_cycle"]
    if not entered.any():
        return None
    finder = finder_pages(columns["found_by"])
    new = np.flatnonzero(entered > 1)
    root = _roots(finder, entered, new)
    by_hub, seen_before = np.zeros(len(new), np.bool_), np.zeros(len(new), np.int64)
    seen, hub_visits = np.zeros(len(entered), np.int64), np.zeros(len(entered), np.int64)
    for cycle, chunks in groupby(store.visits(), lambda chunk: chunk[0]):
        visits = np.concatenate([chunk for _, chunk in chunks])
        to_hubs = visits["page"][visits["kind"] == HUB]
        hub_visits[to_hubs] += 1
        rows = np.flatnonzero(entered[new] == cycle)
        by_hub[rows] = np.isin(finder[new[rows]], to_hubs)
        seen_before[rows] = np.where(root[rows] >= 0, seen[root[rows]], 0)
        seen[visits["page"][among(visits["outcome"], (FIRST, *JUDGED))]] = cycle
    known = (seen_before > 0) & (first[new] > 0)
    delay = np.where(known, first[new] - seen_before - 1, UNKNOWN)
    grown = new[(finder[new] >= 0) & (entered[new] > first[finder[new]])]
    bringers = _bringers(store, columns, np.bincount(finder[grown], minlength=len(entered)), hub_visits)
    return NewPages(entered[new], by_hub, delay, bringers)


def _roots(finder: Array, entered: Array, new: Array) -> npt.NDArray[np.int64]:
    """For each new page, the first page up its chain of finders (linking pages) that was known earlier."""
    root = np.asarray(finder[new])
    while len(on := np.flatnonzero((root >= 0) & (entered[root] == entered[new]))):
        root[on] = finder[root[on]]
    return root


def _bringers(store: Store, columns: dict[str, Array], brought: Array, hub_visits: Array) -> list[Bringer]:
    best = np.argsort(-brought, kind="stable")[:MOST_HUBS]
    best = best[brought[best] > 0]
    rate = discovery.rate(columns, store.last_cycle + 1)
    shown_url = Credentials.of_store(store.cycles()).url
    return [
        Bringer(
            shown_url(stored["url"]),
            int(brought[page]),
            int(hub_visits[page]),
            float(rate[page]),
            int(columns["brought_cycle"][page]),
        )
        for page, stored in zip(best.tolist(), store.requests(best), strict=True)
    ]


MOST_HINTS: Final = 20
"""Largest number of rows in the table of hints (sites' claims about changes)."""
COUNTED: Final = (*hints.LISTED, *(hints.KINDS.index(name) for name in hints.SPANS))
"""Kinds of hints that are known before a visit, so that their accuracy can be computed."""


def hints_section(path: Path) -> Section | None:
    """Section on the accuracy of hints (what sites say of changes); None where no visit could be compared."""
    with open_store(path, readonly=True) as store:
        rows = store.trust()
        counts, trusted = rows["counts"], hints.holds(rows["counts"])
        visits = counts.sum(axis=(2, 3))
        where, column = np.nonzero(visits[:, COUNTED] > 0)
        if not len(where):
            return None
        kind = np.array(COUNTED)[column]
        order = np.lexsort((-visits[where, kind], ~trusted[where, kind]))
        best = order[:MOST_HINTS]
        names = store.site_names(rows["site"][where[best]].tolist())
    listed = []
    for row, one in zip(where[best].tolist(), kind[best].tolist(), strict=True):
        (silent, silent_changed), (claimed, claimed_changed) = counts[row, one].tolist()
        name = names.get(int(rows["site"][row]), "?")
        right = (claimed_changed + silent) / visits[row, one]
        of_claimed, of_silent = _of(claimed_changed, claimed), _of(silent_changed, silent)
        holds = "yes" if trusted[row, one] else "no"
        listed.append([name, hints.KINDS[one], holds, shown(right, percent=True), of_claimed, of_silent])
    section = Section("What sites say of their pages")
    section.lead = Markup("{} of {} {} hold: where they claim a change, visits find one more often.").format(
        f"{int(trusted[where, kind].sum()):,}", f"{len(where):,}", defined("hint", "hints")
    )
    head = [
        "site", defined("hint", "kind"), defined("holds"), defined("right"), "changed where claimed",
        "changed where not",
    ]  # fmt: skip
    caption = "Judged visits by what the site had said before; older ones count less: counts have fractions."
    if len(order) > MOST_HINTS:
        others = counted(len(order) - MOST_HINTS, "other row holds", "other rows hold")
        caption += f" {others} less surely, or on fewer visits."
    section.blocks.append(table(head, listed, caption, words=3))
    return section


def _of(changed: float, unchanged: float) -> str:
    visits = changed + unchanged
    return f"{shown(changed / visits, percent=True, digits=0)} of {visits:,.1f}" if visits else "–"


SHOWN: Final = 10
LOOKED_AT: Final = 1_000
"""Number of newest changes for which archived texts are looked up."""
HUNKS: Final = 8
WORDS: Final = 120
"""Largest number of words of a difference that are shown."""
_TAGS: Final = {"-": "del", "+": "ins"}


class TextChange(NamedTuple):
    """Change of a page that a visit found, with the differences of its texts where both are archived."""

    url: str
    cycle: int
    hunks: list[Hunk] | None


def last_changes_section(path: Path) -> Section:
    """Section on the last changes, word by word as far as the archive has both texts."""
    section = Section("What changed")
    has_archive, problem = (path / ARCHIVE).exists(), ""
    with open_store(path, readonly=True) as store:
        try:
            with Texts(path / ARCHIVE, readonly=True) if has_archive else nullcontext() as texts:
                changes = list(_changes(store, texts))
        except ArchiveError as error:
            changes, problem = list(_changes(store, None)), str(error)
    without = [change for change in changes if change.hunks is None]
    if not changes:
        section.blocks.append(paragraph("No page has changed yet."))
    for change in changes:
        if change.hunks is None:
            continue
        title = Markup("{}, cycle {}").format(link(change.url), change.cycle)
        hunks = Markup("").join(map(_hunk, change.hunks[:HUNKS]))
        if (hidden_places := len(change.hunks) - HUNKS) > 0:
            hunks += Markup("<p>and {} more places</p>").format(hidden_places)
        section.blocks.append(Markup('<h3>{}</h3><div class="diff">{}</div>').format(title, hunks))
    if without:
        rows = [[link(change.url), f"{change.cycle:,}"] for change in without]
        caption = "The archive has not both texts of these changes" if has_archive else "Last changes"
        section.blocks.append(table(["page", defined("cycle", "cycle")], rows, caption))
    if problem:
        section.blocks.append(paragraph(problem))
    elif changes and not has_archive:
        section.blocks.append(
            paragraph("GP4C_ARCHIVE = True keeps texts: then changes are shown word by word.")
        )
    return section


def link(url: str) -> str | Markup:
    """HTML link to `url`, if it is a web address; else the text as it is."""
    if not url.startswith(("http://", "https://")):
        return url
    return Markup('<a href="{0}" rel="noreferrer">{0}</a>').format(url)


def _changes(store: Store, texts: Texts | None) -> Iterator[TextChange]:
    """Last changes of finished cycles, the newest first."""
    shown = Credentials.of_store(store.cycles()).url
    yielded = seen = 0
    for cycle in range(store.last_cycle, 0, -1):
        for _, visits in store.visits(cycle, cycle):
            for visit in np.sort(visits[visits["outcome"] == CHANGED], order="time")[::-1]:
                page, fingerprint = int(visit["page"]), int(visit["fingerprint"])
                pair = None if texts is None else texts.pair(store.page(page).key, cycle, fingerprint)
                if pair is not None or seen < SHOWN:
                    hunks = None if pair is None else differences(*pair)
                    yield TextChange(shown(store.request(page)["url"]), cycle, hunks)
                    yielded += 1
                seen += 1
                if yielded == SHOWN or seen == LOOKED_AT:
                    return


def _hunk(hunk: Hunk) -> Markup:
    words = []
    for sign, words_of_part in hunk.segments:
        text = text_of(words_of_part[:WORDS]) + (" …" if len(words_of_part) > WORDS else "")
        tag = _TAGS.get(sign)
        words.append(Markup("<{0}>{1}</{0}>").format(Markup(tag), text) if tag else Markup("{}").format(text))
    return Markup("<p>… {} …</p>").format(Markup(" ").join(words))


class WeightedVisits(NamedTuple):
    """Visits that compared, and changes found, with the pages' weights, by cycle: arrays ``[C]``."""

    others: int
    """Number of pages whose weight is not 1."""
    judged: Floats
    changed: Floats
    judged_weight: Floats
    """Summed weight of the pages compared."""
    changed_weight: Floats
    """Summed weight of changed pages."""

    def rate(self, cycle: int | slice, *, weighted: bool) -> float:
        """Changes, or their weight, per visit that compared (Cho & Ntoulas 2002); nan without visits."""
        judged = self.judged[cycle].sum()
        changes = (self.changed_weight if weighted else self.changed)[cycle].sum()
        return float(changes / judged) if judged else math.nan

    def share(self, cycle: int | slice) -> float:
        """Weight of the changed pages over that of all compared ones; nan for zero weight."""
        weight = self.judged_weight[cycle].sum()
        return float(self.changed_weight[cycle].sum() / weight) if weight else math.nan


def weighted_section(path: Path) -> Section | None:
    """Section on change rates by weight; None where all pages weigh the same."""
    with open_store(path, readonly=True) as store:
        weighted = read_weighted_visits(store)
    if weighted is None:
        return None
    every, cycles = slice(None), range(len(weighted.judged))
    section = Section("By weight")
    section.lead = Markup(
        "{} pages weigh other than 1. Changes of weight {} were found per judged visit. What had changed had "
        "{} of the weight of what was visited, and was {} of it by number ({})."
    ).format(
        f"{weighted.others:,}",
        shown(weighted.rate(every, weighted=True), percent=False),
        shown(weighted.share(every), percent=True),
        shown(weighted.rate(every, weighted=False), percent=True),
        defined("change_rate"),
    )
    lines = [
        plain_line("by weight", [weighted.share(cycle) for cycle in cycles]),
        plain_line("by number", [weighted.rate(cycle, weighted=False) for cycle in cycles]),
    ]
    x = [float(cycle + 1) for cycle in cycles]
    chart = Chart("weights", "Changed, of what was visited", "cycle", "share", x, lines, True)
    caption = Markup(
        "{} of all judged visits, by weight and without. Weights are the last ones that were said."
    )
    section.blocks.append(figure(chart, caption.format(defined("change_rate"))))
    return section


def read_weighted_visits(store: Store) -> WeightedVisits | None:
    """Visits of all finished cycles by weight; None where all pages weigh 1."""
    weight = np.concatenate([np.empty(0), *(block["weight"] for _, block in store.blocks())])
    others = int(np.count_nonzero(weight != DEFAULT_WEIGHT))
    if not others:
        return None
    sums = np.zeros((4, store.last_cycle))
    for cycle, visits in store.visits(1, store.last_cycle):
        judged = visits[among(visits["outcome"], JUDGED)]
        rows, changed = weight[judged["page"]], judged["outcome"] == CHANGED
        sums[:, cycle - 1] += (len(rows), changed.sum(), rows.sum(), rows[changed].sum())
    return WeightedVisits(others, *sums)


TOP_PAGES: Final = 20
MOST_POINTS: Final = 150
"""Largest number of points in a chart's line; with more cycles, each point stands for several."""
MOST_ROWS: Final = 200
"""Number of cycles in the table, the last ones."""


class Host(NamedTuple):
    """Pages and visits of a host over all finished cycles."""

    name: str
    pages: int
    outcomes: npt.NDArray[np.int64]
    """``[outcomes]``: number of visits with each outcome."""
    latencies_ms: npt.NDArray[np.uint16]
    """Latency of each visit that measured one."""


@dataclass
class Story:
    """Data of a crawl's report, read from its store."""

    path: str
    store_id: str
    records: list[CycleRecord]
    """Records of the finished cycles, oldest first."""
    counts: npt.NDArray[np.int64]
    """``[cycles, kinds, outcomes]``: number of visits."""
    known: int
    last_outcomes: dict[str, int]
    """Outcome of a page's last visit, or ``never visited`` -> number of pages."""
    hosts: list[Host]
    top: list[tuple[str, int, int, int, str]]
    """Pages that change most: URL, changes, visits, age in cycles, last outcome."""
    open_cycle: int | None

    def rate(self, cycle: int | slice, kinds: tuple[str, ...] = KINDS) -> float:
        """Changes per visit of these kinds in a cycle; nan where no visit compared."""
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


def _read(store: Store, path: str) -> Story:
    cycles = store.last_cycle
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
    counts = np.zeros((cycles, len(KINDS), len(OUTCOMES)), np.int64)
    outcomes = np.zeros((len(numbers), len(OUTCOMES)), np.int64)
    measured_hosts, latencies_ms = [np.empty(0, np.int32)], [np.empty(0, np.uint16)]
    for cycle, visits in store.visits(1, cycles):
        host, is_measured = host_of[visits["page"]], visits["latency_ms"] > 0
        np.add.at(counts[cycle - 1], (visits["kind"], visits["outcome"]), 1)
        np.add.at(outcomes, (host, visits["outcome"]), 1)
        measured_hosts.append(host[is_measured])
        latencies_ms.append(visits["latency_ms"][is_measured])
    host = np.concatenate(measured_hosts)
    order = np.argsort(host, kind="stable")
    starts = np.searchsorted(host[order], np.arange(1, len(numbers)))
    by_host = np.split(np.concatenate(latencies_ms)[order], starts)
    pages = np.bincount(host_of, minlength=len(numbers)).tolist()
    hosts = [Host(*columns) for columns in zip(numbers, pages, outcomes, by_host, strict=False)]
    top = []
    for changes, visited, page in sorted(best)[:TOP_PAGES]:
        if changes:
            columns = store.page(page)
            url, age_cycles = shown(store.request(page)["url"]), cycles + 1 - columns.last_cycle
            top.append((url, -changes, visited, age_cycles, OUTCOMES[columns.outcome]))
    records = [record for record in store.cycles() if record["cycle"] <= cycles]
    return Story(
        path, store.store_id, records, counts, store.pages, last_outcomes, hosts, top, store.open_cycle
    )


CHOSEN: Final = ("ranked",)
"""Kinds of visits to pages that the score function chose."""
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
"""Name of a kind of visit in the report -> its name in the store."""
PARTS: Final = (weighted_section, new_pages_section, hints_section)
"""Functions that make the sections for which not every store has the data."""
SLOWEST: Final = 10
LEAST_VISITS: Final = 50
"""Least number of warm-up visits in a cycle for its change rate to be shown."""


def crawl_page(path: Path) -> ReportPage:
    """Report of the store in a directory. Raises HistoryError as `read_story`."""
    story = read_story(path)
    rate = story.rate(slice(None), CHOSEN)
    if math.isnan(rate):
        rate = story.rate(slice(None))
        headline = "of the visits found a change. The score function has not chosen any visit yet."
    else:
        headline = "of the visits that the score function chose found a change."
        panel = story.rate(slice(None), ("panel",))
        if not math.isnan(yardstick := _random_rate(story)):
            headline += f" Visiting at random would have found {shown(yardstick, percent=True)}."
        elif not math.isnan(panel):
            headline += f" Of the panel, a random share of all pages, {shown(panel, percent=True)} did."
        else:
            headline += " GP4C_PANEL = 0.05 would tell what visits at random find."
    optional_sections = (section(path) for section in PARTS)
    sections = [
        last_changes_section(path),
        _top(story),
        _cycles(story),
        _score(story),
        *(one for one in optional_sections if one is not None),
    ]
    last = story.records[-1]
    visits = int(story.counts.sum())
    changed = int(story.counts[:, :, CHANGED].sum())
    judged = int(story.counts[:, :, list(JUDGED)].sum())
    cards = [
        Card("cycle", f"{len(story.records):,}", [f"the last one ended {_time(last.get('finished'))}"]),
        Card("pages", f"{story.known:,}", [f"on {counted(len(story.hosts), 'host')}"]),
        Card("visits", f"{visits:,}", [f"{judged:,} of them judged"]),
        Card(
            "change_rate",
            shown(story.rate(slice(None)), percent=True),
            [f"over all visits: {counted(changed, 'change')} in {counted(judged, 'judged visit')}"],
        ),
    ]
    facts = [
        ("Store", f"{story.path} ({story.store_id})"),
        (
            "Cycles",
            f"1 to {len(story.records):,}, {_time(story.records[0].get('started'))} to "
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
        shown(rate, percent=True),
        "visited pages that had changed / visited pages with a known outcome",
        cards,
        [*sections, _outcomes(story), _hosts(story)],
        facts,
        datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    )


def _time(seconds: float | None) -> str:
    return "–" if seconds is None else local_time(seconds)


def _budget(budget: Any) -> str:
    if budget is None:
        return "–"
    return f"{budget:.1%} of the pages" if isinstance(budget, float) else counted(budget, "page")


def _random_rate(story: Story) -> float:
    """Share of all pages that had changed since their last visits, by the control group; nan without one."""
    panels = [panel for record in story.records if (panel := record.get("panel")) is not None]
    return float(np.mean([panel["changed_share"]["estimate"] for panel in panels])) if panels else math.nan


def _cycles(story: Story) -> Section:
    each = -(-len(story.records) // MOST_POINTS)
    spans = [slice(start, start + each) for start in range(0, len(story.records), each)]
    cycles = [float(story.records[span][-1]["cycle"]) for span in spans]
    # Means per cycle, not sums: the last point stands for fewer cycles, and its sum would look like a
    # breakdown.
    kinds = {
        name: np.array([story.counts[span, KINDS.index(kind)].sum(1).mean() for span in spans])
        for name, kind in VISITS.items()
    }
    rates = {
        "chosen by score": [story.rate(span, CHOSEN) for span in spans],
        "warm-up": [_warmup_change_rate(story, span) for span in spans],
        "panel": [story.rate(span, ("panel",)) for span in spans],
        "samples": [story.rate(span, ("sample",)) for span in spans],
        "near samples": [story.rate(span, ("neighbour",)) for span in spans],
    }
    lines = [plain_line(name, values) for name, values in rates.items() if not np.isnan(values).all()]
    section = Section("Cycle by cycle")
    if each > 1:
        section.lead = f"Each point is the mean of {each} cycles: there are {len(story.records):,}."
    if lines:
        chart = Chart("rates", "Change rate", "cycle", "change rate", cycles, lines, True)
        caption = Markup(
            "{} by {}. Warm-up visits go to every page, so they show what visits without a choice find."
        )
        section.blocks.append(
            figure(chart, caption.format(defined("change_rate"), defined("kind", "kind of visit")))
        )
    totals = [plain_line(name, values) for name, values in kinds.items() if values.any()]
    chart = Chart("visits", "Visits", "cycle", "visits", cycles, totals, False, each == 1)
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
                shown(story.rate(i), percent=True),
                shown(story.rate(i, CHOSEN), percent=True),
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


def _warmup_change_rate(story: Story, cycles: slice) -> float:
    """Change rate of the warm-up visits in `cycles`; nan for fewer than `LEAST_VISITS`."""
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
            [function, f"{first}–{end}", shown(story.rate(slice(first - 1, end), CHOSEN), percent=True)]
            for function, first, end in used
        ]
        head = ["score function", "cycles", Markup("{} of chosen visits").format(defined("change_rate"))]
        section.blocks.append(table(head, rows, "Score functions over time", words=1))
    return section


def _outcomes(story: Story) -> Section:
    visits = story.counts.sum(axis=(0, 1))
    total = max(1, int(visits.sum()))
    rows = []
    for name, pages in story.last_outcomes.items():
        count = int(visits[OUTCOMES.index(name)]) if name in OUTCOMES else None
        share = "–" if count is None else shown(count / total, percent=True)
        rows.append([name.replace("_", " "), _count(count), share, f"{pages:,}"])
    head = [defined("outcome", "outcome"), "visits", "share of visits", "pages whose last visit ended so"]
    return Section("Pages and visits by outcome", "", [table(head, rows)])


def _hosts(story: Story) -> Section:
    section = Section("Slowest hosts")
    measured = [host for host in story.hosts if len(host.latencies_ms)]
    if not measured:
        section.lead = "No visit of this store has a latency: the download handler does not measure it."
        return section
    measured.sort(key=lambda host: -np.median(host.latencies_ms))
    rows = []
    for host in measured[:SLOWEST]:
        median_ms, high_ms = np.percentile(host.latencies_ms, (50, 95))
        judged, failed = (int(host.outcomes[list(codes)].sum()) for codes in (JUDGED, FAILED))
        rate = shown(host.outcomes[CHANGED] / judged, percent=True) if judged else "–"
        counts = (host.pages, int(host.outcomes.sum()), failed)
        latencies = [f"{median_ms:,.0f} ms", f"{high_ms:,.0f} ms"]
        rows.append([host.name, *latencies, *(f"{count:,}" for count in counts), rate])
    middle = float(np.median([np.median(host.latencies_ms) for host in measured]))
    section.lead = Markup("By median {}, which is {:,.0f} ms for the middle one of {}.").format(
        defined("latency"), middle, counted(len(measured), "host")
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
        [link(url), *(f"{number:,}" for number in numbers), outcome.replace("_", " ")]
        for url, *numbers, outcome in story.top
    ]
    terms = defined("X", "changes"), defined("n", "judged visits"), defined("t", "cycles since")
    section.blocks.append(table(["page", *terms, "last outcome"], rows))
    return section
