"""The experiment of Pandey & Olston 2005, section 6: search quality by budget, for policies of refreshing.

All copies are current at first; then a budget of pages is refreshed in every cycle. Quality is that of the
search engine's answers to a workload of queries, mean over the cycles, each after its refreshes. What a
policy knows of pages is estimated from the whole of the cycles, as in the paper (section 6.2), from the first
half and judged on the second, or from its own visits alone. SBR and EBR are the paper's staleness-based and
embarrassment-based refreshing. Arrays ``[P]`` have a number for each page.
"""

import difflib
import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Final, Literal, NamedTuple, get_args

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from scrapy_gp4c.arrays import Floats, Ints
from scrapy_gp4c.scoring import refresh_value
from scrapy_gp4c.search.gains import PIECES
from training.comparing.evaluation import markdown, write_json, write_rows, write_text
from training.comparing.statistics import RankCorrelation, rank_correlation
from training.evolution.evolve import Json
from training.histories.contents import read_contents
from training.histories.history import ChangeHistory
from training.replaying.baselines import (
    UpdateHistory,
    allocated_visits,
    mean_by_page,
    timetable,
    with_oldest,
)
from training.replaying.metrics import CONTENTS
from training.replaying.prepared import prepare
from training.replaying.refresh_value import QualityMeasure, link_importance, refitted_values, refresh_values
from training.replaying.replay import run
from training.replaying.search import Corpus, VersionSearch, WorkloadPlan, above_knee, count, draw, search
from training.reporting.figures import STYLES, finish, new_figure, write_figures

Estimate = Literal["whole", "half", "observed"]
ESTIMATES: Final[tuple[Estimate, ...]] = get_args(Estimate)

BUDGETS: Final = (0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.10, 0.15, 0.20, 0.30, 0.40)
TAUS: Final = tuple(step / 10 for step in range(11))
OWN_VISITS: Final = {
    "user-centric": "user-centric",
    "dq_decay": "dq_decay * t + 1e-9 * t",
    "dq_last": "dq_last * t + 1e-9 * t",
    "t*X": "t * X",
    "age": "t",
}
"""Policy that estimates from its own visits alone -> its score function."""


class RefreshPoint(NamedTuple):
    """Search quality that a policy reaches at a budget."""

    policy: str
    share: float
    """Budget: share of the pages refreshed per cycle."""
    refreshes: int
    quality: float
    """Search quality, mean over the judged cycles."""
    impact: float
    """1 - estimated loss of the copies / estimated loss of copies never refreshed."""
    tau: float | None
    """Threshold of `TAUS` with the best quality; None for policies without a threshold."""


class Judged(NamedTuple):
    """Quality of the copies that a policy's refreshes keep, mean over the judged cycles."""

    quality: float
    impact: float


@dataclass(frozen=True, eq=False)
class Trial:
    """Data set under one scoring function, with its workload and the cycles to judge."""

    name: str
    corpus: Corpus
    """Statistics of the workload's terms."""
    how: QualityMeasure
    search: VersionSearch
    history: ChangeHistory
    """History with the values of refreshes."""
    first: int
    """Cycle in which all copies are current; quality is measured in later cycles (the judged ones)."""
    last: int
    """Last cycle that estimates are made from."""
    seed: int
    refit_cycles: int = 0
    """Number of cycles after which `search.gains.Refit` (rank functions, idf) is made anew; 0: never."""

    @property
    def pages(self) -> int:
        return self.history.pages

    @property
    def judged(self) -> int:
        return self.history.cycles - self.first

    @cached_property
    def updates(self) -> "Updates":
        return updates_of(self, 1, self.last)

    @cached_property
    def clicks(self) -> Floats:
        """Expected clicks of every page: ``[P]``."""
        return self.search.clicks(self.last)

    def judge(self, chosen: Callable[[int, Ints], Ints]) -> Judged:
        """Measure the quality of copies that a policy refreshes.

        ``chosen(cycle, last)``: pages to refresh in a cycle; ``last``: cycle of each last refresh, ``[P]``.
        """
        live = self.search.live
        held = live[self.first].copy()
        last = np.full(self.pages, self.first)
        rows = []
        for cycle in range(self.first + 1, self.history.cycles + 1):
            pages = chosen(cycle, last)
            held[pages] = live[cycle, pages]
            last[pages] = cycle
            rows.append(held.copy())
        return Judged(float(self.search.quality(np.array(rows)).mean()), self._impact(rows))

    def _impact(self, rows: list[npt.NDArray[np.int32]]) -> float:
        impact = self.history.impact
        assert impact is not None
        first = self.corpus.contents.first_version[:-1]
        after = impact.version[self.first + 1 :]
        lost = sum(impact.between(row - first, live).sum() for row, live in zip(rows, after, strict=True))
        return 1.0 - float(lost) / (float(impact.unrefreshed(self.first).sum()) or 1.0)


