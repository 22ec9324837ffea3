"""Tables whose values have checksums: all of a store but `ids`.

A value is followed by 4 bytes: the lowest of the XXH3 hash of its bytes, seeded with its table and key. A
value under another key or in another table is wrong as well. A value counts as absent only if both neighbours
of its key are right: a key that was altered is one of them.

Requests are kept as JSON in which one byte stands for what most of them have in common. Such a byte does not
occur in UTF-8, so that no other text has it.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from operator import itemgetter
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt
from xxhash import xxh3_64_intdigest

from scrapy_gp4c.errors import StoreDamagedError
from scrapy_gp4c.store.lmdb_store.environment import damaged

U32: Final = struct.Struct(">I")
U32_PAIR: Final = struct.Struct(">II")
"""Keys of tables by (cycle, number): big-endian, so that they sort."""
KEY: Final = struct.Struct(">Q")
SUM_BYTES: Final = 4
PLAIN_KEY: Final = b"schema"
"""Key in `meta` of the one value without a checksum: any version has to read it."""

TABLES: Final = (
    "meta", "ids", "urls", "validators", "log", "new", "visits", "cycles", "plans", "columns", "groups",
    "group_visits", "first_urls", "notes", "copies", "gains", "refresh_values", "descriptions", "clusters",
    "hints", "claims", "trust", "weights", "shadows",
)  # fmt: skip
"""Tables of a store. A new one goes to the end: positions are part of the seeds of checksums."""
_PLACES: Final = {name: place for place, name in enumerate(TABLES)}

_CONTENT: Final = itemgetter(slice(None, -SUM_BYTES))
_SUM: Final = itemgetter(slice(-SUM_BYTES, None))
_PRIME: Final = 2**32 - 5
_LOWEST: Final = 2**32 - 1
_JSON: Final = json.JSONEncoder(separators=(",", ":"))
_READ_JSON: Final = msgspec.json.Decoder().decode


def encode(content: Any) -> bytes:
    """JSON as the store keeps it."""
    return _JSON.encode(content).encode()


def decode(content: bytes) -> Any:
    """Decode JSON as `json.loads` does, in half the time where the store has written it.

    NaN and infinities, lone surrogates and what is no JSON at all are left to it.
    """
    try:
        return _READ_JSON(content)
    except ValueError:
        return json.loads(content)


def split(buffer: bytes, size: int) -> list[bytes]:
    """Cut a buffer into pieces of `size` bytes."""
    pieces: list[bytes] = np.frombuffer(buffer, f"V{size}").tolist()
    return pieces


def seed_of(table: str, key: bytes) -> int:
    """Seed of a value's checksum: place of the table times 2^32, and the key, big-endian, modulo 2^32 - 5."""
    return _PLACES[table] << 32 | int.from_bytes(key, "big") % _PRIME


def checksum(seed: int, value: bytes | memoryview) -> int:
    """Lowest 32 bits of the hash of a value."""
    return xxh3_64_intdigest(value, seed) & _LOWEST


def with_checksum(seed: int, value: bytes) -> bytes:
    """Append the checksum to a value."""
    return value + checksum(seed, value).to_bytes(SUM_BYTES, "little")


def is_intact(seed: int, value: bytes | memoryview) -> bool:
    """Whether a value ends with its checksum."""
    return checksum(seed, value[:-SUM_BYTES]) == int.from_bytes(value[-SUM_BYTES:], "little")


