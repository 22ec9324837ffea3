"""Every planned page ends its cycle with exactly one outcome, whatever the server does."""

import gzip
import random
from collections.abc import AsyncIterator, Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import pytest_twisted
from scrapy import Request
from scrapy.exceptions import CloseSpider
from twisted.internet import reactor
from twisted.web.http import Request as ServerRequest

from scrapy_gp4c.store.lmdb_store.store import Store
from tests.support.loopback import Page, Pages, Site, crawl, html, outcomes, stats

WORDS = "a page with a text of more than a few words on nothing in particular that rarely changes at all"
RANDOM_BYTES = random.Random(1).randbytes(100_000)
FAST = {
    "DOWNLOAD_TIMEOUT": 2,
    "RETRY_TIMES": 1,
    "GP4C_BUDGET": 1.0,
    "CONCURRENT_REQUESTS_PER_DOMAIN": 32,
    "CONCURRENT_REQUESTS": 32,
}


def with_status(status: int, body: bytes = b"<p>nothing of interest</p>") -> Callable[[ServerRequest], bytes]:
    """Return a page with this HTTP status."""

    def page(request: ServerRequest) -> bytes:
        request.setResponseCode(status)
        return body

    return page


def with_headers(body: bytes, **headers: str) -> Callable[[ServerRequest], bytes]:
    """Return a page with these headers."""

    def page(request: ServerRequest) -> bytes:
        for name, value in headers.items():
            request.setHeader(name.replace("_", "-"), value)
        return body

    return page


def to(location: str) -> Callable[[ServerRequest], bytes]:
    """Return a page that redirects."""

    def page(request: ServerRequest) -> bytes:
        request.redirect(location.encode())
        return b""

    return page


def never(request: ServerRequest) -> None:
    """Do not answer at all."""


def reset(request: ServerRequest) -> None:
    """Cut the connection in the middle of the headers."""
    request.transport.abortConnection()


def stalls(request: ServerRequest) -> None:
    """Begin a body and never end it."""
    request.write(b"<html>" + b" " * 1000)


def cut_off(request: ServerRequest) -> None:
    """Promise more body than comes."""
    request.setHeader("Content-Length", "100000")
    request.write(b"<html><body>" + WORDS.encode())
    reactor.callLater(0.05, request.transport.loseConnection)


def streams(megabytes: int) -> Callable[[ServerRequest], None]:
    """Return a page of this many MB, served as it is read."""

    def page(request: ServerRequest) -> None:
        chunk = (WORDS + " ").encode() * 10_000
        state = {"left": megabytes * 1_000_000, "over": False}
        request.notifyFinish().addErrback(lambda _: state.update(over=True))

        class Producer:
            def resumeProducing(self) -> None:  # noqa: N802
                if not state["over"] and state["left"] > 0:
                    state["left"] -= len(chunk)
                    request.write(chunk)
                elif not state["over"]:
                    state["over"] = True
                    request.unregisterProducer()
                    request.finish()

            def stopProducing(self) -> None:  # noqa: N802
                """Stop: the client has gone."""
                state["over"] = True

        request.setHeader("Content-Type", "text/html")
        request.registerProducer(Producer(), False)

    return page


BOMBS_MB = 64, 200


@cache
def bomb(megabytes: int) -> bytes:
    """Return zeros that gzip packs a thousand times smaller."""
    return gzip.compress(bytes(megabytes * 1_000_000), 9)


def packed_bomb(request: ServerRequest) -> bytes:
    """Answer with a bomb, which is made when it is asked for: most who import this module do not."""
    return with_headers(bomb(BOMBS_MB[0]), Content_Encoding="gzip")(request)


def bomb_of_bombs(request: ServerRequest) -> bytes:
    """Answer with a bomb that is packed twice."""
    return with_headers(gzip.compress(bomb(BOMBS_MB[1])), Content_Encoding="gzip, gzip")(request)


