"""``scrapy gp4c store compact``: a store's file without the room that it does not use."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from scrapy_gp4c.commands.output import say
from scrapy_gp4c.store.opening import compact

if TYPE_CHECKING:
    from scrapy_gp4c.commands.project import Project

HELP = "give the room back that a spider's store does not use"


def add_options(parser: ArgumentParser) -> None:
    """There are none."""


def run(project: Project, options: Namespace) -> None:
    """Print the sizes before and after."""
    done = compact(project.store_path, project.sizes)
    say(f"{project.store_path}: {done.before / 1e6:,.1f} MB before, {done.after / 1e6:,.1f} MB now")
