"""Time and memory of learning: GP4C on a history of the size of the papers' collection.

    python -m benchmarks.learn [--full] [--fitness ndcg change_rate] [--terminals basic all] [--jobs N]
    python -m benchmarks.learn --dask

``--full`` is the journal's experiment: 300 individuals x 50 generations, 5 folds x 5 seeds, 417,048 pages x
57 days (brdc12-like). The default is a smoke size of about 10 seconds. Every fitness function and set of
terminals is measured by itself, from the generated history to the selected functions of all folds.

Printed for each: wall and processor time, functions evaluated (replays), these per second
and core, the share of the processor time that went neither into scoring nor into replaying, and the
greatest resident memory of a worker process and of the parent.

``--dask``: instead, how many times faster two workers of a Dask cluster learn than one, each a process on
this machine (target: 1.6): medians of three pairs, without compiling and sending the training sets. The
policy is ``rounds``, whose replays take long, as breeding and the last comparison are not shared among
workers.
"""

import argparse
import resource
import statistics
import sys
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from distributed import Client, LocalCluster

from benchmarks.common import exit_code, in_fresh_process, machine, printed, verdict
from scrapy_gp4c.scoring import terminals
from training.evolution.choices import Choices, prepare_splits
from training.evolution.evolve import Parameters
from training.evolution.learning import learn
from training.evolution.workers import workers
from training.histories.models import generate

SETS = {"basic": terminals.BASIC, "all": terminals.PAPERS}
FULL = {"pages": 417_048, "population": 300, "generations": 50, "seeds": 5}
SMOKE = {"pages": 10_000, "population": 40, "generations": 5, "seeds": 2}
CYCLES = 57
TARGET_MINUTES = {"basic": 10.0, "all": 20.0}
TARGET_OUTSIDE = 0.25
TARGET_MB = 1024.0
DASK = {"pages": 20_000, "population": 60, "generations": 8, "seeds": 1}
DASK_POLICY = "rounds(rounds=3)"
DASK_RUNS, DASK_TARGET = 3, 1.6


def _processor_s() -> float:
    """Processor time of this process and of its ended children."""
    self_usage, children = (
        resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )
    return self_usage.ru_utime + self_usage.ru_stime + children.ru_utime + children.ru_stime


def measure(size: dict[str, int], fitness: str, names: str, jobs: int) -> dict[str, Any]:
    """Learn once; for a fresh process, so that memory and processor time are its own."""
    choices = Choices(
        fitness=fitness,
        protocol="journal",
        seeds=size["seeds"],
        parameters=Parameters(
            terminals=SETS[names], population=size["population"], generations=size["generations"]
        ),
    )
    history = generate("brdc12-like", size["pages"], CYCLES, 0)
    begin, begin_cpu = time.perf_counter(), _processor_s()
    folds = prepare_splits(history, choices)
    with workers(jobs) as pool:
        learned = learn(history, choices, pool, folds=folds)
    wall = time.perf_counter() - begin
    tests = [fold.table["learned"]["test"][fitness] for fold in learned.folds]
    return {
        "wall_s": wall,
        "processor_s": _processor_s() - begin_cpu,
        "replays": learned.replays,
        "replay_s": learned.replay_s,
        "worker_mb": resource.getrusage(
            resource.RUSAGE_CHILDREN if jobs != 1 else resource.RUSAGE_SELF
        ).ru_maxrss
        / 1024,
        "parent_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "test": sum(tests) / len(tests),
    }


class DaskTimes(NamedTuple):
    """Times of one learning run, in seconds."""

    wall_s: float
    workers_s: list[float]
    """Processor time of each worker."""


def dask_s(jobs: int) -> DaskTimes:
    """Times of learning on ``jobs`` workers of a Dask cluster, in a fresh process."""
    quiet: dict[str, Any] = {"dashboard_address": None, "worker_dashboard_address": None, "silence_logs": 50}
    history = generate("brdc12-like", DASK["pages"], CYCLES, 0)
    with (
        LocalCluster(n_workers=jobs, threads_per_worker=1, host="127.0.0.1", **quiet) as cluster,
        Client(cluster) as client,
        workers(backend="dask", scheduler=cluster.scheduler_address) as pool,
    ):
        for generations in (1, DASK["generations"]):
            parameters = Parameters(population=DASK["population"], generations=generations)
            choices = Choices(
                protocol="journal", seeds=DASK["seeds"], parameters=parameters, policy=DASK_POLICY
            )
            folds = prepare_splits(history, choices)
            before = client.run(time.process_time)
            began = time.perf_counter()
            learn(history, choices, pool, folds=folds)
            wall_s = time.perf_counter() - began
            after = client.run(time.process_time)
    return DaskTimes(wall_s, [after[worker] - before[worker] for worker in sorted(after)])


def compare_dask() -> bool:
    """Print how many times faster two workers are than one; return whether the target holds."""
    ratios = []
    for _ in range(DASK_RUNS):
        two, one = (in_fresh_process(dask_s, jobs) for jobs in (2, 1))
        ratios.append(printed(one.wall_s / two.wall_s, ".2f"))
        busy = " and ".join(f"{seconds:.1f}" for seconds in two.workers_s)
        print(
            f"one worker {one.wall_s:.1f} s, two {two.wall_s:.1f} s: {ratios[-1]:.2f} times "
            f"faster; processor time of the one {one.workers_s[0]:.1f} s, of the two {busy} s",
            flush=True,
        )
    return verdict(
        "two workers of a Dask cluster, times faster", statistics.median(ratios), DASK_TARGET, at_least=True
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; returns 1 if a target of the full size was missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--fitness", nargs="+", default=["ndcg", "change_rate"])
    parser.add_argument("--terminals", nargs="+", choices=tuple(SETS), default=list(SETS))
    parser.add_argument("--jobs", type=int, default=-1)
    parser.add_argument("--dask", action="store_true", help="two workers of a Dask cluster against one")
    options = parser.parse_args(arguments)
    size = FULL if options.full else SMOKE
    print(machine(("numpy", "numba", "deap")))
    if options.dask:
        return exit_code(compare_dask())
    print(f"journal protocol, 5 folds, {CYCLES} cycles, {size}")
    good = True
    for names in options.terminals:
        for fitness in options.fitness:
            m = in_fresh_process(measure, size, fitness, names, options.jobs)
            outside = 1 - m["replay_s"] / m["processor_s"]
            print(
                f"{fitness}, {names}: {m['wall_s']:.1f} s wall, {m['processor_s']:.1f} s processor; "
                f"{m['replays']:,} replays, {m['replays'] / m['replay_s']:.0f} per second and core; "
                f"parent {m['parent_mb']:.0f} MB; mean test {fitness} {m['test']:.4f}"
            )
            checks = [
                verdict("  share of time outside replay", outside, TARGET_OUTSIDE, at_least=False),
                verdict("  peak memory per worker, MB", m["worker_mb"], TARGET_MB, at_least=False),
            ]
            if options.full:
                minutes = m["wall_s"] / 60
                checks.append(verdict("  minutes", minutes, TARGET_MINUTES[names], at_least=False))
                good &= all(checks)
            sys.stdout.flush()
    return exit_code(good)


if __name__ == "__main__":
    sys.exit(main())
