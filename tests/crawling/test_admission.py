"""What becomes of the requests of a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_twisted
from scrapy import Request, Spider
from scrapy.utils.request import RequestFingerprinter

from scrapy_gp4c.crawling.admission import Admission
from scrapy_gp4c.store.lmdb_store.open_cycle import OpenCycle
from scrapy_gp4c.store.lmdb_store.store import Store
from tests.support.loopback import Site, crawl, html, outcomes, stats

PAGES = 5


class Own(RequestFingerprinter):
    """A fingerprinter of the user's, who knows what it looks at."""


@pytest.mark.parametrize("own", [False, True])
@pytest_twisted.ensureDeferred
async def test_links_that_stand_on_every_page_are_dropped(
    site: Site, store_path: Path, own: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By their URLs alone where Scrapy tells pages apart so; another fingerprinter is asked every time."""
    names = [f"/{number}" for number in range(PAGES)]
    site.pages.update(dict.fromkeys(names, html("a menu of " + " ".join(names))))

    class Menu(Spider):
        name = "menu"
        start_urls = (site.url("/0"),)

        def parse(self, response: Any) -> Iterator[Any]:
            """Follow the menu, once with other writing of the same URL."""
            for name in names:
                yield response.follow(name)
                yield response.follow(f"{name}?#part")

    calls: Counter[str] = Counter()
    plain = RequestFingerprinter.fingerprint

    def counted(self: RequestFingerprinter, request: Request) -> bytes:
        calls[request.url] += 1
        return plain(self, request)

    monkeypatch.setattr(RequestFingerprinter, "fingerprint", counted)
    settings = {"REQUEST_FINGERPRINTER_CLASS": Own} if own else {}
    crawler = await crawl(Menu, store_path, settings)
    assert outcomes(store_path, 1) == {name: ["first"] for name in names}
    assert stats(crawler)["skipped/duplicate"] == 2 * PAGES * PAGES - (PAGES - 1)
    usual = max(calls[site.url(name)] for name in names)
    assert usual >= PAGES if own else usual <= 3


@pytest_twisted.ensureDeferred
async def test_links_stay_settled_over_the_rounds_of_a_cycle(
    site: Site, store_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store is asked once for a page without a visit, once for one with it; each link is counted."""
    names = [f"/{number}" for number in range(12)]
    site.pages.update(dict.fromkeys(names, html("a menu of " + " ".join(names))))

    class Menu(Spider):
        name = "menu"
        start_urls = (site.url("/0"),)

        def parse(self, response: Any) -> Iterator[Any]:
            """Follow the menu."""
            yield from map(response.follow, names)

    settings = {"GP4C_POLICY": "rounds(rounds=4)", "GP4C_BUDGET": 1.0, "GP4C_WARMUP_VISITS": 0}
    await crawl(Menu, store_path, settings)
    asked: Counter[int] = Counter()
    find = OpenCycle.find

    def counted(self: OpenCycle, key: int) -> int | None:
        asked[key] += 1
        return find(self, key)

    monkeypatch.setattr(OpenCycle, "find", counted)
    crawler = await crawl(Menu, store_path, settings)
    assert len(asked) == len(names)
    assert max(asked.values()) <= 2
    told = stats(crawler)
    assert told["visited"] == len(names)
    dropped = told["skipped/duplicate"] + told.get("skipped/not_planned", 0)
    assert dropped in range(len(names) * (len(names) - 1), len(names) ** 2 + 1)


@pytest.mark.parametrize("last", range(2, 6))
@pytest_twisted.ensureDeferred
async def test_a_page_without_a_visit_keeps_how_it_was_asked_for_last(
    site: Site, store_path: Path, last: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its callback is the one of the newest request, whoever asked before, by whatever writing of its URL."""
    site.pages.update({"/": html("home"), "/a": html("a")})
    order = [("/a", "parse"), ("/a", "other"), ("/a#x", "parse"), ("/a", "other"), ("/a#x", "other")]

    class Links(Spider):
        name = "links"
        start_urls = (site.url("/"),)
        asked = order[:1]

        def parse(self, response: Any) -> Iterator[Any]:
            """Ask for a page in several ways."""
            if response.url.endswith("/"):
                for url, callback in self.asked:
                    yield response.follow(url, callback=getattr(self, callback), priority=-len(url))

        def other(self, response: Any) -> None:
            """Another callback."""

    settings = {"GP4C_WARMUP_VISITS": 0}
    await crawl(Links, store_path, settings)
    monkeypatch.setattr(Admission, "_is_settled", lambda *_: False)
    monkeypatch.setattr(Links, "asked", order[:last])
    crawler = await crawl(Links, store_path, {**settings, "GP4C_BUDGET": 1})
    assert stats(crawler)["skipped/not_planned"] == last
    with Store(store_path, readonly=True) as store:
        page = next(page for page in range(store.pages) if store.request(page)["url"] != site.url("/"))
        assert store.request(page).get("callback", "parse") == order[last - 1][1]
