"""Pages in equal own state and of one directory: what is in a cell, and which pages are the best."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from scrapy_gp4c.scoring.draws import draw_salt, salted_draws
from scrapy_gp4c.scoring.ranking import top_k
from training.replaying.cells import Cells

PAGES = 60
SCORES = st.sampled_from([0.0, -0.0, 1.0, -1.0, -1.5, 2.0, 2.0 + 2**-40, 1e300, -1e300, 5e-324])


def _told(cells, number, directory, is_out):
    """Every page that is in a cell is in that of its state and directory, and of equal ones there is one."""
    cell_of, count = cells._memory.cell_of, cells._memory.count[: cells.cells]
    inside = np.flatnonzero(~is_out)
    assert cells.own[cell_of[inside]].tolist() == number[inside].tolist()
    assert cells.directory[cell_of[inside]].tolist() == directory[inside].tolist()
    assert count.tolist() == np.bincount(cell_of[inside], minlength=len(count)).tolist()
    filled = np.flatnonzero(count)
    assert len({*zip(cells.own[filled], cells.directory[filled], strict=True)}) == len(filled)


@given(
    seed=st.integers(0, 2**32),
    directories=st.sampled_from([1, 6, 40]),
    scores=st.lists(SCORES, min_size=8, max_size=8),
    by_draw=st.booleans(),
    k=st.integers(1, 25),
)
@settings(max_examples=80, deadline=None)
def test_the_best_are_those_of_a_ranking_of_all_pages(seed, directories, scores, by_draw, k):
    """Round for round, whether visits were told or not; memory that is full is filled anew."""
    rng = np.random.default_rng(seed)
    number, directory = rng.integers(0, 3, PAGES).astype(np.int32), rng.integers(0, directories, PAGES)
    pages, cells = np.arange(PAGES, dtype=np.uint64), Cells(PAGES)
    cells.gather(number, directory)
    begun, anew, states = cells.copy(), 0, 3
    cells.gather(number[::-1].copy(), directory)
    cells.restore(begun)
    for cycle in range(8):
        salt = draw_salt(1, cycle)
        ties = salted_draws(pages, salt) if by_draw else pages
        is_out, visits = np.zeros(PAGES, np.bool_), []
        for turn in range(3):
            _told(cells, number, directory, is_out)
            if turn == 1:
                chosen = rng.permutation(np.flatnonzero(~is_out))[:5].astype(np.uint32)
            else:
                of_pages = np.array(scores)[(number + directory) % 8]
                of_pages[is_out] = -np.inf
                told = np.array(scores)[(cells.own + cells.directory) % 8]
                wanted = min(k, PAGES - np.count_nonzero(is_out))
                if not wanted:
                    continue
                chosen, own, tie = cells.best(told, wanted, salt, by_draw)
                assert chosen.tolist() == top_k(of_pages, ties, wanted).tolist()
                assert own.tobytes() == of_pages[chosen].tobytes()
                assert tie == ties[chosen[-1]]
            assert cells.visit(chosen, turn != 1).tolist() == directory[chosen].tolist()
            is_out[chosen] = True
            visits.append(chosen)
        visited = np.concatenate(visits).astype(np.int64)
        assert cells.left.tolist() == number[visited].tolist()
        # Of the states before every other is dropped: those that are left get other numbers.
        kept = np.unique(np.append(number[~is_out], 0))
        target = np.zeros(states, np.intp)
        target[kept] = np.arange(len(kept))
        moved = len(kept) + rng.integers(0, 2, len(visited))
        number = target[number].astype(np.int32)
        number[visited], states = moved, len(kept) + 2
        if not cells.observe(visited, moved, target):
            cells.gather(number, directory)
            anew += 1
        cells.begin()
    assert anew or k < 4
