"""Visits to the chosen pages: whether each had changed, when it changes again, and sums over the cycle.

The DCG of a cycle sums the gains of the ranks of changed pages, ties in drawn order.
`training.replaying.kernels` explains slots, runs, keys, ``facts`` and ``work``.
"""

# Compiled code: numba infers the types, which mypy cannot follow.
# mypy: ignore-errors

import numpy as np

from training.replaying.kernels.bits import (
    ONE,
    bits_of,
    fill_marked_keys,
    first_change,
    insert,
    ones,
    trailing_zeros,
)
from training.replaying.kernels.choice import clean
from training.replaying.kernels.compiling import flat, inner, outer
from training.replaying.kernels.memory import (
    CHANGED,
    CLASSES,
    COUNT,
    DCG,
    DIVERGED,
    IDLE,
    LANES,
    LAST,
    LENGTH,
    MAX_FIELD,
    NEW,
    PLACE,
    RUNS,
    SLOT,
    START,
    TOP,
    WEIGHT,
)

SPARSE = 6
"""Binary logarithm of the least number of bits in `Work.field` per key."""


@flat
def rank(salt, facts, work):
    """Return the DCG of a cycle's visits, whose outcomes are in `Work.again`."""
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
    """Rank `keys` in ascending order, and sum `gains` of the ranks of odd keys (of changed pages).

    A key's highest bits are the position of a bit that it sets in `Work.field`; its rank is the number of
    bits set before. Keys of a word in which two keys met on one bit are sorted.
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
        count = np.int64(ones(field[word])) + below[word]
        below[word] = total
        total += count
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


_TOP_BIT = np.uint64(1 << 63)


@flat
def visit(cycle, salt, facts, slots, work, counts):
    """Find out which chosen pages have changed: by page to `Work.again`, summed to `Work.moves`, `counts`."""
    k = facts.k
    runs = work.runs
    moves = work.moves
    again = work.again
    held = work.keys
    new = 0
    idle = 0
    changed = 0
    if facts.width == 1:
        words = facts.words
        picked = work.picked
        for r in range(k):
            held[r] = words[picked[r]]
    for q in range(work.sizes[RUNS]):
        before = np.int64(slots[LAST, runs[SLOT, q]])
        start = runs[PLACE, q]
        stop = runs[PLACE, q + 1]
        if facts.width == 1:
            changed_pages = _judge(cycle, before, held[start:stop], again[start:stop])
        else:
            changed_pages = _judge_long(cycle, before, work.picked[start:stop], facts, again[start:stop])
        moves[2 * q] = stop - start - changed_pages
        moves[2 * q + 1] = changed_pages
        changed += changed_pages
        if before == facts.warmup:
            new += stop - start
        if before != cycle - 1:
            idle += stop - start
    _count_again(cycle, again[:k], work.lanes, work.again_count)
    counts[CHANGED] = changed
    counts[NEW] = new
    counts[IDLE] = idle
    counts[WEIGHT] = changed
    if facts.aged or facts.fixed.size:
        _weigh(cycle, facts, slots, work, counts)
    if facts.ranked:
        counts[DCG] = rank(salt, facts, work)
    if facts.penalised:
        for q in range(work.sizes[RUNS]):
            before = np.int64(slots[LAST, runs[SLOT, q]])
            for r in range(runs[PLACE, q], runs[PLACE, q + 1]):
                _penalise(work.picked[r], before, cycle, facts, work)


@inner
def _judge(cycle, before, held, again):
    """Write to `again` the cycles until a page's next change, 0 if it did not change in (before, cycle].

    `held`: words of the pages, with a bit for each cycle. Returns how many pages changed.
    """
    low = np.uint64(before)
    high = np.uint64(64 - cycle + before)
    seen = np.uint64(cycle - 1)
    changed_pages = 0
    for r in range(held.size):
        word = held[r]
        changed = ((word >> low) << high) != np.uint64(0)
        until = trailing_zeros(((word >> seen) >> ONE) | _TOP_BIT) + ONE
        again[r] = until if changed else np.uint64(0)
        changed_pages += changed
    return changed_pages


@inner
def _judge_long(cycle, before, pages, facts, again):
    """Do what `_judge` does, for histories of more than 64 cycles, whose pages have several words."""
    changed_pages = 0
    for r in range(pages.size):
        again[r] = 0
        if first_change(facts.words, facts.width, pages[r], before, cycle):
            until = first_change(facts.words, facts.width, pages[r], cycle, facts.cycles)
            again[r] = (until if until else facts.cycles + 1) - cycle
            changed_pages += 1
    return changed_pages


@inner
def _count_again(cycle, again, lanes, again_count):
    """Count changed pages in `again_count`, by the cycle of their next change; `lanes`: scratch."""
    lanes[:] = 0
    for r in range(again.size):
        lanes[again[r] * np.uint64(LANES) + np.uint64(r & (LANES - 1))] += 1
    for until in range(1, lanes.size // LANES):
        for lane in range(LANES):
            again_count[min(cycle + until, again_count.size - 1)] += lanes[LANES * until + lane]


@flat
def _weigh(cycle, facts, slots, work, counts):
    """Write to `counts` the weights of changed pages, and the cycles of their first missed changes."""
    weight = 0
    diverged = 0
    for q in range(work.sizes[RUNS]):
        before = np.int64(slots[LAST, work.runs[SLOT, q]])
        for r in range(work.runs[PLACE, q], work.runs[PLACE, q + 1]):
            if work.again[r]:
                page = work.picked[r]
                page_weight = facts.fixed[page] if facts.fixed.size else 1
                weight += page_weight
                diverged += page_weight * first_change(facts.words, facts.width, page, before, cycle)
                work.again_weight[min(cycle + work.again[r], facts.cycles + 1)] += page_weight
    counts[WEIGHT] = weight
    counts[DIVERGED] = diverged


@inner
def _penalise(page, before, cycle, facts, work):
    """Add to `Work.penalty_change` the penalties of changes that a page's copy missed in (before, cycle).

    The first visit after the warm-up also takes off the page's penalties from `cycle` on, because
    `PreparedHistory.untouched` has those of all cycles.
    """
    change = work.penalty_change
    untouched = before == facts.warmup
    importance = facts.weights[page] if facts.weights.size else 1.0
    missed = 0
    level = np.int64(0)
    at = before
    while True:
        at = first_change(facts.words, facts.width, page, at, facts.cycles if untouched else cycle - 1)
        if not at or at >= cycle:
            break
        missed += 1
        fine = np.int64(np.rint(facts.penalties[missed] * importance * facts.scale))
        if not untouched:
            change[at] += fine - level
        level = fine
    change[cycle] -= level
    while untouched and at:
        missed += 1
        fine = np.int64(np.rint(facts.penalties[missed] * importance * facts.scale))
        change[at] -= fine - level
        level = fine
        at = first_change(facts.words, facts.width, page, at, facts.cycles)


@outer
def penalise_rest(facts, slots, work):
    """Add to `Work.penalty_change` the penalties of changes missed after the visited pages' last visits."""
    for slot in range(work.sizes[TOP]):
        before = np.int64(slots[LAST, slot])
        if before != facts.warmup and slots[COUNT, slot]:
            if slots[LENGTH, slot] > slots[COUNT, slot]:
                clean(slot, slots, work.arena, work.group_of)
            start = slots[START, slot]
            for page in work.arena[start : start + slots[COUNT, slot]]:
                # The cycle after the end is never read: what is taken off there has no effect.
                _penalise(page, before, facts.cycles + 1, facts, work)