class Updates(NamedTuple):
    """Updates of pages, and what a refresh right after each would gain; arrays are ``[updates]``."""

    page: Ints
    gap: Ints
    """Cycles since the update before, or since cycle 0."""
    gained: Floats
    """Gain of quality (delta-Q_A) by a refresh right after the update, in ppm."""
    difference: Floats
    """Share of the text's shingles that differ from those before the update."""
    version: npt.NDArray[np.int32]


def updates_of(trial: Trial, first: int, last: int) -> Updates:
    """Updates of all pages in the cycles first..last."""
    contents, impact = trial.corpus.contents, trial.history.impact
    assert impact is not None
    cycle, page = np.nonzero(contents.history.changed)
    order = np.lexsort((cycle, page))
    cycle, page = cycle[order] + 1, page[order]
    begins = np.concatenate(([True], page[1:] != page[:-1]))
    before = np.where(begins, 0, np.concatenate(([0], cycle[:-1])))
    new = contents.version[cycle, page]
    nth = new - contents.first_version[page]
    within = (cycle >= first) & (cycle <= last)
    if trial.refit_cycles:
        gained = refitted_values(trial.corpus, trial.how, page, cycle, nth, trial.refit_cycles)
    else:
        gained = impact.between(nth - 1, nth, page)
    difference = trial.corpus.difference[new]
    return Updates(page[within], (cycle - before)[within], gained[within], difference[within], new[within])


def prepared(
    name: str,
    corpus: Corpus,
    how: QualityMeasure,
    estimate: Estimate = "whole",
    seed: int = 1,
    refit_cycles: int = 0,
) -> Trial:
    """Make the `Trial` of a data set (``name``), with the values of refreshes.

    ``how``: scoring of the search; ``estimate``: cycles whose updates a policy knows; others: see `Trial`.
    """
    versions = search(corpus, how.workload, how.scoring, how.importance)
    history = replace(corpus.contents.history, impact=refresh_values(corpus, how, versions))
    middle = history.cycles // 2
    first, last = (middle, middle) if estimate == "half" else (0, history.cycles)
    return Trial(name, corpus, how, versions, history, first, last, seed, refit_cycles)


def rates_of(trial: Trial) -> dict[str, Floats]:
    """Return forecasts of each page's gain per cycle by a refresh: policy -> ``[P]``.

    ``user-centric``: mean, over refreshes right after each update, of the gain per cycle since the update
    before (section 6.1.3). ``user-centric per cycle``: sum of these gains, divided by all cycles.
    """
    updates = trial.updates
    mean = mean_by_page(updates.page, updates.gained / updates.gap, trial.pages)
    total = np.bincount(updates.page, updates.gained, trial.pages) / trial.last
    return {"user-centric": mean, "user-centric per cycle": total}


