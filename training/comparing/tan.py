"""The experiment of Tan et al. 2007, section 6, on a history of weeks: what is replayed, and what came of it.

Cycles of 2, 4 and 8 weeks, and download resources R of 25,000, 50,000 and 100,000 of 284,692 pages, here the
same shares. Nothing is known of a page at the beginning (no warm-up), and one sample is in flight
(Algorithm 1). PageRank is that of the pages' links, on a scale from 0 to 10.
"""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from scrapy_gp4c.errors import HistoryError
from scrapy_gp4c.policies.table import load as load_policy
from training.comparing.evaluation import write_json
from training.comparing.policy_trials import PolicyTrial, try_policy
from training.evolution.evolve import Json
from training.histories.addresses import addresses_of, depth_of, domain_of
from training.histories.contents import ContentHistory
from training.histories.history import ChangeHistory
from training.histories.longer import longer
from training.histories.writing import replacing
from training.replaying.arranged import CrawlChoices

SPANS_WEEKS: Final = (2, 4, 8)
BUDGETS: Final = (0.088, 0.176, 0.351)
DEPTHS: Final = tuple(range(-6, 9))
QUICK_DEPTHS: Final = (-1, 0, 1, 3)
"""With the best d of every policy."""
BEST_D: Final = {"lb": 3, "db": 1, "cb": 0}
"""The paper's (section 6.2)."""
BASELINES: Final = ("rns", "rr", "gsb")
MEASURED: Final = ("change_rate", "weighted_change_rate", "ndcg")
"""The paper's metrics, C and C^w, and the order of visit."""
FORMAT: Final = "gp4c-tan/1"


class Setting(NamedTuple):
    """How often a crawl comes, and how much it may fetch."""

    weeks: int
    """Length of a cycle."""
    budget: float
    """R, as a share of the pages."""


TYPICAL: Final = Setting(SPANS_WEEKS[-1], BUDGETS[0])
"""That of Figures 5 and 6."""
ADAPTIVE: Final = Setting(SPANS_WEEKS[0], BUDGETS[0])
"""That of Figures 8 and 9."""
SETTINGS: Final = tuple(Setting(weeks, budget) for weeks in SPANS_WEEKS for budget in BUDGETS)


class Plans(NamedTuple):
    """What is replayed."""

    depths: Sequence[int] = DEPTHS
    seeds: int = 5
    seed: int = 1
    """Of the first replay of each policy."""


class Domain(NamedTuple):
    """A row of Table 1 and a line of Figure 4: the pages of one top-level domain."""

    name: str
    pages: int
    sites: int
    by_depth: list[int]
    """Pages with 0, 1, 2, ... slashes in their address."""


@dataclass(frozen=True)
class Results:
    """The experiment's results."""

    source: str
    sha256: str
    plans: Plans
    pages: int
    sites: int
    domains: list[Domain]
    """The largest first."""
    changed_share: dict[int, float]
    """Weeks of a cycle -> share of the pages that change in one."""
    trials: dict[tuple[str, Setting], PolicyTrial]

    def found(self, policy: str, setting: Setting) -> PolicyTrial | None:
        """What a policy came to; None: the history has no groups for it."""
        return self.trials.get((policy, setting))

    def to_json(self) -> Json:
        """The document: the collection, every replay, cycle by cycle."""
        return {
            "format": FORMAT,
            "source": self.source,
            "sha256": self.sha256,
            "seeds": self.plans.seeds,
            "seed": self.plans.seed,
            "versions": {"scrapy-gp4c": version("scrapy-gp4c"), "numpy": np.__version__},
            "pages": self.pages,
            "sites": self.sites,
            "changed_share": {str(weeks): share for weeks, share in self.changed_share.items()},
            "domains": [domain._asdict() for domain in self.domains],
            "trials": [
                {
                    "policy": trial.policy,
                    **setting._asdict(),
                    **{metric: trial.per_cycle[metric].tolist() for metric in MEASURED},
                }
                for (_, setting), trial in self.trials.items()
            ],
        }

    def rows(self) -> Iterator[tuple[object, ...]]:
        """A row of `COLUMNS` for every replay and cycle."""
        for (_, setting), trial in self.trials.items():
            columns = [trial.per_cycle[metric] for metric in MEASURED]
            for number, values in enumerate(zip(*columns, strict=True), start=1):
                yield trial.policy, *setting, number, *(float(value) for value in values)

    def write(self, directory: Path) -> None:
        """Write ``results.json`` and ``cycles.csv``."""
        write_json(directory / "results.json", self.to_json())
        text = io.StringIO(newline="")
        csv.writer(text).writerows([COLUMNS, *self.rows()])
        with replacing(directory / "cycles.csv") as raw:
            raw.write(text.getvalue().encode())


