"""Counts of a log's terms in texts: packed, unpacked, lined up."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from scrapy_gp4c.search.counts import (
    NOTHING,
    Counts,
    Terms,
    compared,
    together,
    unpacked,
)

WORDS = st.lists(st.sampled_from("abcdefg"), max_size=12)
NUMBER = {"c": 0, "a": 1, "g": 2, "e": 3}
TOKENS = st.lists(
    st.text(st.characters(categories=["L", "N"]), min_size=1, max_size=3)
    | st.sampled_from(["eightabc", "eightabcd", "eightabce", "überlang", "überlange", "ab", "abc"]),
    max_size=12,
)


def count(words: list[str], number: dict[str, int]) -> Counts:
    """Count the terms of ``number`` in a text of these words."""
    return Terms(number).count(" ".join(words).encode())


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


@given(TOKENS, TOKENS)
def test_words_of_any_length_and_script_are_told_apart(terms: list[str], words: list[str]) -> None:
    """Those of up to eight bytes, and longer ones that begin alike; with terms that are nowhere, or none."""
    number = {term: place for place, term in enumerate(dict.fromkeys(terms))}
    words = [*words, *terms[:3]]
    found = count(words, number)
    expected = {number[word]: times for word, times in Counter(words).items() if word in number}
    assert dict(zip(found.term.tolist(), found.tf.tolist(), strict=True)) == expected
    assert found.length == len(words)
    assert found.term.dtype == found.tf.dtype == np.int32


def test_terms_of_a_large_log_are_found_among_as_many_that_are_none() -> None:
    """Every second number is a term, once in the text; the sieve lets both through now and then."""
    words = [str(number) for number in range(60_000)]
    found = count(words, {word: place for place, word in enumerate(words[::2])})
    assert found.term.tolist() == list(range(30_000))
    assert set(found.tf.tolist()) == {1}


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
