"""All named functions and baselines on two kinds of histories: `python -m benchmarks.leaderboard`.

Writes the tables of docs/lab/leaderboard.md as Markdown: one for each budget, and one of means, from which
rules choose what `GP4C_SCORE_FUNCTION` offers by purpose. A case is a history and a budget; its figures are
means over the scored cycles and the seeds. Each kind of histories, documentation and monitored pages, weighs
half. The rules, over that mean:

* default: the highest NDCG among those whose freshness is on no history below that of `random`, whatever the
  seed (a crawl has one): on a history, freshness is the mean over its budgets;
* changes: the highest NDCG;
* freshness: the highest freshness.

Functions that read related pages or the cycle so far are replayed under each policy of `POLICIES`, the others
under `top_k`; the rules choose among one round and four. What is within `TIE` of the best is tied; of these
the best by the other of the two metrics is taken; of what is tied in that too, the one of fewest rounds, then
the shortest.
"""

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
from rich.console import Console

from example_project.history import history_of
from example_project.model import Web
from scrapy_gp4c.arrays import Floats
from scrapy_gp4c.scoring.expression import parse
from scrapy_gp4c.scoring.functions import load
from scrapy_gp4c.scoring.named import DEFAULT, FOUR_ROUNDS, NAMED
from scrapy_gp4c.scoring.terminals import ALWAYS_KNOWN, ROUND, columns_of
from training.comparing import statistics
from training.comparing.evaluation import evaluate
from training.comparing.leaderboard import about
from training.histories.history import ChangeHistory
from training.histories.reading import read_history
from training.replaying.baselines import BASELINES
from training.replaying.metrics import ORACLE, TRIO, parse_budget
from training.replaying.prepared import CrawlChoices
from training.reporting.terminal import progress

POLICIES: Final = ("top_k", FOUR_ROUNDS, "rounds(rounds=8)")
GREEDY: Final = NAMED["freshness-greedy"].expression
FORMS: Final = (
    *(f"t * (hint_rate + {floor}) * near" for floor in (0.02, 0.1, 0.2)),
    "t * (hint_rate + 3 * spent ** 2) * near * sqrt(surprise_site)",
    "t * near",
    f"{GREEDY} * near",
    f"{GREEDY.replace('rate', '(rate + 0.02)')} * near",
    f"{GREEDY} * near * sqrt(surprise_site)",
    f"{NAMED['harmonic'].expression} * near",
)
"""Unnamed candidates, from those that find many changes to those that keep many copies current."""
NDCG, FRESHNESS = TRIO.index("ndcg"), TRIO.index("freshness")
TIE: Final = {NDCG: 0.01, FRESHNESS: 0.005}
"""Metric -> difference of means that counts as a tie: seeds alone make differences of this size."""


FIRST: Final = "### Budget "
"""Beginning of the heading at which the document's generated tables begin."""


class Choice(NamedTuple):
    """Score function and policy of a replay."""

    name: str
    """Name of a function or a baseline, or an expression."""
    policy: str
    """Text of the policy; ``top_k`` for the oracle and baselines too."""

    def __str__(self) -> str:
        return self.name if self.policy == POLICIES[0] else f"{self.name}, {self.policy}"

    @property
    def nodes(self) -> int:
        """Number of nodes of the expression."""
        named = NAMED.get(self.name)
        return len(parse(named.expression if named else self.name).tokens)


Values = dict[Choice, Floats]
"""Mean over the scored cycles: ``[histories, budgets, seeds, metrics]``, the metrics those of `TRIO`."""
Kinds = dict[str, slice]
"""Kind of histories -> positions of its histories."""


def is_related(name: str) -> bool:
    """Whether a function reads columns of related pages or of the cycle so far."""
    return any(column in ROUND for column in columns_of(load(name).terminals) if column != "draw")


def candidates() -> list[Choice]:
    """Functions of a crawl, with the policies under which they are replayed."""
    named = [name for name in NAMED if {*load(name).terminals} <= {*ALWAYS_KNOWN}]
    known = {NAMED[name].expression for name in named}
    return [
        Choice(name, policy)
        for name in (*named, *(form for form in FORMS if form not in known))
        for policy in (POLICIES if is_related(name) else POLICIES[:1])
    ]


def choices() -> list[Choice]:
    """Candidates, oracle and baselines: all that is replayed."""
    return [Choice(ORACLE, POLICIES[0]), *candidates(), *(Choice(name, POLICIES[0]) for name in BASELINES)]


def measure(
    histories: Sequence[ChangeHistory], budgets: Sequence[float], seeds: int, advance: Callable[[], object]
) -> Values:
    """Replay all `choices` on every history with every budget and seed."""
    compared = choices()
    values = {choice: np.zeros((len(histories), len(budgets), seeds, len(TRIO))) for choice in compared}
    for number, history in enumerate(histories):
        for position, budget in enumerate(budgets):
            for seed in range(seeds):
                for policy in dict.fromkeys(choice.policy for choice in compared):
                    ours = [choice for choice in compared if choice.policy == policy]
                    crawl = CrawlChoices(budget, seed=seed, policy=policy)
                    results = evaluate(history, [one.name for one in ours], crawl, advance=advance).results
                    for choice, result in zip(ours, results, strict=True):
                        means = [result.metrics[metric].mean for metric in TRIO]
                        values[choice][number, position, seed] = means
    return values


