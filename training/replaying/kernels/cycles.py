"""Compiled loops of a cycle: they choose groups of pages by score, visit their pages, and regroup these.

A *trail* is the record of one replay: the order of the groups that decided each cycle. A function that orders
them alike repeats the replay, see `training.replaying.grouped`. `training.replaying.kernels` explains slots,
runs, ``facts`` and ``work``.
"""

# Compiled code: numba infers the types, which mypy cannot follow.
# mypy: ignore-errors

import numpy as np

from training.replaying.kernels.bits import GOLDEN, ONE, copy, mix
from training.replaying.kernels.choice import choose, foremost
from training.replaying.kernels.compiling import flat, inner, outer
from training.replaying.kernels.memory import (
    COUNT,
    FREE,
    FREES,
    LAST,
    LENGTH,
    LOW,
    PLACE,
    RUNS,
    SLOT,
    START,
    TAIL,
    TOP,
    TRACKED,
)
from training.replaying.kernels.visits import visit

CHOSEN, LIVE, FIRST = range(3)
"""Positions in the record of a cycle: number of chosen groups, number of groups, then a row of each group.

A row is the position of a group's state in the scores of a function. Rows of chosen groups come first, best
first; one that ties with the row before is written as ``-1 - row``.
"""
LEAVES, CHILD, NEXT, LINKS = range(4)
"""Links of a trail in the tree of trails: cycle in which it leaves its parent, its last child, next sibling.

A trail shares the cycles before it leaves with its parent. -1: there is none.
"""


