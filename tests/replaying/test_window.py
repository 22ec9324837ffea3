"""Sums over the last cycles' visits to directories and sites."""

from __future__ import annotations

import numpy as np

from scrapy_gp4c.page_state.groups import count_visits, directories
from scrapy_gp4c.page_state.related import Recent, Related
from training.replaying.window import Window


def test_it_counts_as_going_through_the_visits_does():
    """Cycle for cycle, within a cycle too; cycles before the window are left out."""
    rng = np.random.default_rng(1)
    tree = directories(rng.integers(0, 4, 12))
    finished = []

    def told(window, plain):
        for level in ("directory", "site"):
            for mine, other in ((window.window, plain.window), (window.begun, plain.begun)):
                for one, same in zip(mine(level), other(level), strict=True):
                    assert one.tolist() == same.tolist()

    window = Window(tree, finished)
    for cycle in range(1, 8):
        rows, changed = np.empty(0, np.intp), np.empty(0, np.bool_)
        for visits in (0, 30, 0, 7):
            own = rng.integers(0, 12, visits), rng.random(visits) < 0.5
            window.add(*own)
            rows, changed = np.append(rows, own[0]), np.append(changed, own[1])
            told(
                window,
                Related(tree, Recent(cycle, finished, count_visits(rows, changed, None)), lambda: None),
            )
        finished = [count_visits(rows, changed, None), *finished]
        window.finish()
        told(window, Related(tree, Recent(cycle, finished), lambda: None))
    told(Window(tree, finished), Related(tree, Recent(cycle, finished), lambda: None))
