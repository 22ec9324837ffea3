"""The picture of the demo."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from example_project.plot import PANELS, STYLES, draw, running_mean, spread, style_of

FIRST_RANKED_DAY = 4


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
    draw(tmp_path / "a.png", values, FIRST_RANKED_DAY, "A title", first_learned_day, labels=labels)
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "a.png").stat().st_size > 10_000


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
