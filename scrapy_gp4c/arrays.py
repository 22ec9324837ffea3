"""Types of numpy arrays for all packages, and a mapping of columns that are computed when they are read."""

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]


class LazyColumns(Mapping[str, Array]):
    """Mapping of column names to arrays; a function computes each array anew at every read."""

    def __init__(self, names: Collection[str], column: Callable[[str], Array]) -> None:
        self._names, self._column = names, column

    def __getitem__(self, name: str) -> Array:
        if name not in self._names:
            raise KeyError(name)
        return self._column(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)
