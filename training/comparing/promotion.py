"""Champion (function in use) against challenger (learned): `python -m training.learn STORE --promote PATH`.

A function learned on the older cycles of some pages replaces the one in use only if it is significantly
better on the newest cycles of other pages (docs/lab/closing-the-loop.md).
"""

import contextlib
import hashlib
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple, Self

import numpy as np
import numpy.typing as npt
from rich.console import Console
from scipy import stats

from scrapy_gp4c.arrays import Floats
from scrapy_gp4c.errors import Gp4cError, HistoryError, PolicyError, ScoreError, StoreError
from scrapy_gp4c.foreign_text import counted
from scrapy_gp4c.policies.table import TOP_K
from scrapy_gp4c.policies.table import load as load_policy
from scrapy_gp4c.scoring import functions, ranking
from scrapy_gp4c.scoring.functions import ScoreFunction
from scrapy_gp4c.store.opening import open_store
from scrapy_gp4c.store.records import CycleRecord
from training.evolution.choices import Choices, prepare_splits
from training.evolution.evolve import named_expression
from training.evolution.front import GUARD
from training.evolution.learning import LEARNED, ProgressListener, learn
from training.evolution.score_file import write_score
from training.evolution.workers import Fitness, PreparedSplit, Workers, load_fitness
from training.histories.history import ChangeHistory
from training.histories.splits import Division, HistorySplit
from training.replaying.metrics import budget_pages
from training.replaying.prepared import PreparedHistory, prepare_for
from training.replaying.replay import run

LEVEL: Final = 0.025
"""Significance level of a gain."""
REPLAYS: Final = 5
"""Number of replays, with different random orders of equal scores, whose mean is compared."""
BLOCK_CYCLES: Final = 2
BLOCKS_FROM_CYCLES: Final = 16
LEAST_CYCLES: Final = 6
GUARD_MARGIN: Final = 0.01
"""Loss of freshness that is tolerated: with enough cycles any difference becomes significant."""
GUARD_LEVEL: Final = 0.05
"""Significance level of the upper bound of a loss, which must be below `GUARD_MARGIN`."""

_ONE_OF: Final = {"sites": "site", "directories": "directory"}


@dataclass(frozen=True)
class Decision:
    """Result of comparing two score functions; means over the judged cycles."""

    promoted: bool
    reason: str
    metric: str
    champion: float
    challenger: float
    probability: float
    """P value of the gain in `metric`."""
    champion_freshness: float
    challenger_freshness: float
    freshness_probability: float
    """Probability that a loss of freshness of `GUARD_MARGIN` looks as small by chance."""
    pages: int
    cycles: int
    loss_probability: float | None = None
    """With two objectives: probability that a loss of `metric` of `GUARD_MARGIN` looks as small by chance."""
    freshness_gain_probability: float | None = None
    """With two objectives: p value of the gain in freshness."""

    def __str__(self) -> str:
        other_way = ""
        if self.loss_probability is not None:
            other_way = (
                "\n  and the other way round: "
                f"p = {self.loss_probability:.3g} for a loss of {self.metric} of {GUARD_MARGIN:g} or more, "
                f"p = {self.freshness_gain_probability:.3g} for a gain of {GUARD} by chance"
            )
        return (
            f"{'PROMOTED' if self.promoted else 'KEPT the function in use'}: {self.reason}\n"
            f"judged on {counted(self.pages, 'held-out page')}, the newest {counted(self.cycles, 'cycle')}:\n"
            f"  {self.metric}: in use {self.champion:.4f}, challenger {self.challenger:.4f} "
            f"(p = {self.probability:.3g} for a gain by chance)\n"
            f"  {GUARD}: in use {self.champion_freshness:.4f}, challenger {self.challenger_freshness:.4f} "
            f"(p = {self.freshness_probability:.3g} for a loss of {GUARD_MARGIN:g} or more){other_way}"
        )


