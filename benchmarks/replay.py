"""Replays per second: grouped against dense engine, on synthetic histories of the papers' sizes.

    python -m benchmarks.replay [--runs 7] [--quick]

Prints processor time of this one thread, ratios measured in the same run, what individuals save by being
replayed together, and how the cost grows with budget, cycles and pages. Functions take turns, and the
lowest time of each counts: what else a machine is busy with only adds (which is why ``timeit`` advises the
same); medians are printed for comparison.
Compile time is paid before measuring and reported.
"""

import argparse
import statistics
import sys
import time
from dataclasses import replace

import numpy as np

from benchmarks.common import exit_code, in_fresh_process, machine, peak_mb, printed, verdict
from scrapy_gp4c.scoring.expression import Expression, parse
from scrapy_gp4c.scoring.named import DEFAULT, FOUR_ROUNDS, NAMED
from scrapy_gp4c.scoring.terminals import BASIC, PAPERS
from training.evolution.evolve import Evolution, Parameters
from training.evolution.workers import MAX_TEXTS, TextFitness, load_fitness
from training.histories.history import ChangeHistory
from training.histories.models import generate
from training.replaying.prepared import PreparedHistory, prepare
from training.replaying.replay import run, run_all

BUDGET = 0.05
SIZES = {"250,228 x 19": (250_228, 19, 4.0, 20.0), "166,819 x 57": (166_819, 57, 15.0, 8.0)}
"""Size -> pages, cycles, most milliseconds, least ratio to the dense engine (medians over the functions)."""
RELATED = "t * (X + 0.5) * near"
MOST_RELATED_MS = 40.0
MOST_ROUNDS = 3.0
"""Largest time of a replay with four rounds, as a multiple of that with one."""
MOST_SIZED = 1.3
"""Largest time of the default where page sizes are known, as a multiple of that without."""
SIZES_KNOWN = 24
"""Number of size classes that the pages have."""
JUDGED = 6
"""Number of `functions` that the targets are for: the named ones and the trees over basic terminals."""
DENSE_RUNS = 3
METRICS = {"change rate": ("change_rate",), "+ NDCG": ("ndcg",), "all metrics": None}


def synthetic(pages: int, cycles: int, seed: int = 1) -> ChangeHistory:
    """Three pages in four nearly static, the others with rates from Beta(0.5, 1): 8.4% changes per cycle."""
    generator = np.random.default_rng(seed)
    rate = np.where(
        generator.random(pages) < 0.75, 0.002 * generator.random(pages), generator.beta(0.5, 1.0, pages)
    )
    changed = np.empty((cycles, pages), np.bool_)
    for cycle in range(cycles):
        changed[cycle] = generator.random(pages) < rate
    return ChangeHistory(changed, np.zeros(pages, np.int32))


def random_tree(nodes: int, terminals: tuple[str, ...], seed: int) -> Expression:
    """A random tree of so many nodes over the terminals and the constants of the papers."""
    generator = np.random.default_rng(seed)
    constants = (0.001, 0.01, 0.1, 0.5, 1.0, float(np.e), 10.0, 100.0, 1000.0)
    binary, unary = ("+", "-", "*", "/", "pow", "max", "min"), ("exp", "log", "sqrt")

    def grow(size: int) -> list[str | float]:
        if size == 1:
            named = generator.random() < 0.7
            return [str(generator.choice(terminals)) if named else float(generator.choice(constants))]
        if size == 2 or generator.random() < 0.2:
            return [str(generator.choice(unary)), *grow(size - 1)]
        left_size = int(generator.integers(1, size - 1))
        return [str(generator.choice(binary)), *grow(left_size), *grow(size - 1 - left_size)]

    return Expression(tuple(grow(nodes)))


def functions() -> dict[str, Expression]:
    """t * X, nad, cg, and three random trees of 20 nodes over basic and over all terminals."""
    expressions = {name: parse(name) for name in ("t * X", "nad", "cg")}
    for kind, terminals in (("basic", BASIC), ("all", PAPERS)):
        seed = 0
        while sum(name.startswith(kind) for name in expressions) < 3:
            seed += 1
            tree = random_tree(20, terminals, seed)
            if len(tree.terminals) >= 3:
                expressions[f"{kind} {seed}"] = tree
    return expressions


