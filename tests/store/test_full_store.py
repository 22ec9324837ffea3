"""A store that has no room left stops the crawl with one message, and costs no recorded visit."""

from __future__ import annotations

import logging
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import pytest_twisted
from scrapy import Spider

from scrapy_gp4c.crawling.run import open_run
from scrapy_gp4c.scheduler import RecrawlScheduler
from scrapy_gp4c.store.lmdb_store.store import Store
from scrapy_gp4c.store.opening import Sizes
from tests.support.loopback import Site, crawl, html

HUBS = 8  # pages that link to 100 others each


class Everything(Spider):
    """Follows every link of the start page."""

    name = "everything"

    def parse(self, response: Any) -> Any:
        """Follow the links."""
        yield from response.follow_all(css="a")


class Cramped(RecrawlScheduler):
    """The scheduler with a store of little room."""

    open_run = staticmethod(partial(open_run, sizes=Sizes(map_size=300_000)))


@pytest_twisted.ensureDeferred
async def test_full_store_stops_the_crawl(
    site: Site, store_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The run ends with one critical line; the next one, with room, resumes the cycle and visits the rest."""
    for hub in range(HUBS):
        path = f"/{hub}" if hub else "/"
        site.pages[path] = html(
            "hub", [f"/{hub + 1}", *(f"/{hub}/{page}?{'x' * 400}" for page in range(100))]
        )
        site.pages |= {f"/{hub}/{page}": html(f"page {hub} {page}") for page in range(100)}
    Everything.start_urls = [site.url("/")]
    with caplog.at_level(logging.CRITICAL):
        crawler = await crawl(Everything, store_path, {"SCHEDULER": Cramped})
    assert crawler.stats.get_value("finish_reason") == "gp4c_store_failed"
    critical = [record.getMessage() for record in caplog.records if record.levelno == logging.CRITICAL]
    assert critical
    assert all(str(store_path) in message for message in critical)

    with Store(store_path) as store:
        assert store.open_cycle == 1
        before = {visit["page"]: visit["time"] for visit in store.open_visits()}
    assert before
    crawler = await crawl(Everything, store_path)
    assert crawler.stats.get_value("finish_reason") == "finished"
    with Store(store_path) as store:
        assert store.verify() == []
        visits = [visit for _, chunk in store.visits() for visit in chunk]
        assert len(visits) == len({visit["page"] for visit in visits})
        assert all(before[visit["page"]] == visit["time"] for visit in visits if visit["page"] in before)
