"""Planning a cycle: its pages by class, and in rounds by a policy.

In round 0 pages come first that were promised (`scrapy_gp4c.crawling.promises`), then hubs (pages that may
bring new pages), so that what they bring is fetched in the same cycle, then the control group, gone pages
that are looked at again, the policy's pages, pages in warm-up (with fewer visits than
``GP4C_WARMUP_VISITS``), and pages never fetched (at most ``GP4C_NEW_PAGES``, the sites by turns). All but the
last two kinds together fill the budget; those are outside it. Planning only reads: a crawl writes the plan
(`scrapy_gp4c.crawling.cycle`), a forecast does not.
"""

import math
import time
from collections.abc import Collection, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.arrays import Array, Bools, Floats
from scrapy_gp4c.crawling.neighbourhood import KnownPages, LiveEvidence, Neighbourhood
from scrapy_gp4c.crawling.promises import PROMISED_PAGE, PageRules, page_rules, promise_counts
from scrapy_gp4c.page_state.columns import (
    MAX_WAIT_FAILURES,
    RECOVERING,
    Columns,
    in_panel,
    is_awake,
    stages,
)
from scrapy_gp4c.page_state.groups import place_of_url
from scrapy_gp4c.page_state.outcomes import (
    FAILED,
    HUB,
    NEW,
    PANEL,
    PLAN,
    PROMISED,
    RANKED,
    RECHECK,
    WARMUP,
    among,
)
from scrapy_gp4c.page_state.related import RoundState
from scrapy_gp4c.policies import table
from scrapy_gp4c.policies.base import (
    NO_VISITS_YET,
    NOTHING_CHOSEN,
    UNPLANNED,
    CycleVisits,
    Pages,
    Planned,
    Policy,
    PolicySettings,
    Round,
    Selection,
    budget_pages,
    choose,
    unscored,
)
from scrapy_gp4c.policies.promises import promised_visits
from scrapy_gp4c.policies.site_share import shared
from scrapy_gp4c.scoring import discovery
from scrapy_gp4c.scoring.discovery import START
from scrapy_gp4c.scoring.first_visits import (
    FINDER,
    TERMINALS,
    WaitingPages,
    best_first,
    by_turns,
    columns_of_links,
    counted_links,
)
from scrapy_gp4c.scoring.functions import ScoreFunction
from scrapy_gp4c.scoring.ranking import draw_salt, draws, draws_of
from scrapy_gp4c.settings import Settings
from scrapy_gp4c.store.opening import Store
from scrapy_gp4c.store.records import CycleRecord, PlanCounts, PromiseCounts

SLICE: Final = 8_192
"""Number of pages whose columns are read into memory at a time."""


def some_columns(known: KnownPages, pages: Pages, names: Sequence[str]) -> dict[str, npt.NDArray[Any]]:
    """Return the columns `names` of `pages`, ids ascending, ``[P]`` each; reads a slice of them at a time."""
    starts = range(0, max(1, len(pages)), SLICE)
    slices = (known.columns_of(pages[start : start + SLICE], names) for start in starts)
    parts = [[columns[name] for name in names] for columns in slices]
    return {
        name: np.concatenate(values) for name, values in zip(names, zip(*parts, strict=True), strict=True)
    }


MOST_ALIVE: Final = 0.25
"""Most answering pages of a site in an outage, as a share of its failing pages with copies."""
BUDGET_SHARE: Final = 0.25
"""Share of a cycle's budget that gone pages may take, apart from pages of sites that answer again."""


GONE_PAGE: Final = np.dtype(
    [
        ("page", "<u4"),
        ("is_due", "?"),  # it has waited long enough
        ("is_start", "?"),  # the spider's start found it
        ("failures", "u1"),
        ("last_attempt", "<i4"),
    ]
)


def gone_pages(columns: Columns, is_gone: Bools, is_awake: Bools, first: int) -> Array:
    """Return the gone pages of a block of columns whose first page is `first`: dtype `GONE_PAGE`, ascending.

    ``is_gone``: whether each page of the block is gone; ``is_awake``: whether it has waited long enough.
    """
    rows = np.flatnonzero(is_gone)
    gone = np.empty(len(rows), GONE_PAGE)
    gone["page"], gone["is_due"] = rows + first, is_awake[rows]
    gone["is_start"] = columns["found_by"][rows] == START
    for name in ("failures", "last_attempt"):
        gone[name] = columns[name][rows]
    return gone


