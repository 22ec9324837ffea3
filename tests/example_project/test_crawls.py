"""The crawls of the demo: their settings, and the quality of their rankings."""

from math import log, nan

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from example_project.crawls import BUDGET, Row, Series, by_day, ndcg, write_days
from scrapy_gp4c.scoring.named import DEFAULT


def row(day, **values):
    """A row with some numbers."""
    return Row(**dict.fromkeys(Row._fields, 0) | {"day": day, "score": "age"} | values)


def test_ndcg_by_hand():
    """Gains 1, 1/ln 3, 1/ln 4; hits at ranks 1 and 3, three pages outdated; a page of no web is no hit."""
    outdated = np.array([True, False, True, True])
    assert ndcg([0, 1, 2], outdated) == pytest.approx((1 + 1 / log(4)) / (1 + 1 / log(3) + 1 / log(4)))
    assert ndcg([None, 0], outdated) == pytest.approx((1 / log(3)) / (1 + 1 / log(3)))
    assert ndcg([0, 1], np.array([True, False])) == 1.0
    assert np.isnan(ndcg([], outdated))
    assert np.isnan(ndcg([0], np.zeros(4, dtype=bool)))


@given(st.lists(st.booleans(), min_size=1, max_size=40), st.randoms())
def test_ndcg_of_the_best_ranking(outdated, dice):
    """The NDCG is from 0 to 1, and 1 where all outdated pages come first."""
    flags, pages = np.array(outdated), list(range(len(outdated)))
    dice.shuffle(pages)
    if flags.any():
        assert 0.0 <= ndcg(pages, flags) <= 1.0 + 1e-9
        assert ndcg(sorted(pages, key=lambda page: not flags[page]), flags) == pytest.approx(1.0)


def test_settings(tmp_path):
    """A crawl's own settings are added; the panel comes on top of the budget; without any it has defaults."""
    plain = Series("default", tmp_path, np.zeros(3, np.int32))
    assert "GP4C_SCORE_FUNCTION" not in plain.settings()
    assert "GP4C_PANEL" not in plain.settings()
    assert plain.settings()["GP4C_BUDGET"] == BUDGET
    assert plain.loaded().score_function.text == DEFAULT
    compared = {"GP4C_SCORE_FUNCTION": "age", "GP4C_POLICY": "rounds(rounds=3)"}
    collecting = Series("learned", tmp_path, np.zeros(3, np.int32), compared, panel=0.5)
    assert collecting.settings()["GP4C_PANEL"] == 0.5
    assert collecting.settings()["GP4C_BUDGET"] == pytest.approx(BUDGET + 0.5)
    assert {"GP4C_SCORE_FUNCTION=age", "GP4C_POLICY=rounds(rounds=3)"} <= set(collecting.command(80))
    assert (collecting.loaded().score_function.formula, collecting.loaded().policy.text) == (
        "t",
        "rounds(rounds=3)",
    )


def test_copy(tmp_path):
    """A copied series has the store and the copies of the other, and changes neither of them."""
    age = {"GP4C_SCORE_FUNCTION": "age"}
    one = Series("learned", tmp_path, np.ones(3, np.int32), age, page_of={0: 2}, rows=[row(1)])
    one.store.mkdir()
    (one.store / "data").write_bytes(b"pages")
    other = one.copy("control", {})
    other.version[0], other.page_of[1] = 7, 1
    assert (other.store / "data").read_bytes() == b"pages"
    assert one.version.tolist() == [1, 1, 1]
    assert one.page_of == {0: 2}
    assert other.rows == []
    copy_of_all = one.copy("random", {"GP4C_SCORE_FUNCTION": "random"}, 0.5, whole=True)
    assert [(row.score, row.day) for row in copy_of_all.rows] == [("random", 1)]
    assert (one.rows[0].score, copy_of_all.panel) == ("age", 0.5)
    assert (one.compared, copy_of_all.compared) == (age, {"GP4C_SCORE_FUNCTION": "random"})


def test_rows_by_day(tmp_path):
    """Numbers stand at their days, nan where a series has no row; the file has all columns."""
    one = Series("age", tmp_path, np.zeros(1, np.int32), rows=[row(2, current=0.5), row(3, current=0.25)])
    np.testing.assert_equal(by_day([one], "current", 3), {"age": np.array([nan, 0.5, 0.25])})
    write_days(tmp_path, [one])
    lines = (tmp_path / "days.tsv").read_text().splitlines()
    assert lines[0].split("\t") == list(Row._fields)
    assert len(lines) == 3
