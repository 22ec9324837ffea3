"""The Scrapy add-on, which installs scheduler and middlewares."""

import logging
import os
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Final, Self

from scrapy import Spider
from scrapy.crawler import Crawler
from scrapy.settings import BaseSettings, get_settings_priority
from scrapy.utils.misc import load_object

from scrapy_gp4c.crawling.scrapy_internals import is_command
from scrapy_gp4c.errors import SettingsError
from scrapy_gp4c.foreign_text import foreign_safe_logger
from scrapy_gp4c.middleware import (
    CallbackMiddleware,
    FinderMiddleware,
    FingerprintMiddleware,
    RefreshMiddleware,
    TruncationMiddleware,
)
from scrapy_gp4c.robots_txt import replace_builtin
from scrapy_gp4c.settings import Settings

logger = foreign_safe_logger(__name__)

MIDDLEWARE_POSITION: Final = 5
FINDER_POSITION: Final = 30
CALLBACK_POSITION: Final = 990
COMPONENTS: Final = {
    "SCHEDULER": "scrapy_gp4c.scheduler.RecrawlScheduler",
    "REQUEST_FINGERPRINTER_CLASS": "scrapy_gp4c.crawling.requests.PageFingerprinter",
}
HANDLER: Final = "scrapy_gp4c.fetching.handler.FetcherHandler"
START_MIDDLEWARE: Final = "scrapy_gp4c.fetching.handler.StartMiddleware"
HOST_MIDDLEWARE: Final = "scrapy_gp4c.fetching.fetcher.HostMiddleware"
NOT_FOR_FETCHERS: Final = frozenset(
    (
        "ADDONS", "DOWNLOADER_MIDDLEWARES", "FEEDS", "ITEM_PIPELINES", "JOBDIR",
        "REQUEST_FINGERPRINTER_CLASS", "SCHEDULER", "SPIDER_MIDDLEWARES",
    )
)  # fmt: skip
"""Settings of a crawl that fetchers do not get: they are for work of the crawl's own process (the owner)."""
FETCHERS_ALONE: Final = {"LOGSTATS_INTERVAL": 0, "TELNETCONSOLE_ENABLED": False, "MEMUSAGE_ENABLED": False}
OWNER_ALONE: Final = {
    "DOWNLOAD_HANDLERS": {"http": HANDLER, "https": HANDLER},
    "DOWNLOADER_MIDDLEWARES_BASE": {"scrapy.downloadermiddlewares.offsite.OffsiteMiddleware": 50},
    "DOWNLOADER_MIDDLEWARES": {FingerprintMiddleware: MIDDLEWARE_POSITION},
    "SPIDER_MIDDLEWARES_BASE": {},
    "SPIDER_MIDDLEWARES": {
        FinderMiddleware: FINDER_POSITION, START_MIDDLEWARE: 40, CallbackMiddleware: CALLBACK_POSITION,
    },
    "DOWNLOAD_DELAY": 0,
    "AUTOTHROTTLE_ENABLED": False,
    "DOWNLOAD_SLOTS": {},
    "CONCURRENT_REQUESTS": 1_600,
    "CONCURRENT_REQUESTS_PER_DOMAIN": 100,
    "CONCURRENT_REQUESTS_PER_IP": 0,
}  # fmt: skip
"""Settings of the owner, whose downloads only wait for fetchers: no delays, and room for whole batches."""
MIDDLEWARES: Final[dict[str, dict[type, int]]] = {
    "DOWNLOADER_MIDDLEWARES": {
        FingerprintMiddleware: MIDDLEWARE_POSITION,
        TruncationMiddleware: 595,  # bodies are still compressed there
        RefreshMiddleware: 585,  # just before Scrapy's middleware that follows a refresh
    },
    "SPIDER_MIDDLEWARES": {FinderMiddleware: FINDER_POSITION, CallbackMiddleware: CALLBACK_POSITION},
}


def _is_not(error: SettingsError) -> Callable[[logging.LogRecord], bool]:
    """Return a log filter that drops the records of this very error, with its traceback."""

    def keeps(record: logging.LogRecord) -> bool:
        return record.exc_info is None or record.exc_info[1] is not error

    return keeps


