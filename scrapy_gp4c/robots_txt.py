"""Scrapy's robots.txt middleware without its faults: the rules of a host hold for every request to it.

In Scrapy 2.15 to 2.19, requests that wait for one robots.txt await the same Deferred, of which only the first
gets the result. The others get None, as if there were no robots.txt, and fetch what it disallows. A cycle
begins with many requests to each host, so that this would happen in every cycle.

Every version of Scrapy treats a timeout, a broken connection, and a status of 5xx or 429 as a robots.txt
without rules, and misreads UTF-16: so all versions get this middleware.
"""

import re
from collections.abc import Coroutine
from typing import Any, Final

from scrapy import Request
from scrapy.crawler import Crawler
from scrapy.downloadermiddlewares.robotstxt import RobotsTxtMiddleware
from scrapy.exceptions import IgnoreRequest
from scrapy.http import Response
from scrapy.robotstxt import RobotParser
from scrapy.settings import BaseSettings
from scrapy.utils.httpobj import urlparse_cached
from scrapy.utils.misc import build_from_crawler, load_object

from scrapy_gp4c.crawling.claim_files import as_utf8
from scrapy_gp4c.crawling.fetched import NotFetchedError
from scrapy_gp4c.crawling.requests import without_user
from scrapy_gp4c.crawling.run import run_of
from scrapy_gp4c.foreign_text import foreign_safe_logger

logger = foreign_safe_logger(__name__)

MIDDLEWARES: Final = "DOWNLOADER_MIDDLEWARES"
DISALLOW: Final = b"User-agent: *\nDisallow: /\n"
_NO_SERVER: Final = ("CannotResolveHostError", "DownloadConnectionRefusedError", "DNSLookupError")
"""Names of errors by which a host has no server, so that its pages fail as well as its robots.txt."""
_MARKUP: Final = re.compile(rb"(?:\xef\xbb\xbf)?\s*<")


class RobotsMiddleware(RobotsTxtMiddleware):
    """Scrapy's robots.txt middleware, in whose place `replace_builtin` puts it."""

    def __init__(self, crawler: Crawler) -> None:
        super().__init__(crawler)
        self._unsent: set[str] = set()
        """Hosts for whose robots.txt the request was not sent, so that a fetcher has to request it again."""

    async def robot_parser(self, request: Request) -> RobotParser | None:
        """Return the rules (RFC 9309) of a request's host, once its robots.txt has come; None: it has none.

        Other schemes than http and https have no rules.
        """
        if not request.url.startswith(("http:", "https:")):
            return None
        if (host := urlparse_cached(request).netloc) in self._unsent:
            self._unsent.remove(host)
            del self._parsers[host]
        await super().robot_parser(request)
        return await super().robot_parser(request)  # it has come: nobody waits

    def _robots_error(self, error: Exception, netloc: str) -> None:
        """Disallow all pages of a host whose robots.txt cannot be downloaded.

        All are allowed where the host is unknown or refuses connections, because its pages fail as well, and
        where robots.txt redirects without end, because it counts as missing then (RFC 9309, 2.3.1.2).
        """
        if isinstance(error, NotFetchedError):
            self._unsent.add(netloc)
        super()._robots_error(error, netloc)
        name = type(error).__name__
        if isinstance(error, IgnoreRequest):
            if netloc not in self._unsent:
                line = "The robots.txt of %s is ignored (%s): all of its pages may be fetched."
                logger.warning(line, netloc, error, extra={"spider": self.crawler.spider})
        elif name not in _NO_SERVER:
            self._leave_alone(netloc, f"fails with {name}", None)
            self._parsers[netloc] = build_from_crawler(self._parserimpl, self.crawler, DISALLOW)

    def _parse_robots(self, response: Response, netloc: str, *request: Request) -> Coroutine[Any, Any, None]:
        """Parse the rules; a server's error (5xx or 429) disallows all pages (RFC 9309, 2.3.1.4).

        Scrapy would allow all. 429 counts as an error as it does for Google. ``request``: missing before
        Scrapy 2.19, which does not await the result either.
        """
        if response.status >= 500 or response.status == 429:
            wait = response.headers.get("Retry-After")
            self._leave_alone(netloc, f"is answered with status {response.status}", wait)
            rules = DISALLOW
        else:
            rules = rules_of(response)
        return super()._parse_robots(response.replace(body=rules), netloc, *request)

    def _leave_alone(self, netloc: str, reason: str, wait: bytes | None) -> None:
        netloc = without_user(netloc)
        line = "Nothing of %s is fetched in this run, because its robots.txt %s."
        logger.warning(line, netloc, reason, extra={"spider": self.crawler.spider})
        if (run := run_of(self.crawler)) is not None:
            run.cycle.leave_alone(netloc, wait)


def rules_of(response: Response) -> bytes:
    """Return the text of a robots.txt in UTF-8; ``b""`` for an error (4xx), or HTML in its place."""
    if response.status >= 400 or _MARKUP.match(response.body):
        return b""
    return as_utf8(response.body)


def replace_builtin(settings: BaseSettings) -> None:
    """Replace Scrapy's robots.txt middleware in the settings by `RobotsMiddleware`, if it is enabled."""
    position = None
    for name in (MIDDLEWARES + "_BASE", MIDDLEWARES):
        for path, value in settings.getdict(name).items():
            if load_object(path) is RobotsTxtMiddleware:
                position = value
    if position is not None:
        settings.set_in_component_priority_dict(MIDDLEWARES, RobotsTxtMiddleware, None)
        settings.setdefault_in_component_priority_dict(MIDDLEWARES, RobotsMiddleware, position)
