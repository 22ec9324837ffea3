"""Weights in the report of a crawl: what its visits found, the pages counting as much as they weigh."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
from markupsafe import Markup

from scrapy_gp4c.page_state.outcomes import CHANGED, JUDGED, among
from scrapy_gp4c.scoring.weights import USUAL
from scrapy_gp4c.store.opening import open_store
from scrapy_gp4c.store.page_store import PageStore
from training.reporting.charts import Chart, Line, shown
from training.reporting.page import Section, defined, figure

Floats = npt.NDArray[np.float64]
WEIGHTED: Final = "weighted_freshness"
"""What the record of a cycle calls the panel's current share of weight."""
_NAMES: Final = ("judged", "changed", "judged_weight", "changed_weight")


class Weighed(NamedTuple):
    """What judged visits found, by cycle: all ``[C]`` but for the first two."""

    others: int
    """Pages that weigh other than 1."""
    held: tuple[float, float] | None
    """By the panel, of the weight and of the copies, the share that is current after the last cycle."""
    judged: Floats
    changed: Floats
    judged_weight: Floats
    """Summed weight of the judged visits' pages."""
    changed_weight: Floats
    """Of those that found a change."""

    def rate(self, cycle: int | slice, *, weighted: bool) -> float:
        """Changes, or their summed weight, per judged visit (Cho & Ntoulas 2002); nan without any."""
        judged = self.judged[cycle].sum()
        found = (self.changed_weight if weighted else self.changed)[cycle].sum()
        return float(found / judged) if judged else math.nan

    def share(self, cycle: int | slice) -> float:
        """Weight of the changed pages over that of all judged ones; nan where these weigh nothing."""
        weight = self.judged_weight[cycle].sum()
        return float(self.changed_weight[cycle].sum() / weight) if weight else math.nan


def weighted_section(path: Path) -> Section | None:
    """The section; None where all pages weigh the same."""
    with open_store(path, readonly=True) as store:
        told = read_weighed(store)
    if told is None:
        return None
    every, cycles = slice(None), range(len(told.judged))
    section = Section("By weight")
    section.lead = Markup(
        "{} pages weigh other than 1. Changes of weight {} were found per judged visit. What had changed had "
        "{} of the weight of what was visited, and was {} of it by number ({})."
    ).format(
        f"{told.others:,}",
        shown(told.rate(every, weighted=True), False),
        shown(told.share(every), True),
        shown(told.rate(every, weighted=False), True),
        defined("change_rate"),
    )
    if told.held is not None:
        section.lead += Markup(" By the panel, {} of the weight and {} of the copies are current.").format(
            *(shown(share, True) for share in told.held)
        )
    none = [math.nan] * len(cycles)
    lines = [
        Line("by weight", [told.share(cycle) for cycle in cycles], none),
        Line("by number", [told.rate(cycle, weighted=False) for cycle in cycles], none),
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


def read_weighed(store: PageStore) -> Weighed | None:
    """Count the visits of all finished cycles; None where all pages weigh 1."""
    weight = np.concatenate([np.empty(0), *(block["weight"] for _, block in store.blocks())])
    others = int(np.count_nonzero(weight != USUAL))
    if not others:
        return None
    sums = {name: np.zeros(store.last_cycle) for name in _NAMES}
    for cycle, visits in store.visits(1, store.last_cycle):
        judged = visits[among(visits["outcome"], JUDGED)]
        own, changed = weight[judged["page"]], judged["outcome"] == CHANGED
        for name, value in zip(_NAMES, (len(own), changed.sum(), own.sum(), own[changed].sum()), strict=True):
            sums[name][cycle - 1] += value
    panel = store.cycles()[store.last_cycle - 1].get("panel") or {}
    held = (panel[WEIGHTED], panel["freshness"]["estimate"]) if WEIGHTED in panel else None
    return Weighed(others, held, *sums.values())