@inner
def write_prefix(order, others, row_of, scores, trail):
    """Write the order of the groups in a cycle to its part of a trail, int16 ``[FIRST + groups]``.

    First come the numbers of chosen and of all groups (`CHOSEN`, `LIVE`; -1: too many), then their rows.
    `order`: slots of chosen groups, best first; `others`: slots of other groups; `row_of`, `scores`: by slot.
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
    """Find the recorded replay (trail) whose choices a function would repeat for the most cycles.

    Returns the trail's number, and the number of these cycles. `scores`: of the function, by row.
    `rows`: records of all trails, see `write_prefix`; `starts[trail, cycle]`: place in `rows` where a cycle
    of a trail begins, except cycles that the trail shares with its parent. `links`: rows `LEAVES`, `CHILD`
    and `NEXT`, int32 ``[LINKS, trails]``; trail 0 is the root of the tree.
    """
    path = 0
    cycle = _first_differing_cycle(scores, rows, starts[0], np.int64(0))
    while cycle < starts.shape[1]:
        reached = cycle
        other = links[CHILD, path]
        while other >= 0:
            if links[LEAVES, other] == cycle:
                reached = _first_differing_cycle(scores, rows, starts[other], cycle)
                if reached > cycle:
                    break
            other = links[NEXT, other]
        if other < 0:
            break
        path = other
        cycle = reached
    return path, cycle


@inner
def _first_differing_cycle(scores, rows, starts, cycle):
    """First cycle, from `cycle` on, in which `scores` order the groups otherwise than a trail does.

    `rows`: records of all trails; `starts`: where the record of each cycle of this trail begins. Returns the
    number of cycles if the order is the same in all.
    """
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


@flat
def advance(cycle, order, scores, salt, drawn, facts, slots, work, counts, used):
    """Choose and visit the pages of a cycle, and write to `used` the moves that any page makes.

    A move is a run (the chosen pages of one slot) with one of the two outcomes: number ``2 * run + outcome``.
    Returns the number of moves. `order`: result of `foremost` for `scores`. Others: see `choose`, `visit`.
    """
    choose(cycle, order, scores, salt, drawn, facts, slots, work)
    visit(cycle, salt, facts, slots, work, counts)
    moved = 0
    for move in range(2 * work.sizes[RUNS]):
        if work.moves[move]:
            used[moved] = move
            moved += 1
    return moved


@outer
def replay_cycle(
    cycle, scores, salt, drawn, facts, slots, work, counts, used, keys, orders, states, after, begin
):
    """Replay one cycle by `scores`, one of each slot; for functions whose states cannot be listed before.

    `after`: states of the slots of several replays after a visit without a change, then of the same slots
    after one with a change; empty after the last cycle. `begin`: position of this replay's slots in each of
    the halves. `states`: see `settle`. Scratch: `used`, `keys`, `orders`.
    """
    order = foremost(scores, slots[COUNT], facts.k, orders)
    moved = advance(cycle, order, scores, salt, drawn, facts, slots, work, counts, used)
    if after.shape[1] == 0:
        return
    half = after.shape[1] // 2
    for u in range(moved):
        at = begin + work.runs[SLOT, used[u] >> 1] + half * (used[u] & 1)
        for c in range(after.shape[0]):
            keys[c, u] = after[c, at]
    settle(cycle, used[:moved], keys, states, slots, work)


@outer
def replay_states(
    done,
    stop,
    salts,
    drawn,
    drawn_start,
    scores,
    score_at,
    aged,
    after,
    state_of,
    facts,
    slots,
    work,
    counts,
    used,
    keys,
    orders,
    row_of,
    by_slot,
    trail,
):
    """Replay the scored cycles from number `done` up to `stop`, by scores that are known for every state.

    Returns the number of cycles done: fewer than `stop` if more slots are needed.

    `after[s, o]`: state after a visit with outcome o in state s; `scores[score_at[s] + t - 1]`: its score t
    cycles after the last visit, or `scores[score_at[s]]` if scores do not depend on t (not `aged`).
    `drawn_start`: where each cycle begins in `drawn`. `state_of`: int64 ``[1, slots]``, state by slot.
    Scratch: `used`, `keys` (int64 ``[1, moves]``), `orders`, `row_of` and `by_slot` (int64 and float64
    ``[slots]``). `trail`: see `write_prefix`; empty: not wanted.
    """
    for i in range(done, stop):
        cycle = facts.warmup + 1 + i
        top = work.sizes[TOP]
        if 3 * top > slots.shape[1]:  # every group may become two more
            return i
        live = 0
        for slot in range(top):
            if slots[COUNT, slot]:
                at = score_at[state_of[0, slot]]
                if aged:
                    at += cycle - slots[LAST, slot] - 1
                row_of[slot] = at
                by_slot[slot] = scores[at]
                live += 1
        order = foremost(by_slot[:top], slots[COUNT], facts.k, orders)
        if trail.size:
            write_prefix(order, orders[0, : live - order.size], row_of, by_slot, trail[i])
        moved = advance(
            cycle, order, by_slot[:top], salts[i], drawn[drawn_start[i] : drawn_start[i + 1]],
            facts, slots, work, counts[i], used,
        )  # fmt: skip
        if i + 1 == salts.size and not facts.penalised:
            break  # nobody asks for the groups after the last cycle
        for u in range(moved):
            keys[0, u] = after[state_of[0, work.runs[SLOT, used[u] >> 1]], used[u] & 1]
        settle(cycle, used[:moved], keys, state_of, slots, work)
    return stop


@flat
def settle(cycle, used, keys, states, slots, work):
    """Put the visited pages into new groups: one slot for all moves that end in equal state.

    `used`: numbers of moves, see `advance`; `keys[:, u]`: here the state after move `used[u]`, as int64 bits.
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
            h = mix(h ^ (np.uint64(keys[c, u]) + GOLDEN))
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
        # One entry more than pages: `_append_runs` writes one too far.
        tail += slots[LENGTH, slot] + 1
    sizes[TAIL] = tail
    _append_runs(slots, work)


@inner
def _append_runs(slots, work):
    """Append each visited page to the list of its new slot, `Work.target` of its run and outcome."""
    runs = work.runs
    moves = work.moves
    target = work.target
    picked = work.picked
    again = work.again
    arena = work.arena
    for q in range(work.sizes[RUNS]):
        start = runs[PLACE, q]
        stop = runs[PLACE, q + 1]
        n = stop - start
        changed_pages = moves[2 * q + 1]
        changed_slot = target[2 * q + (changed_pages > 0)]
        unchanged_slot = target[2 * q + (changed_pages == n)]
        end = np.uint64(slots[START, changed_slot] + slots[COUNT, changed_slot])
        run = picked[start:stop]
        if changed_slot == unchanged_slot:
            copy(picked, np.int64(start), arena, np.int64(end), np.int64(n))
            slots[COUNT, changed_slot] += n
            continue
        unchanged_slot = target[2 * q]
        unchanged_end = np.uint64(slots[START, unchanged_slot] + slots[COUNT, unchanged_slot])
        slots[COUNT, changed_slot] += changed_pages
        slots[COUNT, unchanged_slot] += n - changed_pages
        run_again = again[start:stop]
        for r in range(n):
            page = run[r]
            arena[end] = page
            arena[unchanged_end] = page
            changed = np.uint64(run_again[r] != 0)
            end += changed
            unchanged_end += ONE - changed