def recovering(gone: Array) -> int:
    """Return how many of the `gone` pages (dtype `GONE_PAGE`) are due and may be back; they count as alive.

    A page may be back if a link, a hint or an import names it, or its site answers again after an outage.
    """
    return int(np.count_nonzero(gone["is_due"] & (gone["failures"] <= RECOVERING)))


def rechecks(known: KnownPages, gone: Array, alive: int, budget: int, gone_after: int) -> tuple[Pages, int]:
    """Return the gone pages that a cycle visits, and how many of them are paid from the budget.

    Start pages and one due page of each site are free; others fill a share of the budget. A site of which all
    pages are gone is asked for one in every cycle: it may be an outage. Pages with least failures come first
    (a hint, a link or the end of an outage reduces the number), then those that wait longest. ``gone``: all
    gone pages, dtype `GONE_PAGE`; ``alive``: number of pages that are not gone; ``budget``: visits of the
    cycle.
    """
    pages, is_due = np.ascontiguousarray(gone["page"]), gone["is_due"]
    if not len(pages):
        return pages, 0
    site = sites_of(known, pages)
    # Beyond the longest wait, failures do not count: where more pages are due than get visits, those that
    # have failed most would wait until all others have failed as often.
    failures = np.minimum(gone["failures"], MAX_WAIT_FAILURES)
    order = np.lexsort((pages, gone["last_attempt"], failures, ~is_due))
    one_of_site = np.zeros(len(order), np.bool_)
    one_of_site[order[np.unique(site[order], return_index=True)[1]]] = True
    may_rest = one_of_site & ~is_due
    if may_rest.any():
        may_rest[may_rest] = np.isin(site[may_rest], _sites_alive(known, gone_after))
    chosen = gone["is_start"] | (one_of_site & ~may_rest)
    others = order[(is_due & ~chosen)[order]]
    again = recovering(gone)
    share = max(BUDGET_SHARE, again / max(1, alive + again))
    inside = others[: math.ceil(share * budget)]
    chosen[inside] = True
    return pages[order[chosen[order]]], len(inside)


def _sites_alive(known: KnownPages, gone_after: int) -> Array:
    site_of_group = known.site_keys()
    is_alive = np.zeros(len(site_of_group), np.bool_)
    for _, columns in known.blocks({"group", "gone"}):
        is_alive[columns["group"][columns["gone"] < gone_after]] = True
    return np.unique(site_of_group[is_alive])


def note_recovery(store: Store, left_alone: Collection[str]) -> None:
    """Let failing pages of sites that are back from an outage be due; call before a cycle's close.

    A site was out if the cycle before left it alone, or if all its pages ever visited had failed, or most of
    those with a copy, as where only the home page answers. It is back if a page answers in this cycle, which
    in the second case had failed twice. Of a site left alone, pages that were gone (404) or that it refuses
    for ever wait on. ``left_alone``: hosts that this cycle leaves alone.
    """
    visits = store.open_visits()
    answered = np.unique(visits["page"][~among(visits["outcome"], FAILED)])
    answered = answered[answered < store.merged_pages]
    columns = some_columns(store, answered, ("failures", "gone", "group"))
    before = store.cycles(store.last_cycle)[0].get("left_alone", {})
    refused = site_keys(before.keys() - set(left_alone))
    site_of_group = store.site_keys()
    site = site_of_group[columns["group"]]
    has_failed = columns["failures"] > 0
    # A link shortens the wait of a gone page: its failures are fewer than its answers of 404.
    failed_twice = (columns["failures"] > 1) | (columns["gone"] > 1)
    sites = np.unique(site[failed_twice | (has_failed & np.isin(site, refused))])
    if not len(sites):
        return
    had_refused = np.isin(sites, refused)
    alive_pages, lost_pages = np.zeros((2, len(sites)), np.int64)
    waiting: list[Array] = []
    for first, block in store.blocks({"failures", "gone", "last_attempt", "group", "has_copy"}):
        row = np.flatnonzero((block["last_attempt"] > 0) & np.isin(site_of_group[block["group"]], sites))
        site_row = np.searchsorted(sites, site_of_group[block["group"][row]])
        failing = (block["failures"][row] > 0) & ~(had_refused[site_row] & (block["gone"][row] > 0))
        alive_pages += np.bincount(site_row[~failing], minlength=len(sites))
        lost_pages += np.bincount(site_row[failing & (block["has_copy"][row] > 0)], minlength=len(sites))
        waiting.append(np.stack((row[failing] + first, site_row[failing])))
    pages, site_row = np.concatenate(waiting, axis=1)
    was_out = had_refused | (alive_pages <= MOST_ALIVE * lost_pages)
    due = np.setdiff1d(pages[was_out[site_row]], visits["page"])
    store.note_many(due, "wait", np.full(len(due), float(RECOVERING)))


