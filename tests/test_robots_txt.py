"""What robots.txt disallows is not fetched, whoever waits for it and however long that takes."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from scrapy import Request
from scrapy.downloadermiddlewares.robotstxt import RobotsTxtMiddleware
from scrapy.settings import Settings as ScrapySettings
from twisted.internet import reactor
from twisted.web.http import Request as ServerRequest

from scrapy_gp4c import Addon
from scrapy_gp4c.crawling.fetched import NotFetchedError
from scrapy_gp4c.robots_txt import RobotsMiddleware
from scrapy_gp4c.store.opening import Store
from tests.support.loopback import LinkFollower, Listed, Site, crawl, html, outcomes, stats

SCRAPYS = "scrapy.downloadermiddlewares.robotstxt.RobotsTxtMiddleware"
FORBIDDEN = tuple(f"/private/{number}" for number in range(8))
ALLOWED = tuple(f"/public/{number}" for number in range(8))
SETTINGS = {
    "ROBOTSTXT_OBEY": True,
    "RETRY_ENABLED": False,
    "GP4C_BUDGET": 1.0,
    "CONCURRENT_REQUESTS_PER_DOMAIN": 16,
}


class Many(Listed):
    """Requests many pages of one host at once."""

    name = "many"
    site: Site

    async def start(self) -> AsyncIterator[Any]:
        """Request them all, those that are disallowed between the others."""
        for pair in zip(ALLOWED, FORBIDDEN, strict=True):
            for path in pair:
                yield Request(self.site.url(path), errback=self.failed)

    def failed(self, failure: Any) -> None:
        """Expect that some are not fetched."""


def late(request: ServerRequest) -> None:
    """Disallow a directory, as late as all requests are waiting."""
    request.setHeader(b"Content-Type", b"text/plain")

    def answer() -> None:
        request.write(b"User-agent: *\nDisallow: /private/\n")
        request.finish()

    reactor.callLater(0.3, answer)


async def test_all_requests_that_wait_for_a_robots_txt_hear_what_it_says(
    site: Site, store_path: Path
) -> None:
    """Many requests wait for their host's robots.txt, as at the start of a cycle: it counts for all."""
    site.pages = {path: html(f"the page at {path}") for path in ALLOWED + FORBIDDEN}
    site.pages["/robots.txt"] = late
    for cycle in (1, 2):
        site.log.clear()
        crawler = await crawl(Many, store_path, SETTINGS, site=site)
        assert site.fetched() == {*ALLOWED, "/robots.txt"}
        assert site.hits["GET", "/robots.txt"] == 1
        expected = {path: ["first" if cycle == 1 else "unchanged"] for path in ALLOWED}
        assert outcomes(store_path, cycle) == expected | {path: ["excluded"] for path in FORBIDDEN}
        assert stats(crawler)["visited"] == len(ALLOWED) + len(FORBIDDEN)