class Table:
    """A table of an open LMDB file. All that is read is checked; raises StoreDamagedError that names it."""

    __slots__ = ("_path", "_place", "_plain", "handle", "name")

    def __init__(self, path: Path, name: str, handle: object, *, plain: bool = False) -> None:
        """``plain``: without checksums, as `ids`."""
        self._path = path
        self.name = name
        self.handle = handle
        self._plain = plain
        self._place = 0 if plain else seed_of(name, b"")

    def get(self, txn: Any, key: bytes) -> bytes | None:
        """Read a value, or None where there is none."""
        value: bytes | None = txn.get(key, db=self.handle)
        if value is None:
            self._check_neighbours(txn, key)
            return None
        return value if self._plain else bytes(self.checked(key, value))

    def view(self, txn: Any, key: bytes, *, trusted: bool = False) -> memoryview:
        """Read a value that there must be, without copying it; ``trusted``: nor checking it."""
        value = txn.get(key, db=self.handle)
        if value is None:
            raise self.wrong(key, "it is missing")
        return memoryview(value)[:-SUM_BYTES] if trusted and not self._plain else self.checked(key, value)

    def checked(self, key: bytes, value: bytes | memoryview) -> memoryview:
        """Return a value without its checksum, which must be right."""
        if self._plain or key == PLAIN_KEY:
            return memoryview(value)
        if not is_intact(self._seed(key), value):
            raise self.wrong(key, "its checksum is another")
        return memoryview(value)[:-SUM_BYTES]

    def _seed(self, key: bytes) -> int:
        return self._place | int.from_bytes(key, "big") % _PRIME

    def get_many(self, txn: Any, numbers: npt.NDArray[Any]) -> list[bytes] | None:
        """Read the values of whole numbers ``[N]``, as keys of 4 bytes; None where one is missing."""
        keys = split(numbers.astype(">u4").tobytes(), U32.size)
        values: list[bytes] = list(map(txn.cursor(self.handle).get, keys))  # `getmulti` copies the keys too
        if None in values:
            return None
        if self._plain:
            return values
        contents = list(map(_CONTENT, values))
        seeds = (numbers.astype(np.int64) % _PRIME + self._place).tolist()
        sums = np.fromiter(map(xxh3_64_intdigest, contents, seeds), np.uint64, len(contents))
        kept_sums = np.frombuffer(b"".join(map(_SUM, values)), "<u4")
        wrong = np.flatnonzero(sums.astype(np.uint32) != kept_sums)
        if len(wrong):
            raise self.wrong(keys[wrong[0]], "its checksum is another")
        return contents

    def joined(self, txn: Any, numbers: npt.NDArray[Any]) -> bytes | None:
        """Read what `get_many` reads, with commas between."""
        values = self.get_many(txn, numbers)
        return None if values is None else b",".join(values)

    def put(self, txn: Any, key: bytes, value: bytes, *, overwrite: bool = True) -> None:
        """Write a value."""
        txn.put(
            key,
            value if self._plain else with_checksum(self._seed(key), value),
            db=self.handle,
            overwrite=overwrite,
        )

    def put_many(self, txn: Any, items: Iterator[tuple[bytes, bytes]], **options: bool) -> None:
        """Write many values; ``options``: of LMDB's ``putmulti``."""
        rows = (
            items if self._plain else ((key, with_checksum(self._seed(key), value)) for key, value in items)
        )
        txn.cursor(self.handle).putmulti(rows, **options)

    def delete(self, txn: Any, key: bytes) -> None:
        """Remove a value, if there is one."""
        txn.delete(key, db=self.handle)

    def drop(self, txn: Any) -> None:
        """Remove all values."""
        txn.drop(self.handle, delete=False)

    def entries(self, txn: Any) -> int:
        """Count the values, as LMDB does."""
        count: int = txn.stat(self.handle)["entries"]
        return count

    def items(
        self, txn: Any, first: bytes = b"", stop: bytes | None = None, *, after: bytes | None = None
    ) -> Iterator[tuple[bytes, memoryview]]:
        """Yield keys and values from key `first` on, up to `stop`, which is left out; both ends are checked.

        ``after``: key that was read last, to go on behind.
        """
        cursor = txn.cursor(self.handle)
        if after is not None and cursor.set_key(after):
            # Not by a search: in a damaged page that may skip keys, and end before the last one.
            is_there = cursor.next()
        else:
            first = first if after is None else after + b"\0"
            if first:
                self._check_neighbours(txn, first)
            is_there = cursor.set_range(first) if first else cursor.first()
        while is_there:
            key = bytes(cursor.key())
            content = self.checked(key, cursor.value())
            if stop is not None and key >= stop:
                return
            yield key, content
            is_there = cursor.next()

    def wrong_keys(self, txn: Any) -> Iterator[bytes]:
        """Yield the keys of all values whose checksum is wrong or that are out of order."""
        before, count = b"", 0
        for key, value in txn.cursor(self.handle):
            packed = bytes(key)
            intact = self._plain or packed == PLAIN_KEY or is_intact(self._seed(packed), value)
            if not intact or packed <= before:
                yield packed
            before, count = packed, count + 1
        if count != (expected := self.entries(txn)):
            raise damaged(self._path, f"{self.name}: expected {expected:,} values, found {count:,}")

    def keys(self, txn: Any) -> list[bytes]:
        """All keys."""
        return [bytes(key) for key in txn.cursor(self.handle).iternext(values=False)]

    def last(self, txn: Any) -> bytes | None:
        """Read the last value, or None where there is none."""
        cursor = txn.cursor(self.handle)
        return bytes(self.checked(bytes(cursor.key()), cursor.value())) if cursor.last() else None

    def neighbours(self, txn: Any, key: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield what stands behind and before a key, as it is kept; raises where one is out of order."""
        cursor = txn.cursor(self.handle)
        behind = cursor.set_range(key)
        if behind:
            neighbour = bytes(cursor.key())
            if neighbour < key:
                raise self.wrong(neighbour, "it is out of order")
            yield neighbour, cursor.value()
        if cursor.prev() if behind else cursor.last():
            neighbour = bytes(cursor.key())
            if neighbour >= key:
                raise self.wrong(neighbour, "it is out of order")
            yield neighbour, cursor.value()

    def _check_neighbours(self, txn: Any, key: bytes) -> None:
        for neighbour, value in self.neighbours(txn, key):
            self.checked(neighbour, value)

    def wrong(self, key: bytes, why: str) -> StoreDamagedError:
        """Return the error for a value."""
        parts: tuple[object, ...] = (key.decode("latin-1"),)
        if self.name != "meta" and len(key) in (U32.size, U32_PAIR.size):
            parts = struct.unpack(f">{len(key) // 4}I", key)
        return damaged(self._path, f"{self.name} {', '.join(map(str, parts))}: {why}")


_BEGINS: Final = (
    b'{"url":"https://www.',
    b'{"url":"http://www.',
    b'{"url":"https://',
    b'{"url":"http://',
)
"""The first that fits is taken: the longer ones come first."""
_MIDDLES: Final = (b'","callback":"parse_', b'","callback":"')
_END: Final = b'"}'
_CODES: Final = tuple(
    (bytes([0xFF - number]), text) for number, text in enumerate((*_BEGINS, *_MIDDLES, _END))
)
"""Code and the text that it stands for. Stores contain the codes: new ones go to the end, none changes."""
_BEGIN_CODES: Final = _CODES[: len(_BEGINS)]
_MIDDLE_CODES: Final = _CODES[len(_BEGINS) : -1]
_END_CODE: Final = _CODES[-1][0]


def shortened(request: bytes) -> bytes:
    """Kept form of a request in JSON."""
    if not request.isascii():
        return request
    for code, text in _BEGIN_CODES:
        if request.startswith(text):
            request = code + request[len(text) :]
            break
    for code, text in _MIDDLE_CODES:
        request = request.replace(text, code)
    return request[: -len(_END)] + _END_CODE if request.endswith(_END) else request


def in_full(requests: bytes) -> bytes:
    """JSON of one or many requests in the kept form."""
    if requests.isascii():
        return requests
    for code, text in _CODES:
        requests = requests.replace(code, text)
    return requests


class RequestTable(Table):
    """Table `urls`: its callers read and write requests in JSON."""

    __slots__ = ()

    def checked(self, key: bytes, value: bytes | memoryview) -> memoryview:
        """Return a request in full, whose checksum must be right."""
        return memoryview(in_full(bytes(super().checked(key, value))))

    def get_many(self, txn: Any, numbers: npt.NDArray[Any]) -> list[bytes] | None:
        """Read the requests of pages ``[N]``; None where one is missing."""
        values = super().get_many(txn, numbers)
        return None if values is None else list(map(in_full, values))

    def joined(self, txn: Any, numbers: npt.NDArray[Any]) -> bytes | None:
        """Read what `get_many` reads, with commas between: many requests are made full at once."""
        values = super().get_many(txn, numbers)
        return None if values is None else in_full(b",".join(values))

    def put(self, txn: Any, key: bytes, value: bytes, *, overwrite: bool = True) -> None:
        """Write a request."""
        super().put(txn, key, shortened(value), overwrite=overwrite)

    def put_many(self, txn: Any, items: Iterator[tuple[bytes, bytes]], **options: bool) -> None:
        """Write many requests; ``options``: of LMDB's ``putmulti``."""
        super().put_many(txn, ((key, shortened(value)) for key, value in items), **options)
