"""What shards ask each other while they plan, in steps: each tells its part, and goes on when all have.

Planning is a generator. It yields what its own shard tells, `Sums` or a `Sketch`, and is sent what follows
from the parts of all shards. All shards ask the same in the same order, since nothing decides on that but
answers. Whoever drives the generators may bring parts and answers anywhere as bytes; `alone` is how one
process with all pages does it. A part told twice is the same, and so is the answer that anybody makes of it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Final, NamedTuple, Self, TypeVar

import numpy as np

from scrapy_gp4c.errors import PolicyError
from scrapy_gp4c.policies.policy import Chosen, Cut
from scrapy_gp4c.policies.shared_cut import EVERYWHERE, Ordered, Range, Sketch, at_first, narrowed

T = TypeVar("T")


class Shard(NamedTuple):
    """Which part of all pages a planner has."""

    number: int
    """From 0."""
    of: int
    """How many shards there are."""


ONLY: Final = Shard(0, 1)
"""All pages."""


class Sums(NamedTuple):
    """Whole numbers, each to be added up over all shards: exact in any order."""

    values: tuple[int, ...]

    def packed(self) -> bytes:
        """8 bytes for each."""
        return np.array(self.values, "<i8").tobytes()

    @classmethod
    def unpacked(cls, raw: bytes) -> Self:
        """Of `packed`; raises PolicyError for other bytes."""
        if len(raw) % 8:
            raise PolicyError(f"expected sums of 8 bytes each; found {len(raw)} bytes")
        return cls(tuple(np.frombuffer(raw, "<i8").tolist()))


Part = Sums | Sketch
"""What one shard tells."""
Answer = Sums | Range
"""What follows from the parts of all."""
Steps = Generator[Part, Answer, T]
_TAGS: Final[dict[bytes, type[Sums | Sketch | Range]]] = {b"s": Sums, b"k": Sketch, b"r": Range}


def packed(told: Part | Answer) -> bytes:
    """A part or an answer as bytes."""
    return next(tag for tag, kind in _TAGS.items() if isinstance(told, kind)) + told.packed()


def unpacked(raw: bytes) -> Part | Answer:
    """Of `packed`; raises PolicyError for other bytes."""
    if raw[:1] not in _TAGS:
        raise PolicyError(f"expected a part of a plan, which begins with s, k or r; found {raw[:8]!r}")
    return _TAGS[raw[:1]].unpacked(raw[1:])


def combined(parts: Sequence[Part]) -> Answer:
    """What follows from the parts of one step: one of every shard, in order of their numbers.

    Raises PolicyError where they do not belong to one step.
    """
    sums = [part for part in parts if isinstance(part, Sums)]
    sketches = [part for part in parts if isinstance(part, Sketch)]
    if parts and len(sketches) == len(parts):
        return narrowed(sketches)
    if not parts or len(sums) < len(parts) or len({len(part.values) for part in sums}) > 1:
        found = ", ".join(f"{type(part).__name__}: {len(part[-1])}" for part in parts)
        raise PolicyError(f"expected parts of one step, from all shards; found {found or 'none'}")
    return Sums(tuple(map(sum, zip(*(part.values for part in sums), strict=True))))


def alone(steps: Steps[T]) -> T:
    """Plan with one shard: every answer follows from its own part."""
    try:
        part = next(steps)
        while True:
            part = steps.send(combined([part]))
    except StopIteration as end:
        result: T = end.value
        return result


def summed(*values: int) -> Steps[tuple[int, ...]]:
    """Ask for the sums over all shards of some numbers."""
    answer = yield Sums(values)
    if not isinstance(answer, Sums):
        raise PolicyError(f"expected sums as answer; found {answer!r}")
    return answer.values


class Division(NamedTuple):
    """What a shard has of what all have chosen."""

    own: Chosen
    """Its pages; the cut is that of all shards."""
    all: int
    """Pages that all shards have chosen."""


def divided(
    best: Callable[[int], Chosen], wanted: int, shard: Shard, share: float | None = None
) -> Steps[Division]:
    """Ask which of a shard's candidates are among the best of all shards.

    ``best``: returns so many of them, in order and with ties, or all that there are; it is asked again, for
    twice as many, where the shard turns out to have more of the best. ``wanted``: so many are chosen, the
    same in all shards; ``share``: of these, that the shard may be expected to have; None: as many as any
    other.
    """
    expected = int(wanted / shard.of if share is None else wanted * share)
    most = min(wanted, at_first(expected))
    candidates = best(most)
    ordered = _ordered(candidates, shard, most, wanted)
    where = EVERYWHERE
    while not where.is_found:
        answer = yield ordered.sketch(where, wanted, expected)
        if not isinstance(answer, Range):
            raise PolicyError(f"expected a range as answer; found {answer!r}")
        where = answer
        while ordered.lacks(where.upto) and not where.is_found:
            most = min(wanted, 2 * most)
            candidates = best(most)
            ordered = _ordered(candidates, shard, most, wanted)
    cut = Cut(where.upto.score, where.upto.draw) if where.chosen else None
    return Division(candidates.first(ordered.rows_upto(where.upto))._replace(cut=cut), where.chosen)


def _ordered(candidates: Chosen, shard: Shard, asked: int, wanted: int) -> Ordered:
    """So many of a shard's candidates as were asked for: all of them, if they are fewer."""
    found = len(candidates.pages)
    most = wanted if found == asked else found
    ties = np.empty(0, np.uint64) if candidates.ties is None else candidates.ties
    return Ordered(candidates.scores, ties, shard.number, most)
