"""``scrapy gp4c ACTION SPIDER``: look into a spider's page store, ask what it would do, move its history."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any, ClassVar

from scrapy.commands import ScrapyCommand
from scrapy.exceptions import UsageError

from scrapy_gp4c.commands import (
    backup,
    changes,
    cluster,
    compact,
    export,
    failing,
    feed,
    fetcher,
    forget,
    hint,
    history,
    import_file,
    metrics,
    monitor,
    notify,
    pages,
    plan,
    report,
    restore,
    search,
    status,
    stores,
    text,
    verify,
    why,
)  # fmt: skip
from scrapy_gp4c.commands.project import Project
from scrapy_gp4c.errors import Gp4cError
from scrapy_gp4c.scoring.functions import ScoreParser

if TYPE_CHECKING:
    import argparse

ACTIONS = {
    "status": status,
    "stores": stores,
    "pages": pages,
    "changes": changes,
    "history": history,
    "failing": failing,
    "plan": plan,
    "why": why,
    "text": text,
    "search": search,
    "export": export,
    "import": import_file,
    "hint": hint,
    "monitor": monitor,
    "report": report,
    "feed": feed,
    "metrics": metrics,
    "notify": notify,
    "cluster": cluster,
    "verify": verify,
    "backup": backup,
    "restore": restore,
    "forget": forget,
    "compact": compact,
    "fetcher": fetcher,
}
IN_PLACE_OF_SETTINGS = {"budget": "GP4C_BUDGET", "score": "GP4C_SCORE_FUNCTION"}
"""Option of an action -> the setting whose place it takes."""


class Command(ScrapyCommand):
    """The ``gp4c`` command; each action is a module with ``HELP``, ``add_options`` and ``run``."""

    requires_project = True
    requires_crawler_process = False
    default_settings: ClassVar[dict[str, Any]] = {"LOG_ENABLED": False}

    def syntax(self) -> str:
        """Return the usage line."""
        return f"{{{','.join(ACTIONS)}}} SPIDER [options]"

    def short_desc(self) -> str:
        """Return what ``scrapy`` lists."""
        return "Look into the page store of a spider, export and import its history"

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        """Give every action its own options and Scrapy's global ones (which follow the action)."""
        actions = parser.add_subparsers(
            dest="action", required=True, metavar="ACTION", parser_class=ScoreParser
        )
        for name, module in ACTIONS.items():
            action = actions.add_parser(
                name, help=module.HELP, description=module.HELP, usage=f"scrapy gp4c {name} SPIDER [options]"
            )
            count = "?" if module is stores else None
            action.add_argument("spider", nargs=count, metavar="SPIDER", help="name of the spider")
            module.add_options(action)
            super().add_options(action)

    def run(self, args: list[str], opts: argparse.Namespace) -> None:
        """Run the action; an error of bad input is one message and exit code 1."""
        if args:
            raise UsageError(f"unrecognised arguments: {' '.join(args)}", print_help=False)
        assert self.settings is not None
        for option, setting in IN_PLACE_OF_SETTINGS.items():
            if (value := getattr(opts, option, None)) is not None:
                self.settings.set(setting, value, "cmdline")
        try:
            project = None if opts.spider is None else Project(self.settings, opts.spider)
            ACTIONS[opts.action].run(project, opts)
            sys.stdout.flush()
        except Gp4cError as error:
            print(f"scrapy gp4c {opts.action}: {error}", file=sys.stderr)
            self.exitcode = 1
        except OSError as error:
            if error.filename is not None:
                raise
            if not isinstance(error, BrokenPipeError):  # `| head` has seen enough
                print(
                    f"scrapy gp4c {opts.action}: cannot write the output: {error.strerror}", file=sys.stderr
                )
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what Python flushes at its end
            self.exitcode = 1
