"""The k best of candidates that lie in several shards, found without bringing them together.

Every shard has its own candidates in order, best first, and tells a few of them with their ranks: a sketch.
Of one sketch from each shard follows a range that has the k-th best of all, and many fewer candidates than
the one before; after at most 4 of them (up to 10 million candidates; where a shard has more than 1.25 times
its share of the best, up to a k of 2 million) it is found. Half of what the first sketches tell lies about
where the last one would be if each shard had its share: pages are in shards by a hash, so that 2 are mostly
enough.
For the same reason a shard ranks only about 1.25 times its share at first, and twice as many, again and
again, where the range leads on behind these. All are pure functions of whole numbers, so that whoever has the
sketches comes to the same range. Numbers are little-endian, and a sketch has at most 4,129 bytes.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from typing import Final, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.errors import PolicyError

POINTS: Final = 128
"""Candidates that a sketch tells, where it does not tell all."""
WHOLE: Final = 256
"""It tells all of so many: as many as two sketches would, in one step."""
EVEN: Final = 64
"""Those of a first sketch that lie evenly; the others lie about the place that is expected."""
SPARE: Final = 4_096
"""Candidates beyond 1.25 times what is expected of it that a shard ranks at first: they cost little."""
POINT: Final = np.dtype([("score", "<f8"), ("draw", "<u8")])
"""A candidate: its score, finite, and what decides among equal scores."""
_SKETCH: Final = struct.Struct("<QQQQ")
_PLACE: Final = struct.Struct("<dQIQ")
_RANGE: Final = struct.Struct("<Q?")


class Place(NamedTuple):
    """A place in the order of all candidates: by score descending, then draw, shard and row ascending."""

    score: float
    draw: int
    shard: int
    row: int
    """Position among the shard's own candidates."""


BEFORE_ALL: Final = Place(math.inf, 0, 0, 0)
BEHIND_ALL: Final = Place(-math.inf, 0, 0, 0)


class Range(NamedTuple):
    """Where the last of the k best is: behind `after`, and at or before `upto`."""

    after: Place
    upto: Place
    is_found: bool
    """Whether it is at `upto`."""
    chosen: int
    """When it is found: how many are chosen, k or all that there are."""

    def packed(self) -> bytes:
        """65 bytes."""
        return _PLACE.pack(*self.after) + _PLACE.pack(*self.upto) + _RANGE.pack(self.chosen, self.is_found)

    @classmethod
    def unpacked(cls, raw: bytes) -> Self:
        """Of `packed`; raises PolicyError for other bytes."""
        if len(raw) != 2 * _PLACE.size + _RANGE.size:
            raise PolicyError(f"expected a range of {2 * _PLACE.size + _RANGE.size} bytes; found {len(raw)}")
        chosen, is_found = _RANGE.unpack_from(raw, 2 * _PLACE.size)
        after, upto = (Place(*_PLACE.unpack_from(raw, at)) for at in (0, _PLACE.size))
        return cls(after, upto, is_found, chosen)


EVERYWHERE: Final = Range(BEFORE_ALL, BEHIND_ALL, False, 0)
"""The range before the first sketch."""


class Sketch(NamedTuple):
    """What a shard tells of its candidates in a range."""

    wanted: int
    """k: the same in all shards."""
    before: int
    """Candidates before the range."""
    inside: int
    """Candidates in the range: at most so many where the first sketch tells of some alone, else exactly."""
    expected: int
    """How many of those wanted the shard is expected to have."""
    points: npt.NDArray[np.void]
    """Dtype `POINT`: those at `_rows`."""

    def packed(self) -> bytes:
        """32 bytes, and 16 for each point."""
        return _SKETCH.pack(self.wanted, self.before, self.inside, self.expected) + self.points.tobytes()

    @classmethod
    def unpacked(cls, raw: bytes) -> Self:
        """Of `packed`; raises PolicyError for other bytes."""
        if len(raw) < _SKETCH.size:
            raise PolicyError(f"expected a sketch of at least {_SKETCH.size} bytes; found {len(raw)}")
        wanted, before, inside, expected = _SKETCH.unpack_from(raw)
        most = _SKETCH.size + POINT.itemsize * min(inside, WHOLE)
        if len(raw) > most or (len(raw) - _SKETCH.size) % POINT.itemsize:
            raise PolicyError(f"expected a sketch of whole points, in at most {most} bytes; found {len(raw)}")
        return cls(wanted, before, inside, expected, np.frombuffer(raw, POINT, offset=_SKETCH.size))


def at_first(expected: int) -> int:
    """How many candidates a shard ranks for its first sketch, where so many of it are expected."""
    return 5 * expected // 4 + SPARE


