"""Reading a history: a file of any format, of contents too, or the store of a crawl."""

from __future__ import annotations

import hashlib
import logging
from pathlib import Path

from scrapy_gp4c.errors import HistoryError
from training.histories.contents import has_contents, read_contents
from training.histories.formats import read_file
from training.histories.history import ChangeHistory

logger = logging.getLogger(__name__)


def read_history(path: str | Path) -> ChangeHistory:
    """Read a history file (any format of `training.histories.formats`) or the store of a crawl (a directory).

    Of a file of contents (`training.histories.contents`) it takes which pages changed when.

    Pages with cycles that were not observed are left out, counted in `ChangeHistory.dropped_pages` and
    logged. What is read of a store, `training.store_history` says: pages observed in every cycle, but for
    a few errors that are imputed.

    Raises HistoryError, naming file, line, what was expected and what was found.
    """
    path = Path(path)
    if path.is_dir():
        from training.histories.from_store import read_store  # needs lmdb; a history file does not

        return read_store(path)
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
            "%s: left out %d pages that were not observed in every cycle; %d remain",
            path,
            history.dropped_pages,
            history.pages,
        )
    return history