COLUMNS: Final = ("policy", "weeks", "budget", "cycle", *MEASURED)


def following(policy: str, d: int | None = None, phi: str = "change") -> str:
    """Text of `lb`, `db` or `cb` as the paper has it; ``d``: its best one if none is given."""
    adaptive = "" if phi == "change" else f", phi={phi!r}"
    return f"{policy}(d={BEST_D[policy] if d is None else d}{adaptive}, in_flight=1)"


COMPARED: Final = (*BASELINES, *(following(policy) for policy in BEST_D))
"""Figure 6."""


def wanted(depths: Sequence[int]) -> list[tuple[str, Setting]]:
    """All replays, each once: policy and setting."""
    found = [(policy, setting) for setting in SETTINGS for policy in COMPARED]
    for d in depths:
        found += [(following(policy, d), TYPICAL) for policy in BEST_D if d >= 0 or policy != "cb"]
        found += [(following("db", d), setting) for setting in SETTINGS]
        found += [(following("db", d, "pra"), ADAPTIVE)] if d >= 0 else []
    found += [(following("db", phi=phi), ADAPTIVE) for phi in ("ha", "wha")]
    return list(dict.fromkeys(found))


def planned(weekly: ChangeHistory, plans: Plans) -> list[tuple[str, Setting]]:
    """What is replayed of all that is wanted: what the history has groups for."""
    knows = weekly.neighbours.knows
    return [one for one in wanted(plans.depths) if all(map(knows, load_policy(one[0]).near))]


def run_all(
    whole: ContentHistory | ChangeHistory, plans: Plans, advance: Callable[[], object] = lambda: None
) -> Results:
    """Replay all that is `planned`; ``advance`` is called after each policy and setting.

    ``whole``: weeks, whose neighbours have clusters and links if anything is to be found by them. Raises
    HistoryError for fewer than two of the longest cycles, or pages without names.
    """
    weekly = whole.history if isinstance(whole, ContentHistory) else whole
    if weekly.cycles < 2 * SPANS_WEEKS[-1]:
        raise HistoryError(
            f"{weekly.source} has {weekly.cycles} cycles, which are taken for weeks; the protocol tan needs "
            f"at least {2 * SPANS_WEEKS[-1]}, two of its longest cycles"
        )
    addresses = addresses_of(weekly)
    histories = {weeks: weighted(longer(whole, weeks), weekly) for weeks in SPANS_WEEKS}
    trials = {}
    for policy, setting in planned(weekly, plans):
        crawl = CrawlChoices(setting.budget, warmup=0, seed=plans.seed)
        trials[policy, setting] = try_policy(histories[setting.weeks], policy, crawl, plans.seeds, MEASURED)
        advance()
    return Results(
        weekly.source,
        weekly.sha256,
        plans,
        weekly.pages,
        len(np.unique(weekly.site)),
        domains(addresses, weekly.site.tolist()),
        {weeks: float(history.changed.mean()) for weeks, history in histories.items()},
        trials,
    )


def weighted(history: ChangeHistory, weekly: ChangeHistory) -> ChangeHistory:
    """A history with the groups of another of the same pages; pages weigh their popularity (eq. 10)."""
    groups = weekly.neighbours.groups_by_content
    if weekly.weight is None and groups is None:
        return history
    popular = weekly.neighbours.popularity()
    # Where no page is more popular than another, all weigh the same.
    found = replace(history, weight=popular.astype(np.float64) if popular.any() else None)
    found.neighbours.groups_by_content, found.neighbours.popular = groups, popular
    return found


def domains(addresses: Sequence[str], sites: Sequence[int]) -> list[Domain]:
    """Table 1 and Figure 4: the pages by top-level domain, the largest first."""
    depths: dict[str, Counter[int]] = {}
    of_sites: dict[str, set[int]] = {}
    for address, site in zip(addresses, sites, strict=True):
        name = domain_of(address)
        depths.setdefault(name, Counter())[depth_of(address)] += 1
        of_sites.setdefault(name, set()).add(site)
    rows = [
        Domain(name, found.total(), len(of_sites[name]), [found[d] for d in range(max(found) + 1)])
        for name, found in depths.items()
    ]
    return sorted(rows, key=lambda row: (-row.pages, row.name))
