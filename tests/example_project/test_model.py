"""The change model of the example's monitored web."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from example_project import model
from example_project.model import LAST_DAY, Web

DAYS = range(2, 61)


@pytest.fixture(scope="module")
def web():
    """The demo's web."""
    return Web(1)


@given(seed=st.integers(0, 2**32 - 1), hosts=st.integers(1, 12), days=st.permutations([1, 2, 5, 9]))
def test_pure(seed, hosts, days):
    """A version depends on seed, hosts, page and day only, not on what was asked for before."""
    asked, fresh = Web(seed, hosts), Web(seed, hosts)
    for day in days:
        np.testing.assert_array_equal(asked.versions(day), Web(seed, hosts).versions(day))
        np.testing.assert_array_equal(asked.refusals(day), fresh.refusals(day))
    np.testing.assert_array_equal(asked.rate, fresh.rate)


@given(seed=st.integers(0, 1000), day=st.integers(2, 50))
def test_versions_count_changes(seed, day):
    """Versions start at 1 at birth, grow by one with each change, and never otherwise."""
    web = Web(seed, 8)
    before, now, changed = web.versions(day - 1), web.versions(day), web.changed(day)
    born = web.born[web.alias] == day
    np.testing.assert_array_equal(now - before, changed | born)
    assert not (changed & born).any()
    assert (now[born] == 1).all()
    np.testing.assert_array_equal(now == 0, web.born[web.alias] > day)
    np.testing.assert_array_equal(web.last_change(day) == day, changed | born)


def test_pages_that_change_often_are_young_on_day_1(web):
    """The day of the last change before day 1 follows a page's rate; pages that never change are oldest."""
    np.testing.assert_array_equal(web.last_change(1), np.where(web.born == 1, 1 - web.age_days, 0)[web.alias])
    assert (web.age_days[web.still] == model.OLDEST_DAYS).all()
    busy = web.rate >= model.BUSY_RATES[0]
    assert np.median(web.age_days[busy]) < 4 < 20 < np.median(web.age_days[~busy & ~web.still])


def test_indexes_change_with_their_hosts(web):
    """An index page that lists all of its host changes whenever a page of it appears or goes."""
    is_index = web.found_by[web.host] == model.BY_INDEX
    for day in range(2, 30):
        moved = np.unique(web.host[is_index & ((web.born == day) | (web.gone == day))])
        assert web.changed(day)[web.first[moved]].all()


def test_what_lists_pages_changes_with_its_list(web):
    """Sitemaps and feeds exactly then, index pages then too; they lead to all pages."""
    lists = np.flatnonzero(web.index | web.file)
    for day in range(2, 32):
        moved = [not np.array_equal(web.listed(p, day), web.listed(p, day - 1)) for p in lists.tolist()]
        assert web.changed(day)[lists[moved]].all()
        assert not web.changed(day)[web.file & ~np.isin(np.arange(web.pages), lists[moved])].any()
        listed = np.unique(np.concatenate([web.listed(p, day) for p in lists.tolist()]))
        living = np.flatnonzero(web.alive(day))
        assert np.isin(living[1:], listed).all()  # all but the directory, where crawls start
        assert (web.born[listed] <= day).all()


def test_hosts_that_grow(web):
    """Each gains two pages a day, and only one page leads to them: the index page, a sitemap or a feed."""
    grows = np.flatnonzero(web.grows)
    assert web.found_by[grows].tolist() == [
        model.BY_INDEX, model.BY_SITEMAP, model.BY_FEED, model.BY_LYING_SITEMAP
    ]  # fmt: skip
    for host in grows.tolist():
        index, file = int(web.first[host]), int(web.first[host]) + 1
        assert 1.4 < ((web.host == host) & (web.born > 1)).sum() / (model.LAST_BIRTH - 1) < 2.6
        assert web.file[file] == (web.found_by[host] != model.BY_INDEX)
        for day in range(2, 31):
            new = np.flatnonzero((web.host == host) & (web.born == day) & web.alive(day))
            leads = file if web.file[file] else index
            assert np.isin(new, web.listed(leads, day)).all()
            assert not (web.file[file] and np.isin(new, web.listed(index, day)).any())


def test_urls_round_trip(web):
    """Every page is found by its URL, with or without a query; no other path is a page."""
    for page in range(web.pages):
        assert web.page_of(web.url(page, 8410)) == page
    assert web.page_of(web.url(7, 8410) + "?sid=1") == 7
    assert len({web.url(page, 1) for page in range(web.pages)}) == web.pages
    for path in (
        "/login",
        "/news/local/article-99999.html",
        "/news/local/article-0.html",
        "/docs/guide/page--1.html",
        web.path(7) + "/",
        "/else" + web.path(7),
        "/private/article-6.html",
    ):
        assert web.find("127.0.0.2", path) is None
    assert web.find("127.0.0.250", "/") is None
    assert web.find("10.0.0.1", "/") is None


@pytest.mark.parametrize("hosts", [0, 251])
def test_too_many_hosts(hosts):
    """A number of hosts that has no addresses is refused."""
    with pytest.raises(ValueError, match=f"not {hosts}"):
        Web(1, hosts)


def test_last_day():
    """Days after the last are refused."""
    web = Web(1, 1)
    web.versions(LAST_DAY)
    with pytest.raises(ValueError, match=str(LAST_DAY)):
        web.versions(LAST_DAY + 1)
