"""Visits to pages of other workers that were redirected to a host of this one: their pages are guests.

For scheduler, middleware and cycle a guest is a page of the store, with a number that no page of it has.
What its visit comes to is kept here until it is mailed to the shard that has the page.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy.typing as npt

from scrapy_gp4c.distributed.letters import Copy, Handover, Message, Returned, Tries
from scrapy_gp4c.page_state.columns import NEW_ROW, PageRow
from scrapy_gp4c.scoring.growth import GUESTS
from scrapy_gp4c.store.credentials import Credentials
from scrapy_gp4c.store.records import NewVisit
from scrapy_gp4c.store.shards.attached import ShardedHints
from scrapy_gp4c.store.shards.numbers import Numbers
from scrapy_gp4c.store.shards.part import Finder, Shard

if TYPE_CHECKING:
    from scrapy import Request

MOST: Final = 1_000_000
"""Guests of a run that are remembered."""
Again = tuple[int, int, int, str]
"""By which a visit that is handed over once more is known: page, its shard, redirects so far, URL."""


@dataclass
class Guest:
    """One visit to a page of another worker."""

    page: int
    """Its number here."""
    handover: Handover
    letters: list[int] = field(default_factory=list)
    """Ids of those that handed it over; consumed when it is over here."""
    visit: NewVisit | None = None
    """What it came to."""
    told: tuple[int, Message] | None = None
    """Who was told of its end here, a shard, and what."""
    validators: tuple[str | None, str | None] | None = None
    body_sum: int | None = None
    claims: list[tuple[str, float]] = field(default_factory=list)

    @property
    def finder(self) -> Finder:
        """The page, as other workers know it."""
        return Finder(self.handover.key, self.handover.shard)

    def returned(self) -> Returned:
        """What is told of a visit that is over."""
        assert self.visit is not None
        visit = self.visit._replace(page=0)
        return Returned(self.handover.key, visit, self.validators, self.body_sum, tuple(self.claims))


class Guests:
    """Those of one run."""

    def __init__(self) -> None:
        """There are none."""
        self._numbers = itertools.cycle(range(GUESTS, GUESTS + MOST))
        self._by_page: dict[int, Guest] = {}
        self._by_visit: dict[Again, Guest] = {}
        self._over: list[Guest] = []

    def add(self, handover: Handover) -> Guest:
        """Give a visit's page a number; the oldest one's is used again when there are too many."""
        number = next(self._numbers)
        if (gone := self._by_page.get(number)) is not None:
            self._by_visit.pop(_again(gone.handover), None)
        guest = self._by_page[number] = self._by_visit[_again(handover)] = Guest(number, handover)
        return guest

    def find(self, handover: Handover) -> Guest | None:
        """The guest of a visit that was handed over before, as the first letter, or its sender, was lost."""
        return self._by_visit.get(_again(handover))

    def of(self, page: int) -> Guest:
        """The guest of this number."""
        return self._by_page[page]

    def visited(self, page: int) -> bool:
        """Tell whether nothing is to be done for a guest any more."""
        guest = self._by_page.get(page)
        return guest is None or guest.visit is not None or guest.told is not None

    def page(self, page: int) -> PageRow:
        """As much of its columns as a visit looks at."""
        handover = self._by_page[page].handover
        known = handover.copy
        return NEW_ROW._replace(
            key=handover.key,
            has_copy=int(known.has_copy),
            fingerprint=known.fingerprint,
            n=known.n,
            X=known.X,
        )

    def validators(self, page: int) -> tuple[str | None, str | None]:
        """None of any copy: the guest's request has them."""
        return "", ""

    def set_validators(self, page: int, etag: str | None, last_modified: str | None) -> None:
        """Note those of the copy that was fetched."""
        self.of(page).validators = etag, last_modified

    def body_sum(self, page: int) -> int | None:
        """None: it is not known here."""

    def set_body_sum(self, page: int, body_sum: int) -> None:
        """Note that of the body that was fetched."""
        self.of(page).body_sum = body_sum

    def record(self, visit: NewVisit) -> None:
        """Note what a visit came to."""
        guest = self._by_page[visit.page]
        guest.visit = visit
        self._over.append(guest)

    def over(self) -> list[Guest]:
        """Those whose visits are over since this was asked last."""
        over, self._over = self._over, []
        return over


class GuestHints(ShardedHints):
    """What sites claim of the pages of shards, and what answers say of guests."""

    def __init__(self, shards: Sequence[Shard], numbers: Numbers, guests: Guests) -> None:
        """Take the shards."""
        super().__init__(shards, numbers)
        self._guests = guests

    def note(self, pages: npt.NDArray[Any], kind: str, values: npt.NDArray[Any]) -> None:
        """Note claims of pages; a guest is alone, as only its own answer speaks for it."""
        if len(pages) == 1 and pages[0] >= GUESTS:
            self._guests.of(int(pages[0])).claims.append((kind, float(values[0])))
        else:
            super().note(pages, kind, values)


def tries_of(request: Request, credentials: Credentials) -> Tries:
    """What Scrapy has noted in a redirected request, without what is secret of the URLs before."""
    meta = request.meta
    return Tries(
        int(meta.get("redirect_times", 0)),
        int(meta.get("redirect_ttl", 0)),
        tuple(credentials.url(str(url)) for url in meta.get("redirect_urls", ())),
        tuple(one if type(one) is int else str(one) for one in meta.get("redirect_reasons", ())),
        int(meta.get("retry_times", 0)),
    )


def note_tries(request: Request, tries: Tries) -> None:
    """Let Scrapy go on with what it has noted elsewhere."""
    request.meta["redirect_times"], request.meta["redirect_ttl"] = tries.redirects, tries.left
    request.meta["redirect_urls"] = list(tries.urls)
    request.meta["redirect_reasons"] = list(tries.reasons)
    if tries.retries:
        request.meta["retry_times"] = tries.retries


def copy_of(row: PageRow) -> Copy:
    """What a visit elsewhere has to know of a page."""
    return Copy(bool(row.has_copy), row.fingerprint, row.n, row.X)


def score_of(score: float) -> float | None:
    """A score as JSON has it."""
    return score if math.isfinite(score) else None


def _again(handover: Handover) -> Again:
    return handover.key, handover.shard, handover.tries.redirects, handover.request["url"]
