"""What the addresses of pages tell: top-level domains, and how deep pages are."""

from __future__ import annotations

from scrapy_gp4c.errors import HistoryError
from training.histories.history import ChangeHistory


def addresses_of(history: ChangeHistory) -> list[str]:
    """Site and path of every page, without scheme, ``[P]``. Raises HistoryError where they have no names."""
    if history.page_names is None:
        raise HistoryError(f"{history.source} does not tell the names of its pages, which this needs")
    names = history.site_names or [str(number) for number in range(int(history.site.max()) + 1)]
    return [
        page.partition("://")[2] if "://" in page else f"{names[site]}/{page.lstrip('/')}"
        for site, page in zip(history.site.tolist(), history.page_names, strict=True)
    ]


def domain_of(address: str) -> str:
    """The top-level domain: what follows the last dot before the first slash (all of it without a dot)."""
    return address.partition("/")[0].rpartition(".")[2]


def depth_of(address: str) -> int:
    """Slashes, as Tan et al. 2007 count depth (section 4.3, Figure 4); those of a scheme are not there."""
    return address.count("/")
