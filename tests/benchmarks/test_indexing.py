"""The curve of indexing with and without measuring: both index the same texts, one measures."""

from pathlib import Path

import pytest

from benchmarks.indexing import PARTS, Point, curve, draw, updates_of
from scrapy_gp4c.search.queries import parse_query_log
from tests.support.contents import contents_of, random_pages


def test_the_curve_grows_and_is_drawn(tmp_path: Path) -> None:
    """A point for each part, of the size asked for."""
    contents = contents_of(tmp_path, random_pages(3, pages=6, cycles=8))
    points = curve(contents, parse_query_log(["a b\t3", "c\t1"], "log"), 0.001)
    assert [point.megabytes for point in points] == pytest.approx(
        [0.001 * (n + 1) / PARTS for n in range(PARTS)]
    )
    for name in ("measuring_s", "without_s"):
        taken = [getattr(point, name) for point in points]
        assert taken == sorted(taken)
        assert taken[0] > 0.0
    draw(points, tmp_path / "curve.png")
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")
    assert Point(1.0, 3.0, 2.0).ratio == 1.5


def test_updates_come_again_until_they_are_enough(tmp_path: Path) -> None:
    """Each with the text that it takes the place of."""
    contents = contents_of(tmp_path, [{0: "a b", 2: "c d e"}, {0: "x"}])
    result = updates_of(contents, 12)
    assert result == [("a b", "c d e")] * 3
    with pytest.raises(ValueError, match="no updates"):
        updates_of(contents_of(tmp_path, [{0: "x", 1: None}]), 1)
