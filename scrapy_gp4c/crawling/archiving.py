"""The archive of a crawl: texts of the last versions of pages.

If it cannot be used, the crawl goes on without it, after one warning.
"""

from collections.abc import Callable
from typing import Final, TypeVar

from scrapy import Spider

from scrapy_gp4c.archive.differences import count_words, differing_words
from scrapy_gp4c.archive.texts import Texts, Version, require
from scrapy_gp4c.errors import ArchiveError
from scrapy_gp4c.foreign_text import foreign_safe_logger
from scrapy_gp4c.page_state.columns import PageRow
from scrapy_gp4c.page_state.rules import Distance
from scrapy_gp4c.settings import Settings
from scrapy_gp4c.store.opening import ARCHIVE, Store

logger = foreign_safe_logger(__name__)

PreviousText = Callable[[], str | None]
Result = TypeVar("Result")


def no_text() -> str | None:
    """Return None, as the previous text of a page without one."""
    return None


def is_far(least: Distance | None, before: str | None, text: str | None) -> bool:
    """Whether two texts differ by `least` words or more; True without a text, or a limit in words."""
    if least is None or not least.counts_words or before is None or text is None:
        return True
    return least.is_reached(differing_words(before, text), count_words(text))


VERSIONS: Final = 2
"""Number of a page's versions that are kept: a change is the difference of the last two."""
ARCHIVE_BYTES: Final = 2**30
"""Largest size of the archive's file; beyond it, the oldest versions are deleted."""


class Archive:
    """Archive of page texts in a run; after an error it does nothing any more."""

    def __init__(self, texts: Texts, spider: Spider) -> None:
        self._texts: Texts | None = texts
        self._spider = spider

    def close(self) -> None:
        if self._texts is not None:
            self._texts.close()
            self._texts = None

    def lacks(self, row: PageRow) -> bool:
        """Whether an archive in use lacks the text of a page's last version; ``row``: the page's columns."""
        frame = self._frame(row)
        return self._texts is not None and frame is None

    def take(self, row: PageRow, outcome: str, cycle: int, fingerprint: int, text: str | None) -> None:
        """Store the text of a visit.

        ``row``: columns of the page before it; ``text``: None where the page's bytes are those of its copy,
        or are no text.
        """
        frame = self._frame(row) if row.has_copy else None
        if text and (outcome != "unchanged" or frame is None):
            found_cycle = row.found_cycle if outcome == "unchanged" else cycle
            before = None if frame is None else row.found_cycle
            version = Version(row.key, found_cycle, fingerprint, before, text)
            self._use(lambda texts: texts.add(version))
        elif frame is not None and outcome == "unchanged" and fingerprint != row.fingerprint:
            self._use(lambda texts: texts.set_latest(row.key, row.found_cycle, fingerprint))

    def previous(self, row: PageRow) -> PreviousText:
        """Return a function that reads the text of a page's copy; ``row``: the page's columns."""

        def text() -> str | None:
            frame = self._frame(row)
            return None if frame is None else self._use(lambda texts: texts.text(frame))

        return text if row.has_copy else no_text

    def _frame(self, row: PageRow) -> bytes | None:
        return self._use(lambda texts: texts.frame(row.key, row.found_cycle, row.fingerprint))

    def _use(self, call: Callable[[Texts], Result]) -> Result | None:
        """Return the result of `call`; None, and one warning, where the archive cannot be used any more."""
        if self._texts is None:
            return None
        try:
            return call(self._texts)
        except ArchiveError as error:
            logger.warning("No texts are kept from now on: %s", error, extra={"spider": self._spider})
            self.close()
            return None


def open_archive(store: Store, settings: Settings, spider: Spider) -> Archive | None:
    """Open the archive in a store's directory; None where settings want none, or it cannot be used.

    Raises ArchiveError if the library for compression is not installed.
    """
    if not settings.archive:
        return None
    require()
    try:
        texts = Texts(store.path / ARCHIVE, VERSIONS, ARCHIVE_BYTES)
    except ArchiveError as error:
        logger.warning("No texts are kept: %s", error, extra={"spider": spider})
        return None
    return Archive(texts, spider)
