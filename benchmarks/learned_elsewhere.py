"""Gain of learning with related pages on sites that it has not seen.

    python -m benchmarks.learned_elsewhere HISTORY... [--seeds N] [--population N] [--generations N]
    python -m benchmarks.learned_elsewhere HISTORY... --named-only --seeds N

Without HISTORY a small synthetic one, whose pages do not change together. Half of the sites are learned on,
in the first two thirds of the cycles; judged are the other sites in the last third (`training.learn --divide
halves`), at a budget of 5% in four rounds. For every history and seed: what is learned for NDCG alone, and
what each preference takes of a front of NDCG and freshness, beside the named functions, all on the same
part. Differences are paired by cycle, with 95% intervals (Student's t). The
verdicts compare means over all histories and seeds:

* one objective: NDCG at least that of the best named function;
* ``--prefer freshness``: freshness at least that of the named `freshness`;
* ``--prefer balanced``: NDCG and freshness at least those of `default`.

``--named-only`` learns nothing: which named function is best depends on the division, so that it takes many
to tell; each is set against the one that learning falls back on for NDCG, with the interval over the cases.
"""

import argparse
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from benchmarks.common import machine, printed, verdict
from benchmarks.learn_related import synthetic
from scrapy_gp4c.arrays import Floats
from scrapy_gp4c.scoring.named import BASELINES, FOUR_ROUNDS, NAMED
from scrapy_gp4c.scoring.terminals import RELATED
from training.comparing.statistics import half_width
from training.evolution.checkpoint import Checkpoint
from training.evolution.choices import Choices, identity, prepare_splits
from training.evolution.evolve import Parameters, named_expression
from training.evolution.front import PREFERENCES
from training.evolution.learning import learn
from training.evolution.workers import PreparedSplit, workers
from training.histories.history import ChangeHistory
from training.histories.reading import read_history
from training.learn import FORGET
from training.replaying.prepared import PreparedHistory
from training.replaying.replay import run

PEERS: Final = tuple(
    name for name in NAMED if name not in BASELINES and {*named_expression(name).terminals} <= {*RELATED}
)
"""The named functions beyond the papers' ones."""
METRICS: Final = ("ndcg", "freshness")
"""Compared metrics, in the order of the columns."""
ALONE: Final = "one objective"
RIVALS: Final = {"changes": "changes", "balanced": "default", "freshness": "freshness"}
"""Preference -> the named function that it is held against."""


def learned(history: ChangeHistory, choices: Choices, parts: PreparedSplit, pool: Any) -> dict[str, str]:
    """Learned functions by kind. A front evolves once; its preferences choose from what it kept."""
    texts = {ALONE: learn(history, choices, pool, folds=[parts]).best.text}
    with tempfile.TemporaryDirectory() as folder:
        for prefer in PREFERENCES:
            choices_of_goal = replace(choices, front=True, prefer=prefer)
            checkpoint = Checkpoint(Path(folder), identity(history, choices_of_goal))
            checkpoint.open(resume=True)
            learned = learn(history, choices_of_goal, pool, folds=[parts], checkpoint=checkpoint)
            texts[f"prefer {prefer}"] = learned.best.text
    return texts


def values(test: PreparedHistory, text: str) -> Floats:
    """NDCG and freshness in every scored cycle: float64 ``[2, cycles]``."""
    result = run(test, text, policy=FOUR_ROUNDS, metrics=METRICS)
    return np.array([getattr(result, metric) for metric in METRICS])


