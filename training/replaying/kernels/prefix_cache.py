"""Trails of replays: the order of groups that decided each cycle, and the trail that a function follows."""

# Compiled code: numba infers the types, which mypy cannot follow.
# mypy: ignore-errors

from __future__ import annotations

import numpy as np

from training.replaying.kernels.compiling import inner, outer

CHOSEN, LIVE, FIRST = range(3)
"""Entries of a cycle of a trail: number of foremost groups, number of groups, then rows of their states.

The foremost ones come first and in order. A row that ties with the one before is written as ``-1 - row``.
"""
LEAVES, CHILD, NEXT, LINKS = range(4)
"""Rows by trail; -1: there is none.

The cycle in which it leaves its parent, its last branch, and the branch of its parent before it.
"""


@inner
def write_prefix(order, others, row_of, scores, trail):
    """Write a cycle of a trail. `order`: result of `foremost`, `others`: the slots of all other groups.

    `row_of`, `scores`: by slot. `trail`: int16 ``[FIRST + groups]``; for more groups `LIVE` is -1.
    """
    live = order.size + others.size
    trail[CHOSEN] = order.size
    if FIRST + live > trail.size:
        trail[LIVE] = -1
        return
    trail[LIVE] = live
    for i in range(order.size):
        row = row_of[order[i]]
        ties = i > 0 and scores[order[i]] == scores[order[i - 1]]
        trail[FIRST + i] = -1 - row if ties else row
    for i in range(others.size):
        trail[FIRST + order.size + i] = row_of[others[i]]


@outer
def follow(scores, rows, starts, links):
    """Trail that agrees longest with the `scores` of a function, by row, and the cycles of agreement.

    `rows`: all trails, as `write_prefix` writes them. `starts[trail, cycle]`: start of a cycle in `rows`,
    from the one on in which the trail leaves its parent. `links`: int32 ``[LINKS, trails]``. All branch off
    the first.
    """
    path = 0
    cycle = _agreed(scores, rows, starts[0], np.int64(0))
    while cycle < starts.shape[1]:
        reached = cycle
        other = links[CHILD, path]
        while other >= 0:
            if links[LEAVES, other] == cycle:
                reached = _agreed(scores, rows, starts[other], cycle)
                if reached > cycle:
                    break
            other = links[NEXT, other]
        if other < 0:
            break
        path = other
        cycle = reached
    return path, cycle


@inner
def _agreed(scores, rows, starts, cycle):
    """Cycles up to which a function agrees with a trail, given that it does before `cycle`."""
    while cycle < starts.size:
        begin = starts[cycle] + FIRST
        chosen = begin + rows[starts[cycle] + CHOSEN]
        end = begin + rows[starts[cycle] + LIVE]
        last = scores[rows[begin]]
        for at in range(begin + 1, chosen):
            row = rows[at]
            score = scores[row if row >= 0 else -1 - row]
            if (score != last) if row < 0 else not score < last:
                return cycle
            last = score
        for at in range(chosen, end):
            if not scores[rows[at]] < last:
                return cycle
        cycle += 1
    return cycle