def points(
    trial: Trial, shares: Sequence[float] = BUDGETS, taus: Sequence[float] = TAUS, observed: bool = False
) -> Iterator[RefreshPoint]:
    """Yield the results of every policy at every budget; if ``observed``, only of those in `OWN_VISITS`.

    ``taus``: thresholds of SBR and EBR, of which the best counts.
    """
    with ThreadPoolExecutor(2) as pool:  # the compiled loops release Python's lock
        for share in shares:
            budget = max(1, math.floor(share * trial.pages + 0.5))
            tasks = {name: text for name, text in OWN_VISITS.items() if observed or name in ("t*X", "age")}
            replays = {name: pool.submit(_own_visits, trial, text, budget) for name, text in tasks.items()}
            forecasts = {} if observed else rates_of(trial)
            ranked = {
                name: pool.submit(trial.judge, _by_priority(rate, budget)) for name, rate in forecasts.items()
            }
            timed = {
                (name, tau): pool.submit(trial.judge, _in_slots(trial, name, tau, budget))
                for name in ("SBR", "EBR")
                for tau in (() if observed else taus)
            }
            for name, future in (ranked | replays).items():
                yield RefreshPoint(name, share, budget, *future.result(), None)
            for name in dict.fromkeys(name for name, _ in timed):
                best = max((one.result(), -tau) for (policy, tau), one in timed.items() if policy == name)
                yield RefreshPoint(name, share, budget, *best[0], -best[1])


def _own_visits(trial: Trial, text: str, budget: int) -> Judged:
    history = trial.history.take(cycles=slice(trial.first, None))
    prepared = prepare(history, budget=budget, warmup=0, seed=trial.seed)
    result = run(prepared, text, metrics=tuple(CONTENTS))
    return Judged(*(float(getattr(result, name).mean()) for name in Judged._fields))


def _by_priority(rate: Floats, budget: int) -> Callable[[int, Ints], Ints]:
    """Return a function for `Trial.judge` that chooses the pages of highest rate * cycles since a refresh."""

    def chosen(cycle: int, last: Ints) -> Ints:
        waited = cycle - last
        return np.argsort(-(rate * waited + 1e-9 * waited), kind="stable")[:budget]

    return chosen


def _in_slots(trial: Trial, policy: str, tau: float, budget: int) -> Callable[[int, Ints], Ints]:
    """Return a function for `Trial.judge`: `planned_refreshes`, and then pages refreshed longest ago."""
    rows = planned_refreshes(trial, policy, tau, budget)

    return lambda cycle, last: with_oldest(rows[cycle - trial.first - 1], last, budget)


def planned_refreshes(trial: Trial, policy: str, tau: float, budget: int) -> list[Ints]:
    """Pages that SBR or EBR plans to refresh in each judged cycle; some of the budget may be left."""
    updates = trial.updates
    known = UpdateHistory(updates.page, updates.difference, trial.clicks, trial.last)
    visits = allocated_visits(known, policy.lower(), tau, budget, trial.judged)
    return timetable(visits, budget, trial.judged, trial.seed)


class Needed(NamedTuple):
    """Budget that a policy needs for a quality."""

    policy: str
    quality: float
    share: float | None
    ratio: float | None
    """Ratio to the share that the user-centric policy needs."""


def resources(points_tried: Sequence[RefreshPoint]) -> list[Needed]:
    """Return each policy's budget for the quality that ``user-centric`` has at 5, 10 and 20% of the pages."""
    rows = []
    of = {one.policy: sorted(p for p in points_tried if p.policy == one.policy) for one in points_tried}
    for level in (0.05, 0.10, 0.20):
        target = next((point.quality for point in of.get("user-centric", ()) if point.share == level), None)
        for policy, line in of.items():
            if target is not None:
                share = _share_for(line, target)
                rows.append(Needed(policy, target, share, None if share is None else share / level))
    return rows


def _share_for(line: Sequence[RefreshPoint], target: float) -> float | None:
    """Least share of pages on a curve of quality by share that reaches `target`; None: none does."""
    before: RefreshPoint | None = None
    for point in line:
        if point.quality >= target:
            if before is None or point.quality <= before.quality:
                return point.share
            along = (target - before.quality) / (point.quality - before.quality)
            return before.share + along * (point.share - before.share)
        before = point
    return None


