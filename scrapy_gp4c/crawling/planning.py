"""Planning a cycle: the policy's rounds, and what goes beside them whatever the policy.

In round 0 hubs come first, so that what they bring is fetched in the same cycle, then the panel, the policy's
pages, pages in warm-up, and pages never fetched (at most ``GP4C_NEW_PAGES``, the sites by turns). Hubs, panel
and chosen pages together fill the budget; the others are outside it. A round's plan is committed before its
first request, with the number of logged visits that it saw.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.crawling.evidence import NOTHING, UNPLANNED, LiveEvidence, Surroundings
from scrapy_gp4c.crawling.hubs import choose_hubs
from scrapy_gp4c.crawling.new_pages import by_turns
from scrapy_gp4c.page_state.classes import in_panel, is_awake, stages
from scrapy_gp4c.page_state.outcomes import HUB, NEW, PANEL, PLAN, RANKED, WARMUP
from scrapy_gp4c.policies import table
from scrapy_gp4c.policies.policy import Chosen, Found, Pages, Planned, PolicySettings, Round, choose
from scrapy_gp4c.scoring import growth
from scrapy_gp4c.settings import Settings
from scrapy_gp4c.store.page_store import PageStore
from scrapy_gp4c.store.records import Cuts, CycleRecord, PlanCounts

CHUNK: Final = 16_384


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


def survey(store: PageStore, settings: Settings, cycle: int) -> Survey:
    """Tell all pages apart by what `cycle` may do with them; memory: two bytes a page, and the pages due."""
    due: dict[int, list[Pages]] = {PANEL: [], WARMUP: [], NEW: []}
    rankable, hubs = [np.empty(0, np.bool_)], [np.empty(0, np.bool_)]
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
        rankable.append(settled)
        hubs.append(settled & growth.is_hub(columns, cycle))
    joined = {kind: np.concatenate(parts) if parts else np.empty(0, np.uint32) for kind, parts in due.items()}
    return Survey(joined, np.concatenate(rankable), rankable_pages, np.concatenate(hubs), alive, copies)


class Planner:
    """The rounds of one cycle, planned one after the other."""

    def __init__(self, store: PageStore, settings: Settings) -> None:
        """Take a store; ``settings``: those that its open cycle was begun with, see `begun.as_begun`."""
        self._store = store
        self._settings = settings
        self._cycle = store.open_cycle or store.last_cycle + 1
        self._policy = settings.policy.make(PolicySettings(settings.score_function, settings.seed))
        read = table.columns_read(settings.score_function, settings.policy)
        self._surroundings = Surroundings(store, self._cycle, read)
        self._survey: Survey | None = None
        self._hubs: Chosen | None = None
        self._first_visits: Pages | None = None
        self._stopped = False
        self.planned_rounds = len(store.rounds())
        """Rounds whose plan is committed."""

    @property
    def policy_name(self) -> str:
        """What the policy is called."""
        return self._policy.name

    @property
    def rounds(self) -> int | None:
        """Rounds that the policy has in a cycle; None: as many as it takes."""
        return self._policy.rounds

    @property
    def is_over(self) -> bool:
        """Tell whether no round is left to plan."""
        return self._stopped or (self.rounds is not None and self.planned_rounds >= self.rounds)

    def stop(self) -> None:
        """Plan no further round."""
        self._stopped = True

    def plan(self, record: CycleRecord, planned: Planned, awaited: bool = False) -> bool:
        """Plan the next round and commit it; False: a policy with as many rounds as it takes has nothing now.

        ``record``: the cycle's; ``planned``: the pages of its earlier rounds; ``awaited``: whether some
        of them have no outcome yet, so that it may have something later. Raises PolicyError, ScoreError.
        """
        number = self.planned_rounds
        if number:
            found = self._found()
            chosen = self.choice(number, record["plan"]["ranked"], planned, found)
            if self.rounds is None and not len(chosen.pages):
                self._stopped = not awaited or _is_spent(record["plan"])
                return False
            counts, parts = _extended(record["plan"], chosen), {RANKED: chosen}
        else:
            found = NOTHING
            counts, parts = self._first(self._surveyed(), self.first_choice())
        self._store.add_round(_chunks(parts), seen=len(found.pages), plan=counts)
        self.planned_rounds += 1
        self._stopped = self.rounds is None and _is_spent(counts)
        if self.rounds == number + 1:
            self._survey = None
        return True

    def seeds(self, visits: npt.NDArray[Any], planned: Planned) -> int:
        """How many samples the policy has followed in the open cycle; 0 of one that follows none."""
        count = getattr(self._policy, "seeds", None)
        if count is None or not len(planned.pages):
            return 0
        evidence = self.evidence(0, planned, Found.of(visits))
        return int(count(Round(self._cycle, self.planned_rounds, 0), evidence))

    def first_choice(self) -> Chosen:
        """What the policy chooses in round 0 of the open cycle, or of the next if none is open."""
        return self.choice(0, 0, UNPLANNED, NOTHING)

    def _surveyed(self) -> Survey:
        if self._survey is None:
            self._survey = survey(self._store, self._settings, self._cycle)
        return self._survey

    def choice(self, number: int, spent: int, planned: Planned, found: Found) -> Chosen:
        """What the policy chooses in a round.

        ``spent``: pages that it has chosen in this cycle's rounds before; ``planned``: all pages of these
        rounds; ``found``: the visits that it may see. Raises PolicyError or ScoreError.
        """
        remaining = max(0, self._budget(self._surveyed()) - spent)
        evidence = self.evidence(spent, planned, found)
        return choose(self._policy, Round(self._cycle, number, remaining), evidence)

    def evidence(self, spent: int, planned: Planned, found: Found) -> LiveEvidence:
        """What the policy may look at in a round, see `choice`."""
        known = self._surveyed()
        hubs = self._chosen_hubs(known)
        return LiveEvidence(
            self._store,
            known.rankable,
            (self._settings.seed, self._cycle),
            Planned(
                np.concatenate((planned.pages, hubs.pages)),
                np.concatenate((planned.kinds, np.full(len(hubs.pages), HUB, np.uint8))),
            ),
            found,
            self._surroundings,
            share_of(self._budget(known), spent),
        )

    def _budget(self, known: Survey) -> int:
        """Visits that the policy may choose: panel and hubs come first."""
        return self._beside_panel(known) - len(self._chosen_hubs(known).pages)

    def _beside_panel(self, known: Survey) -> int:
        return max(0, self._settings.budget_pages(known.alive) - len(known.due[PANEL]))

    def _chosen_hubs(self, known: Survey) -> Chosen:
        """Hubs of the cycle: the same in every round, since nothing that the cycle found has a say.

        A site whose new pages wait for a later cycle, as those of a calendar without end do, needs no
        visits for more of them.
        """
        if self._hubs is None:
            hubs, new, planned = known.hubs, known.due[NEW], self._new(known)
            rows = np.flatnonzero(hubs).astype(np.uint32)
            if len(planned) < len(new) and len(rows):
                waiting = np.setdiff1d(new, planned)
                hubs = hubs.copy()
                hubs[rows] = ~np.isin(self._sites(rows), self._sites(waiting))
            budget = self._beside_panel(known)
            self._hubs = choose_hubs(self._store, self._settings, self._cycle, hubs, budget)
        return self._hubs

    def _found(self) -> Found:
        self._store.commit()  # what a plan has seen must be there after a kill
        return Found.of(self._store.open_visits())

    def _first(self, known: Survey, chosen: Chosen) -> tuple[PlanCounts, dict[int, Chosen]]:
        """Counts and pages of round 0."""
        new, warmup, panel = (known.due[kind] for kind in (NEW, WARMUP, PANEL))
        hubs = self._chosen_hubs(known)
        parts = {
            HUB: hubs,
            PANEL: _unscored(panel),
            RANKED: chosen,
            WARMUP: _unscored(warmup),
            NEW: _unscored(self._new(known)),
        }
        counts = PlanCounts(
            known=self._store.pages,
            due=len(new) + len(warmup),
            copies=known.copies,
            rankable=known.rankable_pages - len(hubs.pages),
            budget=self._budget(known),
            cuts=_with_cut([], chosen),
            hub=len(hubs.pages),
            panel=len(panel),
            ranked=len(chosen.pages),
            warmup=len(warmup),
            new=len(parts[NEW].pages),
        )
        return counts, parts

    def _new(self, known: Survey) -> Pages:
        """Pages never fetched that this cycle plans to."""
        if self._first_visits is None:
            new, caps = known.due[NEW], (self._settings.new_pages, self._settings.new_pages_per_site)
            if caps != (None, None) and len(new):
                new = by_turns(new, np.unique(self._sites(new), return_inverse=True)[1], *caps)
            self._first_visits = new
        return self._first_visits

    def _sites(self, pages: Pages) -> npt.NDArray[np.uint64]:
        """Key of each page's site ``[P]``; ids ascending."""
        keys: npt.NDArray[np.uint64] = self._store.directories()["site"]
        return keys[self._store.columns_of(pages)["group"]]


