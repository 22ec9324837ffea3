"""The posterior change rate of a page, from visits that tell only whether it changed since the last one.

A visit that finds a change after a gap of g cycles has seen at least one; at a rate r it stands for
``r g / (1 - exp(-r g))`` changes, the mean of a Poisson number that is not zero. Summed over the visits as
they come, each with the rate known before it, this is E; T is the time that the visits looked back on. The
rate is the mean of a Gamma posterior, ``(E + a) / (T + b)`` (J. Cho, H. Garcia-Molina 2003, "Estimating
frequency of change", ACM TOIT 3, treat the same censoring; docs/architecture.md has the terminals).
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]

PRIOR_CHANGES: Final = 0.1
PRIOR_CYCLES: Final = 1.0
SITE_PRIOR_CYCLES: Final = 3.0
"""What the rate of a page's site is worth beside the page's own past."""
UNIT: Final = 2.0**-24


def whole_units(values: Array) -> Floats:
    """Round to multiples of 2**-24, so that sums are exact, and the same in any order, up to 2**29."""
    return np.asarray(np.rint(np.asarray(values, np.float64) / UNIT) * UNIT)


def rate(expected: Array, cycles: Array) -> Floats:
    """Posterior changes per cycle, ``[P]``: of E, changes, and T, cycles observed."""
    return np.asarray((expected + PRIOR_CHANGES) / (cycles + PRIOR_CYCLES))


def rate_of_group(expected: Array, cycles: Array) -> Floats:
    """Changes per cycle of all pages of a group, ``[G]``: of the sums of their E and T."""
    return np.asarray((expected + 0.5 * PRIOR_CHANGES) / (cycles + PRIOR_CYCLES))


def rate_with_site(expected: Array, cycles: Array, site_rate: Array) -> Floats:
    """`rate` with the rate of the page's site as prior: all ``[P]``."""
    return np.asarray((expected + SITE_PRIOR_CYCLES * site_rate) / (cycles + SITE_PRIOR_CYCLES))


def probability(rates: Array, gap_cycles: Array) -> Floats:
    """Probability of at least one change within a gap: ``[P]``."""
    return np.asarray(-np.expm1(-rates * gap_cycles))


def censored(rates: Array, gap_cycles: Array) -> Floats:
    """Changes for which a visit stands that found the page changed after a gap, ``[P]``: at least 1."""
    x = np.maximum(rates * gap_cycles, UNIT)
    return whole_units(x / -np.expm1(-x))
