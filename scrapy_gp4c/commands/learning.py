"""Actions that run the package ``training`` on a spider's history: ``learn``, ``report``, ``cluster``, ...

A machine that only crawls need not have the libraries of that package: it is imported only when an action
needs it, and ``report`` and ``cluster`` run it in a child process.
"""

import importlib
import subprocess
import sys
import tempfile
import zipfile
from argparse import REMAINDER, ArgumentParser, Namespace
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import numpy as np
from scrapy.spiderloader import get_spider_loader
from scrapy.utils.conf import arglist_to_dict

from scrapy_gp4c.commands.action import JSON, Action, option, positive, say
from scrapy_gp4c.commands.project import Project
from scrapy_gp4c.errors import SettingsError, StoreError
from scrapy_gp4c.foreign_text import counted
from scrapy_gp4c.page_state.groupings import PageGroups
from scrapy_gp4c.store.records import StoredGroups

PACKAGES: Final = Path(__file__).parents[2]
"""Directory in which this package and ``training`` are installed."""


OF_SCRAPY: Final = ArgumentParser(add_help=False, allow_abbrev=False)
OF_SCRAPY.add_argument("-s", "--set", action="append", default=[])
"""Parser that takes Scrapy's option ``-s NAME=VALUE`` out of the arguments of a training command."""


@dataclass(frozen=True)
class TrainingCommand:
    """An action that runs a command of ``training`` with the store and settings of a spider."""

    name: str
    help: str
    defaults: tuple[str, ...] = ()
    """Options that are taken from the spider's settings unless the command line has them."""

    def add_options(self, parser: ArgumentParser) -> None:
        """Take all arguments after the action as they are, for the training command to parse."""
        parser.add_argument("-h", "--help", action="store_true")
        parser.add_argument("arguments", nargs=REMAINDER, metavar="...")

    def run(self, scrapy_settings: Any, options: Namespace) -> int:
        """Run the command; returns its exit code. Raises SettingsError, for a missing library too."""
        main = _main_of(self.name)
        if options.help or options.spider is None:
            return main(["--help"])
        history, (scrapy_options, arguments) = options.spider, OF_SCRAPY.parse_known_args(options.arguments)
        scrapy_settings.setdict(arglist_to_dict(scrapy_options.set), "cmdline")
        if history in get_spider_loader(scrapy_settings).list():
            project = Project(scrapy_settings, history)
            history = str(project.store_path)
            settings = project.settings
            values = {
                "--budget": f"{settings.budget}",
                "--policy": settings.policy.text,
                "--in-use": settings.score_function.text,
                "--site-share": f"{settings.site_share}",
            }
            for name in self.defaults:
                if not any(argument.partition("=")[0] == name for argument in arguments):
                    arguments = [name, values[name], *arguments]
        elif not Path(history).exists():
            raise SettingsError(f"expected a spider or a history; there is no spider and no file {history!r}")
        return main([history, *arguments])


def _main_of(name: str) -> Callable[[list[str]], int]:
    """Import ``main`` of a module of our ``training`` package, even if another has that name."""
    sys.path.insert(0, str(PACKAGES))
    try:
        package = importlib.import_module("training")
    finally:
        sys.path.remove(str(PACKAGES))
    if Path(package.__path__[0]).parent != PACKAGES:
        raise SettingsError(
            f"another package named training hides ours: {package.__path__[0]}. Rename it, or run "
            f"`python -m training.{name}` in another directory"
        )
    vars(package)["program"] = "scrapy gp4c "
    try:
        main: Callable[[list[str]], int] = importlib.import_module(f"training.{name}").main
    except ModuleNotFoundError as error:
        raise SettingsError(package.remedy_of(error) or f"{error}") from None
    return main


LEARN: Final = TrainingCommand(
    "learn", "learn a score function from the recorded history", ("--budget", "--policy", "--in-use")
)
EVALUATE: Final = TrainingCommand(
    "evaluate",
    "compare score functions on the recorded history",
    ("--budget", "--policy", "--in-use", "--site-share"),
)
BUDGET: Final = TrainingCommand("budget", "show which budget finds how many changes")
EXPERIMENT: Final = TrainingCommand("experiment", "repeat a published experiment on the history")


