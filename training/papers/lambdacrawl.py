"""The experiments of Kolobov et al. 2019 (NeurIPS) on irregular visits, and our functions on their measure.

Pages are weighed by importance. The cost, to be small, is harmonic staleness, ln((visits + rate) / visits)
for a page that is visited at random, and -ln p for one whose changes are all known and followed with
probability p. The budget is a fifth of the pages a day.
"""

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.arrays import Bools, Floats, Ints
from scrapy_gp4c.errors import HistoryError
from training.comparing.evaluation import Evaluation, evaluate, write_text
from training.evolution.checkpoint import write_atomically
from training.histories.imputation import likeliest_rates
from training.histories.offset_history import PRIOR_DAYS, RATE_BOUNDS, OffsetHistory
from training.papers.journal import Row, table_of
from training.replaying.baselines import HARMONIC, POISSON_FRESHNESS, allocate
from training.replaying.prepared import CrawlChoices

NAME: Final = "lambdacrawl"
BUDGET_SHARE: Final = 0.2
DAYS: Final = 21
"""Number of days in the learning experiment, with a new plan every day."""
LEARNING_PAGES: Final = 100_000
SPLIT_TOLERANCE: Final = 0.005
"""Error, as a share of the budget, at which the search for the split of the budget ends (see `lambda_crawl`),
as in the authors' program."""
STARVING: Final = 0.4
"""Least visits of a page in BinaryLambdaCrawl, as a share of equal visits to all: the best in the paper."""
SCORES: Final = (
    "fixed", "azar", "lambda-crawl", "default", "changes", "freshness",
    "w * (rate * t - 1 + exp(-rate * t)) / rate",
)  # fmt: skip
"""Policies and score functions to replay; the last one ranks by harmonic staleness times importance."""


NEAR: Final = 0.05
"""Largest difference that counts as near in `LambdaCrawlResults.claims`."""
MEASURED: Final = ("harmonic_staleness", "freshness", "change_rate")


class Sources(NamedTuple):
    """P pages: importance, changes per day, and whether all changes are known."""

    weight: Floats
    rate: Floats
    complete: Bools

    def take(self, pages: npt.NDArray[np.intp] | Bools) -> "Sources":
        return Sources(self.weight[pages], self.rate[pages], self.complete[pages])


class VisitRates(NamedTuple):
    """A plan: visits per day of each page, or, of known changes, the probability of a visit after each."""

    visits: Floats
    probability: Floats
    """``[P]``: probability of a visit after a known change; NaN for pages that are visited at random."""

    @property
    def follows(self) -> Bools:
        return ~np.isnan(self.probability)


Policy = Callable[[Sources, float], VisitRates]
"""Function of pages and budget (visits per day) that returns the plan."""


def _at_random(visits: Floats) -> VisitRates:
    return VisitRates(visits, np.full(len(visits), np.nan))


def uniform(sources: Sources, budget: float) -> VisitRates:
    return _at_random(np.full(len(sources.rate), budget / len(sources.rate)))


def proportional(sources: Sources, budget: float) -> VisitRates:
    return _at_random(sources.rate * budget / sources.rate.sum())


def binary(share: float) -> Policy:
    """BinaryLambdaCrawl: keeps most copies current; each page gets at least ``share`` of the mean visits."""

    def policy(sources: Sources, budget: float) -> VisitRates:
        least = share * budget / len(sources.rate)
        plan = allocate(POISSON_FRESHNESS, sources.rate, budget, sources.weight, least=least, most=math.inf)
        return _at_random(plan)

    return policy


def _visits(sources: Sources, budget: float, approximate: bool) -> Floats:
    """Visits per day of each page by algorithm 1; `approximate`: by importance alone (proposition 9)."""
    if approximate:
        return np.asarray(sources.weight * budget / sources.weight.sum())
    return allocate(HARMONIC, sources.rate, budget, sources.weight, most=math.inf)


