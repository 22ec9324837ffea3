"""New pages in the report of a crawl: how many a cycle found, how late, and which hubs brought them."""

from __future__ import annotations

import math
from itertools import groupby
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
from markupsafe import Markup

from scrapy_gp4c.page_state.claims import finder_pages
from scrapy_gp4c.page_state.outcomes import FIRST, JUDGED, KINDS, among
from scrapy_gp4c.scoring import discovery
from scrapy_gp4c.store.credentials import Credentials
from scrapy_gp4c.store.opening import open_store
from scrapy_gp4c.store.page_store import PageStore
from training.reporting.charts import Chart, Line, shown
from training.reporting.page import Section, defined, figure, paragraph, table

Array = npt.NDArray[Any]

MOST_HUBS: Final = 10
HUB: Final = KINDS.index("hub")
UNKNOWN: Final = -1
_COLUMNS: Final = ("entered", "found_by", "first_cycle", "brought_sum", "brought_cycles", "brought_cycle")


class Bringer(NamedTuple):
    """A page whose visits have brought new ones."""

    url: str
    brought: int
    """Pages, since its own first visit."""
    hub_visits: int
    """Of those that are kept."""
    rate: float
    """New pages that it is expected to come to link to per cycle."""
    last_cycle: int
    """In which it brought one."""


class Found(NamedTuple):
    """The pages that became known after the first cycle."""

    entered: npt.NDArray[np.int64]
    """``[P]``: cycle in which each became known, from 2."""
    by_hub: npt.NDArray[np.bool_]
    """``[P]``: whether a visit to a hub did it."""
    delay: npt.NDArray[np.int64]
    """``[P]``: cycles from the first in which a visit could have shown its link to its first copy, at most;
    `UNKNOWN` where nobody had looked before, or there is no copy yet."""
    bringers: list[Bringer]
    """Those that brought most, the best first."""


def found_section(path: Path) -> Section | None:
    """The section; None where a store tells nothing of growth: of one cycle, or of an early version."""
    with open_store(path, readonly=True) as store:
        cycles, told = store.last_cycle, read_found(store)
    if told is None:
        return None
    section = Section("New pages")
    if not len(told.entered):
        section.blocks.append(paragraph("No page became known after the first cycle."))
        return section
    section.lead = _lead(told)
    every = np.arange(2, cycles + 1)
    section.blocks += _charts(told, every)
    rows: list[list[str | Markup]] = [
        [one.url, f"{one.brought:,}", f"{one.hub_visits:,}", shown(one.rate, False, 0), f"{one.last_cycle}"]
        for one in told.bringers
    ]
    if rows:
        as_hub = Markup("visits as {}").format(defined("hub", "hub"))
        head = ["page", "new pages", as_hub, "expected per cycle", "last in cycle"]
        section.blocks.append(table(head, rows, "Pages whose visits brought most new ones"))
    return section


def _lead(told: Found) -> Markup:
    known = told.delay[told.delay != UNKNOWN]
    lead = Markup("{} pages became known after the first cycle, {} of them on visits to {}.").format(
        f"{len(told.entered):,}", shown(float(told.by_hub.mean()), True), defined("hub")
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


def _charts(told: Found, cycles: npt.NDArray[np.int64]) -> list[Markup]:
    x, none = cycles.astype(float).tolist(), [math.nan] * len(cycles)
    lines = []
    for name, chosen in (("by hubs", told.by_hub), ("by other visits", ~told.by_hub)):
        count = np.bincount(told.entered[chosen], minlength=int(cycles[-1]) + 1)[cycles]
        lines.append(Line(name, count.astype(float).tolist(), none))
    drawn = Chart("found", "New pages", "cycle", "new pages", x, lines, False, True)
    caption = Markup("Pages that became known, by whose visit showed their link: that of a {}, or another.")
    blocks = [figure(drawn, caption.format(defined("hub", "hub")))]
    known = told.delay != UNKNOWN
    if known.any() and len(cycles) > 1:
        size = int(cycles[-1]) + 1
        pages = np.bincount(told.entered[known], minlength=size)[cycles]
        total = np.bincount(told.entered[known], told.delay[known], minlength=size)[cycles]
        mean = np.where(pages > 0, total / np.maximum(pages, 1), math.nan).tolist()
        drawn = Chart("delay", "Delay", "cycle", "cycles, at most", x, [Line("mean", mean, none)], False)
        caption = Markup("{} of the pages that became known in a cycle, in the mean.")
        blocks.append(figure(drawn, caption.format(defined("delay", "Delay"))))
    return blocks


def read_found(store: PageStore) -> Found | None:
    """What the store tells of new pages; None: nothing."""
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
        own = np.flatnonzero(entered[new] == cycle)
        by_hub[own] = np.isin(finder[new[own]], to_hubs)
        seen_before[own] = np.where(root[own] >= 0, seen[root[own]], 0)
        seen[visits["page"][among(visits["outcome"], (FIRST, *JUDGED))]] = cycle
    known = (seen_before > 0) & (first[new] > 0)
    delay = np.where(known, first[new] - seen_before - 1, UNKNOWN)
    grown = new[(finder[new] >= 0) & (entered[new] > first[finder[new]])]
    bringers = _bringers(store, columns, np.bincount(finder[grown], minlength=len(entered)), hub_visits)
    return Found(entered[new], by_hub, delay, bringers)


def _roots(finder: Array, entered: Array, new: Array) -> npt.NDArray[np.int64]:
    """Whose visit led to each new page: its finder, or where that is as new, its finder's, and so on."""
    root = np.asarray(finder[new])
    while len(on := np.flatnonzero((root >= 0) & (entered[root] == entered[new]))):
        root[on] = finder[root[on]]
    return root


def _bringers(
    store: PageStore, columns: dict[str, Array], brought: Array, hub_visits: Array
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
