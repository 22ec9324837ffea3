"""Pages and sites that were gone: every state has a way out, by real crawls over many cycles."""

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scrapy.settings import Settings as ScrapySettings
from twisted.web.http import Request as ServerRequest

from scrapy_gp4c.crawling.forecast import PagesInMemory
from scrapy_gp4c.crawling.planning import Planner
from scrapy_gp4c.page_state import columns
from scrapy_gp4c.page_state.groups import place_of_url
from scrapy_gp4c.page_state.outcomes import DOUBTFUL, GONE, OUTCOMES, PLAN, UNCHANGED, VISIT
from scrapy_gp4c.settings import Settings
from scrapy_gp4c.store.lmdb_store.store import Store
from scrapy_gp4c.store.records import NewVisit
from tests.crawling.test_hostile_server import with_status
from tests.support.loopback import LinkFollower, Site, crawl, html, outcomes, stats

WORDS = "a page with a text of more than a few words on nothing in particular that rarely changes at all"
WELCOME = html("welcome to the server, which is installed and works")
FULL = {"GP4C_BUDGET": 1.0, "RETRY_ENABLED": False}


def website(site: Site, pages: int = 12) -> None:
    """Fill a site: a front page with links to its pages."""
    links = [f"/{number}" for number in range(pages)]
    site.pages = {"/": html(WORDS, links), **{link: html(f"{WORDS} {link}") for link in links}}


@pytest.mark.parametrize(
    ("status", "cycles_out", "home"), [(410, 3, {}), (404, 9, {}), (404, 3, {"/": WELCOME})]
)
async def test_a_site_that_was_gone_for_some_cycles_comes_back(
    site: Site, store_path: Path, status: int, cycles_out: int, home: dict[str, str]
) -> None:
    """All of its pages are visited within 3 cycles after its return, also where its home page answered."""
    website(site)
    await crawl(LinkFollower, store_path, FULL, url=site.url())
    up = dict(site.pages)
    site.pages = {**dict.fromkeys(up, with_status(status)), **home}
    for _ in range(cycles_out):
        site.log.clear()
        await crawl(LinkFollower, store_path, FULL, url=site.url())
        assert site.log
    site.pages = up
    site.log.clear()
    for _ in range(3):
        await crawl(LinkFollower, store_path, FULL, url=site.url())
    assert site.fetched() == set(up)
    with Store(store_path, readonly=True) as store:
        assert not any((block["gone"] > 0).any() for _, block in store.blocks())


async def test_a_link_to_a_page_that_was_not_there_yet(site: Site, store_path: Path) -> None:
    """A page that is linked before it exists is fetched in the cycle in which it appears."""
    website(site, 3)
    site.pages["/"] = html(WORDS, ["/0", "/1", "/2", "/later"])
    for _ in range(8):
        await crawl(LinkFollower, store_path, FULL, url=site.url())
    site.pages["/later"] = html("at last there is a text here, of some words")
    await crawl(LinkFollower, store_path, FULL, url=site.url())
    with Store(store_path, readonly=True) as store:
        copies = [block["has_copy"] for _, block in store.blocks()]
    assert np.concatenate(copies).all()


async def test_a_sitemap_that_lists_a_gone_page(site: Site, store_path: Path) -> None:
    """A listed page is looked at in the next cycle."""
    website(site, 3)
    wanted = {path: site.pages.pop(path) for path in ("/1", "/2")}
    for _ in range(9):
        await crawl(LinkFollower, store_path, FULL, url=site.url())
    site.pages["/"] = html(WORDS, ["/0", "/sitemap.xml"])
    listed = f"<url><loc>{site.url('/1')}</loc></url><url><loc>{site.url('/2')}</loc></url>"
    site.pages["/sitemap.xml"] = (
        f'<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">{listed}</urlset>'.encode()
    )
    site.pages |= wanted
    site.log.clear()
    for _ in range(2):
        await crawl(Quiet, store_path, FULL, url=site.url())
    assert {"/1", "/2"} <= site.fetched()


class Quiet(LinkFollower):
    """Follows links of HTML alone."""

    name = "linked"

    def parse(self, response: Any) -> Iterator[Any]:
        if b"urlset" not in response.body:
            yield from response.follow_all(css="a")


