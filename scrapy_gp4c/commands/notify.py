"""``scrapy gp4c notify``: send the notices that wait, or a test message to every receiver."""

from __future__ import annotations

import time
from argparse import ArgumentParser, Namespace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from scrapy_gp4c.commands.output import say
from scrapy_gp4c.errors import NoticeError, SettingsError
from scrapy_gp4c.notices.events import PageEvent
from scrapy_gp4c.notices.outbox import Outbox
from scrapy_gp4c.notices.sending import deliver

if TYPE_CHECKING:
    from scrapy_gp4c.commands.project import Project

HELP = "send the notices that wait; --test: send a test message"


def add_options(parser: ArgumentParser) -> None:
    """Add the options of this action."""
    parser.add_argument("--test", action="store_true", help="send a made-up change to every receiver")


def run(project: Project, options: Namespace) -> None:
    """Send. Raises SettingsError without receivers, NoticeError where one does not get its message."""
    settings = project.settings
    if not (settings.notify or settings.on_change):
        raise SettingsError("nobody is to be told: set GP4C_NOTIFY or GP4C_ON_CHANGE")
    if options.test:
        with TemporaryDirectory() as directory:
            outbox = Outbox(Path(directory))
            event = PageEvent(
                "changed", "https://example.org/a-test", project.spider_class.name, 1, time.time(), None,
                "changed", 64, 1, ("@@ 1 @@ this is a [-quiet-] {+changed+} page",),
            )  # fmt: skip
            always = [receiver.for_test() for receiver in settings.notify]
            outbox.put(1, always, [event], command=bool(settings.on_change))
            problems = deliver(outbox, always, settings.on_change)
    else:
        outbox = Outbox(project.store_path)
        problems = deliver(outbox, settings.notify, settings.on_change)
    if problems:
        raise NoticeError("\n".join(problems))
    count = len(settings.notify) + bool(settings.on_change)
    say(f"{'A test message was sent to' if options.test else 'Nothing waits for'} {count:,} receivers")