def time_ms(truth: PreparedHistory, function: Expression, **choices: object) -> float:
    """Processor milliseconds of a replay."""
    start = time.thread_time()
    run(truth, function, **choices)
    return 1e3 * (time.thread_time() - start)


def engines(runs: int) -> bool:
    """Print times of both engines for both sizes and every function; return whether all targets hold."""
    chosen, held = functions(), []
    for size, (pages, cycles, most, least) in SIZES.items():
        history = synthetic(pages, cycles)
        start = time.thread_time()
        truth = prepare(history, budget=BUDGET)
        print(f"\n{size}, k = {truth.k:,}; prepared once in {time.thread_time() - start:.2f} s")
        for function in chosen.values():
            run(truth, function)
        grouped = np.array(
            [
                [
                    [
                        time_ms(truth, f, engine="grouped", **({"metrics": m} if m else {}))
                        for m in METRICS.values()
                    ]
                    for f in chosen.values()
                ]
                for _ in range(runs)
            ]
        )
        dense = np.array(
            [
                [time_ms(truth, f, engine="dense", metrics=("ndcg",)) for f in chosen.values()]
                for _ in range(DENSE_RUNS)
            ]
        )
        lowest, lowest_dense = grouped.min(axis=0), dense.min(axis=0)
        ratios = lowest_dense / lowest[:, 1]
        print(f"{'function':12}" + "".join(f"{name:>14}" for name in METRICS) + f"{'dense':>10}{'ratio':>8}")
        for name, row, slow, ratio in zip(chosen, lowest, lowest_dense, ratios, strict=True):
            print(f"{name:12}" + "".join(f"{ms:11.2f} ms" for ms in row) + f"{slow:7.0f} ms{ratio:7.0f}x")
        medians = np.median(grouped, axis=0)
        for column, name in enumerate(("change rate", "change rate and NDCG")):
            judged = statistics.median(printed(ms, ".2f") for ms in lowest[:JUDGED, column])
            held.append(verdict(f"{size}, {name}, ms", judged, most, at_least=False))
            print(
                f"  (medians of {runs} runs: {statistics.median(medians[:JUDGED, column]):.2f} ms; "
                f"with the trees over all terminals: {statistics.median(lowest[:, column]):.2f} ms)"
            )
        ratio = statistics.median(printed(one, ".0f") for one in ratios[:JUDGED])
        held.append(verdict(f"{size}, times as fast as dense", ratio, least, at_least=True))
        sys.stdout.flush()
    return all(held)


def together(runs: int) -> None:
    """Print the time saved by replaying an evolution's sixth generation together, not one by one."""
    truth = prepare(synthetic(*SIZES["250,228 x 19"][:2]), budget=BUDGET)
    print(f"\n{MAX_TEXTS} individuals, change rate and NDCG, ms for each")
    for kind, terminals in (("basic", BASIC), ("all", PAPERS)):
        evolution = Evolution(Parameters(terminals=terminals, generations=6), seed=1)
        judge, known = TextFitness(truth, load_fitness("ndcg"), "visits"), {}
        while not evolution.finished:
            new = {text: form for text, form in evolution.ask().items() if text not in known}
            known |= judge.outcomes(new)
            evolution.tell(known)
        individuals = [parse(text) for text in list(dict.fromkeys([*new, *known]))[:MAX_TEXTS]]
        alone, shared = [], []
        for _ in range(runs):
            alone.append(sum(time_ms(truth, individual, metrics=("ndcg",)) for individual in individuals))
            start = time.thread_time()
            run_all(truth, individuals, metrics=("ndcg",))
            shared.append(1e3 * (time.thread_time() - start))
        one, all_ = (min(times) / len(individuals) for times in (alone, shared))
        print(f"{kind:12} one by one {one:5.2f}   together {all_:5.2f}   ratio {all_ / one:.2f}")


