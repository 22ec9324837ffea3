"""Keys of pages by their URLs: those of the crawl's own fingerprinter, at any speed."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scrapy import Request, Spider
from scrapy.crawler import Crawler
from scrapy.utils.request import RequestFingerprinter

from scrapy_gp4c.crawling.rebuilding import Rebuilder
from scrapy_gp4c.crawling.stored_requests import page_key
from scrapy_gp4c.crawling.url_keys import UrlKeys
from scrapy_gp4c.store.credentials import SECRET_PARAMS, Credentials

CHARACTERS = "aZ0/._~-%?&=#;:+@!é \t"
URLS = st.builds(
    lambda scheme, host, path: f"{scheme}://{host}{path}",
    st.sampled_from(("http", "https", "HTTP", "ftp")),
    st.sampled_from(("h.example", "H.example", "h.example:8080", "h.example:80", "u:p@h", "127.0.0.1", "")),
    st.one_of(
        st.text(CHARACTERS, max_size=12),
        st.sampled_from(
            ("/", "/a/../b", "//a", "/./", "/a%41", "/%c3%a9", "/a?token=1", "/a?b=2&a=1", "/a#b")
        ),
    ),
)
PLAIN_URLS = st.from_regex(r"https?://[a-z0-9.-]{1,9}(:[0-9]{1,5})?(/[aZ0._~-]{0,3}){1,4}", fullmatch=True)


class Other(RequestFingerprinter):
    """A fingerprinter of a user."""

    def fingerprint(self, request: Request) -> bytes:
        """As Scrapy's, but for its end."""
        return super().fingerprint(request)[::-1]


def rebuilder(fingerprinter: Any) -> Rebuilder:
    """Who tells keys in a crawl."""
    crawler = Crawler(Spider)
    crawler.request_fingerprinter = fingerprinter
    return Rebuilder(crawler, Spider("s"), Credentials(SECRET_PARAMS))


@given(st.lists(URLS, max_size=8), st.sampled_from((RequestFingerprinter, Other)))
def test_keys_are_those_of_requests(urls: list[str], kind: Any) -> None:
    """Of plain URLs and of others, whoever tells requests apart; 0 for what cannot be asked for."""
    told = rebuilder(kind())
    expected = []
    for url in urls:
        try:
            expected.append(told.keys(Request(url))[0] if url.startswith(("http://", "https://")) else 0)
        except ValueError:
            expected.append(0)
    assert UrlKeys(told).of(urls).tolist() == expected
    assert UrlKeys(told).of(["http://h.example/a", *urls]).tolist()[1:] == expected


def test_a_secret_is_no_part_of_a_key() -> None:
    """As of requests: the page is the same whoever asks."""
    keys = UrlKeys(rebuilder(RequestFingerprinter()))
    assert len(set(keys.of([f"http://h/a?token={number}" for number in range(3)]).tolist())) == 1


def test_another_scrapy_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The short way is taken if it gives the same for the first URL."""
    monkeypatch.setattr("scrapy_gp4c.crawling.rebuilding.RequestFingerprinter", Other)
    keys = UrlKeys(rebuilder(Other()))
    urls = ["http://h/a", "http://h/b"]
    expected = [page_key(Other().fingerprint(Request(url))) for url in urls]
    assert keys.of(urls).tolist() == keys.of(urls).tolist() == expected


@given(st.lists(st.one_of(URLS, PLAIN_URLS), max_size=8))
@example(["http://h.example/a/../b", "http://h.example/./", "http://h.example:080/a"])
def test_pages_are_told_apart_as_scrapy_does(urls: list[str]) -> None:
    """The short way to a key gives what Scrapy's fingerprinter does, of every URL without a secret."""
    told = rebuilder(RequestFingerprinter())
    assert told.hashes_plain
    for url in urls:
        try:
            request = Request(url)
        except ValueError:
            continue
        if told.credentials.url(request.url) == request.url:
            key = page_key(RequestFingerprinter().fingerprint(request))
            assert told.keys(request) == (key, key)
            assert UrlKeys(told).of([url]).tolist() == [key if url.startswith(("http://", "https://")) else 0]