def first_visits(pages: KnownPages, settings: Settings, cycle: int, due: Pages) -> Pages:
    """Return the pages that a cycle fetches for the first time, best first; all of `due` without a cap.

    ``due``: pages that were never fetched and may be visited, ids ascending, none found by the open cycle.
    """
    most = settings.new_pages
    if most is None or not len(due):
        return due
    columns = some_columns(pages, due, ("group", "entered", "key", "found_by"))
    sites = pages.site_keys()[columns["group"]]
    drawn = draws(columns["key"], settings.seed, cycle)
    waiting = WaitingPages(due, sites, columns["found_by"], columns["entered"], drawn)
    if settings.new_page_function is None:
        return by_turns(waiting, cycle)[:most]
    scores = scores_of_waiting(pages, settings.new_page_function, (settings.seed, cycle), waiting)
    order = best_first(scores, sites, drawn, most)
    return np.asarray(due[order])


def scores_of_waiting(
    pages: KnownPages, function: ScoreFunction, salt: tuple[int, int], waiting: WaitingPages
) -> Floats:
    """Return the scores by `function` of pages that wait for their first visit, ``[P]``; raises ScoreError.

    ``salt``: seed and cycle, for random numbers (draws).
    """
    cycle = salt[1]
    parts = [columns["found_by"] for _, columns in pages.blocks({"found_by"})]
    links = columns_of_links(
        waiting.pages,
        np.concatenate(parts),
        waiting.entered,
        cycle,
        lambda ids: some_columns(pages, ids.astype(np.uint32), FINDER),
    )
    neighbourhood = Neighbourhood(pages, cycle, set(function.columns) - TERMINALS.keys())
    related, out = neighbourhood.seen_by(), []
    for start in range(0, len(waiting.pages), SLICE):
        rows = slice(start, start + SLICE)
        waiting_pages = waiting.pages[rows]
        known = pages.columns_of(waiting_pages)
        known |= counted_links(known) | {name: column[rows] for name, column in links.items()}
        draw = draws_of(known["key"], draw_salt(*salt))
        state = RoundState(neighbourhood.columns(known, waiting_pages), slice(None), related, draw)
        out.append(function.scores(state, cycle))
    return np.concatenate(out)


READ: Final = {
    "n", "has_copy", "gone", "failures", "last_attempt", "last_cycle",
    "found_by", "brought_sum", "brought_cycles",
}  # fmt: skip
"""Columns that `classify_pages` reads of every page; with a control group, it reads ``key`` too."""


class Survey(NamedTuple):
    """Pages of a store by class (gone, new, in warm-up, ...), as the planning of a cycle needs them."""

    due: dict[int, Pages]
    """Kind -> pages that are visited whatever the policy: `PANEL`, `WARMUP`, `NEW`; ids ascending."""
    rankable: npt.NDArray[np.bool_]
    """``[P]``: whether a policy may choose a page."""
    rankable_pages: int
    hubs: npt.NDArray[np.bool_]
    """``[P]``: whether a page is rankable and may bring new pages."""
    alive: int
    """Number of pages that are not gone."""
    copies: int
    """Number of pages with a copy that are not gone: the control group is a sample of them."""
    gone: Array
    """All gone pages, dtype `GONE_PAGE`, ids ascending."""
    promised: Array
    """Pages past their warm-up with a promise, without the control group: dtype `PROMISED_PAGE`."""


