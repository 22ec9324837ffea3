"""Parts of a change history to learn, to choose and to test on: the papers' protocols."""

from __future__ import annotations

from typing import Final, Literal, NamedTuple, get_args

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.errors import HistoryError
from training.histories.history import ChangeHistory

Protocol = Literal["simple", "journal", "thesis"]
PROTOCOLS: Final[tuple[Protocol, ...]] = get_args(Protocol)
FOLDS: Final = 5
TIME_PARTS: Final = 3


class Split(NamedTuple):
    """Three parts of one history with no page in common."""

    train: ChangeHistory
    validation: ChangeHistory
    test: ChangeHistory


def page_folds(pages: int, k: int, seed: int) -> list[npt.NDArray[np.int64]]:
    """Divide pages 0..pages - 1 at random into k folds of equal size, to within one: ascending int64.

    Raises HistoryError if there are fewer pages than folds.
    """
    if not 1 <= k <= pages:
        raise HistoryError(f"cannot divide {pages:,} pages into {k} folds: every fold needs at least a page")
    order = np.random.default_rng(seed).permutation(pages)
    return [np.sort(fold) for fold in np.array_split(order, k)]


def time_parts(cycles: int, parts: int) -> list[slice]:
    """Divide cycles into consecutive parts of equal length; the last one takes the remainder.

    Raises HistoryError if there are fewer cycles than parts.
    """
    if not 1 <= parts <= cycles:
        raise HistoryError(f"cannot divide {cycles} cycles into {parts} parts: every part needs at least one")
    length = cycles // parts
    return [slice(i * length, (i + 1) * length if i < parts - 1 else cycles) for i in range(parts)]


def protocol_splits(
    history: ChangeHistory, protocol: Protocol, *, seed: int = 0, warmup: int = 2
) -> list[Split]:
    """Splits of `history` by a protocol, pages in 5 folds drawn from `seed`; each fold is tested on once.

    * ``journal`` (journal section 5.2): training on three folds in the first third of the cycles,
      validation on the fourth fold in the second third, test on the fifth in the last; 5 rotations. With
      57 cycles these are the paper's days 1-19, 20-38 and 39-57.
    * ``thesis`` (thesis section 4.3): all cycles throughout; of the four folds that are not tested on, two
      train and two validate; 5 rotations.
    * ``simple``: the first rotation of ``journal``.

    Raises HistoryError for a history with fewer than 5 pages, or so few cycles that a part has none
    left to score after `warmup`.
    """
    if protocol not in PROTOCOLS:
        raise HistoryError(f"there is no protocol {protocol!r}; there are: {', '.join(PROTOCOLS)}")
    parts = 1 if protocol == "thesis" else TIME_PARTS
    least = parts * (warmup + 1)
    if history.pages < FOLDS or history.cycles < least:
        raise HistoryError(
            f"the protocol {protocol!r} needs at least {FOLDS} pages and {least} cycles ({parts} x ({warmup} "
            f"of warm-up + 1)); {history.source} has {history.pages:,} pages and {history.cycles} cycles"
        )
    folds = page_folds(history.pages, FOLDS, seed)
    first, second, third = time_parts(history.cycles, parts) * (TIME_PARTS // parts)
    training_folds = 2 if protocol == "thesis" else 3
    splits = []
    for shift in range(1 if protocol == "simple" else FOLDS):
        turned = folds[shift:] + folds[:shift]
        groups = turned[:training_folds], turned[training_folds:-1], turned[-1:]
        train, validation, test = (np.sort(np.concatenate(group)) for group in groups)
        splits.append(
            Split(history.take(train, first), history.take(validation, second), history.take(test, third))
        )
    return splits
