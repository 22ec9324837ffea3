"""Compiled inner loops of the grouped replay engine: choose pages, visit them, rank them, regroup them.

Everything here works on pages of *slots*. A slot holds one group: the pages in equal observed state. Its
pages are listed in ``arena[start : start + length]``; ``group_of[page]`` tells the slot that a page is in
now, so a page that left a group need not be taken out of its list at once: ``count`` is how many of the
listed pages are still there. Loops are split so that those that fetch from all over the memory are short:
the processor then waits for many pages at a time.
"""

# Compiled code: numba infers the types, which mypy cannot follow.
# mypy: ignore-errors

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit, types
from numba.extending import intrinsic

from scrapy_gp4c import score

_mix = njit(cache=True)(score._mix)
_GOLDEN = np.uint64(score._GOLDEN)
_TOP = np.uint64(1 << 63)
_ONE = np.uint64(1)
MAX_BITS = 16
"""Binary logarithm of the most buckets that draws are spread over."""

Array = npt.NDArray[np.generic]


class Facts(NamedTuple):
    """What stays the same in a replay; see `truth.Truth`."""

    words: Array
    gain_sums: Array
    fixed: Array
    weights: Array
    penalties: Array
    scale: float
    cycles: int
    warmup: int
    k: int
    by_draw: bool
    ranked: bool
    penalised: bool


class Slots(NamedTuple):
    """Groups by slot, int32 each."""

    last: Array
    """cycle of the last visit"""
    start: Array
    length: Array
    count: Array
    stamp: Array
    """the last cycle in which the slot was in a class that was too large"""
    visited_index: Array
    """1 + place among the slots visited in this cycle, 0: not visited"""
    free: Array
    """a stack of empty slots"""


class Work(NamedTuple):
    """Pages by group, and scratch memory."""

    group_of: Array
    arena: Array
    sizes: Array
    """slots ever used, free slots on the stack, entries of the arena in use, classes of this cycle"""
    picked: Array
    class_end: Array
    class_sorted: Array
    slot_of: Array
    diverged: Array
    again: Array
    found: Array
    move_of: Array
    moves: Array
    visited_slots: Array
    target: Array
    new_moves: Array
    new_slots: Array
    table: Array
    gathered: Array
    keys: Array
    buckets: Array
    heads: Array
    bitmap: Array
    by_page: Array
    again_count: Array
    again_weight: Array
    penalty_change: Array


TOP, FREES, TAIL, CLASSES = range(4)
CHANGED, DCG, NEW, IDLE, WEIGHT, DIVERGED, COUNTS = range(7)


@intrinsic
def _trailing_zeros(typingctx, word):
    def codegen(context, builder, signature, args):
        return builder.cttz(args[0], context.get_constant(types.boolean, True))

    return types.uint64(types.uint64), codegen


@njit(cache=True)
def _first_change(words, page, after, upto):
    """First cycle in (after, upto] in which the page changed, or 0 (bit c - 1 belongs to cycle c)."""
    if upto <= after:
        return 0
    j = after >> 6
    last = (upto - 1) >> 6
    word = words[page, j] & (~np.uint64(0) << np.uint64(after & 63))
    while True:
        if j == last:
            word &= ~np.uint64(0) >> np.uint64(63 - ((upto - 1) & 63))
        if word:
            return (j << 6) + np.int64(_trailing_zeros(word)) + 1
        if j == last:
            return 0
        j += 1
        word = words[page, j]


@njit(cache=True)
def _spread(pages, at, m, salt, keys, heads):
    """Draw for `pages[at : at + m]` and count the draws by their highest bits; returns the bits to drop.

    Draws are uniform: about as many buckets as pages leave one or two in each.
    """
    bits = 1
    while (1 << bits) < m and bits < MAX_BITS:
        bits += 1
    drop = np.uint64(64 - bits)
    heads[: (1 << bits) + 1] = 0
    for i in range(m):
        keys[i] = _mix(_mix(np.uint64(pages[at + i]) + _GOLDEN) ^ salt)
    for i in range(m):
        heads[(keys[i] >> drop) + _ONE] += 1
    return drop