def chance(differences: Floats) -> float:
    """P value of a one-sided paired t-test: small if the mean of `differences` is clearly above 0.

    ``differences``: float64 ``[cycles]``; 1 if all are 0. A change that a score function misses in a cycle is
    still there in the next: differences of neighbouring cycles have opposite signs more often than not
    (correlation about -0.3). So the test is over means of `BLOCK_CYCLES` consecutive cycles (the oldest ones
    that fill no block are left out); over single cycles if there are fewer than `BLOCKS_FROM_CYCLES`, where
    blocks would cost more degrees of freedom than they win. If these values are positively correlated (r with
    the one before), the statistic is reduced by sqrt((1 - r) / (1 + r)), the effective sample size of a
    first-order autoregression (Bayley & Hammersley 1946).
    """
    size = BLOCK_CYCLES if len(differences) >= BLOCKS_FROM_CYCLES else 1
    blocks = len(differences) // size
    means = differences[len(differences) - blocks * size :].reshape(blocks, size).mean(axis=1)
    deviation = means - means.mean()
    total = float(deviation @ deviation)
    if total <= 1e-30:
        return 0.0 if means.mean() > 1e-15 else 1.0
    correlation = min(0.99, max(0.0, float(deviation[1:] @ deviation[:-1]) / total))
    statistic = means.mean() / math.sqrt(total / (blocks - 1) / blocks)
    statistic *= math.sqrt((1.0 - correlation) / (1.0 + correlation))
    return float(stats.t.sf(statistic, blocks - 1))


def values_on(
    prepared: Sequence[PreparedHistory],
    function: ScoreFunction,
    fitness: Fitness,
    policy: str = TOP_K.text,
) -> Floats:
    """Fitness and freshness per scored cycle, mean over the replays: float64 ``[2, scored cycles]``.

    ``prepared``: a history with different random orders, one replay each.
    """
    names = tuple(dict.fromkeys((*fitness.metrics, GUARD)))
    results = [run(one, function, metrics=names, policy=policy) for one in prepared]
    rows = [np.array([fitness.values(result), getattr(result, GUARD)]) for result in results]
    return np.asarray(np.mean(rows, axis=0))


def decide(
    history: ChangeHistory,
    champion: ScoreFunction,
    challenger: ScoreFunction,
    choices: Choices,
    cycles: int,
) -> Decision:
    """Compare two score functions on the newest `cycles` of a history.

    The caller gives pages that neither was learned on. Both are replayed from the first cycle, so that each
    is judged on the state that its own visits brought about. Raises HistoryError for too few cycles.
    """
    if not LEAST_CYCLES <= cycles <= history.cycles - choices.warmup:
        raise HistoryError(
            f"judging needs at least {LEAST_CYCLES} cycles after {choices.warmup} of warm-up; "
            f"{history.source} has {history.cycles}, of which {cycles} are to be judged: crawl on, or give "
            "a smaller --warmup"
        )
    fitness = load_fitness(choices.fitness)
    crawl = choices.crawl()
    prepared = [prepare_for(history, crawl._replace(seed=crawl.seed + draw)) for draw in range(REPLAYS)]
    values = [
        values_on(prepared, function, fitness, choices.policy)[:, -cycles:]
        for function in (champion, challenger)
    ]
    goals = [
        Verdict.of(name, values[1][row] - values[0][row], 2 if choices.front else 1)
        for row, name in enumerate((fitness.name, GUARD))
    ]
    promoted, reason = (on_two if choices.front else on_one)(*goals)
    if not any(goal.differs for goal in goals):
        reason = "both rank alike in every judged cycle"
    means = [[float(row.mean()) for row in pair] for pair in values]
    first, second = goals
    of_two = (first.loss, second.gain) if choices.front else ()
    return Decision(
        promoted,
        reason,
        fitness.name,
        means[0][0],
        means[1][0],
        first.gain,
        means[0][1],
        means[1][1],
        second.loss,
        history.pages,
        cycles,
        *of_two,
    )


class Verdict(NamedTuple):
    """Statistical judgement of the challenger by one objective."""

    name: str
    differs: bool
    gain: float
    """P value of the gain: probability of at least this gain by chance."""
    loss: float
    """Probability of at most this loss by chance, if the true loss is `GUARD_MARGIN`."""
    better: bool
    worse: bool
    """Whether the upper bound of the loss is not below `GUARD_MARGIN`."""

    @classmethod
    def of(cls, name: str, differences: Floats, objectives: int) -> Self:
        """Test ``differences`` at `LEVEL`, which is shared among ``objectives`` (Bonferroni)."""
        gain, loss = chance(differences), chance(differences + GUARD_MARGIN)
        better = bool(differences.mean() > 0 and gain <= LEVEL / objectives)
        return cls(name, bool(differences.any()), gain, loss, better, loss > GUARD_LEVEL)


def on_one(goal: Verdict, guard: Verdict) -> tuple[bool, str]:
    """Whether to promote, and why, by one objective.

    A function is promoted if `goal`, on the fitness, is better and `guard`, on freshness, is not worse.
    """
    if not goal.better:
        return False, f"its {goal.name} is not significantly better (p above {LEVEL:g})"
    if guard.worse:
        return (
            False,
            f"its {goal.name} is significantly better, but its {guard.name} may be worse by {GUARD_MARGIN:g}",
        )
    return True, f"its {goal.name} is significantly better and its {guard.name} not worse"


