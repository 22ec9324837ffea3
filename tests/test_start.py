"""What garbage collections of a crawl leave out."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import pytest_twisted
from scrapy import Spider

from tests.support.loopback import Site, crawl, html


class Watching(Spider):
    """Notes how many objects are left out while it crawls, and what it has made itself."""

    name = "watching"
    left_out = 0

    def parse(self, response: Any) -> None:
        """Count."""
        Watching.left_out = gc.get_freeze_count()
        response.meta["gp4c"]["cycle"] = own = [response]
        assert any(one is own for one in gc.get_objects()), "a collection walks what a crawl makes"


@pytest_twisted.ensureDeferred
async def test_collections_of_a_crawl_leave_out_what_was_there(site: Site, store_path: Path) -> None:
    """The modules, for one; when it is over, all is collected again."""
    site.pages["/"] = html("a page")
    Watching.start_urls = [site.url("/")]
    await crawl(Watching, store_path, {})
    assert Watching.left_out > 10_000
    assert not gc.get_freeze_count()


@pytest_twisted.ensureDeferred
async def test_what_a_program_has_left_out_stays_so(site: Site, store_path: Path) -> None:
    """A crawl in such a program neither leaves out more nor takes it in again."""
    site.pages["/"] = html("a page")
    Watching.start_urls = [site.url("/")]
    gc.freeze()
    try:
        left_out = gc.get_freeze_count()
        await crawl(Watching, store_path, {})
        assert 10_000 < Watching.left_out <= left_out
        assert 10_000 < gc.get_freeze_count() <= left_out
    finally:
        gc.unfreeze()