LAST: Final = 4


class GainForecast(NamedTuple):
    """Rank correlation of one forecast with the gains of the second half, over two selections of pages."""

    name: str
    either: RankCorrelation
    """Pages that gained in either half, as in Figure 3: even unrelated halves correlate negatively."""
    both: RankCorrelation
    """Pages that gained in both halves."""

    def to_json(self) -> Json:
        return {"name": self.name, "either": self.either._asdict(), "both": self.both._asdict()}


class Halves(NamedTuple):
    """Gain per cycle of every page in each half of the history, ``[P]``, and forecasts of the second."""

    earlier: Floats
    later: Floats
    forecasts: list[GainForecast]


def halves(trial: Trial) -> Halves:
    """Mean gain per cycle in each half of the history, and forecasts of the second half from the first."""
    middle = trial.history.cycles // 2
    parts = updates_of(trial, 1, middle), updates_of(trial, middle + 1, trial.history.cycles)
    earlier, later = (mean_by_page(half.page, half.gained / half.gap, trial.pages) for half in parts)
    rows = []
    for name, forecast in {"all visits": earlier, **_forecasts_of_gains(parts[0], trial.pages)}.items():
        either = rank_correlation(forecast, later, lambda x, y: (x > 0.0) | (y > 0.0), seed=trial.seed)
        both = rank_correlation(forecast, later, lambda x, y: (x > 0.0) & (y > 0.0), seed=trial.seed)
        rows.append(GainForecast(name, either, both))
    return Halves(earlier, later, rows)


def _forecasts_of_gains(updates: Updates, pages: int) -> dict[str, Floats]:
    """Forecasts of each page's gain from its `LAST` last gains, from decayed ones, and from the last one."""
    state = {name: np.zeros(pages, dtype) for name, dtype in refresh_value.COLUMNS.items()}
    count = np.bincount(updates.page, minlength=pages)
    nth = np.arange(len(updates.page)) - np.repeat(np.cumsum(count) - count, count)
    for turn in range(int(count.max(initial=0))):
        rows = np.flatnonzero(nth == turn)
        seen = {name: values[updates.page[rows]] for name, values in state.items()}
        refresh_value.observe(seen, updates.gained[rows], updates.gap[rows])
        for name, values in seen.items():
            state[name][updates.page[rows]] = values
    recent = nth >= count[updates.page] - LAST
    per_cycle = updates.gained / updates.gap
    forecasts = {name: refresh_value.TERMINALS[name][1](state, 0) for name in ("dq_decay", "dq_last")}
    return {
        f"last {LAST}": mean_by_page(updates.page[recent], per_cycle[recent], pages),
        "decayed": forecasts["dq_decay"],
        "last": forecasts["dq_last"],
    }


SHARE: Final = 0.05
"""Budget of the examples, share of the pages per cycle."""
NOTHING: Final = 0.001
"""Gains below this count as 0, in ppm."""
LINES: Final = 16
"""Lines of a diff that are shown."""
MOVES: Final = 6
"""Number of queries that an example shows: the most frequent ones."""


class Move(NamedTuple):
    """Query in whose answer the updated page moved, with its rank before and after."""

    query: str
    before: int
    """Rank with the old copy; 0: not in the answer."""
    after: int
    frequency: float


class Example(NamedTuple):
    """Update of a page as an example for people, with its diff and the ranks that it moved."""

    rule: str
    page: str
    cycle: int
    difference: float
    """Share of the shingles that differ."""
    gained: float
    """delta-Q_A of a refresh at once, in ppm."""
    diff: str
    moves: list[Move]


