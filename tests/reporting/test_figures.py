"""Figures: their data against the results, and the files against their formats."""

import itertools
import math
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from scrapy_gp4c.errors import HistoryError
from tests.support.example_results import results
from training.papers.journal import label, paper_charts, selection_rules
from training.reporting.figures import (
    Chart,
    Line,
    Names,
    Point,
    Scatter,
    draw,
    draw_scatter,
    inline,
    limits,
    save,
    spread,
    write_figures,
)
from training.reporting.score import budgets, methods

numbers = st.floats(-1000, 1000)


def test_lines_are_means_over_folds_with_their_intervals() -> None:
    """A point is the mean of 5 folds, its interval that of scipy's t distribution around it."""
    trials = results().trials
    chart = selection_rules(results(), "ndcg")
    values = np.array(trials.series[label("best", "all", "ndcg")]["ndcg"])
    line = chart.lines[0]
    assert line.values == pytest.approx(values.mean(axis=0).tolist())
    low, high = stats.t.interval(0.95, 4, values.mean(axis=0), stats.sem(values, axis=0))
    assert line.half_widths == pytest.approx(((high - low) / 2).tolist())


def test_figure_5_takes_fold_means() -> None:
    """Over the budgets, the interval is that of the 5 fold means: cycles are not independent."""
    trials = results().trials
    values = np.array(trials.smaller_budgets["0.01"]["nad"]["ndcg"]).mean(axis=1)
    line = budgets(trials, "ndcg", {"nad": "nad"}).lines[0]
    assert line.values[0] == pytest.approx(values.mean())
    assert line.half_widths[0] == pytest.approx(stats.t.ppf(0.975, 4) * stats.sem(values))


def test_files_are_png_and_svg_and_reproducible(tmp_path: Path) -> None:
    """Every figure is a PNG and an SVG whose text is text; the same data gives the same bytes."""
    drawn = {chart.key: draw(chart) for chart in paper_charts(results())[-2:]}
    paths = write_figures(drawn, tmp_path)
    first = [path.read_bytes() for path in paths]
    assert [path.suffix for path in paths] == [".png", ".svg"] * 2
    assert first[0].startswith(b"\x89PNG")
    assert "never visited" in "".join(ElementTree.fromstring(first[3]).itertext())
    assert [path.read_bytes() for path in write_figures(drawn, tmp_path)] == first


@given(st.lists(numbers, min_size=1, max_size=8), st.floats(0, 50))
def test_labels_keep_order_and_distance(heights: list[float], gap: float) -> None:
    """Labels are at least the gap apart, in the order of what they name, and unmoved where there is room."""
    heights_apart = spread(heights, gap)
    order = np.argsort(heights, kind="stable")
    assert (np.diff(np.array(heights_apart)[order]) >= gap - 1e-6).all()
    if (np.diff(np.sort(heights)) >= gap).all():
        assert heights_apart == pytest.approx(heights, abs=1e-6)


def test_inline_charts_tell_their_values() -> None:
    """The inline SVG has a text alternative and, at every point of the first line, its value."""
    chart = methods(results().trials, "change_rate", label("best", "all", "change_rate"))
    wide, narrow = str(inline(chart)).split("</svg>")[:2]
    root = ElementTree.fromstring(wide + "</svg>")
    assert root.get("role") == "img"
    assert "learned: mean" in str(root.get("aria-label"))
    titles = [element.text for element in root.iter("title")]
    assert f"learned, 3: {chart.lines[0].values[0]:.1%} ± {chart.lines[0].half_widths[0]:.1%}" in titles
    assert 'viewBox="0 0 360' in narrow


def test_missing_values_are_left_out() -> None:
    """A line without a value in some cycles (a crawl's warm-up) is drawn over the others."""
    line = Line("rate", [math.nan, 0.5, 0.6], [math.nan] * 3)
    chart = Chart("c", "Rates", "cycle", "rate", [1.0, 2.0, 3.0], [line], True)
    drawn = str(inline(chart))
    assert "nan" not in drawn
    assert "mean 55.0%" in drawn
    chart = chart._replace(x=[1.0], lines=[Line("rate", [0.0], [math.nan])])
    assert limits(chart) == (0.0, 0.01)  # the axis of a first cycle without changes went down to -1%


POINTS = [
    Point("age", 0.85, 0.21, "named functions", False),
    Point("fixed", 0.85, 0.21, "policies of others", False),
    Point("t*X", 0.82, 0.71, "named functions", True),
    Point("harmonic", 0.87, 0.48, "named functions", True),
    Point("cg", 0.815, 0.66, "named functions", False),
]
SCATTER = Scatter("history", "Freshness", "Change rate", POINTS)


def test_figures_are_png_or_svg_with_all_names(tmp_path: Path) -> None:
    """Points in one place share a label; the same points give the same file."""
    png, svg = tmp_path / "front.png", tmp_path / "front.svg"
    save(draw_scatter(SCATTER), png)
    save(draw_scatter(SCATTER), svg)
    assert png.read_bytes().startswith(b"\x89PNG")
    first = svg.read_bytes()
    texts = {
        "".join(one.itertext()).strip() for one in ElementTree.fromstring(first).iter() if "text" in one.tag
    }
    assert {"age, fixed", "t*X", "harmonic", "cg", "Freshness", "front"} <= texts
    save(draw_scatter(SCATTER), svg)
    assert svg.read_bytes() == first


@pytest.mark.parametrize("name", ["front.pdf", "front", "missing/front.png"])
def test_a_figure_that_cannot_be_written_is_one_error(tmp_path: Path, name: str) -> None:
    """For another kind of file, or a directory that is not there."""
    with pytest.raises(HistoryError, match="front"):
        save(draw_scatter(SCATTER), tmp_path / name)


@given(st.lists(st.integers(0, 40), min_size=1, max_size=10, unique=True))
def test_names_that_have_room_do_not_overlap(places: list[int]) -> None:
    """Of points 12 apart in a column, with room beside them, no name covers another's or a point."""
    points = [(200.0, 12.0 * place) for place in places]
    boxes = [(x - 3, y - 3, x + 3, y + 3) for x, y in points]
    names = Names(boxes, (0.0, -100.0, 500.0, 700.0))
    for x, y in points:
        _, far = names.place(x, y, "harmonic")
        assert not far
    for one, other in itertools.combinations(names.taken, 2):
        apart = one[2] <= other[0] or other[2] <= one[0] or one[3] <= other[1] or other[3] <= one[1]
        assert apart


def test_names_stay_within_the_axes() -> None:
    """A point at the right edge has its name on its left."""
    (dx, _), _ = Names([], (0.0, 0.0, 300.0, 200.0)).place(295.0, 100.0, "harmonic")
    assert dx < -30
