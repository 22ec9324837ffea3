"""The experiment of Tan et al. 2007, section 6, on a history of weeks, its tables, figures and claims.

The paper's letters: C is the change rate, the share of a cycle's visits that find a change, and C^w the same
weighted by popularity; R are the download resources, visits per cycle; d is the largest distance (in
directories, links or clusters) of pages near a sample; phi the probability that these are visited. Cycles are
of 2, 4 and 8 weeks, and R 25,000, 50,000 and 100,000 of 284,692 pages, here the same shares. Nothing is known
of a page at the beginning (no warm-up), and one sample is in flight (Algorithm 1). PageRank is that of the
pages' links, on a scale from 0 to 10.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from scrapy_gp4c.arrays import Floats
from scrapy_gp4c.errors import HistoryError
from scrapy_gp4c.policies.table import load as load_policy
from training.comparing.evaluation import markdown, write_json, write_rows, write_text
from training.comparing.trials import PolicyTrial, try_policy, written
from training.evolution.evolve import Json
from training.histories.contents import ContentHistory
from training.histories.history import ChangeHistory, addresses_of, depth_of, domain_of
from training.histories.reading import coarsened
from training.replaying.metrics import METRICS
from training.replaying.prepared import CrawlChoices
from training.reporting.figures import Chart, draw, finish, new_figure, plain_line, plot_lines, write_figures

SPANS_WEEKS: Final = (2, 4, 8)
BUDGETS: Final = (0.088, 0.176, 0.351)
DEPTHS: Final = tuple(range(-6, 9))
QUICK_DEPTHS: Final = (-1, 0, 1, 3)
"""Depths d (of directories, links, clusters) in a quick run, among them the best of every policy."""
BEST_D: Final = {"lb": 3, "db": 1, "cb": 0}
"""Policy -> its best depth d (section 6.2)."""
PAPER_POLICIES: Final = ("rns", "rr", "gsb")
MEASURED: Final = ("change_rate", "weighted_change_rate", "ndcg")
"""Metrics to compute: the paper's C and C^w, and one that also counts the order of the visits."""
FORMAT: Final = "gp4c-tan/1"


class CrawlSetting(NamedTuple):
    """Length of a cycle in weeks, and its budget (the paper's download resources R)."""

    weeks: int
    budget: float
    """Visits per cycle, as a share of the pages."""


TYPICAL: Final = CrawlSetting(SPANS_WEEKS[-1], BUDGETS[0])
"""Setting of Figures 5 and 6."""
ADAPTIVE: Final = CrawlSetting(SPANS_WEEKS[0], BUDGETS[0])
"""Setting of Figures 8 and 9."""
SETTINGS: Final = tuple(CrawlSetting(weeks, budget) for weeks in SPANS_WEEKS for budget in BUDGETS)


class TanPlan(NamedTuple):
    """Depths d to try, and number of seeds (replays of each policy)."""

    depths: Sequence[int] = DEPTHS
    seeds: int = 5
    seed: int = 1
    """Seed of the first replay of each policy."""


class Domain(NamedTuple):
    """A row of Table 1 and a line of Figure 4: the pages of one top-level domain."""

    name: str
    pages: int
    sites: int
    by_depth: list[int]
    """Pages with 0, 1, 2, ... slashes in their address."""


@dataclass(frozen=True)
class TanResults:
    """The experiment's results."""

    source: str
    sha256: str
    plans: TanPlan
    pages: int
    sites: int
    domains: list[Domain]
    changed_share: dict[int, float]
    """Weeks of a cycle -> share of the pages that change in one."""
    trials: dict[tuple[str, CrawlSetting], PolicyTrial]

    def trial(self, policy: str, setting: CrawlSetting) -> PolicyTrial | None:
        """Results of a policy in a setting; None where the history lacks the policy's groups."""
        return self.trials.get((policy, setting))

    def to_json(self) -> Json:
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
        """Yield a row for every replay and cycle, with the columns `COLUMNS`."""
        for (_, setting), trial in self.trials.items():
            columns = [trial.per_cycle[metric] for metric in MEASURED]
            for number, values in enumerate(zip(*columns, strict=True), start=1):
                yield trial.policy, *setting, number, *(float(value) for value in values)

    def write(self, directory: Path) -> None:
        write_json(directory / "results.json", self.to_json())
        write_rows(directory / "cycles.csv", [COLUMNS, *self.rows()])


