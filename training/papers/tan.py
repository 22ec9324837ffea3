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
from training.comparing.statistics import Floats
from training.comparing.trials import PolicyTrial, try_policy, written
from training.evolution.evolve import Json
from training.histories.contents import ContentHistory
from training.histories.history import ChangeHistory, addresses_of, depth_of, domain_of
from training.histories.reading import coarsened
from training.histories.writing import replacing
from training.replaying.prepared import CrawlChoices

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
    histories = {weeks: weighted(coarsened(whole, weeks), weekly) for weeks in SPANS_WEEKS}
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


NAMES: Final = {"lb": "LB", "db": "DB", "cb": "CB"}


class Claim(NamedTuple):
    """What the paper says, and what came out here."""

    paper: str
    ours: str
    holds: bool
    numbers: tuple[float, ...]
    """What it was judged by; nan: the history has no groups for a policy, or too few cycles."""


def rate(results: Results, policy: str, setting: Setting, metric: str = "change_rate") -> float:
    """Mean over the cycles; nan where the history has no groups for the policy."""
    trial = results.found(policy, setting)
    return float("nan") if trial is None else trial.mean(metric).mean


def over_d(results: Results, policy: str, depths: Sequence[int], setting: Setting) -> Floats:
    """C of a policy at every d, ``[depths]``; nan where it was not replayed."""
    return np.array([rate(results, following(policy, d), setting) for d in depths])


def claims(results: Results) -> list[Claim]:
    """All that the history can tell of."""
    parts = (_compared, _by_depth, _up_and_down, _by_setting, _popular, _by_history)
    found = [claim for part in parts for claim in part(results)]
    return [claim for claim in found if np.isfinite(claim.numbers).all()]


def _compared(results: Results) -> Iterator[Claim]:
    rns, rr, gsb = (rate(results, name, TYPICAL) for name in ("rns", "rr", "gsb"))
    for policy, name in NAMES.items():
        own = rate(results, following(policy), TYPICAL)
        yield Claim(
            f"{name} finds about three times as many changes as RNS and RR",
            f"{own / rns:.2f} times RNS, {own / rr:.2f} times RR",
            own >= 2.5 * max(rns, rr),
            (own,),
        )
        twice = f"{name} finds about twice as many as GSB"
        yield Claim(twice, f"{own / gsb:.2f} times", own >= 1.7 * gsb, (own,))
    yield Claim("RR is like RNS", f"{rr / rns:.2f} times RNS", abs(rr / rns - 1) <= 0.1, (rr, rns))
    yield Claim("GSB is better than RNS", f"{gsb / rns:.2f} times RNS", gsb > rns, (gsb, rns))


def _by_depth(results: Results) -> Iterator[Claim]:
    depths = results.plans.depths
    near = [d for d in depths if 0 <= d <= 3]
    cb, db = (over_d(results, name, near, TYPICAL) for name in ("cb", "db"))
    pairs = ", ".join(f"{one:.3f} and {other:.3f}" for one, other in zip(cb, db, strict=True))
    text = f"{pairs} at d = {', '.join(map(str, near))}"
    yield Claim("CB is better than DB for d from 0 to 3", text, bool((cb > db).all()), (*cb, *db))
    db, lb = (over_d(results, name, depths, TYPICAL) for name in ("db", "lb"))
    text = f"at {int((db > lb).sum())} of {len(depths)} d, by {float((db - lb).mean()):+.3f} on average"
    yield Claim("DB is better than LB overall", text, float(db.mean()) > float(lb.mean()), (*db, *lb))
    for policy, best in {"db": (0, 1), "lb": (3,), "cb": (0,)}.items():
        own = [d for d in depths if d >= 0] if policy == "cb" else list(depths)
        values = over_d(results, policy, own, TYPICAL)
        d = own[int(np.argmax(values))]
        said = f"{NAMES[policy]} is best at d = {' or '.join(map(str, best))}"
        yield Claim(said, f"best at d = {d}", d in best, tuple(values))


def _up_and_down(results: Results) -> Iterator[Claim]:
    sizes = [d for d in results.plans.depths if d > 0 and -d in results.plans.depths]
    if not sizes:
        return
    for policy in ("lb", "db"):
        up = float(over_d(results, policy, sizes, TYPICAL).mean())
        down = float(over_d(results, policy, [-d for d in sizes], TYPICAL).mean())
        said = f"{NAMES[policy]} is better with d > 0 than with d < 0"
        yield Claim(said, f"{up:.3f} and {down:.3f}", up > down, (up, down))


def _by_setting(results: Results) -> Iterator[Claim]:
    policy = following("db")
    spans = [rate(results, policy, TYPICAL._replace(weeks=weeks)) for weeks in SPANS_WEEKS]
    text = f"{', '.join(f'{value:.3f}' for value in spans)} in {', '.join(map(str, SPANS_WEEKS))} weeks"
    yield Claim("DB finds more in coarsened cycles", text, spans == sorted(spans), tuple(spans))
    shares = [rate(results, policy, TYPICAL._replace(budget=budget)) for budget in BUDGETS]
    text = (
        f"{', '.join(f'{value:.3f}' for value in shares)} with {', '.join(f'{one:.1%}' for one in BUDGETS)}"
    )
    yield Claim("DB finds more with a smaller R", text, shares == sorted(shares, reverse=True), tuple(shares))


def _popular(results: Results) -> Iterator[Claim]:
    metric, d = "weighted_change_rate", BEST_D["db"]
    adaptive = rate(results, following("db", d, "pra"), ADAPTIVE, metric)
    plain = rate(results, following("db"), ADAPTIVE, metric)
    text = f"{adaptive / plain - 1:+.0%} at d = {d}: {adaptive:.3f} and {plain:.3f}"
    yield Claim("PRA finds almost 100% more C^w than DB", text, adaptive >= 1.8 * plain, (adaptive, plain))


def _by_history(results: Results) -> Iterator[Claim]:
    metric, names = "change_rate", ("db", "ha", "wha")
    if results.found(following("db"), ADAPTIVE) is None:
        return
    rns = results.trials["rns", ADAPTIVE]
    db, ha, wha = (
        results.trials[following("db", phi="change" if name == "db" else name), ADAPTIVE] for name in names
    )
    for name, trial in (("HA", ha), ("WHA", wha)):
        first, random = (float(one.per_cycle[metric][1:5].mean()) for one in (trial, rns))
        said, text = f"{name} is like RNS in cycles 2 to 5", f"{first:.3f} and {random:.3f}"
        yield Claim(said, text, abs(first / random - 1) <= 0.1, (first, random))
    ahead = wha.ahead(ha, metric)
    text = f"by {written(ahead, sign='+')} a cycle"
    yield Claim("WHA is better than HA", text, ahead.mean > ahead.half_width, (ahead.mean,))
    for name, trial, since in (("WHA", wha, 16), ("HA", ha, 18)):
        leads = trial.per_cycle[metric] - db.per_cycle[metric]
        late = float(leads[since - 1 :].mean()) if len(leads) >= since else float("nan")
        behind = np.flatnonzero(leads <= 0)
        first_cycle = int(behind[-1]) + 2 if len(behind) else 1
        when = f"from cycle {first_cycle} on" if first_cycle <= len(leads) else "in no cycle to the end"
        text = f"above {when}; {late:+.3f} from cycle {since} on"
        yield Claim(f"{name} is above DB from cycle {since} on", text, first_cycle <= since, (late,))
