"""The picture of the demo."""

import itertools
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from example_project.plot import PANELS, STYLES, draw, running_mean, spread, style_of, ticks

FIRST_RANKED_DAY = 4
SVG = "{http://www.w3.org/2000/svg}"


@pytest.mark.parametrize(("days", "first_learned_day"), [(1, None), (3, None), (30, 10)])
def test_draw(tmp_path, days, first_learned_day):
    """The picture is drawn for any number of days, days without judged visits and late crawls included."""
    rng = np.random.default_rng(0)
    values = {panel: {name: rng.random(days) for name in (*STYLES, "balanced")} for panel in PANELS}
    for name in STYLES:
        values["change_rate"][name][0] = np.nan
    for panel in PANELS:
        values[panel]["control"][: first_learned_day or days] = np.nan
    labels = {"learned": "all, then default"}
    draw(tmp_path / "a.svg", values, FIRST_RANKED_DAY, "A <title>", first_learned_day, labels=labels)
    root = ElementTree.parse(tmp_path / "a.svg").getroot()
    texts = [text.text for text in root.iter(f"{SVG}text")]
    assert {"A <title>", "balanced", "all, then default", *PANELS.values()} <= set(texts)
    curves = [line.get("points").split() for line in root.iter(f"{SVG}polyline")]
    assert max(map(len, curves)) == days
    places = [tuple(map(float, point.split(","))) for points in curves for point in points]
    _, _, width, height = map(int, root.get("viewBox").split())
    assert all(0 < x < width and 0 < y < height for x, y in places)


@given(st.floats(-1e3, 1e3), st.floats(1e-3, 1e4), st.integers(2, 9))
def test_ticks_are_few_and_within(low, span, most):
    """At most so many ticks at one distance, none beyond the axis."""
    drawn = ticks(low, low + span, most)
    assert len(drawn) <= most
    assert all(low - 1e-6 * span <= tick <= low + (1 + 1e-6) * span for tick in drawn)
    assert len({round((b - a) / span, 6) for a, b in itertools.pairwise(drawn)}) <= 1


def test_further_crawls_have_styles_of_their_own():
    """A crawl that is new in the comparison is told from all others, whatever is drawn before it."""
    crawls = [*STYLES, "balanced", "freshness"]
    assert len({style_of(name, crawls) for name in crawls}) == len(crawls)
    assert style_of("age", crawls) == STYLES["age"]


@given(st.lists(st.floats(0, 1), min_size=1, max_size=6), st.floats(0.01, 0.2))
def test_spread(heights, gap):
    """Labels end up apart, in the order of their curves."""
    placed = np.array(spread(heights, gap))
    order = np.argsort(heights, kind="stable")
    assert (np.diff(placed[order]) >= gap * (1 - 1e-6)).all()
    assert abs(placed.mean() - np.mean(heights)) < 1e-6


def test_running_mean():
    """The running mean looks back a fixed number of days and skips days without a value."""
    values = np.array([np.nan, 1.0, 2.0, np.nan, 6.0])
    np.testing.assert_allclose(running_mean(values, 3), [np.nan, 1.0, 1.5, 1.5, 4.0])
