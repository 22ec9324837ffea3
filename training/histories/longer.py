"""Histories in longer cycles than they were recorded in: what a crawl would see that came every n-th time."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.errors import HistoryError
from training.histories.contents import ContentHistory, has_contents, read_contents
from training.histories.history import ChangeHistory
from training.histories.reading import read_history


def read_longer(path: str | Path, every: int) -> ChangeHistory:
    """Read a history with every so many of its cycles as one; cycles that are left over at the end are cut.

    A page of a file of contents has changed if its texts at both ends differ; of other histories, if it
    changed in any of the cycles. Raises HistoryError as `read_history`, and for fewer cycles than one takes.
    """
    path = Path(path)
    contents = read_contents(path) if path.is_file() and has_contents(path) else None
    history = read_history(path) if contents is None else contents.history
    cycles = history.cycles // every if every > 0 else 0
    if cycles < 1:
        raise HistoryError(
            f"--every takes from 1 to {history.cycles:,} of the {history.cycles:,} cycles of {path} as one; "
            f"found {every}"
        )
    if contents is None:
        whole = history.changed[: cycles * every]
        changed: npt.NDArray[np.bool_] = np.logical_or.reduce(
            whole.reshape(cycles, every, history.pages), axis=1
        )
    else:
        ends = _texts(contents)[contents.version[: cycles * every + 1 : every]]
        changed = np.not_equal(ends[1:], ends[:-1])
    return ChangeHistory(
        changed=changed,
        site=history.site,
        weight=history.weight,
        site_names=history.site_names,
        page_names=history.page_names,
        key=history.key,
        source=history.source,
        sha256=history.sha256,
        dropped_pages=history.dropped_pages,
    )


def _texts(contents: ContentHistory) -> npt.NDArray[np.int64]:
    """Number of each version's text, ``[versions]``: equal texts have equal ones."""
    numbers: dict[str | None, int] = {}
    return np.array([numbers.setdefault(text, len(numbers)) for text in contents.texts], np.int64)
