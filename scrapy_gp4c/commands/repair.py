"""``scrapy gp4c repair``: a store made of what a damaged one still has; that is kept beside it."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from scrapy_gp4c.store.opening import repair

if TYPE_CHECKING:
    from scrapy_gp4c.commands.project import Project

HELP = "build a damaged store anew from what it still has"


def add_options(parser: ArgumentParser) -> None:
    """There are none."""


def run(project: Project, options: Namespace) -> None:
    """Print what is lost, and where the damaged file is."""
    done = repair(project.store_path, project.sizes, lambda request: project.page(request)[0])
    for lost in done.lost:
        print(f"lost: {lost}")
    print(f"{project.store_path} is sound{'' if done.lost else ', and nothing is lost'}")
    print(f"what was there is kept in {done.aside}")
