"""Cycles of sampling policies, compiled, page by page; `scrapy_gp4c.policies.sampling` defines the policies.

Draws (a page's random number of the cycle) are distinct, so that sorting by them leaves nothing open.
"""

# Compiled code: numba infers the types, which mypy cannot follow.
# mypy: ignore-errors

import numpy as np

from scrapy_gp4c.page_state.groupings import NOWHERE
from scrapy_gp4c.page_state.outcomes import NEIGHBOUR, SAMPLE
from scrapy_gp4c.scoring.ranking import GOLDEN, Purpose
from training.replaying.kernels.bits import mix
from training.replaying.kernels.compiling import outer

_NEIGHBOUR = np.uint64(Purpose.NEIGHBOUR * GOLDEN % 2**64)
_GROUP = np.uint64(Purpose.GROUP * GOLDEN % 2**64)
_GOLDEN = np.uint64(GOLDEN)


@outer
def draw(salt, drawn):
    """Write the draws of all pages to `drawn`, uint64 ``[P]``: `ranking.salted_draws` of their numbers."""
    for page in range(len(drawn)):
        drawn[page] = mix(mix(np.uint64(page) + _GOLDEN) ^ salt)


@outer
def follow(turns, follows, drawn, places, rings, choices, visits):
    """Run a cycle of policy `Follow`, Algorithm 1 of Tan et al. 2007; returns the number of visits.

    ``turns``: pages in the order in which they are sampled; ``follows``: whether pages near each of these are
    visited; ``drawn``: draws of all pages; ``places``: group of each page, pages by group, and start of each
    group; ``rings``: groups by ring, and start of each ring of each group, ``[groups * rings of a group +
    1]``; ``choices``: numbers of visits to make, of samples in flight, and of rings of a group; ``visits``:
    arrays to fill, pages and kinds of the visits.
    """
    group, pages, begin = places
    near, ring_begin = rings
    k, in_flight, of_group = choices
    visited, kinds = visits
    is_open = np.ones(len(group), np.bool_)
    is_spent = np.zeros(len(begin), np.bool_)
    candidates = np.empty(len(group), np.uint32)
    flight = np.empty(in_flight, np.int64)
    flying = count = turn = 0
    while True:
        before = count
        for one in range(flying):
            sample_group = group[turns[flight[one]]]
            if not follows[flight[one]] or sample_group == NOWHERE:
                continue
            for ring in range(sample_group * of_group, (sample_group + 1) * of_group):
                if count == k:
                    break
                some = 0
                for other in near[ring_begin[ring] : ring_begin[ring + 1]]:
                    if not is_spent[other]:
                        for page in pages[begin[other] : begin[other + 1]]:
                            candidates[some] = page
                            some += is_open[page]
                        is_spent[other] = True  # unless the budget ends here
                count = _take(candidates[:some], drawn, k, count, is_open, visited, kinds)
        flying = 0
        while flying < in_flight and count < k and turn < len(turns):
            page = turns[turn]
            if is_open[page]:
                is_open[page] = False
                visited[count], kinds[count] = page, SAMPLE
                count += 1
                flight[flying] = turn
                flying += 1
            turn += 1
        if count == before:
            return count


@outer
def _order(key):
    """Return `np.argsort(key)` in half the time, by sorting numbers that carry their positions."""
    bits = np.uint64(0)
    while len(key) >> bits:
        bits += np.uint64(1)
    mixed = np.empty(len(key), np.uint64)
    for row in range(len(key)):
        mixed[row] = key[row] >> bits << bits | np.uint64(row)
    mixed.sort()
    order = np.empty(len(key), np.int64)
    for row in range(len(key)):
        if row and mixed[row] >> bits == mixed[row - 1] >> bits:
            return np.argsort(key)
        order[row] = mixed[row] & ((np.uint64(1) << bits) - np.uint64(1))
    return order


