"""The text of the monitored web's pages: what counts, and the noise around it."""

from datetime import UTC, datetime
from random import Random

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from parsel import Selector

from example_project import prose
from example_project.model import CP1252_HOST, Web
from example_project.page_text import Noise, main_text, related, render

WEB = Web(3, 12)
PAGES = st.sampled_from(np.flatnonzero(~WEB.file).tolist())


def html(page, day, noise_seed):
    """A response's HTML."""
    now = datetime.fromtimestamp(1_700_000_000 + 1009 * noise_seed, UTC)
    return render(WEB, page, day, 8410, Noise(Random(noise_seed), now))


def words(page, day, noise_seed):
    """The words of the main part, without its ad."""
    main = Selector(html(page, day, noise_seed)).css("main")
    for advert in main.css(".advert"):
        advert.drop()
    return " ".join(main.xpath(".//text()").getall()).split()


@given(page=PAGES, version=st.integers(1, 60))
def test_every_version_differs(page, version):
    """Each version's main text differs from the one before, in at most a few sentences."""
    before, now = main_text(WEB, page, version), main_text(WEB, page, version + 1)
    assert len(before) == len(now)
    assert 1 <= sum(a != b for a, b in zip(before, now, strict=True)) <= 3


@given(page=PAGES, day=st.integers(2, 40))
@example(page=int(np.flatnonzero(WEB.born == 7)[0]), day=7)  # its day of birth
def test_a_change_is_seen(page, day):
    """The words of the main part differ between two days of a page's life exactly where the versions do."""
    day = max(day, int(WEB.born[page]) + 1)
    same = WEB.versions(day)[page] == WEB.versions(day - 1)[page]
    assert (words(page, day, 1) == words(page, day - 1, 2)) == same


def test_noise_everywhere():
    """Stamp, ad, session id, token and attribute order change from response to response."""
    for page in (int(WEB.first[host]) + 1 for host in range(1, WEB.hosts + 1)):
        pair = [Selector(html(page, 3, seed)) for seed in (1, 2)]
        for query in (
            "footer p::text",
            "a::attr(href)",
            "meta[name=csrf-token]::attr(content)",
            "script::text",
        ):
            first, second = (part.css(query).getall() for part in pair)
            assert first, query
            assert first != second, query
        adverts = [part.css(".ad a::text, .ad-banner img::attr(alt), .advert a::text").get() for part in pair]
        assert adverts[0]
        assert adverts[1]
    assert "Generated at" in pair[0].css("footer").get()


def test_no_page_is_an_island():
    """Every page that exists on a day can be reached from the directory over links of pages that exist."""
    day, seen, waiting = 9, {0}, [0]
    while waiting:
        page = waiting.pop()
        lists = WEB.index[page] or WEB.file[page]
        links = WEB.listed(page, day).tolist() if lists else related(WEB, page)
        new = [other for other in links if other not in seen]
        seen.update(new)
        waiting += new
    exist = np.flatnonzero((WEB.born <= day) & ((WEB.gone > day) | (WEB.gone == 0)))
    assert seen == set(exist.tolist())


def test_links_of_the_html():
    """The main part links to the pages that the model says, over session ids."""
    page = int(WEB.first[2])
    links = Selector(html(page, 5, 1)).css("main .listing a::attr(href)").getall()
    assert [WEB.page_of(link) for link in links] == WEB.listed(page, 5).tolist()
    assert all("?sid=" in link for link in links)


@pytest.mark.parametrize("name", ["ADJECTIVES", "NOUNS", "VERBS", "PLACES", "TIMES"])
def test_words_fit_windows_1252(name):
    """The host that sends windows-1252 can send every word."""
    " ".join(getattr(prose, name)).encode("cp1252")
    assert int(WEB.host[int(WEB.first[CP1252_HOST])]) == CP1252_HOST
