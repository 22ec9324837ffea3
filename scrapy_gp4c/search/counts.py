"""Counts of the terms of a query log in texts: all that the estimator reads of a text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.words.shingles import words_in

Ints = npt.NDArray[np.int32]

_PAIR: Final = np.dtype([("term", "<i4"), ("tf", "<i4")])
_HEAD_BYTES: Final = 8
_SIEVE_BITS: Final = 15
_MULTIPLIER: Final = np.uint64(0x9E3779B97F4A7C15)


class Counts(NamedTuple):
    """Term counts of a text."""

    term: Ints
    """``[E]``: numbers of the log's terms that occur, ascending."""
    tf: Ints
    """``[E]``: how often each does, at least once."""
    length: int
    """Tokens of the text, with those of no query."""

    def packed(self) -> bytes:
        """Terms and tf as bytes, little-endian."""
        pairs = np.empty(len(self.term), _PAIR)
        pairs["term"], pairs["tf"] = self.term, self.tf
        return pairs.tobytes()


NOTHING: Final = Counts(np.empty(0, np.int32), np.empty(0, np.int32), 0)
"""Counts of a missing text."""


class Terms:
    """Counter of the terms of a query log."""

    def __init__(self, number: Mapping[str, int]) -> None:
        """Take the terms with their numbers; none has a blank in it."""
        known = {term.encode(): of for term, of in number.items()}
        self._longer = {term: of for term, of in known.items() if len(term) > _HEAD_BYTES}
        """Terms of more than eight bytes."""
        short = {int.from_bytes(term, "little"): of for term, of in known.items() if term not in self._longer}
        self._heads = np.array(sorted(short), np.uint64)
        self._number = np.array([short[head] for head in self._heads.tolist()], np.int32)
        self._perhaps = np.zeros(1 << _SIEVE_BITS, np.bool_)
        """Sieve that drops most words that are no terms."""
        self._perhaps[_sieved(self._heads)] = True

    def count(self, words: bytes) -> Counts:
        """Term counts of a text; ``words``: its tokens in UTF-8, blanks between."""
        padded, starts, sizes, heads = words_in(words)
        longer = (sizes > _HEAD_BYTES).nonzero()[0]
        known = self._found(heads if not longer.size else heads[sizes <= _HEAD_BYTES])
        if longer.size and self._longer:
            first = starts[longer]
            spans = zip(first.tolist(), (first + sizes[longer]).tolist(), strict=True)
            text = padded.tobytes()
            numbers = [self._longer.get(text[start:end], -1) for start, end in spans]
            known = np.concatenate((known, [number for number in numbers if number >= 0])).astype(np.int32)
        tf = np.bincount(known).astype(np.int32)
        term = tf.nonzero()[0].astype(np.int32)
        return Counts(term, tf[term], len(sizes))

    def _found(self, heads: npt.NDArray[np.uint64]) -> Ints:
        """Numbers of the words of at most eight bytes that are terms."""
        heads = heads[self._perhaps.take(_sieved(heads))]
        if not (heads.size and self._heads.size):
            return np.empty(0, np.int32)
        row = self._heads.searchsorted(heads)
        np.minimum(row, len(self._heads) - 1, out=row)
        numbers: Ints = self._number[row[self._heads[row] == heads]]
        return numbers


def _sieved(heads: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
    """Places of words in the sieve."""
    return ((heads * _MULTIPLIER) >> np.uint64(64 - _SIEVE_BITS)).view(np.int64)


def unpacked(packed: bytes, length: int) -> Counts:
    """Inverse of `Counts.packed`."""
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
    terms = 1 + max(
        (int(counts.term[-1]) for both in pairs for counts in both if len(counts.term)), default=0
    )
    keys, tfs = [], []
    for side in (0, 1):
        counts = [both[side] for both in pairs]
        number = np.repeat(np.arange(len(pairs)), [len(one.term) for one in counts])
        keys.append(number * terms + np.concatenate([np.empty(0, np.int32), *(one.term for one in counts)]))
        tfs.append(np.concatenate([np.empty(0, np.int32), *(one.tf for one in counts)]))
    either = np.union1d(*keys)
    pair, term = np.divmod(either, terms)
    columns = []
    for side in (0, 1):
        tf = np.zeros(len(either), np.int32)
        tf[np.searchsorted(either, keys[side])] = tfs[side]
        columns += [tf, np.array([both[side].length for both in pairs], np.int32)[pair]]
    return pair, term.astype(np.int32), columns[0], columns[1], columns[2], columns[3]
