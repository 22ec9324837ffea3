"""Whether what evolved takes the place of the recommended function: a jackknife over groups of sites.

A recommended function was chosen over many histories (docs/choosing.md). What evolved has seen one: sites
differ far more than the cycles of a site do, so that a lead on a few sites, measured over however many
cycles, says little of others. The lead of a candidate is the sum of its mean leads over the recommended
function in training and in validation, both above zero. Its standard error is that of the delete-a-group
jackknife (Kott 2001, Journal of Official Statistics 17): each part is replayed without one group of sites
after the other, and with D_g the leads of the m replays the variance is (m - 1) / m * sum (D_g - mean D)^2.
Where parts are not of whole sites, what is learned is for these same sites, and the error is that of the
mean over the cycles.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

Values = npt.NDArray[np.float64]

GROUPS: Final = 6
"""Groups of sites that a part is replayed without, one at a time; or as many as it has sites."""
FINALISTS: Final = 12
"""Candidates whose error is asked for: those with the largest leads."""
ERRORS: Final = 4.0
"""Standard errors by which a lead has to be above zero: with 5 degrees of freedom chance alone gives one of
`FINALISTS` such a lead in 6 cases of 100."""

ApartOf = Callable[[Sequence[int]], Sequence[Values]]
"""Means of some candidates, one part after the other: float64 ``[groups, candidates]`` each, a row for each
group of sites that is left out."""


def challenge(
    candidates: Sequence[tuple[Values, Values]], recommended: int, apart_of: ApartOf | None = None
) -> int:
    """Index of the candidate that is surest to be better than the recommended one, or of that itself.

    ``candidates``: values per cycle of training and validation, higher is better; ``recommended``: which of
    them is to be beaten. ``apart_of``: what they reach without groups of sites; None: parts are not of sites.
    """
    parts = [np.array(values) for values in zip(*candidates, strict=True)]
    leads = [part - part[recommended] for part in parts]
    means = np.array([lead.mean(axis=1) for lead in leads])
    with np.errstate(invalid="ignore"):  # a candidate without a value is no finalist
        ahead = np.flatnonzero((means > 0.0).all(axis=0))
    finalists = ahead[np.argsort(-means.sum(axis=0)[ahead], kind="stable")][:FINALISTS]
    if not finalists.size:
        return recommended
    if apart_of is None:
        variances = [lead[finalists].var(axis=1, ddof=1) / lead.shape[1] for lead in leads]
    else:
        known = apart_of([*finalists.tolist(), recommended])
        variances = [jackknife(part[:, :-1] - part[:, -1:]) for part in known]
    surely = means.sum(axis=0)[finalists] - ERRORS * np.sqrt(np.sum(variances, axis=0))
    best = int(np.argmax(np.nan_to_num(surely, nan=-np.inf)))
    return int(finalists[best]) if surely[best] > 0.0 else recommended


def jackknife(leads: Values) -> Values:
    """Variance of a lead, from those without one group each: ``[groups, candidates]`` -> ``[candidates]``.

    Infinite for a single group: there is no telling.
    """
    groups = len(leads)
    if groups < 2:
        return np.full(leads.shape[1], np.inf)
    return np.asarray((groups - 1) * leads.var(axis=0))
