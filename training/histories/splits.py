"""Splits of a change history by the papers' protocols: training, validation and test."""

from collections.abc import Sequence
from typing import Final, Literal, NamedTuple, get_args

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.errors import HistoryError
from scrapy_gp4c.foreign_text import counted
from training.histories.history import ChangeHistory

Protocol = Literal["simple", "journal", "thesis"]
PROTOCOLS: Final[tuple[Protocol, ...]] = get_args(Protocol)
Division = Literal["pages", "sites", "directories"]
DIVISIONS: Final[tuple[Division, ...]] = get_args(Division)
FOLDS: Final = 5
TIME_PARTS: Final = 3


class HistorySplit(NamedTuple):
    """Training, validation and test history, with no page in common."""

    train: ChangeHistory
    validation: ChangeHistory
    test: ChangeHistory


def page_folds(pages: int, k: int, seed: int) -> list[npt.NDArray[np.int64]]:
    """Draw k folds of pages 0..pages - 1 at random, of equal size to within one: ascending int64 each.

    Raises HistoryError if there are fewer pages than folds.
    """
    if not 1 <= k <= pages:
        raise HistoryError(
            f"cannot divide {counted(pages, 'page')} into {k} folds, which need a page each: give a history "
            "of more pages"
        )
    order = np.random.default_rng(seed).permutation(pages)
    return [np.sort(fold) for fold in np.array_split(order, k)]


def site_folds(site: npt.NDArray[np.int32], k: int, seed: int) -> list[npt.NDArray[np.int64]]:
    """Draw k folds of whole sites; each is an array of pages, ascending int64.

    ``site``: of each page, ``[P]``. Each fold gets one of the k largest sites, drawn from `seed`, one of the
    k next largest, and so on (random blocks): folds have as many sites, to within one, and differ in pages
    by no more than the largest site. Raises HistoryError if there are fewer sites than folds.
    """
    sites, number, pages = np.unique(site, return_inverse=True, return_counts=True)
    if not 1 <= k <= len(sites):
        raise HistoryError(
            f"cannot divide {counted(len(sites), 'site')} into {k} parts of whole sites; divide single pages "
            "(--divide pages), or take a history of more sites"
        )
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(sites))
    order = order[np.argsort(-pages[order], kind="stable")]
    fold = np.empty(len(sites), np.int64)
    for first in range(0, len(sites), k):
        block = order[first : first + k]
        fold[block] = rng.permutation(k)[: len(block)]
    return [np.flatnonzero(fold[number] == fold_number) for fold_number in range(k)]


def units_of(history: ChangeHistory, division: Division) -> npt.NDArray[np.int32]:
    """Number of the site, or of the directory, of every page: int32 ``[P]``."""
    if division == "directories":
        return history.neighbours.groups.group.astype(np.int32)
    return history.site


def sampled_sites(site: npt.NDArray[np.int32], share: float, seed: Sequence[int]) -> npt.NDArray[np.int64]:
    """Draw whole sites (``site``: of each page, ``[P]``) at random, and return their pages, ascending.

    Every site has the same chance, `share`; at least one is drawn. The draw is systematic: from a random
    start, every 1 / `share`-th site in order of size, so that large and small ones come in their proportion.
    """
    rng = np.random.default_rng(seed)
    sites, pages = np.unique(site, return_counts=True)
    order = rng.permutation(len(sites))
    order = order[np.argsort(pages[order], kind="stable")]
    steps = np.floor(np.arange(len(sites) + 1) * share + rng.random())
    drawn = order[np.flatnonzero(np.diff(steps))]
    return np.flatnonzero(np.isin(site, sites[drawn if len(drawn) else order[-1:]]))


def time_parts(cycles: int, parts: int) -> list[slice]:
    """Cut all cycles into consecutive parts of equal length; the last one takes the remainder.

    Raises HistoryError if there are fewer cycles than parts.
    """
    if not 1 <= parts <= cycles:
        raise HistoryError(
            f"cannot divide {counted(cycles, 'cycle')} into {parts} parts: every part needs at least one"
        )
    length = cycles // parts
    return [slice(i * length, (i + 1) * length if i < parts - 1 else cycles) for i in range(parts)]


def protocol_splits(
    history: ChangeHistory,
    protocol: Protocol,
    *,
    seed: int = 0,
    warmup: int = 2,
    division: Division = "pages",
) -> list[HistorySplit]:
    """Split `history` by a protocol of the papers, pages in 5 folds drawn from `seed`.

    Each fold is the test split once. ``division``: whether folds are drawn of single ``pages``, of whole
    ``sites`` or ``directories`` (for terminals of related pages).

    * ``journal`` (journal section 5.2): training on three folds in the first third of the cycles,
      validation on the fourth fold in the second third, test on the fifth in the last; 5 rotations. With
      57 cycles these are the paper's days 1-19, 20-38 and 39-57.
    * ``thesis`` (thesis section 4.3): all cycles throughout; of the four folds that are not tested on, two
      train and two validate; 5 rotations.
    * ``simple``: the first rotation of ``journal``.

    Raises HistoryError for a history with fewer than 5 pages (5 sites), or so few cycles that a part has
    none left to score after `warmup`.
    """
    if protocol not in PROTOCOLS:
        raise HistoryError(f"there is no protocol {protocol!r}; there are: {', '.join(PROTOCOLS)}")
    parts = 1 if protocol == "thesis" else TIME_PARTS
    least = parts * (warmup + 1)
    if history.pages < FOLDS or history.cycles < least:
        raise HistoryError(
            f"the protocol {protocol!r} needs at least {FOLDS} pages and {least} cycles ({parts} x ({warmup} "
            f"of warm-up + 1)); {history.source} has {counted(history.pages, 'page')} and "
            f"{counted(history.cycles, 'cycle')}. Give a longer history: `scrapy gp4c status` says what a "
            "crawl still lacks"
        )
    if division != "pages":
        folds = site_folds(units_of(history, division), FOLDS, seed)
    else:
        folds = page_folds(history.pages, FOLDS, seed)
    first, second, third = time_parts(history.cycles, parts) * (TIME_PARTS // parts)
    training_folds = 2 if protocol == "thesis" else 3
    splits = []
    for shift in range(1 if protocol == "simple" else FOLDS):
        turned = folds[shift:] + folds[:shift]
        groups = turned[:training_folds], turned[training_folds:-1], turned[-1:]
        train, validation, test = (np.sort(np.concatenate(group)) for group in groups)
        splits.append(
            HistorySplit(
                history.take(train, first), history.take(validation, second), history.take(test, third)
            )
        )
    return splits
