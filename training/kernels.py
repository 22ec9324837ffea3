"""Compiled inner loops of the grouped replay engine: choose pages, visit them, rank them, regroup them.

Everything here works on pages of *slots*. A slot holds one group: the pages in equal observed state,
listed in ``arena[start : start + length]``. A cycle takes *runs* of pages off the lists of the best slots to
``picked``, judges them, and lists them anew, by state, at the arena's end: nearly all memory is read and
written in order. Only a class of ties far larger than its share of the budget is picked from page
by page (`_walk`). Its slots are *tracked* from then on: ``group_of[page]`` tells which pages they hold, and
so which of the listed ones are still there. Pages of other slots are nowhere.

Loops are short, so that the compiler makes vector instructions of them, and without branches where
the processor could not predict them. Page numbers are unsigned: numba looks for negative indices else.

All in one module, because numba's cache of compiled code knows of changes in its own file alone.
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
"""Binary logarithm of the most buckets that keys are spread over."""
SPARSE = 6
"""Binary logarithm of the least bits of a field per key."""
MAX_FIELD = 22
"""Binary logarithm of the most bits of a field; its 64-bit words are counted in `Work.heads`, so at most
MAX_BITS + 6."""
LANES = 4
"""Histograms kept side by side, so that equal neighbours do not wait for each other."""

Array = npt.NDArray[np.generic]


class Facts(NamedTuple):
    """What stays the same in a replay; see `truth.Truth`."""

    words: Array
    """``[P * width]``: `Truth.words`, page after page"""
    width: int
    gains: Array
    gain_sums: Array
    fixed: Array
    weights: Array
    penalties: Array
    scale: float
    pages: int
    cycles: int
    warmup: int
    k: int
    by_draw: bool
    ranked: bool
    aged: bool
    penalised: bool


class Work(NamedTuple):
    """Pages by group, the runs of a cycle, and scratch memory."""

    group_of: Array
    """slot by page, of tracked slots; else `NOWHERE`"""
    arena: Array
    sizes: Array
    """see `TOP`"""
    picked: Array
    """the pages of the cycle, run by run"""
    runs: Array
    """int32 ``[2, k + 1]``, see `SLOT`"""
    class_end: Array
    """place after the last page of each class of ties"""
    class_known: Array
    """whether `rank_of` holds the order of the class"""
    rank_of: Array
    """by place: rank within the class"""
    again: Array
    """by place: cycles until the page changes again if the visit found a change, else 0"""
    moves: Array
    """``moves[2 * q + o]``: pages of run q whose visit had outcome o"""
    target: Array
    new_slots: Array
    table: Array
    gathered: Array
    from_slot: Array
    keys: Array
    sorted_keys: Array
    heads: Array
    field: Array
    lanes: Array
    again_count: Array
    again_weight: Array
    penalty_change: Array


NOWHERE = 0
"""The slot that is never used."""
TOP, FREES, TAIL, RUNS, CLASSES, TRACKING, SIZES = range(7)
"""Slots ever used, free slots on the stack, entries of the arena in use, runs and classes of this cycle,
whether any slot was ever tracked."""
LAST, START, LENGTH, COUNT, LOW, TRACKED, STAMP, TAKEN, FREE, FIELDS = range(10)
"""Rows of the table of slots, int32 ``[FIELDS, slots]``: cycle of the last visit; where the list begins; its
length; the listed pages that are still there (fewer, if some were picked page by page); a number that no
page is below; whether it is tracked; the last cycle in which the class was picked from page by page; how many pages were taken in
the choice just made; a stack of empty slots."""
SLOT, PLACE = range(2)
"""Rows of the runs: slot; place of the first page in `Work.picked` (one more entry ends the last run)."""
CHANGED, DCG, NEW, IDLE, WEIGHT, DIVERGED, COUNTS = range(7)


@intrinsic
def _trailing_zeros(typingctx, word):
    def codegen(context, builder, signature, args):
        return builder.cttz(args[0], context.get_constant(types.boolean, True))

    return types.uint64(types.uint64), codegen


@intrinsic
def _ones(typingctx, word):
    def codegen(context, builder, signature, args):
        return builder.ctpop(args[0])

    return types.uint64(types.uint64), codegen


@njit(cache=True)
def _first_change(words, width, page, after, upto):
    """First cycle in (after, upto] in which the page changed, or 0 (bit c - 1 belongs to cycle c)."""
    if upto <= after:
        return 0
    own = np.int64(page) * width
    j = after >> 6
    last = (upto - 1) >> 6
    word = words[own + j] & (~np.uint64(0) << np.uint64(after & 63))
    while True:
        if j == last:
            word &= ~np.uint64(0) >> np.uint64(63 - ((upto - 1) & 63))
        if word:
            return (j << 6) + np.int64(_trailing_zeros(word)) + 1
        if j == last:
            return 0
        j += 1
        word = words[own + j]


@njit(cache=True)
def _key(pages, salt, by_draw, keys):
    """Write to `keys` what orders `pages` among ties: distinct numbers."""
    if by_draw:
        for i in range(pages.size):
            keys[i] = _mix(_mix(np.uint64(pages[i]) + _GOLDEN) ^ salt)
    else:
        for i in range(pages.size):
            keys[i] = np.uint64(pages[i])


@njit(cache=True)
def _bits(number):
    bits = 1
    while number >> bits:
        bits += 1
    return bits


@njit(cache=True)
def _bucket(keys, width, heads):
    """Count keys of `width` bits by their highest, few keys to a bucket; returns the bits to drop."""
    bits = min(_bits(keys.size) + 1, MAX_BITS, width)
    drop = np.uint64(width - bits)
    heads[: (1 << bits) + 1] = 0
    for i in range(keys.size):
        heads[(keys[i] >> drop) + _ONE] += 1
    return drop


@njit(cache=True)
def _insert(keys, n, key):
    """Insert into `keys[:n]`, which are ascending."""
    while n > 0 and keys[n - 1] > key:
        keys[n] = keys[n - 1]
        n -= 1
    keys[n] = key


@njit(cache=True)
def _cut(keys, need, width, heads, found):
    """The `need`-th smallest key; `found` is scratch memory."""
    drop = _bucket(keys, width, heads)
    full = np.uint64(0)
    while heads[full + _ONE] < need:
        need -= heads[full + _ONE]
        full += _ONE
    n = 0
    for i in range(keys.size):
        if keys[i] >> drop == full:
            _insert(found, n, keys[i])
            n += 1
    return found[need - 1]


@njit(cache=True)
def _clean(slot, slots, arena, group_of):
    """Rid the list of a slot of pages that left."""
    kept = np.uint64(slots[START, slot])
    stop = kept + np.uint64(slots[COUNT, slot])
    i = kept
    while kept < stop:
        page = arena[i]
        i += _ONE
        arena[kept] = page
        kept += np.uint64(group_of[page] == slot)
    slots[LENGTH, slot] = slots[COUNT, slot]


@njit(cache=True)
def _track(slot, slots, work):
    """Keep `Work.group_of` for a slot from now on."""
    if not work.sizes[TRACKING]:
        work.sizes[TRACKING] = True
        work.group_of[:] = NOWHERE
    slots[TRACKED, slot] = True
    start = slots[START, slot]
    for page in work.arena[start : start + slots[COUNT, slot]]:
        work.group_of[page] = slot


@njit(cache=True)
def _forget(pages, group_of):
    """Pages that leave a tracked slot are nowhere."""
    for page in pages:
        group_of[page] = NOWHERE


@njit(cache=True)
def choose(cycle, order, scores, salt, drawn, facts, slots, work):
    """Choose the k pages of a cycle: runs, class by class.

    `order`: live slots by score descending; slots of equal score are one class of ties, within which
    draws (or page numbers) decide. `drawn`: pages in drawn order, as far as known.
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
    place = 0
    i = 0
    while place < facts.k:
        j = i
        total = 0
        while j < order.size and scores[order[j]] == scores[order[i]]:
            slot = order[j]
            total += slots[COUNT, slot]
            j += 1
        need = facts.k - place
        known = False
        if total <= need:
            for c in range(i, j):
                slot = order[c]
                if slots[LENGTH, slot] > slots[COUNT, slot]:
                    _clean(slot, slots, arena, group_of)
                start = slots[START, slot]
                count = slots[COUNT, slot]
                picked[place : place + count] = arena[start : start + count]
                if slots[TRACKED, slot]:
                    _forget(picked[place : place + count], group_of)
                runs[SLOT, q] = slot
                runs[PLACE, q] = place
                slots[COUNT, slot] = 0
                place += count
                q += 1
        else:
            # A walk meets a page of the class every pages / total steps.
            reach = float(total) * min(total, drawn.size if facts.by_draw else facts.pages)
            if need * float(facts.pages) < reach:
                known = _walk(cycle, order[i:j], need, drawn, facts, slots, work)
            if not known:
                _select(order[i:j], place, need, salt, facts, slots, work)
            for c in range(i, j):
                slot = order[c]
                taken = slots[TAKEN, slot]
                if taken:
                    runs[SLOT, q] = slot
                    runs[PLACE, q] = place
                    slots[COUNT, slot] -= taken
                    slots[TAKEN, slot] = place
                    place += taken
                    q += 1
            if known:
                _spread(need, slots, work)
        work.class_end[classes] = place
        work.class_known[classes] = known
        classes += 1
        i = j
    runs[PLACE, q] = place
    sizes[RUNS] = q
    sizes[CLASSES] = classes


