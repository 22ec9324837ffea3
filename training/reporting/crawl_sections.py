"""Sections of a crawl's report: new pages, hints of sites, last changes, weights."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import nullcontext
from itertools import groupby
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
from markupsafe import Markup

from scrapy_gp4c.archive.differences import Hunk, differences, text_of
from scrapy_gp4c.archive.texts import Texts
from scrapy_gp4c.arrays import Array, Floats
from scrapy_gp4c.errors import ArchiveError
from scrapy_gp4c.page_state.claims import finder_pages
from scrapy_gp4c.page_state.outcomes import CHANGED, FIRST, JUDGED, KINDS, among
from scrapy_gp4c.scoring import discovery, hints
from scrapy_gp4c.scoring.weights import DEFAULT_WEIGHT
from scrapy_gp4c.store.credentials import Credentials
from scrapy_gp4c.store.opening import ARCHIVE, open_store
from scrapy_gp4c.store.protocols import PageReader
from scrapy_gp4c.store.site_names import site_names
from training.reporting.figures import Chart, Line, shown
from training.reporting.page import Section, defined, figure, paragraph, table

MOST_HUBS: Final = 10
HUB: Final = KINDS.index("hub")
UNKNOWN: Final = -1
_COLUMNS: Final = ("entered", "found_by", "first_cycle", "brought_sum", "brought_cycles", "brought_cycle")


class Bringer(NamedTuple):
    """A page whose visits brought new pages."""

    url: str
    brought: int
    """New pages since the first visit."""
    hub_visits: int
    """Visits as a hub among the recorded ones."""
    rate: float
    """Expected new links per cycle."""
    last_cycle: int
    """Last cycle that brought a new page."""


class NewPages(NamedTuple):
    """The pages that became known after the first cycle."""

    entered: npt.NDArray[np.int64]
    """``[P]``: cycle in which each page became known, from 2."""
    by_hub: npt.NDArray[np.bool_]
    """``[P]``: whether a visit to a hub showed the link."""
    delay: npt.NDArray[np.int64]
    """``[P]``: cycles from the first in which a visit could have shown its link to its first copy, at most;
    `UNKNOWN` where nobody had looked before, or there is no copy yet."""
    bringers: list[Bringer]
    """Pages that brought most, best first."""


def new_pages_section(path: Path) -> Section | None:
    """New pages by cycle, with delays and hubs; None for a store of one cycle."""
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
        [one.url, f"{one.brought:,}", f"{one.hub_visits:,}", shown(one.rate, False, 0), f"{one.last_cycle}"]
        for one in new_pages.bringers
    ]
    if rows:
        as_hub = Markup("visits as {}").format(defined("hub", "hub"))
        head = ["page", "new pages", as_hub, "expected per cycle", "last in cycle"]
        section.blocks.append(table(head, rows, "Pages whose visits brought most new ones"))
    return section


def _lead(new_pages: NewPages) -> Markup:
    known = new_pages.delay[new_pages.delay != UNKNOWN]
    lead = Markup("{} pages became known after the first cycle, {} of them on visits to {}.").format(
        f"{len(new_pages.entered):,}", shown(float(new_pages.by_hub.mean()), True), defined("hub")
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
    x, none = cycles.astype(float).tolist(), [math.nan] * len(cycles)
    lines = []
    for name, chosen in (("by hubs", new_pages.by_hub), ("by other visits", ~new_pages.by_hub)):
        count = np.bincount(new_pages.entered[chosen], minlength=int(cycles[-1]) + 1)[cycles]
        lines.append(Line(name, count.astype(float).tolist(), none))
    drawn = Chart("found", "New pages", "cycle", "new pages", x, lines, False, True)
    caption = Markup("Pages that became known, by whose visit showed their link: that of a {}, or another.")
    blocks = [figure(drawn, caption.format(defined("hub", "hub")))]
    known = new_pages.delay != UNKNOWN
    if known.any() and len(cycles) > 1:
        size = int(cycles[-1]) + 1
        pages = np.bincount(new_pages.entered[known], minlength=size)[cycles]
        total = np.bincount(new_pages.entered[known], new_pages.delay[known], minlength=size)[cycles]
        mean = np.where(pages > 0, total / np.maximum(pages, 1), math.nan).tolist()
        drawn = Chart("delay", "Delay", "cycle", "cycles, at most", x, [Line("mean", mean, none)], False)
        caption = Markup("{} of the pages that became known in a cycle, in the mean.")
        blocks.append(figure(drawn, caption.format(defined("delay", "Delay"))))
    return blocks


def read_new_pages(store: PageReader) -> NewPages | None:
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
    """Oldest page on the chain of finders of each new page that entered earlier."""
    root = np.asarray(finder[new])
    while len(on := np.flatnonzero((root >= 0) & (entered[root] == entered[new]))):
        root[on] = finder[root[on]]
    return root


def _bringers(
    store: PageReader, columns: dict[str, Array], brought: Array, hub_visits: Array
) -> list[Bringer]:
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


MOST: Final = 20
"""Rows of the table of hints."""
COUNTED: Final = (*hints.LISTED, *(hints.KINDS.index(name) for name in hints.SPANS))
"""Kinds of hints that claim changes before a visit."""


def hints_section(path: Path) -> Section | None:
    """Accuracy of the hints of sites; None where no visit could be compared."""
    with open_store(path, readonly=True) as store:
        rows = store.hints.trust()
        counts, trusted = rows["counts"], hints.holds(rows["counts"])
        visits = counts.sum(axis=(2, 3))
        where, column = np.nonzero(visits[:, COUNTED] > 0)
        if not len(where):
            return None
        kind = np.array(COUNTED)[column]
        order = np.lexsort((-visits[where, kind], ~trusted[where, kind]))
        best = order[:MOST]
        names = site_names(store, rows["site"][where[best]].tolist())
    listed = []
    for row, one in zip(where[best].tolist(), kind[best].tolist(), strict=True):
        (silent, silent_changed), (claimed, claimed_changed) = counts[row, one].tolist()
        name = names.get(int(rows["site"][row]), "?")
        right = (claimed_changed + silent) / visits[row, one]
        of_claimed, of_silent = _of(claimed_changed, claimed), _of(silent_changed, silent)
        holds = "yes" if trusted[row, one] else "no"
        listed.append([name, hints.KINDS[one], holds, shown(right, True), of_claimed, of_silent])
    section = Section("What sites say of their pages")
    section.lead = Markup("{} of {} {} hold: where they claim a change, visits find one more often.").format(
        f"{int(trusted[where, kind].sum()):,}", f"{len(where):,}", defined("hint", "hints")
    )
    head = [
        "site", defined("hint", "kind"), defined("holds"), defined("right"), "changed where claimed",
        "changed where not",
    ]  # fmt: skip
    caption = "Judged visits by what the site had said before; older ones count less: counts have fractions."
    if len(order) > MOST:
        caption += f" The other {len(order) - MOST:,} rows hold less surely, or rest on fewer visits."
    section.blocks.append(table(head, listed, caption, words=3))
    return section


def _of(changed: float, unchanged: float) -> str:
    visits = changed + unchanged
    return f"{shown(changed / visits, True, 0)} of {visits:,.1f}" if visits else "–"


SHOWN: Final = 10
LOOKED_AT: Final = 1_000
"""Newest changes searched for those whose texts are both archived."""
HUNKS: Final = 8
WORDS: Final = 120
"""Longest part of a difference that is shown, in words."""
_TAGS: Final = {"-": "del", "+": "ins"}


class TextChange(NamedTuple):
    """A change, with the differences of its texts where both are archived."""

    url: str
    cycle: int
    hunks: list[Hunk] | None


def last_changes_section(path: Path) -> Section:
    """Last changes, word by word as far as the archive has both texts."""
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
        more = len(change.hunks) - HUNKS
        more_places = Markup("<p>and {} more places</p>").format(more) if more > 0 else Markup("")
        section.blocks.append(
            Markup('<h3>{}</h3><div class="diff">{}{}</div>').format(title, hunks, more_places)
        )
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
    """A URL as a link, if it is one of the web."""
    if not url.startswith(("http://", "https://")):
        return url
    return Markup('<a href="{0}" rel="noreferrer">{0}</a>').format(url)


def _changes(store: PageReader, texts: Texts | None) -> Iterator[TextChange]:
    """Yield the last changes of finished cycles, the newest first."""
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


_NAMES: Final = ("judged", "changed", "judged_weight", "changed_weight")


class WeightedVisits(NamedTuple):
    """Outcomes of judged visits with the weights of their pages; arrays ``[C]``."""

    others: int
    """Pages whose weight is not 1."""
    held: tuple[float, float] | None
    """Current share of the weight and of the copies after the last cycle, by the panel."""
    judged: Floats
    changed: Floats
    judged_weight: Floats
    """Summed weight of the judged visits' pages."""
    changed_weight: Floats
    """Summed weight of changed pages."""

    def rate(self, cycle: int | slice, *, weighted: bool) -> float:
        """Changes, or their summed weight, per judged visit (Cho & Ntoulas 2002); nan without any."""
        judged = self.judged[cycle].sum()
        site_rows = (self.changed_weight if weighted else self.changed)[cycle].sum()
        return float(site_rows / judged) if judged else math.nan

    def share(self, cycle: int | slice) -> float:
        """Weight of the changed pages over that of all judged ones; nan for zero weight."""
        weight = self.judged_weight[cycle].sum()
        return float(self.changed_weight[cycle].sum() / weight) if weight else math.nan


