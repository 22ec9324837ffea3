"""``scrapy gp4c stores``, and ``scrapy gp4c store``: check, copy, restore and compact a store."""

import tempfile
from argparse import Namespace
from dataclasses import dataclass
from pathlib import Path

from scrapy.settings import Settings as ScrapySettings

from scrapy_gp4c.archive.texts import archive_problem
from scrapy_gp4c.commands.action import JSON, Action, option, positive, print_table, say
from scrapy_gp4c.commands.project import Project
from scrapy_gp4c.crawling.backups import fetch_backup
from scrapy_gp4c.crawling.store_owner import owner_of
from scrapy_gp4c.errors import ArchiveError, SearchIndexError, StoreDamagedError, StoreError
from scrapy_gp4c.foreign_text import counted
from scrapy_gp4c.search.index import check_index
from scrapy_gp4c.settings import Settings
from scrapy_gp4c.store import opening
from scrapy_gp4c.store.opening import ARCHIVE, SEARCH_INDEX

DATA = "data.mdb"


def _verify(project: Project, options: Namespace) -> None:
    """Print each damaged value, or that the store is sound.

    Raises StoreDamagedError, and for files beside a sound store SearchIndexError or ArchiveError.
    """
    path = project.store_path
    verification = opening.verify(path, deep=options.deep)
    for problem in verification.problems:
        say(problem)
    if verification.problems:
        raise StoreDamagedError(
            f"the store {path} is damaged, in {counted(len(verification.problems), 'place')}. Bring back a "
            "backup (`scrapy gp4c store restore SPIDER BACKUP`), or what can still be read "
            "(`scrapy gp4c store restore SPIDER --from-damaged`)"
        )
    say(f"{path} is sound")
    if verification.under_way:
        say(verification.under_way + (", after which --deep can be given again" if options.deep else ""))
    if problem := check_index(path / SEARCH_INDEX):
        raise SearchIndexError(problem)
    if problem := archive_problem(path / ARCHIVE, deep=True):
        raise ArchiveError(problem)


VERIFY = Action(
    "check a spider's store, search index and archive: every checksum and count",
    _verify,
    [
        option(
            "--deep",
            action="store_true",
            help="compute columns and directories anew from visits and URLs, too",
        )
    ],
)


def _backup(project: Project, options: Namespace) -> None:
    say(opening.backup(project.store_path, Path(options.directory), options.keep))


BACKUP = Action(
    "copy a spider's store into a directory, also while a crawl runs",
    _backup,
    [
        option("directory", metavar="DIR", help="gets a directory with the time in its name"),
        option(
            "--keep",
            type=positive,
            metavar="N",
            help="newest backups of this store to keep in DIR (default: all)",
        ),
    ],
)


def _restore(project: Project, options: Namespace) -> None:
    backup = options.backup or (None if options.from_damaged else project.settings.backup)
    if (backup is None) != options.from_damaged:
        raise StoreError(
            "expected a BACKUP, GP4C_BACKUP in the settings, or --from-damaged; found none, or two. Give one."
        )
    path = project.store_path
    aside: Path | None
    if backup is None:
        done = opening.recover(path, project.sizes, lambda request: project.page(request)[0])
        for sentence in done.lost:
            say(f"lost: {sentence}")
        say(f"{path} is sound{'' if done.lost else ', and nothing is lost'}")
        aside = done.aside
    else:
        with tempfile.TemporaryDirectory() as folder:
            copy = fetch_backup(backup, path.name, Path(folder))
            aside = opening.restore_backup(path, copy)
        say(f"{path} is what {backup if '://' in backup else copy} has")
    if aside is not None:
        say(f"the replaced file is kept in {aside}")


RESTORE = Action(
    "put a backup, or what a damaged store still has, in the place of a spider's store",
    _restore,
    [
        option(
            "backup",
            metavar="BACKUP",
            nargs="?",
            help="backup, or place of backups, of which it is the newest (default: GP4C_BACKUP)",
        ),
        option(
            "--from-damaged",
            action="store_true",
            help="build the store anew from what can still be read of it, and list what is lost",
        ),
    ],
)


def _compact(project: Project, options: Namespace) -> None:
    project.open_store().close()  # else a store that is missing would be made
    bytes_before, bytes_after = opening.compact(project.store_path)
    say(f"{project.store_path}: {bytes_before / 1e6:,.1f} MB before, {bytes_after / 1e6:,.1f} MB now")


COMPACT = Action("give the room back that a spider's store does not use", _compact)


@dataclass(frozen=True)
class StoreLine:
    path: str
    spider: str | None
    """Name of the spider; None: no crawl has recorded it."""
    arguments: dict[str, str]
    size_bytes: int


@dataclass(frozen=True)
class StoreList:
    """All stores in the project's data directory, or in that of GP4C_STORE, by path."""

    stores: list[StoreLine]


def _stores(project: Project | ScrapySettings, options: Namespace) -> StoreList:
    settings = project.settings if isinstance(project, Project) else Settings.load(project)
    lines = []
    for path in settings.store_paths():
        if (path / DATA).exists():
            owner = owner_of(path)
            spider, arguments = owner.get("spider"), owner.get("arguments", {})
            lines.append(StoreLine(str(path), spider, arguments, (path / DATA).stat().st_size))
    return StoreList(lines)


def _show_stores(listed: StoreList, options: Namespace) -> None:
    if not listed.stores:
        say("there is no store yet: run a spider once, or check GP4C_STORE")
        return
    rows = [("spider", "arguments", "MiB", "path")]
    for line in listed.stores:
        arguments = " ".join(f"{name}={value}" for name, value in line.arguments.items())
        rows.append((line.spider or "?", arguments, f"{line.size_bytes / 2**20:.1f}", line.path))
    print_table(rows, text_column_count=2)


STORES = Action("stores of the project, with their spiders and arguments", _stores, [JSON], show=_show_stores)
