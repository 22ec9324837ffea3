"""A trap: a calendar that links to ever more pages, beside hosts that gain a page in every cycle."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_twisted
from scrapy import Spider

from scrapy_gp4c.page_state.outcomes import KINDS
from scrapy_gp4c.store.lmdb_store.store import Store
from tests.support.loopback import Site, crawl, html

HOSTS = ("127.0.0.1", "127.0.0.2", "127.0.0.3")  # the first has the calendar
PAGES, CYCLES, WARM = 10, 9, 4
NEW_PAGES = 12  # per cycle


class Follower(Spider):
    """Follows every link."""

    name = "follower"

    def parse(self, response: Any) -> Iterator[Any]:
        """Follow them."""
        yield from response.follow_all(css="a")


@pytest.mark.parametrize("turning", [False, True])
@pytest_twisted.ensureDeferred
async def test_a_calendar_delays_what_other_hosts_bring_by_one_cycle_at_most(
    turning: bool, store_path: Path
) -> None:
    """Its pages wait by the hundred, also where every visit shows others and it is the best of all hubs."""
    site, now = Site(hosts=HOSTS), 0

    def calendar(request: Any) -> bytes:
        day = int(request.args[b"day"][0])
        first = 20 * day + 1 + (7_000 * now if turning else 0)
        return html(f"day {day}", [f"/calendar?day={n}" for n in range(first, first + 20)]).encode()

    try:
        site.pages["/calendar"] = calendar
        Follower.start_urls = [site.url("/calendar?day=0"), *(site.url("/", host) for host in HOSTS[1:])]
        for now in range(1, CYCLES + 1):
            paths = [f"/page/{number}" for number in range(PAGES + now - 1)]
            site.pages["/"] = html("all pages", paths[::-1], title=f"{len(paths)} pages")
            site.pages |= {path: html(f"the story of {path}") for path in paths}
            await crawl(Follower, store_path, {"GP4C_BUDGET": 8, "GP4C_NEW_PAGES": NEW_PAGES})
    finally:
        await site.close()
    with Store(store_path) as store:
        assert store.verify() == []
        page_of = {request["url"]: page for page, request in enumerate(store.requests(range(store.pages)))}
        first: dict[int, int] = {}
        hubs = set()
        for cycle, visits in store.visits():
            for page in visits["page"].tolist():
                first.setdefault(page, cycle)
            hubs.update(visits["page"][visits["kind"] == KINDS.index("hub")].tolist())
        assert all(list(first.values()).count(cycle) <= NEW_PAGES for cycle in range(1, CYCLES + 1))
        waiting = [page for url, page in page_of.items() if "calendar" in url and page not in first]
        assert len(waiting) > 30 * NEW_PAGES
        # The calendar has enough waiting; of the others, draws may let one hub be the best in every cycle.
        assert hubs
        assert hubs <= {page_of[site.url("/", host)] for host in HOSTS[1:]}
    for born in range(WARM + 1, CYCLES):
        for host in HOSTS[1:]:
            page = page_of[site.url(f"/page/{PAGES + born - 2}", host)]
            assert first[page] - born <= 1, (born, host)