def site_keys(hosts: Collection[str]) -> Array:
    """Return the site keys of hosts (``example.org:8080``), ``[H]``."""
    return np.array([place_of_url(f"http://{host}/").site_key for host in hosts], np.uint64)


def classify_pages(
    known: KnownPages,
    settings: Settings,
    cycle: int,
    rules: PageRules | None,
    left_alone: Array,
) -> Survey:
    """Return all pages by class, for the planning of a cycle; memory: two bytes a page, and the pages due.

    ``rules``: of the pages, None: there are none; ``left_alone``: keys of sites whose pages get no visit.
    """
    sites = known.site_keys() if left_alone.size else left_alone
    is_left_alone = np.isin(sites, left_alone)
    promises = [np.empty(0, PROMISED_PAGE)]
    due: dict[int, list[Pages]] = {PANEL: [], WARMUP: [], NEW: []}
    rankable, hubs = [np.empty(0, np.bool_)], [np.empty(0, np.bool_)]
    gone = [np.empty(0, GONE_PAGE)]
    alive = copies = rankable_pages = 0
    read = READ | ({"key"} if settings.panel else set()) | ({"group"} if is_left_alone.any() else set())
    for first, columns in known.blocks(read):
        stage = stages(columns, settings.warmup_visits, settings.gone_after)
        awake = is_awake(columns, cycle, settings.in_every_cycle(columns) & ~stage.gone)
        is_gone = stage.gone
        if is_left_alone.any():
            may_ask = ~is_left_alone[columns["group"]]
            awake, is_gone = awake & may_ask, is_gone & may_ask
        alive += len(awake) - int(np.count_nonzero(stage.gone))
        copies += int(np.count_nonzero(~stage.gone & (columns["has_copy"] != 0)))
        in_group = in_panel(columns["key"], settings.panel) if settings.panel else np.False_
        if rules is not None:
            allowed = rules.allowed(first, columns["last_attempt"])
            promises.append(
                rules.promised(first, columns["last_attempt"], stage.settled & ~in_group, allowed)
            )
            awake, is_gone = awake & allowed, is_gone & allowed
        if is_gone.any():
            gone.append(gone_pages(columns, is_gone, awake, first))
        settled = awake & stage.settled
        panel = settled & in_group
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
    return Survey(
        joined,
        np.concatenate(rankable),
        rankable_pages,
        np.concatenate(hubs),
        alive,
        copies,
        np.concatenate(gone),
        np.concatenate(promises),
    )


MAX_WAIT_S: Final = 86_400.0
"""Longest wait, s, that a header Retry-After gets."""


def still_left_alone(records: Sequence[CycleRecord], now_s: float) -> dict[str, float]:
    """Return the hosts that the last of `records` leaves alone until a time that has not come, and that time.

    A time beyond `MAX_WAIT_S` from now is ignored: a clock was ahead.
    """
    last = records[-1].get("left_alone", {}) if records else {}
    return {host: until_s for host, until_s in last.items() if now_s < until_s <= now_s + MAX_WAIT_S}


class PlannedRound(NamedTuple):
    """The pages of one round, and the counts of the cycle's plan."""

    parts: dict[int, Selection]
    """Kind of visit -> pages to visit for it; the first kind is visited first."""
    counts: PlanCounts
    """Counts of the cycle's plan, this round included."""

    def plan(self) -> Array:
        """Return the round's pages in the order of their visits, dtype `PLAN`."""
        parts = [np.empty(0, PLAN)]
        for kind, chosen in self.parts.items():
            rows = np.zeros(len(chosen.pages), PLAN)
            rows["page"], rows["score"] = chosen.pages, chosen.scores
            rows["kind"] = chosen.kinds_of_pages() if kind == RANKED else kind
            parts.append(rows)
        return np.concatenate(parts)


class FirstRound(NamedTuple):
    """Pages that round 0 visits whatever the policy chooses."""

    budget: int
    """Visits that the policy may choose in all rounds of the cycle."""
    hubs: Selection
    new: Pages
    rechecks: Pages
    promised: Pages = NO_VISITS_YET.pages
    promises: PromiseCounts | None = None
    """Counts of promises for the cycle's record; None: no page has a promise."""


