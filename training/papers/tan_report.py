"""Tables and figures of the experiment of Tan et al. 2007: Table 1, Figures 4 to 9, and their claims."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from training.comparing.trials import written
from training.papers.tan import (
    ADAPTIVE,
    BUDGETS,
    COMPARED,
    MEASURED,
    NAMES,
    SETTINGS,
    SPANS_WEEKS,
    TYPICAL,
    CrawlSetting,
    Domain,
    TanResults,
    claims,
    following,
    over_d,
)
from training.replaying.metrics import METRICS
from training.reporting.figures import Chart, draw, finish, new_figure, plain_line, plot_lines, write_figures

NAMED_DOMAINS: Final = 6
"""Domains of Figure 4 with a line each."""
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
    """Figure 5: C of links, directories and clusters over d; no cluster is at a negative distance."""
    depths = results.plans.depths
    lines = [
        plain_line(name, values)
        for policy, name in NAMES.items()
        if np.isfinite(values := over_d(results, policy, depths, TYPICAL)).any()
    ]
    return Chart("figure-5", f"{RATE}, {_setting(TYPICAL)}", D_LABEL, RATE, _x(depths), lines, percent=True)


def popularity_chart(results: TanResults) -> Chart:
    """Figure 8: C^w of PageRank-adaptive and plain directory policies over d."""
    depths = [d for d in results.plans.depths if d >= 0]
    lines = []
    for name, phi in (("PRA", "pra"), ("DB", "change")):
        trials = [results.trial(following("db", d, phi), ADAPTIVE) for d in depths]
        means = [trial.mean("weighted_change_rate").mean for trial in trials if trial is not None]
        if means:
            lines.append(plain_line(name, means))
    title = f"Weighted change rate, {_setting(ADAPTIVE)}"
    return Chart("figure-8", title, D_LABEL, "weighted change rate", _x(depths), lines, percent=False)


def history_chart(results: TanResults) -> Chart:
    """Figure 9: C in every cycle of HA and WHA, beside DB and RNS."""
    texts = {
        "RNS": "rns",
        "DB": following("db"),
        "HA": following("db", phi="ha"),
        "WHA": following("db", phi="wha"),
    }
    trials = {name: results.trial(text, ADAPTIVE) for name, text in texts.items()}
    lines = [
        plain_line(name, one.per_cycle["change_rate"]) for name, one in trials.items() if one is not None
    ]
    title = f"Change rate in every cycle, {_setting(ADAPTIVE)}"
    x = [float(cycle + 1) for cycle in range(len(lines[0].values))]
    return Chart("figure-9", title, "cycle", RATE, x, lines, percent=True)


def compared_figure(results: TanResults) -> Figure:
    """Figure 6: C of all policies, with the 95% intervals of their leads over RNS."""
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
    """Figure 7: C of directories over d, by length of cycle and R."""
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


def _x(depths: Sequence[int]) -> list[float]:
    return [float(d) for d in depths]


def _setting(setting: CrawlSetting) -> str:
    return f"cycles of {setting.weeks} weeks, R = {setting.budget:.1%} of the pages"


def _short(policy: str) -> str:
    name, _, arguments = policy.partition("(")
    return f"{name.upper()}({arguments.partition(',')[0]})" if arguments else name.upper()


def domain_table(results: TanResults) -> str:
    """Table 1: the pages by top-level domain, as Markdown."""
    lines = ["| domain | pages | websites | pages per site |", "|---|---|---|---|"]
    for name, pages, sites, _ in results.domains:
        lines.append(
            f"| {name} | {pages:,} ({pages / results.pages:.1%}) | {sites:,} | {pages / sites:.1f} |"
        )
    total = results.pages / results.sites
    lines.append(f"| sum | {results.pages:,} | {results.sites:,} | {total:.1f} |")
    return "\n".join(lines) + "\n"


def compared_table(results: TanResults) -> str:
    """Figure 6 at all settings, with 95% intervals over the cycles, and how far each is ahead of RNS."""
    heads = [METRICS[metric].name for metric in MEASURED]
    lines = [
        f"| weeks | R | policy | {' | '.join(heads)} | change rate over `rns`, paired |",
        "|---" * 7 + "|",
    ]
    for setting in SETTINGS:
        random = results.trials["rns", setting]
        for policy in COMPARED:
            if (trial := results.trial(policy, setting)) is None:
                continue
            cells = " | ".join(written(trial.mean(metric)) for metric in MEASURED)
            ahead = "" if policy == "rns" else written(trial.ahead(random, "change_rate"), sign="+")
            lines.append(f"| {setting.weeks} | {setting.budget:.1%} | `{policy}` | {cells} | {ahead} |")
    return "\n".join(lines) + "\n"


def claims_table(results: TanResults) -> str:
    """The paper's claims beside our measurements, as Markdown."""
    lines = ["| the paper | here | holds |", "|---|---|---|"]
    lines += [f"| {one.paper} | {one.measured} | {'yes' if one.holds else 'no'} |" for one in claims(results)]
    return "\n".join(lines) + "\n"


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
    said = "\n".join(f"## {title}\n\n{table}" for title, table in tables.items())
    text = f"{shares[:1].upper()}{shares[1:]}.\n\n{said}"
    (directory / "tables.md").write_text(text, encoding="utf-8")
    charts = [granularity_chart(results), popularity_chart(results), history_chart(results)]
    figures = {chart.key: draw(chart) for chart in charts if chart.lines} | {
        "figure-4": depths_figure(results.domains),
        "figure-6": compared_figure(results),
        "figure-7": settings_figure(results),
    }
    write_figures(figures, directory)