@njit(cache=True)
def _take_drawn(pages, m, need, salt, keys, buckets, heads, out, at):
    """Write the `need` of `pages[:m]` with the smallest draws to `out[at:]`, in any order."""
    drop = _spread(pages, 0, m, salt, keys, heads)
    full = np.uint64(0)
    while heads[full + _ONE] <= need:
        need -= heads[full + _ONE]
        full += _ONE
    rest = 0
    for i in range(m):
        bucket = keys[i] >> drop
        if bucket < full:
            out[at] = pages[i]
            at += 1
        elif bucket == full:
            # The bucket that holds the cut is small: sort it by insertion, pages along.
            page = pages[i]
            j = rest
            while j > 0 and buckets[j - 1] > keys[i]:
                buckets[j] = buckets[j - 1]
                pages[j] = pages[j - 1]
                j -= 1
            buckets[j] = keys[i]
            pages[j] = page
            rest += 1
    out[at : at + need] = pages[:need]


@njit(cache=True)
def _sort_pages(pages, begin, end, bitmap, out, at, need):
    """Write the `need` smallest of `pages[begin:end]` to `out[at:]`, ascending; `bitmap` stays zero."""
    low = bitmap.size
    high = 0
    for i in range(begin, end):
        j = pages[i] >> 6
        bitmap[j] |= _ONE << np.uint64(pages[i] & 63)
        low = min(low, j)
        high = max(high, j)
    stop = at + need
    for j in range(low, high + 1):
        word = bitmap[j]
        bitmap[j] = 0
        while word and at < stop:
            out[at] = (j << 6) + np.int64(_trailing_zeros(word))
            at += 1
            word &= word - _ONE


@njit(cache=True)
def _list(members, slots, work, out, at):
    """Append the pages of the slots `members` to `out[at:]`; returns the end.

    Lists are rid of pages that left.
    """
    for slot in members:
        first = slots.start[slot]
        count = slots.count[slot]
        if slots.length[slot] == count:
            for i in range(first, first + count):
                out[at] = work.arena[i]
                at += 1
            continue
        end = at + count
        kept = first
        i = first
        while at < end:
            page = work.arena[i]
            i += 1
            if work.group_of[page] == slot:
                out[at] = page
                at += 1
                work.arena[kept] = page
                kept += 1
        slots.length[slot] = count
    return at


@njit(cache=True)
def choose(cycle, order, scores, salt, drawn, facts, slots, work):
    """Choose the pages of a cycle: `picked[:k]`, class by class.

    `order`: live slots by score descending; slots of equal score are one class of ties, within which
    draws (or page numbers) decide. `drawn`: pages in drawn order, as far as known. Lowers `count` by the
    pages picked, and notes where classes end and whether their pages are in order.
    """
    pages = work.group_of.size
    picked = work.picked
    at = 0
    i = 0
    classes = 0
    while at < facts.k:
        j = i
        total = 0
        listed = 0
        while j < order.size and scores[order[j]] == scores[order[i]]:
            total += slots.count[order[j]]
            listed += slots.length[order[j]]
            j += 1
        in_order = not facts.by_draw and j == i + 1
        end = at
        need = facts.k - at
        if total <= need:
            end = _list(order[i:j], slots, work, picked, end)
            for c in range(i, j):
                slots.count[order[c]] = 0
        else:
            reach = min(float(listed), float(drawn.size if facts.by_draw else pages)) * total
            if not in_order and need * float(pages) < reach:
                # The class is so large that enough of it is soon met in drawn (or page) order.
                in_order = _walk(cycle, order[i:j], at, at + need, drawn, facts, slots, work)
                end = at + need if in_order else at
            if end == at:
                m = _list(order[i:j], slots, work, work.gathered, 0)
                if facts.by_draw:
                    _take_drawn(work.gathered, m, need, salt, work.keys, work.buckets, work.heads, picked, at)
                elif in_order:
                    picked[at : at + need] = work.gathered[:need]
                else:
                    _sort_pages(work.gathered, 0, m, work.bitmap, picked, at, need)
                    in_order = True
                end = at + need
            for r in range(at, end):
                slots.count[work.group_of[picked[r]]] -= 1
        work.class_end[classes] = end
        work.class_sorted[classes] = in_order or end == at + 1
        classes += 1
        at = end
        i = j
    work.sizes[CLASSES] = classes