def on_two(one: Verdict, other: Verdict) -> tuple[bool, str]:
    """Whether to promote, and why, by two objectives: better in one of them, and worse in neither."""
    better = [goal for goal in (one, other) if goal.better]
    worse = [goal for goal in (one, other) if goal.worse]
    if not better:
        return (
            False,
            f"neither its {one.name} nor its {other.name} is significantly better (p above {LEVEL / 2:g})",
        )
    if worse:
        return on_one(better[0], worse[0])
    if len(better) == 2:
        return True, f"its {one.name} and its {other.name} are significantly better"
    return on_one(better[0], other if better[0] is one else one)


PROMOTED: Final = 0
KEPT: Final = 3
"""Exit code of a function that was not promoted."""
PAGE_ENDS: Final = (3, 4)
"""Eighths of the pages at which training ends, and validation; the others are held out for the judgement."""
PAGE_SHARES: Final = (3 / 8, 1 / 8, 4 / 8)
"""Shares of training, validation and held-out pages by `PAGE_ENDS`."""


def divide(history: ChangeHistory, seed: int, by: str = "pages") -> tuple[HistorySplit, int]:
    """Split a history for learning and for judging (its test part); return also the cycles to judge.

    Training gets 3/8 of the pages and validation 1/8, both with the older half of the cycles. The test part
    has the other pages in all cycles, to be judged on the newer half.
    A page's part follows from its key and the seed alone (`scrapy_gp4c.scoring.ranking.draws`): it stays the
    same while pages come and go, and whatever the order in which the crawl found them. Histories without
    keys divide by position.

    ``by``: one of `Choices.units`; unless it is ``pages``, all pages of a site (a directory) are in one part,
    which follows from its name.

    Raises HistoryError if a part gets no page.
    """
    drawn = ranking.draws(np.ascontiguousarray(_keys(history, by)), seed, 0)
    order = np.argsort(drawn, kind="stable")
    # The first bits of the drawn number are its eighth: 0 to 7.
    ends = np.searchsorted(drawn[order] >> np.uint64(61), np.array(PAGE_ENDS, np.uint64))
    train, validation, held_out = np.split(order, ends)
    if not (len(train) and len(validation) and len(held_out)):
        if by == "pages":
            what, remedy = counted(history.pages, "page"), "raise GP4C_PANEL"
        else:
            what = counted(len(np.unique(_keys(history, by))), _ONE_OF[by], by)
            remedy = "divide single pages (--divide pages)"
        raise HistoryError(
            f"{history.source} has {what}, too few to learn on some and judge on others: {remedy}"
        )
    newest = history.cycles // 2
    older = slice(0, history.cycles - newest)
    return HistorySplit(
        history.take(train, older), history.take(validation, older), history.take(held_out)
    ), newest


def divide_by_units(history: ChangeHistory, choices: Choices) -> tuple[HistorySplit, int, Division]:
    """Split a history as `divide` does, by the first of `Choices.units` that is fit; also return that unit.

    By a fit unit each part has at least half of its share of the pages: where a few sites have nearly all,
    whole sites may leave a handful of pages to judge on. If none is fit, the last is taken.
    """
    *others, last = choices.units(history)
    least_pages = [history.pages * share / 2 for share in PAGE_SHARES]
    for by in others:
        with contextlib.suppress(HistoryError):
            split, newest = divide(history, choices.seed, by)
            if all(part.pages >= least for part, least in zip(split, least_pages, strict=True)):
                return split, newest, by
    return *divide(history, choices.seed, last), last


def _keys(history: ChangeHistory, by: str) -> npt.NDArray[np.uint64]:
    """Keys from which the split of each page is drawn: uint64 ``[P]``, equal within a unit ``by``."""
    if by == "pages":
        return np.arange(history.pages, dtype=np.uint64) if history.key is None else history.key
    names, group = list(history.site_labels), history.site
    if by == "directories":
        group = history.neighbours.groups.group.astype(np.int32)
        names = [f"{names[site]}\t{directory}" for site, directory in history.neighbours.directory_names]
    digests = (
        hashlib.blake2b(name.encode("utf-8", "surrogateescape"), digest_size=8).digest() for name in names
    )
    return np.frombuffer(b"".join(digests), "<u8").astype(np.uint64)[group]


