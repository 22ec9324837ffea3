"""The DCG of a cycle: gains of the ranks at which changes were found, ties in drawn order."""

# Compiled code: numba infers the types, which mypy cannot follow.
# mypy: ignore-errors

from __future__ import annotations

import numpy as np

from training.replaying.kernels.bits import ONE, bits_of, fill_marked_keys, insert, ones
from training.replaying.kernels.compiled import flat, inner
from training.replaying.kernels.memory import CLASSES, MAX_FIELD, PLACE

SPARSE = 6
"""Binary logarithm of the least bits of a field per key."""


@flat
def rank(salt, facts, work):
    """DCG of the cycle: the summed gains of the ranks at which a change was found."""
    sums = facts.gain_sums
    again = work.again
    width = 64 if facts.by_draw else bits_of(facts.pages) + 1
    dcg = np.int64(0)
    begin = 0
    q = 0
    for c in range(work.sizes[CLASSES]):
        end = work.class_end[c]
        changed = 0
        while work.runs[PLACE, q] < end:
            changed += work.moves[2 * q + 1]
            q += 1
        if changed == end - begin:
            dcg += sums[end] - sums[begin]
        elif changed and work.class_known[c]:
            for r in range(begin, end):
                dcg += facts.gains[begin + work.rank_of[r]] & -np.int64(again[r] != 0)
        elif changed:
            keys = work.keys[: end - begin]
            fill_marked_keys(work.picked[begin:end], again[begin:end], salt, facts.by_draw, keys)
            dcg += gain(keys, width, facts.gains[begin:end], work)
        begin = end
    return dcg


@inner
def gain(keys, width, gains, work):
    """Gains of the odd ones among `keys`, ranked in ascending order.

    Every key sets the bit of a field that its highest bits name: its rank is the number of bits set
    before. Where two keys met on one bit, the keys of that word are ranked by putting them in order.
    """
    field = work.field
    below = work.heads
    met = work.from_slot
    ordered = work.sorted_keys
    bits = min(bits_of(keys.size) + SPARSE, MAX_FIELD, width)
    drop = np.uint64(width - bits)
    words = 1 << max(bits - 6, 0)
    field[:words] = 0
    below[:words] = 0
    m = 0
    for i in range(keys.size):
        at = keys[i] >> drop
        word = at >> np.uint64(6)
        bit = ONE << (at & np.uint64(63))
        before = field[word]
        field[word] = before | bit
        if before & bit:
            met[m] = word
            m += below[word] == 0
            below[word] += 1
    total = 0
    for word in range(words):
        here = np.int64(ones(field[word])) + below[word]
        below[word] = total
        total += here
    for word in met[:m]:
        field[word] = 0
        below[word] = -1 - below[word]
    dcg = np.int64(0)
    for i in range(keys.size):
        key = keys[i]
        at = key >> drop
        word = at >> np.uint64(6)
        rank = below[word]
        if rank < 0:
            insert(ordered[-1 - rank :], np.int64(field[word]), key)
            field[word] += ONE
        else:
            rank += np.int64(ones(field[word] & ((ONE << (at & np.uint64(63))) - ONE)))
            dcg += gains[rank] & -np.int64(key & ONE)
    for word in met[:m]:
        begin = -1 - below[word]
        for rank in range(begin, begin + np.int64(field[word])):
            dcg += gains[rank] & -np.int64(ordered[rank] & ONE)
    return dcg
