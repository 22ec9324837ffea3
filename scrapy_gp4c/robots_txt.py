"""Scrapy's robots.txt middleware, mended: every request hears what the robots.txt of its host says.

In Scrapy 2.15 to 2.19, requests that wait for one robots.txt await the same Deferred, of which only the first
gets the result. The others get None, as if there were no robots.txt, and fetch what it disallows. A cycle
begins with many requests to each host, so that this would happen in every cycle.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from scrapy import __version__, version_info
from scrapy.downloadermiddlewares.robotstxt import RobotsTxtMiddleware
from scrapy.utils.misc import load_object

from scrapy_gp4c.foreign_text import foreign_safe_logger

if TYPE_CHECKING:
    from scrapy import Request
    from scrapy.http import Response
    from scrapy.robotstxt import RobotParser
    from scrapy.settings import BaseSettings

logger = foreign_safe_logger(__name__)

FAULTY: Final = (2, 15), (2, 19)
"""First and last version of Scrapy that has the fault, as far as is known."""
MIDDLEWARES: Final = "DOWNLOADER_MIDDLEWARES"


class RobotsMiddleware(RobotsTxtMiddleware):
    """Scrapy's robots.txt middleware, in whose place `replace_builtin` puts it."""

    async def robot_parser(self, request: Request) -> RobotParser | None:
        """Wait for the robots.txt of a request's host; returns its rules (RFC 9309), None without any."""
        await super().robot_parser(request)
        return await super().robot_parser(request)  # it has come, so that nobody has to wait for it

    async def _parse_robots(self, response: Response, netloc: str, request: Request) -> None:
        """Take a server's error for a complete disallow (RFC 9309, 2.3.1.4), where Scrapy allows all."""
        if response.status >= 500:
            logger.warning(
                "Nothing of %s is fetched in this run, because its robots.txt is answered with status %d.",
                netloc,
                response.status,
                extra={"spider": self.crawler.spider},
            )
            response = response.replace(body=b"User-agent: *\nDisallow: /\n")
        await super()._parse_robots(response, netloc, request)


def replace_builtin(settings: BaseSettings) -> None:
    """Put `RobotsMiddleware` where Scrapy's own would be; a project without Scrapy's gets none.

    Versions of Scrapy that have not the fault keep their own.
    """
    if not FAULTY[0] <= version_info[:2] <= FAULTY[1]:
        return
    position = None
    for name in (MIDDLEWARES + "_BASE", MIDDLEWARES):
        for path, value in settings.getdict(name).items():
            if load_object(path) is RobotsTxtMiddleware:
                position = value
    if position is not None:
        logger.debug(
            "Scrapy %s lets requests through that wait for one robots.txt: %s is used",
            *(__version__, f"{RobotsMiddleware.__module__}.{RobotsMiddleware.__qualname__}"),
        )
        settings.set_in_component_priority_dict(MIDDLEWARES, RobotsTxtMiddleware, None)
        settings.setdefault_in_component_priority_dict(MIDDLEWARES, RobotsMiddleware, position)