def not_worse(
    texts: Sequence[str], split: PreparedSplit, champion: ScoreFunction, choices: Choices
) -> set[str]:
    """Return the functions among `texts` that are no less fresh than `champion` in training and validation.

    A loss of `GUARD_MARGIN` is tolerated. A front with ``freshness`` preferred compares the fitness instead.
    """
    fitness = load_fitness(choices.fitness)
    row = 0 if choices.front and choices.prefer == GUARD else 1

    def mean_of(function: ScoreFunction) -> Floats:
        values = [values_on([part], function, fitness, choices.policy) for part in split[:2]]
        return np.array([rows[row].mean() for rows in values])

    least = mean_of(champion) - GUARD_MARGIN
    return {text for text in texts if (mean_of(_loaded(text, choices)) >= least).all()}


def _loaded(text: str, choices: Choices) -> ScoreFunction:
    return functions.of_expression(named_expression(text), text, choices.clock)


def in_use(path: Path, store: Path) -> ScoreFunction:
    """Load the score function in use: the file at `path`, else the function of the store's newest cycle.

    Raises ScoreError for a file or formula that cannot be used, HistoryError where neither exists.
    """
    if path.exists():
        return functions.load(str(path))
    record = _last_record(store)
    if record is None or "formula" not in record:
        raise HistoryError(
            f"there is no score function in use to compare with: {path} does not exist, and {store} records "
            "none. Write one with `python -m training.learn` first"
        )
    try:
        return functions.recorded(record["formula"]).on_clock(record["clock"])
    except Gp4cError as error:
        raise ScoreError(
            f"cannot compare with the newest cycle's function of {store}: {error}. Write a score file to "
            f"{path} with `python -m training.learn` first"
        ) from error


def _last_record(path: Path) -> CycleRecord | None:
    if not path.is_dir():
        return None
    try:
        with open_store(path, readonly=True) as store:
            records = store.cycles()
    except StoreError as error:
        raise HistoryError(str(error)) from error
    return records[-1] if records else None


def promote(
    history: ChangeHistory,
    path: Path,
    champion: ScoreFunction,
    choices: Choices,
    parallel: Workers,
    console: Console,
    watch: ProgressListener | None = None,
) -> int:
    """Learn a challenger, and replace the score file atomically if it is better than the champion.

    Returns `PROMOTED` or `KEPT`; prints why on `console`. Raises Gp4cError where nothing could be compared.
    """
    choices = choices.fitting(history)
    choices = replace(choices, budget=budget_pages(choices.budget, history.pages) / history.pages)
    split, newest, unit = divide_by_units(history, choices)
    # Before hours of learning: is there enough to judge on?
    decide(split.test, champion, champion, choices, newest)
    folds = prepare_splits(history, choices, [split], unit)
    allow = partial(not_worse, split=folds[0], champion=champion, choices=choices)
    learned = learn(history, choices, parallel, folds=folds, watch=watch, allow=allow)
    if not learned.complete:
        raise KeyboardInterrupt
    challenger = _loaded(learned.best.text, choices)
    decision = decide(split.test, champion, challenger, choices, newest)
    if decision.promoted:
        judged = {name: value for name, value in asdict(decision).items() if value is not None}
        instead = {"instead_of": champion.formula, "instead_of_sha256": champion.sha256}
        best, about = learned.best, {"promotion": {**judged, **instead}}
        write_score(path, best.text, best.table[LEARNED], choices, history, about)
    for line in (
        f"in use:     {champion.formula}",
        f"challenger: {challenger.formula}",
        str(decision),
        f"written to {path}" if decision.promoted else f"{path} is as it was",
    ):
        console.out(line, highlight=False)
    return PROMOTED if decision.promoted else KEPT


def budget_of_crawl(source: Path, otherwise: float, console: Console) -> float:
    """Share of the ranked pages that the crawl's newest cycle chose, printed on `console`.

    ``otherwise``: the share where `source` is no store, or its newest cycle left nothing to choose.
    """
    plan = (_last_record(source) or {}).get("plan") or {}
    if not plan.get("ranked") or plan["ranked"] == plan["rankable"]:
        return otherwise
    share = float(plan["ranked"] / plan["rankable"])
    console.out(
        f"budget: {share:.3g} of the pages, as the crawl's newest cycle chose of those it ranked (--budget)",
        highlight=False,
    )
    return share


def policy_of_crawl(source: Path, console: Console) -> str:
    """Policy of the crawl's newest cycle, printed on `console`; the default without a store.

    Raises PolicyError for the dotted path of a class: only an argument of the command may name code.
    """
    text = str((_last_record(source) or {}).get("policy") or TOP_K.text)
    try:
        load_policy(text, trusted=False)
    except PolicyError as error:
        raise PolicyError(f"the newest cycle of {source}: {error}; give it with --policy") from None
    if text != TOP_K.text:
        console.out(f"policy: {text}, as in the crawl's newest cycle (--policy)", highlight=False)
    return text
