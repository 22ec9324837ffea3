"""Which pages a cycle visits.

`TopK` is the papers' policy: in one pass over the store's page columns it scores every page and keeps the k
best. A policy may also react within a cycle: after every visit the crawl asks `react` for further
pages (sampling policies such as Tan & Mitra 2010 need that: visit a few pages of a cluster, then decide
on the rest); `TopK` never asks for any.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.page_state.classes import in_panel
from scrapy_gp4c.page_state.outcomes import KINDS, PLAN
from scrapy_gp4c.scoring.draws import draws
from scrapy_gp4c.scoring.ranking import Best
from scrapy_gp4c.settings import Settings
from scrapy_gp4c.store.page_store import PageStore

NEW, WARMUP, PANEL, RANKED = (KINDS.index(kind) for kind in ("new", "warmup", "panel", "ranked"))
MAX_WAIT_CYCLES: Final = 32
CHUNK: Final = 16_384

Columns = Mapping[str, npt.NDArray[Any]]


class Policy(Protocol):
    """What decides which pages a cycle visits; the seam for policies of other kinds."""

    counts: dict[str, Any]
    """After `plan` is exhausted: known, due, and planned pages per kind; kept in the cycle's record.

    A policy that ranks adds what `scrapy_gp4c.crawling.panel` estimates from: ``copies``, pages with a copy that
    are not gone; ``rankable``, pages that were ranked; ``cut``, score and draw of the last one chosen.
    """

    def plan(self, store: PageStore, cycle: int) -> Iterator[npt.NDArray[Any]]:
        """Yield the plan of `cycle` in chunks of dtype `PLAN`, the first to be visited first."""

    def react(self, page: int, outcome: str) -> Sequence[int]:
        """Name the pages to visit in addition, now that `page` ended with `outcome`."""


class TopK:
    """Visit the panel, the k pages of the highest score, and every page that is still due.

    In this order: panel pages, ranked pages by score, pages in warm-up, pages never fetched (at most
    ``GP4C_NEW_PAGES``). Panel and ranked pages together fill the budget; the others are outside it.
    A page whose last visits all failed waits 1, 2, 4, ... at most `MAX_WAIT_CYCLES` cycles between two
    attempts, so that dead hosts do not eat the budget; a page gone ``GP4C_GONE_AFTER`` times is not
    visited any more.
    """

    def __init__(self, settings: Settings) -> None:
        """Take the validated settings of the crawl."""
        self.settings = settings
        self.counts: dict[str, Any] = {}

    def plan(self, store: PageStore, cycle: int) -> Iterator[npt.NDArray[Any]]:
        """Rank in one pass over the page columns; memory is bounded by the plan, not by the store."""
        settings = self.settings
        parts: dict[int, list[npt.NDArray[np.uint32]]] = {NEW: [], WARMUP: [], PANEL: []}
        best = Best(settings.budget_pages(store.pages))
        alive = copies = rankable = 0
        for first, columns in store.blocks():
            not_gone = columns["gone"] < settings.gone_after
            alive += int(not_gone.sum())
            copies += int((not_gone & (columns["has_copy"] != 0)).sum())
            candidates = self._sort_out(first, columns, cycle, parts)
            rankable += len(candidates)
            if len(candidates):
                state = {name: column[candidates] for name, column in columns.items()}
                state["draw"] = draws(state["key"], settings.seed, cycle)
                scores = settings.score_function.scores(state, cycle)
                best.add(scores, state["draw"], (candidates + first).astype(np.uint32))
        panel = _concatenate(parts[PANEL])
        new = _concatenate(parts[NEW])
        due = len(new) + sum(map(len, parts[WARMUP]))
        ranked_pages, ranked_scores = best.result(max(0, settings.budget_pages(alive) - len(panel)))
        plan = {
            PANEL: panel,
            RANKED: ranked_pages,
            WARMUP: _concatenate(parts[WARMUP]),
            NEW: new[: settings.new_pages],
        }
        self.counts = {"known": store.pages, "due": due, "copies": copies, "rankable": rankable}
        self.counts["cut"] = best.cut
        for kind, pages in plan.items():
            self.counts[KINDS[kind]] = len(pages)
            for start in range(0, len(pages), CHUNK):
                chunk = np.zeros(len(pages[start : start + CHUNK]), PLAN)
                chunk["page"] = pages[start : start + CHUNK]
                chunk["kind"] = kind
                chunk["score"] = ranked_scores[start : start + CHUNK] if kind == RANKED else np.nan
                yield chunk

    def _sort_out(
        self,
        first: int,
        columns: Columns,
        cycle: int,
        parts: dict[int, list[npt.NDArray[np.uint32]]],
    ) -> npt.NDArray[np.int64]:
        """Add the block's due pages to `parts`; return the rows that the score decides on."""
        settings = self.settings
        wait_cycles = np.minimum(2.0 ** (columns["failures"].astype(np.float64) - 1.0), MAX_WAIT_CYCLES)
        awake = (columns["gone"] < settings.gone_after) & (cycle - columns["last_attempt"] >= wait_cycles)
        unfetched = (columns["n"] == 0) & (columns["has_copy"] == 0)
        warming = ~unfetched & (columns["n"] < settings.warmup_visits)
        settled = awake & ~unfetched & ~warming
        panel = settled & in_panel(columns["key"], settings.panel)
        for kind, chosen in ((NEW, awake & unfetched), (WARMUP, awake & warming), (PANEL, panel)):
            rows = np.flatnonzero(chosen)
            if len(rows):
                parts[kind].append((rows + first).astype(np.uint32))
        return np.flatnonzero(settled & ~panel)

    def react(self, page: int, outcome: str) -> Sequence[int]:
        """Return no pages: a plan of the top k does not change within its cycle."""
        return ()


def _concatenate(parts: list[npt.NDArray[np.uint32]]) -> npt.NDArray[np.uint32]:
    return np.concatenate(parts) if parts else np.empty(0, np.uint32)
