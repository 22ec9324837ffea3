"""Stored requests: made, kept as JSON, told apart, rebuilt, and marked with their finders."""

import gzip
import json
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scrapy import FormRequest, Request, Spider
from scrapy.crawler import Crawler
from scrapy.http import JsonRequest
from scrapy.http.request import NO_CALLBACK
from scrapy.settings import Settings as ScrapySettings
from scrapy.utils.defer import deferred_from_coro
from scrapy.utils.request import RequestFingerprinter
from twisted.internet import reactor
from twisted.web.http import Request as ServerRequest

from scrapy_gp4c.commands.project import Project
from scrapy_gp4c.crawling.requests import (
    FOUND_BY,
    TRANSIENT_META,
    UNKNOWN_FINDER,
    Rebuilder,
    finder_of,
    from_stored,
    is_page_request,
    page_key,
    to_stored,
)
from scrapy_gp4c.crawling.run import run_of
from scrapy_gp4c.scoring.discovery import START
from scrapy_gp4c.store.credentials import SECRET_PARAMS, Credentials
from scrapy_gp4c.store.lmdb_store.store import Store
from tests.commands.test_commands import in_process
from tests.support.loopback import LinkFollower, Listed, Pages, Site, crawl, html, outcomes, stats
from training import report, store_history


class Stranger(Spider):
    name = "stranger"

    def parse_page(self, response: Any, **kwargs: Any) -> None:
        """Be a callback."""

    def failed(self, failure: Any) -> None:
        """Be an errback."""


SPIDER = Stranger()
URL = "http://127.0.0.1/page?a=1"


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (Request(URL), True),
        (Request(URL, dont_filter=True, callback=SPIDER.parse_page), True),
        (Request(URL, meta={"gp4c": {"changed": True}}), True),
        (FormRequest(URL, method="GET", formdata={"q": "x"}), True),
        (Request(URL, meta={"gp4c": False}), False),
        (Request(URL, method="POST"), False),
        (Request(URL, method="HEAD"), False),
        (Request(URL, body=b"query"), False),
        (JsonRequest(URL, data={"q": 1}), False),
        (Request(URL, callback=NO_CALLBACK), False),
        (Request("data:,hello"), False),
        (Request("ftp://127.0.0.1/file"), False),
    ],
)
def test_only_plain_gets_of_pages_are_ours(request_: Request, expected: bool) -> None:
    """POST, bodies, opted-out requests, media and robots.txt requests and other schemes are not pages."""
    assert is_page_request(request_) is expected


def test_a_bare_request_is_kept_as_its_url_alone() -> None:
    """What is at its default takes no room in the store."""
    assert to_stored(Request(URL), SPIDER) == {"url": Request(URL).url}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
META_KEYS = st.text(min_size=1).filter(lambda key: key not in TRANSIENT_META)
HEADER_VALUES = st.binary(min_size=1, max_size=20)


@given(
    st.sampled_from([None, "parse_page"]),
    st.sampled_from([None, "failed"]),
    st.dictionaries(st.text(min_size=1), JSON, max_size=3),
    st.dictionaries(META_KEYS, JSON, max_size=3),
    st.none() | st.sets(st.text(max_size=3) | st.binary(max_size=3), max_size=3),
    st.dictionaries(st.sampled_from(["Accept", "X-Token", "Referer"]), st.lists(HEADER_VALUES, min_size=1)),
    st.dictionaries(st.text("abc", min_size=1), st.text("xyz%;é")),
    st.integers(-100, 100),
    st.booleans(),
)
def test_round_trip_through_json(
    callback: str | None,
    errback: str | None,
    cb_kwargs: dict[str, Any],
    meta: dict[str, Any],
    marks: set[Any] | None,
    headers: dict[str, list[bytes]],
    cookies: dict[str, str],
    priority: int,
    dont_filter: bool,
) -> None:
    """A rebuilt request has everything that the spider, and perhaps a plugin, gave the first one."""
    given_request = Request(
        URL,
        callback=callback and getattr(SPIDER, callback),
        errback=errback and getattr(SPIDER, errback),
        cb_kwargs=cb_kwargs,
        meta=meta if marks is None else {**meta, "_marks": marks},
        headers=headers,
        cookies=cookies,
        priority=priority,
        dont_filter=dont_filter,
    )
    stored = to_stored(given_request, SPIDER)
    rebuilt = from_stored(json.loads(json.dumps(stored)), SPIDER)
    names = ("url", "method", "callback", "errback", "cb_kwargs", "meta", "headers", "cookies", "priority")
    for name in (*names, "dont_filter"):
        assert getattr(rebuilt, name) == getattr(given_request, name), name