def examples(trial: Trial, points_tried: Sequence[RefreshPoint]) -> list[Example]:
    """Return two examples: the largest update that gains nothing, the largest gain that SBR and EBR miss.

    ``points_tried``: thresholds at which both were replayed.
    """
    updates = trial.updates
    cycle = _cycles(trial)
    rows = []
    idle = np.flatnonzero(updates.gained < NOTHING)
    if len(idle):
        largest = idle[np.argmax(updates.difference[idle])]
        rows.append(_example(trial, "Most shingles changed, nothing gained", int(largest), cycle))
    missed = np.flatnonzero(~_refreshed(trial, points_tried, cycle) & (cycle > trial.first))
    if len(missed):
        best = missed[np.argmax(updates.gained[missed])]
        rows.append(_example(trial, f"Most gained of what SBR and EBR miss at {SHARE:.0%}", int(best), cycle))
    return rows


def _cycles(trial: Trial) -> npt.NDArray[np.int64]:
    live, updates = trial.search.live, trial.updates
    return np.array(
        [np.argmax(live[:, page] == new) for page, new in zip(updates.page, updates.version, strict=True)],
        np.int64,
    )


def _refreshed(
    trial: Trial, points_tried: Sequence[RefreshPoint], cycle: npt.NDArray[np.int64]
) -> npt.NDArray[np.bool_]:
    """Whether SBR or EBR, at its best threshold, refreshes a page between each update and the page's next."""
    updates = trial.updates
    seen = np.zeros(len(cycle), np.bool_)
    same = np.append(updates.page[1:] == updates.page[:-1], False)
    until = np.where(same, np.append(cycle[1:], 0), trial.history.cycles + 1)
    for point in points_tried:
        if point.tau is not None and point.share == SHARE:
            visited = np.zeros((trial.history.cycles + 2, trial.pages), np.int64)
            for number, pages in enumerate(
                planned_refreshes(trial, point.policy, point.tau, point.refreshes), start=trial.first + 1
            ):
                visited[number + 1, pages] = 1
            before = np.cumsum(visited, axis=0)
            seen |= before[until, updates.page] > before[cycle, updates.page]
    return seen


def _example(trial: Trial, rule: str, update: int, cycles: npt.NDArray[np.int64]) -> Example:
    updates, contents, answers = trial.updates, trial.corpus.contents, trial.search
    page, new, cycle = int(updates.page[update]), int(updates.version[update]), int(cycles[update])
    texts = [(contents.texts[version] or "").splitlines() for version in (new - 1, new)]
    changed = [line[:100] for line in difflib.unified_diff(texts[0], texts[1], lineterm="", n=0)]
    after = answers.live[cycle]
    before = after.copy()
    before[page] = new - 1
    workload = trial.how.workload
    moves = []
    names = workload.texts()
    for query in sorted(answers.queries_of(page).tolist(), key=lambda query: -workload.frequency[query]):
        old, new = (answers.rank_in(query, page, copies) for copies in (before, after))
        if old != new:
            moves.append(Move(names[query], old, new, float(workload.frequency[query])))
        if len(moves) == MOVES:
            break
    page_names = contents.history.page_names
    name = str(page) if page_names is None else page_names[page]
    return Example(
        rule,
        name,
        cycle,
        float(updates.difference[update]),
        float(updates.gained[update]),
        "\n".join(changed[2 : 2 + LINES]),
        moves,
    )


SITE: Final = "fastapi/fastapi"
SCORINGS: Final = ("tfidf", "inlinks")
QUICK_BUDGETS: Final = (0.02, 0.05, 0.20)
QUICK_TAUS: Final = (0.0, 0.5)


class UserCentricPlan(NamedTuple):
    """Choices of the experiment: data sets, budgets, thresholds and scoring functions."""

    estimate: Estimate = "whole"
    plan: WorkloadPlan = WorkloadPlan()
    pieces: int = PIECES
    budgets: tuple[float, ...] = BUDGETS
    taus: tuple[float, ...] = TAUS
    scorings: tuple[str, ...] = SCORINGS
    sites: tuple[str | None, ...] = (SITE, None)
    """A data set each: one site (P's BDS), or all pages that change (None, P's MDS)."""
    refit_cycles: int = 0
    """See `Trial.refit_cycles`."""