@njit(cache=True)
def _walk(cycle, members, at, stop, drawn, facts, slots, work):
    """Pick pages of the slots `members` in drawn (or page) order; False if `drawn` is too short."""
    begin = work.group_of.size
    for slot in members:
        slots.stamp[slot] = cycle
        if not facts.by_draw:
            while work.group_of[work.arena[slots.start[slot]]] != slot:
                slots.start[slot] += 1
                slots.length[slot] -= 1
            begin = min(begin, work.arena[slots.start[slot]])
    if facts.by_draw:
        for page in drawn:
            work.picked[at] = page
            at += slots.stamp[work.group_of[page]] == cycle
            if at == stop:
                return True
        return False
    for page in range(begin, work.group_of.size):
        work.picked[at] = page
        at += slots.stamp[work.group_of[page]] == cycle
        if at == stop:
            return True
    return False


@njit(cache=True)
def visit(cycle, salt, facts, slots, work, counts):
    """Judge the visits to `picked` and count them; returns the number of slots that were visited.

    `moves[2 * v + o]`: pages of visited slot v whose visit had outcome o; `move_of[r]`: that index for
    the page at place r; `again_*`: by cycle, how much goes stale anew, in place of what was before.
    """
    k = facts.k
    for r in range(k):
        work.slot_of[r] = work.group_of[work.picked[r]]
    if facts.words.shape[1] == 1:
        for r in range(k):
            work.keys[r] = facts.words[work.picked[r], 0]
        # Without branches: whether a page changed is what the processor cannot predict.
        for r in range(k):
            word = work.keys[r]
            before = slots.last[work.slot_of[r]]
            seen = (word >> np.uint64(before)) << np.uint64(64 - cycle + before)
            ahead = (word >> np.uint64(cycle - 1)) >> _ONE
            work.found[r] = seen != 0
            work.diverged[r] = cycle - 63 + np.int64(_trailing_zeros(seen | _TOP))
            work.again[r] = min(cycle + 1 + np.int64(_trailing_zeros(ahead | _TOP)), facts.cycles + 1)
    else:
        for r in range(k):
            page = work.picked[r]
            diverged = _first_change(facts.words, page, slots.last[work.slot_of[r]], cycle)
            again = _first_change(facts.words, page, cycle, facts.cycles) if diverged else 0
            work.found[r] = diverged > 0
            work.diverged[r] = diverged
            work.again[r] = again if again else facts.cycles + 1
    changed = 0
    sum_diverged = 0
    for r in range(k):
        found = np.int64(work.found[r])
        changed += found
        sum_diverged += found * work.diverged[r]
    visited = 0
    new = 0
    idle = 0
    for r in range(k):
        slot = work.slot_of[r]
        v = slots.visited_index[slot] - 1
        if v < 0:
            v = visited
            visited += 1
            slots.visited_index[slot] = visited
            work.visited_slots[v] = slot
            work.moves[2 * v] = 0
            work.moves[2 * v + 1] = 0
        found = np.int64(work.found[r])
        move = 2 * v + found
        work.moves[move] += 1
        work.move_of[r] = move
        work.again_count[work.again[r]] += found
    for v in range(visited):
        slot = work.visited_slots[v]
        slots.visited_index[slot] = 0
        pages = work.moves[2 * v] + work.moves[2 * v + 1]
        if slots.last[slot] == facts.warmup:
            new += pages
        if slots.last[slot] != cycle - 1:
            idle += pages
    counts[CHANGED] = changed
    counts[NEW] = new
    counts[IDLE] = idle
    counts[WEIGHT] = changed
    counts[DIVERGED] = sum_diverged
    if facts.fixed.size:
        _weigh(facts, work, counts)
    if facts.ranked:
        counts[DCG] = _rank(salt, facts, work)
    if facts.penalised:
        for r in range(k):
            _penalise(work.picked[r], slots.last[work.slot_of[r]], cycle, facts, work)
    return visited


@njit(cache=True)
def _weigh(facts, work, counts):
    counts[WEIGHT] = 0
    counts[DIVERGED] = 0
    for r in range(facts.k):
        weight = facts.fixed[work.picked[r]] * work.found[r]
        counts[WEIGHT] += weight
        counts[DIVERGED] += weight * work.diverged[r]
        work.again_weight[work.again[r]] += weight


