"""``scrapy gp4c restore``: a backup in the place of a store; the file that was there is kept beside it."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from scrapy_gp4c.store.opening import bring_back

if TYPE_CHECKING:
    from scrapy_gp4c.commands.project import Project

HELP = "put a backup in the place of a spider's store"


def add_options(parser: ArgumentParser) -> None:
    """Add the options of this action."""
    parser.add_argument("backup", metavar="BACKUP", help="a directory that `backup` has written")


def run(project: Project, options: Namespace) -> None:
    """Print what was done."""
    aside = bring_back(project.store_path, Path(options.backup), project.sizes)
    print(f"{project.store_path} is what {options.backup} has")
    if aside is not None:
        print(f"what was there is kept in {aside}")
