"""Cells, the pages in equal own state and of one directory: fill them, find the best, empty them.

All pages of a cell get into it at once. From then on pages only leave it: these stay in its list, and
`Memory.cell_of` tells that they are gone.
"""

# Compiled code: numba infers the types, which mypy cannot follow.
# mypy: ignore-errors

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from training.replaying.kernels.bits import mix
from training.replaying.kernels.memory import Array
from training.replaying.kernels.selection import BINS, bin_of, ordered_bits

CELLS, TAIL, SIZES = range(3)
"""Cells with those that are empty, and entries of the arena in use."""
OWN, DIRECTORY = range(2)
BEGIN, END = range(2)
_FINE = 1024
"""Bins of a look at the best cells alone."""


class Memory(NamedTuple):
    """The cells of P pages, C of them at most P."""

    cell_of: Array
    """int32 ``[P]``; -1 of a page that has left its cell, unless all others have, too"""
    shares: Array
    """int32 ``[P, 2]``, C rows of it in use: state and directory of each cell's pages"""
    count: Array
    """int32 ``[P]``, likewise: pages of each cell"""
    listed: Array
    """int32 ``[P, 2]``, likewise: where the list of its pages begins in `arena`, and ends"""
    arena: Array
    """uint32 ``[2 P]``"""
    sizes: Array
    """int64 ``[SIZES]``"""


@njit(cache=True)
def take_out(pages, cells, memory, shares):
    """Pages leave their `cells`; writes what they shared in there to `shares`, int32 ``[visits, 2]``."""
    cell_of, count, of_cells = memory.cell_of, memory.count, memory.shares
    for i in range(len(cells)):
        cell = cells[i]
        count[cell] -= 1
        shares[i, OWN] = of_cells[cell, OWN]
        shares[i, DIRECTORY] = of_cells[cell, DIRECTORY]
    for i in range(len(cells)):
        if count[cells[i]]:
            cell_of[pages[i]] = -1


@njit(cache=True)
def put_in(pages, number, directory, memory):
    """Pages that are in no cell get into those of their states, which no page was in before.

    ``number``, ``directory``: states and directories, ``[visits]``. Cells that are empty are used again.
    """
    shares, of_cell, listed, sizes = memory.shares, memory.count, memory.listed, memory.sizes
    size = 4
    while size < 2 * len(pages):
        size *= 2
    table = np.zeros(size, np.int32)  # 0: free; else one more than the number of a new cell
    keys = np.empty(len(pages), np.int64)
    count = np.zeros(len(pages), np.int32)
    target = np.empty(len(pages), np.int32)
    new = 0
    for i in range(len(pages)):
        key = np.int64(directory[i]) << 32 | np.int64(number[i])
        at = np.int64(mix(np.uint64(key)) & np.uint64(size - 1))
        while table[at] and keys[table[at] - 1] != key:
            at = (at + 1) & (size - 1)
        if not table[at]:
            keys[new] = key
            new += 1
            table[at] = new
        target[i] = table[at] - 1
        count[target[i]] += 1
    made = np.empty(new, np.int32)
    next_at = np.empty(new, np.int32)
    cells, tail = sizes[CELLS], sizes[TAIL]
    cell = 0
    for i in range(new):
        while cell < cells and of_cell[cell]:
            cell += 1
        made[i] = cell
        next_at[i] = tail
        shares[cell, OWN] = keys[i] & 0xFFFFFFFF
        shares[cell, DIRECTORY] = keys[i] >> 32
        of_cell[cell] = count[i]
        listed[cell, BEGIN] = tail
        tail += count[i]
        listed[cell, END] = tail
        cell += 1
    sizes[CELLS] = max(cells, cell)
    sizes[TAIL] = tail
    cell_of, arena = memory.cell_of, memory.arena
    for i in range(len(pages)):
        own = target[i]
        cell_of[pages[i]] = made[own]
        arena[next_at[own]] = pages[i]
        next_at[own] += 1


@njit(cache=True)
def border(scores, count, k):
    """The bin, see `selection.bin_of`, down to which the best cells have k pages; k: at most all pages."""
    pages = np.zeros(BINS, np.int32)
    bits = scores.view(np.int64)
    for cell in range(len(scores)):
        pages[bin_of(bits[cell])] += count[cell]
    lowest = BINS - 1
    while pages[lowest] < k:
        k -= pages[lowest]
        lowest -= 1
    return lowest


@njit(cache=True)
def reaching(scores, count, least, rows):
    """Cells whose pages score at least so much, into `rows`: how many, and of how many pages."""
    found = 0
    pages = 0
    for cell in range(len(scores)):
        rows[found] = cell
        is_in = (scores[cell] >= least) & (count[cell] > 0)
        found += is_in
        pages += is_in * count[cell]
    return found, pages


@njit(cache=True)
def narrowed(rows, scores, count, k):
    """Those of some cells that hold their k best pages, to the front of `rows`; how many.

    Beyond these at most a quarter more, but for ties with the last; k: at least 1, at most the pages.
    """
    bits = scores.view(np.int64)
    lowest, highest = ~np.uint64(0), np.uint64(0)
    for cell in rows:
        own = ordered_bits(bits[cell])
        lowest = min(lowest, own)
        highest = max(highest, own)
    most = max(1, k // 4)
    pages = np.empty(_FINE, np.int32)
    while True:  # each time in the bin that the last of them is in
        shift = np.uint64(0)
        while (highest - lowest) >> shift >= np.uint64(_FINE):
            shift += np.uint64(1)
        pages[:] = 0
        for cell in rows:
            own = ordered_bits(bits[cell])
            if lowest <= own <= highest:
                pages[np.int64((own - lowest) >> shift)] += count[cell]
        border = _FINE - 1
        while pages[border] < k:
            k -= pages[border]
            border -= 1
        lowest += np.uint64(border) << shift
        highest = lowest + ((np.uint64(1) << shift) - np.uint64(1))
        if shift == np.uint64(0) or pages[border] <= most:
            break
    found = 0
    for cell in rows:
        rows[found] = cell
        found += ordered_bits(bits[cell]) >= lowest
    return found


@njit(cache=True)
def spread(cells, scores, memory, pages, of_pages, cell_of_pages):
    """Write the pages of some cells, their scores and cells, each ``[P + 1]``; returns how many."""
    cell_of, count, arena, listed = memory.cell_of, memory.count, memory.arena, memory.listed
    found = 0
    for cell in cells:
        begin, end = listed[cell, BEGIN], listed[cell, END]
        is_whole = end - begin == count[cell]
        for at in range(begin, end):
            pages[found] = arena[at]
            of_pages[found] = scores[cell]
            cell_of_pages[found] = cell
            found += is_whole or cell_of[arena[at]] == cell
    return found