@njit(cache=True)
def _select(members, place, need, salt, facts, slots, work):
    """Pick the pages with the `need` smallest keys from the lists of the slots `members`."""
    arena = work.arena
    picked = work.picked
    keys = work.keys
    m = 0
    for slot in members:
        if slots[LENGTH, slot] > slots[COUNT, slot]:
            _clean(slot, slots, arena, work.group_of)
        start = slots[START, slot]
        count = slots[COUNT, slot]
        _key(arena[start : start + count], salt, facts.by_draw, keys[m : m + count])
        m += count
    cut = _cut(keys[:m], need, 64 if facts.by_draw else _bits(facts.pages), work.heads, work.sorted_keys)
    m = 0
    at = np.uint64(place)
    for slot in members:
        start = slots[START, slot]
        count = slots[COUNT, slot]
        own = arena[start : start + count]
        own_keys = keys[m : m + count]
        left = np.uint64(0)
        before = at
        for i in range(count):
            page = own[i]
            picked[at] = page
            own[left] = page
            is_taken = np.uint64(own_keys[i] <= cut)
            at += is_taken
            left += _ONE - is_taken
        m += count
        slots[LENGTH, slot] = left
        slots[TAKEN, slot] = at - before
        if slots[TRACKED, slot]:
            _forget(picked[before:at], work.group_of)


