"""Figures: their data against the results, and the files against their formats."""

from __future__ import annotations

import math
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from tests.support.example_results import results
from training.papers.journal import label
from training.papers.journal_report import paper_charts, selection_rules
from training.reporting import charts, svg
from training.reporting.figures import write_figures

numbers = st.floats(-1000, 1000)


def test_lines_are_means_over_folds_with_their_intervals() -> None:
    """A point is the mean of 5 folds, its interval that of scipy's t distribution around it."""
    trials = results().trials
    chart = selection_rules(trials, "ndcg")
    values = np.array(trials.series[label("best", "all", "ndcg")]["ndcg"])
    line = chart.lines[0]
    assert line.values == pytest.approx(values.mean(axis=0).tolist())
    low, high = stats.t.interval(0.95, 4, values.mean(axis=0), stats.sem(values, axis=0))
    assert line.half_widths == pytest.approx(((high - low) / 2).tolist())


def test_figure_5_takes_fold_means() -> None:
    """Over the budgets, the interval is that of the 5 fold means: cycles are not independent."""
    trials = results().trials
    values = np.array(trials.smaller_budgets["0.01"]["nad"]["ndcg"]).mean(axis=1)
    line = charts.budgets(trials, "ndcg", {"nad": "nad"}).lines[0]
    assert line.values[0] == pytest.approx(values.mean())
    assert line.half_widths[0] == pytest.approx(stats.t.ppf(0.975, 4) * stats.sem(values))


def test_files_are_png_and_svg_and_reproducible(tmp_path: Path) -> None:
    """Every figure is a PNG and an SVG whose text is text; the same data gives the same bytes."""
    drawn = paper_charts(results().trials)[-2:]
    paths = write_figures(drawn, tmp_path)
    first = [path.read_bytes() for path in paths]
    assert [path.suffix for path in paths] == [".png", ".svg"] * 2
    assert first[0].startswith(b"\x89PNG")
    assert "never visited" in "".join(ElementTree.fromstring(first[3]).itertext())
    assert [path.read_bytes() for path in write_figures(drawn, tmp_path)] == first


@given(st.lists(numbers, min_size=1, max_size=8), st.floats(0, 50))
def test_labels_keep_order_and_distance(heights: list[float], gap: float) -> None:
    """Labels are at least the gap apart, in the order of what they name, and unmoved where there is room."""
    spread = charts.spread(heights, gap)
    order = np.argsort(heights, kind="stable")
    assert (np.diff(np.array(spread)[order]) >= gap - 1e-6).all()
    if (np.diff(np.sort(heights)) >= gap).all():
        assert spread == pytest.approx(heights, abs=1e-6)


@given(numbers, st.floats(1e-6, 1e4))
def test_ticks_are_round_and_span_the_values(low: float, width: float) -> None:
    """Few ticks, equally spaced, from at most the lowest to at least the highest value."""
    ticks = charts.ticks(low, low + width)
    steps = np.diff(ticks)
    assert 2 <= len(ticks) <= 13
    assert steps == pytest.approx([steps[0]] * len(steps), rel=1e-3)
    slack = 1e-3 * width
    assert ticks[0] <= low + slack
    assert ticks[-1] >= low + width - slack


def test_inline_charts_tell_their_values() -> None:
    """The inline SVG has a text alternative and, at every point of the first line, its value."""
    chart = charts.methods(results().trials, "change_rate", label("best", "all", "change_rate"))
    wide, narrow = str(svg.chart(chart)).split("</svg>")[:2]
    root = ElementTree.fromstring(wide + "</svg>")
    assert root.get("role") == "img"
    assert "learned: mean" in str(root.get("aria-label"))
    titles = [element.text for element in root.iter("title")]
    assert f"learned, 3: {chart.lines[0].values[0]:.1%} ± {chart.lines[0].half_widths[0]:.1%}" in titles
    assert 'viewBox="0 0 360' in narrow


def test_missing_values_are_left_out() -> None:
    """A line without a value in some cycles (a crawl's warm-up) is drawn over the others."""
    line = charts.Line("rate", [math.nan, 0.5, 0.6], [math.nan] * 3)
    chart = charts.Chart("c", "Rates", "cycle", "rate", [1.0, 2.0, 3.0], [line], True)
    drawn = str(svg.chart(chart))
    assert "nan" not in drawn
    assert "mean 55.0%" in drawn
