"""The Scrapy add-on, which installs scheduler and middlewares."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from scrapy_gp4c.errors import SettingsError
from scrapy_gp4c.middleware import FinderMiddleware, FingerprintMiddleware, TruncationMiddleware
from scrapy_gp4c.robots_txt import replace_builtin
from scrapy_gp4c.settings import Settings

if TYPE_CHECKING:
    from scrapy.settings import BaseSettings

logger = logging.getLogger(__name__)

MIDDLEWARE_POSITION: Final = 545
FINDER_POSITION: Final = 30
TRUNCATION_POSITION: Final = 595  # bodies are still compressed there


def _is_not(error: SettingsError) -> Callable[[logging.LogRecord], bool]:
    """Filter of log records that are about this very error."""

    def keeps(record: logging.LogRecord) -> bool:
        return record.exc_info is None or record.exc_info[1] is not error

    return keeps


class Addon:
    """Installs scheduler and middlewares: ``ADDONS = {"scrapy_gp4c.Addon": 500}``.

    A project's own SCHEDULER, REQUEST_FINGERPRINTER_CLASS and middlewares stay as they are set.
    """

    def update_settings(self, settings: BaseSettings) -> None:
        """Set what a crawl needs, at add-on priority; raises SettingsError for a wrong ``GP4C_*`` setting."""
        try:
            Settings.load(settings)
        except SettingsError as error:
            logger.critical("%s", error)
            for name in ("asyncio", "twisted"):  # they would log it once more, with a traceback
                logging.getLogger(name).addFilter(_is_not(error))
            raise
        settings.set("SCHEDULER", "scrapy_gp4c.scheduler.RecrawlScheduler", "addon")
        settings.set(
            "REQUEST_FINGERPRINTER_CLASS", "scrapy_gp4c.crawling.requests.PageFingerprinter", "addon"
        )
        settings.setdefault_in_component_priority_dict(
            "DOWNLOADER_MIDDLEWARES", FingerprintMiddleware, MIDDLEWARE_POSITION
        )
        settings.setdefault_in_component_priority_dict(
            "DOWNLOADER_MIDDLEWARES", TruncationMiddleware, TRUNCATION_POSITION
        )
        settings.setdefault_in_component_priority_dict(
            "SPIDER_MIDDLEWARES", FinderMiddleware, FINDER_POSITION
        )
        replace_builtin(settings)
