"""Sizes of pages at first sight, in classes, and how much more often pages of a class change than all.

Some sizes change more than others: an index grows with every entry, a form stays. A crawl learns that from
its own visits, for all pages of a class at once, long before it knows the rate of each page.
"""

from collections.abc import Callable, Mapping
from typing import Final

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.arrays import Array, Floats

COLUMNS: Final[dict[str, str]] = {"size": "u1"}
"""Column name -> little-endian dtype: class of the body at first sight, see `size_class`; 0: unknown."""
_LEAST_BYTES: Final = np.ceil(2.0 ** (np.arange(64) / 2)).astype(np.int64)
"""Bytes from which on a body is in class 1, 2, ..."""
CLASSES: Final = len(_LEAST_BYTES) + 1
"""Number of classes, with that of unknown sizes."""
PRIOR_CHANGES: Final = 3.0
"""Changes, found and expected, that a lift begins with: a class with few visits has a lift near 1."""


def size_class(size_bytes: npt.ArrayLike) -> npt.NDArray[np.uint8]:
    """Classes of sizes, half a power of two each, shaped as ``size_bytes``, whole numbers; 0 for no bytes.

    Class c holds 2**((c - 1) / 2) to 2**(c / 2) bytes.
    """
    return np.searchsorted(_LEAST_BYTES, np.asarray(size_bytes, np.int64), side="right").astype(np.uint8)


def lifts(expected: Floats, cycles: Floats, crawl_rate: float) -> Floats:
    """Changes of the pages of each class by those expected at the rate of all pages: ``[CLASSES]``.

    ``expected``, ``cycles``: sums of the columns E and T, ``[CLASSES]``. 1 for unknown sizes.
    """
    lift = (expected + PRIOR_CHANGES) / (cycles * crawl_rate + PRIOR_CHANGES)
    lift[0] = 1.0
    return lift


TERMINALS: Final[dict[str, tuple[tuple[str, ...], Callable[[Mapping[str, Array], int], Array], str]]] = {
    "size_lift": (
        ("size", "size_lift"),
        lambda s, cycle: s["size_lift"],
        "changes of pages of its size at first sight, by those expected at the rate of all pages",
    ),
}
"""Terminal -> columns, formula, meaning: see `scrapy_gp4c.scoring.terminals.Terminal`."""
UNSIZED: Final[dict[str, float]] = {"size_lift": 1.0}
"""Terminal -> number that has its value where no size is known."""
