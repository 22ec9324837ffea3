"""Who found whom: marks on requests, taken off in callbacks, trusted only where they can be true."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scrapy import Request
from scrapy.http import Response

from scrapy_gp4c.crawling.finders import UNKNOWN, finder_of, mark, take_off, who_finds
from scrapy_gp4c.crawling.stored_requests import FOUND_BY, META
from scrapy_gp4c.scoring.discovery import START
from scrapy_gp4c.store.lmdb_store.store import Store


def response(**meta: Any) -> Response:
    """A response to a request with this meta."""
    return Response("http://h/", request=Request("http://h/", meta=meta))


def marked(found_in: Response | None, **meta: Any) -> Request:
    """A request that was found there."""
    request = Request("http://h/x", meta=meta)
    mark(request, who_finds(found_in))
    return request


class ThreePages:
    """A store, as far as it is asked here."""

    pages = 3


def test_requests_of_the_start_and_of_visits_carry_their_finder() -> None:
    """As the column has it: number of the page plus 1, the start's own number."""
    assert marked(None).meta[FOUND_BY] == START
    assert marked(response(**{META: {"page": 0}})).meta[FOUND_BY] == 1
    assert marked(response(**{META: {"page": 41}})).meta[FOUND_BY] == 42


def test_what_no_visit_found_hands_on_who_found_it() -> None:
    """Only after its own mark was taken off for its callback, as the middleware does."""
    post = Response("http://h/", request=marked(response(**{META: {"page": 6}})))
    assert FOUND_BY not in marked(post).meta
    asked = post.request
    assert asked is not None
    asked.meta[FOUND_BY] = 7
    take_off(post)
    assert FOUND_BY not in asked.meta
    assert marked(post).meta[FOUND_BY] == 7
    take_off(post)  # a second time finds nothing, and forgets nothing
    assert marked(post).meta[FOUND_BY] == 7


def test_a_visit_goes_before_the_mark_of_its_own_request() -> None:
    """Found by page 2, visited as page 8: what it yields was found by page 8."""
    visit = response(**{META: {"page": 8}, FOUND_BY: 3})
    take_off(visit)
    assert marked(visit).meta[FOUND_BY] == 9


@pytest.mark.parametrize("meta", [{}, {META: False}, {META: None}])
def test_a_mark_that_was_copied_is_taken_away(meta: dict[str, Any]) -> None:
    """From ``response.meta`` or a request: where nobody knows the finder, an old one is wrong."""
    assert FOUND_BY not in marked(response(**meta), **{FOUND_BY: 5, "own": 1}).meta
    nobody_asked = Response("http://h/")
    take_off(nobody_asked)
    assert FOUND_BY not in marked(nobody_asked, **{FOUND_BY: 5}).meta


@given(st.one_of(st.integers(-3, 9), st.just(START), st.none(), st.floats(), st.text(max_size=2)))
def test_finders_are_pages_of_the_store_or_the_start(finder: object) -> None:
    """Anything else in a queue of an older crawl is nobody."""
    request = Request("http://h/", meta={FOUND_BY: finder})
    known = type(finder) is int and (1 <= finder <= 3 or finder == START)
    assert finder_of(request, ThreePages()) == (finder if known else UNKNOWN)  # type: ignore[arg-type]


def test_a_request_without_a_mark_was_found_by_nobody_known(tmp_path: Path) -> None:
    """In an empty store no page can be a finder, the start can."""
    with Store(tmp_path / "store") as store:
        assert finder_of(Request("http://h/"), store) == UNKNOWN
        assert finder_of(Request("http://h/", meta={FOUND_BY: 1}), store) == UNKNOWN
        assert finder_of(marked(None), store) == START
        store.add_pages([(5, {"url": "http://h/"})])
        assert finder_of(Request("http://h/", meta={FOUND_BY: 1}), store) == 1
