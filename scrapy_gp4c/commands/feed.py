"""``scrapy gp4c feed``: the newest page events as an Atom or JSON feed."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from scrapy_gp4c.commands.output import say
from scrapy_gp4c.crawling.notifying import open_texts, recent_events
from scrapy_gp4c.notices.feeds import write_feed

if TYPE_CHECKING:
    from scrapy_gp4c.commands.project import Project

HELP = "write a feed of the newest changes: JSON Feed or Atom"


def add_options(parser: ArgumentParser) -> None:
    """Add the options of this action."""
    parser.add_argument(
        "-o", "--output", metavar="FILE", default="changes.xml", help="(default: changes.xml)"
    )


def run(project: Project, options: Namespace) -> None:
    """Write the feed. Raises SettingsError where feedgen is missing, ArchiveError where differences are."""
    name = project.spider_class.name
    with project.open_store() as store, open_texts(store) as texts:
        events = recent_events(store, project.settings, name, texts.diff)
        entries = write_feed(Path(options.output), name, store.store_id, events)
    say(f"Feed: {options.output} ({entries:,} entries)")
    if texts.problem is not None:
        raise texts.problem
