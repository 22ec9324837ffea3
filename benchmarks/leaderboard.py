"""All that has a name, on several histories and budgets: `python -m benchmarks.leaderboard HISTORY...`.

Writes the tables of docs/leaderboard.md as Markdown: one for each budget, and one of means, from which rules
choose what `GP4C_SCORE_FUNCTION` offers by purpose. A case is a history and a budget; its figures are means
over the scored cycles and the seeds. The rules, over the mean of all cases:

* default: the highest NDCG among those whose freshness is on no history below that of `random`, whatever the
  seed (a crawl has one): on a history, freshness is the mean over its budgets;
* changes: the highest NDCG of `KNOB`;
* balanced: the highest NDCG of `KNOB` whose freshness is at least that of `age`;
* freshness: the highest freshness of `KNOB`.

Functions that read related pages or the cycle so far are candidates under each policy of
`POLICIES`, the others under `top_k`. Means that differ by less than `TIE` are tied; of these the shortest
expression is taken, then the one with fewer rounds, then the higher mean.
"""

from __future__ import annotations

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
from scrapy_gp4c.scoring.named import DEFAULT, NAMED, PURPOSES
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

POLICIES: Final = ("top_k", "rounds(rounds=4)", "rounds(rounds=8)")
KNOB: Final = ("floor-0.02", "floor-0.1", "floor-0.2", "oldest-neighbours")
"""One knob, from what finds the most changes to what keeps the most copies current."""
TIE: Final = 0.01
"""Seeds alone move the mean of a case by as much."""


NDCG, FRESHNESS = TRIO.index("ndcg"), TRIO.index("freshness")
FIRST: Final = "### Budget "
"""Where the tables begin."""


class Choice(NamedTuple):
    """What is replayed."""

    name: str
    policy: str
    """Text of the policy; ``top_k`` for oracle and peers too."""

    def __str__(self) -> str:
        return self.name if self.policy == POLICIES[0] else f"{self.name}, {self.policy}"

    @property
    def nodes(self) -> int:
        """Length of the expression."""
        return len(parse(NAMED[self.name].expression).tokens)


Values = dict[Choice, Floats]
"""Mean over the scored cycles: ``[cases, seeds, metrics]``, the metrics those of `TRIO`."""


def is_related(name: str) -> bool:
    """Tell whether a named function reads more than the page's own past."""
    return any(column in ROUND for column in columns_of(load(name).terminals) if column != "draw")


def candidates() -> list[Choice]:
    """What the rules choose from."""
    return [
        Choice(name, policy)
        for name in NAMED
        if name not in PURPOSES and {*load(name).terminals} <= {*ALWAYS_KNOWN}
        for policy in (POLICIES if is_related(name) else POLICIES[:1])
    ]


def choices() -> list[Choice]:
    """All that is replayed: the candidates, what the rules chose before, the oracle and the peers."""
    others = [Choice(name, POLICIES[0]) for name in (ORACLE, *BASELINES)]
    purposes = [Choice(name, NAMED[name].policy or POLICIES[0]) for name in PURPOSES]
    return [others[0], *candidates(), *purposes, *others[1:]]


def measure(
    histories: Sequence[ChangeHistory], budgets: Sequence[float], seeds: int, advance: Callable[[], object]
) -> Values:
    """Replay everything; cases come history by history, and in each budget by budget."""
    wanted = choices()
    values = {choice: np.zeros((len(histories) * len(budgets), seeds, len(TRIO))) for choice in wanted}
    for number, history in enumerate(histories):
        for place, budget in enumerate(budgets):
            for seed in range(seeds):
                for policy in dict.fromkeys(choice.policy for choice in wanted):
                    ours = [choice for choice in wanted if choice.policy == policy]
                    crawl = CrawlChoices(budget, seed=seed, policy=policy)
                    results = evaluate(history, [one.name for one in ours], crawl, advance=advance).results
                    for choice, result in zip(ours, results, strict=True):
                        means = [result.metrics[metric].mean for metric in TRIO]
                        values[choice][number * len(budgets) + place, seed] = means
    return values


def tied_best(means: dict[Choice, float]) -> Choice:
    """The choice with the highest mean; of those tied with it the shortest, then the one of fewest rounds."""
    best = max(means.values())
    tied = [choice for choice, mean in means.items() if mean > best - TIE or mean == best]
    return min(tied, key=lambda choice: (choice.nodes, POLICIES.index(choice.policy), -means[choice]))