COLUMNS: Final = ("policy", "weeks", "budget", "cycle", *MEASURED)


def sampling_policy(policy: str, d: int | None = None, phi: str = "change") -> str:
    """Text of a policy that samples one page at a time, such as ``db(d=1, in_flight=1)``.

    ``policy``: ``lb``, ``db`` or ``cb``, which visits pages near a changed sample, by links, directories or
    clusters; ``d``: depth, None: the paper's best; ``phi``: see `PHIS` of `policies.sampling`.
    """
    adaptive = "" if phi == "change" else f", phi={phi!r}"
    return f"{policy}(d={BEST_D[policy] if d is None else d}{adaptive}, in_flight=1)"


COMPARED: Final = (*PAPER_POLICIES, *(sampling_policy(policy) for policy in BEST_D))
"""Policies of Figure 6."""


def table_rows(depths: Sequence[int]) -> list[tuple[str, CrawlSetting]]:
    """Policies and settings of all figures, each pair once."""
    replays = [(policy, setting) for setting in SETTINGS for policy in COMPARED]
    for d in depths:
        replays += [(sampling_policy(policy, d), TYPICAL) for policy in BEST_D if d >= 0 or policy != "cb"]
        replays += [(sampling_policy("db", d), setting) for setting in SETTINGS]
        replays += [(sampling_policy("db", d, "pra"), ADAPTIVE)] if d >= 0 else []
    replays += [(sampling_policy("db", phi=phi), ADAPTIVE) for phi in ("ha", "wha")]
    return list(dict.fromkeys(replays))


def planned(weekly: ChangeHistory, plans: TanPlan) -> list[tuple[str, CrawlSetting]]:
    """Policies and settings to replay: those that the history has groups of pages for."""
    knows = weekly.neighbours.knows
    return [one for one in table_rows(plans.depths) if all(map(knows, load_policy(one[0]).near))]


