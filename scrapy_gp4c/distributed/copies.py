"""Durable copies of shards: an object of each closed cycle, and now and then a snapshot to begin from.

A snapshot is written when it is at most `MOST_SNAPSHOTS` times as large as what the cycles since the one
before took in the log. So all snapshots together are never larger than so many times the log, and a shard is
built from a snapshot and the fewer cycles, the faster these have filled the log. Snapshots are deflated:
they take about a third.
"""

from __future__ import annotations

import tempfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from scrapy_gp4c.distributed import closed_cycles, objects
from scrapy_gp4c.distributed.closed_cycles import Brought
from scrapy_gp4c.distributed.connection import Calls
from scrapy_gp4c.distributed.errors import LedgerDamagedError
from scrapy_gp4c.distributed.objects import CHUNK, Owned, Place, Stored
from scrapy_gp4c.store.opening import LmdbShard, Sizes, new_shard, open_shard
from scrapy_gp4c.store.shards.part import ShardOf

MOST_SNAPSHOTS: Final = 3
"""Bytes of snapshots for a byte of the log."""
DATA: Final = "data.mdb"
_LEVEL: Final = 1
_SAMPLES: Final = 32
_SAMPLE_BYTES: Final = 2**15
"""Pieces of a shard's file by which the size of a snapshot is estimated."""


class Copying(NamedTuple):
    """Where copies of a shard go."""

    calls: Calls
    place: Place
    owned: Owned
    folder: Path
    """For files that are made on the way."""


def keep(to: Copying, shard: LmdbShard, brought: Brought) -> None:
    """Store the last cycle of a shard, which is folded, and a snapshot if one is due.

    ``brought``: see `closed_cycles`. What is stored already is not stored again. Raises FencedError.
    """
    number, cycle = to.owned.shard, shard.last_cycle
    known = to.calls.call(objects.copies, number)
    if (known.snapshot is not None and known.snapshot.cycle >= cycle) or (
        known.cycles and known.cycles[-1].cycle >= cycle
    ):
        return
    path = to.folder / "cycle"
    log = closed_cycles.write(to.calls, shard, brought, path)
    stored = objects.put(to.calls, to.place, to.owned, "cycle", cycle, path, log)
    room = MOST_SNAPSHOTS * sum(one.log for one in (*known.cycles, stored))
    if estimated_size(shard) <= room and put_snapshot(to, shard, room) is not None:
        objects.clean(to.calls, to.place, to.owned)


def put_snapshot(to: Copying, shard: LmdbShard, most: int | None = None) -> Stored | None:
    """Store a snapshot of a shard, as its last commit left it; None: it takes more bytes than `most`."""
    whole, packed = shard.copy_to(to.folder), to.folder / "snapshot"
    deflate, size = zlib.compressobj(_LEVEL), 0
    with whole.open("rb") as source, packed.open("wb") as target:
        while (most is None or size <= most) and (chunk := source.read(CHUNK)):
            size += target.write(deflate.compress(chunk))
        size += target.write(deflate.flush())
    whole.unlink()
    if most is not None and size > most:
        return None
    return objects.put(to.calls, to.place, to.owned, "snapshot", shard.last_cycle, packed)


def estimated_size(shard: LmdbShard) -> float:
    """Bytes that a snapshot takes, about: by pieces of the file, evenly spread, and what is in use of it."""
    path = shard.path / DATA
    last = max(0, path.stat().st_size - _SAMPLE_BYTES)
    taken = packed = 0
    with path.open("rb") as file:
        for number in range(_SAMPLES):
            file.seek(number * last // (_SAMPLES - 1))
            piece = file.read(_SAMPLE_BYTES)
            taken += len(piece)
            packed += len(zlib.compress(piece, _LEVEL))
    return shard.used_bytes * packed / taken


def build(calls: Calls, place: Place, of: ShardOf, path: Path, sizes: Sizes) -> int:
    """Build a shard in a directory that is not there, of its newest snapshot and the cycles since.

    Returns the cycle that it ends with. Raises LedgerDamagedError, which names what is damaged.
    """
    known = calls.call(objects.copies, of.number)
    if known.snapshot is None:
        path.parent.mkdir(parents=True, exist_ok=True)
        new_shard(path, of, sizes)
    else:
        path.mkdir(0o700, parents=True)
        packed = path / "snapshot"
        objects.get(place, known.snapshot, packed)
        _inflate(packed, path / DATA, known.snapshot)
        packed.unlink()
    with open_shard(path, of.shards, sizes) as shard:
        replay(place, shard, known.cycles)
        return shard.last_cycle


def replay(place: Place, shard: LmdbShard, cycles: Sequence[Stored]) -> None:
    """Take a shard in which no cycle is open through closed ones, one after the other."""
    with tempfile.TemporaryDirectory(dir=shard.path.parent, prefix="replay-") as folder:
        for one in cycles:
            path = Path(folder, "cycle")
            objects.get(place, one, path)
            closed_cycles.replay(shard, path)


def _inflate(packed: Path, path: Path, stored: Stored) -> None:
    inflate = zlib.decompressobj()
    try:
        with packed.open("rb") as source, path.open("wb") as target:
            while chunk := source.read(CHUNK):
                target.write(inflate.decompress(chunk))
            target.write(inflate.flush())
    except zlib.error as error:
        raise _torn(stored, str(error)) from None
    if not inflate.eof:
        raise _torn(stored, "it ends too early")


def _torn(stored: Stored, why: str) -> LedgerDamagedError:
    return LedgerDamagedError(
        f"object {stored.name} is no deflated snapshot: {why}. Restore it from a backup of where objects are."
    )
