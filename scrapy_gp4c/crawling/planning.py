"""Planning a cycle: the policy's rounds, and what goes beside them whatever the policy.

In round 0 the panel comes first, then the policy's pages, pages in warm-up, and pages never fetched (at most
``GP4C_NEW_PAGES``). Panel and chosen pages together fill the budget; the others are outside it. A round's
plan is committed before its first request, with the number of logged visits that it saw.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.crawling.evidence import LiveEvidence
from scrapy_gp4c.page_state.classes import in_panel, is_awake, stages
from scrapy_gp4c.page_state.outcomes import KINDS, PLAN
from scrapy_gp4c.policies import table
from scrapy_gp4c.policies.policy import Chosen, Found, Pages, PolicySettings, Round, choose
from scrapy_gp4c.scoring import functions
from scrapy_gp4c.settings import Settings
from scrapy_gp4c.store.page_store import PageStore
from scrapy_gp4c.store.records import CycleRecord, PlanCounts

NEW, WARMUP, PANEL, RANKED = (KINDS.index(kind) for kind in ("new", "warmup", "panel", "ranked"))
CHUNK: Final = 16_384
NOTHING: Final = Found(np.empty(0, np.uint32), np.empty(0, np.uint8))
"""What a cycle has found before its first visit."""


class Survey(NamedTuple):
    """What one pass over the page columns finds."""

    due: dict[int, Pages]
    """Kind -> pages that are visited whatever the policy: `PANEL`, `WARMUP`, `NEW`."""
    rankable: list[npt.NDArray[np.uint8]]
    """For every block, bits of its pages: those that a policy may choose."""
    rankable_pages: int
    alive: int
    """Pages that are not gone."""
    copies: int
    """Those of them with a copy."""


def survey(store: PageStore, settings: Settings, cycle: int) -> Survey:
    """Tell all pages apart by what `cycle` may do with them; memory: a bit per page, and the pages due."""
    due: dict[int, list[Pages]] = {PANEL: [], WARMUP: [], NEW: []}
    rankable = []
    alive = copies = rankable_pages = 0
    for first, columns in store.blocks():
        stage = stages(columns, settings.warmup_visits, settings.gone_after)
        awake = is_awake(columns, cycle)
        alive += len(awake) - int(np.count_nonzero(stage.gone))
        copies += int(np.count_nonzero(~stage.gone & (columns["has_copy"] != 0)))
        settled = awake & stage.settled
        panel = settled & in_panel(columns["key"], settings.panel)
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
        rankable.append(np.packbits(settled))
    joined = {kind: np.concatenate(parts) if parts else np.empty(0, np.uint32) for kind, parts in due.items()}
    return Survey(joined, rankable, rankable_pages, alive, copies)


class Planner:
    """The rounds of one cycle, planned one after the other."""

    def __init__(self, store: PageStore, settings: Settings) -> None:
        """Take a store; ``settings``: those that its open cycle was begun with, see `as_begun`."""
        self._store = store
        self._settings = settings
        self._cycle = store.open_cycle or store.last_cycle + 1
        self._policy = settings.policy.make(PolicySettings(settings.score_function, settings.seed))
        self._survey: Survey | None = None
        self._stopped = False

    @property
    def policy_name(self) -> str:
        """What the policy is called."""
        return self._policy.name

    @property
    def rounds(self) -> int:
        """Rounds that the policy has in a cycle."""
        return self._policy.rounds

    @property
    def planned_rounds(self) -> int:
        """Rounds whose plan is committed."""
        return len(self._store.rounds())

    @property
    def is_over(self) -> bool:
        """Tell whether no round is left to plan."""
        return self._stopped or self.planned_rounds >= self._policy.rounds

    def stop(self) -> None:
        """Plan no further round."""
        self._stopped = True

    def plan(self, record: CycleRecord, planned: Pages) -> None:
        """Plan the next round and commit it.

        ``record``: the cycle's; ``planned``: the pages of its earlier rounds. Raises PolicyError, ScoreError.
        """
        number = self.planned_rounds
        if number:
            found = self._found()
            chosen = self.choice(number, record["plan"]["ranked"], planned, found)
            counts, parts = _extended(record["plan"], chosen), {RANKED: chosen.pages}
        else:
            found = NOTHING
            chosen = self.first_choice()
            counts, parts = self._first(self._surveyed(), chosen)
        self._store.add_round(_chunks(parts, chosen.scores), seen=len(found.pages), plan=counts)
        if self._policy.rounds == number + 1:
            self._survey = None

    def first_choice(self) -> Chosen:
        """What the policy chooses in round 0 of the open cycle, or of the next if none is open."""
        return self.choice(0, 0, NOTHING.pages, NOTHING)

    def _surveyed(self) -> Survey:
        if self._survey is None:
            self._survey = survey(self._store, self._settings, self._cycle)
        return self._survey

    def choice(self, number: int, spent: int, planned: Pages, found: Found) -> Chosen:
        """What the policy chooses in a round.

        ``spent``: pages that it has chosen in this cycle's rounds before; ``planned``: all pages of these
        rounds; ``found``: the visits that it may see. Raises PolicyError or ScoreError.
        """
        known, settings = self._surveyed(), self._settings
        budget = settings.budget_pages(known.alive) - len(known.due[PANEL])
        evidence = LiveEvidence(
            self._store,
            known.rankable,
            (settings.seed, self._cycle),
            np.concatenate((planned, found.pages)),
            found,
        )
        return choose(self._policy, Round(self._cycle, number, max(0, budget - spent)), evidence)

    def _found(self) -> Found:
        self._store.commit()  # what a plan has seen must be there after a kill
        visits = self._store.open_visits()
        return Found(np.ascontiguousarray(visits["page"]), np.ascontiguousarray(visits["outcome"]))

    def _first(self, known: Survey, chosen: Chosen) -> tuple[PlanCounts, dict[int, Pages]]:
        """Counts and pages of round 0."""
        new, warmup, panel = (known.due[kind] for kind in (NEW, WARMUP, PANEL))
        parts = {
            PANEL: panel,
            RANKED: chosen.pages,
            WARMUP: warmup,
            NEW: new[: self._settings.new_pages],
        }
        counts = PlanCounts(
            known=self._store.pages,
            due=len(new) + len(warmup),
            copies=known.copies,
            rankable=known.rankable_pages,
            cut=chosen.cut,
            panel=len(panel),
            ranked=len(chosen.pages),
            warmup=len(warmup),
            new=len(parts[NEW]),
        )
        return counts, parts


class PlannedPages:
    """The plan of a cycle, its rounds one behind the other."""

    def __init__(self, chunks: Iterable[npt.NDArray[Any]]) -> None:
        """Take the plan in chunks of dtype `PLAN`."""
        self._plan = np.concatenate([*chunks, np.empty(0, PLAN)])
        self.pages: Pages = np.ascontiguousarray(self._plan["page"])
        """In the order of the plan."""
        self._by_page = np.argsort(self.pages, kind="stable")
        self._ordered = self.pages[self._by_page]

    def __len__(self) -> int:
        return len(self._plan)

    def position(self, page: int) -> int | None:
        """Place of a page in the plan; None: it is not planned."""
        # As uint32: for a Python number, NumPy would convert the whole plan to int64 first.
        found = int(self._ordered.searchsorted(np.uint32(page)))
        if found < len(self._ordered) and self._ordered[found] == page:
            return int(self._by_page[found])
        return None

    def kind_and_score(self, position: int) -> tuple[str, float]:
        """Why the page at this place is visited; its score, NaN where none decided."""
        row = self._plan[position]
        return KINDS[row["kind"]], float(row["score"])

    def kinds(self) -> dict[str, int]:
        """Pages of each kind."""
        counts = np.bincount(self._plan["kind"], minlength=len(KINDS))
        return dict(zip(KINDS, counts.tolist(), strict=True))


def has_cut(counts: PlanCounts) -> bool:
    """Tell whether a score divides the pages that the policy chose from the others, for the panel."""
    return counts["cut"] is not None or counts["ranked"] in (0, counts["rankable"])


def _extended(counts: PlanCounts, chosen: Chosen) -> PlanCounts:
    """Counts of a cycle after a further round; the cut is the lowest of its rounds'."""
    cuts = [counts["cut"]] if counts["ranked"] else []
    cuts += [chosen.cut] if len(chosen.pages) else []
    known = [cut for cut in cuts if cut is not None]
    lowest = min(known, key=lambda cut: (cut[0], -cut[1])) if known and len(known) == len(cuts) else None
    return {**counts, "cut": lowest, "ranked": counts["ranked"] + len(chosen.pages)}


