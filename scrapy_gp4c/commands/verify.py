"""``scrapy gp4c verify``: whether a store is sound, and in words what is not."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from scrapy_gp4c.errors import StoreDamagedError
from scrapy_gp4c.store.opening import check

if TYPE_CHECKING:
    from scrapy_gp4c.commands.project import Project

HELP = "check a spider's store: every checksum and count"


def add_options(parser: ArgumentParser) -> None:
    """Add the options of this action."""
    parser.add_argument(
        "--deep", action="store_true", help="compute columns and directories anew from visits and URLs, too"
    )


def run(project: Project, options: Namespace) -> None:
    """Print what is damaged, or that nothing is; raises StoreDamagedError where something is."""
    path = project.store_path
    found = check(path, project.sizes, deep=options.deep)
    for problem in found:
        print(problem)
    if found:
        raise StoreDamagedError(
            f"the store {path} is damaged, in {len(found)} places. Try `scrapy gp4c repair`, or a backup"
        )
    print(f"{path} is sound")
