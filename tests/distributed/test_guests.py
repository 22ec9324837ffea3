"""Pages of other workers whose visits go on here: numbers of their own, and nothing is kept for ever."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scrapy import Request

from scrapy_gp4c.distributed import guests
from scrapy_gp4c.distributed.guests import GuestHints, Guests, note_tries, score_of, tries_of
from scrapy_gp4c.distributed.letters import Copy, Handover, Tries
from scrapy_gp4c.scoring.growth import ELSEWHERE, GUESTS
from scrapy_gp4c.store.credentials import Credentials
from scrapy_gp4c.store.records import NewVisit
from scrapy_gp4c.store.shards.numbers import Numbers

TRIES = Tries(2, 18, ("http://a.example/", "http://b.example/"), (301, "meta refresh"), 1)


def handover(key: int, times: int = 1) -> Handover:
    """A visit that was redirected."""
    tries = TRIES._replace(redirects=times)
    return Handover(key, 5, {"url": "http://a.example/"}, tries, "ranked", 0.5, Copy(True, 99, 7, 3))


def test_a_guest_is_a_page_as_far_as_a_visit_looks() -> None:
    """Its copy and counts; it is over when its visit is recorded, and told once."""
    here = Guests()
    guest = here.add(handover(1))
    row = here.page(guest.page)
    assert (row.key, row.has_copy, row.fingerprint, row.n, row.X) == (1, 1, 99, 7, 3)
    assert guest.finder == (1, 5)
    assert not here.visited(guest.page)
    here.record(NewVisit(guest.page, "changed", 1.0, "ranked", 5, 12))
    assert here.visited(guest.page)
    assert here.over() == [guest]
    assert here.over() == []
    assert guest.returned().visit == NewVisit(0, "changed", 1.0, "ranked", 5, 12)


def test_a_further_hop_of_the_same_visit_is_another_guest() -> None:
    """A chain of redirects may come back; the same hop once more is the same guest."""
    here = Guests()
    first, second = here.add(handover(1)), here.add(handover(1, times=3))
    assert first.page != second.page
    assert here.find(handover(1)) is first
    assert here.find(handover(1, times=3)) is second
    assert here.find(handover(1, times=2)) is None
    assert here.find(handover(2)) is None


def test_numbers_come_round(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest guest goes; none has a number that says something else of who found a page."""
    assert GUESTS + guests.MOST < ELSEWHERE
    monkeypatch.setattr(guests, "MOST", 2)
    here = Guests()
    pages = [here.add(handover(key)).page for key in range(3)]
    assert pages == [GUESTS, GUESTS + 1, GUESTS]
    assert here.find(handover(0)) is None
    assert [here.of(page).handover.key for page in pages[1:]] == [1, 2]
    assert here.visited(GUESTS + 5)  # nobody knows it


def test_what_an_answer_says_of_a_guest_stays_with_it() -> None:
    """Its claims go where the page is."""
    here = Guests()
    guest = here.add(handover(1))
    GuestHints([], Numbers([]), here).note(np.array([guest.page], np.uint32), "expires", np.array([60.0]))
    here.record(NewVisit(guest.page, "changed", 1.0))
    assert guest.returned().claims == (("expires", 60.0),)


def test_scrapy_goes_on_counting() -> None:
    """What it has noted elsewhere is as if it had noted it here."""
    request = Request("http://c.example/")
    note_tries(request, TRIES)
    assert tries_of(request, Credentials()) == TRIES
    assert request.meta["redirect_urls"] == list(TRIES.urls)
    assert tries_of(Request("http://c.example/"), Credentials()) == Tries(0, 0, (), (), 0)


def test_no_secret_travels_with_the_urls_before() -> None:
    """They are told as messages tell them."""
    request = Request(
        "http://c.example/", meta={"redirect_urls": ["http://me:s3cret@a.example/?token=s3cret"]}
    )
    assert "s3cret" not in str(tries_of(request, Credentials()))


@given(st.floats())
def test_scores_are_what_json_has(score: float) -> None:
    """None for what is no number."""
    assert score_of(score) == (score if np.isfinite(score) else None)