def _probabilities(sources: Sources, budget: float) -> Floats:
    """Probability of a visit after each change, by algorithm 2: weight / rate times a constant, at most 1.

    The constant makes the visits, probability times rate, add up to the budget.
    """
    order = np.argsort(sources.rate / sources.weight)
    saturates = (sources.rate / sources.weight)[order]
    followed = np.concatenate(([0.0], np.cumsum(sources.rate[order])))
    others = sources.weight.sum() - np.concatenate(([0.0], np.cumsum(sources.weight[order])))
    spent = followed[:-1] + saturates * others[:-1]  # with c at which each page saturates
    full = int(np.searchsorted(spent, budget, side="right"))
    if full == len(saturates):
        return np.ones(full)
    level = (budget - followed[full]) / others[full]
    return np.asarray(np.minimum(1.0, level * sources.weight / sources.rate))


def lambda_crawl(approximate: bool = False, follow: bool = True) -> Policy:
    """LambdaCrawl, algorithm 3: splits the budget between visits after known changes and visits at random.

    ``approximate``: see `_visits`; ``follow``: whether known changes are used at all.
    """

    def policy(sources: Sources, budget: float) -> VisitRates:
        follows = sources.complete & follow & (sources.weight > 0)
        random, followed = sources.take(~follows), sources.take(follows)
        plan = _at_random(np.zeros(len(follows)))

        def split(share: float) -> VisitRates:
            plan.visits[~follows] = _visits(random, budget - share, approximate)
            plan.probability[follows] = _probabilities(followed, share)
            plan.visits[follows] = plan.probability[follows] * followed.rate
            return plan

        most = min(budget, float(followed.rate.sum()))
        if not follows.any():
            return _at_random(_visits(sources, budget, approximate))
        if follows.all():
            return VisitRates(sources.rate, _probabilities(sources, most))
        from scipy.optimize import minimize_scalar

        best = minimize_scalar(
            lambda share: cost(sources, split(share)).harmonic,
            bounds=(0.0, most),
            method="bounded",
            options={"xatol": SPLIT_TOLERANCE * budget},
        )
        return split(float(best.x))

    return policy


class Cost(NamedTuple):
    """Mean costs of a plan over pages, weighted by importance; less is better."""

    harmonic: float
    binary: float


def cost(sources: Sources, plan: VisitRates) -> Cost:
    """Costs of a plan, by propositions 1 and 4 of the paper, and equations 12 and 13 of its supplement."""
    with np.errstate(divide="ignore", invalid="ignore"):
        random = np.log1p(sources.rate / plan.visits)
        harmonic = np.where(plan.follows, -np.log(plan.probability), random)
        stale = sources.rate / (sources.rate + plan.visits)
    stale = np.where(plan.follows, 1.0 - plan.probability, stale)
    weighing = sources.weight > 0
    sums = (float((sources.weight * value)[weighing].sum()) for value in (harmonic, stale))
    return Cost(*(value / len(weighing) for value in sums))


POLICIES: Final[dict[str, Policy]] = {
    "UniformCrawl": uniform,
    "ChangeRateProportionalCrawl": proportional,
    f"BinaryLambdaCrawl({STARVING})": binary(STARVING),
    "BinaryLambdaCrawl(0)": binary(0.0),
    "LambdaCrawlApprox, complete changes ignored": lambda_crawl(approximate=True, follow=False),
    "LambdaCrawlApprox": lambda_crawl(approximate=True),
    "LambdaCrawl, complete changes ignored": lambda_crawl(follow=False),
    "LambdaCrawl": lambda_crawl(),
}
"""Name in the paper -> policy."""
LEARNING: Final = {
    "LambdaLearnAndCrawl": lambda_crawl(),
    "LambdaLearnAndCrawlApprox": lambda_crawl(approximate=True),
    "BinaryLambdaLearnAndCrawl": binary(STARVING),
}


