"""The user-centric quality of a repository (Pandey & Olston 2005, section 3), by its definition.

Plain and exact, for collections of any kind as tables of scores; `training.replaying.search` computes the
same for thousands of queries and weeks.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

ZETA: Final = 2.6123753486854883
"""zeta(3/2): the sum of r^-3/2 over all ranks r >= 1."""
_TABLE: Final = 10_000
_SUMS: Final = np.concatenate(([0.0], np.cumsum(np.arange(1, _TABLE + 1, dtype=np.float64) ** -1.5)))


def inspection(rank: npt.NDArray[Any]) -> Floats:
    """I(r) = r^-3/2 / zeta(3/2): how likely users look at rank r, from 1 (eq. 2); I(inf) = 0."""
    found: Floats = np.asarray(rank, np.float64) ** -1.5 / ZETA
    return found


def inspection_sum(last: npt.NDArray[Any]) -> Floats:
    """Sum of I(r) over the ranks 1..last (0 for last <= 0), without a loop over them.

    To 10,000 from a table, beyond by the integral (section 5.1.2): sum of r^-3/2 from i to j is
    2 (1 / sqrt(i - 1/2) - 1 / sqrt(j + 1/2)), its relative error there below 1e-9.
    """
    whole = np.maximum(np.asarray(last, np.int64), 0)
    beyond = 2.0 * (_TABLE + 0.5) ** -0.5 - 2.0 * (np.maximum(whole, _TABLE) + 0.5) ** -0.5
    found: Floats = (_SUMS[np.minimum(whole, _TABLE)] + beyond) / ZETA
    return found


def ranks(copies: Floats) -> Floats:
    """Rank of every page in the answer to every query: ``[Q, P]``, infinite where it is not in the answer.

    ``copies``: score of every page's copy, ``[Q, P]``, 0 unless every term occurs. Answers have pages by
    score, the highest first, equal ones by page number.
    """
    order = np.argsort(-copies, axis=1, kind="stable")
    found = np.empty(copies.shape)
    np.put_along_axis(found, order, np.arange(1.0, copies.shape[1] + 1)[None, :], axis=1)
    found[copies <= 0.0] = np.inf
    return found


def usefulness(copies: Floats, live: Floats, frequency: Floats) -> float:
    """Expected usefulness of querying the copies, sum_q f_q sum_p I(R(p, A(q, copies))) S(live p, q) (eq. 3).

    ``copies``, ``live``: scores ``[Q, P]``, 0 where a page does not exist; ``frequency``: ``[Q]``.
    """
    return float(frequency @ (inspection(ranks(copies)) * live).sum(axis=1))


def quality(copies: Floats, live: Floats, frequency: Floats) -> float:
    """Quality of the copies in [0, 1]: usefulness over the ideal, that of copies in sync (eqs. 4, 5).

    1 where the ideal is 0: nobody could find anything.
    """
    ideal = usefulness(live, live, frequency)
    return usefulness(copies, live, frequency) / ideal if ideal > 0.0 else 1.0


def quality_change(copies: Floats, live: Floats, frequency: Floats, page: int) -> float:
    """What refreshing one page's copy changes in the quality (eqs. 6, 7)."""
    refreshed = copies.copy()
    refreshed[:, page] = live[:, page]
    moved = inspection(ranks(refreshed)) - inspection(ranks(copies))
    ideal = usefulness(live, live, frequency)
    return float(frequency @ (moved * live).sum(axis=1)) / ideal if ideal > 0.0 else 0.0
