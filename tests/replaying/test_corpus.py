"""Counts of terms in versions, against counting words one by one."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scrapy_gp4c.index.queries import workload
from scrapy_gp4c.words.tokens import tokens
from training.histories.contents import ContentHistory
from training.histories.history import ChangeHistory
from training.replaying.corpus import Corpus, count

TEXTS = st.none() | st.lists(st.sampled_from(("one", "two", "Two", "x-y", "3", "é")), max_size=9).map(
    " ".join
)
PAGES = st.lists(st.lists(TEXTS, min_size=1, max_size=4), min_size=1, max_size=4)


def contents_of(pages: list[list[str | None]]) -> ContentHistory:
    """Pages of these versions, one a cycle."""
    cycles = max(2, max(map(len, pages)))
    first = np.concatenate(([0], np.cumsum([len(page) for page in pages]))).astype(np.int32)
    nth = [np.minimum(np.arange(cycles), len(page) - 1) for page in pages]
    version = (np.array(nth).T + first[:-1]).astype(np.int32)
    history = ChangeHistory(np.diff(version, axis=0) > 0, np.zeros(len(pages), int))
    return ContentHistory(history, version, first, [text for page in pages for text in page])


def told(corpus: Corpus) -> list[dict[str, int]]:
    """Terms of every version with how often they stand there."""
    name = {number: term for term, number in corpus.number.items()}
    bounds = zip(corpus.start[:-1].tolist(), corpus.start[1:].tolist(), strict=True)
    return [
        {name[term]: tf for term, tf in zip(corpus.term[a:b].tolist(), corpus.tf[a:b].tolist(), strict=True)}
        for a, b in bounds
    ]


@given(PAGES)
def test_every_version_is_counted(pages: list[list[str | None]]) -> None:
    """Terms, lengths, which versions are there, and which version each occurrence is of."""
    contents = contents_of(pages)
    calls: list[None] = []
    corpus = count(contents, lambda: calls.append(None))
    words = [tokens(text or "") for text in contents.texts]
    assert told(corpus) == [dict(Counter(of_one)) for of_one in words]
    assert corpus.length.tolist() == [len(of_one) for of_one in words]
    assert sorted(corpus.number.values()) == list(range(len(set().union(*words))))
    assert corpus.exists.tolist() == [text is not None for text in contents.texts]
    assert corpus.version.tolist() == [v for v, of_one in enumerate(words) for _ in set(of_one)]
    assert len(calls) == len(words)


@given(PAGES)
def test_differences_are_of_word_shingles_within_a_page(pages: list[list[str | None]]) -> None:
    """By sets of three words in a row, shorter at both ends; a page's first version differs from none."""
    contents = contents_of(pages)

    def shingles(text: str | None) -> set[tuple[str, ...]]:
        words = (text or "").lower().split()
        padded = ["", "", *words, "", ""] if words else []
        return {tuple(padded[i : i + 3]) for i in range(len(padded) - 2)}

    wanted = []
    for page in pages:
        wanted.append(0.0)
        for before, after in pairwise(page):
            one, other = shingles(before), shingles(after)
            wanted.append(1.0 - len(one & other) / len(one | other) if one | other else 0.0)
    assert count(contents).difference.tolist() == pytest.approx(wanted)


@given(PAGES, st.lists(st.sampled_from(("two", "y", "absent", "one", "3")), min_size=1, unique=True))
def test_a_workload_keeps_its_own_terms_alone(pages: list[list[str | None]], terms: list[str]) -> None:
    """In its own numbers; lengths stay those of the whole texts, and all versions stay."""
    whole = count(contents_of(pages))
    log = workload({(term,): 1.0 for term in terms})
    part = whole.of(log)
    assert part.number == {term: number for number, term in enumerate(terms)}
    assert told(part) == [{t: tf for t, tf in of_one.items() if t in terms} for of_one in told(whole)]
    assert part.length.tolist() == whole.length.tolist()
    assert part.difference.tolist() == whole.difference.tolist()
    assert len(part.start) == len(whole.start)


def test_a_workload_of_strange_terms_leaves_nothing() -> None:
    """The last term of the corpus is not taken for one that is not there."""
    whole = count(contents_of([["one two", "two three"]]))
    part = whole.of(workload({("absent",): 1.0}))
    assert part.start.tolist() == [0, 0, 0]
    assert len(part.term) == len(part.tf) == len(part.version) == 0