@njit(cache=True)
def _walk(cycle, members, need, drawn, facts, slots, work):
    """Gather pages of the slots `members` in drawn (or page) order; False if `drawn` is too short."""
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
    n = 0
    if facts.by_draw:
        for page in drawn:
            slot = group_of[page]
            gathered[n] = page
            from_slot[n] = slot
            is_member = stamp[slot] == cycle
            taken[slot] += is_member
            n += is_member
            if n == need:
                break
        if n < need:
            return False
    else:
        low = facts.pages
        for slot in members:
            low = min(low, slots[LOW, slot])
        page = np.uint64(low)
        while n < need:
            slot = group_of[page]
            gathered[n] = page
            from_slot[n] = slot
            is_member = stamp[slot] == cycle
            taken[slot] += is_member
            n += is_member
            page += _ONE
        for slot in members:
            slots[LOW, slot] = page
    _forget(gathered[:need], group_of)
    return True


@njit(cache=True)
def _spread(n, slots, work):
    """Put the pages gathered by a walk into the runs of their slots, which begin at `TAKEN`."""
    picked = work.picked
    rank_of = work.rank_of
    gathered = work.gathered
    from_slot = work.from_slot
    place = slots[TAKEN]
    for i in range(n):
        slot = from_slot[i]
        at = np.uint32(place[slot])
        place[slot] = at + 1
        picked[at] = gathered[i]
        rank_of[at] = i


