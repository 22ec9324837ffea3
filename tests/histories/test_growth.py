"""Histories that grow: what fits together, what could be observed, files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from scrapy_gp4c.errors import HistoryError
from tests.support.growing import random_web
from training.histories.growth import NO_FINDER, GrowthHistory, write_growth
from training.histories.growth_reading import read_growth
from training.histories.history import ChangeHistory
from training.histories.reading import read_history

HISTORY = ChangeHistory(np.zeros((4, 3), bool), np.zeros(3, int), page_names=["a", "b", "c"])
BORN = np.array([0, 2, 4], np.int32)
FINDER = np.array([NO_FINDER, 0, 1], np.int32)


def test_a_page_is_observed_after_its_birth() -> None:
    """A page of the start in every cycle, one of the last cycle in none."""
    found = GrowthHistory(HISTORY, BORN, FINDER).observed
    assert found.dtype == np.bool_
    assert found.T.tolist() == [[True] * 4, [False, False, True, True], [False] * 4]


@pytest.mark.parametrize(
    ("born", "finder", "named"),
    [
        ([0, 2, 5], FINDER, r"'born'.* from 0 to 4, one for each of 3 pages"),
        ([0, -1, 4], FINDER, r"'born'"),
        ([0, 2], FINDER, r"'born'.* of shape \[2\]"),
        ([[0, 2, 4]], FINDER, r"'born'.* of shape \[1, 3\]"),
        ([0.0, 2.0, 4.0], FINDER, r"'born'.* found float64"),
        (BORN, [-2, 0, 1], r"'finder'.* from -1 to 2"),
        (BORN, [NO_FINDER, 0, 3], r"'finder'"),
        (BORN, [True, False, True], r"'finder'.* found bool"),
        (BORN, [NO_FINDER, 1, 1], "must not be its own finder"),
    ],
)
def test_arrays_that_do_not_fit_are_named(born: object, finder: object, named: str) -> None:
    """With what was expected and what was found."""
    with pytest.raises(HistoryError, match=named):
        GrowthHistory(HISTORY, np.array(born), np.array(finder))


@pytest.mark.parametrize("seed", [1, 2])
def test_a_file_keeps_everything(tmp_path: Path, seed: int) -> None:
    """Births, finders, changes, names; as a plain history, only what could be observed."""
    grown = random_web(seed, pages=9, cycles=5)
    write_growth(tmp_path / "x.npz", grown)
    back = read_growth(tmp_path / "x.npz")
    assert back.born.tolist() == grown.born.tolist()
    assert back.finder.tolist() == grown.finder.tolist()
    assert back.history.changed.tolist() == grown.history.changed.tolist()
    assert back.history.site.tolist() == grown.history.site.tolist()
    assert list(back.history.page_names or ()) == list(grown.history.page_names or ())
    kept = grown.born == 0
    plain = read_history(tmp_path / "x.npz")
    assert plain.changed.tolist() == grown.history.changed[:, kept].tolist()
    assert plain.dropped_pages == np.count_nonzero(~kept)
