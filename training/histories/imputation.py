"""Imputation of unobserved outcomes: days lost to errors, and pages that are visited only now and then.

A gap ends with a visit that compares the page with its copy of before. If that visit finds no change, nothing
changed within the gap, and nothing is guessed. docs/lab/closing-the-loop.md works examples.
"""

from typing import Final

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.arrays import Floats

Bits = npt.NDArray[np.bool_]

RATE_STEPS: Final = 50
"""Number of bisections that find the logarithm of a rate, to 1e-14 of its range."""
RATE_RANGE: Final = (1e-6, 40.0)
"""Lowest and highest change rate, per cycle; at 40 a cycle without a change has probability 4e-18."""


def unchanged_gaps(changed: Bits, observed: Bits) -> Bits:
    """Unobserved cycles in which nothing changed, because the next visit found no change: bool ``[D, P]``.

    ``changed``, ``observed``: bool ``[D, P]``.
    """
    known = np.zeros_like(observed)
    quiet = np.zeros(observed.shape[1], np.bool_)
    for cycle in range(len(observed) - 1, -1, -1):
        quiet = np.where(observed[cycle], ~changed[cycle], quiet)
        known[cycle] = quiet & ~observed[cycle]
    return known


def fill_lost_cycles(changed: Bits, observed: Bits) -> tuple[Bits, Bits]:
    """Fill in outcomes of cycles lost to errors; return (outcomes, which are guessed), bool ``[D, P]`` both.

    Thesis (Santos 2013), section 4.2: of a page that could not be fetched in cycle d, take the gaps
    between its successive changes before d. If as many cycles as the most frequent gap have passed since
    its last change, it is taken to have changed in d. Made exact here: the gap is the difference of
    the two cycles' numbers; of equally frequent gaps the shortest counts; with fewer than two changes
    before d there is none, and the page is taken not to have changed; lost cycles are filled in order, so
    that a change filled in counts as a change before the next lost cycle. A cycle of `unchanged_gaps` is
    not guessed.
    """
    known = unchanged_gaps(changed, observed)
    guessed = ~observed & ~known
    filled = changed & observed
    pages = np.flatnonzero(guessed.any(axis=0))
    cycles = len(changed)
    every = np.arange(len(pages))
    frequency = np.zeros((len(pages), cycles + 1), np.int32)  # of the gaps 0..D
    favourite = np.zeros(len(pages), np.int64)  # the most frequent gap; 0: none yet
    last = np.full(len(pages), -1)  # cycle of the last change; -1: none yet
    for cycle in range(cycles):
        due = (favourite > 0) & (last + favourite == cycle)
        now = np.where(guessed[cycle, pages], due, filled[cycle, pages])
        filled[cycle, pages] = now
        again = every[now & (last >= 0)]
        gap = cycle - last[again]
        frequency[again, gap] += 1
        count, best = frequency[again, gap], favourite[again]
        most = np.where(best > 0, frequency[again, best], 0)
        better = (count > most) | ((count == most) & (gap < best))
        favourite[again[better]] = gap[better]
        last[now] = cycle
    return filled, guessed


def change_rates(
    length: npt.NDArray[np.int64], changed: Bits, page: npt.NDArray[np.int64], pages: int
) -> Floats:
    """Changes per cycle of every page, from visits at irregular intervals: float64 ``[pages]``.

    ``length`` (cycles, at least 1), ``changed``, ``page``: one entry per interval between two visits. The
    maximum likelihood estimate of a Poisson rate r from intervals with and without a change (Cho &
    Garcia-Molina 2003, "Estimating frequency of change", section 4.3), the root of

        sum over changed intervals of length / (exp(r * length) - 1) = summed length of the others,

    with half an unchanged interval of the page's mean length added to the others, so that a page that had
    changed at every visit gets a finite rate. 0 without a change.
    """
    count = np.bincount(page, minlength=pages)
    total = np.bincount(page, length, pages)
    quiet = np.bincount(page, length * ~changed, pages) + 0.5 * total / np.maximum(count, 1)
    return likeliest_rates(length[changed].astype(np.float64), page[changed], quiet)


def likeliest_rates(length: Floats, page: npt.NDArray[np.int64], quiet: Floats) -> Floats:
    """Poisson rates of maximum likelihood from intervals between visits: ``[P]``; 0 without a change.

    ``length``, ``page``: an entry per interval that ended with a change. ``quiet``: summed length of the
    other intervals, above 0, ``[P]``, in the same unit. See `change_rates`.
    """
    pages = len(quiet)
    low, high = (np.full(pages, np.log(value)) for value in RATE_RANGE)
    for _ in range(RATE_STEPS):
        middle = 0.5 * (low + high)
        with np.errstate(over="ignore"):
            terms = length / np.expm1(np.exp(middle[page]) * length)
        above = np.bincount(page, terms, pages) > quiet
        low, high = np.where(above, middle, low), np.where(above, high, middle)
    rates: Floats = np.exp(0.5 * (low + high))
    rates[np.bincount(page, minlength=pages) == 0] = 0.0
    return rates


def draw_between_visits(
    changed: Bits, observed: Bits, rng: np.random.Generator, first_copy: npt.NDArray[np.int64] | None = None
) -> Bits:
    """Draw the outcomes of pages visited now and then: bool ``[D, P]``.

    ``changed``: where ``observed``, whether the page changed at any time since its visit before (the
    first visit: since the cycle before the first row); bool ``[D, P]`` both. Up to a visit that found no
    change there is none. Up to a visit that found one, cycles are drawn independently with the page's own
    rate (`change_rates`), given that at least one of them changed; after the last visit, with that rate.
    So what is drawn agrees with every visit. ``first_copy``: row of the first copy that a page's visits are
    compared with, ``[P]``; None: the one before the first row.
    """
    cycles, pages = changed.shape
    page, cycle = np.nonzero(observed.T)
    before = np.concatenate(([-1], cycle[:-1]))
    first_visit = np.flatnonzero(np.diff(page, prepend=-1))
    before[first_visit] = -1 if first_copy is None else first_copy[page[first_visit]]
    outcome = changed[cycle, page]
    rate = change_rates(cycle - before, outcome, page, pages)
    # Position of the first change: inverse of the geometric distribution cut off at the interval's end.
    length = cycle - before
    hit = -np.expm1(-rate[page] * length)
    with np.errstate(divide="ignore", invalid="ignore"):
        first = np.ceil(-np.log1p(-rng.random(len(page)) * hit) / rate[page])
    first = before + np.clip(np.nan_to_num(first, nan=1.0), 1, length)
    first_at = np.full((cycles, pages), -1, np.int32)
    first_at[cycle, page] = first
    drawn = rng.random((cycles, pages)) < -np.expm1(-rate)
    start = np.full(pages, -1, np.int32)
    happened = np.ones(pages, np.bool_)
    for now in range(cycles - 1, -1, -1):
        seen = observed[now]
        start = np.where(seen, first_at[now], start)
        happened = np.where(seen, changed[now], happened)
        drawn[now] = happened & ((now == start) | ((now > start) & drawn[now]))
    return drawn