def _run_training(module: str, arguments: Sequence[str]) -> None:
    """Run a module of ``training`` in a child process; raises StoreError with its reason if it fails."""
    command = [sys.executable, "-m", f"training.{module}", *arguments]
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["no reason given"]
        raise StoreError(lines[-1].removeprefix("error: "))


def _check_installed(what: str, libraries: Sequence[str], remedy: str) -> None:
    """Raise SettingsError if one of `libraries` is missing; ``what`` needs them, ``remedy``: advice."""
    missing = [name for name in libraries if find_spec(name) is None]
    if missing:
        raise SettingsError(f"{what} {', '.join(missing)}, which this installation lacks: {remedy}")


@dataclass(frozen=True)
class Reported:
    """A report that was written."""

    file: str


def _report(project: Project, options: Namespace) -> Reported:
    """Write the report; raises SettingsError if libraries are missing, StoreError if making it fails."""
    remedy = (
        "pip install 'scrapy-gp4c[train]', or make the report on another machine with "
        f"`python -m training.report {project.store_path}`"
    )
    _check_installed("the report needs", ("deap", "jinja2", "rich", "scipy"), remedy)
    _run_training("report", [str(project.store_path), "-o", options.output])
    return Reported(options.output)


REPORT = Action(
    "make a report of a spider's crawl: one HTML file",
    _report,
    [
        option(
            "-o",
            "--output",
            metavar="FILE",
            default="report.html",
            help="write to FILE (default: %(default)s)",
        ),
        JSON,
    ],
    Reported,
    lambda reported, options: say(f"Report: {reported.file}"),
)


@dataclass(frozen=True)
class Clustering:
    """Counts of the clusters that were made."""

    pages: int
    """Number of pages in clusters."""
    unclustered: int
    """Pages without a stored description of their words and links."""
    clusters: int
    links: int
    """Links between pages of the same site."""


def _cluster(project: Project, options: Namespace) -> Clustering:
    """Cluster the store's pages by their descriptions, and write the clusters to the store.

    Raises SettingsError if scikit-learn is missing, StoreError if a cycle is open or no page is described.
    """
    _check_installed("clusters need", ("sklearn", "scipy"), "pip install 'scrapy-gp4c[cluster]'")
    with project.open_store() as store:
        store.check_may_cluster()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "groups.npz")
        numbers = ["--clusters", str(options.clusters), "--seed", str(options.seed)]
        output = ["-o", str(file), "--features", options.features]
        _run_training("cluster", [str(project.store_path), *output, *numbers])
        try:
            with np.load(file, allow_pickle=False) as arrays:
                groups = PageGroups.of_arrays(arrays)
        except (OSError, KeyError, ValueError, zipfile.BadZipFile) as error:
            raise StoreError(f"the clusters that were made cannot be read: {error}") from error
    with project.open_store(readonly=False) as store:
        store.put_clusters(StoredGroups(groups, groups.popularity()))
    clustered = int(groups.sizes.sum())
    return Clustering(clustered, len(groups.cluster) - clustered, len(groups.order), len(groups.links.source))


def _show_clusters(made: Clustering, options: Namespace) -> None:
    inside = f"{counted(made.pages, 'page')} in {counted(made.clusters, 'cluster')}"
    outside = counted(made.unclustered, "page is", "pages are")
    links = counted(made.links, "link")
    say(f"{inside}, {links} between pages; {outside} in no cluster: sampled, never followed")


CLUSTER = Action(
    "cluster a spider's pages by what they say and link to, for policies such as cb and lb",
    _cluster,
    [
        option("--clusters", type=positive, default=100, metavar="N", help="clusters to make (default: 100)"),
        option(
            "--features",
            metavar="NAMES",
            default="content,url,page,links",
            help="what pages are alike by: content, url, page, links, history (default: %(default)s)",
        ),
        option("--seed", type=int, default=0, metavar="N", help="seed of the clustering (default: 0)"),
        JSON,
    ],
    Clustering,
    _show_clusters,
)
