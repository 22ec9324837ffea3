"""Sitemaps, feeds and the calendar of the monitored web: their texts, and a real crawl that reads them."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

import numpy as np
import pytest
import pytest_twisted
from hypothesis import given
from hypothesis import strategies as st
from parsel import Selector
from scrapy.http import XmlResponse
from twisted.internet import reactor
from twisted.internet.defer import DeferredList
from twisted.web import server

from example_project import model, page_text
from example_project import web as serving
from example_project.files import EARLIER_DAY, render_file, render_week, since
from example_project.model import BY_FEED, BY_LYING_SITEMAP, FEED_ENTRIES, Web
from example_project.page_text import Noise, week_path
from example_project.settings import GP4C_RULES
from example_project.spiders.monitor import MonitorSpider
from scrapy_gp4c.crawling.claim_files import kind_of, read_claims
from scrapy_gp4c.fingerprint import fingerprint
from scrapy_gp4c.store.lmdb_store.store import Store
from tests.support.loopback import crawl, stats
from training.reporting.crawl import hints_section, new_pages_section, read_new_pages

WEB = Web(1)
FILES = np.flatnonzero(WEB.file).tolist()
START = datetime(2026, 3, 2, 23, tzinfo=UTC)  # late, so that all pages changed last on one day
DISTANCE = 3  # of a change, by default


def answer(page, day, start=START):
    """What a file says on a day, where every day before was shown for a minute, too."""
    shown = {one: start + timedelta(minutes=one) for one in range(1, day + 1)}
    content_type, text = render_file(WEB, page, day, 80, shown)
    headers = {"Content-Type": content_type}
    return XmlResponse(WEB.url(page, 80), body=text.encode(), headers=headers), shown


@given(page=st.sampled_from(FILES), day=st.integers(2, 31))
def test_a_file_claims_what_the_model_says(page, day):
    """Read as hints are: the pages that it leads to, since when each is as it is; of the liar, now."""
    response, shown = answer(page, day)
    feeds = WEB.found_by[WEB.host[page]] == BY_FEED
    kind = "feed" if feeds else "sitemap"
    assert kind_of(response.body, response.url) == kind
    claims = read_claims(kind, response.body, response.url)
    assert [WEB.page_of(url) for url in claims.urls] == WEB.listed(page, day).tolist()
    assert len(claims.urls) <= FEED_ENTRIES if feeds else len(claims.urls) > 30
    lies = WEB.found_by[WEB.host[page]] == BY_LYING_SITEMAP
    changed = WEB.last_change(day)[WEB.listed(page, day)].tolist()
    times = [shown[day if lies else max(one, 1)].timestamp() for one in changed]
    ages_s = [0 if lies else 60 * max(0, 1 - one) for one in changed]
    assert claims.changed_s.tolist() == np.subtract(times, ages_s).tolist()


@given(page=st.sampled_from(FILES), day=st.integers(2, 31))
def test_a_file_has_changed_where_the_model_says_so(page, day):
    """By its fingerprint: dates of one day are no change, a page more or less is one."""
    before, now = answer(page, day - 1)[0], answer(page, day, START + timedelta(days=1))[0]
    moved = (fingerprint(before) ^ fingerprint(now)).bit_count()
    assert (moved >= DISTANCE) == WEB.changed(day)[page]


@given(st.sets(st.integers(1, 30), min_size=1), st.integers(1, 30))
def test_days_that_were_never_shown_began_with_the_next(days, day):
    """What changed on a day is seen when that day or a later one is shown first."""
    shown = {one: START + timedelta(hours=one) for one in days}
    later = [one for one in days if one >= day]
    if later:
        assert since(shown, day) == START + timedelta(hours=min(later))
    long = [one for one in days if one > min(days)]
    earlier_day = timedelta(hours=min(long) - min(days)) if long else EARLIER_DAY
    assert since(shown, 1 - day) == START + timedelta(hours=min(days)) - day * earlier_day


def test_the_calendar_never_ends_and_never_changes():
    """Every week leads to two further ones, and its words do not depend on the noise."""
    texts = []
    for seed in (1, 2):
        page = Selector(render_week(WEB, 10**6, Noise(Random(seed), START)))
        links = page.css("main a::attr(href)").getall()
        assert [link.partition("?")[0] for link in links] == [week_path(10**6 + 1), week_path(10**6 + 52)]
        texts.append(page.css("main p::text").get())
    assert texts[0] == texts[1]
    assert serving.WEEK.fullmatch(week_path(10**6))


DAYS = 7


@pytest.mark.slow
@pytest_twisted.ensureDeferred
async def test_a_crawl_reads_them(tmp_path: Path, monkeypatch) -> None:
    """New pages are fetched on their day; the calendar is left alone; the report tells of hubs and hints."""
    small = {"GROWING_EVERY": 2, "GROWING_PAGES": 30, "PAGES_PER_HOST": 20, "LAST_BIRTH": DAYS}
    for name, value in small.items():
        monkeypatch.setattr(model, name, value)
    monkeypatch.setattr(serving, "SLOW_HOST", None)
    for module in (serving, page_text):
        monkeypatch.setattr(module, "CALENDAR_HOST", 1)
    web, day_file, store_path = Web(2, 8), tmp_path / "day", tmp_path / "store"
    site, ports, port = server.Site(serving.Site(web, day_file)), [], 0
    for host in range(web.hosts + 1):
        ports.append(reactor.listenTCP(port, site, interface=web.address(host)))
        port = ports[0].getHost().port
    settings = {"GP4C_BUDGET": 0.2, "GP4C_DISCOVERY": 0.5, "GP4C_RULES": GP4C_RULES}
    try:
        for day in range(1, DAYS + 1):
            day_file.write_text(f"{day}\n")
            crawler = await crawl(MonitorSpider, store_path, settings, port=str(port))
    finally:
        await DeferredList([one.stopListening() for one in ports])
    assert stats(crawler)["hints/claims"] > 0
    with Store(store_path) as store:
        assert store.verify() == []
        urls = [request["url"] for request in store.requests(range(store.pages))]
        assert not [url for url in urls if serving.WEEK.search(url)]
        entered = {}
        for url, row in zip(urls, map(store.page, range(store.pages)), strict=True):
            entered[web.page_of(url)] = row.entered
        new = web.grows[web.host] & (web.born > 1) & (web.gone == model.NEVER) & web.alive(DAYS)
        for page in np.flatnonzero(new).tolist():
            assert entered[page] == web.born[page], web.path(page)
        result = read_new_pages(store)
    names = [one.url.rpartition("/")[2] for one in result.bringers]
    assert sorted(names)[-3:] == ["feed.xml", "sitemap.xml", "sitemap.xml"]
    known = result.delay[result.delay >= 0]
    assert result.by_hub.mean() > 0.4
    assert known.mean() < 0.2
    assert new_pages_section(store_path) is not None
    table = hints_section(store_path).blocks[0]
    for host in (4, 6, 8):
        assert web.address(host) in table
