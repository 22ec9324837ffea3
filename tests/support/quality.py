"""Quality of a repository by its definition (Pandey & Olston 2005, section 3), from tables of scores."""

import numpy as np

from scrapy_gp4c.arrays import Floats
from scrapy_gp4c.search.measuring import inspection


def ranks(copies: Floats) -> Floats:
    """Rank of each page among the results of each query: ``[Q, P]``, infinite where it is no result.

    ``copies``: score of every page's copy, ``[Q, P]``, 0 unless every term occurs. Results are sorted by
    score, the highest first, then by page number.
    """
    order = np.argsort(-copies, axis=1, kind="stable")
    average = np.empty(copies.shape)
    np.put_along_axis(average, order, np.arange(1.0, copies.shape[1] + 1)[None, :], axis=1)
    average[copies <= 0.0] = np.inf
    return average


def usefulness(copies: Floats, live: Floats, frequency: Floats) -> float:
    """Expected usefulness to users of a search that ranks the copies of pages (equation 3).

    sum_q f_q sum_p I(rank of copy p) S(live p, q). ``copies``, ``live``: scores of the copies and of the live
    pages, ``[Q, P]``, 0 where a page does not exist; ``frequency``: f, of the queries, ``[Q]``.
    """
    return float(frequency @ (inspection(ranks(copies)) * live).sum(axis=1))


def quality(copies: Floats, live: Floats, frequency: Floats) -> float:
    """Search quality of the copies in [0, 1]: their usefulness divided by that of the live pages (eqs. 4, 5).

    Arguments as for `usefulness`; 1 where no page matches any query.
    """
    ideal = usefulness(live, live, frequency)
    return usefulness(copies, live, frequency) / ideal if ideal > 0.0 else 1.0


def quality_change(copies: Floats, live: Floats, frequency: Floats, page: int) -> float:
    """Change of the quality by refreshing one page's copy (Pandey & Olston 2005, eqs. 6, 7)."""
    refreshed = copies.copy()
    refreshed[:, page] = live[:, page]
    moved = inspection(ranks(refreshed)) - inspection(ranks(copies))
    ideal = usefulness(live, live, frequency)
    return float(frequency @ (moved * live).sum(axis=1)) / ideal if ideal > 0.0 else 0.0