@njit(cache=True)
def visit(cycle, salt, facts, slots, work, counts):
    """Judge the visits to the chosen pages and count them."""
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
        before = slots[LAST, runs[SLOT, q]]
        place = runs[PLACE, q]
        stop = runs[PLACE, q + 1]
        if facts.width == 1:
            found = _judge(cycle, before, held[place:stop], again[place:stop])
        else:
            found = _judge_long(cycle, before, work.picked[place:stop], facts, again[place:stop])
        moves[2 * q] = stop - place - found
        moves[2 * q + 1] = found
        changed += found
        if before == facts.warmup:
            new += stop - place
        if before != cycle - 1:
            idle += stop - place
    _count_again(cycle, again[:k], work.lanes, work.again_count)
    counts[CHANGED] = changed
    counts[NEW] = new
    counts[IDLE] = idle
    counts[WEIGHT] = changed
    if facts.aged or facts.fixed.size:
        _weigh(cycle, facts, slots, work, counts)
    if facts.ranked:
        counts[DCG] = _rank(salt, facts, work)
    if facts.penalised:
        for q in range(work.sizes[RUNS]):
            before = slots[LAST, runs[SLOT, q]]
            for r in range(runs[PLACE, q], runs[PLACE, q + 1]):
                _penalise(work.picked[r], before, cycle, facts, work)


@njit(cache=True)
def _judge(cycle, before, held, again):
    """Judge pages by their words `held`: fill `again`, return how many changed in (before, cycle]."""
    low = np.uint64(before)
    high = np.uint64(64 - cycle + before)
    seen = np.uint64(cycle - 1)
    found = 0
    for r in range(held.size):
        word = held[r]
        changed = ((word >> low) << high) != np.uint64(0)
        until = _trailing_zeros(((word >> seen) >> _ONE) | _TOP) + _ONE
        again[r] = until if changed else np.uint64(0)
        found += changed
    return found


@njit(cache=True)
def _judge_long(cycle, before, pages, facts, again):
    """`_judge` for histories of more than 64 cycles."""
    found = 0
    for r in range(pages.size):
        again[r] = 0
        if _first_change(facts.words, facts.width, pages[r], before, cycle):
            until = _first_change(facts.words, facts.width, pages[r], cycle, facts.cycles)
            again[r] = (until if until else facts.cycles + 1) - cycle
            found += 1
    return found


