"""Counts of a log's terms in texts: packed, unpacked, lined up."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from scrapy_gp4c.index.counts import NOTHING, compared, count, together, unpacked

WORDS = st.lists(st.sampled_from("abcdefg"), max_size=12)
NUMBER = {"c": 0, "a": 1, "g": 2, "e": 3}


@given(WORDS)
def test_counts_are_those_of_the_terms_that_are_asked_for(words: list[str]) -> None:
    """Ascending by number, with the length of the whole text; packed and back the same."""
    found = count(words, NUMBER)
    expected = {NUMBER[word]: times for word, times in Counter(words).items() if word in NUMBER}
    assert dict(zip(found.term.tolist(), found.tf.tolist(), strict=True)) == expected
    assert found.term.tolist() == sorted(expected)
    assert found.length == len(words)
    again = unpacked(found.packed(), found.length)
    assert (again.term.tolist(), again.tf.tolist()) == (found.term.tolist(), found.tf.tolist())


@given(st.lists(st.tuples(WORDS, WORDS), max_size=5))
def test_pairs_have_each_term_of_either_text_once(pairs: list[tuple[list[str], list[str]]]) -> None:
    """With its tf in both, 0 where it is not, and the lengths."""
    known = [(count(one, NUMBER), count(other, NUMBER)) for one, other in pairs]
    found = set(zip(*(column.tolist() for column in compared(known)), strict=True))
    expected = {
        (number, NUMBER[term], one.count(term), len(one), other.count(term), len(other))
        for number, (one, other) in enumerate(pairs)
        for term in set(one + other) & NUMBER.keys()
    }
    assert found == expected
    assert all(np.diff(column).min(initial=0) >= 0 for column in compared(known)[:1])


@given(st.lists(WORDS, max_size=5))
def test_texts_together_have_all_occurrences(texts: list[list[str]]) -> None:
    """Text after text, each with its own length."""
    known = [count(words, NUMBER) for words in texts]
    term, tf, length = together([(one.packed(), one.length) for one in known])
    assert term.tolist() == [number for one in known for number in one.term.tolist()]
    assert tf.tolist() == [times for one in known for times in one.tf.tolist()]
    assert length.tolist() == [one.length for one in known for _ in one.term]


def test_a_page_that_is_not_there_has_nothing() -> None:
    """Neither terms nor length."""
    assert (len(NOTHING.term), len(NOTHING.tf), NOTHING.length) == (0, 0, 0)
