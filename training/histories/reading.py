"""Readers of histories: files of any format, contents, stores of crawls; in longer cycles too."""

import hashlib
import logging
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.errors import HistoryError
from scrapy_gp4c.foreign_text import counted
from training.histories import claims
from training.histories.contents import ContentHistory, has_contents, read_contents
from training.histories.formats import read_file
from training.histories.from_store import read_with_report
from training.histories.history import ChangeHistory
from training.histories.offset_history import DAY_S, MAX_PAGES, is_offset_history, read_offset_history

logger = logging.getLogger(__name__)


def read_history(path: str | Path, cycle_s: int | None = None, max_pages: int | None = None) -> ChangeHistory:
    """Read a history from a file (any format of `training.histories.formats`, or contents) or a directory.

    A directory is the store of a crawl (see `training.histories.from_store`), or has irregular visits
    (`training.histories.offset_history`), to which alone ``cycle_s`` and ``max_pages`` belong. Pages with
    unobserved cycles are left out, counted in `ChangeHistory.dropped_pages` and logged. Raises HistoryError,
    naming file, line, what was expected and what was found.
    """
    path = Path(path)
    if is_offset_history(path):
        return read_offset_history(
            path, cycle_s or DAY_S, MAX_PAGES if max_pages is None else max_pages
        ).history
    if cycle_s is not None or max_pages is not None:
        raise HistoryError(
            f"--cycle and --max-pages go with directories of irregular visits, and {path} is none: it "
            "has the cycles that were recorded (--every takes several as one)"
        )
    if path.is_dir():
        history, report = read_with_report(path)
        report.log()
        return history
    if has_contents(path):
        return read_contents(path).history
    fields = read_file(path)
    with open(path, "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    try:
        history = ChangeHistory(**fields._asdict(), source=str(path), sha256=digest)
    except HistoryError as error:
        raise HistoryError(f"{path}: {error}") from None
    history = history.observed_pages()
    if history.dropped_pages:
        logger.warning(
            "%s: left out %s not observed in every cycle; %d remain",
            path,
            counted(history.dropped_pages, "page"),
            history.pages,
        )
    return history


def read_contents_or_history(path: str | Path) -> ContentHistory | ChangeHistory:
    """Read a history, with its texts if it is a file of contents. Raises HistoryError as `read_history`."""
    path = Path(path)
    return read_contents(path) if path.is_file() and has_contents(path) else read_history(path)


def coarsened(recorded: ContentHistory | ChangeHistory, every: int) -> ChangeHistory:
    """History in cycles ``every`` times as long as the recorded ones; a remainder at the end is cut.

    A page of contents has changed if its texts at both ends differ; of other histories, if it changed in any
    of the cycles. Raises HistoryError for too few cycles.
    """
    history = recorded.history if isinstance(recorded, ContentHistory) else recorded
    cycles = history.cycles // every if every > 0 else 0
    if cycles < 1:
        raise HistoryError(
            f"--every takes from 1 to {history.cycles:,} of the {history.cycles:,} cycles of "
            f"{history.source} as one; found {every}"
        )
    if isinstance(recorded, ContentHistory):
        ends = _texts(recorded)[recorded.version[: cycles * every + 1 : every]]
        changed: npt.NDArray[np.bool_] = np.not_equal(ends[1:], ends[:-1])
    else:
        parts = history.changed[: cycles * every].reshape(cycles, every, history.pages)
        changed = np.logical_or.reduce(parts, axis=1)
    dated = None if history.claims is None else claims.coarsened(history.claims, every)
    if dated is not None:
        dated = dated[dated["cycle"] <= cycles]
    return replace(history, changed=changed, observed=None, impact=None, claims=dated)


def _texts(contents: ContentHistory) -> npt.NDArray[np.int64]:
    """Number of each version's text, ``[versions]``: equal texts have equal numbers."""
    numbers: dict[str | None, int] = {}
    return np.array([numbers.setdefault(text, len(numbers)) for text in contents.texts], np.int64)
