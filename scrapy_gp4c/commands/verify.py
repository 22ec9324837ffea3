"""``scrapy gp4c store verify``: check a store, its search index and its archive, and name what is damaged."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from scrapy_gp4c.archive.texts import archive_problem
from scrapy_gp4c.commands.output import say
from scrapy_gp4c.errors import ArchiveError, SearchIndexError, StoreDamagedError
from scrapy_gp4c.search.index import check_index
from scrapy_gp4c.store.opening import ARCHIVE, SEARCH_INDEX, verify

if TYPE_CHECKING:
    from scrapy_gp4c.commands.project import Project

HELP = "check a spider's store, search index and archive: every checksum and count"


def add_options(parser: ArgumentParser) -> None:
    """Add the options of this action."""
    parser.add_argument(
        "--deep", action="store_true", help="compute columns and directories anew from visits and URLs, too"
    )


def run(project: Project, options: Namespace) -> None:
    """Print each damaged value, or that the store is sound.

    Raises StoreDamagedError for a damaged store, else SearchIndexError or ArchiveError.
    """
    path = project.store_path
    verification = verify(path, project.sizes, deep=options.deep)
    for problem in verification.problems:
        say(problem)
    if verification.problems:
        raise StoreDamagedError(
            f"the store {path} is damaged, in {len(verification.problems)} places. Bring back a backup "
            "(`scrapy gp4c store restore SPIDER BACKUP`), or what can still be read "
            "(`scrapy gp4c store restore SPIDER --from-damaged`)"
        )
    say(f"{path} is sound")
    if verification.under_way:
        say(verification.under_way + (", after which --deep can be given again" if options.deep else ""))
    if problem := check_index(path / SEARCH_INDEX):
        raise SearchIndexError(problem)
    if problem := archive_problem(path / ARCHIVE, deep=True):
        raise ArchiveError(problem)
