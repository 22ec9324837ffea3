"""Weights that requests say, in real crawls."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
import pytest_twisted
from scrapy import Request, Spider

from scrapy_gp4c.store.lmdb_store.store import Store
from tests.support.loopback import Site, crawl, html, outcomes, stats


class Weighing(Spider):
    """Asks for pages with what the test puts in their meta; the start page links to the others."""

    name = "weighing"
    site: Site
    said_at_start: ClassVar[dict[str, Any]] = {}
    said_in_links: ClassVar[dict[str, Any]] = {}

    async def start(self) -> AsyncIterator[Any]:
        """Ask for the start pages."""
        for path, said in Weighing.said_at_start.items():
            yield Request(Weighing.site.url(path), meta={"gp4c": said} if said is not None else {})

    def parse(self, response: Any) -> Iterator[Request]:
        """Follow the links of the start page, each three times; what a visit came to is no weight."""
        assert response.meta["gp4c"]["outcome"]
        if response.url.endswith("/0"):
            for path, said in Weighing.said_in_links.items():
                meta = {"gp4c": said} if said is not None else dict(response.meta)
                for _ in range(3):
                    yield Request(Weighing.site.url(path), meta=meta)


def weights(path: Path) -> dict[str, float]:
    """Path of each page -> its weight."""
    with Store(path, readonly=True) as store:
        assert store.verify() == []
        found = {}
        for first, block in store.blocks():
            for row, weight in enumerate(block["weight"].tolist()):
                found["/" + store.request(first + row)["url"].rpartition("/")[2]] = weight
        return found


async def weighed(site: Site, path: Path, start: dict[str, Any], links: dict[str, Any]) -> Any:
    """Crawl once, with every page changed by a tenth visit only; the crawler."""
    Weighing.site, Weighing.said_at_start, Weighing.said_in_links = site, start, links
    site.pages = {f"/{number}": html(f"page {number} of some") for number in range(6)}
    settings = {"GP4C_SCORE_FUNCTION": "w", "GP4C_BUDGET": 1, "GP4C_WARMUP_VISITS": 0, "GP4C_DISCOVERY": 0.0}
    return await crawl(Weighing, path, settings)


@pytest_twisted.ensureDeferred
async def test_the_newest_request_that_says_a_weight_wins(site: Site, store_path: Path) -> None:
    """Whether it is sent or dropped; a page keeps its weight when nobody says one; `w` ranks by it."""
    said = {"/1": {"weight": 3.0}, "/2": {"weight": 2}, "/3": None}
    await weighed(site, store_path, {"/0": {"weight": 0.5}, "/1": None}, said)
    assert weights(store_path) == {"/0": 0.5, "/1": 3.0, "/2": 2.0, "/3": 1.0}
    await weighed(site, store_path, {"/0": None, "/3": {"weight": 9.0}, "/1": None, "/4": {}}, {})
    assert weights(store_path) == {"/0": 0.5, "/1": 3.0, "/2": 2.0, "/3": 9.0, "/4": 1.0}
    assert sorted(outcomes(store_path, 2)) == ["/1", "/4"]  # ranked by the weights before; the new page
    await weighed(site, store_path, {"/3": {"weight": 0}, "/1": None}, {})
    assert sorted(outcomes(store_path, 3)) == ["/3"]
    assert weights(store_path) == {"/0": 0.5, "/1": 3.0, "/2": 2.0, "/3": 0.0, "/4": 1.0}


@pytest_twisted.ensureDeferred
async def test_what_is_no_weight_is_counted_and_costs_nothing(
    site: Site, store_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """One warning, which names the first; pages are fetched, and keep the weights that they have."""
    await weighed(site, store_path, {"/0": {"weight": 4.0}}, {"/1": {"weight": 5.0}})
    wrong = {"/1": "3", "/2": -1, "/3": float("nan"), "/4": 1e308, "/5": True}
    start = {"/0": {"weight": None}, **{path: {"weight": weight} for path, weight in wrong.items()}}
    crawler = await weighed(site, store_path, start, {})
    assert stats(crawler)["no_weight"] == 6
    (line,) = [record.getMessage() for record in caplog.records if "keeps the weight" in record.getMessage()]
    assert "/0 keeps the weight that it has: expected a number from 0 to 1,000,000 as weight" in line
    assert "found None" in line
    assert weights(store_path) == {"/0": 4.0, "/1": 5.0, "/2": 1.0, "/3": 1.0, "/4": 1.0, "/5": 1.0}
    assert [outcomes(store_path, 2)[f"/{number}"] for number in (2, 3, 4, 5)] == [["first"]] * 4