def tied_best(means: dict[Choice, Floats], metric: int) -> Choice:
    """The choice with the highest mean of a metric; the module docstring has the rule for ties.

    ``means``: mean of every metric, ``[metrics]``.
    """
    tied = list(means)
    for one in (metric, NDCG + FRESHNESS - metric):
        best = max(means[choice][one] for choice in tied)
        tied = [choice for choice in tied if means[choice][one] > best - TIE[one]]
    return min(tied, key=lambda one: (POLICIES.index(one.policy), one.nodes, -means[one][metric]))


def chosen(values: Values, kinds: Kinds) -> dict[str, Choice]:
    """Purpose (default, changes, freshness) -> the choice that its rule selects."""
    ours = [one for one in candidates() if one in values and one.policy in POLICIES[:2]]
    means = {choice: mean_of(values[choice], kinds) for choice in ours}
    steady = {one: mean for one, mean in means.items() if leads(values, one, "random").min() >= 0.0}
    return {
        DEFAULT: tied_best(steady, NDCG),
        "changes": tied_best(means, NDCG),
        "freshness": tied_best(means, FRESHNESS),
    }


def mean_of(values: Floats, kinds: Kinds) -> Floats:
    """Mean of every metric, ``[metrics]``: each kind of histories weighs the same."""
    return np.asarray(np.mean([values[rows].mean(axis=(0, 1, 2)) for rows in kinds.values()], axis=0))


def leads(values: Values, choice: Choice, other: str) -> Floats:
    """Lead of a choice over another in freshness: of each history, mean over its budgets, and seed."""
    gaps = values[choice] - values[Choice(other, POLICIES[0])]
    return np.asarray(gaps[..., FRESHNESS].mean(axis=1))


def tables(values: Values, names: Sequence[str], kinds: Kinds, budgets: Sequence[str]) -> Iterator[str]:
    """The lines of all tables."""
    for position, budget in enumerate(budgets):
        yield f"{FIRST}{budget}\n"
        yield f"| score function or policy | {' | '.join(names)} | source |"
        yield "|---" * (len(names) + 2) + "|"
        for choice, of_choice in values.items():
            cells = [
                " ".join(f"{value:.3f}" for value in case.mean(axis=0)) for case in of_choice[:, position]
            ]
            yield f"| `{choice}` | {' | '.join(cells)} | {about(choice.name)[0]} |"
        yield ""
    yield "### Means, and what the rules choose\n"
    heads = [f"{kind}: {name}" for kind in kinds for name in ("NDCG", "freshness")]
    yield (
        f"| score function or policy | change rate | NDCG | freshness | {' | '.join(heads)} "
        "| least lead in freshness over `random` | chosen as |"
    )
    yield "|---" * (len(heads) + 6) + "|"
    purposes = {f"`{name}`": choice for name, choice in chosen(values, kinds).items()}
    for choice, of_choice in values.items():
        cells = [f"{mean:.3f}" for mean in mean_of(of_choice, kinds)]
        for rows in kinds.values():
            of_history = of_choice[rows].mean(axis=(1, 2))
            cells += [_interval(of_history[:, metric]) for metric in (NDCG, FRESHNESS)]
        cells.append(f"{leads(values, choice, 'random').mean(axis=1).min():+.3f}")
        names_of = ", ".join(name for name, one in purposes.items() if one == choice)
        yield f"| `{choice}` | {' | '.join(cells)} | {names_of} |"


def _interval(values: Floats) -> str:
    mean = statistics.mean(values)
    return f"{mean.mean:.3f}" + (f" ± {mean.half_width:.3f}" if len(values) > 2 else "")


def main(arguments: Sequence[str] | None = None) -> int:
    """Replay, and print or write the tables."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.leaderboard", description=__doc__.split("\n\n")[0]
    )
    parser.add_argument(
        "histories",
        nargs="*",
        metavar="HISTORY",
        help="histories of documentation (without any history: the demo's web, seed 1)",
    )
    parser.add_argument(
        "--monitored", nargs="+", default=[], metavar="HISTORY", help="histories of monitored pages"
    )
    parser.add_argument("--budgets", nargs="+", default=["0.01", "0.05", "0.1"])
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument(
        "-o", "--output", type=Path, help="Markdown file whose tables are replaced (default: print them)"
    )
    options = parser.parse_args(arguments)
    paths = (*options.histories, *options.monitored)
    histories = [read_history(path) for path in paths] or [history_of(Web(1))]
    first_monitored = len(histories) - len(options.monitored)
    parts = {
        "documentation": slice(first_monitored),
        "monitored": slice(first_monitored, len(histories)),
    }
    kinds = {kind: rows for kind, rows in parts.items() if histories[rows]}
    replays = len(histories) * len(options.budgets) * options.seeds * len(choices())
    with progress(Console(stderr=True), replays) as advance:
        budgets = [parse_budget(text) for text in options.budgets]
        values = measure(histories, budgets, options.seeds, advance)
    names = [Path(path).name.partition(".tsv")[0] for path in paths] or ["demo"]
    text = "\n".join(tables(values, names, kinds, options.budgets)) + "\n"
    if options.output:
        before = options.output.read_text(encoding="utf-8") if options.output.exists() else ""
        options.output.write_text(before.partition(FIRST)[0] + text, encoding="utf-8")
    else:
        print(text, end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