def test_what_scrapy_noted_about_one_fetch_is_not_kept() -> None:
    """Retry and redirect counts of an earlier fetch do not shorten the next one."""
    meta = dict.fromkeys(TRANSIENT_META, 1)
    assert to_stored(Request(URL, meta={**meta, "kept": 1}), SPIDER)["meta"] == {"kept": 1}


def test_what_is_kept_does_not_change_with_the_request() -> None:
    """A callback that changes its arguments in place does not change what the store will write."""
    arguments = {"seen": ["a"]}
    stored = to_stored(Request(URL, cb_kwargs=arguments, meta=arguments), SPIDER)
    arguments["seen"].append("b")
    assert stored["cb_kwargs"] == stored["meta"] == {"seen": ["a"]}


@pytest.mark.parametrize(
    ("request_", "unstorable"),
    [
        (Request(URL, callback=lambda response: None), "callback"),
        (Request(URL, callback=partial(SPIDER.parse_page, x=1)), "callback"),
        (Request(URL, callback=Stranger().parse_page), "callback"),
        (Request(URL, errback=print), "errback"),
        (Request(URL, cb_kwargs={"pair": (1, 2)}), "cb_kwargs pair"),
        (Request(URL, cb_kwargs={"not a number": float("nan")}), "cb_kwargs not a number"),
        (Request(URL, meta={1: "number as key"}), "meta 1"),
        (Request(URL, meta={"object": object(), "kept": 1}), "meta object"),
        (Request(URL, meta={"_objects": {object()}}), "meta _objects"),
        (Request(URL, cookies={"raw": b"bytes"}), "cookies"),
    ],
)
def test_what_could_not_be_repeated_is_named(request_: Request, unstorable: str) -> None:
    """It is left out of the stored request, the rest is kept."""
    stored = to_stored(request_, SPIDER)
    assert stored["unstorable"] == [unstorable]
    assert stored.get("meta", {}) in ({}, {"kept": 1})


def test_deep_nesting_is_named_not_fatal() -> None:
    """Arguments nested deeper than JSON can go cannot be kept."""
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    assert to_stored(Request(URL, meta={"deep": deep}), SPIDER)["unstorable"] == ["meta deep"]


SECRETS = [f"s3cr3t{number:02d}" for number in range(14)]
MARK = "s3cr3t"


class UserOfUrl:
    """Sends the user of a URL as a header: Scrapy cannot fetch such URLs."""

    def process_request(self, request: Request) -> Request | None:
        scheme, _, rest = request.url.partition("://")
        user, at, host = rest.partition("@")
        return request.replace(url=f"{scheme}://{host}", headers={"X-User": user}) if at else None


EVERYTHING = {"GP4C_BUDGET": 1.0, "GP4C_WARMUP_VISITS": 0, "LOG_LEVEL": "INFO"}
USERS = {**EVERYTHING, "DOWNLOADER_MIDDLEWARES": {UserOfUrl: 10}}


class Secretive(Spider):
    """Asks for pages with a secret in a place of its own each."""

    name = "secretive"
    root = ""

    def asked(self) -> Iterator[Request]:
        host = self.root.removeprefix("http://")
        yield Request(f"{self.root}/0", headers={"Authorization": f"Token {SECRETS[0]}"})
        yield Request(f"{self.root}/1", headers={"Proxy-Authorization": SECRETS[1]})
        yield Request(f"{self.root}/2", headers={"Cookie": f"session={SECRETS[2]}"})
        yield Request(f"{self.root}/3", cookies={"session": SECRETS[3]})
        yield Request(f"http://user:{SECRETS[4]}@{host}/4")
        yield Request(f"{self.root}/5?api_key={SECRETS[5]}&n=1")
        yield Request(f"{self.root}/6", headers={"X-Api-Key": SECRETS[6]})
        yield Request(f"{self.root}/7", meta={"access_token": SECRETS[7]})
        yield Request(f"{self.root}/8", cb_kwargs={"password": SECRETS[8]})
        yield Request(f"{self.root}/9", meta={"deep": {"list": [{"client_secret": SECRETS[9]}]}})
        yield Request(f"{self.root}/10", headers={"Referer": f"{self.root}/?sig={SECRETS[10]}"})
        yield Request(f"{self.root}/11;sig={SECRETS[11]}#token={SECRETS[11]}")
        yield Request(f"{self.root}/12", headers={"X-Other": f"Bearer {SECRETS[12]}"})
        yield Request(
            f"{self.root}/13", meta={"parent": f"{self.root}/?to=http%3A//h/%3Ftoken%3D{SECRETS[13]}"}
        )

    async def start(self) -> AsyncIterator[Any]:
        for request in self.asked():
            yield request

    def parse(self, response: Any, password: str = "") -> Iterator[Any]:
        yield {"n": response.meta["gp4c"]["n"]}


