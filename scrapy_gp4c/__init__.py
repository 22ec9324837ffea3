"""Revisit, in every cycle, the pages of a Scrapy crawl that most likely changed."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from scrapy.settings import BaseSettings

__version__ = "0.1.0"
__all__ = ["Addon", "__version__"]

MIDDLEWARE_POSITION = 545
FINDER_POSITION = 30
logger = logging.getLogger(__name__)


class Addon:
    """Installs scheduler and middlewares: ``ADDONS = {"scrapy_gp4c.Addon": 500}``.

    What the user set themselves (SCHEDULER, the middlewares) stays as they set it.
    """

    def update_settings(self, settings: BaseSettings) -> None:
        """Set what the crawl needs, at add-on priority."""
        from scrapy_gp4c.errors import SettingsError
        from scrapy_gp4c.middleware import FinderMiddleware, FingerprintMiddleware
        from scrapy_gp4c.robots_txt import take_place
        from scrapy_gp4c.settings import Settings

        try:
            Settings.load(settings)
        except SettingsError as error:  # said in one line before Scrapy's traceback
            logger.critical("%s", error)
            raise
        settings.set("SCHEDULER", "scrapy_gp4c.scheduler.RecrawlScheduler", "addon")
        settings.setdefault_in_component_priority_dict(
            "DOWNLOADER_MIDDLEWARES", FingerprintMiddleware, MIDDLEWARE_POSITION
        )
        settings.setdefault_in_component_priority_dict(
            "SPIDER_MIDDLEWARES", FinderMiddleware, FINDER_POSITION
        )
        take_place(settings)
