"""The command ``scrapy gp4c ACTION SPIDER`` on a spider's store; actions are in this package's modules."""

import argparse
from typing import Any, ClassVar

from scrapy.commands import ScrapyCommand
from scrapy.exceptions import UsageError


class Command(ScrapyCommand):
    """The ``gp4c`` command.

    Scrapy loads it for every command of its own, so the actions are imported when it is called.
    """

    requires_project = True
    requires_crawler_process = False
    default_settings: ClassVar[dict[str, Any]] = {"LOG_ENABLED": False}

    def syntax(self) -> str:
        """Return the usage line."""
        return "ACTION SPIDER [options]"

    def short_desc(self) -> str:
        """Return the description in the list of ``scrapy`` commands."""
        return "Look into a spider's page store, be told of changes, learn from its history"

    def long_desc(self) -> str:
        """Return the first lines of the help."""
        return f"{self.short_desc()}.\n`scrapy gp4c ACTION --help` explains an action."

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        """Give every action its own options and Scrapy's global ones (which follow the action)."""
        from scrapy_gp4c.commands.actions import add_actions

        add_actions(parser, super().add_options)

    def run(self, args: list[str], opts: argparse.Namespace) -> None:
        """Run the action; an error of bad input is one message and exit code 1."""
        from scrapy_gp4c.commands.actions import run_action

        if args:
            raise UsageError(f"unrecognised arguments: {' '.join(args)}", print_help=False)
        assert self.settings is not None
        self.exitcode = run_action(self.settings, opts)
