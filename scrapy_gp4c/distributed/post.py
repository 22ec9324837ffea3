"""Letters of a worker: requests for pages of other workers go out, those for its own come in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from scrapy_gp4c.crawling.cycle import Cycle
from scrapy_gp4c.crawling.rebuilding import Rebuilder
from scrapy_gp4c.crawling.stored_requests import FOUND_BY, check_stored
from scrapy_gp4c.distributed import mail
from scrapy_gp4c.distributed.log import Letter
from scrapy_gp4c.distributed.mail import Found, Sender, Waiting
from scrapy_gp4c.distributed.shared_store import SharedStore
from scrapy_gp4c.scoring.growth import START
from scrapy_gp4c.store.records import StoredRequest
from scrapy_gp4c.store.shards.part import Finder
from scrapy_gp4c.store.shards.placing import shard_of_url

if TYPE_CHECKING:
    from scrapy import Request
    from scrapy.statscollectors import StatsCollector

REFUSED: Final = "gp4c/mail/refused"
"""Statistic of the messages that are none, or that cannot be requests here."""


class Post:
    """What `scrapy_gp4c.crawling.admission.Abroad` describes, and the way back."""

    def __init__(
        self,
        cycle: Cycle,
        store: SharedStore,
        rebuilder: Rebuilder,
        admit: Callable[[Request], bool],
        stats: StatsCollector,
    ) -> None:
        """Take own shards; ``admit``: takes a request as one of the spider's."""
        self._store, self._rebuilder, self._admit, self._stats = store, rebuilder, admit, stats
        self._cycle = cycle
        self._sender = Sender()
        self._shards = store.shards[0].shard_of.shards
        self._read: set[int] = set()
        self._consumed: list[int] = []

    @property
    def known(self) -> list[int]:
        """Ids of the letters that were read; the ledger may still have them."""
        return sorted(self._read)

    def has(self, url: str) -> bool:
        """Tell whether others have the page of this URL."""
        return not self._store.has(url)

    def send(self, key: int, stored: StoredRequest, finder: int) -> None:
        """Let them have a request with the next flush, once in a run."""
        receiver = shard_of_url(stored["url"], self._shards)
        by = Finder(0, self._store.numbers[0])
        if 0 < finder < START:
            by = self._store.key_and_shard(finder - 1)
        self._sender.add(by.shard, receiver, Found(key, stored, by.key))

    def letters(self) -> tuple[Letter, ...]:
        """What the next flush sends."""
        return self._sender.letters()

    def consumed(self) -> tuple[int, ...]:
        """Letters whose contents the next flush has."""
        found, self._consumed = self._consumed, []
        return tuple(found)

    def forget(self, consumed: Sequence[int]) -> None:
        """The ledger has deleted these letters."""
        self._read.difference_update(consumed)

    def receive(self, letters: Sequence[Waiting]) -> None:
        """Admit what letters ask for, as requests of the spider with the finder that they tell."""
        for one in letters:
            if one.id in self._read:
                continue
            self._read.add(one.id)
            found = mail.read(one.letter.body, check_stored)
            refused = found.refused
            for message in found.messages:
                refused += not (isinstance(message, Found) and self._receive(message, one.letter.sender))
            if refused:
                self._stats.inc_value(REFUSED, refused)
            self._consumed.append(one.id)

    def _receive(self, message: Found, sender: int) -> bool:
        """Admit one; False for what is no request here."""
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
        self._admit(request)
        page = self._store.find(key)
        if page is not None:  # the own spider's first request is the same visit once more, no second one
            self._cycle.asked.discard(page)
        if message.finder and is_new and page is not None:
            self._store.find_elsewhere(page, Finder(message.finder, sender))
        return True