@njit(cache=True)
def _rank(salt, facts, work):
    """DCG of the cycle: the summed gains of the ranks at which a change was found."""
    sums = facts.gain_sums
    dcg = np.int64(0)
    begin = 0
    for c in range(work.sizes[CLASSES]):
        end = work.class_end[c]
        m = end - begin
        changed = 0
        for r in range(begin, end):
            changed += work.found[r]
        if changed == m:
            dcg += sums[end] - sums[begin]
        elif changed and work.class_sorted[c]:
            for r in range(begin, end):
                if work.found[r]:
                    dcg += sums[r + 1] - sums[r]
        elif changed and facts.by_draw:
            dcg += _rank_drawn(begin, m, salt, facts, work)
        elif changed:
            for r in range(begin, end):
                work.by_page[work.picked[r]] = work.found[r]
            _sort_pages(work.picked, begin, end, work.bitmap, work.gathered, 0, m)
            for i in range(m):
                if work.by_page[work.gathered[i]]:
                    dcg += sums[begin + i + 1] - sums[begin + i]
        begin = end
    return dcg


@njit(cache=True)
def _rank_drawn(begin, m, salt, facts, work):
    """Gains of the changed pages of one class: a page's rank is how many pages drew a smaller number."""
    keys = work.keys
    heads = work.heads
    sums = facts.gain_sums
    drop = _spread(work.picked, begin, m, salt, keys, heads)
    for b in range(1, (_ONE << (np.uint64(64) - drop)) + _ONE):
        heads[b] += heads[b - 1]
    changed = 0
    for i in range(m):
        bucket = keys[i] >> drop
        work.buckets[heads[bucket]] = keys[i]
        heads[bucket] += 1
        work.gathered[changed] = i
        changed += work.found[begin + i]
    dcg = np.int64(0)
    for c in range(changed):
        key = keys[work.gathered[c]]
        bucket = key >> drop
        first = np.int64(heads[bucket - _ONE]) if bucket else 0
        last = np.int64(heads[bucket])
        rank = begin + first
        # Most buckets have at most three pages: no branches for these.
        rank += work.buckets[first] < key
        rank += (first + 1 < last) & (work.buckets[first + 1] < key)
        rank += (first + 2 < last) & (work.buckets[first + 2] < key)
        for at in range(first + 3, last):
            rank += work.buckets[at] < key
        dcg += sums[rank + 1] - sums[rank]
    return dcg


@njit(cache=True)
def _penalise(page, before, cycle, facts, work):
    """Account for the changes that a page missed in (before, cycle), now that the interval is over.

    Until its first visit after the warm-up a page is accounted for in `Truth.untouched`, to the end:
    then the rest is taken back instead.
    """
    change = work.penalty_change
    untouched = before == facts.warmup
    importance = facts.weights[page] if facts.weights.size else 1.0
    missed = 0
    level = np.int64(0)
    at = before
    while True:
        at = _first_change(facts.words, page, at, facts.cycles if untouched else cycle - 1)
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
        at = _first_change(facts.words, page, at, facts.cycles)


@njit(cache=True)
def replay_states(
    salts, drawn, drawn_start, scores, score_at, aged, after, state_of, facts, slots, work, counts
):
    """Replay all cycles with the scores of every state known beforehand.

    `after[s, o]`: the state that a visit with outcome o leads to from state s; `scores[score_at[s] + t - 1]`
    its score t cycles after the last visit (not `aged`: `scores[score_at[s]]` whatever t is). `state_of`:
    state by slot. There must be slots for every state and cycle, or for every page.
    """
    order = np.empty(slots.count.size, np.int64)
    by_slot = np.empty(slots.count.size)
    live_scores = np.empty(slots.count.size)
    keys = np.empty((work.moves.size, 1), np.int64)
    used = np.empty(work.moves.size, np.int64)
    for i in range(salts.size):
        cycle = facts.warmup + 1 + i
        live = 0
        for slot in range(work.sizes[TOP]):
            if slots.count[slot]:
                at = score_at[state_of[slot]]
                if aged:
                    at += cycle - slots.last[slot] - 1
                by_slot[slot] = scores[at]
                live_scores[live] = -scores[at]
                order[live] = slot
                live += 1
        ranks = np.argsort(live_scores[:live])
        choose(
            cycle, order[:live][ranks], by_slot, salts[i], drawn[drawn_start[i] : drawn_start[i + 1]],
            facts, slots, work,
        )  # fmt: skip
        visited = visit(cycle, salts[i], facts, slots, work, counts[i])
        moved = 0
        for move in range(2 * visited):
            if work.moves[move]:
                used[moved] = move
                keys[moved, 0] = after[state_of[work.visited_slots[move >> 1]], move & 1]
                moved += 1
        groups = settle(cycle, visited, used[:moved], keys, facts, slots, work)
        for g in range(groups):
            state_of[work.new_slots[g]] = keys[work.new_moves[g], 0]