@njit(cache=True)
def _count_again(cycle, again, lanes, again_count):
    """Count the pages by the cycle in which they change again; those who do not count after the last."""
    lanes[:] = 0
    for r in range(again.size):
        lanes[again[r] * np.uint64(LANES) + np.uint64(r & (LANES - 1))] += 1
    for until in range(1, lanes.size // LANES):
        for lane in range(LANES):
            again_count[min(cycle + until, again_count.size - 1)] += lanes[LANES * until + lane]


@njit(cache=True)
def _weigh(cycle, facts, slots, work, counts):
    """Sum up weights, and when the changes found had happened."""
    weight = 0
    diverged = 0
    for q in range(work.sizes[RUNS]):
        before = slots[LAST, work.runs[SLOT, q]]
        for r in range(work.runs[PLACE, q], work.runs[PLACE, q + 1]):
            if work.again[r]:
                page = work.picked[r]
                own = facts.fixed[page] if facts.fixed.size else 1
                weight += own
                diverged += own * _first_change(facts.words, facts.width, page, before, cycle)
                work.again_weight[min(cycle + work.again[r], facts.cycles + 1)] += own
    counts[WEIGHT] = weight
    counts[DIVERGED] = diverged


@njit(cache=True)
def _rank(salt, facts, work):
    """DCG of the cycle: the summed gains of the ranks at which a change was found."""
    sums = facts.gain_sums
    again = work.again
    width = 64 if facts.by_draw else _bits(facts.pages) + 1
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
            _mark(work.picked[begin:end], again[begin:end], salt, facts.by_draw, keys)
            dcg += _gain(keys, width, facts.gains[begin:end], work)
        begin = end
    return dcg


@njit(cache=True)
def _mark(pages, again, salt, by_draw, keys):
    """`_key`, with the lowest bit set if the page had changed."""
    if by_draw:
        for i in range(pages.size):
            key = _mix(_mix(np.uint64(pages[i]) + _GOLDEN) ^ salt)
            keys[i] = (key & ~_ONE) | np.uint64(again[i] != 0)
    else:
        for i in range(pages.size):
            keys[i] = (np.uint64(pages[i]) << _ONE) | np.uint64(again[i] != 0)


@njit(cache=True)
def _gain(keys, width, gains, work):
    """Gains of the odd ones among `keys`, ranked in ascending order.

    Every key sets the bit of a field that its highest bits name: its rank is the number of bits set
    before. Where two keys met on one bit, the keys of that word are ranked by putting them in order.
    """
    field = work.field
    below = work.heads
    met = work.from_slot
    ordered = work.sorted_keys
    bits = min(_bits(keys.size) + SPARSE, MAX_FIELD, width)
    drop = np.uint64(width - bits)
    words = 1 << max(bits - 6, 0)
    field[:words] = 0
    below[:words] = 0
    m = 0
    for i in range(keys.size):
        at = keys[i] >> drop
        word = at >> np.uint64(6)
        bit = _ONE << (at & np.uint64(63))
        before = field[word]
        field[word] = before | bit
        if before & bit:
            met[m] = word
            m += below[word] == 0
            below[word] += 1
    total = 0
    for word in range(words):
        ones = np.int64(_ones(field[word])) + below[word]
        below[word] = total
        total += ones
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
            _insert(ordered[-1 - rank :], np.int64(field[word]), key)
            field[word] += _ONE
        else:
            rank += np.int64(_ones(field[word] & ((_ONE << (at & np.uint64(63))) - _ONE)))
            dcg += gains[rank] & -np.int64(key & _ONE)
    for word in met[:m]:
        begin = -1 - below[word]
        for rank in range(begin, begin + np.int64(field[word])):
            dcg += gains[rank] & -np.int64(ordered[rank] & _ONE)
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
        at = _first_change(facts.words, facts.width, page, at, facts.cycles if untouched else cycle - 1)
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
        at = _first_change(facts.words, facts.width, page, at, facts.cycles)


@njit(cache=True)
def penalise_rest(facts, slots, work):
    """Account for what the pages visited after the warm-up missed from their last visit to the end."""
    for slot in range(work.sizes[TOP]):
        before = slots[LAST, slot]
        if before != facts.warmup and slots[COUNT, slot]:
            if slots[LENGTH, slot] > slots[COUNT, slot]:
                _clean(slot, slots, work.arena, work.group_of)
            start = slots[START, slot]
            for page in work.arena[start : start + slots[COUNT, slot]]:
                # The cycle after the end is never read: what is taken off there has no effect.
                _penalise(page, before, facts.cycles + 1, facts, work)


@njit(cache=True)
def advance(cycle, scores, salt, drawn, facts, slots, work, counts, used):
    """Choose and visit the pages of a cycle; `scores`: of every slot in use.

    Returns how many moves pages made, and writes these to `used`.
    """
    live = np.empty(scores.size, np.int64)
    falling = np.empty(scores.size)
    n = 0
    for slot in range(scores.size):
        if slots[COUNT, slot]:
            live[n] = slot
            falling[n] = -scores[slot]
            n += 1
    order = live[:n][np.argsort(falling[:n])]
    choose(cycle, order, scores, salt, drawn, facts, slots, work)
    visit(cycle, salt, facts, slots, work, counts)
    moved = 0
    for move in range(2 * work.sizes[RUNS]):
        if work.moves[move]:
            used[moved] = move
            moved += 1
    return moved


@njit(cache=True)
def replay_states(
    salts, drawn, drawn_start, scores, score_at, aged, after, state_of, facts, slots, work, counts
):
    """Replay all cycles with the scores of every state known beforehand.

    `after[s, o]`: the state that a visit with outcome o leads to from state s; `scores[score_at[s] + t - 1]`
    its score t cycles after the last visit (not `aged`: `scores[score_at[s]]` whatever t is). `state_of`:
    int64 ``[1, slots]``, state by slot. There must be slots for every state and cycle, or for every page.
    """
    by_slot = np.empty(slots.shape[1])
    keys = np.empty((1, work.moves.size), np.int64)
    used = np.empty(work.moves.size, np.int64)
    for i in range(salts.size):
        cycle = facts.warmup + 1 + i
        top = work.sizes[TOP]
        for slot in range(top):
            if slots[COUNT, slot]:
                at = score_at[state_of[0, slot]]
                if aged:
                    at += cycle - slots[LAST, slot] - 1
                by_slot[slot] = scores[at]
        moved = advance(
            cycle, by_slot[:top], salts[i], drawn[drawn_start[i] : drawn_start[i + 1]],
            facts, slots, work, counts[i], used,
        )  # fmt: skip
        for u in range(moved):
            keys[0, u] = after[state_of[0, work.runs[SLOT, used[u] >> 1]], used[u] & 1]
        settle(cycle, used[:moved], keys, state_of, slots, work)


@njit(cache=True)
def settle(cycle, used, keys, states, slots, work):
    """Put the visited pages into new groups, merging moves that end in equal state.

    `used`: the moves that pages made; `keys[:, u]`: the state after move `used[u]`, as int64 bits.
    `states[:, slot]` becomes the state of each new group. There must be room for as many slots as moves.
    """
    sizes = work.sizes
    runs = work.runs
    new_slots = work.new_slots
    for q in range(sizes[RUNS]):
        slot = runs[SLOT, q]
        if slots[COUNT, slot] == 0:
            slots[FREE, sizes[FREES]] = slot
            sizes[FREES] += 1
    size = 4
    while size < 2 * used.size:
        size *= 2
    table = work.table
    table[:size] = -1
    groups = 0
    for u in range(used.size):
        move = used[u]
        h = np.uint64(0)
        for c in range(keys.shape[0]):
            h = _mix(h ^ (np.uint64(keys[c, u]) + _GOLDEN))
        at = np.int64(h & np.uint64(size - 1))
        group = -1
        while table[at] >= 0 and group < 0:
            group = table[at]
            for c in range(keys.shape[0]):
                if states[c, new_slots[group]] != keys[c, u]:
                    group = -1
                    break
            at = (at + 1) & (size - 1)
        if group < 0:
            group = groups
            table[at] = group
            if sizes[FREES]:
                sizes[FREES] -= 1
                slot = slots[FREE, sizes[FREES]]
            else:
                slot = sizes[TOP]
                sizes[TOP] += 1
            new_slots[group] = slot
            for c in range(keys.shape[0]):
                states[c, slot] = keys[c, u]
            slots[LENGTH, slot] = 0
            slots[LAST, slot] = cycle
            slots[LOW, slot] = 0
            slots[TRACKED, slot] = False
            groups += 1
        slot = new_slots[group]
        work.target[move] = slot
        slots[LENGTH, slot] += work.moves[move]
    tail = sizes[TAIL]
    for g in range(groups):
        slot = new_slots[g]
        slots[START, slot] = tail
        slots[COUNT, slot] = 0
        # One entry more than pages: `_part` writes one too far.
        tail += slots[LENGTH, slot] + 1
    sizes[TAIL] = tail
    _part(slots, work)


@njit(cache=True)
def _part(slots, work):
    """Append the pages of every run to the lists of the groups that their outcomes lead to."""
    runs = work.runs
    moves = work.moves
    target = work.target
    picked = work.picked
    again = work.again
    arena = work.arena
    for q in range(work.sizes[RUNS]):
        place = runs[PLACE, q]
        stop = runs[PLACE, q + 1]
        n = stop - place
        found = moves[2 * q + 1]
        one = target[2 * q + (found > 0)]
        other = target[2 * q + (found == n)]
        end = np.uint64(slots[START, one] + slots[COUNT, one])
        run = picked[place:stop]
        if one == other:
            arena[end : end + np.uint64(n)] = run
            slots[COUNT, one] += n
            continue
        other = target[2 * q]
        other_end = np.uint64(slots[START, other] + slots[COUNT, other])
        slots[COUNT, one] += found
        slots[COUNT, other] += n - found
        run_again = again[place:stop]
        for r in range(n):
            page = run[r]
            arena[end] = page
            arena[other_end] = page
            changed = np.uint64(run_again[r] != 0)
            end += changed
            other_end += _ONE - changed


@njit(cache=True)
def _compact(slots, work):
    """Rid the arena of entries that are no longer used."""
    arena = work.arena
    gathered = work.gathered
    at = 0
    for slot in range(work.sizes[TOP]):
        count = slots[COUNT, slot]
        if count:
            if slots[LENGTH, slot] > count:
                _clean(slot, slots, arena, work.group_of)
            start = slots[START, slot]
            gathered[at : at + count] = arena[start : start + count]
            slots[START, slot] = at
            at += count
    arena[:at] = gathered[:at]
    work.sizes[TAIL] = at
