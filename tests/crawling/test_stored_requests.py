"""Requests as the store keeps them: what counts as a page, and that nothing is lost on the way."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scrapy import FormRequest, Request, Spider
from scrapy.http import JsonRequest
from scrapy.http.request import NO_CALLBACK
from scrapy.spiders import CrawlSpider

from scrapy_gp4c.crawling.stored_requests import TRANSIENT_META, from_stored, is_page_request, to_stored


class Stranger(Spider):
    name = "stranger"

    def parse_page(self, response: Any, **kwargs: Any) -> None:
        """Be a callback."""

    def failed(self, failure: Any) -> None:
        """Be an errback."""


SPIDER = Stranger()
URL = "http://127.0.0.1/page?a=1"


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (Request(URL), True),
        (Request(URL, dont_filter=True, callback=SPIDER.parse_page), True),
        (Request(URL, meta={"gp4c": {"changed": True}}), True),
        (FormRequest(URL, method="GET", formdata={"q": "x"}), True),
        (Request(URL, meta={"gp4c": False}), False),
        (Request(URL, method="POST"), False),
        (Request(URL, method="HEAD"), False),
        (Request(URL, body=b"query"), False),
        (JsonRequest(URL, data={"q": 1}), False),
        (Request(URL, callback=NO_CALLBACK), False),
        (Request("data:,hello"), False),
        (Request("ftp://127.0.0.1/file"), False),
    ],
)
def test_only_plain_gets_of_pages_are_ours(request_: Request, expected: bool) -> None:
    """POST, bodies, opted-out requests, media and robots.txt requests and other schemes are not pages."""
    assert is_page_request(request_) is expected


def test_a_bare_request_is_kept_as_its_url_alone() -> None:
    """What is at its default takes no room in the store."""
    assert to_stored(Request(URL), SPIDER) == {"url": Request(URL).url}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
META_KEYS = st.text(min_size=1).filter(lambda key: key not in TRANSIENT_META)
HEADER_VALUES = st.binary(min_size=1, max_size=20)


@given(
    st.sampled_from([None, "parse_page"]),
    st.sampled_from([None, "failed"]),
    st.dictionaries(st.text(min_size=1), JSON, max_size=3),
    st.dictionaries(META_KEYS, JSON, max_size=3),
    st.dictionaries(st.sampled_from(["Accept", "X-Token", "Referer"]), st.lists(HEADER_VALUES, min_size=1)),
    st.dictionaries(st.text("abc", min_size=1), st.text("xyz%;é")),
    st.integers(-100, 100),
    st.booleans(),
)
def test_round_trip_through_json(
    callback: str | None,
    errback: str | None,
    cb_kwargs: dict[str, Any],
    meta: dict[str, Any],
    headers: dict[str, list[bytes]],
    cookies: dict[str, str],
    priority: int,
    dont_filter: bool,
) -> None:
    """A rebuilt request has everything that the spider gave the first one."""
    given_request = Request(
        URL,
        callback=callback and getattr(SPIDER, callback),
        errback=errback and getattr(SPIDER, errback),
        cb_kwargs=cb_kwargs,
        meta=meta,
        headers=headers,
        cookies=cookies,
        priority=priority,
        dont_filter=dont_filter,
    )
    stored = to_stored(given_request, SPIDER)
    rebuilt = from_stored(json.loads(json.dumps(stored)), SPIDER)
    names = ("url", "method", "callback", "errback", "cb_kwargs", "meta", "headers", "cookies", "priority")
    for name in (*names, "dont_filter"):
        assert getattr(rebuilt, name) == getattr(given_request, name), name


def test_what_scrapy_noted_about_one_fetch_is_not_kept() -> None:
    """Retry and redirect counts of an earlier fetch do not shorten the next one."""
    meta = dict.fromkeys(TRANSIENT_META, 1)
    assert to_stored(Request(URL, meta={**meta, "kept": 1}), SPIDER)["meta"] == {"kept": 1}


def test_what_is_kept_does_not_change_with_the_request() -> None:
    """A callback that changes its arguments in place does not change what the store will write."""
    arguments = {"seen": ["a"]}
    stored = to_stored(Request(URL, cb_kwargs=arguments, meta=arguments), SPIDER)
    arguments["seen"].append("b")
    assert stored["cb_kwargs"] == stored["meta"] == {"seen": ["a"]}


@pytest.mark.parametrize(
    "request_",
    [
        Request(URL, callback=lambda response: None),
        Request(URL, callback=partial(SPIDER.parse_page, x=1)),
        Request(URL, callback=Stranger().parse_page),
        Request(URL, errback=print),
        Request(URL, cb_kwargs={"pair": (1, 2)}),
        Request(URL, cb_kwargs={"not a number": float("nan")}),
        Request(URL, meta={1: "number as key"}),
        Request(URL, meta={"object": object()}),
        Request(URL, cookies={"raw": b"bytes"}),
    ],
)
def test_what_could_not_be_repeated_is_refused(request_: Request) -> None:
    """A request whose rebuilt form would call something else raises ValueError with the reason."""
    with pytest.raises(ValueError, match=r"^its (callback|errback|cb_kwargs|meta|cookies) "):
        to_stored(request_, SPIDER)


def test_deep_nesting_is_refused_not_fatal() -> None:
    """Arguments nested deeper than JSON can go are a ValueError too."""
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(ValueError, match="meta"):
        to_stored(Request(URL, meta={"deep": deep}), SPIDER)


def test_crawlspider_requests_can_be_kept() -> None:
    """CrawlSpider's own callback and the number of its rule come back."""
    spider = CrawlSpider(name="rules")
    request = Request(URL, callback=spider._callback, errback=spider._errback, meta={"rule": 0})
    rebuilt = from_stored(to_stored(request, spider), spider)
    assert (rebuilt.callback, rebuilt.errback) == (spider._callback, spider._errback)
    assert rebuilt.meta["rule"] == 0


def test_a_lost_callback_is_an_attribute_error() -> None:
    """A spider without the stored method any more says which one is missing."""
    with pytest.raises(AttributeError, match="parse_elsewhere"):
        from_stored({"url": URL, "callback": "parse_elsewhere"}, SPIDER)