def weighted_section(path: Path) -> Section | None:
    """Change rates by weight; None where all pages weigh the same."""
    with open_store(path, readonly=True) as store:
        new_pages = read_weighted_visits(store)
    if new_pages is None:
        return None
    every, cycles = slice(None), range(len(new_pages.judged))
    section = Section("By weight")
    section.lead = Markup(
        "{} pages weigh other than 1. Changes of weight {} were found per judged visit. What had changed had "
        "{} of the weight of what was visited, and was {} of it by number ({})."
    ).format(
        f"{new_pages.others:,}",
        shown(new_pages.rate(every, weighted=True), False),
        shown(new_pages.share(every), True),
        shown(new_pages.rate(every, weighted=False), True),
        defined("change_rate"),
    )
    if new_pages.held is not None:
        section.lead += Markup(" By the panel, {} of the weight and {} of the copies are current.").format(
            *(shown(share, True) for share in new_pages.held)
        )
    none = [math.nan] * len(cycles)
    lines = [
        Line("by weight", [new_pages.share(cycle) for cycle in cycles], none),
        Line("by number", [new_pages.rate(cycle, weighted=False) for cycle in cycles], none),
    ]
    chart = Chart(
        "weights",
        "Changed, of what was visited",
        "cycle",
        "share",
        [float(c + 1) for c in cycles],
        lines,
        True,
    )
    caption = Markup(
        "{} of all judged visits, by weight and without. Weights are the last ones that were said."
    )
    section.blocks.append(figure(chart, caption.format(defined("change_rate"))))
    return section


def read_weighted_visits(store: PageReader) -> WeightedVisits | None:
    """Count the visits of all finished cycles; None where all pages weigh 1."""
    weight = np.concatenate([np.empty(0), *(block["weight"] for _, block in store.blocks())])
    others = int(np.count_nonzero(weight != DEFAULT_WEIGHT))
    if not others:
        return None
    sums = {name: np.zeros(store.last_cycle) for name in _NAMES}
    for cycle, visits in store.visits(1, store.last_cycle):
        judged = visits[among(visits["outcome"], JUDGED)]
        rows, changed = weight[judged["page"]], judged["outcome"] == CHANGED
        for name, value in zip(
            _NAMES, (len(rows), changed.sum(), rows.sum(), rows[changed].sum()), strict=True
        ):
            sums[name][cycle - 1] += value
    panel, held = store.cycles()[store.last_cycle - 1].get("panel"), None
    if panel is not None and "weighted_freshness" in panel:
        held = panel["weighted_freshness"], panel["freshness"]["estimate"]
    return WeightedVisits(others, held, *sums.values())