class Giving(Secretive):
    """Gives planned requests what is missing, and asks for nothing itself once the pages are known."""

    name = "giving"
    known = False

    async def start(self) -> AsyncIterator[Any]:
        """Ask for all of them, in the first run."""
        for request in () if self.known else self.asked():
            yield request

    def gp4c_request(self, request: Request) -> Request:
        """Look up the request that is meant."""
        path = request.url.partition("://")[2].partition("/")[2].split("?")[0].split(";")[0]
        (meant,) = [one for one in self.asked() if one.url.split("?")[0].split(";")[0].endswith("/" + path)]
        return meant.replace(priority=request.priority)


def show(request: ServerRequest) -> bytes:
    """A page with what came of the secret in the request: it differs without it."""
    mine = b"Cookie" if request.path == b"/3" else None
    seen = [
        MARK in str(values)
        for name, values in request.requestHeaders.getAllRawHeaders()
        if name == mine or name not in (b"Cookie", b"Referer")  # other pages' cookies come along
    ]
    return html("one page of many words and more " * 5 + ("with" if any(seen) else "without") * 20).encode()


@pytest.fixture(autouse=True)
def _log_all(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)


@pytest.fixture
def pages_of(site: Site) -> Site:
    """The site with all pages."""
    for number in range(len(SECRETS)):
        path = f"/{number}" + (f";sig={SECRETS[11]}" if number == 11 else "")
        site.pages[path] = show
    return site


def everything_written(directory: Path, store: Path, caplog: pytest.LogCaptureFixture, capsys: Any) -> bytes:
    """All files of a store and all that commands and training make of it, and what was logged."""
    values = {"SPIDER_MODULES": ["tests.crawling.test_requests"], "GP4C_STORE": str(store)}
    project = Project(ScrapySettings(values), "secretive")
    for name in ("export.tsv", "export.tsv.gz"):
        in_process(project, "export", "-o", directory / name)
    for action in ("export", "status", "pages"):
        in_process(project, action)
    in_process(project, "pages", "--match", MARK)
    assert report.main([str(store), "-o", str(directory / "report.html")]) == 0
    assert store_history.main([str(store), "-o", str(directory / "history.tsv"), "--max-errors", "9"]) == 0
    result = [path.read_bytes() for path in sorted(directory.rglob("*")) if path.is_file()]
    shown = capsys.readouterr().out.replace(f"no page that matches {MARK} ", "")  # as it was asked for
    result += [gzip.decompress((directory / "export.tsv.gz").read_bytes()), shown.encode()]
    result += [record.getMessage().encode() for record in caplog.records if record.levelno > logging.DEBUG]
    return b"\n".join(result)


async def test_a_dozen_secrets_in_a_dozen_places_are_in_no_file(
    pages_of: Site, store_path: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, capsys: Any
) -> None:
    """No file, log, report or JSON has one; all pages are visited in every cycle, as the spider asks."""
    for cycle in (1, 2, 3):
        crawler = await crawl(type("Local", (Secretive,), {"root": pages_of.url("")}), store_path, USERS)
        ends = outcomes(store_path, cycle)
        assert len(ends) == len(SECRETS)
        assert ends == {path: ["first" if cycle == 1 else "unchanged"] for path in ends}
    assert stats(crawler)["secret_not_given"] >= 10
    lines = [record for record in caplog.records if "gp4c_request" in record.getMessage()]
    assert len(lines) == 2  # one in each cycle with planned pages
    assert MARK.encode() not in everything_written(tmp_path, store_path, caplog, capsys)


async def test_a_spiders_method_gives_planned_requests_what_is_missing(
    pages_of: Site, store_path: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, capsys: Any
) -> None:
    """The spider asks for nothing, and every planned page is visited as it was the first time."""
    for cycle in (1, 2, 3):
        spider = type("Local", (Giving,), {"root": pages_of.url(""), "known": cycle > 1})
        crawler = await crawl(spider, store_path, USERS)
        ends = outcomes(store_path, cycle)
        assert len(ends) == len(SECRETS)
        assert ends == {path: ["first" if cycle == 1 else "unchanged"] for path in ends}
        assert "secret_not_given" not in stats(crawler)
    assert MARK.encode() not in everything_written(tmp_path, store_path, caplog, capsys)


