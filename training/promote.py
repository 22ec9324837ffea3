"""Champion and challenger: `python -m training.learn STORE --promote PATH`.

A function learned on the older cycles of some pages replaces the one in use only if it is significantly
better on the newest cycles of other pages. docs/closing-the-loop.md tells what is compared and how.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from rich.console import Console
from scipy import stats

from scrapy_gp4c import score
from scrapy_gp4c.errors import HistoryError, StoreError
from scrapy_gp4c.expression import parse
from scrapy_gp4c.score import ScoreFunction
from training.checkpoint import check_writable
from training.fitness import load_fitness
from training.history import ChangeHistory, read_history
from training.learning import LEARNED, PARTS, Choices, Learned, Watch, arrange, identity, learn
from training.metrics import budget_pages
from training.replay import run
from training.score_file import write_score_file
from training.splits import Split, page_folds
from training.truth import prepare

Floats = npt.NDArray[np.float64]

PROMOTED: Final = 0
KEPT: Final = 3
"""Exit codes."""
LEVEL: Final = 0.025
"""A gain is significant if one as large or larger had at most this probability by chance."""
REPLAYS: Final = 5
"""Replays, each with its own draws of ties, whose mean is compared: what differs is not to be luck."""
BLOCK_CYCLES: Final = 2
LEAST_BLOCKS: Final = 3
PAGE_PARTS: Final = 8
"""Three to train, one to validate, four to judge."""
GUARD: Final = "freshness"
GUARD_LEVEL: Final = 0.05
"""Of a loss of freshness: doubt counts against the challenger."""


@dataclass(frozen=True)
class Verdict:
    """What came of the comparison; the means are over the judged cycles."""

    promoted: bool
    reason: str
    metric: str
    champion: float
    challenger: float
    probability: float
    """Of a difference of `metric` as large or larger if both were equally good."""
    champion_freshness: float
    challenger_freshness: float
    freshness_probability: float
    """Of a loss of freshness as large or larger if both were equally good."""
    pages: int
    cycles: int

    def __str__(self) -> str:
        """Decision, reason and numbers for people."""
        return (
            f"{'PROMOTED' if self.promoted else 'KEPT the function in use'}: {self.reason}\n"
            f"judged on {self.pages:,} held-out pages, the newest {self.cycles} cycles:\n"
            f"  {self.metric}: in use {self.champion:.4f}, challenger {self.challenger:.4f} "
            f"(p = {self.probability:.3g} for a gain by chance)\n"
            f"  {GUARD}: in use {self.champion_freshness:.4f}, challenger {self.challenger_freshness:.4f} "
            f"(p = {self.freshness_probability:.3g} for a loss by chance)"
        )


def chance(differences: Floats) -> float:
    """Probability that the mean of paired differences is as large or larger by chance, if it is 0 in truth.

    ``differences``: float64 ``[cycles]``. One-sided paired t-test. What a score function does not find in
    a cycle is still there in the next: differences of neighbouring cycles have opposite signs more often than
    not (correlation about -0.3). So the test is over means of `BLOCK_CYCLES` consecutive cycles (the
    oldest ones that fill no block are left out). If the blocks are positively correlated nonetheless (r
    with the one before), the statistic is reduced by sqrt((1 - r) / (1 + r)), the effective sample size
    of a first-order autoregression (Bayley & Hammersley 1946). 1 if all differences are 0.
    """
    blocks = len(differences) // BLOCK_CYCLES
    means = differences[len(differences) - blocks * BLOCK_CYCLES :].reshape(blocks, BLOCK_CYCLES).mean(axis=1)
    rest = means - means.mean()
    total = float(rest @ rest)
    if total <= 1e-30:
        return 0.0 if means.mean() > 1e-15 else 1.0
    correlation = min(0.99, max(0.0, float(rest[1:] @ rest[:-1]) / total))
    statistic = means.mean() / math.sqrt(total / (blocks - 1) / blocks)
    statistic *= math.sqrt((1.0 - correlation) / (1.0 + correlation))
    return float(stats.t.sf(statistic, blocks - 1))


def judge(
    history: ChangeHistory,
    champion: ScoreFunction,
    challenger: ScoreFunction,
    choices: Choices,
    cycles: int,
) -> Verdict:
    """Compare two score functions on the newest `cycles` of a history that neither was learned on.

    Both are replayed from the beginning of `history`, so that each is judged on the state that it brought
    about itself. Raises HistoryError for too few cycles.
    """
    least = BLOCK_CYCLES * LEAST_BLOCKS
    if not least <= cycles <= history.cycles - choices.warmup:
        raise HistoryError(
            f"judging needs at least {least} cycles after {choices.warmup} of warm-up; {history.source} has "
            f"{history.cycles}, of which {cycles} are to be judged: crawl on, or give a smaller --warmup"
        )
    fitness = load_fitness(choices.fitness)
    wanted = tuple(dict.fromkeys((*fitness.metrics, GUARD)))
    values = []
    for function in (champion, challenger):
        results = [
            run(
                prepare(
                    history,
                    budget=choices.budget,
                    warmup=choices.warmup,
                    ties=choices.ties,
                    seed=choices.seed + i,
                ),
                function,
                metrics=wanted,
            )
            for i in range(REPLAYS)
        ]
        rows = [np.array([fitness.values(result), getattr(result, GUARD)]) for result in results]
        values.append(np.mean(rows, axis=0)[:, -cycles:])
    differences = values[1] - values[0]
    gain, loss = chance(differences[0]), chance(-differences[1])
    means = [[float(row.mean()) for row in pair] for pair in values]
    better = means[1][0] > means[0][0] and gain <= LEVEL
    staler = means[1][1] < means[0][1] and loss <= GUARD_LEVEL
    if not differences.any():
        reason = "both rank alike in every judged cycle"
    elif not better:
        reason = f"its {fitness.name} is not significantly better (p above {LEVEL:g})"
    elif staler:
        reason = f"its {fitness.name} is significantly better, but its {GUARD} significantly worse"
    else:
        reason = f"its {fitness.name} is significantly better and its {GUARD} not worse"
    return Verdict(
        better and not staler,
        reason,
        fitness.name,
        means[0][0],
        means[1][0],
        gain,
        means[0][1],
        means[1][1],
        loss,
        history.pages,
        cycles,
    )


def divide(history: ChangeHistory, seed: int) -> tuple[Split, int]:
    """Parts to learn on and, as the split's test part, the pages to judge on; and how many cycles to judge.

    Half of the pages and half of the cycles each: learning sees the older cycles of its pages, three
    quarters of them for training and one for validation; the others are judged over their newer cycles.
    """
    folds = page_folds(history.pages, PAGE_PARTS, seed)
    train, validation, held_out = (
        np.sort(np.concatenate(part)) for part in (folds[:3], folds[3:4], folds[4:])
    )
    newest = history.cycles // 2
    older = slice(0, history.cycles - newest)
    return Split(history.take(train, older), history.take(validation, older), history.take(held_out)), newest


def in_use(path: Path, store: Path) -> ScoreFunction:
    """The function in use: the score file at `path`; without one, that of the store's newest cycle.

    Raises ScoreError for a file that cannot be used, HistoryError where neither is there.
    """
    if path.exists():
        return score.load(str(path))
    record = _last_record(store)
    if record is None or "formula" not in record:
        raise HistoryError(
            f"there is no score function in use to compare with: {path} does not exist, and {store} records "
            "none. Write one with `python -m training.learn` first"
        )
    return replace(score.load(record["formula"]), clock=record["clock"])


def _last_record(path: Path) -> dict[str, Any] | None:
    from scrapy_gp4c.store import Store  # needs lmdb; only a store does

    if not path.is_dir():
        return None
    try:
        with Store(path, readonly=True) as store:
            records = store.cycles()
    except StoreError as error:
        raise HistoryError(str(error)) from error
    return records[-1] if records else None


def promote(
    source: Path, path: Path, choices: Choices, parallel: Any, console: Console, watch: Watch | None = None
) -> int:
    """Learn from `source`, compare with the function in use, and replace the score file at `path` or keep it.

    Returns `PROMOTED` or `KEPT`; tells why on `console`. The file is replaced atomically: at any moment it
    is the old or the new one, complete. Raises Gp4cError where nothing could be compared.
    """
    check_writable(path)
    champion = in_use(path, source)
    history = read_history(source)
    share = budget_pages(choices.budget, history.pages) / history.pages
    choices = replace(choices, budget=share)
    _warn_of_budget(source, share, console)
    split, newest = divide(history, choices.seed)
    # Before hours of learning: is there enough to judge on?
    judge(split.test, champion, champion, choices, newest)
    learned = learn(history, choices, parallel, folds=arrange(history, choices, [split]), watch=watch)
    if not learned.complete:
        raise KeyboardInterrupt
    text = learned.best.text
    expression = parse(text)
    challenger = ScoreFunction(text, expression, None, expression.terminals, choices.clock)
    verdict = judge(split.test, champion, challenger, choices, newest)
    if verdict.promoted:
        _write(path, learned, champion, verdict, choices, history)
    for line in (
        f"in use:     {champion.formula}",
        f"challenger: {expression.text}",
        str(verdict),
        f"written to {path}" if verdict.promoted else f"{path} is as it was",
    ):
        console.print(line, highlight=False, soft_wrap=True, markup=False)
    return PROMOTED if verdict.promoted else KEPT


def _write(
    path: Path,
    learned: Learned,
    champion: ScoreFunction,
    verdict: Verdict,
    choices: Choices,
    history: ChangeHistory,
) -> None:
    table = learned.best.table[LEARNED]
    promotion = {**asdict(verdict), "instead_of": champion.formula, "instead_of_sha256": champion.sha256}
    write_score_file(
        path,
        learned.best.text,
        clock=choices.clock,
        fitness=choices.fitness,
        values={part: {k: v for k, v in table[part].items() if math.isfinite(v)} for part in PARTS},
        selection=choices.selection,
        seed=choices.seed,
        history=history,
        parameters={**identity(history, choices), "promotion": promotion},
    )


def _warn_of_budget(source: Path, share: float, console: Console) -> None:
    """Say so when the crawl visits another share of the pages that it ranks than will be replayed."""
    plan = (_last_record(source) or {}).get("plan") or {}
    if not plan.get("rankable") or plan["ranked"] == plan["rankable"]:
        return
    crawled = plan["ranked"] / plan["rankable"]
    if abs(crawled - share) > 0.1 * max(crawled, share):
        console.print(
            f"note: the crawl's newest cycle chose {crawled:.3g} of the pages it ranked; this replays a "
            f"budget of {share:.3g}. To learn for the crawl as it is: --budget {crawled:.3g}",
            highlight=False,
            soft_wrap=True,
            markup=False,
        )
