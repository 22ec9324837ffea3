"""How often the terms of a log of queries occur in a text: what the estimator knows of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int32]

_PAIR: Final = np.dtype([("term", "<i4"), ("tf", "<i4")])


class Counts(NamedTuple):
    """A text as the estimator sees it."""

    term: Ints
    """``[E]``: numbers of the log's terms that occur, ascending."""
    tf: Ints
    """``[E]``: how often each does, at least once."""
    length: int
    """Tokens of the text, those that no query has too."""

    def packed(self) -> bytes:
        """Terms and tf as bytes, little-endian."""
        pairs = np.empty(len(self.term), _PAIR)
        pairs["term"], pairs["tf"] = self.term, self.tf
        return pairs.tobytes()


NOTHING: Final = Counts(np.empty(0, np.int32), np.empty(0, np.int32), 0)
"""A page that is not there."""


def count(tokens: Sequence[str], number: Mapping[str, int]) -> Counts:
    """Count the terms of ``number`` (term -> number) in a text."""
    found = Counter(map(number.get, tokens))
    found.pop(None, None)
    pairs = np.array(sorted(found.items()), np.int32).reshape(-1, 2)
    return Counts(pairs[:, 0], pairs[:, 1], len(tokens))


def unpacked(packed: bytes, length: int) -> Counts:
    """What `Counts.packed` was made of."""
    pairs = np.frombuffer(packed, _PAIR)
    return Counts(pairs["term"], pairs["tf"], length)


def together(texts: Sequence[tuple[bytes, int]]) -> tuple[Ints, Ints, Ints]:
    """Terms, tf and lengths of the occurrences of many texts, given as packed counts and length: ``[E]``."""
    pairs = np.frombuffer(b"".join(packed for packed, _ in texts), _PAIR)
    sizes = np.fromiter((len(packed) // _PAIR.itemsize for packed, _ in texts), np.intp, len(texts))
    lengths = np.fromiter((length for _, length in texts), np.int32, len(texts))
    return pairs["term"], pairs["tf"], np.repeat(lengths, sizes)


def compared(
    pairs: Sequence[tuple[Counts, Counts]],
) -> tuple[npt.NDArray[np.intp], Ints, Ints, Ints, Ints, Ints]:
    """Line up old and new texts: pair, term, tf and length before, tf and length after, each ``[E]``.

    A pair has each term of either text once, terms ascending; tf is 0 in the one that lacks it.
    """
    terms = [np.union1d(before.term, after.term) for before, after in pairs]
    sizes = [len(own) for own in terms]
    pair = np.repeat(np.arange(len(pairs)), sizes)
    columns = []
    for side in (0, 1):
        tf = np.zeros(sum(sizes), np.int32)
        start = 0
        for own, both in zip(terms, pairs, strict=True):
            tf[start + np.searchsorted(own, both[side].term)] = both[side].tf
            start += len(own)
        columns += [tf, np.repeat(np.array([both[side].length for both in pairs], np.int32), sizes)]
    joined = np.fromiter(chain.from_iterable(terms), np.int32, sum(sizes))
    return pair, joined, columns[0], columns[1], columns[2], columns[3]
