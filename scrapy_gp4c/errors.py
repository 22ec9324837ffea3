"""Errors that scrapy-gp4c raises on bad input, in one tree.

A message names the thing that is wrong (a setting, a file and line, a part of an expression), says what was
expected and what was found, and ends with the remedy.
"""

from collections.abc import Iterable
from difflib import get_close_matches

from scrapy_gp4c.foreign_text import printable


class Gp4cError(Exception):
    """Base class: catch it to catch every error of bad input that this project raises."""

    has_lines = False
    """Whether messages may have several lines; if not, line ends in them (of foreign texts) are quoted."""

    def __str__(self) -> str:
        text = super().__str__()
        lines = text.split("\n") if self.has_lines else [text]
        return "\n".join(map(printable, lines))


class SettingsError(Gp4cError, ValueError):
    """A ``GP4C_*`` setting has a value that cannot be used."""

    has_lines = True


class ExpressionError(Gp4cError, ValueError):
    """A text is not an expression of the score language (see ``scrapy_gp4c.scoring.expression``)."""

    has_lines = True


class ScoreError(Gp4cError, ValueError):
    """A score function cannot be loaded: unknown name, damaged score file, wrong callable."""

    has_lines = True


class PolicyError(Gp4cError, ValueError):
    """A policy cannot be loaded, or it broke its contract."""

    has_lines = True


class StoreError(Gp4cError, OSError):
    """The page store cannot be used; what was committed to it is still there."""


class StoreInUseError(StoreError):
    """Another process writes to the store."""


class StoreDamagedError(StoreError):
    """The directory holds no readable store: foreign file, unknown schema version, damage."""

    what = ""
    """Damaged part, in a few words."""


class CrawlFailedError(StoreError):
    """At least one crawl of ``scrapy gp4c monitor`` failed."""


class StoreFullError(StoreError):
    """The disk (or the memory map) has no room for another commit."""


class SearchIndexError(StoreError):
    """The search index beside a page store cannot be used; the store can."""


class ArchiveError(Gp4cError, OSError):
    """The archive of texts cannot be used; the page store is as it was."""


class HistoryError(Gp4cError, ValueError):
    """A recorded change history is malformed or too small for what was asked of it."""


class LearningError(Gp4cError, ValueError):
    """Learning cannot start, or cannot go on, with the arguments or histories that it got."""

    has_lines = True


class UndecidedError(LearningError):
    """All candidates of learning scored the same, so that none can be chosen."""


class ImportFileError(Gp4cError, ValueError):
    """A file given to ``scrapy gp4c import`` has a line that cannot be imported."""


class QueryLogError(Gp4cError, ValueError):
    """A log of queries cannot be used, or is missing where something is measured by it."""


class ClaimFileError(Gp4cError, ValueError):
    """A sitemap or feed cannot be read; the crawl goes on without its claims."""


class NoticeError(Gp4cError, OSError):
    """A notice could not be sent; it waits in the outbox."""

    has_lines = True


class FetcherError(Gp4cError, RuntimeError):
    """A fetcher could not fetch a page, or there is no fetcher."""


class CallbackError(Gp4cError, RuntimeError):
    """A callback of the spider failed on a fetcher."""

    has_lines = True


class FetchError(Gp4cError):
    """`scrapy gp4c text` cannot fetch the page that it is to show."""


class ForgetError(Gp4cError):
    """`scrapy gp4c forget` was called without the pages to forget, or without the confirmation."""


class UnknownPageError(Gp4cError):
    """No page of the store has this URL."""

    has_lines = True


def did_you_mean(unknown: str, known: Iterable[str]) -> str:
    """Return `` (did you mean change_rate?)`` for a mistyped name, by the nearest known one, or ""."""
    by_lower = {name.lower(): name for name in known}
    near = get_close_matches(unknown.lower(), by_lower, 1)
    return f" (did you mean {by_lower[near[0]]}?)" if near else ""