class Planner:
    """Plans the rounds of one cycle, one after the other."""

    def __init__(
        self,
        known: KnownPages,
        settings: Settings,
        cycle: int,
        planned_rounds: int = 0,
        rules: PageRules | None = None,
        left_alone: Collection[str] = (),
    ) -> None:
        """Plan a cycle over the pages `known` at its start, but for those of hosts that are left alone.

        ``settings``: those that the cycle was begun with; ``planned_rounds``: number of rounds that an
        interrupted run has planned; ``rules``: of the pages, None: there are none.
        """
        self._known = known
        self.rules = rules
        self._settings = settings
        self._cycle = cycle
        policy = settings.policy.make(PolicySettings(settings.score_function, settings.seed))
        self.policy = with_site_share(policy, known, settings)
        columns = table.columns_read(settings.score_function, settings.policy)
        self._neighbourhood = Neighbourhood(known, cycle, columns)
        self._left_alone = site_keys(left_alone)
        self._survey: Survey | None = None
        self._first: FirstRound | None = None
        self._stopped = False
        self.planned_rounds = planned_rounds

    @classmethod
    def of(cls, store: Store, settings: Settings) -> Self:
        """Return the planner of a store's open cycle, or of its next one if none is open."""
        records = store.cycles(store.last_cycle)
        left_alone = records[-1].get("left_alone", {}) if store.open_cycle else ()
        left_alone = left_alone or still_left_alone(records, time.time())
        cycle, rules = store.open_cycle or store.last_cycle + 1, page_rules(store, settings)
        return cls(store, settings, cycle, len(store.rounds()), rules, left_alone)

    @property
    def rounds(self) -> int | None:
        """Number of rounds of the policy in a cycle; None: it ends them itself, by choosing nothing."""
        return self.policy.rounds

    @property
    def is_over(self) -> bool:
        """Whether no round is left to plan."""
        return self._stopped or (self.rounds is not None and self.planned_rounds >= self.rounds)

    def stop(self) -> None:
        """Plan no further round."""
        self._stopped = True

    def plan_first(self) -> PlannedRound:
        """Plan round 0, with all kinds of visits. Raises PolicyError or ScoreError."""
        first, chosen = self._first_round(), self.first_choice()
        known = self._classified()
        panel, warmup, due = (known.due[kind] for kind in (PANEL, WARMUP, NEW))
        parts = {
            PROMISED: unscored(first.promised),
            HUB: first.hubs,
            PANEL: unscored(panel),
            RECHECK: unscored(first.rechecks),
            RANKED: chosen,
            WARMUP: unscored(warmup),
            NEW: unscored(first.new),
        }
        counts = PlanCounts(
            known=self._known.merged_pages,
            due=len(due) + len(warmup),
            copies=known.copies,
            rankable=known.rankable_pages - len(first.hubs.pages),
            budget=first.budget,
            cuts=[],
            site_cuts=[],
            hub=len(first.hubs.pages),
            panel=len(panel),
            recheck=len(first.rechecks),
            ranked=0,
            warmup=len(warmup),
            new=len(first.new),
        )
        if first.promises is not None:
            counts["promised"], counts["promises"] = len(first.promised), first.promises
        return self._planned(PlannedRound(parts, counts))

    def plan_next(
        self, counts: PlanCounts, planned: Planned, visits: CycleVisits, awaited: bool = False
    ) -> PlannedRound | None:
        """Plan the next round; None: the policy, which decides how many rounds there are, chose nothing.

        ``counts``: of the rounds before; ``planned``: their pages; ``visits``: the cycle's outcomes so far;
        ``awaited``: whether outcomes are missing, so that the policy is asked again when they are in. Raises
        PolicyError or ScoreError.
        """
        if self._first is None:
            hubs = unscored(planned.pages[planned.kinds == HUB])
            self._first = FirstRound(counts["budget"], hubs, NO_VISITS_YET.pages, NO_VISITS_YET.pages)
        chosen = self.choice(self.planned_rounds, counts["ranked"], planned, visits)
        if self.rounds is None and not len(chosen.pages):
            self._stopped = not awaited or is_spent(counts)
            return None
        return self._planned(PlannedRound({RANKED: chosen}, counts))

    def plan_instead(
        self,
        counts: PlanCounts,
        planned: Planned,
        visits: CycleVisits,
        hosts: Collection[str],
        left_out: int,
    ) -> PlannedRound | None:
        """Plan a round of other pages for `left_out` visits to hosts that are left alone; None: no others.

        ``counts``, ``planned`` and ``visits``: as in `plan_next`. Raises PolicyError or ScoreError.
        """
        self._left_alone, self._survey = site_keys(hosts), None
        hubs = unscored(planned.pages[planned.kinds == HUB])
        budget = counts["ranked"] + left_out
        self._first = FirstRound(budget, hubs, NO_VISITS_YET.pages, NO_VISITS_YET.pages)
        chosen = self.choice((self.rounds or 1) - 1, counts["ranked"], planned, visits)
        if not len(chosen.pages):
            return None
        return self._planned(PlannedRound({RANKED: chosen}, {**counts, "budget": budget}))

    def _planned(self, round: PlannedRound) -> PlannedRound:
        """Count a round as planned; returns it with the cycle's counts, to which its own are added."""
        chosen, counts = round.parts[RANKED], round.counts
        # A single round without a cut-off leaves the cycle without one.
        has_cut_off = counts["cuts"] is not None and (chosen.cut is not None or not len(chosen.pages))
        keys = np.unique(self._known.site_keys()).tolist() if chosen.site_cuts else []
        site_cuts = [(keys[site], *cut) for site, cut in chosen.site_cuts.items()]
        extended: PlanCounts = {
            **counts,
            "cuts": [*(counts["cuts"] or ()), chosen.cut] if has_cut_off else None,
            "site_cuts": [*counts.get("site_cuts", ()), site_cuts],
            "ranked": counts["ranked"] + len(chosen.pages),
        }
        self.planned_rounds += 1
        self._stopped = self.rounds is None and is_spent(extended)
        if self.rounds == self.planned_rounds:
            self._survey = None  # two bytes a page
        return round._replace(counts=extended)

    def seeds(self, visits: Array, planned: Planned) -> int:
        """Return how many samples, or groups of them, the policy visited neighbours of; 0: none."""
        count = getattr(self.policy, "seeds", None)
        if count is None or not len(planned.pages):
            return 0
        evidence = self.evidence(0, planned, CycleVisits.of(visits))
        return int(count(Round(self._cycle, self.planned_rounds, 0), evidence))

    def first_choice(self) -> Selection:
        """Return the pages that the policy chooses in round 0."""
        return self.choice(0, 0, UNPLANNED, NO_VISITS_YET)

    def choice(self, number: int, spent: int, planned: Planned, visits: CycleVisits) -> Selection:
        """Return the pages that the policy chooses in round `number`.

        ``spent``: number of pages that it has chosen in earlier rounds of the cycle; ``planned``: all pages
        of these rounds; ``visits``: those that it may see. Raises PolicyError or ScoreError.
        """
        round = Round(self._cycle, number, max(0, self._first_round().budget - spent))
        return choose(self.policy, round, self.evidence(spent, planned, visits))

    def evidence(self, spent: int, planned: Planned, visits: CycleVisits) -> LiveEvidence:
        """Return the data that the policy may look at in a round; arguments as in `choice`."""
        first = self._first_round()
        hubs = first.hubs.pages
        taken = Planned(
            np.concatenate((planned.pages, hubs)),
            np.concatenate((planned.kinds, np.full(len(hubs), HUB, np.uint8))),
        )
        share = spent / first.budget if first.budget else 0.0
        related = self._neighbourhood.seen_by(visits, share)
        salt = self._settings.seed, self._cycle
        rankable = self._classified().rankable
        return LiveEvidence(self._known, rankable, salt, taken, visits, self._neighbourhood, related)

    def _first_round(self) -> FirstRound:
        if self._first is None:
            known, settings = self._classified(), self._settings
            again = recovering(known.gone)
            budget = max(0, budget_pages(settings.budget, known.alive + again) - len(known.due[PANEL]))
            promised, promises = NO_VISITS_YET.pages, None
            if len(known.promised):
                promised = known.promised["page"][promised_visits(known.promised, budget)]
                promises = promise_counts(known.promised, len(promised), budget)
                budget -= len(promised)
                known.rankable[promised] = known.hubs[promised] = False
                known = known._replace(rankable_pages=int(np.count_nonzero(known.rankable)))
                self._survey = known
            gone, paid = rechecks(self._known, known.gone, known.alive, budget, settings.gone_after)
            budget = max(0, budget - paid)
            new = first_visits(self._known, settings, self._cycle, known.due[NEW])
            hubs = NOTHING_CHOSEN
            if settings.discovery:
                waiting = np.setdiff1d(known.due[NEW], new, assume_unique=True)
                is_open = hubs_without_waiting(self._known, known.hubs, waiting)
                hubs = best_hubs(self._known, settings, self._cycle, is_open, budget)
            self._first = FirstRound(budget - len(hubs.pages), hubs, new, gone, promised, promises)
        return self._first

    def _classified(self) -> Survey:
        if self._survey is None:
            settings, cycle = self._settings, self._cycle
            self._survey = classify_pages(self._known, settings, cycle, self.rules, self._left_alone)
        return self._survey