def _chunks(parts: dict[int, Pages], scores: npt.NDArray[np.float64]) -> Iterator[npt.NDArray[Any]]:
    """The plan in chunks of dtype `PLAN`, first to visit first."""
    for kind, pages in parts.items():
        for start in range(0, len(pages), CHUNK):
            chunk = np.zeros(len(pages[start : start + CHUNK]), PLAN)
            chunk["page"] = pages[start : start + CHUNK]
            chunk["kind"] = kind
            chunk["score"] = scores[start : start + CHUNK] if kind == RANKED else np.nan
            yield chunk


def record_of(settings: Settings) -> CycleRecord:
    """What the record of a cycle begins with: all that its plan follows from."""
    return {
        "started": time.time(),
        "budget": settings.budget,
        "policy": settings.policy.text,
        "score_function": settings.score_function.text,
        "formula": settings.score_function.formula,
        "score_file_sha256": settings.score_function.sha256,
        "clock": settings.score_function.clock,
        "seed": settings.seed,
    }


def as_begun(settings: Settings, record: CycleRecord) -> Settings:
    """The settings by which the rounds of a resumed cycle are planned: those of its record.

    What a store names is data: a dotted path is taken from the settings, where it must be the same. Raises
    Gp4cError where it is not.
    """
    policy, function = settings.policy, settings.score_function
    recorded = record.get("policy", table.DEFAULT)
    if recorded != policy.text:
        policy = table.load(recorded, trusted=False)
    formula, clock = record.get("formula", function.formula), record.get("clock", function.clock)
    if (formula, clock) != (function.formula, function.clock):
        function = functions.recorded(formula, function).on_clock(clock)
    return dataclasses.replace(
        settings,
        policy=policy,
        score_function=function,
        budget=record.get("budget", settings.budget),
        seed=record.get("seed", settings.seed),
    )