class RatesLearned:
    """Change rates as a crawl estimates them from its visits, or from all changes where they are known."""

    def __init__(self, sources: Sources, rng: np.random.Generator) -> None:
        self._rates, self._rng = sources.rate, rng
        pages = len(sources.rate)
        self.estimates = np.ones(pages)
        self._days = 0
        self._last_visit, self._changes = np.zeros(pages), np.zeros(pages)
        self._unchanged_days = np.full(pages, PRIOR_DAYS)
        self._changed_page, self._changed_days = np.arange(pages), np.full(pages, PRIOR_DAYS)

    def see_day(self, plan: VisitRates) -> None:
        """Draw the visits and changes of a day, and estimate the rates anew."""
        page, interval_days = self._visits(np.where(plan.follows, 0.0, plan.visits))
        changed = self._rng.random(len(page)) < -np.expm1(-self._rates[page] * interval_days)
        self._unchanged_days += np.bincount(page, interval_days * ~changed, len(self._rates))
        self._changed_page = np.concatenate((self._changed_page, page[changed]))
        self._changed_days = np.concatenate((self._changed_days, interval_days[changed]))
        self._changes += self._rng.poisson(self._rates)
        self._days += 1
        by_visits = likeliest_rates(self._changed_days, self._changed_page, self._unchanged_days)
        by_changes = (self._changes + PRIOR_DAYS) / (self._days + PRIOR_DAYS)
        self.estimates = np.where(plan.follows, by_changes, np.clip(by_visits, *RATE_BOUNDS))

    def _visits(self, rates: Floats) -> tuple[Ints, Floats]:
        """Draw a day's visits: page of each, in order of pages and times, and days since the visit before."""
        page = np.repeat(np.arange(len(rates)), self._rng.poisson(rates))
        time = self._days + self._rng.random(len(page))
        time = time[np.lexsort((time, page))]
        is_first = np.diff(page, prepend=-1) > 0
        before = np.where(is_first, self._last_visit[page], np.concatenate(([0.0], time[:-1])))
        self._last_visit[page] = time  # of several the latest, which comes last
        return page, time - before


def learn_and_crawl(policy: Policy, sources: Sources, days: int, rng: np.random.Generator) -> Floats:
    """Algorithm 4: harmonic cost of every day's plan, made with the rates learned so far: ``[days]``."""
    rates, costs = RatesLearned(sources, rng), []
    for _ in range(days):
        plan = policy(sources._replace(rate=rates.estimates), BUDGET_SHARE * len(sources.rate))
        costs.append(cost(sources, plan).harmonic)
        rates.see_day(plan)
    return np.array(costs)


