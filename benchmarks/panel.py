"""Coverage of the panel's 95% intervals in simulated crawls, and the time that it adds to a cycle's end.

Every run draws pages, changes and panel anew; its last cycle is compared with the truth.
"""

import argparse
import time
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.stats import binomtest
from scrapy.settings import Settings as ScrapySettings

from benchmarks.common import machine
from benchmarks.simulated_crawl import crawl, texts_of
from scrapy_gp4c.crawling import control_group
from scrapy_gp4c.page_state.outcomes import CHANGED, KINDS, UNCHANGED, VISIT
from scrapy_gp4c.settings import Settings
from scrapy_gp4c.store.records import SHADOW
from training.histories import models
from training.histories.neighbours import Neighbours

SCENARIOS: dict[str, dict[str, Any]] = {
    "t*X, panel 10%, budget 15%": {"model": "brdc12-like", "GP4C_PANEL": 0.1, "GP4C_BUDGET": 0.15},
    "nad, panel 20%, budget 25%": {"model": "poisson", "GP4C_PANEL": 0.2, "GP4C_BUDGET": 0.25},
    "age, panel 5%, budget 15%, 3% errors": {"model": "bursty", "GP4C_PANEL": 0.05, "GP4C_BUDGET": 0.15},
    "t * (rate + spent) * near, 4 rounds, panel 10%, budget 20%": {
        "model": "brdc12-like",
        "GP4C_PANEL": 0.1,
        "GP4C_BUDGET": 0.2,
        "GP4C_POLICY": "rounds(rounds=4)",
    },
}
PAGES_OF_SITE = 200


def paths_of(pages: int) -> list[str]:
    """Paths of ``pages`` pages, 20 in each directory."""
    return [f"{page // 20}/{page}" for page in range(pages)]


def run(scenario: str, seed: int, pages: int = 4000, cycles: int = 12) -> dict[str, bool]:
    """Crawl once; return for each estimate whether its interval covers the truth of the last cycle."""
    setting_values = dict(SCENARIOS[scenario])
    rng = np.random.default_rng(seed)
    history = models.generate(setting_values.pop("model"), pages, cycles, seed)
    setting_values["GP4C_SCORE_FUNCTION"] = scenario.partition(",")[0]
    settings = Settings.load(ScrapySettings({**setting_values, "GP4C_SEED": seed}))
    keys = rng.integers(0, 2**64, pages, dtype=np.uint64)
    failing = rng.random((cycles + 1, pages)) < 0.03 if "errors" in scenario else None
    around = Neighbours(np.arange(pages, dtype=np.int32) // PAGES_OF_SITE, paths_of(pages)).groups
    *_, last = crawl(texts_of(history.changed, rng), settings, keys, failing, around)
    truth = {
        "changed_share": last.outdated_before.sum() / last.had_copy.sum(),
        "freshness": 1.0 - last.outdated_after.sum() / pages,
    }
    estimated = last.record["panel"]
    return {
        name: bool(estimated[name]["low"] <= value <= estimated[name]["high"])
        for name, value in truth.items()
    }


def coverage(scenario: str, runs: int, pages: int = 4000) -> dict[str, int]:
    """Estimate -> number of simulated crawls whose interval covers the truth."""
    covered = [run(scenario, seed, pages) for seed in range(runs)]
    return {name: sum(row[name] for row in covered) for name in covered[0]}


class OpenVisits(NamedTuple):
    """Stand-in for the store of a panel: it has the visits of the open cycle, and no related pages."""

    visits: npt.NDArray[Any]

    def open_visits(self) -> npt.NDArray[Any]:
        return self.visits


def close_seconds(pages: int) -> float:
    """Seconds to advance virtual copies of the control group's `pages` pages by a cycle: median of 7."""
    rng = np.random.default_rng(0)
    shadows = np.zeros(pages, SHADOW)
    shadows["page"] = np.arange(pages)
    for name in ("key", "current", "copy"):
        shadows[name] = rng.integers(1, 2**64, pages, dtype=np.uint64)
    shadows["n"], shadows["X"] = 9, rng.integers(0, 9, pages)
    visits = np.zeros(pages, VISIT)
    visits["page"] = rng.permutation(pages)
    visits["kind"] = KINDS.index("panel")
    visits["fingerprint"] = rng.integers(1, 2**64, pages, dtype=np.uint64)
    visits["outcome"] = rng.choice([CHANGED, UNCHANGED], pages)
    record = {"cycle": 30, "formula": "t * X", "clock": "visits", "seed": 0}
    record["plan"] = {"ranked": 1, "rankable": 2, "cut": [60.0, 2**63]}
    store: Any = OpenVisits(visits)
    times = []
    for _ in range(7):
        start = time.perf_counter()
        after, _ = control_group.advance(store, store.open_visits(), shadows, record, 2, 3)
        after.tobytes()
        times.append(time.perf_counter() - start)
    return float(np.median(times))


def main() -> None:
    """Print the coverage of every scenario and the seconds per cycle."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=400)
    options = parser.parse_args()
    print(machine())
    for scenario in SCENARIOS:
        for name, covered in coverage(scenario, options.runs).items():
            low, high = binomtest(covered, options.runs).proportion_ci()
            print(
                f"{scenario}: {name} covered in {covered} of {options.runs} runs, "
                f"{covered / options.runs:.1%} ({low:.1%} to {high:.1%})"
            )
    print(f"closing a cycle with a panel of 100,000 pages: {close_seconds(100_000):.3f} s")


if __name__ == "__main__":
    main()