class Panel(NamedTuple):
    """Results of one data set under one scoring function."""

    name: str
    pages: int
    changed_share: float
    queries: int
    """Queries after the filter."""
    never: float
    """Quality in the last cycle if nothing is ever refreshed."""
    never_mean: float
    """Quality if nothing is ever refreshed, mean over the judged cycles."""
    points: list[RefreshPoint]
    resources: list[Needed]
    halves: Halves
    examples: list[Example]


@dataclass(frozen=True)
class UserCentricResults:
    """The experiment's results."""

    source: str
    sha256: str
    plans: UserCentricPlan
    panels: list[Panel]

    def to_json(self) -> Json:
        """The results as a JSON document: data sets, every `RefreshPoint`, the table, the forecasts."""
        return {
            "source": self.source,
            "sha256": self.sha256,
            "estimate": self.plans.estimate,
            "workload": self.plans.plan._asdict(),
            "pieces": self.plans.pieces,
            "refit_cycles": self.plans.refit_cycles,
            "versions": {"scrapy-gp4c": version("scrapy-gp4c"), "numpy": np.__version__},
            "panels": [
                {
                    **{key: getattr(panel, key) for key in Panel._fields[:6]},
                    "points": [point._asdict() for point in panel.points],
                    "resources": [row._asdict() for row in panel.resources],
                    "forecasts": [row.to_json() for row in panel.halves.forecasts],
                }
                for panel in self.panels
            ],
        }

    def write(self, directory: Path) -> None:
        write_json(directory / "results.json", self.to_json())
        points_tried = ((panel.name, *point) for panel in self.panels for point in panel.points)
        write_rows(directory / "points.csv", [("panel", *RefreshPoint._fields), *points_tried])


Steps = Callable[[int, str], AbstractContextManager[Callable[[], object]]]
"""Function ``(steps, title)``: context with a progress bar, of which one step is done at each call."""


def run_experiment(
    path: Path, plans: UserCentricPlan, steps: Steps
) -> tuple[UserCentricResults, list[Trial]]:
    """Run the experiment on all data sets of the file of contents ``path``."""
    panels, trials = [], []
    for site in plans.sites:
        contents = read_contents(path, site, changed_only=site is None)
        with steps(len(contents.texts), f"{site or 'all changed'}: counting terms") as advance:
            corpus = count(contents, advance)
        drawn = draw(contents, plans.plan)
        workload, _ = above_knee(corpus.of(drawn), drawn)
        queried_corpus = corpus.of(workload)
        for scoring in plans.scorings:
            importance = link_importance(contents) if scoring == "inlinks" else None
            how = QualityMeasure(workload, scoring, importance, plans.pieces)
            name = f"{site or 'all changed pages'}, {scoring}"
            trial = prepared(name, queried_corpus, how, plans.estimate, plans.plan.seed, plans.refit_cycles)
            panels.append(_panel(trial, plans, steps))
            trials.append(trial)
    history = contents.history
    return UserCentricResults(history.source, history.sha256, plans, panels), trials


def _panel(trial: Trial, plans: UserCentricPlan, steps: Steps) -> Panel:
    observed = plans.estimate == "observed"
    points_tried: list[RefreshPoint] = []
    size = 5 if observed else 6
    with steps(len(plans.budgets) * size, trial.name) as advance:
        for point in points(trial, plans.budgets, plans.taus, observed):
            points_tried.append(point)
            advance()
    live = trial.search.live
    never = trial.search.quality(np.repeat(live[[trial.first]], trial.judged, axis=0))
    return Panel(
        trial.name,
        trial.pages,
        float(trial.history.changed.mean()),
        len(trial.how.workload.queries),
        float(never[-1]),
        float(never.mean()),
        points_tried,
        resources(points_tried),
        halves(trial),
        examples(trial, points_tried) if points_tried and not observed else [],
    )


