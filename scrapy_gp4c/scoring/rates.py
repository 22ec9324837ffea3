"""Change rates of pages, estimated from visits that show only whether a page changed since the last visit.

A visit that finds a change after a gap of g cycles has seen at least one; at a rate r it stands for
``r g / (1 - exp(-r g))`` changes, the mean of a Poisson number that is not zero. E is the sum of these over
the visits, each with the rate known before it; T is the sum of the gaps. The rate is the mean of a Gamma
posterior, ``(E + a) / (T + b)`` (J. Cho, H. Garcia-Molina 2003, "Estimating
frequency of change", ACM TOIT 3, treat the same censoring; docs/code/terminals.md has the terminals).
"""

from typing import Final

import numpy as np

from scrapy_gp4c.arrays import Array, Floats

PRIOR_CHANGES: Final = 0.1
PRIOR_CYCLES: Final = 1.0
SITE_PRIOR_CYCLES: Final = 3.0
"""Weight of the site's rate in `rate_with_site`, in observed cycles of the page."""
UNIT: Final = 2.0**-24


def whole_units(values: Array) -> Floats:
    """Round to multiples of 2**-24, so that sums are exact, and the same in any order, up to 2**29."""
    return np.asarray(np.rint(np.asarray(values, np.float64) / UNIT) * UNIT)


def rate(expected: Array, cycles: Array) -> Floats:
    """Posterior changes per cycle, ``[P]``, from columns E (`expected` changes) and T (observed `cycles`)."""
    return np.asarray((expected + PRIOR_CHANGES) / (cycles + PRIOR_CYCLES))


def rate_of_group(expected: Array, cycles: Array) -> Floats:
    """Changes per cycle of the pages of each group (site, crawl), ``[G]``, from sums of columns E and T."""
    return np.asarray((expected + 0.5 * PRIOR_CHANGES) / (cycles + PRIOR_CYCLES))


def rate_with_site(expected: Array, cycles: Array, site_rate: Array) -> Floats:
    """Posterior changes per cycle as `rate`, with the rate of the page's site as prior, ``[P]``."""
    return np.asarray((expected + SITE_PRIOR_CYCLES * site_rate) / (cycles + SITE_PRIOR_CYCLES))


def probability(rates: Array, gap_cycles: Array) -> Floats:
    """Probability of at least one change within `gap_cycles` at `rates` per cycle: ``[P]``."""
    return np.asarray(-np.expm1(-rates * gap_cycles))


def censored(rates: Array, gap_cycles: Array) -> Floats:
    """Expected number of changes within `gap_cycles`, given at least one, at `rates` per cycle: ``[P]``."""
    x = np.maximum(rates * gap_cycles, UNIT)
    return whole_units(x / -np.expm1(-x))
