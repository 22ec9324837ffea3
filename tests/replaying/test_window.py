"""Sums over the last cycles' visits to directories and sites."""

from __future__ import annotations

import numpy as np

from scrapy_gp4c.page_state.groups import NO_VISITS, count_visits, directories
from scrapy_gp4c.page_state.recent import Recent
from scrapy_gp4c.page_state.related import Related
from training.replaying.window import Window


def test_it_counts_as_going_through_the_visits_does():
    """Cycle for cycle, within a cycle too; cycles before the window are left out."""
    rng = np.random.default_rng(1)
    tree = directories(rng.integers(0, 4, 12))
    finished = []

    def visits():
        rows = rng.integers(0, 12, rng.integers(0, 30))
        return count_visits(rows, rng.random(len(rows)) < 0.5, None)

    window = Window(tree, finished)
    for cycle in range(1, 8):
        for now in (NO_VISITS, visits(), visits()):
            told = window.so_far(now)
            plain = Related(tree, Recent(cycle, finished, now), lambda: None)
            for level in ("directory", "site"):
                for one, other in zip(told[level], plain.window(level), strict=True):
                    assert one.tolist() == other.tolist()
        finished = [visits(), *finished]
        window.finish(finished[0])
    assert Window(tree, finished).so_far(NO_VISITS)["site"].found.tolist() == told_of(window)


def told_of(window):
    """Changes by site."""
    return window.so_far(NO_VISITS)["site"].found.tolist()
