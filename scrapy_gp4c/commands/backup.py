"""``scrapy gp4c store backup``: a consistent, checked copy of a store, also while a crawl runs."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from scrapy_gp4c.commands.output import positive, say
from scrapy_gp4c.store.opening import backup

if TYPE_CHECKING:
    from scrapy_gp4c.commands.project import Project

HELP = "copy a spider's store into a directory, also while a crawl runs"


def add_options(parser: ArgumentParser) -> None:
    """Add the options of this action."""
    parser.add_argument("directory", metavar="DIR", help="gets a directory with the time in its name")
    parser.add_argument(
        "--keep",
        type=positive,
        metavar="N",
        help="newest backups of this store to keep in DIR (default: all)",
    )


def run(project: Project, options: Namespace) -> None:
    """Print where the backup is."""
    say(backup(project.store_path, Path(options.directory), options.keep, project.sizes))
