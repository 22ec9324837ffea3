"""Parts of plans, and what they come to, as bytes that travel between workers."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from typing import Final, NamedTuple, cast

import numpy as np

from scrapy_gp4c.distributed import segments
from scrapy_gp4c.errors import PolicyError
from scrapy_gp4c.policies.steps import Answer, Part, combined, packed, unpacked

_WIDTH: Final = 16
"""Bytes of a candidate in a sketch: score and draw."""


def deflated(part: bytes) -> bytes:
    """A part of a plan in fewer bytes: as planes, since the first bytes of scores in order are much alike."""
    behind = len(part) // _WIDTH * _WIDTH
    planes = np.frombuffer(part, np.uint8, behind, len(part) - behind).reshape(-1, _WIDTH).T
    return segments.deflated(part[: len(part) - behind] + planes.tobytes(), 9)


def inflated(raw: bytes) -> bytes:
    """Of `deflated`; raises PolicyError for other bytes."""
    try:
        part = zlib.decompress(raw)
    except zlib.error as error:
        raise PolicyError(f"expected a deflated part of a plan; found other bytes: {error}") from None
    behind = len(part) // _WIDTH * _WIDTH
    planes = np.frombuffer(part, np.uint8, behind, len(part) - behind).reshape(_WIDTH, -1).T
    return part[: len(part) - behind] + planes.tobytes()


_BEGUN: Final = struct.Struct("<Q")


class Begun(NamedTuple):
    """What a shard tells in the first step of a round."""

    seen: int
    """Visits of the cycle that it plans the round by."""
    part: Part

    def packed(self) -> bytes:
        """8 bytes, and those of the part."""
        return _BEGUN.pack(self.seen) + part_packed(self.part)

    @classmethod
    def unpacked(cls, raw: bytes) -> Begun:
        """Of `packed`; raises PolicyError for other bytes."""
        if len(raw) < _BEGUN.size:
            raise PolicyError(f"expected what a shard has seen in {_BEGUN.size} bytes; found {len(raw)}")
        (seen,) = _BEGUN.unpack_from(raw)
        return cls(seen, _part(raw[_BEGUN.size :]))


def part_packed(part: Part) -> bytes:
    """What one shard tells."""
    return deflated(packed(part))


def answer_of(told: bytes) -> Answer:
    """What follows from all, as `parts_combined` and `begun_combined` tell it."""
    return cast(Answer, unpacked(told))


def parts_combined(parts: Sequence[bytes]) -> bytes:
    """What follows from the parts of all shards, by shard. Raises PolicyError for others."""
    return packed(combined([_part(raw) for raw in parts]))


def begun_combined(parts: Sequence[bytes]) -> bytes:
    """The same of the first step of a round."""
    return packed(combined([Begun.unpacked(raw).part for raw in parts]))


def _part(raw: bytes) -> Part:
    return cast(Part, unpacked(inflated(raw)))  # `combined` refuses an answer in its place
