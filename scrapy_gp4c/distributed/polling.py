"""What a worker asks once a second: a line of some twenty bytes, whatever the crawl's size, and its mail."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from psycopg import sql

from scrapy_gp4c.distributed.connection import Transaction
from scrapy_gp4c.distributed.direct import of_byteas, rows
from scrapy_gp4c.distributed.exchange import Step
from scrapy_gp4c.distributed.leases import PARKED_AFTER, Worker
from scrapy_gp4c.distributed.letters import MOST_BYTES
from scrapy_gp4c.distributed.mail import LETTERS, Waiting

_LOOK: Final = sql.SQL("gp4c.look({},{},{},{},{},{},{})")


class Poll(NamedTuple):
    """What may have changed by others."""

    cycle: int
    """The last one; 0: none."""
    closed: bool
    ended: bool
    """Whether all shards are done with it and no letter is left: it may be closed."""
    homeless: int
    """Shards, but for parked ones, that nobody alive holds: time to look, and to assign."""
    draining: bool
    asked: bool = False
    """Whether another worker has begun the step that was asked about."""
    letters: tuple[Waiting, ...] = ()
    """Some of those that wait for this worker's shards, oldest first."""


def poll(tx: Transaction, worker: Worker, step: Step | None = None, known: tuple[int, ...] = ()) -> Poll:
    """Return what may have changed for a worker; one statement, without parameters, as these take bytes.

    ``step``: which others may have begun: the next round's; None: there is none; ``known``: ids of letters
    that it has read.
    """
    [(told,)] = rows(tx, f"SELECT {looking(worker, step, known)}")
    return heard(of_byteas(told))


@lru_cache(16)  # mostly that of the second before
def looking(worker: Worker, step: Step | None, known: tuple[int, ...]) -> str:
    """Return what `poll` selects: another statement may select it besides, see `heard`."""
    of = (None, None) if step is None else step
    ids = f"{{{','.join(map(str, known))}}}"
    return _LOOK.format(worker.instance, PARKED_AFTER, *of, ids, MOST_BYTES, LETTERS).as_string()


def heard(told: Sequence[bytes]) -> Poll:
    """Return what the server has told of `looking`."""
    cycle, homeless, *flags = told[0].split()
    return Poll(
        int(cycle),
        closed=b"closed" in flags,
        ended=b"ended" in flags,
        homeless=int(homeless),
        draining=b"draining" in flags,
        asked=b"asked" in flags,
        letters=tuple(map(Waiting.unpacked, told[1:])),
    )
