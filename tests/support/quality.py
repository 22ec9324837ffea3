"""Quality of a repository by its definition, as far as only tests need it."""

from scrapy_gp4c.arrays import Floats
from scrapy_gp4c.search.measuring import inspection, ranks, usefulness


def quality_change(copies: Floats, live: Floats, frequency: Floats, page: int) -> float:
    """Change of the quality by refreshing one page's copy (Pandey & Olston 2005, eqs. 6, 7)."""
    refreshed = copies.copy()
    refreshed[:, page] = live[:, page]
    moved = inspection(ranks(refreshed)) - inspection(ranks(copies))
    ideal = usefulness(live, live, frequency)
    return float(frequency @ (moved * live).sum(axis=1)) / ideal if ideal > 0.0 else 0.0