def related(runs: int) -> bool:
    """Print terminals of related pages: sites of 58 pages on average, in 7 directories each."""
    pages, cycles = 250_228, 17
    made = generate("brdc12-like", pages, cycles, 1)
    history = ChangeHistory(
        made.changed, made.site, page_names=[f"d{page % 7}/{page}.html" for page in range(pages)]
    )
    truth = prepare(history, budget=BUDGET)
    known = len(truth.neighbours.groups.directories)
    print(f"\n{pages:,} x {cycles}, k = {truth.k:,}, {known:,} directories, {RELATED}, with NDCG")
    size = np.random.default_rng(1).integers(1, 1 + SIZES_KNOWN, pages).astype(np.uint8)
    sized = prepare(replace(history, size=size), budget=BUDGET)
    default = parse(NAMED[DEFAULT].expression)
    cases = (
        (truth, parse(RELATED), "top_k"),
        (truth, parse(RELATED), FOUR_ROUNDS),
        (truth, default, FOUR_ROUNDS),
        (sized, default, FOUR_ROUNDS),
    )
    times = np.array(
        [
            [time_ms(prepared, score, metrics=("ndcg",), policy=policy) for prepared, score, policy in cases]
            for _ in range(runs + 1)
        ]
    )[1:]  # the first compiles
    (one, four, unsized, with_sizes), medians = times.min(axis=0), np.median(times, axis=0)
    held = [
        verdict("one round, ms", one, MOST_RELATED_MS, at_least=False),
        verdict("four rounds, times one", four / one, MOST_ROUNDS, at_least=False),
        verdict("default with sizes, times without", with_sizes / unsized, MOST_SIZED, at_least=False),
    ]
    print(f"  (medians of {runs} runs: {medians[0]:.1f} and {medians[1]:.1f} ms)")
    return all(held)


def growth(runs: int) -> None:
    """Print the time of t * X by budget, cycles and pages."""
    function = parse("t * X")
    base = (100_000, 30, 5_000)
    print("\nt * X with NDCG")
    for what, cases in {
        "visits per cycle": [(100_000, 30, k) for k in (2_500, 5_000, 10_000, 20_000)],
        "cycles": [(100_000, cycles, 5_000) for cycles in (15, 30, 60, 120)],
        "pages": [(pages, 30, 5_000) for pages in (50_000, 100_000, 200_000, 400_000)],
    }.items():
        values = []
        for pages, cycles, k in cases:
            truth = prepare(synthetic(pages, cycles), budget=k)
            run(truth, function)
            values.append(min(time_ms(truth, function, metrics=("ndcg",)) for _ in range(runs)))
        index = {"visits per cycle": 2, "cycles": 1, "pages": 0}[what]
        print(
            f"{what:17}" + "".join(f"{c[index]:>9,}: {v:6.2f} ms" for c, v in zip(cases, values, strict=True))
        )
    print(f"(the others: {base[0]:,} pages, {base[1]} cycles, {base[2]:,} visits per cycle)")


def peaks_mb() -> tuple[float, float]:
    """Peaks of memory of this process: after it made a history, and after it replayed that, MB."""
    small = prepare(synthetic(1000, 57), budget=BUDGET)
    for text in ("t * X", "gad * t"):
        run(small, text)
    before = peak_mb()
    history = synthetic(417_048, 57)
    made = peak_mb()
    truth = prepare(history, budget=BUDGET)
    for text in ("t * X", "gad * t"):
        run(truth, text)
    return made - before, peak_mb() - before


def memory() -> None:
    """Peak resident memory of a process that holds 417,048 pages x 57 cycles and replays them."""
    made_mb, replayed_mb = in_fresh_process(peaks_mb)
    print(
        f"\nmemory, 417,048 x 57: {replayed_mb:.0f} MB above interpreter and libraries at the peak "
        f"(goal 150), of which making the history {made_mb:.0f}"
    )


def main() -> int:
    """Run all parts; 1 when a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=int, default=7, help="runs of each function (default: 7)")
    parser.add_argument("--quick", action="store_true", help="leave out all but the two sizes")
    arguments = parser.parse_args()
    start = time.perf_counter()
    small = prepare(synthetic(1000, 10), budget=BUDGET)
    for text in ("t * X", "gad"):
        run(small, text)
    print(
        f"{machine(('numpy', 'numba'))}; first use (compiling or loading) {time.perf_counter() - start:.1f} s"
    )
    holds = engines(arguments.runs)
    holds &= related(max(arguments.runs, 5))
    if not arguments.quick:
        together(arguments.runs)
        growth(arguments.runs)
        memory()
    return exit_code(holds)


if __name__ == "__main__":
    sys.exit(main())
