"""A closed cycle of a shard as a file: what its log had, in fewer bytes, and what the fold needs besides.

The file is a magic, a deflated head (JSON: which cycle, its record as the shard has it, how many pages
elsewhere its pages have found), the panel's shadows, deflated, and the segments of the log, as many as are
read at once made into one: `scrapy_gp4c.distributed.segments` has their format. Each part is preceded by its
length. No plan is in it, as a fold needs none: whoever replays it scores no page.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Final

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.distributed import segments
from scrapy_gp4c.distributed.connection import Calls, Transaction
from scrapy_gp4c.distributed.errors import LedgerDamagedError
from scrapy_gp4c.distributed.log import read_log
from scrapy_gp4c.store.opening import LmdbShard, Sealed
from scrapy_gp4c.store.records import SHADOW

MAGIC: Final = b"GP4C\x01"
_LENGTH: Final = struct.Struct("<Q")
VISITS_AT_ONCE: Final = 2**16
REST_AT_ONCE: Final = 2**23
"""Visits, and bytes beside them, from which on segments are no longer put together."""
Brought = Sequence[tuple[int, int]]
"""Key of a page, and how many pages of other shards it has found in the cycle."""


def write(calls: Calls, shard: LmdbShard, brought: Brought, path: Path) -> int:
    """Write the last cycle, which is folded, by the ledger's log; returns the bytes that it takes there.

    Raises LedgerDamagedError for a damaged segment.
    """
    number, cycle = shard.shard_of.number, shard.last_cycle
    count, log = calls.call(_log_size, cycle, number)
    record, shadows = shard.cycles()[-1], shard.shadows(cycle)
    head = {
        "shard": number,
        "cycle": cycle,
        "segments": count,
        "record": record,
        "brought": sorted(brought),
        "shadows": SHADOW.descr,
    }
    with path.open("wb") as file:
        file.write(MAGIC)
        _put(file, zlib.compress(json.dumps(head, sort_keys=True).encode()))
        _put(file, zlib.compress(shadows.tobytes()))
        written = 0
        for visits, rest in _together(calls, cycle, number):
            _put(file, segments.pack(visits, rest))
            written += len(visits)
    if written != (expected := record["shard"]["visited"]):
        raise segments.damaged(cycle, number, count, f"the log has {written} visits, the shard {expected}")
    return log


def replay(shard: LmdbShard, path: Path) -> None:
    """Take a shard, in which no cycle is open, through the cycle of a file, to the very same columns.

    Raises LedgerDamagedError for a file that is not of its next cycle.
    """
    with path.open("rb") as file:
        if file.read(len(MAGIC)) != MAGIC:
            raise _wrong(shard, "it does not begin as one")
        head = json.loads(zlib.decompress(_get(file, shard)))
        if [head["shard"], head["cycle"]] != [shard.shard_of.number, shard.last_cycle + 1]:
            raise _wrong(shard, f"it is cycle {head['cycle']} of shard {head['shard']}")
        if [tuple(one) for one in head["shadows"]] != SHADOW.descr:
            raise _wrong(shard, "its shadows are those of another version of scrapy-gp4c")
        shadows = np.frombuffer(zlib.decompress(_get(file, shard)), SHADOW)
        record = head["record"]
        shard.begin_cycle({"started": record["started"]})
        for number, body in enumerate(_parts(file, shard)):
            visits, rest = segments.unpack(body)
            shard.apply(Sealed(visits, rest), number)
    if (found := len(shard.open_visits())) != (expected := record["shard"]["visited"]):
        raise _wrong(shard, f"it has {found} visits and should have {expected}")
    counts = {page: pages for key, pages in head["brought"] if (page := shard.find(key)) is not None}
    pages = np.array(sorted(counts), np.uint32)
    shard.note_brought(pages, np.array([counts[page] for page in pages.tolist()], np.int64))
    shard.commit()
    if len(shadows):
        shard.keep_shadows(head["cycle"], shadows)
    shard.finish_cycle(record)


def _together(calls: Calls, cycle: int, shard: int) -> Iterator[tuple[npt.NDArray[Any], bytes]]:
    """Yield visits and rest of the log, many segments at once."""
    parts: list[npt.NDArray[Any]] = []
    rest = bytearray()
    waiting = 0
    for _, visits, more in read_log(calls, cycle, shard):
        parts.append(visits)
        rest += more
        waiting += len(visits)
        if waiting >= VISITS_AT_ONCE or len(rest) >= REST_AT_ONCE:
            yield np.concatenate(parts), bytes(rest)
            parts, rest, waiting = [], bytearray(), 0
    if parts:
        yield np.concatenate(parts), bytes(rest)


def _log_size(tx: Transaction, cycle: int, shard: int) -> tuple[int, int]:
    row = tx.execute(
        "SELECT count(*), coalesce(sum(octet_length(body)), 0)::bigint FROM gp4c.log"
        " WHERE cycle = %s AND shard = %s",
        (cycle, shard),
    ).fetchone()
    assert row is not None
    return row[0], row[1]


def _put(file: BinaryIO, part: bytes) -> None:
    file.write(_LENGTH.pack(len(part)) + part)


def _get(file: BinaryIO, shard: LmdbShard) -> bytes:
    length = file.read(_LENGTH.size)
    part = file.read(_LENGTH.unpack(length)[0]) if len(length) == _LENGTH.size else b""
    if not part or len(part) < _LENGTH.unpack(length)[0]:
        raise _wrong(shard, "it ends too early")
    return part


def _parts(file: BinaryIO, shard: LmdbShard) -> Iterator[bytes]:
    while file.peek(1):  # type: ignore[attr-defined] # a buffered file has it
        yield _get(file, shard)


def _wrong(shard: LmdbShard, why: str) -> LedgerDamagedError:
    return LedgerDamagedError(
        f"expected an object of cycle {shard.last_cycle + 1} of shard {shard.shard_of.number}: {why}. The "
        "cycle was not closed with it: restore it from a backup of where objects are."
    )
