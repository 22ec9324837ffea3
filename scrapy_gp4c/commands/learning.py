"""``scrapy gp4c learn``, ``evaluate``, ``budget``, ``experiment``: commands on a spider's history."""

from __future__ import annotations

import importlib
import sys
from argparse import REMAINDER, ArgumentParser, Namespace
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from scrapy.spiderloader import get_spider_loader

from scrapy_gp4c.commands.project import Project
from scrapy_gp4c.errors import SettingsError

PACKAGES: Final = Path(__file__).parents[2]
"""Directory in which this package and ``training`` are installed."""


def _of_crawl(project: Project) -> dict[str, str]:
    """Options that a replay takes from the crawl's settings."""
    settings = project.settings
    return {"--budget": f"{settings.budget}", "--policy": settings.policy.text}


def _with_function_in_use(project: Project) -> dict[str, str]:
    return {**_of_crawl(project), "--in-use": project.settings.score_function.text}


def _with_site_share(project: Project) -> dict[str, str]:
    return {**_with_function_in_use(project), "--site-share": f"{project.settings.site_share}"}


@dataclass(frozen=True)
class TrainingCommand:
    """A command of the training package; a spider's name stands for its store and settings."""

    name: str
    HELP: str
    defaults_of: Callable[[Project], dict[str, str]]
    """Options from the settings of the spider; options of the command line overrule them."""

    def add_options(self, parser: ArgumentParser) -> None:
        """Leave everything after the action to the command itself."""
        parser.add_argument("-h", "--help", action="store_true")
        parser.add_argument("arguments", nargs=REMAINDER, metavar="...")

    def run(self, scrapy_settings: Any, options: Namespace) -> int:
        """Run the command; returns its exit code. Raises SettingsError, for a missing library too."""
        main = _main_of(self.name)
        if options.help or options.spider is None:
            return main(["--help"])
        history, arguments = options.spider, options.arguments
        if history in get_spider_loader(scrapy_settings).list():
            project = Project(scrapy_settings, history)
            history = str(project.store_path)
            for option, value in self.defaults_of(project).items():
                if not any(one.partition("=")[0] == option for one in arguments):
                    arguments = [option, value, *arguments]
        elif not Path(history).exists():
            raise SettingsError(f"expected a spider or a history; there is no spider and no file {history!r}")
        return main([history, *arguments])


def _main_of(name: str) -> Callable[[list[str]], int]:
    """The ``main`` of a module of our ``training`` package, whatever else has that name on the path."""
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
    try:
        main: Callable[[list[str]], int] = importlib.import_module(f"training.{name}").main
    except ModuleNotFoundError as error:
        raise SettingsError(package.remedy_of(error) or f"{error}") from None
    return main


LEARN: Final = TrainingCommand(
    "learn", "learn a score function from the recorded history", _with_function_in_use
)
EVALUATE: Final = TrainingCommand(
    "evaluate", "compare score functions on the recorded history", _with_site_share
)
BUDGET: Final = TrainingCommand("budget", "show which budget finds how many changes", lambda project: {})
EXPERIMENT: Final = TrainingCommand(
    "experiment", "repeat a published experiment on the history", lambda project: {}
)
