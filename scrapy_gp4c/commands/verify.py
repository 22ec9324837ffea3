"""``scrapy gp4c verify``: check a store and name what is damaged."""

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
    """Print each damaged value, or that the store is sound; raises StoreDamagedError for a damaged one."""
    path = project.store_path
    problems = check(path, project.sizes, deep=options.deep)
    for problem in problems:
        print(problem)
    if problems:
        raise StoreDamagedError(
            f"the store {path} is damaged, in {len(problems)} places. Bring back a backup (`scrapy gp4c "
            "restore SPIDER BACKUP`), or what can still be read (`scrapy gp4c restore SPIDER --from-damaged`)"
        )
    print(f"{path} is sound")
