"""Twins of a page and traps, by real crawls over many cycles."""

import calendar
import itertools
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scrapy.http import HtmlResponse
from twisted.web.http import Request as ServerRequest

from scrapy_gp4c.crawling.repeats import (
    Repeats,
    Scope,
    UrlParts,
    are_related,
    canonical_url,
    parts_of,
    scopes_of,
)
from scrapy_gp4c.page_state.outcomes import PLAN
from scrapy_gp4c.store.lmdb_store.store import Store
from tests.support.loopback import LinkFollower, Site, crawl, html, outcomes, stats

FULL = {"GP4C_BUDGET": 0.9, "GP4C_WARMUP_VISITS": 2, "RETRY_ENABLED": False}
words = itertools.count()


def text_of(number: int, version: int = 0) -> str:
    """A text of its own, of a hundred words."""
    return " ".join(f"word{number * 7919 + version * 104_729 + position * 31}" for position in range(100))


def page(number: int, version: int, canonical: str | None = None) -> str:
    """A page with a text of its own, and the address that it names."""
    link = "" if canonical is None else f"<LINK href='{canonical}' class=x rel=canonical>"
    return html(text_of(number, version)).replace("<head>", f"<head>{link}")


@pytest.mark.parametrize("kind", ["canonical", "unknown", "redirect", "permanent", "moved", "address"])
@pytest.mark.slow
async def test_two_addresses_of_a_page_become_one(kind: str, site: Site, store_path: Path) -> None:
    """After three visits one reports the change; the other is looked at ever more rarely, and comes back.

    A permanent redirect is believed at once, as is any other to an address with the text that the page had.
    A plainer address may become known later than the other. Both may name a third one, which no link has.
    A new address that names a known page as canonical is one of that page at its first visit.
    """
    version = {"now": 0}
    paths = [f"/{number}" for number in range(6)]

    def answer(request: ServerRequest) -> bytes:
        path = request.path.decode()
        if path == "/":
            plain = paths if cycle > 2 or kind not in ("address", "moved") else []
            new = ["/0/new"] if cycle > 5 and kind == "canonical" else []
            return html(text_of(99), [*plain, *(f"{path}/" for path in paths), *new]).encode()
        if path.endswith("/") and (kind in ("redirect", "permanent") or (kind == "moved" and cycle > 2)):
            request.redirect(path.removesuffix("/").encode())
            if kind == "permanent":
                request.setResponseCode(301)
            return b""
        number = int(path.split("/")[1])
        names = {"canonical": f"/{number}", "unknown": f"/item/{number}"}
        return page(number, version["now"], names.get(kind)).encode()

    site.pages = {path: answer for one in ("", *paths) for path in (one, f"{one}/", f"{one}/new") if path}
    visited: list[dict[str, list[str]]] = [{}]
    for cycle in range(1, 15):
        version["now"] = int(cycle >= (4 if kind == "moved" else 12))
        await crawl(LinkFollower, store_path, FULL, url=site.url())
        visited.append(outcomes(store_path, cycle))
    assert visited[6].get("/0/new") == (["excluded"] if kind == "canonical" else None)
    twins = {f"{path}/" for path in paths}
    changed = [path for ends in visited[1:] for path, end in ends.items() if "changed" in end]
    # Of two addresses that name a third one, either may be visited first.
    assert sorted(path.rstrip("/") for path in changed if path != "/") == paths
    assert sum(len(visited[cycle]) for cycle in (11, 12, 13, 14)) <= 4 * (1 + len(paths)) + len(twins) + 2
    first_ends = {end for ends in visited[1:4] for twin in twins for end in ends.get(twin, [])}
    assert ("first" in first_ends) == (kind != "permanent"), first_ends
    with Store(store_path, readonly=True) as store:
        pages = {store.request(number)["url"]: number for number in range(store.pages)}
        urls = [site.url("/3"), site.url("/3/")]
        if kind == "unknown":
            urls.sort(key=lambda url: store.answer(pages[url]).error or "")
        assert store.answer(pages[urls[1]]).error == f"the same page as {urls[0]}"
        assert store.page(pages[urls[1]]).X == 0


