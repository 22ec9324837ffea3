"""``scrapy gp4c report``: the story of a crawl as one HTML file.

The report is made by the training package, which a machine that only crawls need not have: it runs as a
process of its own, so that nothing here imports it.
"""

from __future__ import annotations

import subprocess
import sys
from argparse import ArgumentParser, Namespace
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from scrapy_gp4c.commands.output import add_json, print_json, say
from scrapy_gp4c.errors import SettingsError, StoreError

if TYPE_CHECKING:
    from scrapy_gp4c.commands.project import Project

HELP = "make a report of a spider's crawl: one HTML file"
NEEDED: Final = ("deap", "jinja2", "rich", "scipy")
"""Libraries of the extra ``train`` that the report takes."""


@dataclass(frozen=True)
class Reported:
    """A report that was written."""

    file: str


DOCUMENT = Reported
"""Output of ``--json``."""


def add_options(parser: ArgumentParser) -> None:
    """Add the options of this action."""
    parser.add_argument(
        "-o", "--output", metavar="FILE", default="report.html", help="write to FILE (default: %(default)s)"
    )
    add_json(parser.add_argument)


def run(project: Project, options: Namespace) -> None:
    """Write the report. Raises SettingsError where the extra is missing, StoreError where making it fails."""
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        raise SettingsError(
            f"the report needs {', '.join(missing)}, which this installation lacks: "
            "pip install 'scrapy-gp4c[train]', or make the report on another machine with "
            f"`python -m training.report {project.store_path}`"
        )
    command = [sys.executable, "-m", "training.report", str(project.store_path), "-o", options.output]
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["no reason given"]
        raise StoreError(lines[-1].removeprefix("error: "))
    if options.json:
        print_json(Reported(options.output))
    else:
        say(f"Report: {options.output}")
