"""Letters of a worker: requests for pages of other workers go out, those for its own come in.

Visits that are redirected to a host of another shard travel, and so does what they come to. The letter that
hands one over is consumed with what is told of its end: until then it is in the ledger, whoever is killed.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from scrapy_gp4c.crawling.admission import Admission
from scrapy_gp4c.crawling.claims import Claim
from scrapy_gp4c.crawling.cycle import Cycle
from scrapy_gp4c.crawling.rebuilding import NotGivenError
from scrapy_gp4c.crawling.stored_requests import FOUND_BY, check_stored
from scrapy_gp4c.distributed import letters
from scrapy_gp4c.distributed.guests import Guest, copy_of, note_tries, score_of, tries_of
from scrapy_gp4c.distributed.letters import Found, Handover, Message, Returned
from scrapy_gp4c.distributed.log import Letter
from scrapy_gp4c.distributed.mail import Sender, Waiting
from scrapy_gp4c.distributed.shared_store import SharedStore
from scrapy_gp4c.scoring.growth import GUESTS, START
from scrapy_gp4c.store.records import StoredRequest
from scrapy_gp4c.store.shards.part import Finder
from scrapy_gp4c.store.shards.placing import shard_of_url

if TYPE_CHECKING:
    from scrapy import Request
    from scrapy.statscollectors import StatsCollector

REFUSED: Final = "gp4c/mail/refused"
"""Statistic of the messages that are none, or that cannot be requests here."""
HANDED_OVER: Final = "gp4c/visits/handed_over"
"""Statistic of the visits that others go on with, as they were redirected to their hosts."""
TAKEN_IN: Final = "gp4c/visits/taken_in"
"""Statistic of the visits of others that go on here."""
UNANSWERED: Final = "gp4c/visits/unanswered"
"""Statistic of the visits that nobody has gone on with: they end as errors."""
SLOT: Final = "download_slot"
"""Where Scrapy's downloader notes the slot of a request, which a redirect keeps: that of the host before."""


