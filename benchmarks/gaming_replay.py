"""Replays of the web of `benchmarks.gaming`, with ways to game that need no server: seconds for each.

    python -m benchmarks.gaming_replay [--budget 25%] [--seeds 8]

The tenth host is honest, *changes*, *lists* or *large* as there, or

- *late*: it is honest for five cycles, then all of its pages change at every visit;
- *nine_in_ten*: each of its pages changes in nine of ten cycles, drawn.

Counted as there. This web has no sitemaps, no refusals and no sizes of pages. The target is for *changes* and
*lists* alone: honest hosts may behave in the other ways too.
"""

import argparse
import statistics
import sys
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from benchmarks.common import exit_code, machine, verdict
from benchmarks.gaming import CYCLES, FIRST_COUNTED, HOSTS, PAGES, TARGET, Row, print_ways, version_of
from scrapy_gp4c.policies.base import read_budget
from training.histories.growth import NO_FINDER, GrowthHistory
from training.histories.history import ChangeHistory
from training.replaying.growth import GrowthReplay, growth_crawl
from training.replaying.prepared import CrawlChoices

WAYS = ("honest", "changes", "lists", "large", "late", "nine_in_ten")
AIMED = ("changes", "lists")
SITE_SHARE = 0.1
"""Default of ``GP4C_SITE_SHARE``."""
START = -1
"""Number of a host's start page."""


def pages(way: str) -> Iterator[tuple[int, int, int]]:
    """Yield host, number and cycle of birth of every page, the start page of each host first."""
    for host in range(1, HOSTS + 1):
        tenth = way if host == HOSTS else "honest"
        yield host, START, 0
        for number in range(PAGES * 10 if tenth == "large" else PAGES):
            yield host, number, 1
        for cycle in range(1, CYCLES + 1) if tenth == "lists" else ():
            for number in range(PAGES + 200 * (cycle - 1), PAGES + 200 * cycle):
                yield host, number, cycle


def changes(host: int, number: int, way: str, rng: np.random.Generator) -> npt.NDArray[np.bool_]:
    """Whether a page changes in each cycle: bool ``[CYCLES]``."""
    versions = [version_of(host, number, cycle) for cycle in range(CYCLES + 1)]
    changed = np.diff(versions) > 0 if number != START else np.zeros(CYCLES, bool)
    if host == HOSTS and number != START:
        changed[{"changes": 0, "late": 5}.get(way, CYCLES) :] = True
        if way == "nine_in_ten":
            changed = rng.random(CYCLES) < 0.9
    return changed


def trial(way: str, budget: int | float, seed: int) -> Row:
    """Replay a crawl of the web whose tenth host behaves in this way."""
    host, number, born = np.array(list(pages(way))).T
    rng = np.random.default_rng(seed)
    changed = np.array([changes(*page, way, rng) for page in zip(host, number, strict=True)]).T
    changed &= np.arange(1, CYCLES + 1)[:, None] > born
    names = ["/" if one == START else f"/p/{one}" for one in number]
    sites = [f"127.0.0.{one}" for one in range(1, HOSTS + 1)]
    starts = np.flatnonzero(number == START)
    finder = np.where(number == START, NO_FINDER, starts[host - 1]).astype(np.int32)
    history = ChangeHistory(changed, host - 1, site_names=sites, page_names=names)
    choices = CrawlChoices(budget, seed=seed, site_share=SITE_SHARE)
    crawl = growth_crawl("default", None, 0.1, "brought * t", choices)
    web = GrowthReplay(GrowthHistory(history, born.astype(np.int32), finder), replace(crawl, from_start=True))
    versions = np.concatenate((np.zeros((1, len(host)), int), np.cumsum(changed, axis=0)))
    is_tenth, state = host == HOSTS, web.state
    ranked, current = [], []
    for cycle in range(1, CYCLES + 1):
        if cycle == FIRST_COUNTED:
            before = {name: state[name][~is_tenth].sum(dtype=int) for name in ("n", "X")}
        web.cycle(cycle)
        if cycle >= FIRST_COUNTED:
            ranked.append(is_tenth[web.planned().pages])
            copy = versions[state["last_cycle"], np.arange(len(host))]
            current.append((copy == versions[cycle])[~is_tenth].mean())
    visits, found = (state[name][~is_tenth].sum(dtype=int) - before[name] for name in ("n", "X"))
    return Row(float(np.concatenate(ranked).mean()), int(visits), int(found), statistics.fmean(current), 0.0)


def main() -> int:
    """Print a row for each way; return 1 where honest hosts keep less than the target."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--budget", type=read_budget, default=0.25, help="GP4C_BUDGET (default: 25%%)")
    parser.add_argument("--seeds", type=int, default=8, help="trials of each way")
    arguments = parser.parse_args()
    print(machine())
    print(f"python -m benchmarks.gaming_replay {' '.join(sys.argv[1:])}\n")
    rows = print_ways(WAYS, arguments.seeds, lambda way, seed: trial(way, arguments.budget, seed))
    lowest = min(min(rows[way][:2]) for way in AIMED)
    label = f"changes and current copies of honest hosts kept beside {' and '.join(AIMED)}"
    return exit_code(verdict(label, lowest, TARGET, at_least=True))


if __name__ == "__main__":
    sys.exit(main())
