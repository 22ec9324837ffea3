"""The change model of the example's monitored web."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from example_project import model
from example_project.model import LAST_DAY, NEVER, ROBOTS_HOST, Web

DAYS = range(2, 61)


@pytest.fixture(scope="module")
def web():
    """The demo's web."""
    return Web(1)


def test_size(web):
    """The demo's web has at least 2,000 pages on its first day, and more than 30 hosts."""
    assert web.alive(1).sum() >= 2000
    assert np.unique(web.host).size == web.hosts + 1 > 30


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


def test_seeds_differ():
    """Two seeds give two webs."""
    assert not np.array_equal(Web(1).versions(20)[:500], Web(2).versions(20)[:500])


def test_weekend(web):
    """Pages change less on days 6 and 7 of a week; a program that rewrites pages knows no weekend."""
    weekend = np.array([(day - 1) % 7 >= 5 for day in DAYS])
    by_people, by_program = web.steady & ~web.always, web.steady & web.always

    def ratio(pages):
        per_day = np.array([web.changed(day)[pages].mean() for day in DAYS])
        return per_day[weekend].mean() / per_day[~weekend].mean()

    assert ratio(by_people) < 0.75
    assert 0.9 < ratio(by_program) < 1.1


def test_pages_that_never_change_and_pages_that_always_do(web):
    """A third never changes, sweeps or not; a few directories are rewritten daily, but for some pages."""
    ever = np.any([web.changed(day) for day in range(2, 200)], axis=0)
    still = web.still & web.steady
    assert abs(web.still.mean() - model.STILL_SHARE) < 0.02
    assert not ever[still].any()
    assert ever[web.steady & ~web.still].mean() > 0.85
    assert 0.5 < web.always.mean() / model.ALWAYS_SHARE < 1.6
    rewritten = np.isin(web.directory, web.directory[web.always])
    assert 0.6 < web.always[rewritten].mean() < 0.95
    busy = np.mean([web.changed(day)[web.always & web.steady] for day in DAYS])
    assert busy == pytest.approx(-np.expm1(-model.ALWAYS_RATE), abs=0.03)
    assert all("/live/" in web.path(page) for page in np.flatnonzero(web.always).tolist())


@pytest.mark.parametrize("group", ["directory", "host"])
def test_sweeps_and_releases(monkeypatch, group):
    """A sweep changes a share of a directory's pages, a release of a host's; none that never change."""
    constants = {"directory": "SWEEP_PROBABILITY", "host": "RELEASE_PROBABILITY"}
    reach = {"directory": model.SWEEP_REACH, "host": model.RELEASE_REACH}[group]
    for name, constant in constants.items():
        monkeypatch.setattr(model, constant, float(name == group))
    web = Web(5)
    web.rate[:] = 0.0
    moving = web.steady & ~web.still
    of = getattr(web, group)[moving]
    size = np.bincount(of)
    large = size >= 12
    shares = [np.bincount(of, web.changed(day)[moving])[large] / size[large] for day in (2, 3, 4)]
    assert large.sum() > 5
    assert abs(np.mean(shares) - np.mean(reach)) < 0.1
    assert reach[0] - 0.35 < np.min(shares)
    assert np.max(shares) < reach[1] + 0.35
    assert not web.changed(3)[web.steady & web.still].any()


def test_directories(web):
    """A directory is the path but for its last segment, small next to its host; its pages stand together."""
    for page in range(1, web.pages):
        folders = [web.url(other, 80).rpartition("/")[0] for other in (page - 1, page)]
        if not web.private[[page - 1, page]].any():
            assert (folders[0] == folders[1]) == (web.directory[page - 1] == web.directory[page])
    size = np.bincount(web.directory)
    assert 0.75 < size.mean() / model.DIRECTORY_PAGES < 1.1
    assert size.max() > 4 * model.DIRECTORY_PAGES


def test_lives(web):
    """Pages appear, disappear, redirect and are disallowed, each to the documented share."""
    ordinary, grows = ~web.index & ~web.file, web.grows[web.host]
    share = {
        "new": (web.born > 1)[ordinary & grows].mean(),
        "new elsewhere": (web.born > 1)[ordinary & ~grows].mean(),
        "gone": ((web.gone > 0) & (web.gone < NEVER))[ordinary].mean(),
        "dead": (web.gone == 0)[ordinary].mean(),
        "alias": web.redirects[ordinary].mean(),
        "refused": np.mean([(web.refusals(day) > 0).mean() for day in DAYS]),
    }
    wanted = {
        "new": model.NEW_SHARE,
        "new elsewhere": model.NEW_ELSEWHERE,
        "gone": model.GONE_SHARE,
        "dead": model.DEAD_SHARE,
        "alias": model.ALIAS_SHARE,
        "refused": model.UNAVAILABLE_SHARE,
    }
    for name, value in share.items():
        assert 0.5 * wanted[name] < value < 1.6 * wanted[name], name
    assert set(web.host[web.private]) == {ROBOTS_HOST}
    targets = web.alias[web.redirects]
    np.testing.assert_array_equal(web.redirects, web.alias != np.arange(web.pages))
    assert (web.alias[targets] == targets).all()
    assert (web.gone[targets] == NEVER).all()


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


def test_last_day(web):
    """Days after the last are refused."""
    web.versions(LAST_DAY)
    with pytest.raises(ValueError, match=str(LAST_DAY)):
        web.versions(LAST_DAY + 1)