class Post:
    """What `scrapy_gp4c.crawling.admission.Abroad` describes, and the way back."""

    def __init__(self, cycle: Cycle, store: SharedStore, admission: Admission, stats: StatsCollector) -> None:
        """Take own shards, and what admits requests as those of the spider."""
        self._cycle, self._store, self._admission, self._stats = cycle, store, admission, stats
        self._rebuilder = admission.rebuilder
        self._sender = Sender()
        self._shards = store.shards[0].shard_of.shards
        self._read: set[int] = set()
        self._consumed: list[int] = []
        self._held: Counter[int] = Counter()
        """Letter -> visits that it has handed over and that are not over."""
        self._awaited: dict[int, Claim] = {}

    @property
    def known(self) -> tuple[int, ...]:
        """Ids of the letters that were read; the ledger may still have them."""
        return tuple(sorted(self._read))

    @property
    def awaited(self) -> Collection[int]:
        """Pages whose visits others go on with."""
        return self._awaited.keys()

    # --- what goes out

    def has(self, url: str) -> bool:
        """Tell whether others have the page of this URL."""
        return not self._store.has(url)

    def send(self, key: int, stored: StoredRequest, finder: int) -> None:
        """Let them have a request with the next flush, once in a run."""
        by = Finder(0, self._store.numbers[0])
        if 0 < finder < START:
            by = self._store.key_and_shard(finder - 1)
        self._say(by.shard, self._shard_of(stored), Found(key, stored, by.key, by.shard))

    def hand_over(self, request: Request, visit: Claim) -> bool:
        """Let them go on with a visit; with the next flush. False: the request cannot travel."""
        try:
            stored = self._rebuilder.stored(request)
            json.dumps(stored, allow_nan=False)
        except ValueError:
            return False
        if not self._rebuilder.is_given(stored):
            return False
        stored.get("meta", {}).pop(SLOT, None)
        tries = tries_of(request, self._rebuilder.credentials)
        if visit.page >= GUESTS:
            guest = self._store.guests.of(visit.page)
            self._cycle.give_up(visit)
            self._tell(guest, self._shard_of(stored), guest.handover._replace(request=stored, tries=tries))
        else:
            page, copy = self._store.key_and_shard(visit.page), copy_of(self._store.page(visit.page))
            message = Handover(*page, stored, tries, visit.kind, score_of(visit.score), copy)
            self._say(page.shard, self._shard_of(stored), message)
            self._cycle.back_in_queue(visit)
            self._awaited[visit.page] = visit
        self._stats.inc_value(HANDED_OVER)
        return True

    def _tell(self, guest: Guest, receiver: int, message: Message) -> None:
        """Tell how a visit that others have handed over ends here, and let go of the letters that did."""
        guest.told = receiver, message
        self._say(self._shard_of(guest.handover.request), receiver, message)
        for letter in guest.letters:
            self._held[letter] -= 1
            if not self._held[letter]:
                del self._held[letter]
                self._consumed.append(letter)

    def _say(self, sender: int, receiver: int, message: Message) -> None:
        """Send a message with the next flush, by the sender or any other shard that is here."""
        own = self._store.numbers
        self._sender.add(sender if sender in own else own[0], receiver, message)

    def _shard_of(self, stored: StoredRequest) -> int:
        return shard_of_url(stored["url"], self._shards)

    def letters(self) -> tuple[Letter, ...]:
        """What the next flush sends."""
        for guest in self._store.guests.over():
            self._tell(guest, guest.finder.shard, guest.returned())
        return self._sender.letters()

    def consumed(self) -> tuple[int, ...]:
        """Letters whose contents the next flush has, once `letters` has told what it sends."""
        found, self._consumed = self._consumed, []
        return tuple(found)

    def forget(self, consumed: Sequence[int]) -> None:
        """The ledger has deleted these letters."""
        self._read.difference_update(consumed)

    def end_unanswered(self, pages: Collection[int]) -> None:
        """End as errors the visits to some pages, with which nobody goes on any more."""
        for page in pages:
            visit = self._awaited.pop(page, None)
            if visit is not None and self._cycle.is_under_way(visit):
                self._stats.inc_value(UNANSWERED)
                self._cycle.end(visit, "error")

    # --- what comes in

    def receive(self, waiting: Sequence[Waiting]) -> None:
        """Do what letters ask for: requests as those of the spider, with the finder that they tell."""
        for one in waiting:
            if one.id in self._read:
                continue
            self._read.add(one.id)
            found = letters.read(one.letter.body, check_stored)
            refused = found.refused
            for message in found.messages:
                refused += not self._receive(message, one.id)
            if refused:
                self._stats.inc_value(REFUSED, refused)
            if one.id not in self._held:
                self._consumed.append(one.id)

    def _receive(self, message: Message, letter: int) -> bool:
        """Do what one says; False for what makes no sense here."""
        if isinstance(message, Found):
            return self._admit(message)
        if isinstance(message, Handover):
            return self._take_in(message, letter)
        return isinstance(message, Returned) and self._take_back(message)

    def _admit(self, message: Found) -> bool:
        try:
            request = self._rebuilder.build(message.request)
            key = self._rebuilder.keys(request)[0]
        except Exception:  # whatever others wrote, it is this message's failure alone
            return False
        if not message.finder:
            request.meta[FOUND_BY] = START
        page = self._store.find(key)
        if page is not None and self._cycle.is_claimed(page):
            return True
        is_new = page is None
        self._admission.admit(request)
        page = self._store.find(key)
        if page is not None:  # the own spider's first request is the same visit once more, no second one
            self._cycle.asked.discard(page)
        if message.finder and is_new and page is not None:
            self._store.find_elsewhere(page, Finder(message.finder, message.shard))
        return True

    def _take_in(self, message: Handover, letter: int) -> bool:
        """Go on with a visit of another worker; what was told of it already is told again."""
        if self.has(message.request["url"]) or message.shard >= self._shards:
            return False
        guest = self._store.guests.find(message)
        if guest is not None and guest.told is not None:
            self._say(self._shard_of(message.request), *guest.told)
            return True
        self._held[letter] += 1
        if guest is not None:
            guest.letters.append(letter)
            return True
        guest = self._store.guests.add(message)
        guest.letters.append(letter)
        self._stats.inc_value(TAKEN_IN)
        score = float("nan") if message.score is None else message.score
        visit = self._cycle.go_on(guest.page, message.kind, score)
        try:
            request = self._rebuilder.build(message.request)
        except NotGivenError:
            self._cycle.end(visit, "excluded")
        except Exception:  # whatever a spider's own classes raise, as for a page of the plan
            self._cycle.end(visit, "error")
        else:
            note_tries(request, message.tries)
            if not self._admission.queue_claim(request, visit):
                self._cycle.end(visit, "excluded")
        return True

    def _take_back(self, message: Returned) -> bool:
        """Record what a visit came to with which another worker went on; a second time is none."""
        store, page = self._store, self._store.find(message.key)
        if page is None:
            return False
        visit = self._awaited.pop(page, None)
        if visit is None or not self._cycle.is_under_way(visit):  # of the holder before, or taken back
            visit = None if self._cycle.is_claimed(page) else self._cycle.claim(page)
        if visit is None:
            return True
        for kind, value in message.claims:
            store.hints.note(np.array([page], np.uint32), kind, np.array([value]))
        if message.body_sum is not None:
            store.set_body_sum(page, message.body_sum)
        self._cycle.record_visit(visit, message.visit)
        if message.validators is not None and message.validators != store.validators(page):
            store.set_validators(page, *message.validators)
        return True