def run_experiment(
    recorded: ContentHistory | ChangeHistory, plans: TanPlan, advance: Callable[[], object] = lambda: None
) -> TanResults:
    """Replay all policies and settings that are `planned`; ``advance`` is called after each.

    ``recorded``: its cycles are weeks; policies by links or clusters need them in its neighbours. Raises
    HistoryError for fewer than two of the longest cycles, or pages without names.
    """
    weekly = recorded.history if isinstance(recorded, ContentHistory) else recorded
    if weekly.cycles < 2 * SPANS_WEEKS[-1]:
        raise HistoryError(
            f"{weekly.source} has {weekly.cycles} cycles, which are taken for weeks; the protocol tan needs "
            f"at least {2 * SPANS_WEEKS[-1]}, two of its longest cycles"
        )
    addresses = addresses_of(weekly)
    histories = {weeks: weighted(coarsened(recorded, weeks), weekly) for weeks in SPANS_WEEKS}
    trials = {}
    for policy, setting in planned(weekly, plans):
        crawl = CrawlChoices(setting.budget, warmup=0, seed=plans.seed)
        trials[policy, setting] = try_policy(histories[setting.weeks], policy, crawl, plans.seeds, MEASURED)
        advance()
    return TanResults(
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
    """`history` with the groups of `weekly`, its pages weighted by their popularity (eq. 10)."""
    groups = weekly.neighbours.groups_by_content
    if weekly.weight is None and groups is None:
        return history
    popular = weekly.neighbours.popularity()
    # Where no page is more popular than another, all weigh the same.
    same_pages = replace(history, weight=popular.astype(np.float64) if popular.any() else None)
    same_pages.neighbours.groups_by_content, same_pages.neighbours.popular = groups, popular
    return same_pages


def domains(addresses: Sequence[str], sites: Sequence[int]) -> list[Domain]:
    """Count pages and sites by top-level domain, the largest first (Table 1, Figure 4).

    ``addresses``, ``sites``: URL, and number of the site, of each page.
    """
    depths: dict[str, Counter[int]] = {}
    of_sites: dict[str, set[int]] = {}
    for address, site in zip(addresses, sites, strict=True):
        name = domain_of(address)
        depths.setdefault(name, Counter())[depth_of(address)] += 1
        of_sites.setdefault(name, set()).add(site)
    rows = [
        Domain(
            name,
            pages_by_depth.total(),
            len(of_sites[name]),
            [pages_by_depth[d] for d in range(max(pages_by_depth) + 1)],
        )
        for name, pages_by_depth in depths.items()
    ]
    return sorted(rows, key=lambda row: (-row.pages, row.name))


NAMES: Final = {"lb": "LB", "db": "DB", "cb": "CB"}


class PaperClaim(NamedTuple):
    """Claim of the paper, beside our measurement."""

    paper: str
    measured: str
    holds: bool
    numbers: tuple[float, ...]
    """Measured values; nan where the history has no groups for a policy, or too few cycles."""


def rate(results: TanResults, policy: str, setting: CrawlSetting, metric: str = "change_rate") -> float:
    """Mean of a policy's metric over the cycles; nan where the history has no groups for the policy."""
    trial = results.trial(policy, setting)
    return float("nan") if trial is None else trial.mean(metric).mean


def over_d(results: TanResults, policy: str, depths: Sequence[int], setting: CrawlSetting) -> Floats:
    """Change rate of a policy at every depth d, ``[depths]``; nan where it was not replayed."""
    return np.array([rate(results, sampling_policy(policy, d), setting) for d in depths])


def claims(results: TanResults) -> list[PaperClaim]:
    """Claims of the paper that the history can test, with our measurements."""
    parts = (_compared, _by_depth, _up_and_down, _by_setting, _popular, _by_history)
    claims_found = [claim for claims_about in parts for claim in claims_about(results)]
    return [claim for claim in claims_found if np.isfinite(claim.numbers).all()]


def _compared(results: TanResults) -> Iterator[PaperClaim]:
    rns, rr, gsb = (rate(results, name, TYPICAL) for name in ("rns", "rr", "gsb"))
    for policy, name in NAMES.items():
        mean_rate = rate(results, sampling_policy(policy), TYPICAL)
        yield PaperClaim(
            f"{name} finds about three times as many changes as RNS and RR",
            f"{mean_rate / rns:.2f} times RNS, {mean_rate / rr:.2f} times RR",
            mean_rate >= 2.5 * max(rns, rr),
            (mean_rate,),
        )
        twice = f"{name} finds about twice as many as GSB"
        yield PaperClaim(twice, f"{mean_rate / gsb:.2f} times", mean_rate >= 1.7 * gsb, (mean_rate,))
    yield PaperClaim("RR is like RNS", f"{rr / rns:.2f} times RNS", abs(rr / rns - 1) <= 0.1, (rr, rns))
    yield PaperClaim("GSB is better than RNS", f"{gsb / rns:.2f} times RNS", gsb > rns, (gsb, rns))


def _by_depth(results: TanResults) -> Iterator[PaperClaim]:
    depths = results.plans.depths
    near = [d for d in depths if 0 <= d <= 3]
    cb, db = (over_d(results, name, near, TYPICAL) for name in ("cb", "db"))
    pairs = ", ".join(f"{one:.3f} and {other:.3f}" for one, other in zip(cb, db, strict=True))
    text = f"{pairs} at d = {', '.join(map(str, near))}"
    yield PaperClaim("CB is better than DB for d from 0 to 3", text, bool((cb > db).all()), (*cb, *db))
    db, lb = (over_d(results, name, depths, TYPICAL) for name in ("db", "lb"))
    text = f"at {int((db > lb).sum())} of {len(depths)} d, by {float((db - lb).mean()):+.3f} on average"
    yield PaperClaim("DB is better than LB overall", text, float(db.mean()) > float(lb.mean()), (*db, *lb))
    for policy, best in {"db": (0, 1), "lb": (3,), "cb": (0,)}.items():
        tried = [d for d in depths if d >= 0] if policy == "cb" else list(depths)
        values = over_d(results, policy, tried, TYPICAL)
        d = tried[int(np.argmax(values))]
        claim = f"{NAMES[policy]} is best at d = {' or '.join(map(str, best))}"
        yield PaperClaim(claim, f"best at d = {d}", d in best, tuple(values))


def _up_and_down(results: TanResults) -> Iterator[PaperClaim]:
    sizes = [d for d in results.plans.depths if d > 0 and -d in results.plans.depths]
    if not sizes:
        return
    for policy in ("lb", "db"):
        up = float(over_d(results, policy, sizes, TYPICAL).mean())
        down = float(over_d(results, policy, [-d for d in sizes], TYPICAL).mean())
        claim = f"{NAMES[policy]} is better with d > 0 than with d < 0"
        yield PaperClaim(claim, f"{up:.3f} and {down:.3f}", up > down, (up, down))


def _by_setting(results: TanResults) -> Iterator[PaperClaim]:
    policy = sampling_policy("db")
    spans = [rate(results, policy, TYPICAL._replace(weeks=weeks)) for weeks in SPANS_WEEKS]
    text = f"{', '.join(f'{value:.3f}' for value in spans)} in {', '.join(map(str, SPANS_WEEKS))} weeks"
    yield PaperClaim("DB finds more in longer cycles", text, spans == sorted(spans), tuple(spans))
    shares = [rate(results, policy, TYPICAL._replace(budget=budget)) for budget in BUDGETS]
    text = (
        f"{', '.join(f'{value:.3f}' for value in shares)} with {', '.join(f'{one:.1%}' for one in BUDGETS)}"
    )
    yield PaperClaim(
        "DB finds more with a smaller R", text, shares == sorted(shares, reverse=True), tuple(shares)
    )


def _popular(results: TanResults) -> Iterator[PaperClaim]:
    metric, d = "weighted_change_rate", BEST_D["db"]
    adaptive = rate(results, sampling_policy("db", d, "pra"), ADAPTIVE, metric)
    plain = rate(results, sampling_policy("db"), ADAPTIVE, metric)
    text = f"{adaptive / plain - 1:+.0%} at d = {d}: {adaptive:.3f} and {plain:.3f}"
    yield PaperClaim(
        "PRA finds almost 100% more C^w than DB", text, adaptive >= 1.8 * plain, (adaptive, plain)
    )


def _by_history(results: TanResults) -> Iterator[PaperClaim]:
    metric, names = "change_rate", ("db", "ha", "wha")
    if results.trial(sampling_policy("db"), ADAPTIVE) is None:
        return
    rns = results.trials["rns", ADAPTIVE]
    db, ha, wha = (
        results.trials[sampling_policy("db", phi="change" if name == "db" else name), ADAPTIVE]
        for name in names
    )
    for name, trial in (("HA", ha), ("WHA", wha)):
        first, random = (float(one.per_cycle[metric][1:5].mean()) for one in (trial, rns))
        claim, text = f"{name} is like RNS in cycles 2 to 5", f"{first:.3f} and {random:.3f}"
        yield PaperClaim(claim, text, abs(first / random - 1) <= 0.1, (first, random))
    ahead = wha.ahead(ha, metric)
    text = f"by {written(ahead, sign='+')} a cycle"
    yield PaperClaim("WHA is better than HA", text, ahead.mean > ahead.half_width, (ahead.mean,))
    for name, trial, since in (("WHA", wha, 16), ("HA", ha, 18)):
        leads = trial.per_cycle[metric] - db.per_cycle[metric]
        late = float(leads[since - 1 :].mean()) if len(leads) >= since else float("nan")
        behind = np.flatnonzero(leads <= 0)
        first_cycle = int(behind[-1]) + 2 if len(behind) else 1
        when = f"from cycle {first_cycle} on" if first_cycle <= len(leads) else "in no cycle to the end"
        text = f"above {when}; {late:+.3f} from cycle {since} on"
        yield PaperClaim(f"{name} is above DB from cycle {since} on", text, first_cycle <= since, (late,))


NAMED_DOMAINS: Final = 6
"""Top-level domains that have a line of their own in Figure 4."""
D_LABEL: Final = "download granularity d"
RATE: Final = "Change rate C"


def depths_figure(domains: Sequence[Domain]) -> Figure:
    """Figure 4: how many pages have how many slashes in their address."""
    deepest = max(len(domain.by_depth) for domain in domains)
    rows = {
        domain.name: np.pad(domain.by_depth, (0, deepest - len(domain.by_depth))).astype(np.float64)
        for domain in domains
    }
    names = list(rows)
    shown = names if len(names) <= NAMED_DOMAINS + 1 else names[:NAMED_DOMAINS]
    lines = [plain_line(name, rows[name]) for name in shown]
    if others := names[len(shown) :]:
        lines.append(plain_line(f"{len(others)} others", np.sum([rows[name] for name in others], axis=0)))
    figure, (axes,) = new_figure(8.0, 4.4, layout="constrained")
    plot_lines(axes, range(deepest), lines)
    finish(axes, "Pages by slashes in their address, for each top-level domain", "slashes", "pages")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.legend(frameon=False)
    return figure


def granularity_chart(results: TanResults) -> Chart:
    """Figure 5: change rate of policies by links, directories and clusters over their depth d."""
    depths = results.plans.depths
    lines = [
        plain_line(name, values)
        for policy, name in NAMES.items()
        if np.isfinite(values := over_d(results, policy, depths, TYPICAL)).any()
    ]
    return Chart("figure-5", f"{RATE}, {_setting(TYPICAL)}", D_LABEL, RATE, depths, lines, percent=True)


def popularity_chart(results: TanResults) -> Chart:
    """Figure 8: weighted change rate of the directory policy, plain and by PageRank; x: its depth d."""
    depths = [d for d in results.plans.depths if d >= 0]
    lines = []
    for name, phi in (("PRA", "pra"), ("DB", "change")):
        trials = [results.trial(sampling_policy("db", d, phi), ADAPTIVE) for d in depths]
        means = [trial.mean("weighted_change_rate").mean for trial in trials if trial is not None]
        if means:
            lines.append(plain_line(name, means))
    title = f"Weighted change rate, {_setting(ADAPTIVE)}"
    return Chart("figure-8", title, D_LABEL, "weighted change rate", depths, lines, percent=False)


def history_chart(results: TanResults) -> Chart:
    """Figure 9: change rate in every cycle by directories, with phi from history or not, and at random."""
    texts = {
        "RNS": "rns",
        "DB": sampling_policy("db"),
        "HA": sampling_policy("db", phi="ha"),
        "WHA": sampling_policy("db", phi="wha"),
    }
    trials = {name: results.trial(text, ADAPTIVE) for name, text in texts.items()}
    lines = [
        plain_line(name, one.per_cycle["change_rate"]) for name, one in trials.items() if one is not None
    ]
    title = f"Change rate in every cycle, {_setting(ADAPTIVE)}"
    x = range(1, len(lines[0].values) + 1)
    return Chart("figure-9", title, "cycle", RATE, x, lines, percent=True)


def compared_figure(results: TanResults) -> Figure:
    """Figure 6: change rate of all policies, with 95% intervals of their leads over random sampling."""
    random = results.trials["rns", TYPICAL]
    trials = [one for policy in COMPARED if (one := results.trial(policy, TYPICAL)) is not None]
    values = np.array([trial.mean("change_rate").mean for trial in trials])
    leads = [trial.ahead(random, "change_rate") for trial in trials]
    half = np.nan_to_num([lead.half_width for lead in leads])
    figure, (axes,) = new_figure(8.0, 0.9 + 0.5 * len(trials), layout="constrained")
    axes.barh([_short(trial.policy) for trial in trials], values, xerr=(np.minimum(half, values), half),
              color="#56B4E9", ecolor="#333333", capsize=3, height=0.6)  # fmt: skip
    for row, (trial, value, lead) in enumerate(zip(trials, values.tolist(), leads, strict=True)):
        text = f"{value:.1%}" if trial is random else f"{value:.1%} ({100 * lead.mean:+.1f} points)"
        axes.annotate(text, (value + half[row], row), (6, 0), textcoords="offset points",
                      va="center", fontweight="bold")  # fmt: skip
    axes.invert_yaxis()
    axes.set_xlim(0.0, 1.4 * float((values + half).max()))
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    whiskers = "whiskers: 95% interval of the lead over RNS, paired by cycle"
    finish(axes, f"{RATE}, {_setting(TYPICAL)}", whiskers, grid="x")
    return figure


def settings_figure(results: TanResults) -> Figure:
    """Figure 7: change rate of the directory policy over depth d, by length of cycle and budget."""
    depths = results.plans.depths
    figure, panels = new_figure(11.0, 4.2, 1, len(SPANS_WEEKS), sharey=True, layout="constrained")
    for axes, weeks in zip(panels, SPANS_WEEKS, strict=True):
        lines = [
            plain_line(f"R = {budget:.1%}", over_d(results, "db", depths, CrawlSetting(weeks, budget)))
            for budget in BUDGETS
        ]
        plot_lines(axes, depths, lines)
        finish(axes, f"DB, cycles of {weeks} weeks", D_LABEL)
    panels[0].set_ylabel(RATE)
    panels[0].yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    panels[0].legend(frameon=False)
    return figure


def _setting(setting: CrawlSetting) -> str:
    return f"cycles of {setting.weeks} weeks, R = {setting.budget:.1%} of the pages"


def _short(policy: str) -> str:
    name, _, arguments = policy.partition("(")
    return f"{name.upper()}({arguments.partition(',')[0]})" if arguments else name.upper()


def domain_table(results: TanResults) -> str:
    """Table 1: the pages by top-level domain, as Markdown."""
    rows = [
        [name, f"{pages:,} ({pages / results.pages:.1%})", f"{sites:,}", f"{pages / sites:.1f}"]
        for name, pages, sites, _ in results.domains
    ]
    total = f"{results.pages / results.sites:.1f}"
    rows.append(["sum", f"{results.pages:,}", f"{results.sites:,}", total])
    return markdown(["domain", "pages", "websites", "pages per site"], rows)


def compared_table(results: TanResults) -> str:
    """Figure 6 at all settings, as Markdown: 95% intervals over the cycles, and leads over policy ``rns``."""
    heads = [METRICS[metric].name for metric in MEASURED]
    rows = []
    for setting in SETTINGS:
        random = results.trials["rns", setting]
        for policy in COMPARED:
            if (trial := results.trial(policy, setting)) is None:
                continue
            cells = [written(trial.mean(metric)) for metric in MEASURED]
            ahead = "" if policy == "rns" else written(trial.ahead(random, "change_rate"), sign="+")
            rows.append([str(setting.weeks), f"{setting.budget:.1%}", f"`{policy}`", *cells, ahead])
    return markdown(["weeks", "R", "policy", *heads, "change rate over `rns`, paired"], rows)


def claims_table(results: TanResults) -> str:
    """The paper's claims beside our measurements, as Markdown."""
    rows = ([one.paper, one.measured, "yes" if one.holds else "no"] for one in claims(results))
    return markdown(["the paper", "here", "holds"], rows)


def write_all(results: TanResults, directory: Path) -> None:
    """Write ``tables.md`` and the figures (PNG, SVG) into a directory."""
    shares = ", ".join(
        f"{share:.1%} of the pages change in {weeks} weeks" for weeks, share in results.changed_share.items()
    )
    tables = {
        "Table 1: pages by top-level domain": domain_table(results),
        "Figure 6 at all settings": compared_table(results),
        "The paper's claims": claims_table(results),
    }
    sections = "\n".join(f"## {title}\n\n{table}" for title, table in tables.items())
    text = f"{shares[:1].upper()}{shares[1:]}.\n\n{sections}"
    write_text(directory / "tables.md", text)
    charts = [granularity_chart(results), popularity_chart(results), history_chart(results)]
    figures = {chart.key: draw(chart) for chart in charts if chart.lines} | {
        "figure-4": depths_figure(results.domains),
        "figure-6": compared_figure(results),
        "figure-7": settings_figure(results),
    }
    write_figures(figures, directory)
