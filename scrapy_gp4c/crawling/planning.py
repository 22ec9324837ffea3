"""Planning a cycle: the policy's rounds, and what goes beside them whatever the policy.

In round 0 hubs come first, so that what they bring is fetched in the same cycle, then the panel, the policy's
pages, pages in warm-up, and pages never fetched (at most ``GP4C_NEW_PAGES``, the sites by turns). Hubs, panel
and chosen pages together fill the budget; the others are outside it. A round's plan is committed before its
first request, with the number of logged visits that it saw.

Shards, each with all pages of its sites, plan as one store would, in steps: `scrapy_gp4c.policies.steps`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.crawling.evidence import UNPLANNED, LiveEvidence, Seen
from scrapy_gp4c.crawling.hubs import Hubs
from scrapy_gp4c.crawling.new_pages import FirstVisits, first_visits
from scrapy_gp4c.crawling.plan_counts import extended, is_spent, share_of, share_of_all, spent_of
from scrapy_gp4c.crawling.surroundings import NOTHING, Surroundings
from scrapy_gp4c.crawling.survey import Survey, survey
from scrapy_gp4c.crawling.undivided import check_divisible
from scrapy_gp4c.page_state.outcomes import HUB, NEW, PANEL, PLAN, RANKED, WARMUP
from scrapy_gp4c.policies import table
from scrapy_gp4c.policies.policy import (
    NOBODY,
    Chosen,
    Found,
    Pages,
    Planned,
    PolicySettings,
    Round,
    check_order,
    choose,
    quota_of,
)
from scrapy_gp4c.policies.steps import ONLY, Division, Shard, Steps, alone, divided, summed
from scrapy_gp4c.settings import Settings
from scrapy_gp4c.store.page_store import PageStore
from scrapy_gp4c.store.records import CycleRecord, PlanCounts, WholePlan

CHUNK: Final = 16_384


class Opening(NamedTuple):
    """What is settled for all rounds of a cycle before the first, as nothing that it finds has a say."""

    budget: int
    """Visits that the policy may choose, in all shards: panel and hubs come first."""
    hubs: Chosen
    share: float
    """Of the pages that the policy may choose from, what the shard has."""


class Beginning(NamedTuple):
    """What round 0 needs besides."""

    opening: Opening
    new: FirstVisits
    known: int
    """Pages of all shards."""
    rankable: int
    """Those of them that the policy may choose from."""
    sums: tuple[int, ...]
    """What scores read over the pages of all shards."""


class Planner:
    """The rounds of one cycle, planned one after the other."""

    def __init__(self, store: PageStore, settings: Settings, shard: Shard = ONLY) -> None:
        """Take a store; ``settings``: those that its open cycle was begun with, see `begun.as_begun`.

        Raises SettingsError where they cannot plan for shards.
        """
        check_divisible(settings, shard.of)
        self._store = store
        self._settings = settings
        self._shard = shard
        self._cycle = store.open_cycle or store.last_cycle + 1
        self._policy = settings.policy.make(PolicySettings(settings.score_function, settings.seed))
        read = table.columns_read(settings.score_function, settings.policy)
        self._surroundings = Surroundings(store, self._cycle, read)
        self._survey: Survey | None = None
        self._opening: Opening | None = None
        self._beginning: Beginning | None = None
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
        """Plan the next round of a store with all pages, see `steps`."""
        return alone(self.steps(record, planned, awaited))

    def steps(
        self, record: CycleRecord, planned: Planned, awaited: bool = False, seen: int | None = None
    ) -> Steps[bool]:
        """Plan the next round and commit it; False: a policy with as many rounds as it takes has nothing now.

        ``record``: the cycle's; ``planned``: the pages of its earlier rounds; ``awaited``: whether some
        of them have no outcome yet, so that it may have something later; ``seen``: visits of the cycle that
        a round may see which others have heard of before a kill, None: all so far. Raises PolicyError,
        ScoreError.
        """
        number, found = self.planned_rounds, NOTHING
        if number:
            counts = record["plan"]
            if self._opening is None and "budget" in counts:
                hubs = planned.pages[planned.kinds == HUB]
                self._opening = Opening(counts["budget"], _unscored(hubs), share_of_all(counts))
            found = self._found(seen)
            division, sums = yield from self._divided(number, spent_of(counts), planned, found)
            if self.rounds is None and not division.all:
                self._stopped = not awaited or is_spent(counts)
                return False
            parts = {RANKED: division.own}
        else:
            division, sums = yield from self._divided(0, 0, UNPLANNED, NOTHING)
            counts, parts = self._first((yield from self._begun()), division.own)
        counts = extended(counts, division, sums)
        self._store.add_round(_chunks(parts), seen=len(found.pages), plan=counts)
        self.planned_rounds += 1
        self._stopped = self.rounds is None and is_spent(counts)
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

    def choice(self, number: int, spent: int, planned: Planned, found: Found) -> Chosen:
        """What the policy chooses in a round, of a store with all pages.

        ``spent``: pages that it has chosen in this cycle's rounds before; ``planned``: all pages of these
        rounds; ``found``: the visits that it may see. Raises PolicyError or ScoreError.
        """
        return alone(self._divided(number, spent, planned, found))[0].own

    def evidence(self, spent: int, planned: Planned, found: Found) -> LiveEvidence:
        """What the policy may look at in a round of a store with all pages, see `choice`."""
        return alone(self._evidence(spent, planned, found))[0]

    def _divided(
        self, number: int, spent: int, planned: Planned, found: Found
    ) -> Steps[tuple[Division, tuple[int, ...]]]:
        """The policy's pages of a round, and the sums that scores read."""
        evidence, sums = yield from self._evidence(spent, planned, found)
        opening = yield from self._open()
        round = Round(self._cycle, number, max(0, opening.budget - spent))
        quota = quota_of(self._policy, round)
        if quota is None:
            chosen = choose(self._policy, round, evidence)
            return Division(chosen, len(chosen.pages)), sums

        def best(most: int) -> Chosen:
            asked = round._replace(most=most)
            chosen = choose(self._policy, asked, evidence)
            check_order(self._policy, asked, chosen)
            return chosen.first(most)

        return (yield from divided(best, quota, self._shard, opening.share)), sums

    def _evidence(
        self, spent: int, planned: Planned, found: Found
    ) -> Steps[tuple[LiveEvidence, tuple[int, ...]]]:
        opening = yield from self._open()
        if found is NOTHING:
            sums = (yield from self._begun()).sums
        else:
            own = self._surroundings.sums(found)
            sums = (yield from summed(*own)) if own else own
        hubs = opening.hubs.pages
        taken = Planned(
            np.concatenate((planned.pages, hubs)),
            np.concatenate((planned.kinds, np.full(len(hubs), HUB, np.uint8))),
        )
        seen = Seen(taken, found, share_of(opening.budget, spent), sums)
        salt = self._settings.seed, self._cycle
        return LiveEvidence(self._store, self._surveyed().rankable, salt, seen, self._surroundings), sums

    def _open(self) -> Steps[Opening]:
        return self._opening or (yield from self._begun()).opening

    def _begun(self) -> Steps[Beginning]:
        """Sum up all shards; then choose new pages, and hubs beside those."""
        if self._beginning is not None:
            return self._beginning
        known, hubs = self._surveyed(), Hubs(self._store, self._settings, self._cycle)
        own, of_hubs = self._surroundings.sums(NOTHING), hubs.sums()
        due, any_hubs = known.due[NEW], int(np.count_nonzero(known.hubs))
        counted = self._store.pages, known.alive, len(known.due[PANEL]), len(due), known.rankable_pages
        totals = yield from summed(*counted, any_hubs, *own, *of_hubs)
        pages, alive, panel, waiting, rankable, any_hubs, *sums = totals
        new = FirstVisits(due, 0)
        if waiting:
            new = yield from first_visits(self._store, self._settings, self._cycle, self._shard, due)
        beside_panel = max(0, self._settings.budget_pages(alive) - panel)
        most, chosen = hubs.most(beside_panel), Division(NOBODY, 0)
        if any_hubs and most:
            left = np.setdiff1d(due, new.pages) if len(new.pages) < len(due) else NOTHING.pages
            best = hubs.choose(hubs.awake(known.hubs, left), most, sums[len(own) :])
            chosen = yield from divided(best.first, most, self._shard)
        rankable -= chosen.all
        share = share_of(rankable, known.rankable_pages - len(chosen.own.pages))
        self._opening = Opening(beside_panel - chosen.all, chosen.own, share)
        self._beginning = Beginning(self._opening, new, pages, rankable, tuple(sums[: len(own)]))
        return self._beginning

    def _surveyed(self) -> Survey:
        if self._survey is None:
            self._survey = survey(self._store, self._settings, self._cycle)
        return self._survey

    def _found(self, seen: int | None) -> Found:
        self._store.commit()  # what a plan has seen must be there after a kill
        return Found.of(self._store.open_visits()[:seen])

    def _first(self, begun: Beginning, chosen: Chosen) -> tuple[PlanCounts, dict[int, Chosen]]:
        """Counts of round 0, but for the policy's pages, and its pages."""
        known, (budget, hubs, _) = self._surveyed(), begun.opening
        new, warmup, panel = (known.due[kind] for kind in (NEW, WARMUP, PANEL))
        parts = {
            HUB: hubs,
            PANEL: _unscored(panel),
            RANKED: chosen,
            WARMUP: _unscored(warmup),
            NEW: _unscored(begun.new.pages),
        }
        counts = PlanCounts(
            known=self._store.pages,
            due=len(new) + len(warmup),
            copies=known.copies,
            rankable=known.rankable_pages - len(hubs.pages),
            budget=budget,
            cuts=[],
            hub=len(hubs.pages),
            panel=len(panel),
            ranked=0,
            warmup=len(warmup),
            new=len(begun.new.pages),
        )
        if self._shard.of > 1:
            counts["whole"] = WholePlan(
                shards=self._shard.of,
                known=begun.known,
                new=begun.new.all,
                rankable=begun.rankable,
                ranked=[],
                sums=[],
            )
        return counts, parts


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
