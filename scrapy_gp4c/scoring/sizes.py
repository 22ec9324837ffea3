"""Size classes of pages at their first fetch, and how much more often pages of a class change than all.

Some sizes change more than others: an index grows with every entry, a form stays. A crawl learns that from
its own visits, for all pages of a class at once, long before it knows the rate of each page.
"""

from typing import Final

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.arrays import Floats
from scrapy_gp4c.scoring.expression import Terminal, of_column

COLUMNS: Final[dict[str, str]] = {"size": "u1"}
"""Column name -> little-endian dtype: class of the body at first sight, see `size_class`; 0: unknown."""
_LEAST_BYTES: Final = np.ceil(2.0 ** (np.arange(64) / 2)).astype(np.int64)
"""Least bytes of a body in class 1, 2, ..."""
CLASSES: Final = len(_LEAST_BYTES) + 1
"""Number of classes, with class 0 of unknown sizes."""
PRIOR_CHANGES: Final = 3.0
"""Changes, found and expected, that a lift begins with: a class with few visits has a lift near 1."""


def size_class(size_bytes: npt.ArrayLike) -> npt.NDArray[np.uint8]:
    """Return the size class of each body, in the shape of ``size_bytes``; 0 for 0 bytes.

    Class c has from 2**((c - 1) / 2) to 2**(c / 2) bytes.
    """
    return np.searchsorted(_LEAST_BYTES, np.asarray(size_bytes, np.int64), side="right").astype(np.uint8)


def lifts(expected: Floats, cycles: Floats, crawl_rate: float) -> Floats:
    """Ratio of each class's changes to those expected at the rate of all pages: ``[CLASSES]``.

    ``expected``, ``cycles``: sums of the columns E and T by class, ``[CLASSES]``; ``crawl_rate``: changes per
    cycle of all pages. 1 for unknown sizes.
    """
    lift = (expected + PRIOR_CHANGES) / (cycles * crawl_rate + PRIOR_CHANGES)
    lift[0] = 1.0
    return lift


TERMINALS: Final = {
    "size_lift": Terminal(
        ("size", "size_lift"),
        of_column("size_lift"),
        "changes of pages of its size at first sight, by those expected at the rate of all pages",
    ),
}
UNSIZED: Final[dict[str, float]] = {"size_lift": 1.0}
"""Terminal -> its value for pages of unknown size."""
