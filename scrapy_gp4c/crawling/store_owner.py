"""Owner file of a store: its spider, the spider's project and arguments, and its fingerprinter."""

import inspect
import json
import logging
import re
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final
from weakref import WeakKeyDictionary

from scrapy import Spider
from scrapy.crawler import Crawler
from scrapy.settings import default_settings

from scrapy_gp4c.crawling.scrapy_internals import CrawlCall, crawl_call
from scrapy_gp4c.errors import StoreError
from scrapy_gp4c.foreign_text import foreign_safe_logger
from scrapy_gp4c.store.credentials import Credentials

logger = foreign_safe_logger(__name__)

WARNINGS: Final = "warnings.json"
"""File in the store's directory: warnings of the last run."""
MAX_WARNINGS: Final = 20
OWNER: Final = "owner.json"
"""File in the store's directory: spider, project, arguments and fingerprinter."""
IS_OF_TODAY: Final = re.compile(
    r"(?:19|20)\d\d[-_./]?[01]?\d[-_./]?[0-3]?\d(?:\D.*)?|\d{10}(?:\d{3})?(?:\.\d+)?"
    r"|[0-9a-f]{8}(?:-?[0-9a-f]{4}){3}-?[0-9a-f]{12}"
).fullmatch
"""Match an argument that is a date, a time or a UUID."""
_calls: WeakKeyDictionary[Crawler, CrawlCall] = WeakKeyDictionary()


def note_call(crawler: Crawler) -> None:
    """Remember the spider and its arguments for `call_arguments`; to be called while the engine is built."""
    _calls[crawler] = crawl_call(crawler)


def call_arguments(crawler: Crawler) -> dict[str, Any]:
    """Return the spider's arguments in the call that began a crawl."""
    call = _calls.get(crawler)
    return {} if call is None else dict(call.arguments)


def fail_exit_code(crawler: Crawler) -> None:
    """Let the command that crawls end with exit code 1."""
    call = _calls.get(crawler)
    if call is not None and call.runner is not None:
        call.runner.bootstrap_failed = True


def spider_arguments(spider: Spider, credentials: Credentials) -> dict[str, str]:
    """Return the arguments of a spider, such as those of ``scrapy crawl -a``, that tell its crawls apart.

    Left out are defaults, names of tools with an underscore in front (``_job`` of scrapyd), and secrets,
    which may stand in no file.
    """
    # Not `spider.crawler`, which a `from_crawler` of its own need not set.
    values = next((call.arguments for crawler, call in _calls.items() if crawler.spider is spider), {})
    parameters = inspect.signature(type(spider).__init__).parameters
    defaults = {name: parameter.default for name, parameter in parameters.items()}
    return {
        name: credentials.url(str(value))
        for name, value in sorted(values.items())
        if name != "name"
        and not name.startswith("_")
        and isinstance(value, str | int | float)
        and value != defaults.get(name)
        and not credentials.has(name)
    }


def check_owner(path: Path, spider: Spider, project: str) -> None:
    """Raise StoreError if the store is another spider's, or that of a spider of this name in another project.

    ``project``: BOT_NAME; its default, which scripts have, is any project.
    """
    owner = owner_of(path)
    owner_spider, owner_project = owner.get("spider", spider.name), owner.get("project", project)
    is_same_project = owner_project == project or default_settings.BOT_NAME in (owner_project, project)
    if owner_spider == spider.name and is_same_project:
        return
    of_owner, of_spider, directory = "", "", ""
    if not is_same_project:
        of_owner, of_spider, directory = f" of {owner_project!r}", f" of {project!r}", f"{project}/"
    raise StoreError(
        f"the store {path} is that of the spider {owner_spider!r}{of_owner}, and this is {spider.name!r}"
        f'{of_spider}: give each spider its own, as GP4C_STORE = "/data/{directory}{{spider}}" does. If only '
        f"a name has changed, delete {OWNER} there"
    )


def note_owner(path: Path, spider: Spider, crawler: Crawler, arguments: dict[str, str]) -> None:
    """Write a store's owner file; warn where its page keys were made by another fingerprinter."""
    fingerprinter = type(crawler.request_fingerprinter)
    owner = {
        "spider": spider.name,
        "project": crawler.settings["BOT_NAME"],
        "command_name": getattr(type(spider), "name", None),  # an instance may have set another
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


def new_store_warning(spider: Spider, arguments: dict[str, str], paths: Iterable[Path]) -> str | None:
    """Return the warning that an argument such as a date gives each run a new store; None: none does.

    ``paths``: stores of the project.
    """
    for path in paths:
        owner = owner_of(path)
        others = owner.get("arguments") if owner.get("spider") == spider.name else None
        if not isinstance(others, dict) or others.keys() != arguments.keys():
            continue
        differing = [name for name, value in arguments.items() if value != others[name]]
        if len(differing) == 1 and all(IS_OF_TODAY(str(one[differing[0]])) for one in (arguments, others)):
            return (
                f"{spider.name} has another store for each {differing[0]}, such as {path}, of which this "
                f"new one knows nothing. If {differing[0]} makes no other crawl, add it to GP4C_SHARED_ARGS."
            )
    return None


class RunWarnings(logging.Handler):
    """Warnings and errors of the add-on in one run, which `scrapy gp4c status` repeats."""

    def __init__(self, spider: Spider) -> None:
        super().__init__(logging.WARNING)
        self._spider = spider
        self.lines: list[str] = []
        logging.getLogger("scrapy_gp4c").addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a line of this spider, unless there are many."""
        if getattr(record, "spider", self._spider) is self._spider and len(self.lines) < MAX_WARNINGS:
            self.lines.append(record.getMessage())

    def keep(self, path: Path) -> None:
        """Write the lines beside the store."""
        logging.getLogger("scrapy_gp4c").removeHandler(self)
        with suppress(OSError):
            (path / WARNINGS).write_text(json.dumps(self.lines, indent=1) + "\n", "utf-8")


def last_warnings(path: Path) -> list[str]:
    """Warnings of the last run with a store."""
    with suppress(OSError, ValueError):
        lines = json.loads((path / WARNINGS).read_text("utf-8"))
        return [line for line in lines if isinstance(line, str)] if isinstance(lines, list) else []
    return []


def owner_of(path: Path) -> dict[str, Any]:
    """Return a store's owner file: spider, arguments, fingerprinter; ``{}`` where there is none."""
    with suppress(OSError, ValueError):
        owner = json.loads((path / OWNER).read_text("utf-8"))
        if isinstance(owner, dict):
            return owner
    return {}


def set_mode(path: Path, mode: int | None) -> None:
    """Set the permissions `mode` of a store's directories and files, but for files of other users."""
    if mode is None:
        return
    for entry in (path, *path.rglob("*")):
        with suppress(PermissionError):
            entry.chmod(mode if entry.is_dir() else mode & 0o666)
