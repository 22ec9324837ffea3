"""Snapshots and closed cycles of shards as objects: in the ledger, or wherever fsspec reaches.

An object counts when its name is registered, under the fence, and that happens after it was read back and
found whole. So what a dying worker left half written, or one that lost its shard, is none.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, Literal, NamedTuple, Protocol

from scrapy_gp4c.distributed.connection import Calls, Transaction
from scrapy_gp4c.distributed.errors import LedgerDamagedError
from scrapy_gp4c.distributed.leases import fence
from scrapy_gp4c.distributed.schema import about

CHUNK: Final = 2**20
Kind = Literal["snapshot", "cycle"]


class Place(Protocol):
    """Where the bytes of objects lie."""

    @property
    def label(self) -> str:
        """What messages and the ledger call it; nothing secret."""

    def write(self, name: str, chunks: Iterable[bytes]) -> None:
        """Write an object, in place of one of this name; chunks of `CHUNK` bytes, the last one shorter."""

    def read(self, name: str) -> Iterator[bytes]:
        """Yield an object's bytes as they lie there; raises LedgerDamagedError if there is none."""

    def delete(self, name: str) -> None:
        """Delete an object, or what there is of it."""

    def names(self, prefix: str) -> list[str]:
        """Return the names of all objects that begin so, with ``/`` at its end; whole or not."""


class Stored(NamedTuple):
    """A registered object."""

    name: str
    shard: int
    kind: Kind
    cycle: int
    token: int
    size: int
    sha256: bytes
    place: str
    log: int
    """Bytes that the segments of a cycle had in the log; 0 for a snapshot."""


class Copies(NamedTuple):
    """What a shard is built from."""

    snapshot: Stored | None
    """The newest one; None: a shard without pages."""
    cycles: tuple[Stored, ...]
    """Those that were closed after it, oldest first."""


class Owned(NamedTuple):
    """A shard, and the token by which it is held."""

    shard: int
    token: int


def put(calls: Calls, place: Place, owned: Owned, kind: Kind, cycle: int, path: Path, log: int = 0) -> Stored:
    """Store a file as an object of a shard, read it back, and register it; the same one again is the same.

    ``log``: bytes of the log that it stands for.
    Raises FencedError if the shard is another's by now: nothing is registered then.
    """
    sha256, size = hashlib.sha256(), 0
    for chunk in _chunks(path):
        sha256.update(chunk)
        size += len(chunk)
    prefix = _prefix(calls.call(about).ledger, owned.shard)
    name = f"{prefix}{kind}-{cycle:06d}-{owned.token}-{sha256.hexdigest()[:16]}"
    stored = Stored(name, owned.shard, kind, cycle, owned.token, size, sha256.digest(), place.label, log)
    if calls.call(_is_registered, name):
        return stored
    place.write(name, _chunks(path))
    for _ in _checked(place, stored):
        pass
    calls.call(_register, stored)
    return stored


def get(place: Place, stored: Stored, path: Path) -> None:
    """Write an object to a file; raises LedgerDamagedError, which names it, and leaves no file, if it is not
    whole.
    """
    if stored.place != place.label:
        raise LedgerDamagedError(
            f"object {stored.name} lies at {stored.place}, and objects are looked for at {place.label}: set "
            "GP4C_OBJECTS to where it is."
        )
    part = path.with_name(path.name + ".part")
    try:
        with part.open("wb") as file:
            for chunk in _checked(place, stored):
                file.write(chunk)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def registered(tx: Transaction, shard: int | None = None) -> list[Stored]:
    """Return the registered objects of one shard, or of all, oldest first."""
    rows = tx.execute(
        _STORED + " WHERE shard = %s OR %s::int IS NULL ORDER BY registered, name", (shard, shard)
    ).fetchall()
    return [Stored._make(row) for row in rows]


def copies(tx: Transaction, shard: int, after: int | None = None) -> Copies:
    """Return what a shard is built from; ``after``: the cycles after this one, not those after the snapshot.

    Raises LedgerDamagedError where a cycle is missing between others.
    """
    newest = tx.execute(
        _STORED + " WHERE shard = %s AND kind = 'snapshot' ORDER BY cycle DESC, registered DESC LIMIT 1",
        (shard,),
    ).fetchone()
    snapshot = None if newest is None else Stored._make(newest)
    if after is None:
        after = 0 if snapshot is None else snapshot.cycle
    rows = tx.execute(
        _STORED + " WHERE shard = %s AND kind = 'cycle' AND cycle > %s ORDER BY cycle, registered DESC",
        (shard, after),
    ).fetchall()
    cycles = {one.cycle: one for one in map(Stored._make, rows)}  # of several, the first that was registered
    if missing := set(range(after + 1, max(cycles, default=after) + 1)) - cycles.keys():
        raise LedgerDamagedError(
            f"shard {shard} has no object of cycle {min(missing)}, and later ones: it cannot be built. "
            "Restore the ledger's database from a backup, or the shard from a worker's directory that has it."
        )
    return Copies(snapshot, tuple(cycles.values()))


def clean(calls: Calls, place: Place, owned: Owned) -> int:
    """Delete a shard's snapshots before its newest, and what was never registered; returns how many.

    Only names that nobody can register any more are deleted: those of this token, as this worker is not
    storing one now, and of those before it. Objects of cycles stay: history is never deleted.
    """
    gone = calls.call(_retire, owned)
    kept = {stored.name for stored in calls.call(registered, owned.shard)}
    left = [
        name
        for name in place.names(_prefix(calls.call(about).ledger, owned.shard))
        if name not in kept and _token(name) <= owned.token
    ]
    for name in {*gone, *left}:
        place.delete(name)
    return len({*gone, *left})


_STORED: Final = "SELECT name, shard, kind, cycle, token, size, sha256, place, log FROM gp4c.object"


def _is_registered(tx: Transaction, name: str) -> bool:
    return tx.execute("SELECT FROM gp4c.object WHERE name = %s", (name,)).fetchone() is not None


def _prefix(ledger: str, shard: int) -> str:
    return f"{ledger}/{shard:04d}/"


def _token(name: str) -> float:
    parts = name.rpartition("/")[2].split("-")
    with suppress(ValueError):
        return int(parts[2]) if len(parts) == 4 else float("inf")
    return float("inf")


def _chunks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            yield chunk


def _checked(place: Place, stored: Stored) -> Iterator[bytes]:
    """Yield an object's bytes; raises at their end if they are not those that were stored."""
    sha256, size = hashlib.sha256(), 0
    for chunk in place.read(stored.name):
        sha256.update(chunk)
        size += len(chunk)
        if size > stored.size:
            break
        yield chunk
    if size != stored.size or sha256.digest() != stored.sha256:
        found = "more" if size > stored.size else f"{size}{' others' if size == stored.size else ''}"
        raise LedgerDamagedError(
            f"object {stored.name} at {place.label} is damaged: expected {stored.size} bytes as they were "
            f"stored, "
            f"found {found}. Nothing of it was used: restore it from a backup of that place, or let the "
            f"shard be "
            "built from an older object and the log."
        )


def _register(tx: Transaction, stored: Stored) -> None:
    fence(tx, {stored.shard: stored.token})
    tx.execute(
        "INSERT INTO gp4c.object (name, shard, kind, cycle, token, size, sha256, place, log)"
        " VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s) ON CONFLICT (name) DO NOTHING",
        stored,
    )


def _retire(tx: Transaction, owned: Owned) -> list[str]:
    fence(tx, {owned.shard: owned.token})
    return [name for (name,) in tx.execute("SELECT gp4c.retire(%s)", (owned.shard,)).fetchall()]