def chosen(values: Values, budgets: int) -> dict[str, Choice]:
    """Purpose -> what the rule for it chooses; ``budgets``: cases of one history, which come together."""
    ours = [choice for choice in values if choice in candidates()]
    knob = [choice for choice in ours if choice.name in KNOB]
    old = means_of([Choice("age", POLICIES[0])], values, FRESHNESS)
    fresh = means_of(knob, values, FRESHNESS)
    steady = [choice for choice in ours if leads(values, choice, "random", budgets).min() >= 0.0]
    of_rule = (
        means_of(steady, values, NDCG),
        means_of(knob, values, NDCG),
        means_of([choice for choice in knob if fresh[choice] >= max(old.values())], values, NDCG),
        fresh,
    )
    names = (DEFAULT, "changes", "balanced", "freshness")
    return {purpose: tied_best(means) for purpose, means in zip(names, of_rule, strict=True)}


def means_of(choices_: Sequence[Choice], values: Values, metric: int) -> dict[Choice, float]:
    """Means over all cases and seeds."""
    return {choice: float(values[choice][..., metric].mean()) for choice in choices_}


def leads(values: Values, choice: Choice, other: str, budgets: int) -> Floats:
    """How far a choice's freshness is above another's: by so many cases taken together, and seed."""
    gaps = (values[choice] - values[Choice(other, POLICIES[0])])[..., FRESHNESS]
    return np.asarray(gaps.reshape(-1, budgets, gaps.shape[-1]).mean(axis=1))


def tables(values: Values, names: Sequence[str], budgets: Sequence[str]) -> Iterator[str]:
    """The lines of all tables."""
    for place, budget in enumerate(budgets):
        yield f"{FIRST}{budget}\n"
        yield f"| score function or policy | {' | '.join(names)} | source |"
        yield "|---" * (len(names) + 2) + "|"
        for choice, of_choice in values.items():
            cells = [
                " ".join(f"{value:.3f}" for value in case.mean(axis=0))
                for case in of_choice[place :: len(budgets)]
            ]
            yield f"| `{choice}` | {' | '.join(cells)} | {about(choice.name)[0]} |"
        yield ""
    yield "### Means, and what the rules choose\n"
    yield (
        "| score function or policy | nodes | change rate | NDCG | freshness "
        "| least lead in freshness over `random`, of a history | of a case "
        "| over `age`, of a history | of a case | chosen as |"
    )
    yield "|---" * 10 + "|"
    purposes = {f"`{name}`": choice for name, choice in chosen(values, len(budgets)).items()}
    known = set(candidates())
    for choice, of_choice in values.items():
        per_seed = of_choice.mean(axis=0)
        cells = [_interval(per_seed[:, metric]) for metric in range(len(TRIO))]
        for other in ("random", "age"):
            cells += [
                f"{leads(values, choice, other, together).mean(axis=1).min():+.3f}"
                for together in (len(budgets), 1)
            ]
        nodes = str(choice.nodes) if choice in known else ""
        names_of = ", ".join(name for name, one in purposes.items() if one == choice)
        yield f"| `{choice}` | {nodes} | {' | '.join(cells)} | {names_of} |"


def _interval(values: Floats) -> str:
    mean = statistics.mean(values)
    return f"{mean.mean:.3f}" + (f" ± {mean.half_width:.3f}" if len(values) > 1 else "")


def main(arguments: Sequence[str] | None = None) -> int:
    """Replay, and print or write the tables."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.leaderboard", description=__doc__.split("\n\n")[0]
    )
    parser.add_argument(
        "histories", nargs="*", metavar="HISTORY", help="history files (default: the demo's web, seed 1)"
    )
    parser.add_argument("--budgets", nargs="+", default=["0.01", "0.05", "0.1"])
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument(
        "-o", "--output", type=Path, help="Markdown file whose tables are replaced (default: print them)"
    )
    given = parser.parse_args(arguments)
    histories = [read_history(path) for path in given.histories] or [history_of(Web(1))]
    replays = len(histories) * len(given.budgets) * given.seeds * len(choices())
    with progress(Console(stderr=True), replays) as advance:
        budgets = [parse_budget(text) for text in given.budgets]
        values = measure(histories, budgets, given.seeds, advance)
    names = [Path(path).name.partition(".tsv")[0] for path in given.histories] or ["demo"]
    text = "\n".join(tables(values, names, given.budgets)) + "\n"
    if given.output:
        before = given.output.read_text(encoding="utf-8") if given.output.exists() else ""
        given.output.write_text(before.partition(FIRST)[0] + text, encoding="utf-8")
    else:
        print(text, end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