# path: (what the server does in the second cycle, outcome of the page)
HOSTILE: dict[str, tuple[Page, str]] = {
    "/same": (html(WORDS), "unchanged"),
    "/new-text": (
        html("an entirely different text with not one sentence in common with the first one"),
        "changed",
    ),
    "/never": (never, "error"),
    "/stalls": (stalls, "error"),
    "/reset": (reset, "error"),
    "/cut-off": (cut_off, "error"),
    "/loop": (to("/loop"), "error"),
    "/loop-1": (to("/loop-2"), "error"),
    "/loop-2": (to("/loop-1"), "error"),
    "/endless": (lambda request: to(f"{request.uri.decode()}?x=1")(request), "error"),
    "/to-known": (to("/same"), "unchanged"),
    "/to-known-too": (to("/same"), "unchanged"),
    "/to-nowhere": (to("http://127.0.0.1:9/"), "error"),
    "/to-file": (to("file:///etc/hostname"), "error"),
    "/to-nonsense": (to("http://"), ""),
    "/bomb": (packed_bomb, "error"),
    "/bomb-of-bombs": (bomb_of_bombs, "error"),
    "/not-gzip": (with_headers(b"this is not gzip", Content_Encoding="gzip"), ""),
    "/large": (streams(3), "error"),
    "/empty": (b"", "doubtful"),
    "/blank": (html("", title=""), "doubtful"),
    "/binary": (with_headers(RANDOM_BYTES, Content_Type="application/octet-stream"), "doubtful"),
    "/binary-as-html": (with_headers(RANDOM_BYTES, Content_Type="text/html"), "changed"),
    "/no-such-charset": (
        with_headers(html(WORDS).encode(), Content_Type="text/html; charset=x-none"),
        "unchanged",
    ),
    "/utf-16-said-8": (
        with_headers(html(WORDS).encode("utf-16"), Content_Type="text/html; charset=utf-8"),
        "",
    ),
    "/broken-utf-8": (
        with_headers(html(WORDS).encode() + b"\xff\xfe\xc3", Content_Type="text/html; charset=utf-8"),
        "",
    ),
    "/deep": (b"<div>" * 100_000 + WORDS.encode(), ""),
    "/nul": (b"\0" * 10_000, ""),
    "/no-type": (with_headers(html(WORDS).encode(), Content_Type=""), ""),
    "/404": (with_status(404), "gone"),
    "/410": (with_status(410), "gone"),
    "/403": (with_status(403), "error"),
    "/500": (with_status(500), "error"),
    "/503": (with_status(503), "error"),
    "/304": (with_status(304, b""), "error"),  # nobody asked for it
    "/204": (with_status(204, b""), "error"),
    "/418": (with_status(418), "error"),
    "/999": (with_status(999), "error"),
    "/denied": (html(WORDS), "excluded"),
}


