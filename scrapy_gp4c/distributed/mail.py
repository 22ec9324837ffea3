"""What shards tell each other, on its way: letters that are written and that wait.

A letter is written in the flush of the visits that led to it, and consumed in the flush that has what it
led to.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple, Self

from scrapy_gp4c.distributed.connection import Transaction
from scrapy_gp4c.distributed.letters import Found, Message, write
from scrapy_gp4c.distributed.log import Letter

LETTERS: Final = 32
"""Read at once."""
_HEAD: Final = struct.Struct(">qihh")
REMEMBERED: Final = 1_000_000
"""New URLs that a sender remembers to have sent in a cycle."""


class Waiting(NamedTuple):
    """A letter that nobody consumed yet."""

    id: int
    cycle: int
    letter: Letter

    @classmethod
    def unpacked(cls, raw: bytes) -> Self:
        """Of id, cycle, sender, receiver and body, as the server's function packs them."""
        number, cycle, sender, receiver = _HEAD.unpack_from(raw)
        return cls(number, cycle, Letter(sender, receiver, raw[_HEAD.size :]))


class Sender:
    """Collects what shards of one worker have to tell; a URL goes to its shard once a cycle."""

    def __init__(self, remembered: int = REMEMBERED) -> None:
        """Remember so many sent URLs; beyond, the oldest may go again, and their receivers know them."""
        self._sent: dict[int, None] = {}
        self._remembered = remembered
        self._waiting: dict[tuple[int, int], list[Message]] = {}

    def add(self, sender: int, receiver: int, message: Message) -> bool:
        """Let a shard tell another one something; False for a URL that was sent in this cycle."""
        if isinstance(message, Found):
            if message.key in self._sent:
                return False
            self._sent[message.key] = None
            if len(self._sent) > self._remembered:
                del self._sent[next(iter(self._sent))]
        self._waiting.setdefault((sender, receiver), []).append(message)
        return True

    def letters(self) -> tuple[Letter, ...]:
        """Return what is to be sent, which is the next flush's from now on."""
        waiting, self._waiting = self._waiting, {}
        return tuple(
            Letter(sender, receiver, body)
            for (sender, receiver), messages in waiting.items()
            for body in write(messages)
        )

    def next_cycle(self) -> None:
        """Forget what was sent."""
        self._sent.clear()


def is_empty(tx: Transaction) -> bool:
    """Tell whether there is no mail at all: then nobody has a visit that was handed over."""
    return tx.execute("SELECT 1 FROM gp4c.mail LIMIT 1").fetchone() is None
