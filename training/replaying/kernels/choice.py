"""Choice of the k pages of a cycle: groups in order of score, then pages within one class of ties.

Whole groups are taken while the budget lasts. `label_by_choice` finds score functions that choose alike.
`training.replaying.kernels` explains slots, runs, classes, keys, ``facts`` and ``work``.
"""

# Compiled code: numba infers the types, which mypy cannot follow.
# mypy: ignore-errors

import numpy as np

from training.replaying.kernels.bits import ONE, bits_of, copy, fill_keys, insert
from training.replaying.kernels.compiling import flat, inner, outer
from training.replaying.kernels.memory import (
    CLASSES,
    COUNT,
    LENGTH,
    LOW,
    MAX_BITS,
    NOWHERE,
    PLACE,
    RUNS,
    SLOT,
    STAMP,
    START,
    TAIL,
    TAKEN,
    TOP,
    TRACKED,
    TRACKING,
)


@inner
def foremost(scores, sizes, k, orders):
    """Slots with the highest scores that together hold `k` pages, best first, and all that tie with the last.

    `scores`, `sizes`: score and number of pages by slot; empty slots are left out. `k`: at least 1. `orders`:
    int64 ``[2, slots]``, overwritten; the result is a view of it.
    """
    heap = orders[0]
    order = orders[1]
    n = np.int64(0)
    for slot in range(scores.size):
        heap[n] = slot
        n += sizes[slot] > 0
    for root in range(n // 2, 0, -1):
        _sink(heap, n, root - 1, scores)
    chosen = 0
    pages_left = k
    while n and (pages_left > 0 or scores[heap[0]] == scores[order[chosen - 1]]):
        order[chosen] = heap[0]
        pages_left -= sizes[heap[0]]
        chosen += 1
        n -= 1
        heap[0] = heap[n]
        _sink(heap, n, np.int64(0), scores)
    return order[:chosen]


@inner
def _sink(heap, n, at, scores):
    """Move the slot at `at` of the heap `heap[:n]` down, below all slots of higher score."""
    slot = heap[at]
    while True:
        child = 2 * at + 1
        if child >= n:
            break
        other = child + 1
        if other < n and (
            scores[heap[other]] > scores[heap[child]]
            or (scores[heap[other]] == scores[heap[child]] and heap[other] < heap[child])
        ):
            child = other
        if scores[heap[child]] < scores[slot] or (scores[heap[child]] == scores[slot] and heap[child] > slot):
            break
        heap[at] = heap[child]
        at = child
    heap[at] = slot


@outer
def label_by_choice(scores, sizes, k, labels, chosen, lengths, orders):
    """Label score functions with numbers from 0 on: those with equal labels choose the same `k` pages.

    `scores[f, g]`: of function f for group g of `sizes[g]` pages. Equal labels mean the same classes of ties
    in the same order, up to the one with the k-th page. `labels`: int64 ``[functions]``, written. Scratch:
    `chosen` (int32, as `scores`), `lengths` (as `labels`, zeros), and `orders`, see `foremost`.
    """
    known = 0
    for f in range(len(scores)):
        of_function = scores[f]
        order = foremost(of_function, sizes, k, orders)
        row = chosen[known]
        m = order.size
        for at in range(m):
            ends = at + 1 == m or of_function[order[at]] != of_function[order[at + 1]]
            row[at] = -1 - order[at] if ends else order[at]
        label = 0
        while label < known:
            same = m if lengths[label] == m else 0
            other = chosen[label]
            at = 0
            while at < same and row[at] == other[at]:
                at += 1
            if at == m:
                break
            label += 1
        labels[f] = label
        lengths[label] = m
        known = max(known, label + 1)


@inner
def choose(cycle, order, scores, salt, drawn, facts, slots, work):
    """Choose the k pages of a cycle, and write them to `Work.picked` in runs, one for each slot.

    `order`: slots, result of `foremost` for `scores`. Within a class of ties the random order of the cycle,
    made of `salt`, decides, or that of page numbers. `drawn`: the first pages of that random order.
    """
    sizes = work.sizes
    runs = work.runs
    arena = work.arena
    group_of = work.group_of
    picked = work.picked
    if sizes[TAIL] + 3 * facts.k > arena.size:
        _compact(slots, work)
    q = 0
    classes = 0
    position = np.int64(0)
    i = 0
    while position < facts.k:
        j = i
        total = 0
        while j < order.size and scores[order[j]] == scores[order[i]]:
            slot = order[j]
            total += slots[COUNT, slot]
            j += 1
        need = facts.k - position
        known = False
        if total <= need:
            for c in range(i, j):
                slot = order[c]
                if slots[LENGTH, slot] > slots[COUNT, slot]:
                    clean(slot, slots, arena, group_of)
                start = slots[START, slot]
                count = slots[COUNT, slot]
                copy(arena, np.int64(start), picked, position, np.int64(count))
                if slots[TRACKED, slot]:
                    _forget(picked[position : position + count], group_of)
                runs[SLOT, q] = slot
                runs[PLACE, q] = position
                slots[COUNT, slot] = 0
                position += count
                q += 1
        else:
            # A walk meets a page of the class every pages / total steps.
            reach = float(total) * min(total, drawn.size if facts.by_draw else facts.pages)
            if need * float(facts.pages) < reach:
                known = _walk(cycle, order[i:j], need, drawn, facts, slots, work)
            if not known:
                _select(order[i:j], position, need, salt, facts, slots, work)
            for c in range(i, j):
                slot = order[c]
                taken = slots[TAKEN, slot]
                if taken:
                    runs[SLOT, q] = slot
                    runs[PLACE, q] = position
                    slots[COUNT, slot] -= taken
                    slots[TAKEN, slot] = position
                    position += taken
                    q += 1
            if known:
                _spread(need, slots, work)
        work.class_end[classes] = position
        work.class_known[classes] = known
        classes += 1
        i = j
    runs[PLACE, q] = position
    sizes[RUNS] = q
    sizes[CLASSES] = classes


@inner
def _select(members, position, need, salt, facts, slots, work):
    """Take the pages with the `need` smallest keys off the lists of the slots `members`.

    They are written to `Work.picked` from `position` on, and counted in `TAKEN` of their slots.
    """
    arena = work.arena
    picked = work.picked
    keys = work.keys
    m = 0
    for slot in members:
        if slots[LENGTH, slot] > slots[COUNT, slot]:
            clean(slot, slots, arena, work.group_of)
        start = slots[START, slot]
        count = slots[COUNT, slot]
        fill_keys(arena[start : start + count], salt, facts.by_draw, keys[m : m + count])
        m += count
    cut = _cut(keys[:m], need, 64 if facts.by_draw else bits_of(facts.pages), work.heads, work.sorted_keys)
    m = 0
    at = np.uint64(position)
    for slot in members:
        start = slots[START, slot]
        count = slots[COUNT, slot]
        pages = arena[start : start + count]
        slot_keys = keys[m : m + count]
        remaining = np.uint64(0)
        before = at
        for i in range(count):
            page = pages[i]
            picked[at] = page
            pages[remaining] = page
            is_taken = np.uint64(slot_keys[i] <= cut)
            at += is_taken
            remaining += ONE - is_taken
        m += count
        slots[LENGTH, slot] = remaining
        slots[TAKEN, slot] = at - before
        if slots[TRACKED, slot]:
            _forget(picked[before:at], work.group_of)


@inner
def _walk(cycle, members, need, drawn, facts, slots, work):
    """Find the first `need` pages that are in the slots `members`, by the order `drawn` or by page number.

    Writes them to `Work.gathered` and their slots to `Work.from_slot`. False if `drawn` ends before that.
    """
    group_of = work.group_of
    gathered = work.gathered
    from_slot = work.from_slot
    stamp = slots[STAMP]
    taken = slots[TAKEN]
    for slot in members:
        if not slots[TRACKED, slot]:
            _track(slot, slots, work)
        stamp[slot] = cycle
        taken[slot] = 0
    low = np.int64(0) if facts.by_draw else facts.pages
    if not facts.by_draw:
        for slot in members:
            low = min(low, slots[LOW, slot])
    at = np.uint64(low)
    end = np.uint64(drawn.size if facts.by_draw else facts.pages)
    n = 0
    while n < need and at < end:
        page = drawn[at] if facts.by_draw else np.uint32(at)
        at += ONE
        slot = group_of[page]
        gathered[n] = page
        from_slot[n] = slot
        is_member = stamp[slot] == cycle
        taken[slot] += is_member
        n += is_member
    if n < need:
        return False
    if not facts.by_draw:
        for slot in members:
            slots[LOW, slot] = at
    _forget(gathered[:need], group_of)
    return True


@flat
def _spread(n, slots, work):
    """Write the `n` pages that `_walk` found to `Work.picked`, at the places of their slots' runs."""
    picked = work.picked
    rank_of = work.rank_of
    gathered = work.gathered
    from_slot = work.from_slot
    next_position = slots[TAKEN]
    for i in range(n):
        slot = from_slot[i]
        at = np.uint32(next_position[slot])
        next_position[slot] = at + 1
        picked[at] = gathered[i]
        rank_of[at] = i


@flat
def _track(slot, slots, work):
    """Make a slot tracked: note in `Work.group_of` which pages it holds."""
    if not work.sizes[TRACKING]:
        work.sizes[TRACKING] = True
        work.group_of[:] = NOWHERE
    slots[TRACKED, slot] = True
    start = slots[START, slot]
    for page in work.arena[start : start + slots[COUNT, slot]]:
        work.group_of[page] = slot


@inner
def _forget(pages, group_of):
    """Clear `group_of` of `pages`, which leave a tracked slot."""
    for page in pages:
        group_of[page] = NOWHERE


@inner
def clean(slot, slots, arena, group_of):
    """Shorten the list of a tracked slot to the pages that are still in it, by `group_of`."""
    write = np.uint64(slots[START, slot])
    stop = write + np.uint64(slots[COUNT, slot])
    i = write
    while write < stop:
        page = arena[i]
        i += ONE
        arena[write] = page
        write += np.uint64(group_of[page] == slot)
    slots[LENGTH, slot] = slots[COUNT, slot]


@inner
def _compact(slots, work):
    """Move the lists of all slots together, so that the arena has room at its end."""
    arena = work.arena
    gathered = work.gathered
    at = np.int64(0)
    for slot in range(work.sizes[TOP]):
        count = slots[COUNT, slot]
        if count:
            if slots[LENGTH, slot] > count:
                clean(slot, slots, arena, work.group_of)
            start = slots[START, slot]
            copy(arena, np.int64(start), gathered, at, np.int64(count))
            slots[START, slot] = at
            at += count
    copy(gathered, np.int64(0), arena, np.int64(0), at)
    work.sizes[TAIL] = at


@flat
def _bucket(keys, width, heads):
    """Count keys of `width` bits by their highest bits, few to a bucket, into `heads`.

    Returns by how many bits a key is shifted to give its bucket.
    """
    bits = min(bits_of(keys.size) + 1, MAX_BITS, width)
    drop = np.uint64(width - bits)
    heads[: (1 << bits) + 1] = 0
    for i in range(keys.size):
        heads[(keys[i] >> drop) + ONE] += 1
    return drop


@inner
def _cut(keys, need, width, heads, bucket_keys):
    """Return the `need`-th smallest of `keys`, of `width` bits; `heads`, `bucket_keys`: scratch memory."""
    drop = _bucket(keys, width, heads)
    full = np.uint64(0)
    while heads[full + ONE] < need:
        need -= heads[full + ONE]
        full += ONE
    n = np.int64(0)
    for i in range(keys.size):
        if keys[i] >> drop == full:
            insert(bucket_keys, n, keys[i])
            n += 1
    return bucket_keys[need - 1]