def token_in_query(path: str, token: int) -> str:
    """An address with a parameter that makes no page."""
    return f"{path}?_t={token}"


def token_in_path(path: str, token: int) -> str:
    """An address with a segment that makes no page."""
    return f"/s/{token}{path}"


@pytest.mark.parametrize("address", [token_in_query, token_in_path])
@pytest.mark.slow
async def test_links_with_new_tokens_are_a_trap(
    address: Callable[[str, int], str], site: Site, store_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It is named once and capped, its pages report no further changes, and other new pages are fetched."""
    links: list[str] = []

    def answer(request: ServerRequest) -> bytes:
        path = request.uri.decode().partition("?")[0]
        if path == "/":
            tokens = [address(f"/{number}", next(words)) for number in range(12)]
            return html(text_of(99), [*tokens, *links]).encode()
        return html(text_of(int(path.rpartition("/")[2]), 7 * path.startswith("/news"))).encode()

    class Endless(dict[str, Any]):
        def get(self, path: str, default: Any = None) -> Any:
            return answer

    site.pages = Endless()
    settings = {**FULL, "GP4C_TRAP_PAGES": 3}
    with caplog.at_level(logging.WARNING):
        for cycle in range(1, 12):
            links.append(f"/news/{cycle}")
            crawler = await crawl(LinkFollower, store_path, settings, url=site.url())
    lines = [record.getMessage() for record in caplog.records if "is a trap" in record.getMessage()]
    (line,) = lines
    assert ("GP4C_URL_PARAMS_IGNORED" in line) == (address is token_in_query)
    assert stats(crawler)["skipped/trap"] == 9
    with Store(store_path, readonly=True) as store:
        urls = [store.request(number)["url"] for number in range(store.pages)]
        assert sum("/news/" in url for url in urls) == 11
        assert len(urls) <= 1 + 11 + 12 * 5 + 3 * 7


@pytest.mark.slow
@pytest.mark.parametrize(
    ("more", "is_capped"),
    [
        ({}, True),
        ({"GP4C_FEATURES": "scrapy_gp4c.fingerprint.main_features", "GP4C_NEW_PAGES": 280}, False),
    ],
)
async def test_an_endless_calendar_ends_in_its_first_cycle(
    more: dict[str, Any], is_capped: bool, site: Site, store_path: Path
) -> None:
    """Its days link to further days for ever, and have no events; alike parts of pages prove nothing."""

    def answer(request: ServerRequest) -> bytes:
        path = request.path.decode()
        if path == "/":
            return html(text_of(99), ["/day/0"]).encode()
        number = int(path.removeprefix("/day/"))
        text = "there are no events on this day but you may subscribe to all others"
        return html(text, [f"/day/{number * 2 + 1}", f"/day/{number * 2 + 2}"]).encode()

    class Endless(dict[str, Any]):
        def get(self, path: str, default: Any = None) -> Any:
            return answer

    site.pages = Endless()
    settings = {**FULL, "GP4C_NEW_PAGES": 500, **more}
    await crawl(LinkFollower, store_path, settings, url=site.url())
    assert len(site.log) < 450 if is_capped else len(site.log) == 280


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        ('<link rel="canonical" href="/b">', "http://a.example/b"),
        ("<LINK HREF='b?x=1&amp;y=2' REL='canonical'/>", "http://a.example/b?x=1&y=2"),
        (
            '<link rel=stylesheet href=/s><link rel=canonical href="http://www.a.example/">',
            "http://www.a.example/",
        ),
        ('<link rel="canonical" href="http://a.example/a">', None),
        ('<link rel="canonical" href="">', None),
        ('<link rel="canonical" href="http://[b">', None),
        ("<p>on canonical forms</p>", None),
        ("<LINK REL=CANONICAL HREF=/b>", "http://a.example/b"),
        ("<link rel=canonical href='&#x2F;b?x=1&#38;y=2'>", "http://a.example/b?x=1&y=2"),
        ("<base href='/c/'><link rel=canonical href=b>", "http://a.example/c/b"),
        ("<base href='/c/'>", None),
        ("<meta property=og:url content=/b><link rel=canonical href=/a>", None),
        ("<meta content='/d' property='og:url'><meta property=og:title content=/x>", "http://a.example/d"),
    ],
)
def test_addresses_that_pages_name(head: str, expected: str | None) -> None:
    """As RFC 6596 has them, in any spelling; the page's own is none."""
    body = f"<html><head>{head}</head></html>".encode()
    url = "http://a.example/a"
    assert canonical_url(HtmlResponse(url, body=body), url) == expected
    links = ['</s>; rel=preload; as="style"', "<http://a.example/d>; rel=canonical"]
    response = HtmlResponse(url, body=body, headers={"Link": links})
    assert canonical_url(response, url) == (expected if "<link" in head.lower() else "http://a.example/d")


def test_a_trap_of_many_directories_ends(store_path: Path) -> None:
    """Its new pages have own texts by now, though some repeat: the cycle ended with a KeyError."""
    with Store(store_path) as store:
        store.begin_cycle({})
        store.amend_record(
            traps=[["a.example", "cal/", False]], repeats=[["a.example", "cal/", False, [50, 50, 3]]]
        )
        repeats = Repeats(store, 10)
        for number in range(20):
            repeats.note_first(f"http://a.example/cal/{number}/x", max(number, 5) + 1 << 40)
        (line,) = repeats.finish()
    assert "a.example/cal/ is no trap any more" in line


def test_a_trap_may_be_slow(store_path: Path) -> None:
    """Three links with another token in each cycle are one in the end."""
    lines = []
    with Store(store_path) as store:
        for cycle in range(12):
            store.begin_cycle({})
            repeats = Repeats(store, 10)
            for number in range(3):
                url = f"http://a.example/p/{number}?token={cycle}"
                lines.append(repeats.note_first(url, number + 1 << 40, is_repeat=cycle > 0))
            lines += repeats.finish()
            store.add_round(np.empty(0, PLAN), seen=0)
            store.finish_cycle({})
    (line,) = filter(None, lines)
    assert "a.example/p/ is a trap: 30 of 30 new pages" in line


def test_pages_that_repeat_one_another_at_once_are_one_warning(store_path: Path) -> None:
    """As logins that name the page to return to: too few for a trap, and they are new only once."""
    with Store(store_path) as store:
        store.begin_cycle({})
        repeats = Repeats(store, 10)
        for number in range(40):
            assert repeats.note_first(f"http://a.example/p/{number}", number + 1 << 40) is None
            url = f"http://a.example/user/login?returnto={number}"
            assert repeats.note_first(url, 99 << 40, is_repeat=number > 0) is None
        (line,) = repeats.finish()
    assert line.startswith("39 of 40 new pages in a.example/user/login?, such as ")
    assert "Add to GP4C_URL_PARAMS_IGNORED what makes no page of its parameters (returnto)" in line


async def test_new_pages_that_differ_in_a_token_or_a_date_are_one_warning(
    site: Site, store_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The warning names the parameter and the setting; growing lists and new ids get no warning."""
    for day in (1, 2):
        lists = [f"/{path}/list?page={number}" for path in "abcd" for number in range(2 + day)]
        ids = [f"/ads/{1_000_000_000 + 10 * day + number}" for number in range(8)]
        tokens = [link for path in "abcd" for link in (f"/{path}?id=7&v={day}", f"/2026-01-0{day}/{path}")]
        site.pages = {"/": html(f"the links of day {day}", [*lists, *ids, *tokens])}
        await crawl(LinkFollower, store_path, {**FULL, "GP4C_WARMUP_VISITS": 9}, url=site.url())
        lines = sorted(one.getMessage() for one in caplog.records if "nothing but" in one.getMessage())
        assert len(lines) == 2 * (day - 1), lines
    assert all(line.startswith("4 of 20 new pages") for line in lines)
    assert "nothing but a date or a token in the path." in lines[0]
    assert "add v to GP4C_URL_PARAMS_IGNORED" in lines[1]


@pytest.mark.parametrize(
    ("form", "part"),
    [
        ("http://s{day}.a.example/{page}", "the first name of the host"),
        ("http://{day}.2.3.4/{page}", None),
        ("http://a{day}.example/{page}", None),
        ("http://s{day}.a.example/{day}/{page}", None),
        ("http://a.example/{page}?176441234{day}", "a token without a name in the query"),
        ("http://a.example/{page}?{day}", None),
    ],
)
def test_tokens_in_hosts_and_without_a_name_are_named(form: str, part: str | None, store_path: Path) -> None:
    """Pages of hosts that are new in each cycle were new for ever, in silence.

    A name that is new in each cycle is of no use in GP4C_URL_PARAMS_IGNORED.
    """
    warnings: list[str] = []
    with Store(store_path) as store:
        for day in (1, 2):
            store.begin_cycle({})
            parts = UrlParts(store)
            for number in range(4):
                parts.note(form.format(day=day, page=number))
            warnings += parts.finish([], 0)
            store.add_round(np.empty(0, PLAN), seen=0)
            store.finish_cycle({})
    assert len(warnings) == (part is not None)
    assert all(str(part) in line and "FINGERPRINTER_CLASS" in line for line in warnings)


class Cursors(LinkFollower):
    """Follows links as the add-on's warning says."""

    is_told = False

    def parse(self, response: Any) -> Iterator[Any]:
        yield from response.follow_all(css="a", meta={"gp4c": False} if self.is_told else {})


async def test_cursors_with_other_values_in_each_run_are_one_warning(
    site: Site, store_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The remedy of the warning ends it; cursors that stay as they are get none."""
    for day in (1, 2, 3, 4):
        chains = {
            f"/{name}?cursor={value}{number}": f"/{name}?cursor={value}{number + 1}"
            for name, value in (("new", f"{day}x"), ("same", "x"))
            for number in range(4)
        }
        site.pages = {one: html(f"page {one} of a list", [other]) for one, other in chains.items()}
        site.pages["/"] = html("lists", ["/same?cursor=x0", f"/new?cursor={day}x0"])
        caplog.clear()
        settings = {**FULL, "GP4C_WARMUP_VISITS": 9}
        await crawl(Cursors, store_path, settings, url=site.url(), is_told=day == 4)
        lines = [one.getMessage() for one in caplog.records if "one another" in one.getMessage()]
        assert len(lines) == (day in (2, 3)), day
        assert f"/new?cursor={day}x4" in site.fetched()
    assert site.hits["GET", "/new?cursor=4x3"] == 1


@pytest.mark.parametrize(
    ("url", "text", "is_named"),
    [
        ("http://a.example/cal?m={0}", "month {0} of the year has no events on any of its days", True),
        ("http://a.example/cal/{0}/", "{0} has no events", True),
        ("http://a.example/find?q=a{1}z", "nothing was found for a{1}z , look for something else", True),
        ("http://a.example/cal?m={0}", "there are no events in {2} , maybe in others", True),
        ("http://a.example/{3}/", "this is {3} , where quote {0} is of the day", True),
        ("http://a.example/shop?{4}", "a{1}z", True),
        ("http://a.example/compare?ids={5}", "a{1}z", True),
        ("http://a.example/tags/{5}", "a{1}z", True),
        ("http://a.example/map?at={0},{1}", "a{1}z", False),
        ("http://a.example/how,to,{1}", "a{1}z", False),
        ("http://a.example/item/{0}", "item {0} is called a{1}z", False),
        ("http://a.example/item?id={0}&lang={1}", "item {0} is called a{1}z", False),
        ("http://a.example/{1}", "{0} items", False),
    ],
)
def test_pages_that_differ_by_a_number_or_their_query_are_named(
    url: str, text: str, is_named: bool, store_path: Path
) -> None:
    """Once a cycle, as a calendar, a search without end, facets or lists; pages with own names are not."""
    read, lines = [], []
    with Store(store_path) as store:
        repeats = Repeats(store, 10)
        for number in range(400):
            path = "/".join("ab"[int(bit)] for bit in f"{number:b}")
            letters = "".join(chr(97 + int(digit)) for digit in f"{number:04}")
            facets = "&".join(f"f{at}={letters}" for at, bit in enumerate(f"{number:b}") if bit == "1")
            tags = ",".join("abcdefghi"[at] for at, bit in enumerate(f"{number:b}") if bit == "1")
            values = number, letters, calendar.month_name[number % 12 + 1].lower(), path, facets, tags

            def text_of_page(values: tuple[int, str, str, str, str, str] = values) -> str:
                read.append(values)
                return text.format(*values)

            lines.append(repeats.note_numberless(url.format(*values), text_of_page))
    named = [line for line in lines if line is not None]
    assert len(named) == is_named
    assert len(read) <= 100


@pytest.mark.parametrize(
    ("form", "named"),
    [
        ("http://a.example/item?id={page}&theme={variant}", ["but theme"]),
        ("http://w{variant}.b.example/item/{page}", ["but the first name of the host"]),
        ("http://127.0.0.{variant}/item/{page}", ["here http://127.0.0.0/item/2"]),
        ("http://a.example/item/{page}/title-{variant}", ["here http://a.example/item/2/title-0"]),
        ("http://a.example/commit/a{page}{variant}", ["here http://a.example/commit/a20"]),
        ("http://a.example/item?id={page}&own={variant}", []),
    ],
)
def test_pages_that_change_alike_are_named_with_what_differs(
    form: str, named: list[str], store_path: Path
) -> None:
    """Second addresses without a canonical link reported each change again, in silence if they were paths.

    Lists of other pages, pages that come to one text, and variants with texts of their own are none.
    """
    with Store(store_path) as store:
        parts = UrlParts(store)
        for number in range(2, 10):
            for variant in range(2):
                text = (number + 100 * variant * ("own" in form)) << 33
                parts.note_change(form.format(page=number, variant=variant), text, text + (1 << 50))
            parts.note_change(f"http://a.example/list?page={number}", number << 34, (number + 50) << 33)
            parts.note_change(f"http://a.example/search?q={number}", number << 35, 99 << 33)
        warnings = list(parts.finish([], 0))
    assert [name for name, line in zip(named, warnings, strict=True) if name in line] == named


@pytest.mark.parametrize(("is_copied", "lines"), [(True, 1), (False, 0)])
def test_hosts_with_texts_of_one_another_are_named(is_copied: bool, lines: int, store_path: Path) -> None:
    """Names of hosts without end are one warning; sites of their own under one domain are none."""
    with Store(store_path) as store:
        repeats = Repeats(store, 10)
        pages = [
            (f"http://h{host}.a.example/{number}", 100 * host * (not is_copied) + number)
            for host in range(100, 140)
            for number in range(3)
        ]
        warnings = [repeats.note_first(url, (fingerprint + 1) << 33) for url, fingerprint in pages]
    assert len([line for line in warnings if line is not None and "hosts *.a.example" in line]) == lines


def test_related_sites_and_scopes() -> None:
    """With or without ``www.``; scopes from the directory up."""
    assert are_related("http://www.a.example/x", "https://a.example:8443/")
    assert not are_related("http://a.example/", "http://b.example/")
    assert scopes_of("http://a.example/s/1/a/2?x=1") == [
        Scope("a.example", prefix, True) for prefix in ("s/1/a/2?", "s/1/a/", "s/1/", "s/", "")
    ]


@pytest.mark.parametrize("address", ["http://example.org/a?b=1", "https%3A%2F%2Fexample.org%2Fa"])
def test_a_url_within_a_url_is_no_token(address: str) -> None:
    """A service that fetches pages names them so: without it, all would be one page."""
    assert dict(parts_of(f"http://service/get?key=7&url={address}")).keys() == {"key"}