async def test_a_page_stays_the_same_page_when_its_secret_changes(site: Site, store_path: Path) -> None:
    """Another key in every cycle: one page, visited when planned, dropped when not, whoever gives the key."""
    site.pages["/a"] = html("words of a page " * 9)

    offered_requests = list[int | None]()

    class Hooked(Pages):
        cycle = 0

        def gp4c_request(self, request: Request) -> Request:
            return request.replace(url=request.url + f"H{self.cycle}")

        def closed(self, reason: str) -> None:
            run = run_of(self.crawler)
            offered_requests.append(None if run is None else len(run.admission.offered))

    with_key = {cycle: [site.url(f"/a?api_key=K{cycle}")] for cycle in range(1, 8)}
    for cycle in (1, 2, 3):
        await crawl(Pages, store_path, EVERYTHING, urls=with_key[cycle])
    for cycle in (4, 5):  # the spider does not ask for the page
        await crawl(Hooked, store_path, EVERYTHING, cycle=cycle)
    # The one visit of the budget is for pages of hosts where the cycle has found changes: none.
    nothing = {"GP4C_WARMUP_VISITS": 0, "GP4C_POLICY": "tests.support.policies.changed_hosts"}
    await crawl(Hooked, store_path, nothing, cycle=6, urls=with_key[6])
    await crawl(Pages, store_path, nothing, urls=with_key[7])
    paths = [path for _, path in site.log]
    assert [path[:-1] for path in paths[:3]] == ["/a?api_key=K"] * 3
    assert paths == [f"/a?api_key={key}" for key in ("K1", "K2", "K3", "H4", "H5")]
    assert offered_requests == [0, 0, 0], "none is kept of a page that the method can request"
    with Store(store_path, readonly=True) as store:
        assert store.pages == 1
        assert store.last_cycle == 7


async def test_pages_by_a_service_with_a_key_in_its_urls_keep_to_the_budget(
    site: Site, store_path: Path
) -> None:
    """All of them have the secret, and the spider asks for all of them every day."""
    pages = {
        f"/get?api_key=K&url=http://example.org/{number}": html(f"words of page {number} " * 9)
        for number in range(20)
    }
    site.pages.update(pages)
    urls = [site.url(path) for path in pages]
    await crawl(Pages, store_path, EVERYTHING, urls=urls)
    fetched = set[str]()
    for _ in range(4):
        site.log.clear()
        await crawl(Pages, store_path, {"GP4C_BUDGET": 5, "GP4C_WARMUP_VISITS": 0}, urls=urls)
        assert len(site.log) == 5
        fetched |= site.fetched()
    assert fetched == pages.keys()


@pytest.mark.parametrize(
    "signature",
    [
        "Expires={0}&Signature=0123456789abcdef{0}&Key-Pair-Id=APKA",
        "X-Amz-Date={0}T000000Z&X-Amz-Signature={0}",
        "md5=0123456789abcdef{0}&expires={0}",
    ],
)
async def test_a_page_with_another_signature_in_each_link_is_visited_by_the_link_of_today(
    signature: str, site: Site, store_path: Path
) -> None:
    """It stays one page, and is not asked for by an old link, which a server refuses."""
    for cycle in range(1, 5):
        link = f"/a?id=1&{signature.format(1764412340 + cycle)}"
        site.pages = {"/": html("links", [link] * (cycle != 3)), link: html(f"text {cycle // 4} " * 60)}
        site.log.clear()
        await crawl(LinkFollower, store_path, EVERYTHING, url=site.url())
        assert site.fetched() == ({"/"} if cycle == 3 else {"/", link})
    assert [ends for path, ends in outcomes(store_path, 4).items() if path != "/"] == [["changed"]]
    with Store(store_path, readonly=True) as store:
        assert store.pages == 2


