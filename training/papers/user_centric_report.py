"""Figures and tables of the user-centric experiment (Pandey & Olston 2005, figures 3 and 4)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from training.papers.user_centric import Panel, UserCentricResults
from training.reporting.figures import STYLES, finish, new_figure, write_figures

TICKS: Final = (0.25, 0.5, 1, 2, 3, 5, 10, 20, 40)
"""Ticks of the budget axis, in percent."""
LEAST: Final = 1e-4
"""Gains per week below this share of their median are drawn at the edge."""
NEAREST: Final = ((0.5, "#0072B2"), (0.8, "#56B4E9"), (0.9, "#E69F00"), (1.0, "#BBBBBB"))
"""Share of the pages nearest to the diagonal -> colour."""


def _panels(count: int) -> tuple[Figure, list[Axes]]:
    rows, columns = (count + 1) // 2, 2 if count > 1 else 1
    figure, axes = new_figure(11.0 if count > 1 else 6.5, 4.6 * rows, rows, columns, layout="constrained")
    for empty in axes[count:]:
        empty.set_visible(False)
    return figure, axes[:count]


def quality_figure(panels: Sequence[Panel], loss: bool = False) -> Figure:
    """Figure 4: quality against budget; ``loss``: 1 - quality, on log axes."""
    figure, grid = _panels(len(panels))
    for axes, panel in zip(grid, panels, strict=True):
        names = list(dict.fromkeys(point.policy for point in panel.points))
        for name, (colour, dash, marker) in zip(names, STYLES, strict=False):
            line = sorted((p.share, p.quality) for p in panel.points if p.policy == name)
            share, quality = np.array(line).T
            y = np.maximum(1.0 - quality, 1e-6) if loss else quality
            axes.plot(100 * share, y, color=colour, linestyle=dash, marker=marker, markersize=4, label=name)
        axes.set_xscale("log")
        if loss:
            axes.set_yscale("log")
        else:
            axes.axhline(panel.never_mean, color="#999999", linewidth=0.8)
            axes.annotate(
                "never refreshed", (1, panel.never_mean), (0, 3), xycoords=("axes fraction", "data"),
                textcoords="offset points", fontsize=8, color="#666666", ha="right",
            )  # fmt: skip
        y_label = "1 − search quality" if loss else "search quality"
        finish(axes, f"{panel.name}: {panel.pages:,} pages", "pages refreshed per week, %", y_label)
        shares = sorted({100 * point.share for point in panel.points})
        axes.set_xticks([share for share in TICKS if shares[0] <= share <= shares[-1]])
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.xaxis.set_minor_locator(NullLocator())
    grid[0].legend(frameon=False, fontsize=9)
    return figure


def halves_figure(panels: Sequence[Panel], weeks: int) -> Figure:
    """Figure 3: gain per week in the first half of the weeks against the second, a dot for each page."""
    figure, grid = _panels(len(panels))
    for axes, panel in zip(grid, panels, strict=True):
        x, y = panel.halves.earlier, panel.halves.later
        some = (x > 0) | (y > 0)
        x, y = x[some], y[some]
        axes.set_title(f"{panel.name}: {np.count_nonzero(some):,} pages", loc="left", fontsize=11)
        positive = np.concatenate((x[x > 0], y[y > 0]))
        if not len(positive):
            continue
        edge = max(positive.min(), LEAST * float(np.median(positive))) / 3
        shown = [np.maximum(values, edge) for values in (x, y)]
        apart = np.abs(np.log(shown[0]) - np.log(shown[1]))
        apart[(x == 0) | (y == 0)] = np.inf
        rank = np.empty(len(apart))
        rank[np.argsort(apart, kind="stable")] = (np.arange(len(apart)) + 1) / len(apart)
        low = 0.0
        for high, colour in NEAREST:
            inside = (rank > low) & (rank <= high)
            label = f"nearest {high:.0%}" if high < 1 else "others"
            axes.scatter(shown[0][inside], shown[1][inside], s=7, color=colour, label=label, linewidths=0)
            low = high
        ends = [edge / 1.5, positive.max() * 1.5]
        axes.plot(ends, ends, color="#888888", linewidth=0.8, zorder=0)
        axes.set(xscale="log", yscale="log", xlim=ends, ylim=ends)
        axes.set_xlabel(f"ppm gained per week, weeks 1 to {weeks // 2} (edge: none)")
        axes.set_ylabel(f"weeks {weeks // 2 + 1} to {weeks}")
    grid[0].legend(frameon=False, fontsize=9, markerscale=2, loc="upper left")
    return figure


def impact_figure(panels: Sequence[Panel]) -> Figure:
    """Share of the loss that refreshes saved, by the estimates and exact: a dot for each run."""
    figure, (axes,) = _panels(1)
    axes.plot([0, 1], [0, 1], color="#BBBBBB", linewidth=0.8, zorder=0)
    for panel, (colour, _, marker) in zip(panels, STYLES, strict=False):
        loss = 1 - panel.never_mean or 1.0
        saved = [1 - (1 - point.quality) / loss for point in panel.points]
        axes.scatter(
            saved, [point.impact for point in panel.points], s=16, color=colour, marker=marker,
            label=panel.name, alpha=0.8, linewidths=0,
        )  # fmt: skip
    finish(axes, "", "quality: share of the loss saved, exact", "impact: the same by the estimates")
    axes.legend(frameon=False, fontsize=9)
    return figure


def resource_table(panels: Sequence[Panel]) -> str:
    """Budgets for equal quality, as Markdown."""
    names = list(dict.fromkeys(row.policy for panel in panels for row in panel.resources))
    lines = [f"| panel | quality | {' | '.join(names)} |", f"|---|---|{'---|' * len(names)}"]
    for panel in panels:
        for quality in dict.fromkeys(row.quality for row in panel.resources):
            cells = []
            for name in names:
                row = next(r for r in panel.resources if r.policy == name and r.quality == quality)
                cells.append("—" if row.share is None else f"{row.share:.1%} ({row.ratio:.2f})")
            lines.append(f"| {panel.name} | {quality:.4f} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def forecast_table(panels: Sequence[Panel]) -> str:
    """Correlations of the first half's gains with the second's, against permutations, as Markdown."""
    lines = [
        "| panel | forecast | gained in either: ρ (pages) | unrelated halves | p "
        "| gained in both: ρ (pages) | unrelated halves | p |",
        "|---" * 8 + "|",
    ]
    for panel in panels:
        for row in panel.halves.forecasts:
            cells = " | ".join(
                f"{one.spearman:+.2f} ({one.selected:,}) | {one.null_mean:+.2f} ({one.null_low:+.2f} to "
                f"{one.null_high:+.2f}) | {one.p:.3f}"
                for one in (row.either, row.both)
            )
            lines.append(f"| {panel.name} | {row.name} | {cells} |")
    return "\n".join(lines) + "\n"


def examples_text(panel: Panel) -> str:
    """Figure 5: updates that policies judge differently, their diffs and moved ranks, as Markdown."""
    parts = [f"# {panel.name}\n"]
    for one in panel.examples:
        moved = "\n".join(
            f"| {row.query} | {row.before or 'none'} | {row.after or 'none'} | {row.frequency:.2%} |"
            for row in one.moves
        )
        parts.append(
            f"## {one.rule}\n\n{one.page}, week {one.cycle}: {one.difference:.0%} of the shingles differ, "
            f"{one.gained:.3g} ppm gained by a refresh at once.\n\n```diff\n{one.diff}\n```\n\n"
            f"| query | rank before | rank after | asked |\n|---|---|---|---|\n{moved}\n"
        )
    return "\n".join(parts)


def write_all(results: UserCentricResults, weeks: int, directory: Path) -> None:
    """Write figures (PNG, SVG) and tables (Markdown) into a directory."""
    panels = results.panels
    figures = {"figure-3": halves_figure(panels, weeks)}
    if panels[0].points:
        figures["figure-4"] = quality_figure(panels)
        figures["figure-4-loss"] = quality_figure(panels, loss=True)
        figures["impact"] = impact_figure(panels)
    write_figures(figures, directory)
    (directory / "forecasts.md").write_text(forecast_table(panels), encoding="utf-8")
    if not panels[0].points:
        return
    (directory / "figure-5.md").write_text(
        "\n".join(examples_text(panel) for panel in panels if panel.examples), encoding="utf-8"
    )
    (directory / "resources.md").write_text(resource_table(panels), encoding="utf-8")