class Addon:
    """Installs scheduler and middlewares: ``ADDONS = {"scrapy_gp4c.Addon": 500}``.

    What the project or another add-on has set as SCHEDULER, REQUEST_FINGERPRINTER_CLASS or middleware stays.
    """

    _spider_class: type[Spider] = Spider

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        self = cls()
        self._spider_class = crawler.spidercls
        return self

    def update_settings(self, settings: BaseSettings) -> None:
        """Set what a crawl needs, at add-on priority; raises SettingsError for a wrong ``GP4C_*`` setting."""
        try:
            loaded = Settings.load(settings)
            check_jobdir(settings)
        except SettingsError as error:
            logger.critical("%s", error)
            for name in ("asyncio", "twisted"):  # they would log it once more, with a traceback
                logging.getLogger(name).addFilter(_is_not(error))
            raise
        for name, path in COMPONENTS.items():
            # Another add-on's stays too: that of scrapy-poet tells pages apart by their page objects.
            if (settings.getpriority(name) or 0) < get_settings_priority("addon"):
                settings.set(name, path, "addon")
        for name, middlewares in MIDDLEWARES.items():
            for middleware, position in middlewares.items():
                settings.setdefault_in_component_priority_dict(name, middleware, position)
        replace_builtin(settings)
        if loaded.fetchers is not None and not is_command(self._spider_class, settings):
            delegate_downloads(settings, has_pipelines=loaded.items_at == "fetchers")


def check_jobdir(settings: BaseSettings) -> None:
    """Raise SettingsError for a JOBDIR that cannot be written, which Scrapy would answer with a traceback."""
    if not (name := settings.get("JOBDIR")):
        return
    path = Path(name).absolute()
    nearest_directory = next(directory for directory in (path, *path.parents) if directory.exists())
    if not (nearest_directory.is_dir() and os.access(nearest_directory, os.W_OK)):
        raise SettingsError(
            f"JOBDIR must be a directory that can be written; {nearest_directory} cannot. Set another, or "
            "remove it: an interrupted cycle goes on without a JOBDIR too"
        )


def delegate_downloads(settings: BaseSettings, *, has_pipelines: bool) -> None:
    """Change settings so that fetchers (other processes) run all that comes after the scheduler.

    The project's own settings (delays, middlewares) go into the setting ``FETCHER_SETTINGS``, for the
    fetchers. ``has_pipelines``: whether item pipelines run there, too. Raises SettingsError without the extra
    ``[dask]``.
    """
    if find_spec("distributed") is None:
        raise SettingsError(
            "GP4C_FETCHERS needs the library distributed: pip install 'scrapy-gp4c[dask]', or remove it"
        )
    project = {
        name: settings[name]
        for name in settings
        if (settings.getpriority(name) or 0) > get_settings_priority("default")
        and not name.startswith(("GP4C_", "CLOSESPIDER_"))
        and name not in NOT_FOR_FETCHERS
    }
    addons = {
        addon: position
        for addon, position in settings.getdict("ADDONS").items()
        if load_object(addon) is not Addon
    }
    replacements = {"DOWNLOADER_MIDDLEWARES": FingerprintMiddleware, "SPIDER_MIDDLEWARES": FinderMiddleware}
    for name, middleware in replacements.items():
        project[name] = {
            one: position
            for one, position in settings.getdict(name).items()
            if load_object(one) is not middleware
        }
    project["DOWNLOADER_MIDDLEWARES"][HOST_MIDDLEWARE] = 1
    if has_pipelines:
        project["ITEM_PIPELINES"] = settings.getdict("ITEM_PIPELINES")
        settings.set("ITEM_PIPELINES", {}, "cmdline")
    settings.set("FETCHER_SETTINGS", {**project, "ADDONS": addons, **FETCHERS_ALONE}, "cmdline")
    if not (settings.getpriority("CONCURRENT_ITEMS") or 0):
        settings.set("CONCURRENT_ITEMS", 1, "cmdline")  # Scrapy starts so many tasks for each response
    for name, value in OWNER_ALONE.items():
        settings.set(name, value, "cmdline")
