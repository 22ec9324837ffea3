"""Owner of a store: the spider, its arguments and its fingerprinter."""

from __future__ import annotations

import inspect
import json
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

from scrapy_gp4c.crawling.scrapy_internals import crawl_arguments
from scrapy_gp4c.foreign_text import foreign_safe_logger

if TYPE_CHECKING:
    from scrapy import Spider
    from scrapy.crawler import Crawler

logger = foreign_safe_logger(__name__)

OWNER: Final = "owner.json"
"""File beside the store."""
_arguments: WeakKeyDictionary[Crawler, dict[str, Any]] = WeakKeyDictionary()


def note_arguments(crawler: Crawler) -> None:
    """Note the arguments of a crawler's spider while it is being built: later nobody knows them."""
    _arguments[crawler] = crawl_arguments(crawler)


def spider_arguments(spider: Spider) -> dict[str, str]:
    """Arguments of a spider, such as those of ``scrapy crawl -a``, that are no defaults.

    Names with an underscore in front, such as the ``_job`` of scrapyd, are those of tools.
    """
    values = _arguments.get(spider.crawler, {})
    parameters = inspect.signature(type(spider).__init__).parameters
    defaults = {name: parameter.default for name, parameter in parameters.items()}
    return {
        name: str(value)
        for name, value in sorted(values.items())
        if name != "name"
        and not name.startswith("_")
        and isinstance(value, str | int | float)
        and value != defaults.get(name)
    }


def note_owner(path: Path, spider: Spider, crawler: Crawler, arguments: dict[str, str]) -> None:
    """Note whose a store is; a warning tells that its pages were told apart otherwise."""
    fingerprinter = type(crawler.request_fingerprinter)
    owner = {
        "spider": spider.name,
        "arguments": arguments,
        "fingerprinter": f"{fingerprinter.__module__}.{fingerprinter.__qualname__}",
    }
    file = path / OWNER
    known = owner_of(path)
    if known.get("fingerprinter", owner["fingerprinter"]) != owner["fingerprinter"]:
        logger.warning(
            "The pages of the store %s were told apart by %s, and now are by %s: many may be new pages. Set "
            "REQUEST_FINGERPRINTER_CLASS back, or give the crawl another store.",
            path,
            known["fingerprinter"],
            owner["fingerprinter"],
            extra={"spider": spider},
        )
    if known != owner:
        file.write_text(json.dumps(owner, indent=1) + "\n", "utf-8")


def other_owner(path: Path, owner: str, spider_name: str) -> str:
    """Error of a spider that opens the store of another."""
    return (
        f"the store {path} is that of the spider {owner!r}, and this is {spider_name!r}: give each spider "
        'its own, as GP4C_STORE = "/data/{spider}" does'
    )


def owner_of(path: Path) -> dict[str, Any]:
    """Owner of a store; empty where nobody has noted it."""
    with suppress(OSError, ValueError):
        owner = json.loads((path / OWNER).read_text("utf-8"))
        if isinstance(owner, dict):
            return owner
    return {}


def set_mode(path: Path, mode: int | None) -> None:
    """Give a store's directory and files their permissions; those of another user stay as they are."""
    if mode is None:
        return
    for entry in (path, *path.iterdir()):
        with suppress(PermissionError):
            entry.chmod(mode if entry.is_dir() else mode & 0o666)