ELSEWHERE = [path for path, (_, outcome) in HOSTILE.items() if outcome not in ("changed", "unchanged")]
"""Pages on hosts of four: a host that fails or is doubted five times in a row is left alone."""
HOSTS = ["127.0.0.1", *(f"127.0.0.{2 + number}" for number in range((len(ELSEWHERE) + 3) // 4))]


@pytest.fixture
def hosts() -> Iterator[Site]:
    """A site on several hosts."""
    site = Site(hosts=HOSTS)
    yield site
    pytest_twisted.blockon(site.close())


@pytest.mark.slow
@pytest.mark.parametrize("asked", [False, True])
async def test_one_outcome_each(asked: bool, hosts: Site, store_path: Path) -> None:
    """Timeouts, resets, loops, bombs, floods, broken bodies, robots denial: one outcome per planned page.

    Whether the spider asks for the pages itself or leaves them to the plan.
    """
    site = hosts
    for megabytes in BOMBS_MB:
        bomb(megabytes)  # while no download waits for it
    site.pages = {path: html(WORDS) for path in HOSTILE}
    host_of = {path: HOSTS[1 + number // 4] for number, path in enumerate(ELSEWHERE)}
    urls = tuple(site.url(path, host_of.get(path, "127.0.0.1")) for path in HOSTILE)
    await crawl(Pages, store_path, FAST, urls=urls)
    assert outcomes(store_path, 1) == {path: ["first"] for path in HOSTILE}

    site.pages = {path: page for path, (page, _) in HOSTILE.items()}
    site.pages["/robots.txt"] = with_headers(b"User-agent: *\nDisallow: /denied\n", Content_Type="text/plain")
    site.log.clear()
    hostile = {**FAST, "ROBOTSTXT_OBEY": True, "DOWNLOAD_MAXSIZE": 2_000_000}
    crawler = await crawl(Pages, store_path, hostile, urls=urls if asked else ())
    page_outcomes = outcomes(store_path, 2)
    assert page_outcomes.keys() == HOSTILE.keys()
    assert {path: ends for path, ends in page_outcomes.items() if len(ends) != 1} == {}
    expected = {path: outcome for path, (_, outcome) in HOSTILE.items() if outcome}
    assert {path: page_outcomes[path][0] for path in expected} == expected
    assert stats(crawler)["planned"] == stats(crawler)["visited"] == len(HOSTILE)
    assert site.hits["GET", "/503"] == 2  # one retry, charged to nobody

    # Texts of their own: one text of many pages that differed before would be doubted.
    site.pages = {path: html(" ".join(f"{path[1:]}{n}" for n in range(60))) for path in HOSTILE}
    await crawl(Pages, store_path, FAST)
    healed = outcomes(store_path, 3)
    assert healed.keys() == HOSTILE.keys()
    assert healed.pop("/binary-as-html") == ["doubtful"]  # it has less than a tenth of its words now
    for path, ends in healed.items():
        assert ends == ["changed" if page_outcomes[path] == ["changed"] else ends[0]], path
        assert ends[0] in ("unchanged", "changed"), path
    with Store(store_path, readonly=True) as store:
        assert store.verify() == []


async def test_a_body_of_20_mb_is_one_visit(site: Site, store_path: Path) -> None:
    """Under Scrapy's default limit of 1 GB, such a body is read, fingerprinted and recorded."""
    site.pages["/"] = streams(20)
    for cycle in (1, 2):
        await crawl(Pages, store_path, {"DOWNLOAD_WARNSIZE": 0}, urls=(site.url(),))
        assert outcomes(store_path, cycle) == {"/": ["first" if cycle == 1 else "unchanged"]}
    with Store(store_path, readonly=True) as store:
        (_, visits), *_ = store.visits()
        assert visits["bytes"][0] >= 20_000_000


async def test_hosts_that_do_not_exist(store_path: Path) -> None:
    """A name without an address and a port without a server are errors, then retried ever more rarely."""
    urls = ("http://no-such-host.invalid/x", "http://127.0.0.1:9/y")
    tried = []
    for cycle in range(1, 9):
        await crawl(Pages, store_path, {"RETRY_ENABLED": False, "DNS_TIMEOUT": 5}, urls=urls)
        page_outcomes = outcomes(store_path, cycle)
        assert page_outcomes in ({}, {"/x": ["error"], "/y": ["error"]})
        if page_outcomes:
            tried.append(cycle)
    assert tried == [1, 2, 4, 8]


def no_features(response: Any) -> list[str]:
    """Fail, as a GP4C_FEATURES function may."""
    raise LookupError("no such element")


async def test_failing_features_cost_the_visit_not_the_callback(site: Site, store_path: Path) -> None:
    """When the function named by GP4C_FEATURES raises, the visit is an error and the spider has its page."""
    site.pages["/"] = html(WORDS)
    called = []

    class Reads(Pages):
        def parse(self, response: Any) -> None:
            called.append(response.text)

    await crawl(Reads, store_path, {"GP4C_FEATURES": no_features}, urls=(site.url(),))
    assert outcomes(store_path, 1) == {"/": ["error"]}
    assert called == [html(WORDS)]


class Swallow:
    """A downloader middleware of the user on the engine side of ours, which fails or answers itself."""

    def process_request(self, request: Request) -> Any:
        if request.url.endswith("raises-before"):
            raise ValueError
        return None

    def process_response(self, request: Request, response: Any) -> Any:
        if request.url.endswith("raises-after"):
            raise ValueError
        if request.url.endswith("repeats") and not request.meta.get("repeated"):
            return request.replace(meta={**request.meta, "repeated": True}, dont_filter=True)
        return response


@pytest.mark.parametrize("position", [2, 560])
async def test_other_middlewares_that_fail(position: int, site: Site, store_path: Path) -> None:
    """A middleware that raises or repeats, before or after ours, leaves one outcome per page."""
    paths = ["/fine", "/raises-before", "/raises-after", "/repeats"]
    site.pages.update({path: html(WORDS) for path in paths})
    urls = tuple(site.url(path) for path in paths)
    await crawl(Pages, store_path, urls=urls)
    crawl_settings = {"DOWNLOADER_MIDDLEWARES": {Swallow: position}}
    site.log.clear()
    await crawl(Pages, store_path, crawl_settings, urls=urls)
    raised = ["unchanged" if position == 2 else "error"]
    assert outcomes(store_path, 2) == {
        "/fine": ["unchanged"],
        "/raises-before": ["error"],
        "/raises-after": raised,
        "/repeats": ["unchanged"],
    }
    assert site.hits["GET", "/repeats"] == 2


async def test_a_spider_that_closes_itself_ends_the_cycle(
    site: Site, store_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """CloseSpider ends the cycle with what was visited; the pages not reached are ranked again next time.

    So it is where a limit closes the run before any visit.
    """
    site.pages.update({f"/{number}": html(WORDS) for number in range(40)})
    urls = tuple(site.url(path) for path in site.pages)
    await crawl(Pages, store_path, urls=urls)

    class Closes(Pages):
        def parse(self, response: Any) -> None:
            raise CloseSpider("enough")

    class Early(Pages):
        async def start(self) -> AsyncIterator[Any]:
            """Stop before any page, as a limit of memory may."""
            await self.crawler.engine.close_spider_async(reason="early")
            yield

    crawler = await crawl(Closes, store_path, {"CONCURRENT_REQUESTS": 1, "DOWNLOAD_DELAY": 0.05})
    assert crawler.stats.get_value("finish_reason") == "enough"
    visited = outcomes(store_path, 2)
    assert 0 < len(visited) < 40
    assert f"left out {len(site.pages) - len(visited)} of {len(site.pages)} planned pages" in caplog.text
    caplog.clear()
    await crawl(Early, store_path)
    (line,) = [one.getMessage() for one in caplog.records if one.levelname == "WARNING"]
    assert line.startswith(f"Cycle 3 left out {len(site.pages)} of {len(site.pages)} planned pages")
    await crawl(Pages, store_path)
    assert set(outcomes(store_path, 4)) == set(site.pages)
