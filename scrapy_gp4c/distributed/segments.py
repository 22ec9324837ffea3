"""Visits as the ledger's log has them: columns packed byte by byte, and what else a flush recorded with them.

A segment is a header, the visits of dtype `VISIT` turned into planes (all lowest bytes of a column, then all
second ones, ...) and deflated, and opaque bytes, deflated. Times, most of which ascend by little, are kept as
the differences of their bit patterns: exact, and nearly all zeros in their upper planes.
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.distributed.errors import LedgerDamagedError
from scrapy_gp4c.page_state.outcomes import VISIT

MAGIC: Final = b"GP4S\x01"
_HEAD: Final = struct.Struct("<5sIIII")
"""Magic and version; visits; deflated bytes of these; bytes of the rest, and deflated."""
LEVEL: Final = 6
SHORT: Final = 4_096
"""Bytes that a window of 12 bits has."""
MOST_BYTES: Final = 2**26
"""Of a segment's parts, unpacked: one that says more is none of ours."""


class Segment(NamedTuple):
    """What one flush recorded of a shard, as it is appended and read back."""

    shard: int
    seq: int
    """Number in its shard's cycle, from 0 on, without gaps."""
    visits: int
    body: bytes
    """Packed."""

    @property
    def sha256(self) -> bytes:
        """By which a repeated append is recognised, and damage."""
        return hashlib.sha256(self.body).digest()


def segment(shard: int, seq: int, visits: npt.NDArray[Any], rest: bytes = b"") -> Segment:
    """Return a segment of visits, dtype `VISIT` ``[V]``, and of requests, new pages, notes: opaque here."""
    return Segment(shard, seq, len(visits), pack(visits, rest))


def pack(visits: npt.NDArray[Any], rest: bytes = b"") -> bytes:
    """Return visits and the rest as the bytes of a segment; the same for the same, on any machine."""
    if visits.dtype != VISIT:
        raise ValueError(f"expected visits of dtype VISIT; found {visits.dtype}")
    packed = deflated(_planes(visits))
    packed_rest = deflated(rest) if rest else b""
    return _HEAD.pack(MAGIC, len(visits), len(packed), len(rest), len(packed_rest)) + packed + packed_rest


def _planes(visits: npt.NDArray[Any]) -> bytes:
    """The columns of visits, byte by byte."""
    if len(visits) == 1:  # as many segments of a slow crawl
        return visits.tobytes()
    rows = visits.copy()  # contiguous, and without padding: a row's bytes are those of its columns, in order
    bits = rows["time"].view("<u8")
    rows["time"][1:] = (bits[1:] - bits[:-1]).view("<f8")
    return rows.view(np.uint8).reshape(len(visits), VISIT.itemsize).T.tobytes()


def deflated(data: bytes, level: int = LEVEL) -> bytes:
    """Deflate; what is short with small tables: making the usual ones takes longer than some visits do."""
    if len(data) > SHORT:
        return zlib.compress(data, level)
    deflate = zlib.compressobj(level, zlib.DEFLATED, wbits=12, memLevel=5)
    return deflate.compress(data) + deflate.flush()


def unpack(body: bytes) -> tuple[npt.NDArray[Any], bytes]:
    """Return visits, dtype `VISIT` ``[V]``, and the rest. Raises ValueError for bytes that are no segment."""
    if len(body) < _HEAD.size:
        raise ValueError(f"expected a segment; found {len(body)} bytes")
    magic, count, packed, size, packed_rest = _HEAD.unpack_from(body)
    if magic != MAGIC or len(body) != _HEAD.size + packed + packed_rest:
        raise ValueError(
            f"expected a segment that begins with {MAGIC!r}; found {body[:5]!r} and {len(body)} bytes"
        )
    start = _HEAD.size + packed
    planes = _inflated(body[_HEAD.size : start], count * VISIT.itemsize)
    rest = _inflated(body[start:], size) if packed_rest else b""
    visits = np.empty(count, VISIT)
    offset = 0
    for name in VISIT.names or ():
        dtype = VISIT[name]
        end = offset + count * dtype.itemsize
        column = np.frombuffer(planes[offset:end], np.uint8).reshape(dtype.itemsize, count).T
        offset = end
        if name == "time":
            bits = np.ascontiguousarray(column).view("<u8").reshape(count)
            visits[name] = np.cumsum(bits, dtype="<u8").view("<f8")
        else:
            visits[name] = np.ascontiguousarray(column).view(dtype).reshape(count)
    return visits, rest


def read(found: Segment, sha256: bytes, cycle: int) -> tuple[npt.NDArray[Any], bytes]:
    """Return what a segment of the log holds; raises LedgerDamagedError, which names it, if it is damaged."""
    problem = "its bytes are not those that were appended"
    if found.sha256 == sha256:
        try:
            visits, rest = unpack(found.body)
        except ValueError as error:
            problem = str(error)
        else:
            if len(visits) == found.visits:
                return visits, rest
            problem = f"it holds {len(visits)} visits and should hold {found.visits}"
    raise damaged(cycle, found.shard, found.seq, problem)


def damaged(cycle: int, shard: int, seq: int, problem: str) -> LedgerDamagedError:
    """Return the error for a segment that cannot be used."""
    return LedgerDamagedError(
        f"segment {seq} of shard {shard}, cycle {cycle}, is damaged: {problem}. Nothing of it was applied: "
        f"restore "
        "the ledger's database from a backup, or the shard from a worker's directory that has it."
    )


def _inflated(packed: bytes, size: int) -> bytes:
    """Inflate to a size that is known; whatever claims more is not unpacked at all."""
    if size > MOST_BYTES:
        raise ValueError(f"expected at most {MOST_BYTES} bytes; found {size}")
    inflate = zlib.decompressobj()
    try:
        whole = inflate.decompress(packed, size + 1)
    except zlib.error as error:
        raise ValueError(f"expected deflated bytes; found others: {error}") from None
    if len(whole) != size or not inflate.eof or inflate.unused_data:
        raise ValueError(f"expected {size} deflated bytes; found {len(whole)} or more")
    return whole
