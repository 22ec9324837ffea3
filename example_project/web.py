"""Serve the monitored web on loopback: ``python -m example_project.web --day-file PATH --port N``.

Every host has an address of its own (127.0.0.1, 127.0.0.2, ...), all at one port. The day that the web
shows stands in the day file, which is read at every request; nothing here waits for time to pass,
except the slow host.
"""

import argparse
import re
import sys
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

from twisted.internet import error
from twisted.internet import reactor as _reactor
from twisted.logger import (
    FilteringLogObserver,
    LogLevel,
    LogLevelFilterPredicate,
    globalLogBeginner,
    textFileLogObserver,
)
from twisted.web import http, resource, server

from .files import render_file, render_week, since
from .model import CALENDAR_HOST, CP1252_HOST, LAST_DAY, LATIN_HOST, ROBOTS_HOST, SLOW_HOST, Web
from .page_text import Noise, render

SLOW_DELAY_S = 0.3
WEEK = re.compile(r"/calendar/week-([1-9][0-9]{0,17})\.html")
reactor: Any = _reactor  # the module stands for an object that only exists at run time


class WebError(Exception):
    """Error where the web cannot be served: bad day file, or an address that cannot be listened on."""


def read_day(path: Path) -> int:
    """Return the day that the day file holds.

    Raises:
        WebError: the file is missing or holds no whole number from 1 to LAST_DAY.
    """
    try:
        text = path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as problem:
        raise WebError(f"day file {path}: cannot be read ({problem}); write a day number into it") from None
    if not text.isdecimal() or not 1 <= int(text) <= LAST_DAY:
        raise WebError(f"day file {path}: expected a day from 1 to {LAST_DAY}, found {text[:40]!r}")
    return int(text)


class Site(resource.Resource):
    """Answers every request of every host; the host is the address that the client connected to."""

    isLeaf = True  # noqa: N815 - twisted's name

    def __init__(self, web: Web, day_file: Path, noise_seed: int | None = None) -> None:
        super().__init__()
        self.web, self.day_file = web, day_file
        self.dice = Random(noise_seed)
        self.refused: Counter[tuple[int, int]] = Counter()  # 503 answers per (day, page)
        self.shown: dict[int, datetime] = {}  # when a day was first shown

    def render(self, request: server.Request) -> bytes | int:
        """Answer now, or after a delay on the slow host."""
        here = request.getHost()
        host = int(here.host.rpartition(".")[2]) - 1
        body = self.answer(request, here.host, host, here.port)
        if host != SLOW_HOST:
            return body
        call = reactor.callLater(SLOW_DELAY_S, self.finish, request, body)
        request.notifyFinish().addErrback(lambda _: call.active() and call.cancel())
        return server.NOT_DONE_YET

    @staticmethod
    def finish(request: server.Request, body: bytes) -> None:
        """Send a delayed body."""
        request.write(body)
        request.finish()

    def answer(self, request: server.Request, address: str, host: int, port: int) -> bytes:
        """Set the status and the headers of the response, return its body."""
        web = self.web
        path = request.path.decode("ascii", "replace")
        if request.method not in (b"GET", b"HEAD"):
            return self.plain(request, http.NOT_ALLOWED, "only GET and HEAD are served here")
        if path == "/robots.txt" and host % 4 != 1:  # a quarter of the hosts has none
            rule = "Disallow: /private/" if host == ROBOTS_HOST else "Disallow:"
            return self.plain(request, http.OK, f"User-agent: *\n{rule}\n")
        if host == CALENDAR_HOST and (week := WEEK.fullmatch(path)):
            request.setHeader(b"content-type", b"text/html; charset=utf-8")
            return render_week(web, int(week[1]), Noise(self.dice, datetime.now(UTC))).encode()
        try:
            day = read_day(self.day_file)
        except WebError as problem:
            return self.plain(request, http.INTERNAL_SERVER_ERROR, str(problem))
        self.shown.setdefault(day, datetime.now(UTC))
        page = web.find(address, path)
        if page is None or web.born[page] > day:
            return self.plain(request, http.NOT_FOUND, "no such page")
        if day >= web.gone[page]:
            return self.plain(request, http.GONE if page % 2 else http.NOT_FOUND, "this page is gone")
        if self.refused[day, page] < web.refusals(day)[page]:
            self.refused[day, page] += 1
            request.setHeader(b"retry-after", b"1")
            return self.plain(request, http.SERVICE_UNAVAILABLE, "busy, try again")
        target = int(web.alias[page])
        if target != page:
            request.setHeader(b"location", web.url(target, port).encode("ascii"))
            return self.plain(request, http.MOVED_PERMANENTLY if page % 2 else http.FOUND, "moved")
        return self.page(request, page, day, port)

    def page(self, request: server.Request, page: int, day: int, port: int) -> bytes:
        """Return a page, or nothing where the client's validators show that it has the version."""
        web = self.web
        host = int(web.host[page])
        if web.file[page]:
            content_type, text = render_file(web, page, day, port, self.shown)
            request.setHeader(b"content-type", content_type.encode("ascii"))
            return text.encode()
        if host % 4:  # three quarters of the hosts send validators
            modified = since(self.shown, int(web.last_change(day)[page]))
            known = request.setETag(f'W/"{web.seed}-{page}-{web.versions(day)[page]}"'.encode("ascii"))
            # If-None-Match outranks If-Modified-Since (RFC 9110, 13.1.3).
            asked = request.getHeader(b"if-none-match")
            unmodified = request.setLastModified(modified.timestamp())
            if known is http.CACHED or (asked is None and unmodified is http.CACHED):
                request.setResponseCode(http.NOT_MODIFIED)
                return b""
            request.setResponseCode(http.OK)
        charset = header_charset(host)
        request.setHeader(b"content-type", f"text/html{charset and f'; charset={charset}'}".encode("ascii"))
        html = render(web, page, day, port, Noise(self.dice, datetime.now(UTC)))
        encoding = "cp1252" if host == CP1252_HOST else "utf-8"
        return html.encode(encoding, "xmlcharrefreplace")

    @staticmethod
    def plain(request: server.Request, status: int, text: str) -> bytes:
        """Set the status, return a plain text."""
        request.setResponseCode(status)
        request.setHeader(b"content-type", b"text/plain; charset=utf-8")
        return text.encode()


