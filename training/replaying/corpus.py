"""All versions of all pages as counts of terms: what search, estimator and workloads are computed from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.index.queries import Workload
from scrapy_gp4c.words.normal import normalise
from scrapy_gp4c.words.shingles import shingle_hashes
from scrapy_gp4c.words.tokens import tokens_of
from training.histories.contents import ContentHistory

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Corpus:
    """Occurrences of terms in V versions, by version: E of them."""

    contents: ContentHistory
    number: dict[str, int]
    """Term -> its number; all terms of all versions."""
    start: Ints
    """``[V + 1]``: where each version's occurrences begin."""
    term: npt.NDArray[np.int32]
    """``[E]``"""
    tf: npt.NDArray[np.int32]
    """``[E]``"""
    length: npt.NDArray[np.int32]
    """``[V]``: tokens of each version; 0 where there is no page."""
    difference: npt.NDArray[np.float64]
    """``[V]``: 1 - resemblance of the word 3-shingles of each version and the one before; 0 for the first."""

    @cached_property
    def version(self) -> npt.NDArray[np.int32]:
        """``[E]``: the version of each occurrence."""
        return np.repeat(np.arange(len(self.length), dtype=np.int32), np.diff(self.start))

    @cached_property
    def exists(self) -> npt.NDArray[np.bool_]:
        """``[V]``: whether there is a page."""
        return np.array([text is not None for text in self.contents.texts])

    def of(self, workload: Workload) -> Corpus:
        """The occurrences of a workload's terms, which have the numbers that they have there."""
        mapped = np.full(len(self.number) + 1, -1, np.int32)
        mapped[[self.number.get(term, -1) for term in workload.terms]] = np.arange(len(workload.terms))
        term = mapped[self.term]
        kept = term >= 0
        counts = np.bincount(self.version[kept], minlength=len(self.length))
        start = np.concatenate(([0], np.cumsum(counts)))
        return Corpus(
            self.contents,
            dict(workload.number),
            start,
            term[kept],
            self.tf[kept],
            self.length,
            self.difference,
        )


def count(contents: ContentHistory, advance: Callable[[], object] = lambda: None) -> Corpus:
    """Cut every version into tokens and count them; ``advance`` is called after each."""
    number: dict[str, int] = {}
    terms: list[npt.NDArray[np.int32]] = []
    tfs: list[npt.NDArray[np.int32]] = []
    difference = np.zeros(len(contents.texts))
    has_one_before = np.ones(len(contents.texts) + 1, np.bool_)
    has_one_before[contents.first_version] = False
    before = np.empty(0, np.uint64)
    for version, text in enumerate(contents.texts):
        normal = normalise(text or "")
        counts = Counter(tokens_of(normal))
        if has_one_before[version] or has_one_before[version + 1]:
            shingles = np.unique(shingle_hashes(normal))
            if has_one_before[version]:
                difference[version] = 1.0 - _resemblance(before, shingles)
            before = shingles
        terms.append(
            np.fromiter((number.setdefault(term, len(number)) for term in counts), np.int32, len(counts))
        )
        tfs.append(np.fromiter(counts.values(), np.int32, len(counts)))
        advance()
    start = np.concatenate(([0], np.cumsum([len(part) for part in terms])))
    length = np.array([int(part.sum()) for part in tfs], np.int32)
    return Corpus(contents, number, start, np.concatenate(terms), np.concatenate(tfs), length, difference)


def _resemblance(one: npt.NDArray[np.uint64], other: npt.NDArray[np.uint64]) -> float:
    """Shared part of two sets of shingles (Broder et al. 1997); 1 where both are empty."""
    shared = len(np.intersect1d(one, other, assume_unique=True))
    return shared / max(len(one) + len(other) - shared, 1) if len(one) or len(other) else 1.0
