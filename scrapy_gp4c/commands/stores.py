"""``scrapy gp4c stores``: the stores of a project, with the spider and the arguments that each belongs to."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from scrapy.utils.project import data_path

from scrapy_gp4c.commands.output import add_json, print_json, print_table
from scrapy_gp4c.crawling.store_owner import owner_of

if TYPE_CHECKING:
    from scrapy_gp4c.commands.project import Project

HELP = "stores of the project, with their spiders and arguments"
DATA = "data.mdb"


@dataclass(frozen=True)
class StoreLine:
    """One store."""

    path: str
    spider: str | None
    """None: no crawl has noted it."""
    arguments: dict[str, str]
    size_bytes: int


@dataclass(frozen=True)
class StoreList:
    """All stores in the project's data directory."""

    stores: list[StoreLine]


def add_options(parser: ArgumentParser) -> None:
    """Add the options of the action."""
    add_json(parser.add_argument)


def run(project: Project | None, opts: Namespace) -> None:
    """Print the stores, by path."""
    paths = sorted(path.parent for path in Path(data_path("gp4c")).glob(f"*/{DATA}"))
    lines = []
    for path in paths:
        owner = owner_of(path)
        size_bytes = (path / DATA).stat().st_size
        lines.append(StoreLine(str(path), owner.get("spider"), owner.get("arguments", {}), size_bytes))
    if opts.json:
        print_json(StoreList(lines))
        return
    rows = [("spider", "arguments", "MiB", "path")]
    for line in lines:
        arguments = " ".join(f"{name}={value}" for name, value in line.arguments.items())
        rows.append((line.spider or "?", arguments, f"{line.size_bytes / 2**20:.1f}", line.path))
    print_table(rows, text_column_count=2)
