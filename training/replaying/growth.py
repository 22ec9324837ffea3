"""Replay of growth: an unknown page is visited only after a page that leads to it.

The rules are those of a crawl (`scrapy_gp4c.crawling.planning`). A share of the budget is for hubs (pages
visited because they link to new ones), the rest is for the policy; the budget does not count warm-up and
first visits. New pages of a visit are fetched in the same cycle. Claims of sites arrive cycle by cycle, and
count as far as the site was right before.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.arrays import Array, Bools
from scrapy_gp4c.errors import ScoreError
from scrapy_gp4c.page_state.claims import NOTE, WHAT, apply_links, finder_pages
from scrapy_gp4c.page_state.groupings import NOWHERE, Grouping, Links, Name, popularity_by_links
from scrapy_gp4c.page_state.groups import KEPT_CYCLES, Place, count_visits
from scrapy_gp4c.page_state.outcomes import CHANGED, UNCHANGED, WARMUP
from scrapy_gp4c.page_state.related import PageSums, RecentVisits, Related, RoundState
from scrapy_gp4c.policies.base import (
    Block,
    CycleVisits,
    Pages,
    Planned,
    Policy,
    PolicySettings,
    Round,
    budget_pages,
    choose,
    rounds_of,
)
from scrapy_gp4c.policies.site_share import shared
from scrapy_gp4c.policies.table import TOP_K, PolicyChoice
from scrapy_gp4c.policies.table import load as load_policy
from scrapy_gp4c.scoring import discovery, first_visits, functions, hints, measured, sizes, terminals, weights
from scrapy_gp4c.scoring.first_visits import (
    FINDER,
    FirstVisits,
    WaitingPages,
    best_first,
    bit_of,
    by_turns,
    columns_of_links,
    counted_links,
)
from scrapy_gp4c.scoring.functions import ScoreFunction
from scrapy_gp4c.scoring.ranking import draw_salt, salted_draws
from training.histories.growth import LINK, NO_FINDER, GrowthHistory, numbered_links
from training.replaying.claims import ReplayedClaims
from training.replaying.measured import ReplayedDistances, check_measured
from training.replaying.metrics import FixedPointWeights
from training.replaying.prepared import CrawlChoices
from training.replaying.replay import policy_of

HUBS: Final = "brought * t"
"""Default score function of hubs."""


@dataclass(frozen=True)
class GrowthCrawl:
    """Parameters of a replayed crawl in which pages are born and must be discovered."""

    budget: float
    """Share of the known pages (float) or a count (int)."""
    score_function: ScoreFunction
    policy: PolicyChoice
    hub_function: ScoreFunction
    discovery: float = 0.1
    """Share of the budget for hubs."""
    warmup: int = 2
    """Number of visits of each page, after its first one, that do not count against the budget."""
    seed: int = 0
    new_pages: int | None = None
    """Cap on the first visits of a cycle; None: none."""
    new_page_function: ScoreFunction | None = None
    """Ranks pages that wait for their first visit; None: those known longest come first."""
    from_start: bool = False
    """Whether the crawl begins with the start pages alone (`NO_FINDER`), not with all pages of cycle 0."""
    site_share: float = 1.0
    """Largest share of the budget for one site while other sites have candidates, ``GP4C_SITE_SHARE``."""


def growth_crawl(
    score: str, policy: str | None, discovery: float, hubs: str, choices: CrawlChoices, **others: Any
) -> GrowthCrawl:
    """Make a `GrowthCrawl` of texts of functions and policy, as the command line has them.

    ``policy`` None: that of the named score function, else ``top_k``. ``choices``: budget, warm-up, clock and
    seed; ``others``: other fields. Raises ScoreError, ExpressionError or PolicyError.
    """
    function, hub_function = functions.load(score).on_clock(choices.clock), functions.load(hubs)
    for one in (function, hub_function):
        if not first_visits.TERMINALS.keys().isdisjoint(one.columns):
            raise ScoreError(
                f"{one.text!r} reads {', '.join(first_visits.TERMINALS)}, which only pages before their "
                "first visit have: they rank first visits"
            )
    return GrowthCrawl(
        choices.budget,
        function,
        load_policy(policy or policy_of(function)),
        hub_function,
        discovery,
        choices.warmup,
        choices.seed,
        site_share=choices.site_share,
        **others,
    )


@dataclass(frozen=True)
class GrowthResult:
    """Result of `replay_growth`; arrays have one entry per cycle after the warm-up, but for `delay`."""

    delay: npt.NDArray[np.int64]
    """``[new pages]``: cycles from birth to first visit, or to the end without one."""
    missed: int
    visited: npt.NDArray[np.int64]
    """Visits to hubs and ranked pages."""
    changed: npt.NDArray[np.int64]
    """Visits to hubs and ranked pages that found a change."""
    changed_weight: npt.NDArray[np.float64]
    """Summed weight of the pages counted in `changed`."""
    hubs: npt.NDArray[np.int64]
    coverage: npt.NDArray[np.float64]
    """Share of the existing pages that were visited by the end of the cycle."""
    weighted_coverage: npt.NDArray[np.float64]
    current: npt.NDArray[np.float64]
    """Weighted share of the existing pages with a current copy; unknown pages have none."""

    @property
    def change_rate(self) -> float:
        """Changes per visit, over all cycles."""
        return float(self.changed.sum() / max(1, self.visited.sum()))

    @property
    def weighted_change_rate(self) -> float:
        """Summed weight of the changes per visit (Cho & Ntoulas 2002), over all cycles."""
        return math.fsum(self.changed_weight.tolist()) / max(1, int(self.visited.sum()))


def replay_growth(grown: GrowthHistory, crawl: GrowthCrawl) -> GrowthResult:
    """Replay a crawl of the growing web `grown`.

    Raises PolicyError for a policy that breaks its contract, ScoreError for a score that cannot be computed.
    """
    web = GrowthReplay(grown, crawl)
    rows = [web.cycle(cycle) for cycle in range(1, grown.history.cycles + 1)][crawl.warmup :]
    new = ~web.began_with
    first_visit = np.where(web.known, web.state["first_cycle"], grown.history.cycles + 1)
    visited, changed, weight, hubs, coverage, weighted, current = np.array(rows, np.float64).reshape(-1, 7).T
    return GrowthResult(
        (first_visit - grown.born)[new].astype(np.int64),
        int(np.count_nonzero(new & ~web.known)),
        visited.astype(np.int64),
        changed.astype(np.int64),
        weight,
        hubs.astype(np.int64),
        coverage,
        weighted,
        current,
    )


def _found_by(finder: npt.NDArray[np.integer[Any]]) -> npt.NDArray[np.int64]:
    """Column `found_by`: 1 + ``finder``, the position of the page that links to it, or `discovery.START`."""
    return np.where(finder == NO_FINDER, discovery.START, finder.astype(np.int64) + 1)


_KEPT: Final = (
    "group", "found_by", *sizes.COLUMNS, *measured.COLUMNS, *measured.LINKED, *first_visits.COLUMNS,
    *hints.COLUMNS, *weights.COLUMNS,
)  # fmt: skip
"""State columns that visits do not change by `discovery.observe` and `terminals.observe`."""


class GrowthReplay:
    """State of a `replay_growth`: pages of the growing web, what the crawl knows of them, unseen changes."""

    def __init__(self, grown: GrowthHistory, crawl: GrowthCrawl) -> None:
        self._grown, self._crawl = grown, crawl
        history = grown.history
        pages = history.pages
        columns = {**terminals.STATE, **discovery.COLUMNS, **first_visits.COLUMNS, **hints.COLUMNS}
        self.state = {name: np.zeros(pages, dtype) for name, dtype in columns.items()}
        self.state["size"] = history.sizes
        functions = (crawl.score_function, crawl.hub_function, crawl.new_page_function)
        read = {name for function in functions if function is not None for name in function.columns}
        for function in functions:
            if function is not None:
                check_measured(history, function)
        self._is_linked = not measured.LINKED.keys().isdisjoint(read)
        self._distances = None
        if history.latency_ms is not None:
            self.state["latency_ms"] = history.latency_ms
        if history.flipped is not None:
            self._distances = ReplayedDistances(history.changed, history.flipped)
            self.state |= self._distances.columns
        self.began_with = grown.born == 0
        if crawl.from_start:
            self.began_with &= grown.finder == NO_FINDER
        self.known = self.began_with.copy()
        self._linked = self.known.copy()
        self.state["found_by"][:] = _found_by(grown.finder)
        self._outdated = np.zeros(pages, np.bool_)
        self.state["weight"] = history.weights
        self._weights = FixedPointWeights.of(history.weights, pages, history.cycles)
        self._keys = np.arange(pages, dtype=np.uint64) if history.key is None else history.key
        groups = history.neighbours.groups
        self.state["group"] = groups.group
        self._directories = groups.directories
        self._site_keys = np.array([Place(name, "/").site_key for name in history.site_labels], np.uint64)
        self._finished: list[npt.NDArray[Any]] = []
        self._links = grown.links
        if len(self._links):  # the finder of a page links to it
            linked = np.flatnonzero(grown.finder != NO_FINDER)
            by_finders = np.zeros(len(linked), LINK)
            by_finders["source"], by_finders["target"] = grown.finder[linked], linked
            self._links = np.concatenate((self._links, by_finders))
        self.claimed = ReplayedClaims(grown.claims, self._directories)
        self.claimed.begin(self.state, self.known)

    def open(self, cycle: int) -> None:
        self._number = cycle
        self._salt = draw_salt(self._crawl.seed, cycle)
        self._visited: list[Array] = []
        self._kinds: list[npt.NDArray[np.uint8]] = []
        self._beside = self._observed = np.empty(0, np.intp)
        self._spent = 0.0
        if self._is_linked:
            self.state["popularity"] = self._popularity()

    def _popularity(self) -> npt.NDArray[np.float64]:
        """PageRank of the pages that the crawl knows, by the links it has seen; 0 of the others, ``[P]``."""
        known = np.flatnonzero(self._linked)
        position = np.full(len(self._linked) + 1, NOWHERE, np.int32)
        position[known] = np.arange(len(known))
        links = numbered_links(self._grown.links, position)
        ends = (links[name].astype(np.intp) for name in ("source", "target"))
        finder = position[finder_pages(self.state["found_by"][known])].astype(np.intp)
        popularity = np.zeros(len(self._linked))
        popularity[known] = popularity_by_links(finder, Links(next(ends), next(ends), len(known)))
        return popularity

    def cycle(self, cycle: int) -> tuple[float, ...]:
        """Crawl a cycle; returns its values for the fields of `GrowthResult` from `visited` on."""
        self.open(cycle)
        exists = self._grown.born <= cycle
        changes = self._grown.history.changed[cycle - 1]
        self._outdated |= changes & self.known
        if self._distances is not None:
            self._distances.change(np.flatnonzero(changes))
        known_before = self.known.copy()
        warming = self.known & (self.state["n"] < self._crawl.warmup)
        settled = self.known & ~warming
        self._beside = np.flatnonzero(warming)
        self._open = settled & discovery.is_hub(self.state, cycle)
        planned = self._planned_first_visits()
        waiting = np.setdiff1d(np.flatnonzero(self._linked & ~self.known), planned)
        if len(waiting):  # a site with pages that wait for a later cycle needs no further ones
            self._open &= ~np.isin(self._site_of(np.arange(len(exists))), self._site_of(waiting))
        budget = budget_pages(self._crawl.budget, int(self._linked.sum()))
        share = min(budget, max(1, budget_pages(self._crawl.discovery, budget)))
        hubs = self._plan(TOP_K, self._crawl.hub_function, share if self._crawl.discovery else 0)
        self._open = settled
        self._open[self._seen()] = False
        self._plan(self._crawl.policy, self._crawl.score_function, budget - hubs)
        chosen = self._seen()
        visited = np.sort(np.concatenate((chosen, self._beside)))
        brought = self._discover(np.concatenate((chosen, self._beside, planned)), planned, exists)
        changed_pages = chosen[self._outdated[chosen]]
        changed = len(changed_pages)
        weight = math.ldexp(float(self._weights.fixed[changed_pages].sum()), -self._weights.bits)
        self._observe(visited, brought, known_before)
        fixed = self._weights.fixed
        current = fixed[self.known & ~self._outdated].sum() / max(1, fixed[exists].sum())
        coverage = self.known.sum() / max(1, exists.sum())
        weighted = fixed[self.known].sum() / max(1, fixed[exists].sum())
        return len(chosen), changed, weight, hubs, coverage, weighted, current

    def _plan(self, policy: PolicyChoice, function: ScoreFunction, budget: int) -> int:
        """Visit the pages that `policy` chooses in all rounds, none twice; return their number."""
        made = policy.make(PolicySettings(function, self._crawl.seed))
        planner: Policy = shared(made, self._crawl.site_share)
        start = len(self._seen())
        for number in rounds_of(planner) if budget > 0 and self._open.any() else ():
            spent = len(self._seen()) - start
            self._spent = spent / budget
            self._observed = np.concatenate((self._seen(), self._beside)) if number else self._observed[:0]
            self._begin = start
            chosen = choose(planner, Round(self._number, number, budget - spent), self)
            if planner.rounds is None and not len(chosen.pages):
                break
            self._visited.append(chosen.pages.astype(np.int64))
            self._kinds.append(chosen.kinds_of_pages())
            self._open[chosen.pages] = False
        return len(self._seen()) - start

    def _seen(self) -> npt.NDArray[np.int64]:
        return np.concatenate([np.empty(0, np.int64), *self._visited])

    def candidates(self) -> Iterator[Block]:
        yield self._block(np.flatnonzero(self._open))

    def _block(self, rows: npt.NDArray[np.intp]) -> Block:
        now = self._counted(self._observed)
        recent = RecentVisits(self._number, self._finished, now, self._spent)
        related = Related(
            self._directories,
            recent,
            self._site_sums,
            claims=lambda: self.claimed.site_claims(self.state, self._number),
            size_sums=self._size_sums,
        )
        state = RoundState(
            self.state, rows, related, lambda places: salted_draws(self._keys[places], self._salt)
        )
        return Block(
            rows.astype(np.uint32), state, lambda places: salted_draws(self._keys[rows[places]], self._salt)
        )

    def visits(self) -> CycleVisits:
        pages = self._observed
        kinds = np.concatenate([*self._kinds, np.full(len(self._beside), WARMUP, np.uint8)])
        return CycleVisits(
            pages.astype(np.uint32),
            np.where(self._outdated[pages], CHANGED, UNCHANGED).astype(np.uint8),
            kinds[: len(pages)],
        )

    def planned(self) -> Planned:
        """Pages that the policy chose in its rounds of this cycle so far."""
        kinds = np.concatenate([np.empty(0, np.uint8), *self._kinds])
        return Planned(self._seen()[self._begin :].astype(np.uint32), kinds[self._begin :])

    def may_visit(self, pages: Pages) -> npt.NDArray[np.bool_]:
        known = np.minimum(pages, len(self._open) - 1)
        return np.asarray(self._open[known] & (pages == known))

    def rows(self, pages: Pages) -> Block:
        return self._block(pages.astype(np.intp))

    def grouping(self, name: Name) -> Grouping:
        return self._grown.history.neighbours.grouping(name)

    def popularity(self) -> npt.NDArray[np.uint8]:
        return self._grown.history.neighbours.popularity()

    def _site_sums(self) -> PageSums:
        site = self._directories.site[self.state["group"]]
        return PageSums.by(site, self._directories.sites, self.state["E"], self.state["T"])

    def _size_sums(self) -> PageSums:
        return PageSums.by(self.state["size"], sizes.CLASSES, self.state["E"], self.state["T"])

    def _counted(self, pages: Array) -> npt.NDArray[Any]:
        state = {name: self.state[name][pages] for name in ("E", "T", "last_cycle")}
        predicted = terminals.change_probability(state, self._number)
        is_warmup = self.state["n"][pages] < self._crawl.warmup
        return count_visits(self.state["group"][pages], self._outdated[pages], predicted, is_warmup)

    def _planned_first_visits(self) -> Array:
        """Pages known since earlier cycles that get their first visit now, in order."""
        waiting, most = np.flatnonzero(self._linked & ~self.known), self._crawl.new_pages
        if most is None or not len(waiting):
            return waiting
        site, found_by = self._site_of(waiting), self.state["found_by"]
        entered, drawn = self.state["entered"][waiting], salted_draws(self._keys[waiting], self._salt)
        function = self._crawl.new_page_function
        if function is None:
            pages = WaitingPages(waiting, site, found_by[waiting], entered, drawn)
            return by_turns(pages, self._number)[:most]
        links = columns_of_links(
            waiting,
            np.where(self._linked, found_by, 0),
            entered,
            self._number,
            lambda ids: {name: self.state[name][ids] for name in FINDER},
        )
        links |= counted_links({name: self.state[name][waiting] for name in first_visits.COLUMNS})
        state = self._block(waiting.astype(np.intp)).state
        columns = {name: state[name] for name in function.columns if name not in links}
        scores = function.scores({**links, **columns}, self._number)
        return waiting[best_first(scores, site, drawn, most)]

    def _site_of(self, pages: Array) -> Array:
        return self._directories.site[self.state["group"][pages]]

    def _discover(self, order: Array, planned: Array, exists: Bools) -> npt.NDArray[np.int64]:
        """Fetch pages that the cycle's visits link to, as many as the cap allows.

        Returns how many new pages each page brought, ``[P]``. ``order``: pages visited in this cycle, in the
        order in which their links are followed; ``planned``: those that were first visits by plan.
        """
        finder, found_by = self._grown.finder, self.state["found_by"]
        links = self._links[exists[self._links["target"]]]
        brought = np.zeros(len(finder), np.int64)
        counts = FirstVisits(lambda pages: self._site_of(np.array(pages)).tolist(), self._crawl.new_pages)
        counts.count(planned.tolist())
        self._visit_first(planned)
        visits = np.concatenate(([NO_FINDER], order))
        while len(visits):
            turn = np.full(len(finder) + 1, len(visits))
            turn[visits] = np.arange(len(visits))
            first = turn[finder]
            np.minimum.at(first, links["target"], turn[links["source"]])
            linked = np.flatnonzero(exists & ~self._linked & (first < len(visits)))
            linked = linked[np.argsort(first[linked], kind="stable")]
            finders = visits[first[linked]]
            np.add.at(brought, finders[finders != NO_FINDER], 1)
            found_by[linked] = _found_by(finders)
            self._linked[linked] = True
            self.state["entered"][linked] = self._number
            self._count_links(links[turn[links["source"]] < len(visits)])
            if self._crawl.new_pages is not None:
                new_links = zip(linked.tolist(), found_by[linked].tolist(), strict=True)
                linked = np.array([page for page, by in new_links if counts.takes(page, by)], np.intp)
            if not len(linked) and counts.has_waiting:
                linked = np.array(counts.next_turns(), np.intp)
            self._visit_first(linked)
            visits = linked
        return brought

    def _count_links(self, links: Array) -> None:
        links = links[~self.known[links["target"]]]
        source = links["source"]
        site_keys = self._site_keys[self._grown.history.site[source]]
        bits = {"link": bit_of(self._keys[source]), "link_site": bit_of(site_keys)}
        for what, values in (bits | {"anchor": links["anchor"]}).items():
            notes = np.empty(len(links), NOTE)
            notes["what"], notes["value"] = WHAT.index(what), values
            apply_links(self.state, links["target"].astype(np.intp), notes)

    def _visit_first(self, pages: Array) -> None:
        self.known[pages] = True
        for name in ("first_cycle", "last_cycle", "found_cycle", "brought_cycle"):
            self.state[name][pages] = self._number

    def _observe(self, visited: Array, brought: Array, known_before: Bools) -> None:
        """Update the state columns at a cycle's end; ``brought``: new pages that each page led to."""
        judged = visited[known_before[visited]]
        new = np.flatnonzero(self.known & ~known_before)
        claims_after_visits = self.claimed.before(
            self.state, judged, self._outdated[judged], self.known, new, self._number
        )
        self._finished = [self._counted(judged), *self._finished[: KEPT_CYCLES - 1]]
        state = {name: column[judged] for name, column in self.state.items() if name not in _KEPT}
        discovery.observe(state, brought[judged], self._number)
        terminals.observe(state, self._outdated[judged], self._number)
        for name, column in state.items():
            self.state[name][judged] = column
        if self._distances is not None:
            self._distances.visit(judged)
            self._distances.visit(np.flatnonzero(~self.known), is_first=True)
            self._distances.visit(new, is_first=True)
        self._outdated[judged] = False
        claims_after_visits()