async def test_a_robots_txt_that_fails_keeps_nobody_waiting(
    site: Site, store_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Where it is missing, all may be fetched; where its connection breaks, nothing (RFC 9309, 2.3.1.4)."""

    def broken(request: ServerRequest) -> None:
        request.transport.abortConnection()

    site.pages = {path: html(f"the page at {path}") for path in ALLOWED + FORBIDDEN}
    await crawl(Many, store_path, SETTINGS, site=site)
    assert site.fetched() == {*ALLOWED, *FORBIDDEN, "/robots.txt"}
    site.log.clear()
    site.pages["/robots.txt"] = broken
    await crawl(Many, store_path, SETTINGS, site=site)
    assert site.fetched() == {"/robots.txt"}
    assert "because its robots.txt fails with" in caplog.text


async def test_a_robots_txt_that_redirects_without_end_is_asked_for_once(
    site: Site, store_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It counts as missing (RFC 9309, 2.3.1.2) for all pages, also for those that are found later."""

    def again(request: ServerRequest) -> bytes:
        request.redirect(b"/robots.txt")
        return b""

    links = "".join(f'<a href="{path}">{path}</a>' for path in ALLOWED + FORBIDDEN)
    site.pages = {"/list": html(links), "/robots.txt": again}
    site.pages |= {path: html(f"the page at {path}") for path in ALLOWED + FORBIDDEN}
    await crawl(Listed, store_path, {**SETTINGS, "REDIRECT_MAX_TIMES": 3}, site=site)
    assert site.fetched() == {"/list", "/robots.txt", *ALLOWED, *FORBIDDEN}
    assert site.hits["GET", "/robots.txt"] == 4
    assert "is ignored (max redirections reached)" in caplog.text


@pytest.mark.parametrize(
    ("theirs", "position"),
    [
        ({}, 100),
        ({SCRAPYS: 70}, 70),
        ({RobotsTxtMiddleware: 70}, 70),
        ({SCRAPYS: None}, None),
        ({RobotsTxtMiddleware: None}, None),
        ({RobotsMiddleware: 60}, 60),
    ],
)
def test_it_takes_the_place_of_scrapys(theirs: dict[Any, int | None], position: int | None) -> None:
    """Ours is where Scrapy's was, whether by default or by the project; who turned it off has none."""
    settings = ScrapySettings({"DOWNLOADER_MIDDLEWARES": theirs})
    Addon().update_settings(settings)
    middlewares = settings.getwithbase("DOWNLOADER_MIDDLEWARES")
    assert middlewares.get(RobotsMiddleware) == position
    crawl_settings = settings.getdict("DOWNLOADER_MIDDLEWARES")
    assert [crawl_settings[key] for key in crawl_settings if key in (SCRAPYS, RobotsTxtMiddleware)] == [None]


@pytest.mark.parametrize(
    ("body", "is_allowed"),
    [
        ("User-agent: *\nDisallow: /private/\n".encode("utf-16"), False),
        ("User-agent: *\nDisallow: /private/\n".encode("utf-16-le"), False),
        ("User-agent: *\nDisallow: /private/\n".encode("utf-16-be"), False),
        (b"\xef\xbb\xbfUser-agent: *\nDisallow: /private/\n", False),
        (b"<html><pre>\nUser-agent: *\nDisallow: /\n</pre></html>", True),
    ],
)
async def test_encodings_and_pages_in_place_of_a_robots_txt(
    body: bytes, is_allowed: bool, site: Site, store_path: Path
) -> None:
    """Rules in UTF-16 hold; a page of markup, to which a redirect led, has none."""

    def led_away(request: ServerRequest) -> bytes:
        request.redirect(b"/rules")
        return b""

    site.pages = {path: html(f"the page at {path}") for path in ALLOWED + FORBIDDEN}
    site.pages |= {"/robots.txt": led_away, "/rules": body}
    await crawl(Many, store_path, SETTINGS, site=site)
    assert site.fetched() == {*ALLOWED, *(FORBIDDEN if is_allowed else ()), "/robots.txt", "/rules"}


class Impatient:
    """Downloader middleware that drops the first request of a robots.txt."""

    def __init__(self) -> None:
        self.has_dropped = False

    def process_request(self, request: Request) -> None:
        """Drop it, as a fetcher does whose batch has ended."""
        if request.url.endswith("/robots.txt") and not self.has_dropped:
            self.has_dropped = True
            raise NotFetchedError


class Listed(Many):
    """Requests a page, and those that it lists."""

    async def start(self) -> AsyncIterator[Any]:
        yield Request(self.site.url("/list"))

    def parse(self, response: Any) -> Any:
        yield from response.follow_all(css="a", errback=self.failed)


async def test_a_robots_txt_that_was_not_asked_for_is_asked_for_again(site: Site, store_path: Path) -> None:
    """Else a fetcher whose batch ended too early would take the host for one without rules from then on."""
    links = "".join(f'<a href="{path}">{path}</a>' for path in (ALLOWED[0], FORBIDDEN[0]))
    site.pages = {"/list": html(links), "/robots.txt": late}
    site.pages |= {path: html(f"the page at {path}") for path in (ALLOWED[0], FORBIDDEN[0])}
    settings = {**SETTINGS, "DOWNLOADER_MIDDLEWARES": {Impatient: 1}}
    await crawl(Listed, store_path, settings, site=site)
    assert site.fetched() == {"/list", "/robots.txt", ALLOWED[0]}


class Gopher(Many):
    """Requests of a host what nobody can fetch, before its pages."""

    async def start(self) -> AsyncIterator[Any]:
        yield Request(self.site.url("/").replace("http:", "gopher:"))
        yield Request(self.site.url("/list"), callback=self.list)

    def list(self, response: Any) -> Any:
        """Request another scheme, and pages."""
        yield Request("ftp://127.0.0.1:9/list")  # a port that answers would be waited for a minute
        yield from response.follow_all(css="a", errback=self.failed)


async def test_a_link_that_is_not_http_says_nothing_of_its_host(
    site: Site, store_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its host's pages are fetched by their own rules; that it fails is said, and fails no visit."""
    links = f'<a href="{ALLOWED[0]}">one</a><a href="{FORBIDDEN[0]}">other</a>'
    site.pages = {path: html(f"the page at {path}") for path in ALLOWED + FORBIDDEN}
    site.pages |= {"/list": html(links), "/robots.txt": late}
    crawler = await crawl(Gopher, store_path, SETTINGS, site=site)
    assert site.fetched() == {"/list", "/robots.txt", ALLOWED[0]}
    assert stats(crawler)["failed_other_schemes"] == 2
    with Store(store_path, readonly=True) as store:
        assert not store.newest_value("undelivered", None)
    assert caplog.text.count("it fails no visit") == 1


async def test_a_password_in_a_link_is_not_kept_as_the_name_of_a_host(
    site: Site, store_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Scrapy can ask no such host for its robots.txt: our warning and the store had the password."""
    link = site.url("/public/9").replace("//", "//user:opensesame@")
    site.pages = {"/": html("a page", [link, ALLOWED[0]]), ALLOWED[0]: html("another page")}
    await crawl(LinkFollower, store_path, SETTINGS, url=site.url())
    (warning,) = (one for one in caplog.records if "Nothing of" in one.getMessage())
    assert "opensesame" not in warning.getMessage()
    assert all(b"opensesame" not in one.read_bytes() for one in store_path.rglob("*") if one.is_file())
    assert site.fetched() == {"/", "/robots.txt", ALLOWED[0]}
