"""The figure of a leaderboard: every point has its name, and names stay apart."""

from __future__ import annotations

import itertools
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scrapy_gp4c.errors import HistoryError
from training.reporting.scatter import Names, Point, Scatter, write

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
    write(SCATTER, png)
    write(SCATTER, svg)
    assert png.read_bytes().startswith(b"\x89PNG")
    first = svg.read_bytes()
    texts = {
        "".join(one.itertext()).strip() for one in ElementTree.fromstring(first).iter() if "text" in one.tag
    }
    assert {"age, fixed", "t*X", "harmonic", "cg", "Freshness", "front"} <= texts
    write(SCATTER, svg)
    assert svg.read_bytes() == first


@pytest.mark.parametrize("name", ["front.pdf", "front", "missing/front.png"])
def test_a_figure_that_cannot_be_written_is_one_error(tmp_path: Path, name: str) -> None:
    """For another kind of file, or a directory that is not there."""
    with pytest.raises(HistoryError, match="front"):
        write(SCATTER, tmp_path / name)


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