def case(history: ChangeHistory, choices: Choices, pool: Any) -> dict[str, Floats]:
    """Learn from one history: name or kind -> values on its test part. Prints them, and what was learned."""
    (parts,) = prepare_splits(history, choices)
    texts = learned(history, choices, parts, pool)
    table = {name: values(parts.test, text) for name, text in texts.items()}
    table |= {name: values(parts.test, NAMED[name].expression) for name in PEERS}
    sizes = ", ".join(f"{part.pages:,} x {part.cycles}" for part in parts[:3])
    print(f"\n{history.source}, seed {choices.seed}: training, validation, test of {sizes} pages x cycles")
    best = max(PEERS, key=lambda name: float(table[name][0].mean()))
    for name, rival in ((ALONE, best), *((f"prefer {one}", RIVALS[one]) for one in PREFERENCES)):
        print(f"  {name}: {texts[name]}")
        for metric, ours, other in zip(METRICS, table[name], table[rival], strict=True):
            lead = ours - other
            print(
                f"    {metric} {ours.mean():.4f}; {rival} {other.mean():.4f}: "
                f"{lead.mean():+.4f} ± {half_width(lead):.4f}"
            )
    return table


def named_only(histories: Iterable[ChangeHistory], choices: Choices, seeds: int) -> None:
    """Print NDCG and freshness of the named functions on the test parts, and how far from the first."""
    cases: list[Floats] = []
    for history in histories:
        for seed in range(1, seeds + 1):
            (parts,) = prepare_splits(history, replace(choices, seed=seed, selection="best"))
            cases.append(
                np.array([values(parts.test, NAMED[name].expression).mean(axis=1) for name in PEERS])
            )
        mean = np.mean(cases[-seeds:], axis=0)[:, 0]
        said = ", ".join(f"{name} {value:.4f}" for name, value in zip(PEERS, mean, strict=True))
        print(f"\n{history.source}, {seeds} divisions, NDCG: {said}")
    table = np.array(cases)
    standing = PEERS.index("neighbours")
    print(f"\nmeans of {len(cases)} cases: NDCG, freshness, lead in NDCG over {PEERS[standing]}")
    for which in np.argsort(-table[:, :, 0].mean(axis=0)):
        lead = table[:, which, 0] - table[:, standing, 0]
        ndcg, freshness = table[:, which].mean(axis=0)
        print(f"  {PEERS[which]:20s} {ndcg:.4f} {freshness:.4f} {lead.mean():+.4f} ± {half_width(lead):.4f}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; returns 1 if one of the verdicts was missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("histories", nargs="*", metavar="HISTORY")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--population", type=int, default=100)
    parser.add_argument("--generations", type=int, default=15)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--named-only", action="store_true")
    options = parser.parse_args(arguments)
    choices = Choices(
        seeds=2,
        forget=FORGET,
        selection="guarded",
        policy=FOUR_ROUNDS,
        division="halves",
        parameters=Parameters(RELATED, population=options.population, generations=options.generations),
    )
    print(machine(("numpy", "numba", "deap")))
    if options.named_only:
        named_only(map(read_history, options.histories), choices, options.seeds)
        return 0
    with workers(options.jobs) as pool:
        cases = [
            case(history, replace(choices, seed=seed), pool)
            for history in (map(read_history, options.histories) if options.histories else [synthetic()])
            for seed in range(1, options.seeds + 1)
        ]
    means = {name: np.mean([one[name].mean(axis=1) for one in cases], axis=0) for name in cases[0]}
    print(f"\nmeans of {len(cases)} cases: NDCG, freshness")
    means = {name: [printed(mean, ".4f") for mean in both] for name, both in means.items()}
    for name, (ndcg, freshness) in sorted(means.items(), key=lambda item: -item[1][0]):
        print(f"  {name:20s} {ndcg:.4f} {freshness:.4f}")
    best = max(means[name][0] for name in PEERS)
    balanced, default = means["prefer balanced"], means[RIVALS["balanced"]]
    fresh = means["prefer freshness"][1], means[RIVALS["freshness"]][1]
    held = [
        verdict(f"{what}, as a share", ours / other, 1.0, at_least=True)
        for what, ours, other in (
            (f"{ALONE}, NDCG of the best named function", means[ALONE][0], best),
            ("prefer freshness, freshness of the named one", *fresh),
            ("prefer balanced, NDCG of default", balanced[0], default[0]),
            ("prefer balanced, freshness of default", balanced[1], default[1]),
        )
    ]
    return 0 if all(held) else 1


if __name__ == "__main__":
    sys.exit(main())