class Ordered:
    """The candidates of one shard, best first: by score descending, then draw ascending."""

    def __init__(
        self, scores: npt.NDArray[np.float64], draws: npt.NDArray[np.uint64], shard: int, most: int
    ) -> None:
        """Take the first ones in order, each ``[rows]``, scores finite, and the shard's number from 0.

        ``most``: so many there may be of them, at least those.
        """
        self._scores, self._draws, self._shard, self._most = scores, draws, shard, most

    def lacks(self, place: Place) -> bool:
        """Tell whether candidates may be missing that are at or before a place."""
        return self._most > len(self._scores) == self.rows_upto(place)

    def rows_upto(self, place: Place) -> int:
        """How many are at or before a place."""
        if not math.isfinite(place.score):
            return 0 if place.score > 0 else len(self._scores)
        rising = self._scores[::-1]
        begin = len(rising) - int(np.searchsorted(rising, place.score, "right"))
        end = len(rising) - int(np.searchsorted(rising, place.score, "left"))
        draws, draw = self._draws[begin:end], np.uint64(place.draw)
        first, last = (begin + int(np.searchsorted(draws, draw, side)) for side in ("left", "right"))
        if self._shard == place.shard:
            return min(max(place.row + 1, first), last)
        return last if self._shard < place.shard else first

    def sketch(self, within: Range, wanted: int, expected: int) -> Sketch:
        """Tell of those in a range, where so many of all shards are wanted, and expected of this one."""
        before, is_first = self.rows_upto(within.after), within == EVERYWHERE
        inside = self._most if is_first else self.rows_upto(within.upto) - before
        rows = before + _rows(is_first, inside, expected)
        points = np.empty(len(rows), POINT)
        points["score"], points["draw"] = self._scores[rows], self._draws[rows]
        return Sketch(wanted, before, inside, expected, points)


def narrowed(sketches: Sequence[Sketch]) -> Range:
    """The range that follows from the sketches of all shards, in their order, of one range.

    Raises PolicyError where shards do not want the same number, or tell of too few candidates.
    """
    if len({sketch.wanted for sketch in sketches}) != 1:
        found = ", ".join(f"{number}: {sketch.wanted:,}" for number, sketch in enumerate(sketches))
        raise PolicyError(f"expected that all shards choose the same number of pages; found by shard {found}")
    wanted = sketches[0].wanted
    before = sum(sketch.before for sketch in sketches)
    left = min(wanted - before, sum(sketch.inside for sketch in sketches))
    if left <= 0:
        return Range(BEFORE_ALL, BEFORE_ALL, True, before)
    is_first = not before  # behind the first ones a range begins at a candidate
    rows = [_rows(is_first, sketch.inside, sketch.expected) for sketch in sketches]
    for number, (told, sketch) in enumerate(zip(rows, sketches, strict=True)):
        if len(told) != len(sketch.points):
            raise PolicyError(
                f"expected {len(told)} points in the sketch of shard {number}; found {len(sketch.points)}"
            )
    shard = np.repeat(np.arange(len(sketches)), [len(one) for one in rows])
    points = np.concatenate([sketch.points for sketch in sketches])
    order = np.lexsort((points["draw"], -points["score"]))  # stable: then by shard and row
    # A shard's candidates before a point of another shard: at least up to its own last point there, and at
    # most up to the next one.
    steps = np.concatenate([np.diff(one, prepend=-1) for one in rows])[order]
    ahead = np.concatenate(
        [np.diff(one, append=sketch.inside) for one, sketch in zip(rows, sketches, strict=True)]
    )[order]
    least = np.cumsum(steps)
    most = np.cumsum(ahead) - ahead + 1

    def place(position: np.intp) -> Place:
        at = order[position]
        own = int(shard[at])
        row = sketches[own].before + int(np.concatenate(rows)[at])
        return Place(float(points["score"][at]), int(points["draw"][at]), own, row)

    last = np.searchsorted(least, left)
    upto = place(last) if last < len(order) else BEHIND_ALL
    if last < len(order) and most[last] == left:
        return Range(upto, upto, True, before + left)
    # Where shards have fewer than it seemed, fewer than wanted are chosen, but no fewer than were told of.
    behind = np.searchsorted(most, min(left, int(least[-1])))
    return Range(place(behind - 1), upto, False, 0)


def _rows(is_first: bool, inside: int, expected: int) -> npt.NDArray[np.int64]:
    """Positions in a range that a sketch tells."""
    if is_first:
        inside = min(inside, at_first(expected))
    if inside <= WHOLE:
        return np.arange(inside)
    return _first_rows(inside, expected) if is_first else _even_rows(inside, POINTS)


def _even_rows(inside: int, points: int) -> npt.NDArray[np.int64]:
    """The first, the last, and evenly between them."""
    return np.arange(points) * (inside - 1) // (points - 1)


def _first_rows(inside: int, expected: int) -> npt.NDArray[np.int64]:
    """Positions that a first sketch tells: some evenly, some about one, the closer the closer to it.

    Beginning with an eighth of the standard deviation of a count of about so many.
    """
    rows, far = set(_even_rows(inside, EVEN).tolist()), 1 + math.isqrt(expected) // 8
    for _ in range((POINTS - EVEN) // 2):
        rows |= {expected - far, expected + far}
        far += 1 + 3 * far // 8
    return np.array(sorted(row for row in rows if 0 <= row < inside), np.int64)
