"""Histories in longer cycles than they were recorded in: what a crawl would see that came every n-th time."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.errors import HistoryError
from training.histories.contents import ContentHistory, has_contents, read_contents
from training.histories.history import ChangeHistory
from training.histories.reading import read_history


def read_longer(path: str | Path, every: int) -> ChangeHistory:
    """Read a history with every so many of its cycles as one, see `longer`; errors too as `read_history`."""
    return longer(read_whole(path), every)


def read_whole(path: str | Path) -> ContentHistory | ChangeHistory:
    """Read a history, with its texts if it is a file of contents. Raises HistoryError as `read_history`."""
    path = Path(path)
    return read_contents(path) if path.is_file() and has_contents(path) else read_history(path)


def longer(whole: ContentHistory | ChangeHistory, every: int) -> ChangeHistory:
    """Take every so many cycles of a history as one; cycles that are left over at the end are cut.

    A page of contents has changed if its texts at both ends differ; of other histories, if it changed in any
    of the cycles. Raises HistoryError for fewer cycles than one takes.
    """
    history = whole.history if isinstance(whole, ContentHistory) else whole
    cycles = history.cycles // every if every > 0 else 0
    if cycles < 1:
        raise HistoryError(
            f"--every takes from 1 to {history.cycles:,} of the {history.cycles:,} cycles of "
            f"{history.source} as one; found {every}"
        )
    if isinstance(whole, ContentHistory):
        ends = _texts(whole)[whole.version[: cycles * every + 1 : every]]
        changed: npt.NDArray[np.bool_] = np.not_equal(ends[1:], ends[:-1])
    else:
        parts = history.changed[: cycles * every].reshape(cycles, every, history.pages)
        changed = np.logical_or.reduce(parts, axis=1)
    return replace(history, changed=changed, observed=None, impact=None)


def _texts(contents: ContentHistory) -> npt.NDArray[np.int64]:
    """Number of each version's text, ``[versions]``: equal texts have equal ones."""
    numbers: dict[str | None, int] = {}
    return np.array([numbers.setdefault(text, len(numbers)) for text in contents.texts], np.int64)