TICKS: Final = (0.25, 0.5, 1, 2, 3, 5, 10, 20, 40)
"""Ticks of the budget axis, in percent."""
LEAST: Final = 1e-4
"""Share of the median gain per week below which gains are drawn at the figure's edge."""
NEAREST: Final = ((0.5, "#0072B2"), (0.8, "#56B4E9"), (0.9, "#E69F00"), (1.0, "#BBBBBB"))
"""Share of the pages nearest to the diagonal -> colour."""


def _panels(count: int) -> tuple[Figure, list[Axes]]:
    rows, columns = (count + 1) // 2, 2 if count > 1 else 1
    figure, axes = new_figure(11.0 if count > 1 else 6.5, 4.6 * rows, rows, columns, layout="constrained")
    for empty in axes[count:]:
        empty.set_visible(False)
    return figure, axes[:count]


def quality_figure(panels: Sequence[Panel]) -> Figure:
    """Figure 4: quality against budget."""
    figure, grid = _panels(len(panels))
    for axes, panel in zip(grid, panels, strict=True):
        names = list(dict.fromkeys(point.policy for point in panel.points))
        for name, (colour, dash, marker) in zip(names, STYLES, strict=False):
            line = sorted((p.share, p.quality) for p in panel.points if p.policy == name)
            share, quality = np.array(line).T
            axes.plot(
                100 * share, quality, color=colour, linestyle=dash, marker=marker, markersize=4, label=name
            )
        axes.set_xscale("log")
        axes.axhline(panel.never_mean, color="#999999", linewidth=0.8)
        axes.annotate(
            "never refreshed", (1, panel.never_mean), (0, 3), xycoords=("axes fraction", "data"),
            textcoords="offset points", fontsize=8, color="#666666", ha="right",
        )  # fmt: skip
        finish(axes, f"{panel.name}: {panel.pages:,} pages", "pages refreshed per week, %", "search quality")
        shares = sorted({100 * point.share for point in panel.points})
        axes.set_xticks([share for share in TICKS if shares[0] <= share <= shares[-1]])
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.xaxis.set_minor_locator(NullLocator())
    grid[0].legend(frameon=False, fontsize=9)
    return figure


def halves_figure(panels: Sequence[Panel], weeks: int) -> Figure:
    """Figure 3: gain per week in the first half of the weeks against the second, a dot for each page."""
    figure, grid = _panels(len(panels))
    for axes, panel in zip(grid, panels, strict=True):
        x, y = panel.halves.earlier, panel.halves.later
        has_gain = (x > 0) | (y > 0)
        x, y = x[has_gain], y[has_gain]
        axes.set_title(f"{panel.name}: {np.count_nonzero(has_gain):,} pages", loc="left", fontsize=11)
        positive = np.concatenate((x[x > 0], y[y > 0]))
        if not len(positive):
            continue
        edge = max(positive.min(), LEAST * float(np.median(positive))) / 3
        shown = [np.maximum(values, edge) for values in (x, y)]
        log_distance = np.abs(np.log(shown[0]) - np.log(shown[1]))
        log_distance[(x == 0) | (y == 0)] = np.inf
        rank = np.empty(len(log_distance))
        rank[np.argsort(log_distance, kind="stable")] = (np.arange(len(log_distance)) + 1) / len(log_distance)
        low = 0.0
        for high, colour in NEAREST:
            inside = (rank > low) & (rank <= high)
            label = f"nearest {high:.0%}" if high < 1 else "others"
            axes.scatter(shown[0][inside], shown[1][inside], s=7, color=colour, label=label, linewidths=0)
            low = high
        ends = [edge / 1.5, positive.max() * 1.5]
        axes.plot(ends, ends, color="#888888", linewidth=0.8, zorder=0)
        axes.set(xscale="log", yscale="log", xlim=ends, ylim=ends)
        axes.set_xlabel(f"ppm gained per week, weeks 1 to {weeks // 2} (edge: none)")
        axes.set_ylabel(f"weeks {weeks // 2 + 1} to {weeks}")
    grid[0].legend(frameon=False, fontsize=9, markerscale=2, loc="upper left")
    return figure


