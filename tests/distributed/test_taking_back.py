"""Requests that are taken back from Scrapy: pages come again, and nobody hears of an error."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from scrapy import Request
from scrapy.core.downloader import Slot
from scrapy.exceptions import IgnoreRequest
from twisted.internet.defer import Deferred

from scrapy_gp4c.crawling.claims import Claim
from scrapy_gp4c.crawling.stored_requests import FOUND_BY, META, PASSED
from scrapy_gp4c.distributed.taking_back import for_later, from_downloader

RUN = 7


class Visits:
    """The visits of a cycle that are under way: what is asked of a `Cycle`."""

    def __init__(self, *pages: int) -> None:
        self.left = dict.fromkeys(pages, True)

    def is_under_way(self, visit: Claim) -> bool:
        """Whether it has no outcome yet."""
        return visit.run == RUN and visit.page in self.left

    def back_in_queue(self, visit: Claim) -> None:
        """It waits again."""
        self.left[visit.page] = False

    def release_queued(self) -> list[int]:
        """Forget those that wait."""
        pages = [page for page, left in self.left.items() if not left]
        self.left = {page: left for page, left in self.left.items() if left}
        return pages


def asked(page: int, host: str | None = "a.example", run: int = RUN, **meta: Any) -> Request:
    """A request of a page."""
    claim = Claim(page, "ranked", 0.5, host, run)
    return Request(f"http://a.example/{page}", meta={META: claim, **meta}, errback=print)


def test_pages_that_wait_for_a_delay_are_taken_back() -> None:
    """Their visits are none then; robots.txt and those of another run stay where they are."""
    slot, cycle, failed = Slot(1, 30.0), Visits(1, 2, 3), []
    others = [Request("http://a.example/robots.txt"), asked(9, run=RUN + 1)]
    for request in (asked(1), others[0], asked(2), others[1]):
        answer: Deferred[Any] = Deferred()
        answer.addErrback(lambda failure, request=request: failed.append((request, failure.value)))
        slot.queue.append((request, answer))
    cycle_: Any = cycle
    found = from_downloader(SimpleNamespace(slots={"a.example": slot}), cycle_)
    assert [one.url[-1] for one in found] == ["1", "2"]
    assert all(one.errback is print for one in found)
    assert [one[0] for one in slot.queue] == others
    assert cycle.left == {3: True}
    assert [request.errback for request, _ in failed] == [None, None]
    assert all(isinstance(error, IgnoreRequest) for _, error in failed)


def test_what_the_plan_has_is_not_asked_for_twice() -> None:
    """Nor a redirect's target as a page of its own; what the spider asked for is asked for as before."""
    assert for_later(asked(1)) is None
    assert for_later(asked(1, None, redirect_urls=["http://a.example/0"])) is None
    assert for_later(asked(1, None, retry_times=1)) is None
    own = for_later(asked(1, None, **{FOUND_BY: 3, "mine": 1}))
    assert own is not None
    assert own.meta == {"mine": 1}
    post = Request("http://a.example/login", method="POST", meta={META: PASSED})
    assert for_later(post) is post
    assert post.meta[META] == PASSED