def best_hubs(
    pages: KnownPages, settings: Settings, cycle: int, is_hub: npt.NDArray[np.bool_], budget: int
) -> Selection:
    """Choose the hubs, pages that may bring new pages, that a cycle visits, by ``GP4C_DISCOVERY_FUNCTION``.

    Returns at most the share ``GP4C_DISCOVERY`` of `budget`, best first. ``is_hub``: ``[P]``; ``budget``:
    visits of the cycle that control group, promises and gone pages leave. Raises ScoreError.
    """
    hubs = budget_pages(settings.discovery, budget)
    if hubs < 1 or not is_hub.any():
        return NOTHING_CHOSEN
    neighbourhood = Neighbourhood(pages, cycle, table.columns_read(settings.discovery_function, table.TOP_K))
    related = neighbourhood.seen_by()
    salt = settings.seed, cycle
    evidence = LiveEvidence(pages, is_hub, salt, UNPLANNED, NO_VISITS_YET, neighbourhood, related)
    policy = table.TOP_K.make(PolicySettings(settings.discovery_function, settings.seed))
    policy = with_site_share(policy, pages, settings)
    return choose(policy, Round(cycle, 0, hubs), evidence)


def hubs_without_waiting(
    pages: KnownPages, is_hub: npt.NDArray[np.bool_], waiting: Pages
) -> npt.NDArray[np.bool_]:
    """Return ``is_hub``, ``[P]``, without the hubs of sites that have new pages which wait for a later cycle.

    Such a site needs no visits that bring more new pages. ``waiting``: ids of the new pages that wait,
    ascending.
    """
    rows = np.flatnonzero(is_hub).astype(np.uint32)
    if not len(waiting) or not len(rows):
        return is_hub
    unclaimed = is_hub.copy()
    unclaimed[rows] = ~np.isin(sites_of(pages, rows), sites_of(pages, waiting))
    return unclaimed


def with_site_share(policy: Policy, pages: KnownPages, settings: Settings) -> Policy:
    """Return the policy with each site's part of the budget limited to ``GP4C_SITE_SHARE``, if any."""
    site = pages.site_keys()
    share = settings.site_share if (site != site[:1]).any() else 1.0
    return shared(policy, share, partial(sites_of, pages))


def sites_of(pages: KnownPages, page_ids: Pages) -> npt.NDArray[np.uint64]:
    """Return the site key of each of `page_ids`, ascending ids among the known `pages`."""
    group = some_columns(pages, page_ids, ("group",))["group"]
    return pages.site_keys()[group]


def ranks_all(counts: PlanCounts) -> bool:
    """Whether a cycle's policy chose all pages that it could choose from, by the `counts` of its plan."""
    return counts["ranked"] == counts["rankable"]


def is_spent(counts: PlanCounts) -> bool:
    """Whether the policy's choices in a cycle have used up its budget."""
    return counts["ranked"] >= counts["budget"]


def has_cut(counts: PlanCounts) -> bool:
    """Whether scores explain a cycle's choice: by a cut-off in each round, or as all pages were chosen."""
    return counts["cuts"] is not None or ranks_all(counts)
