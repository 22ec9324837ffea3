"""What a cycle may do with every page, told by one pass over their columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.crawling.surroundings import KnownPages
from scrapy_gp4c.page_state.columns import in_panel, is_awake, stages
from scrapy_gp4c.page_state.outcomes import NEW, PANEL, WARMUP
from scrapy_gp4c.policies.base import Pages
from scrapy_gp4c.scoring import discovery
from scrapy_gp4c.settings import Settings

READ: Final = {
    "n", "has_copy", "gone", "failures", "last_attempt", "last_cycle",
    "found_by", "brought_sum", "brought_cycles",
}  # fmt: skip
"""Columns that tell pages apart; their keys tell the panel besides."""
SLICE: Final = 8_192
"""Pages whose columns are all in memory at a time."""


class Survey(NamedTuple):
    """What one pass over the page columns finds."""

    due: dict[int, Pages]
    """Kind -> pages that are visited whatever the policy: `PANEL`, `WARMUP`, `NEW`."""
    rankable: npt.NDArray[np.bool_]
    """``[P]``: pages that a policy may choose."""
    rankable_pages: int
    hubs: npt.NDArray[np.bool_]
    """``[P]``: those of them that may bring new pages."""
    alive: int
    """Pages that are not gone."""
    copies: int
    """Those of them with a copy."""


def survey(store: KnownPages, settings: Settings, cycle: int) -> Survey:
    """Tell all pages apart by what `cycle` may do with them; memory: two bytes a page, and the pages due."""
    due: dict[int, list[Pages]] = {PANEL: [], WARMUP: [], NEW: []}
    rankable, hubs = [np.empty(0, np.bool_)], [np.empty(0, np.bool_)]
    alive = copies = rankable_pages = 0
    for first, columns in store.blocks(READ | {"key"} if settings.panel else READ):
        stage = stages(columns, settings.warmup_visits, settings.gone_after)
        awake = is_awake(columns, cycle)
        alive += len(awake) - int(np.count_nonzero(stage.gone))
        copies += int(np.count_nonzero(~stage.gone & (columns["has_copy"] != 0)))
        settled = awake & stage.settled
        panel = settled & (in_panel(columns["key"], settings.panel) if settings.panel else np.False_)
        for kind, chosen in (
            (PANEL, panel),
            (WARMUP, awake & stage.warming),
            (NEW, awake & stage.unfetched),
        ):
            rows = np.flatnonzero(chosen)
            if len(rows):
                due[kind].append((rows + first).astype(np.uint32))
        settled &= ~panel
        rankable_pages += int(np.count_nonzero(settled))
        rankable.append(settled)
        hubs.append(settled & discovery.is_hub(columns, cycle))
    joined = {kind: np.concatenate(parts) if parts else np.empty(0, np.uint32) for kind, parts in due.items()}
    return Survey(joined, np.concatenate(rankable), rankable_pages, np.concatenate(hubs), alive, copies)


def some_columns(store: KnownPages, pages: Pages, names: Sequence[str]) -> dict[str, npt.NDArray[Any]]:
    """A few columns ``[P]`` of many pages, ids ascending: no more than those, and a slice of the others."""
    starts = range(0, max(1, len(pages)), SLICE)
    slices = (store.columns_of(pages[start : start + SLICE], names) for start in starts)
    parts = [[columns[name] for name in names] for columns in slices]
    return {name: np.concatenate(own) for name, own in zip(names, zip(*parts, strict=True), strict=True)}