def share_of(budget: int, spent: int) -> float:
    """Share of a budget that so many visits are; 0 of none."""
    return spent / budget if budget else 0.0


def cuts_of(counts: PlanCounts) -> Cuts:
    """Where each round was cut off; None: the policy does not divide the pages by a score."""
    if "cuts" in counts:
        return counts["cuts"]
    # The version before kept the lowest of all rounds.
    return None if counts["cut"] is None and counts["ranked"] else [counts["cut"]]


def has_cut(counts: PlanCounts) -> bool:
    """Tell whether a score divides the pages that the policy chose from the others, for the panel."""
    return cuts_of(counts) is not None or counts["ranked"] == counts["rankable"]


def _is_spent(counts: PlanCounts) -> bool:
    return counts["ranked"] >= counts["budget"]


def _with_cut(cuts: Cuts, chosen: Chosen) -> Cuts:
    """Cuts after a further round."""
    divides = chosen.cut is not None or not len(chosen.pages)
    return None if cuts is None or not divides else [*cuts, chosen.cut]


def _extended(counts: PlanCounts, chosen: Chosen) -> PlanCounts:
    """Counts of a cycle after a further round."""
    ranked = counts["ranked"] + len(chosen.pages)
    return {**counts, "cuts": _with_cut(cuts_of(counts), chosen), "ranked": ranked}


def _unscored(pages: Pages) -> Chosen:
    """Pages that no score chose."""
    return Chosen(pages, np.full(len(pages), np.nan), None)


def _chunks(parts: dict[int, Chosen]) -> Iterator[npt.NDArray[Any]]:
    """The plan in chunks of dtype `PLAN`, first to visit first."""
    for kind, chosen in parts.items():
        pages, kinds = chosen.pages, chosen.kinds_of_pages()
        for start in range(0, len(pages), CHUNK):
            rows = slice(start, start + CHUNK)
            chunk = np.zeros(len(pages[rows]), PLAN)
            chunk["page"] = pages[rows]
            chunk["kind"] = kinds[rows] if kind == RANKED else kind
            chunk["score"] = chosen.scores[rows]
            yield chunk
