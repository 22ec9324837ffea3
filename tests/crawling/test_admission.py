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
