"""Weights in the fourth field of the lines of a TSV history, which is JSON, as a store's export has it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, cast

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.errors import HistoryError
from scrapy_gp4c.store.weight_text import WeightState, weight_of
from training.histories.history import ChangeHistory

_NAMED: Final = b'"weight"'


def weights_of(path: Path, rows: Sequence[tuple[int, list[bytes]]]) -> npt.NDArray[np.float64]:
    """Weights of pages by the numbers and fields of their lines, 1 where these say none: ``[rows]``.

    Raises HistoryError, which names the line, for what is no weight.
    """
    found = np.ones(len(rows))
    for place, (line, row) in enumerate(rows):
        if len(row) > 3 and _NAMED in row[3]:
            try:
                state = json.loads(row[3])
                found[place] = weight_of(cast(WeightState, state if isinstance(state, dict) else {}))
            except (ValueError, RecursionError) as error:
                raise HistoryError(f"{path}, line {line}: {error}. Correct its fourth field.") from None
    return found


def weight_field(history: ChangeHistory, page: int) -> Iterator[bytes]:
    """The fourth field of a page's line, if it weighs other than 1."""
    if history.weight is not None and history.weight[page] != 1.0:
        yield json.dumps({"first_cycle": 1, "weight": float(history.weight[page])}).encode()