async def test_what_is_called_a_key_and_is_none_loses_no_page(
    site: Site, store_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Pages that only their ``key`` tells apart are all fetched, and a line says which setting to change."""
    paths = {f"/product?key={name}" for name in "abc"}
    site.pages["/product"] = html("a product")
    urls = [site.url(path) for path in (*sorted(paths), "/product?key=a")]
    crawler = await crawl(Pages, store_path, urls=urls)
    assert site.fetched() == paths
    assert len(site.log) == 3
    assert stats(crawler)["secret_differs"] == 2
    assert [record for record in caplog.records if "GP4C_SECRET_PARAMS" in record.getMessage()]
    site.log.clear()
    await crawl(Pages, store_path, {"GP4C_SECRET_PARAMS": []}, urls=urls)
    assert site.fetched() == paths


async def test_cookies_of_the_session_serve_planned_pages(site: Site, store_path: Path) -> None:
    """The start page brings the cookie; pages asked for with it before wait for that, and are visited."""

    def start(request: ServerRequest) -> bytes:
        request.addCookie(b"session", b"s3cr3t")
        return html("start").encode()

    site.pages["/"] = start
    site.pages["/a"] = lambda request: html(
        "in " * 9 if request.getCookie(b"session") else "out " * 9
    ).encode()

    class Session(Listed):
        name = "session"

        async def start(self) -> AsyncIterator[Any]:
            yield Request(site.url("/"), meta={"gp4c": False}, callback=self.follow)

        def follow(self, response: Any) -> Iterator[Any]:
            """Ask for the page, in the first cycle alone."""
            if self.settings.getbool("FIRST"):
                yield Request(
                    site.url("/a"), headers={"Cookie": "session=s3cr3t"}, cookies={"session": "s3cr3t"}
                )

    await crawl(Session, store_path, {**EVERYTHING, "FIRST": True})
    crawler = await crawl(Session, store_path, EVERYTHING)
    assert outcomes(store_path, 2) == {"/a": ["unchanged"]}
    assert "secret_not_given" not in stats(crawler)


async def test_a_planned_page_that_nobody_asks_for_ends_as_an_error(site: Site, store_path: Path) -> None:
    """It cannot be requested without its secret; so it sleeps longer and longer, like pages that fail."""
    site.pages["/a"] = site.pages["/b"] = html("words")
    await crawl(Pages, store_path, EVERYTHING, urls=[site.url("/a?token=1"), site.url("/b")])
    site.log.clear()
    crawler = await crawl(Pages, store_path, EVERYTHING)
    assert outcomes(store_path, 2) == {"/a?token=": ["error"], "/b": ["unchanged"]}
    assert site.fetched() == {"/b"}
    assert stats(crawler)["secret_not_given"] == 1


async def test_pages_that_an_interrupted_run_was_asked_for_are_no_errors(
    site: Site, store_path: Path
) -> None:
    """Their requests with the secret are lost with that run, and the page with their links is visited."""
    links = [f"/p?token=K&id={number}" for number in range(4)]
    site.pages = {"/": html("links", links), "/p": lambda request: html(f"text {request.uri!r}").encode()}

    class Stopped(LinkFollower):
        def parse(self, response: Any) -> Iterator[Any]:
            yield from super().parse(response)
            reactor.callLater(0, lambda: deferred_from_coro(self.crawler.stop_async()))

    await crawl(LinkFollower, store_path, EVERYTHING, url=site.url())
    one_by_one = {**EVERYTHING, "CONCURRENT_REQUESTS": 1}
    await crawl(Stopped, store_path, one_by_one, url=site.url())
    crawler = await crawl(LinkFollower, store_path, one_by_one, url=site.url())
    assert stats(crawler)["cycle"] == 2
    assert stats(crawler)["not_asked_for"] > 0
    assert {kind for kinds in outcomes(store_path, 2).values() for kind in kinds} == {"unchanged"}


async def test_a_method_that_gives_another_page_fails_that_page_alone(
    site: Site, store_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Other pages, other types and exceptions: a line and an error each."""
    paths = ["/a", "/b", "/c", "/d"]
    site.pages.update(dict.fromkeys(paths, html("words")))

    class Hooked(Pages):
        def gp4c_request(self, request: Request) -> Any:
            """Do wrong in three ways."""
            return {
                "a": lambda: request.replace(url=site.url("/elsewhere")),
                "b": lambda: None,
                "c": lambda: {}["x"],
                "d": lambda: request,
            }[request.url[-1]]()

    await crawl(Pages, store_path, EVERYTHING, site=site)
    await crawl(Hooked, store_path, EVERYTHING)
    assert outcomes(store_path, 2) == {"/a": ["error"], "/b": ["error"], "/c": ["error"], "/d": ["unchanged"]}
    assert caplog.text.count("Cannot revisit") == 1


async def test_pages_found_before_a_parameter_was_secret_stay_the_pages_they_are(
    site: Site, store_path: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, capsys: Any
) -> None:
    """A store with secrets in it: its pages are revisited, found again, shown without them, and healed."""
    site.pages["/a"] = site.pages["/b"] = html("words")
    urls = [site.url(f"/a?token={MARK}")]
    await crawl(Pages, store_path, {**EVERYTHING, "GP4C_SECRET_PARAMS": ""}, urls=urls)
    with Store(store_path) as store:
        assert MARK in store.request(0)["url"]
    site.log.clear()
    await crawl(Pages, store_path, EVERYTHING)
    assert site.fetched() == {f"/a?token={MARK}"}
    written = everything_written(tmp_path, store_path, caplog, capsys)
    assert written.count(MARK.encode()) == (store_path / "data.mdb").read_bytes().count(MARK.encode())
    await crawl(Pages, store_path, EVERYTHING, urls=urls)
    with Store(store_path) as store:
        assert store.pages == 1
        healed = {"url": site.url("/a?token="), "lacks": ["query token"], "errback": "failed"}
        assert store.request(0) == healed


class ThreePages:
    """A store, as far as it is asked here."""

    pages = 3


@given(st.one_of(st.integers(-3, 9), st.just(START), st.none(), st.floats(), st.text(max_size=2)))
def test_finders_are_pages_of_the_store_or_the_start(finder: object) -> None:
    """Anything else in a queue of an older crawl is nobody."""
    request = Request("http://h/", meta={FOUND_BY: finder})
    known = type(finder) is int and (1 <= finder <= 3 or finder == START)
    assert finder_of(request, ThreePages()) == (finder if known else UNKNOWN_FINDER)  # type: ignore[arg-type]


CHARACTERS = "aZ0/._~-%?&=#;:+@!é \t"
URLS = st.builds(
    lambda scheme, host, path: f"{scheme}://{host}{path}",
    st.sampled_from(("http", "https", "HTTP", "ftp")),
    st.sampled_from(("h.example", "H.example", "h.example:8080", "h.example:80", "u:p@h", "127.0.0.1", "")),
    st.one_of(
        st.text(CHARACTERS, max_size=12),
        st.sampled_from(
            ("/", "/a/../b", "//a", "/./", "/a%41", "/%c3%a9", "/a?token=1", "/a?b=2&a=1", "/a#b")
        ),
    ),
)
PLAIN_URLS = st.from_regex(r"https?://[a-z0-9.-]{1,9}(:[0-9]{1,5})?(/[aZ0._~-]{0,3}){1,4}", fullmatch=True)


class Other(RequestFingerprinter):
    """A fingerprinter of a user."""

    def fingerprint(self, request: Request) -> bytes:
        return super().fingerprint(request)[::-1]


def rebuilder(fingerprinter: Any) -> Rebuilder:
    crawler = Crawler(Spider)
    crawler.request_fingerprinter = fingerprinter
    return Rebuilder(crawler, Spider("s"), Credentials(SECRET_PARAMS))


def test_another_scrapy_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The short way is taken if it gives the same for the first URL."""
    monkeypatch.setattr("scrapy_gp4c.crawling.requests.RequestFingerprinter", Other)
    keys = rebuilder(Other()).url_keys
    urls = ["http://h/a", "http://h/b"]
    expected = [page_key(Other().fingerprint(Request(url))) for url in urls]
    assert keys(urls).tolist() == keys(urls).tolist() == expected


@given(st.lists(st.one_of(URLS, PLAIN_URLS), max_size=8), st.sampled_from((RequestFingerprinter, Other)))
@example(["http://h.example/a/../b", "http://h.example/./", "http://h.example:080/a"], RequestFingerprinter)
def test_pages_are_told_apart_as_the_fingerprinter_does(urls: list[str], kind: Any) -> None:
    """The short way to a key gives what Scrapy's does, or a user's own; 0 for what cannot be asked for."""
    built, expected = rebuilder(kind()), []
    for url in urls:
        expected.append(0)
        with suppress(ValueError):
            request = Request(url)
            key, full_key = built.keys(request)
            assert full_key == page_key(kind().fingerprint(request))
            assert key == full_key or built.credentials.url(request.url) != request.url
            expected[-1] = key if url.startswith(("http://", "https://")) else 0
    assert built.url_keys(urls).tolist() == expected
    assert built.url_keys(["http://h.example/a", *urls]).tolist()[1:] == expected