@njit(cache=True)
def penalise_rest(facts, slots, work):
    """Account for what the pages visited after the warm-up missed from their last visit to the end."""
    for page in range(work.group_of.size):
        before = slots.last[work.group_of[page]]
        if before != facts.warmup:
            # The cycle after the end is never read: what is taken off there has no effect.
            _penalise(page, before, facts.cycles + 1, facts, work)


@njit(cache=True)
def settle(cycle, visited, used, keys, facts, slots, work):
    """Put the visited pages into new groups, merging moves that end in equal state.

    `used`: the moves that pages made; `keys[u]`: the state after move `used[u]`, as int64 bits. Returns the
    number of new groups: group g lives in slot `new_slots[g]`, in the state `keys[new_moves[g]]`. There must
    be room for as many slots as moves.
    """
    sizes = work.sizes
    for v in range(visited):
        if slots.count[work.visited_slots[v]] == 0:
            slots.free[sizes[FREES]] = work.visited_slots[v]
            sizes[FREES] += 1
    size = 4
    while size < 4 * visited:
        size *= 2
    table = work.table
    table[:size] = -1
    groups = 0
    for u in range(used.size):
        move = used[u]
        h = np.uint64(0)
        for c in range(keys.shape[1]):
            h = _mix(h ^ (np.uint64(keys[u, c]) + _GOLDEN))
        at = np.int64(h & np.uint64(size - 1))
        group = -1
        while table[at] >= 0 and group < 0:
            group = table[at]
            for c in range(keys.shape[1]):
                if keys[work.new_moves[group], c] != keys[u, c]:
                    group = -1
                    break
            at = (at + 1) & (size - 1)
        if group < 0:
            group = groups
            table[at] = group
            work.new_moves[group] = u
            if sizes[FREES]:
                sizes[FREES] -= 1
                slot = slots.free[sizes[FREES]]
            else:
                slot = sizes[TOP]
                sizes[TOP] += 1
            work.new_slots[group] = slot
            slots.count[slot] = 0
            slots.last[slot] = cycle
            groups += 1
        slot = work.new_slots[group]
        work.target[move] = slot
        slots.count[slot] += work.moves[move]
    if not facts.by_draw:  # lists stay in page order
        for r in range(facts.k):
            work.by_page[work.picked[r]] = work.move_of[r]
        _sort_pages(work.picked, 0, facts.k, work.bitmap, work.picked, 0, facts.k)
        for r in range(facts.k):
            work.move_of[r] = work.by_page[work.picked[r]]
    for r in range(facts.k):
        work.slot_of[r] = work.target[work.move_of[r]]
    for r in range(facts.k):
        work.group_of[work.picked[r]] = work.slot_of[r]
    if sizes[TAIL] + facts.k > work.arena.size:
        _compact(slots, work, groups)
    tail = sizes[TAIL]
    for g in range(groups):
        slot = work.new_slots[g]
        slots.start[slot] = tail
        slots.length[slot] = 0
        tail += slots.count[slot]
    sizes[TAIL] = tail
    for r in range(facts.k):
        slot = work.slot_of[r]
        place = slots.length[slot]
        work.arena[slots.start[slot] + place] = work.picked[r]
        slots.length[slot] = place + 1
    return groups


@njit(cache=True)
def _compact(slots, work, groups):
    """Rid the arena of entries that are no longer used; the newest `groups` have no list yet."""
    for g in range(groups):
        slots.length[work.new_slots[g]] = -1
    members = np.empty(1, np.int64)
    at = 0
    for slot in range(work.sizes[TOP]):
        if slots.count[slot] and slots.length[slot] >= 0:
            members[0] = slot
            begin = at
            at = _list(members, slots, work, work.gathered, at)
            slots.start[slot] = begin
    work.arena[:at] = work.gathered[:at]
    work.sizes[TAIL] = at
