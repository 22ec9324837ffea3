"""Descriptions of copies: small, compared as the texts, read back as they were."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scrapy_gp4c.words.descriptions import (
    MOST_BYTES,
    MOST_LINKS,
    MOST_TERMS,
    describe,
    link_hash,
    pack,
    unpack,
)

TEXTS = st.text(max_size=400)


@given(text=TEXTS, links=st.lists(st.text(max_size=40), max_size=90), size_bytes=st.integers(0, 2**40))
def test_any_description_is_read_back_as_it_was(text: str, links: list[str], size_bytes: int) -> None:
    """Whatever the page says; a size beyond 32 bits is the greatest that they hold."""
    made = describe(text, links, 7, size_bytes)
    packed = pack(made)
    assert len(packed) <= MOST_BYTES
    back = unpack(packed)
    assert (back.words, back.images, back.size_bytes) == (made.words, 7, min(size_bytes, 2**32 - 1))
    for name in ("terms", "counts", "links"):
        np.testing.assert_array_equal(getattr(back, name), getattr(made, name))


def test_the_largest_description_keeps_to_its_bytes() -> None:
    """More words and links than are kept."""
    many = describe(
        " ".join(f"word{number}" for number in range(5000)), [f"http://h/{n}" for n in range(999)], 1, 1
    )
    assert (len(many.terms), len(many.links), many.words) == (MOST_TERMS, MOST_LINKS, 5000)
    assert len(pack(many)) <= MOST_BYTES
    assert (np.diff(many.terms.astype(np.int64)) > 0).all()


def test_words_count_however_they_are_written() -> None:
    """Case, punctuation and order are nothing; how often a word stands there is something."""
    plain = describe("one two two three", [], 0, 0)
    for text in ("Three, two; ONE (two).", "two-two/one\nthree"):
        other = describe(text, [], 0, 0)
        np.testing.assert_array_equal(other.terms, plain.terms)
        np.testing.assert_array_equal(other.counts, plain.counts)
    assert sorted(plain.counts.tolist()) == [1, 1, 2]
    assert describe("a " * 999, [], 0, 0).counts.tolist() == [255]
    assert describe("", [], 0, 0).words == 0


def test_scripts_without_spaces_have_words() -> None:
    """A character each, as in fingerprints."""
    assert describe("日本語", [], 0, 0).words == 3


def test_pages_that_share_words_keep_the_same_ones() -> None:
    """The share of common words among the kept ones is that of all, not of each page's most frequent ones."""
    common = [f"common{number}" for number in range(1000)]
    pages = [common + [f"own{page}x{number}" for number in range(1000)] for page in range(2)]
    first, second = (set(describe(" ".join(page), [], 0, 0).terms.tolist()) for page in pages)
    assert len(first) == len(second) == MOST_TERMS
    assert abs(len(first & second) / len(first) - 0.5) < 0.15


def test_links_are_told_apart_by_what_is_fetched() -> None:
    """Not by scheme, fragment, or the case of the host."""
    assert link_hash("http://H.example/a#b") == link_hash("https://h.example/a")
    assert link_hash("http://h.example") == link_hash("http://h.example/")
    assert len({link_hash(f"http://h.example/{page}?q={page}") for page in range(1000)}) == 1000
    assert link_hash("http://h.example/A") != link_hash("http://h.example/a")
    assert 0 <= link_hash("\ud800") < 2**48


@pytest.mark.parametrize(
    "packed", [b"", b"x" * 14, pack(describe("a b", ["http://h/"], 0, 0))[:-1], b"\xff" * 99]
)
def test_what_is_no_description_is_refused(packed: bytes) -> None:
    """With the size that was expected."""
    with pytest.raises(ValueError, match=r"expected .*bytes; found"):
        unpack(packed)
