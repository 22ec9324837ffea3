"""Cost of sampling policies: replays, and the rounds of a crawl.

    python -m benchmarks.policies [--runs 5] [--pages 1000000] [--directory DIR] [--quick]

Replays have 250,228 pages in directories of 40, 60 of them a site, and 100 clusters; 17 scored cycles, 5% of
the pages a cycle. Compiled loops and the rings of directories are made before. ``rounds`` is compared with
the dense engine's ``top_k`` in the same run. Times are of the processor, the lowest of several runs.

A crawl's store is that of `benchmarks.plan`. Its first round is planned, then the later rounds, each of which
holds up the reactor. Targets: 1 s for 1M pages and 8 s for 10M, at most 0.5 GB of anonymous memory, 50 ms for
a later round at 1M.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

import numpy as np
from scrapy.settings import Settings as ScrapySettings

from benchmarks.common import anonymous_bytes, exit_code, in_fresh_process, machine, peak_memory, verdict
from benchmarks.plan import build
from benchmarks.replay import BUDGET, synthetic
from scrapy_gp4c.crawling.planning import Planner
from scrapy_gp4c.page_state.groupings import Links, PageGroups
from scrapy_gp4c.page_state.outcomes import CHANGED, UNCHANGED
from scrapy_gp4c.policies.base import CycleVisits, Planned
from scrapy_gp4c.settings import Settings
from scrapy_gp4c.store.lmdb_store.store import Store
from training.histories.history import ChangeHistory
from training.replaying.prepared import PreparedHistory, prepare
from training.replaying.replay import run

PAGES, CYCLES = 250_228, 19
PAGES_OF_DIRECTORY, DIRECTORIES_OF_SITE, CLUSTERS = 40, 60, 100
MOST_MS: Final = {"gsb": 100.0, "db": 100.0, "cb": 100.0}
ROUNDS: Final = ("rounds(rounds=16)", "rounds(rounds=16, sample=0.2)")
SCORE: Final = "t * (X + 0.5) * near"
MOST_ROUNDS: Final = 4.0
"""Largest time of a replay by ``rounds``, as a multiple of that by ``top_k`` in the dense engine."""
PLANS: Final = (
    "gsb",
    "gsb(level='directory')",
    "db",
    "groups(level='directory')",
    "rounds(rounds=16, sample=0.2)",
)
LATER_ROUNDS: Final = 5
MOST_STALL_MS: Final = 50.0
MOST_MEMORY_GB: Final = 0.5


def web(pages: int) -> ChangeHistory:
    """A history of the papers' size, with directories and clusters of equal size."""
    directory = np.arange(pages) // PAGES_OF_DIRECTORY
    names = [f"{number}/{page}.html" for page, number in enumerate(directory.tolist())]
    site = (directory // DIRECTORIES_OF_SITE).astype(np.int32)
    history = ChangeHistory(synthetic(pages, CYCLES).changed, site, page_names=names)
    generator = np.random.default_rng(1)
    cluster = generator.integers(0, CLUSTERS, pages).astype(np.int32)
    order = np.array(
        [[own_cluster, *np.setdiff1d(np.arange(CLUSTERS), [own_cluster])] for own_cluster in range(CLUSTERS)],
        np.int32,
    )
    nobody = np.empty(0, np.intp)
    history.neighbours.groups_by_content = PageGroups(cluster, order, Links(nobody, nobody, pages), "")
    return history


def replay_ms(prepared: PreparedHistory, policy: str, runs: int, **choices: str) -> float:
    """Lowest time of a replay by a policy."""
    times = []
    for number in range(runs + 1):
        start_s = time.process_time()
        run(prepared, SCORE, policy=policy, metrics=("change_rate", "ndcg"), engine="auto", **choices)  # type: ignore[arg-type]
        if number:  # the first compiles
            times.append(time.process_time() - start_s)
    return 1e3 * min(times)


def replays(pages: int, runs: int) -> bool:
    """Print the times of replays; return whether all targets hold."""
    prepared = prepare(web(pages), budget=BUDGET)
    print(f"replays of {pages:,} pages x {CYCLES - 2} cycles, {BUDGET:.0%} a cycle")
    for policy in ("rns", "rr", "db(phi='wha')", "groups"):
        print(f"  {policy}: {replay_ms(prepared, policy, 1):.0f} ms")
    holds = [
        verdict(f"  {policy}, ms", replay_ms(prepared, policy, runs), most, at_least=False)
        for policy, most in MOST_MS.items()
    ]
    top_k = replay_ms(prepared, "top_k", runs)
    print(f"  top_k by {SCORE}: {top_k:.0f} ms")
    holds += [
        verdict(
            f"  {policy}, times top_k", replay_ms(prepared, policy, runs) / top_k, MOST_ROUNDS, at_least=False
        )
        for policy in ROUNDS
    ]
    return all(holds)


def rounds_s(path: str, policy: str) -> tuple[float, float, float]:
    """Seconds of the first round, the longest of the later ones, and memory in GB."""
    settings = Settings.load(
        ScrapySettings({"GP4C_POLICY": policy, "GP4C_BUDGET": BUDGET, "GP4C_SCORE_FUNCTION": SCORE})
    )
    generator = np.random.default_rng(1)
    before, peak, later = anonymous_bytes(), [0], []
    with Store(path) as store, peak_memory(peak):  # as a crawl: a reader checks blocks again and again
        start_s = time.perf_counter()
        planner = Planner.of(store, settings)
        chosen = planner.first_choice()
        first_s = time.perf_counter() - start_s
        planned, kinds = chosen.pages, chosen.kinds_of_pages()
        for number in range(1, LATER_ROUNDS + 1):
            outcomes = np.where(generator.random(len(planned)) < 0.2, CHANGED, UNCHANGED).astype(np.uint8)
            visits = CycleVisits(planned, outcomes, kinds)
            start_s = time.perf_counter()
            chosen = planner.choice(number, len(planned), Planned(planned, kinds), visits)
            later.append(time.perf_counter() - start_s)
            planned = np.concatenate((planned, chosen.pages))
            kinds = np.concatenate((kinds, chosen.kinds_of_pages()))
    return first_s, max(later), (peak[0] - before) / 1e9


def plans(pages: int, directory: str | None) -> bool:
    """Print the times of a crawl's rounds; return whether all targets hold."""
    holds = True
    with tempfile.TemporaryDirectory(dir=directory) as folder:
        path = str(Path(folder, "store"))
        in_fresh_process(build, path, pages)
        print(f"rounds of a crawl of {pages:,} pages, {BUDGET:.0%} a cycle")
        for policy in PLANS:
            first_s, later_s, memory = in_fresh_process(rounds_s, path, policy)
            most_s = 0.8 * pages / 1e6 if pages > 1_000_000 else 1.0
            holds &= verdict(f"  {policy}: first round, s", first_s, most_s, at_least=False)
            name, most_ms = f"  {policy}: longest of {LATER_ROUNDS} later rounds, ms", MOST_STALL_MS
            if pages > 1_000_000:
                print(f"{name}: {1e3 * later_s:.0f}")
            else:
                holds &= verdict(name, 1e3 * later_s, most_ms, at_least=False)
            holds &= verdict(f"  {policy}: anonymous memory, GB", memory, MOST_MEMORY_GB, at_least=False)
    return holds


def main() -> int:
    """Measure; 1 when a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--pages", type=int, nargs="*", default=[1_000_000], help="sizes of crawls")
    parser.add_argument("--directory", help="where to build the stores (default: the temporary directory)")
    parser.add_argument("--quick", action="store_true", help="no crawls, a replay each")
    options = parser.parse_args()
    print(machine(("numpy", "numba")))
    holds = replays(PAGES, 1 if options.quick else options.runs)
    for pages in () if options.quick else options.pages:
        holds &= plans(pages, options.directory)
    return exit_code(holds)


if __name__ == "__main__":
    sys.exit(main())