@dataclass(frozen=True)
class LambdaCrawlResults:
    """Results of the paper's experiments and of the replay."""

    known: list[Row]
    """Experiment 1: change rates known, all pages."""
    complete: list[Row]
    """Experiment 2: as experiment 1, on the pages whose changes are all known; empty without any."""
    learning: list[Row]
    """Experiment 3: change rates learned while crawling."""
    replay: Evaluation
    """Published policies and ours on the recorded history."""

    def claims(self) -> list[Row]:
        """Rows with the paper's claims, each with a verdict that follows from the tables."""
        known, complete = _harmonic(self.known), _harmonic(self.complete)
        best, ignoring = known["LambdaCrawl"], "LambdaCrawl, complete changes ignored"
        by_rate, even = known["ChangeRateProportionalCrawl"], known["UniformCrawl"]
        approximate, starving = known["LambdaCrawlApprox"], known["BinaryLambdaCrawl(0)"]
        learned, limit = (float(self.learning[-1][name]) for name in ("LambdaLearnAndCrawl", "known rates"))
        rows: list[tuple[str, bool, Sequence[float]]] = [
            ("LambdaCrawl has the least harmonic cost", best <= min(known.values()) * (1 + 1e-6), [best]),
            ("visits in proportion to change rates are worse than even ones", by_rate > even,
             [by_rate, even]),
            ("the optimum of freshness never visits some pages", math.isinf(starving), [starving]),
            (f"LambdaCrawlApprox is {NEAR:.0%} worse at most", approximate <= (1 + NEAR) * best,
             [approximate, best]),
            (f"after {DAYS} days of learning the cost is {NEAR:.0%} above the limit at most",
             learned <= (1 + NEAR) * limit, [learned, limit]),
        ]  # fmt: skip
        if complete:
            followed, ignored = complete["LambdaCrawl"], complete[ignoring]
            rows.append(("knowing all changes of a page pays", followed < ignored, [followed, ignored]))
        return [
            {"claim": claim, "verdict": "holds" if holds else "does not",
             "here": " against ".join(f"{value:.3f}" for value in figures)}
            for claim, holds, figures in rows
        ]  # fmt: skip

    def tables(self) -> str:
        replayed: list[Row] = [
            {"score function": one.score, **{name: one.metrics[name].mean for name in MEASURED}}
            for one in self.replay.results
        ]
        parts: dict[str, Sequence[Row]] = {
            "Experiment 1: known change rates": self.known,
            "Experiment 2: pages whose changes are all known": self.complete,
            "Experiment 3: harmonic cost while rates are learned": self.learning,
            "Replay of the visits, a fifth of the pages a cycle, by importance": replayed,
            "Claims of the paper": self.claims(),
        }
        return "\n".join(f"## {title}\n\n{table_of(rows)}" for title, rows in parts.items() if rows)

    def write(self, directory: Path) -> None:
        rows = {"known": self.known, "complete": self.complete, "learning": self.learning}
        content: dict[str, Any] = {"format": "gp4c-lambdacrawl/1", **rows, "claims": self.claims()}
        content["replay"] = self.replay.to_json()
        # JSON has no infinity, the cost of pages that are never visited.
        finite = json.loads(json.dumps(content), parse_constant=lambda _: None)
        write_atomically(directory / "results.json", finite)
        write_text(directory / "tables.md", self.tables())


def _harmonic(rows: Sequence[Row]) -> dict[str, float]:
    return {str(row["policy"]): float(row["harmonic cost"]) for row in rows}


def _costs(sources: Sources) -> list[Row]:
    budget = BUDGET_SHARE * len(sources.rate)
    costs = {name: cost(sources, policy(sources, budget)) for name, policy in POLICIES.items()}
    return [
        {"policy": name, "harmonic cost": value.harmonic, "binary cost": value.binary}
        for name, value in costs.items()
    ]


def run(data: OffsetHistory, runs: int, seed: int) -> LambdaCrawlResults:
    """Run all experiments on `data`; ``runs``: repetitions of the learning one, each on pages drawn anew.

    Raises HistoryError where no page weighs anything.
    """
    sources = Sources(data.history.weights, data.change_rate, data.complete)
    if not sources.weight.any():
        raise HistoryError(
            f"{data.history.source}: expected pages with an importance above 0, by which costs are weighed; "
            "all have 0. Correct the importances, or take their file away: all pages weigh 1 then"
        )
    complete = sources.take(sources.complete)
    rng = np.random.default_rng(seed)
    costs: dict[str, list[Floats]] = {name: [] for name in ("known rates", *LEARNING)}
    for _ in range(runs):
        drawn = rng.permutation(len(sources.rate))[:LEARNING_PAGES]
        sample = sources.take(drawn)
        plan = lambda_crawl()(sample, BUDGET_SHARE * len(drawn))
        costs["known rates"].append(np.full(DAYS, cost(sample, plan).harmonic))
        for name, policy in LEARNING.items():
            costs[name].append(learn_and_crawl(policy, sample, DAYS, rng))
    means = {name: np.mean(values, axis=0) for name, values in costs.items()}
    learning: list[Row] = [
        {"day": day, **{name: float(mean[day]) for name, mean in means.items()}} for day in range(DAYS)
    ]
    crawl = CrawlChoices(BUDGET_SHARE, seed=seed)
    return LambdaCrawlResults(
        _costs(sources),
        _costs(complete) if complete.weight.any() else [],
        learning,
        evaluate(data.history, SCORES, crawl),
    )