def impact_figure(panels: Sequence[Panel]) -> Figure:
    """Figure of estimates over exact values: share of the loss that refreshes saved, a dot for each run."""
    figure, (axes,) = _panels(1)
    axes.plot([0, 1], [0, 1], color="#BBBBBB", linewidth=0.8, zorder=0)
    for panel, (colour, _, marker) in zip(panels, STYLES, strict=False):
        loss = 1 - panel.never_mean or 1.0
        saved = [1 - (1 - point.quality) / loss for point in panel.points]
        axes.scatter(
            saved, [point.impact for point in panel.points], s=16, color=colour, marker=marker,
            label=panel.name, alpha=0.8, linewidths=0,
        )  # fmt: skip
    finish(axes, "", "quality: share of the loss saved, exact", "impact: the same by the estimates")
    axes.legend(frameon=False, fontsize=9)
    return figure


def resource_table(panels: Sequence[Panel]) -> str:
    """Budgets for equal quality, as Markdown."""
    names = list(dict.fromkeys(row.policy for panel in panels for row in panel.resources))
    rows = []
    for panel in panels:
        for quality in dict.fromkeys(row.quality for row in panel.resources):
            cells = []
            for name in names:
                row = next(r for r in panel.resources if r.policy == name and r.quality == quality)
                cells.append("—" if row.share is None else f"{row.share:.1%} ({row.ratio:.2f})")
            rows.append([panel.name, f"{quality:.4f}", *cells])
    return markdown(["panel", "quality", *names], rows)


def forecast_table(panels: Sequence[Panel]) -> str:
    """Correlations of the first half's gains with the second's, against permutations, as Markdown."""
    rows = []
    for panel in panels:
        for row in panel.halves.forecasts:
            cells = [panel.name, row.name]
            for one in (row.either, row.both):
                null = f"{one.null_mean:+.2f} ({one.null_low:+.2f} to {one.null_high:+.2f})"
                cells += [f"{one.spearman:+.2f} ({one.selected:,})", null, f"{one.p:.3f}"]
            rows.append(cells)
    correlation = ("unrelated halves", "p")
    head = ["gained in either: ρ (pages)", *correlation, "gained in both: ρ (pages)", *correlation]
    return markdown(["panel", "forecast", *head], rows)


def examples_text(panel: Panel) -> str:
    """Figure 5: updates that policies judge differently, their diffs and moved ranks, as Markdown."""
    parts = [f"# {panel.name}\n"]
    for one in panel.examples:
        moved = markdown(
            ["query", "rank before", "rank after", "asked"],
            (
                [row.query, str(row.before or "none"), str(row.after or "none"), f"{row.frequency:.2%}"]
                for row in one.moves
            ),
        )
        parts.append(
            f"## {one.rule}\n\n{one.page}, week {one.cycle}: {one.difference:.0%} of the shingles differ, "
            f"{one.gained:.3g} ppm gained by a refresh at once.\n\n```diff\n{one.diff}\n```\n\n"
            f"{moved}"
        )
    return "\n".join(parts)


def write_all(results: UserCentricResults, weeks: int, directory: Path) -> None:
    """Write figures (PNG, SVG) and tables (Markdown) into a directory."""
    panels = results.panels
    figures = {"figure-3": halves_figure(panels, weeks)}
    if panels[0].points:
        figures["figure-4"] = quality_figure(panels)
        figures["impact"] = impact_figure(panels)
    write_figures(figures, directory)
    write_text(directory / "forecasts.md", forecast_table(panels))
    if not panels[0].points:
        return
    examples_of_all = "\n".join(examples_text(panel) for panel in panels if panel.examples)
    write_text(directory / "figure-5.md", examples_of_all)
    write_text(directory / "resources.md", resource_table(panels))