async def test_a_run_that_visits_nothing_says_why(store_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """One warning with the reason, and when it will be otherwise."""
    await crawl(LinkFollower, store_path, FULL | {"GP4C_BUDGET": 1}, url="http://127.0.0.1:9/x")
    await crawl(LinkFollower, store_path, FULL | {"GP4C_BUDGET": 1}, url="http://127.0.0.1:9/x")
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        await crawl(LinkFollower, store_path, FULL | {"GP4C_BUDGET": 1}, url="http://127.0.0.1:9/x")
    assert "Cycle 3 visited none of 1 known page: 1 page waits after failed visits" in caplog.text


STATE = st.fixed_dictionaries(
    {
        "n": st.integers(0, 5),
        "has_copy": st.integers(0, 1),
        "failures": st.integers(0, 255),
        "gone": st.integers(0, 255),
        "last_attempt": st.integers(0, 40),
        "found_by": st.integers(0, 3),
        "outcome": st.integers(0, len(OUTCOMES) - 1),
    }
)
NEW_STATE = dict.fromkeys(("n", "has_copy", "failures", "gone", "last_attempt", "found_by", "outcome"), 0)
GONE_STATE = NEW_STATE | {"failures": 6, "gone": 6}


@pytest.mark.slow
@given(
    st.lists(STATE, min_size=1, max_size=8),
    st.sampled_from([0.05, 0.25, 1.0, 1, 3]),
    st.sampled_from([0, 1, 24]),
)
@example([*[NEW_STATE] * 4, NEW_STATE | {"failures": 4}, GONE_STATE | {"last_attempt": 40}], 0.05, 0)
@example([*[GONE_STATE] * 39, GONE_STATE | {"failures": 12, "last_attempt": 5}], 1, 0)
@settings(max_examples=15)
def test_from_any_state_a_page_is_visited_again_in_33_cycles_and_one_per_other_page(
    states: list[dict[str, int]], budget: float, alone_cycles: int
) -> None:
    """Whatever outcomes brought pages there, and whether the others answer from now on, doubtfully, or never.

    Of pages that are due at the same time, the others may come first, each in a cycle of its own.
    A site that is left alone for some cycles is visited within as many cycles after them.
    """
    site_keys = np.array([place_of_url("http://a.example/").site_key], np.uint64)
    loaded = Settings.load(ScrapySettings({"GP4C_BUDGET": budget, "GP4C_SCORE_FUNCTION": "t"}))
    for outcome in (UNCHANGED, GONE, DOUBTFUL):
        state = columns.new_columns(np.arange(len(states), dtype=np.uint64) * 2**58)
        for name in states[0]:
            state[name][:] = [one[name] for one in states]
        state["gone"] = np.minimum(state["gone"], state["failures"])
        known = PagesInMemory(state, site_keys, {}, lambda pages: iter(()))
        waiting = set(range(len(states)))
        for cycle in range(41, 41 + alone_cycles + 33 + len(states) - 1):
            alone = ["a.example"] if cycle < 41 + alone_cycles else []
            planner = Planner(known, loaded, cycle, left_alone=alone)
            plan = planner.plan_first().plan()
            assert not (alone and len(plan))
            waiting -= set(plan["page"].tolist())
            visits = np.zeros(len(plan), VISIT)
            visits["page"], visits["outcome"] = plan["page"], outcome
            known.fold(visits, cycle)
        assert waiting == set()


def test_hints_and_imports_shorten_the_wait_of_gone_pages(store_path: Path) -> None:
    """In a store without an open cycle, the page is due in the next cycle; doubt is not forgotten."""
    with Store(store_path) as store:
        store.add_pages((key, {"url": f"http://a.example/{key}"}) for key in (11, 12, 13, 14))
        for cycle in range(1, 7):
            store.begin_cycle({})
            store.add_round(np.empty(0, PLAN), seen=0)
            for page, outcome in enumerate(("gone", "gone", "gone", "doubtful")):
                store.record(NewVisit(page, outcome, float(cycle)))
            store.finish_cycle({})
        store.claim_changes(np.array([0, 3]), 7.0)
        assert store.add_pages([(12, {"url": "http://a.example/12"})]) == (0, 1)
        assert [store.page(page).failures for page in range(4)] == [0, 0, 6, 6]
        assert [store.page(page).gone for page in range(4)] == [6, 6, 6, 0]


@pytest.mark.parametrize(("end", "is_edited"), [("", False), ("", True), ("/", False)])
async def test_a_site_that_moves_keeps_its_pages(store_path: Path, end: str, is_edited: bool) -> None:
    """Its pages are known at their new addresses, whether the front page moves, links change first, or the
    user edits the start URL in the same cycle; a sitemap's claims find them there, too."""
    site = Site(hosts=("127.0.0.1", "127.0.0.2"))
    new_host = "127.0.0.1" if end else "127.0.0.2"
    try:
        website(site)
        for _ in range(2):
            await crawl(LinkFollower, store_path, FULL, url=site.url())
        old = site.pages

        def moved(request: ServerRequest) -> bytes:
            path = request.path.decode()
            if (path == "/" and end) or (request.getRequestHostname().decode(), path[-1:]) == (new_host, end):
                return old[path.removesuffix(end) or "/"].encode()
            if request.getRequestHostname().decode() == new_host and path in old and not end:
                return old[path].encode()
            request.setResponseCode(301)
            request.setHeader("Location", site.url(path.removesuffix("/") + (end or ""), new_host))
            return b""

        site.pages = dict.fromkeys([*old, *(path + "/" for path in old)], moved)
        if end:
            old = {**old, "/": html(WORDS, [f"{path}/" for path in old if path != "/"])}
        start = site.url(host=new_host if is_edited else "127.0.0.1")
        for cycle in range(3, 7):
            await crawl(LinkFollower, store_path, FULL, url=start)
            ends = outcomes(store_path, cycle)
            assert len(ends) == 13
            assert sum(outcomes_of_page.count("changed") for outcomes_of_page in ends.values()) <= 1
        with Store(store_path, readonly=True) as store:
            assert store.pages == 13
            assert store.verify() == []
        if is_edited:
            entries = "".join(
                f"<url><loc>{site.url(f'/{number}', new_host)}</loc></url>" for number in range(12)
            )
            site.pages["/sitemap.xml"] = f"<urlset>{entries}</urlset>"
            site.pages["/start"] = html(WORDS, ["/sitemap.xml"])
            crawler = await crawl(Quiet, store_path, FULL, url=site.url("/start", new_host))
            assert stats(crawler).get("hints/unknown_urls", 0) == 0
    finally:
        await site.close()
