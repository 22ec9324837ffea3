"""Control group: a fixed random share of the pages (``GP4C_PANEL``), which estimates figures of all pages.

A crawl that visits the pages most likely to have changed cannot tell what happens on the others. Pages of the
control group can: each is visited in every cycle, and each keeps beside its real state a *shadow*, the state
that it would have as an ordinary page: visited only in cycles in which its score, computed from that state
and from what a round could know of related pages, reaches the cut of that round's ranking. The group is a
simple random sample of all pages, so the shadows that a cycle leaves unvisited are a simple random sample of
the pages that it leaves unvisited, and the share of them whose copy is out of date estimates the share out
there. docs/lab/closing-the-loop.md explains both with an example.

A score may read what visits found on related pages (of the same directory, site or cluster). The columns
that tell a shadow this must leave out the visits to its own page, which is visited in every cycle: the shadow
would otherwise be visited just when its page has changed. They count the visits that the page would have had
as an ordinary one instead (`LeaveOneOut`). S is the number of shadows.

Interval: E. B. Wilson 1927, "Probable inference, the law of succession, and statistical inference", JASA
22, with the effective sample size of a prediction from m sampled pages to M others, m * M / (m + M).
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.arrays import Array, Bools, Floats
from scrapy_gp4c.crawling.neighbourhood import KnownPages, Neighbourhood, columns_in_order
from scrapy_gp4c.crawling.planning import has_cut, ranks_all
from scrapy_gp4c.errors import ExpressionError, ScoreError
from scrapy_gp4c.fingerprint import differ
from scrapy_gp4c.foreign_text import counted
from scrapy_gp4c.page_state import columns
from scrapy_gp4c.page_state.claims import KINDS_OF
from scrapy_gp4c.page_state.columns import Columns, in_panel
from scrapy_gp4c.page_state.groupings import NOWHERE
from scrapy_gp4c.page_state.groups import KEPT_CYCLES
from scrapy_gp4c.page_state.outcomes import CHANGED, FIRST, JUDGED, KINDS, NOT_MODIFIED, among
from scrapy_gp4c.page_state.related import (
    BY_DIRECTORY,
    WINDOW_CYCLES,
    Level,
    Related,
    RoundColumns,
    RoundState,
    Sums,
    near,
    share,
    so_far,
    surprise,
)
from scrapy_gp4c.policies.base import CycleVisits
from scrapy_gp4c.policies.table import TOP_K, columns_read
from scrapy_gp4c.scoring import (
    discovery,
    functions,
    hints,
    measured,
    rates,
    refresh_value,
    sizes,
    terminals,
    weights,
)
from scrapy_gp4c.scoring.functions import ScoreFunction
from scrapy_gp4c.scoring.ranking import draw_salt, draws_of
from scrapy_gp4c.settings import Settings
from scrapy_gp4c.store.opening import Store
from scrapy_gp4c.store.records import SHADOW, CycleRecord, PanelEstimates, ShareEstimate

Z_95: Final = 1.959963984540054
"""97.5% quantile of the normal distribution."""


class Interval(NamedTuple):
    """An estimated share of pages with its 95% interval."""

    estimate: float
    low: float
    high: float


def predict(changed: int, sampled: int, others: int) -> Interval | None:
    """Estimate which share of `others`, a number of unvisited pages, changed, by a random sample of pages.

    ``sampled``: size of the sample; ``changed``: how many of it changed. Wilson's interval, see the module's
    text, with m = `sampled` and M = `others`; None if either is 0.
    """
    if not sampled or not others:
        return None
    share = changed / sampled
    n = sampled * others / (sampled + others)
    centre = (share + Z_95**2 / (2.0 * n)) / (1.0 + Z_95**2 / n)
    half = Z_95 / (1.0 + Z_95**2 / n) * math.sqrt(share * (1.0 - share) / n + (Z_95 / (2.0 * n)) ** 2)
    # Rounding must not take the estimate out of its own interval, nor this out of [0, 1].
    return Interval(share, max(0.0, min(share, centre - half)), min(1.0, max(share, centre + half)))


class Tally(NamedTuple):
    """Numbers of pages of the control group in a cycle, from which `estimates` are made."""

    judged: int
    """Pages whose visit told whether they had changed."""
    unchosen: int
    """Judged pages that the cycle would not have visited as ordinary pages, by their shadows."""
    outdated: int
    """Unchosen pages whose copy would be out of date, by their shadows."""


def estimates(tally: Tally, copies: int, judged: int, changed: int, first: int) -> PanelEstimates | None:
    """Return estimates for all pages of the store, as the cycle record holds them; None without a sample.

    ``tally``: of the control group; ``copies``: number of pages with a copy, and not gone, before the cycle;
    ``judged``: number of all visits of the cycle that told whether a page changed; ``changed``: number of
    these that found a change; ``first``: number of first visits.

    Returned are ``changed_share``, the share of the pages with a copy that had changed since their last
    visit, before the visits of the cycle, and ``freshness``, the share of the copies that are current after
    them. Visited pages are known; the others are estimated by the control group.
    """
    others = max(0, copies - judged)
    share = predict(tally.outdated, tally.unchosen, others)
    if not copies or (others and share is None):
        return None
    outdated = Interval(*(others * value for value in share or (0.0, 0.0, 0.0)))
    before = Interval(*((changed + pages) / copies for pages in outdated))
    after = [1.0 - pages / (copies + first) for pages in outdated]
    return {
        "judged": tally.judged,
        "unchosen": tally.unchosen,
        "outdated": tally.outdated,
        "changed_share": {"estimate": before.estimate, "low": before.low, "high": before.high},
        "freshness": {"estimate": after[0], "low": after[2], "high": after[1]},
    }


def describe_estimates(estimated: PanelEstimates | None) -> str:
    """Return estimates in words, as the end of a log line; "" for None."""
    if estimated is None:
        return ""

    def percent(share: ShareEstimate) -> str:
        return f"{share['estimate']:.1%} ({share['low']:.1%} to {share['high']:.1%})"

    pages = counted(estimated["judged"], "page")
    changed, current = percent(estimated["changed_share"]), percent(estimated["freshness"])
    return (
        f"; by a panel of {pages}, {changed} of the pages had changed since our last visit, and {current} of "
        "the copies are current"
    )


def new_shadows(pages: npt.NDArray[np.uint32], state: columns.Columns) -> Array:
    """Return first shadows, dtype `SHADOW` ``[S]``, of pages that enter the control group: their own state.

    ``pages``: ids, uint32 ``[S]``; ``state``: columns of these pages, each ``[S]``.
    """
    shadows = np.zeros(len(pages), SHADOW)
    shadows["page"] = pages
    for name in ("key", *terminals.STATE):
        shadows[name] = state[name]
    shadows["current"] = shadows["copy"] = state["fingerprint"]
    return shadows


class PanelVisits(NamedTuple):
    """Visits of the open cycle to the pages of the control group: an entry for each shadow, ``[S]``."""

    state: Mapping[str, Array]
    """Page columns (the real state, not the shadow's)."""
    judged: Bools
    """Whether there was a visit that told whether the page had changed."""
    changed: Bools
    """Whether that visit found a change."""
    predicted: npt.NDArray[np.float64]
    """Probability of a change before that visit; 0 without a visit."""

    def only(self, seen: Bools) -> "PanelVisits":
        """Return these visits with all that are not `seen` (bool ``[S]``) marked as no visits."""
        return PanelVisits(self.state, self.judged & seen, self.changed & seen, self.predicted * seen)


def panel_visits(
    pages: KnownPages, shadows: Array, visits: Array, cycle: int
) -> tuple[PanelVisits, npt.NDArray[np.intp]]:
    """Return the judged visits among `visits`, of the open cycle, to the control group, and their positions.

    Positions in `visits` are ``[S]``: ``len(visits)`` for a page without a judged visit. ``shadows``: dtype
    `SHADOW` ``[S]``.
    """
    ids = np.ascontiguousarray(shadows["page"])
    state = columns_in_order(pages, ids)
    places = np.flatnonzero(among(visits["outcome"], JUDGED))
    _, rows, visit_rows = np.intersect1d(ids, visits["page"][places], assume_unique=True, return_indices=True)
    judged, changed = np.zeros((2, len(ids)), np.bool_)
    judged[rows] = True
    changed[rows] = visits["outcome"][places[visit_rows]] == CHANGED
    position = np.full(len(ids), len(visits))
    position[rows] = places[visit_rows]
    predicted = rates.whole_units(terminals.change_probability(state, cycle)) * judged
    return PanelVisits(state, judged, changed, predicted), position


class LeaveOneOut:
    """Columns of related pages for shadows in a round; each as if its own page were an ordinary one.

    A shadow is a page of the control group, ranked as if it were none.
    """

    def __init__(self, related: Related, shadows: Array, panel: PanelVisits, cycle: int) -> None:
        self._related = related
        self._shadows = shadows
        self._panel = panel
        self._cycle = cycle

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns of related pages, as of `Related`."""
        return self._related.names

    def column(self, name: str, state: Mapping[str, Array], rows: int) -> Array:
        """Compute column `name` for all shadows, ``[S]``; ``state``: their other columns; ``rows``: S."""
        groups = state["group"]
        level: Level = "directory" if name in BY_DIRECTORY else "site"
        if name == "near":
            return near(
                self._window("directory", groups), self._window("site", groups), self._window(None, groups)
            )
        if name in ("near_dir", "near_site"):
            return share(*self._window(level, groups))
        if name in ("surprise_dir", "surprise_site"):
            return surprise(self._since(level, state))
        if name in ("site_now", "directory_now"):
            sums, of_page = self._related.this_cycle(level), self._rows(level, groups)
            now = Sums(sums.changes[of_page] - self._panel.changed, sums.visits[of_page] - self._panel.judged)
            return so_far(now, self._window(level, groups))
        if name in terminals.CLUSTERED:
            return self._of_clusters(state["cluster"], including_now=name == "cluster_now")
        if name == "site_rate":
            return self._site_rate(groups)
        return self._related.column(name, state, rows)

    def _rows(self, level: Level, groups: Array) -> Array:
        return groups if level == "directory" else self._related.sites_of(groups)

    def _window(self, level: Level | None, groups: Array) -> Sums:
        """Return changes and visits of each shadow's directory or site in the last `WINDOW_CYCLES` and now.

        Visits to the shadow's page are replaced by those that it would have had as an ordinary page.
        ``level``: directory or site, None: all pages; ``groups``: directory of each page, ``[S]``.
        """
        if level is None:
            changes, visits = self._related.crawl
        else:
            rows = self._rows(level, groups)
            changes, visits = (one[rows] for one in self._related.window(level))
        changes = changes + self._last("outdated", WINDOW_CYCLES) - self._last("changed", WINDOW_CYCLES)
        visits = visits + self._last("visited", WINDOW_CYCLES) - self._last("judged", WINDOW_CYCLES)
        return Sums(changes - self._panel.changed, visits - self._panel.judged)

    def _of_clusters(self, clusters: Array, including_now: bool) -> Floats:
        """Return the changed share of recent visits to each shadow's cluster (`clusters`, ``[S]``).

        Visits to the shadow's page are replaced as in `_window`. ``including_now``: count this cycle too.
        """
        now, recent = (
            Sums(*(sums[clusters] for sums in sums_of_groups))
            for sums_of_groups in self._related.of_clusters()
        )
        counted = clusters != NOWHERE
        outdated, changed, visited, judged = (
            counted * self._last(name, WINDOW_CYCLES).astype(np.float64)
            for name in ("outdated", "changed", "visited", "judged")
        )
        recent = Sums(recent.changes + outdated - changed, recent.visits + visited - judged)
        if not including_now:
            return share(*recent)
        now = Sums(now.changes - counted * self._panel.changed, now.visits - counted * self._panel.judged)
        return so_far(now, Sums(now.changes + recent.changes, now.visits + recent.visits))

    def _last(self, name: str, cycles: int | Array) -> Array:
        """Return in how many of the last `cycles` finished ones each shadow's bit `name` is set: ``[S]``.

        ``name``: as "judged", see `remember_cycle`.
        """
        bits = np.left_shift(1, cycles) - 1
        return np.asarray(np.bitwise_count(self._shadows[name] & bits))

    def _since(self, level: Level, state: Mapping[str, Array]) -> Sums:
        """Return changes found, and expected, in each shadow's directory or site since its own last visit.

        Those of the shadow's page are left out.
        """
        sums = self._related.since(level)
        cycles = np.minimum(self._cycle - 1 - state["last_cycle"], sums.changes.shape[1] - 1)
        index = self._rows(level, state["group"]), cycles
        predicted = self._panel.predicted.copy()
        for n in range(1, KEPT_CYCLES + 1):
            predicted += self._shadows[f"predicted_{n}"] * (cycles >= n)
        return Sums(
            sums.changes[index] - self._last("changed", cycles) - self._panel.changed,
            sums.visits[index] - predicted,
        )

    def _site_rate(self, groups: Array) -> Array:
        sums, rows = self._related.site_sums(), self._related.sites_of(groups)
        state = self._panel.state
        return rates.rate_of_group(
            sums.expected[rows] - state["E"] + self._shadows["E"],
            sums.cycles[rows] - state["T"] + self._shadows["T"],
        )


def remember_cycle(shadows: Array, panel: PanelVisits | None, visited: Array, outdated: Array) -> None:
    """Add a cycle to the shadows' columns about the last cycles, in place.

    ``panel``: real visits of the cycle, None where the score reads no related pages; ``visited``: indices of
    the shadows that the cycle would have visited; ``outdated``: those of them that it would have found
    changed.
    """
    for name in ("judged", "changed", "visited", "outdated"):
        shadows[name] <<= 1
    for n in range(KEPT_CYCLES, 1, -1):
        shadows[f"predicted_{n}"] = shadows[f"predicted_{n - 1}"]
    shadows["predicted_1"] = 0.0
    if panel is not None:
        shadows["judged"] |= panel.judged
        shadows["changed"] |= panel.changed
        shadows["visited"][visited] |= 1
        shadows["outdated"][outdated] |= 1
        shadows["predicted_1"] = panel.predicted


def choose_shadows(
    pages: KnownPages,
    visits: Array,
    shadows: Array,
    record: CycleRecord,
    warmup_visits: int,
    function_in_use: ScoreFunction | None = None,
) -> tuple[Bools, PanelVisits | None]:
    """Return which shadows the open cycle would have visited, bool ``[S]``, and the visits to their pages.

    The visits are None where the score depends on no related page. Call it before the cycle is closed. In
    every round shadows are ranked by the formula, clock and seed of the cycle's `record`, even if settings
    have changed since. ``visits``: those of the cycle, dtype `VISIT`; ``shadows``: dtype `SHADOW` ``[S]``, as
    the cycle before left them; ``function_in_use``: function to take if it has that formula.
    """
    plan, cycle = record["plan"], record["cycle"]
    visited = np.asarray(shadows["n"] < warmup_visits)
    if ranks_all(plan):
        return np.ones(len(shadows), np.bool_), None
    if not plan["ranked"]:
        return visited, None
    function = functions.recorded(record["formula"], function_in_use).on_clock(record["clock"])
    needed = ("n", *columns_read(function, TOP_K))
    neighbourhood = Neighbourhood(pages, cycle, needed)
    columns = {name: np.ascontiguousarray(shadows[name]) for name in terminals.STATE if name in needed}
    own_pages = None
    if neighbourhood.is_needed:
        own_pages, position = panel_visits(pages, shadows, visits, cycle)
        columns["group"] = own_pages.state["group"]
        columns = dict(neighbourhood.columns(columns, shadows["page"]))
    columns |= _page_columns(pages, shadows["page"], needed)
    cycle_visits = CycleVisits.of(visits)
    draw = draws_of(np.ascontiguousarray(shadows["key"]), draw_salt(record["seed"], cycle))
    site = _sites(pages, shadows["page"]) if any(plan.get("site_cuts", ())) else np.empty(0, np.uint64)
    for cut, site_cuts, seen, spent in _rounds(record):
        related = neighbourhood.seen_by(cycle_visits.first(seen), spent)
        round_columns: RoundColumns = related
        if own_pages is not None:
            round_columns = LeaveOneOut(related, shadows, own_pages.only(position < seen), cycle)
        state = RoundState(columns, slice(None), round_columns, draw)
        scores = function.scores(state, cycle)
        least, tie = np.full(len(scores), cut[0]), np.full(len(scores), cut[1], np.uint64)
        for key, *site_cut in site_cuts:
            is_of_site = site == np.uint64(key)
            least[is_of_site], tie[is_of_site] = site_cut
        visited |= (scores > least) | ((scores == least) & (state["draw"] <= tie))
    return visited, own_pages


def _sites(known: KnownPages, pages: Array) -> Array:
    group = columns_in_order(known, pages, ("group",))["group"]
    return np.asarray(known.site_keys()[group])


def _page_columns(known: KnownPages, pages: Array, needed: Sequence[str]) -> Columns:
    """Return those of the `needed` columns that only pages have, not shadows: sizes, weights, claims etc."""
    optional = (discovery, sizes, measured, refresh_value, weights)
    names = [name for module in optional for name in module.COLUMNS if name in needed]
    if not {*hints.COLUMNS, *KINDS_OF}.isdisjoint(needed):
        names += hints.COLUMNS
    state = columns_in_order(known, pages) if names else {}
    return {name: state[name] for name in names if name in state}


class _Ranking(NamedTuple):
    """Last page that a planned round chose by score, and what was known when the round was planned."""

    cut: tuple[float, int]
    """Score and draw of the last page chosen."""
    of_sites: list[tuple[int, float, int]]
    """Key, score and draw of the last page of each site that had its share of the budget."""
    seen: int
    """Number of the cycle's visits that the round saw."""
    spent: float
    """Share of the budget that earlier rounds used."""


def _rounds(record: CycleRecord) -> Iterator[_Ranking]:
    plan = record["plan"]
    outside_policy = sum(plan[kind] for kind in ("hub", "panel", "warmup", "new"))
    planned = 0
    of_sites = plan.get("site_cuts") or [[] for _ in record["rounds"]]
    for cut, cuts_of_sites, counts in zip(plan["cuts"] or (), of_sites, record["rounds"], strict=False):
        if cut is not None:
            spent = max(0, planned - outside_policy)
            yield _Ranking(
                cut, cuts_of_sites, counts["seen"], spent / plan["budget"] if plan["budget"] else 0.0
            )
        planned += counts["planned"]


def advance(
    pages: KnownPages,
    visits: Array,
    shadows: Array,
    record: CycleRecord,
    warmup_visits: int,
    distance_bits: int,
    function_in_use: ScoreFunction | None = None,
) -> tuple[Array, Tally]:
    """Return the shadows after a cycle whose visits are done, and its `Tally`; `close_cycle` calls it.

    ``visits``: those of the cycle, dtype `VISIT`; ``shadows``: dtype `SHADOW` ``[S]`` as the cycle before
    left them; ``record``: of the cycle, with all rounds; ``function_in_use``: see `choose_shadows`. The
    shadow of a page without a judged visit in this cycle (an error, a rest after errors) stays as it is; the
    page's next judged visit covers the time since.
    """
    judged_visits = visits[["page", "outcome", "fingerprint"]][np.isin(visits["outcome"], JUDGED)]
    _, rows, of_visit = np.intersect1d(
        shadows["page"], judged_visits["page"], assume_unique=True, return_indices=True
    )
    current = np.ascontiguousarray(shadows["current"])
    compared = judged_visits["outcome"][of_visit] != NOT_MODIFIED
    current[rows[compared]] = judged_visits["fingerprint"][of_visit[compared]]
    outdated = differ(current, np.ascontiguousarray(shadows["copy"]), distance_bits)[rows]
    would_visit, panel = choose_shadows(pages, visits, shadows, record, warmup_visits, function_in_use)
    visited = would_visit[rows]
    tally = Tally(len(rows), int((~visited).sum()), int((outdated & ~visited).sum()))

    shadows = shadows.copy()
    shadows["current"] = current
    remember_cycle(shadows, panel, rows[visited], rows[visited & outdated])
    rows, outdated = rows[visited], outdated[visited]
    state = {name: shadows[name][rows] for name in terminals.STATE}
    terminals.observe(state, outdated, record["cycle"])
    for name, values in state.items():
        shadows[name][rows] = values
    shadows["copy"][rows] = current[rows]
    return shadows, tally


def close_cycle(store: Store, record: CycleRecord, settings: Settings) -> PanelEstimates | None:
    """Store the shadows after the open cycle, and return the estimates that they allow, for its record.

    None where there is no control group, where the policy has no score below which it leaves pages out, or
    where the recorded formula cannot be computed.

    Call it before the cycle's visits are applied to the columns. The store keeps the shadows of the cycle
    before too, so that a cycle that is resumed after a kill can be closed from them again.
    """
    plan, distance_bits = record.get("plan"), settings.distance_bits
    if settings.panel <= 0.0 or plan is None or not has_cut(plan):
        return None
    cycle, visits = record["cycle"], store.open_visits()
    shadows = store.shadows(cycle - 1)
    shadows = shadows[in_panel(np.ascontiguousarray(shadows["key"]), settings.panel)]
    entering = np.setdiff1d(visits["page"][visits["kind"] == KINDS.index("panel")], shadows["page"])
    shadows = np.concatenate((shadows, new_shadows(entering, store.columns_of(entering))))
    try:
        function, warmup_visits = settings.score_function, settings.warmup_visits
        shadows, tally = advance(store, visits, shadows, record, warmup_visits, distance_bits, function)
    except (ScoreError, ExpressionError):
        return None
    store.put_shadows(cycle, shadows)
    outcome = visits["outcome"]
    judged, changed, first = (int(np.isin(outcome, codes).sum()) for codes in (JUDGED, (CHANGED,), (FIRST,)))
    return estimates(tally, plan["copies"], judged, changed, first)
