"""``scrapy gp4c store restore``: put a backup, or what a damaged store still has, in the place of a store."""

from __future__ import annotations

import tempfile
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from scrapy_gp4c.commands.output import say
from scrapy_gp4c.crawling.backups import fetch_backup
from scrapy_gp4c.errors import StoreError
from scrapy_gp4c.store.opening import recover, restore_backup

if TYPE_CHECKING:
    from scrapy_gp4c.commands.project import Project

HELP = "put a backup, or what a damaged store still has, in the place of a spider's store"


def add_options(parser: ArgumentParser) -> None:
    """Add the options of this action."""
    parser.add_argument(
        "backup",
        metavar="BACKUP",
        nargs="?",
        help="backup, or place of backups, of which it is the newest (default: GP4C_BACKUP)",
    )
    parser.add_argument(
        "--from-damaged",
        action="store_true",
        help="build the store anew from what can still be read of it, and list what is lost",
    )


def run(project: Project, options: Namespace) -> None:
    """Print what is lost, if anything, and where the replaced file is kept."""
    backup = options.backup or (None if options.from_damaged else project.settings.backup)
    if (backup is None) != options.from_damaged:
        raise StoreError("expected a BACKUP or --from-damaged; found neither or both. Give one of them.")
    backup = backup or ""
    path = project.store_path
    if options.from_damaged:
        done = recover(path, project.sizes, lambda request: project.page(request)[0])
        for sentence in done.lost:
            say(f"lost: {sentence}")
        say(f"{path} is sound{'' if done.lost else ', and nothing is lost'}")
        aside: Path | None = done.aside
    else:
        with tempfile.TemporaryDirectory() as folder:
            copy = fetch_backup(backup, path.name, Path(folder))
            aside = restore_backup(path, copy, project.sizes)
        say(f"{path} is what {backup if '://' in backup else copy} has")
    if aside is not None:
        say(f"the replaced file is kept in {aside}")