@outer
def _take(candidates, drawn, k, count, is_open, visited, kinds):
    """Visit `candidates` in a random order, of numbers made from `drawn`, until there are `k` visits.

    Returns the new number of visits; ``count``: the number so far. Writes to the last three arguments.
    """
    key = np.empty(len(candidates), np.uint64)
    for row in range(len(candidates)):
        key[row] = mix(drawn[candidates[row]] + _NEIGHBOUR)
    for row in _order(key)[: k - count]:
        page = candidates[row]
        is_open[page] = False
        visited[count], kinds[count] = page, NEIGHBOUR
        count += 1
    return count


@outer
def first_pages(each, drawn, places):
    """Pages to sample first in every group, at most `each` of one, which have the highest draws.

    Returns these pages; where each group begins in them, and at last their number; and the groups.
    """
    pages, begin = places
    groups = np.flatnonzero(begin[1:] > begin[:-1])
    most = np.minimum(each, (begin[1:] - begin[:-1])[groups])
    first_begin = np.append(np.zeros(1, np.int64), np.cumsum(most))
    first = np.empty(first_begin[-1], np.uint32)
    for row in range(len(groups)):
        group_pages = pages[begin[groups[row]] : begin[groups[row] + 1]]
        _highest_draws(group_pages, drawn, first[first_begin[row] : first_begin[row + 1]])
    return first, first_begin, groups


@outer
def greedy(each, k, drawn, missed, places, visits):
    """Run a cycle of policy `Greedy`, and return the number of visits.

    It samples ``each`` pages of every group, then visits groups by their samples' change rate. ``missed``:
    changes that each copy lacks; ``places``: pages by group, start of each group; ``visits``: see `follow`.
    """
    pages, begin = places
    visited, kinds = visits
    samples, sample_begin, groups = first_pages(each, drawn, places)
    most = sample_begin[1:] - sample_begin[:-1]
    order = np.argsort(mix(drawn[samples[sample_begin[:-1]]] + _GROUP))
    share = np.zeros(len(groups))
    count = sampled = 0
    for row in order:
        if count == k:
            break
        changed = 0
        group_pages = samples[sample_begin[row] : sample_begin[row + 1]][: k - count]
        for page in group_pages:
            visited[count], kinds[count] = page, SAMPLE
            changed += missed[page] > 0
            count += 1
        share[row] = changed / len(group_pages)
        sampled += 1
    order = order[:sampled]
    for row in order[np.argsort(-share[order], kind="mergesort")]:
        if count == k:
            break
        group_pages = pages[begin[groups[row]] : begin[groups[row] + 1]]
        for one in _order(~drawn[group_pages])[most[row] :][: k - count]:
            visited[count], kinds[count] = group_pages[one], NEIGHBOUR
            count += 1
    return count


@outer
def _highest_draws(pages, drawn, first):
    """Fill `first` with those of `pages` that have the highest draws, highest first."""
    if len(first) > 32:
        first[:] = pages[_order(~drawn[pages])][: len(first)]
        return
    # Draws are spread evenly: what is lower than this is hardly ever among the first.
    share = (len(first) + 4.0 * np.sqrt(len(first)) + 4.0) / max(1, len(pages))
    least = np.uint64(2.0**64 * (1.0 - share)) if share < 1.0 else np.uint64(0)
    if _above(pages, drawn, least, first) < len(first):
        _above(pages, drawn, np.uint64(0), first)


@outer
def _above(pages, drawn, least, first):
    """Fill `first` as `_highest_draws` does, without draws below `least`; return how many pages it has."""
    held = 0
    for page in pages:
        page_draw = drawn[page]
        if page_draw < least:
            continue
        held = min(held + 1, len(first))
        at = held - 1
        while at > 0 and drawn[first[at - 1]] < page_draw:
            first[at] = first[at - 1]
            at -= 1
        first[at] = page
        if held == len(first):
            least = drawn[first[held - 1]]
    return held