def header_charset(host: int) -> str:
    """Return the charset that a host's Content-Type declares, "" for none; not always the true one."""
    if host == LATIN_HOST:
        return "iso-8859-1"
    return "utf-8" if host % 2 else ""


def serve(web: Web, day_file: Path, port: int) -> int:
    """Listen on every host's address; return the port, which is a free one where ``port`` is 0.

    Raises:
        WebError: an address cannot be listened on.
    """
    site = server.Site(Site(web, day_file))
    site.displayTracebacks = False
    for host in range(web.hosts + 1):
        try:
            port = reactor.listenTCP(port, site, interface=web.address(host), backlog=512).getHost().port
        except error.CannotListenError as problem:
            raise WebError(
                f"cannot listen on {web.address(host)}:{port} ({problem.socketError}); "
                "stop what uses it or choose another --port"
            ) from None
    return port


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until stopped; 2 with one message on standard error where that is not possible."""
    parser = argparse.ArgumentParser(
        prog="python -m example_project.web", description="Serve the monitored web."
    )
    parser.add_argument("--day-file", type=Path, required=True, help="file that holds the day to show")
    parser.add_argument("--port", type=int, default=8410, help="port on 127.0.0.x, 0: a free one (8410)")
    parser.add_argument("--seed", type=int, default=1, help="seed of the change model (1)")
    parser.add_argument(
        "--hosts", type=int, default=40, help="hosts besides the directory, about 60 pages each (40)"
    )
    options = parser.parse_args(arguments)
    try:
        read_day(options.day_file)
        web = Web(options.seed, options.hosts)
        port = serve(web, options.day_file, options.port)
    except (WebError, ValueError) as problem:
        print(f"example_project.web: {problem}", file=sys.stderr)
        return 2
    print(f"{web.pages} pages on {web.hosts + 1} hosts, start at {web.url(0, port)}", flush=True)
    errors = LogLevelFilterPredicate(defaultLogLevel=LogLevel.error)
    observer = FilteringLogObserver(textFileLogObserver(sys.stderr), [errors])
    globalLogBeginner.beginLoggingTo([observer], redirectStandardIO=False)
    reactor.run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
