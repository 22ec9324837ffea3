"""The order of groups: the foremost of them by score, and which score functions agree about these."""

# Compiled code: numba infers the types, which mypy cannot follow.
# mypy: ignore-errors

from __future__ import annotations

import numpy as np

from training.replaying.kernels.compiled import inner, outer


@inner
def foremost(scores, sizes, k, orders):
    """The slots of the k pages with the highest scores, and those that tie with the last: best first.

    `k`: at least 1. `sizes`: pages by slot; empty slots are left out, equal ones in order. `orders`: int64
    ``[2, slots]``, overwritten; what is returned is a part of it.
    """
    heap = orders[0]
    order = orders[1]
    n = np.int64(0)
    for slot in range(scores.size):
        heap[n] = slot
        n += sizes[slot] > 0
    for root in range(n // 2, 0, -1):
        _sink(heap, n, root - 1, scores)
    found = 0
    left = k
    while n and (left > 0 or scores[heap[0]] == scores[order[found - 1]]):
        order[found] = heap[0]
        left -= sizes[heap[0]]
        found += 1
        n -= 1
        heap[0] = heap[n]
        _sink(heap, n, np.int64(0), scores)
    return order[:found]


@inner
def _sink(heap, n, at, scores):
    """Let an entry of `heap[:n]` sink to its place below those that come before it."""
    own = heap[at]
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
        if scores[heap[child]] < scores[own] or (scores[heap[child]] == scores[own] and heap[child] > own):
            break
        heap[at] = heap[child]
        at = child
    heap[at] = own


@outer
def tell_apart(scores, sizes, k, labels, chosen, lengths, orders):
    """Tell score functions apart by what they choose; label them with numbers from 0 on.

    `scores[f, g]`: of function f for group g of `sizes[g]` pages. Equal labels: the same classes of ties in
    the same order, up to the one in which the k-th page is found. `labels`: int64 ``[functions]``, written.
    For work: `chosen` (int32, as `scores`), `lengths` (as `labels`, zeros), and `orders`, see `foremost`.
    """
    known = 0
    for f in range(len(scores)):
        own = scores[f]
        order = foremost(own, sizes, k, orders)
        row = chosen[known]
        m = order.size
        for at in range(m):
            ends = at + 1 == m or own[order[at]] != own[order[at + 1]]
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
