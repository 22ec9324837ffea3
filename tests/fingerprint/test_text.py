"""Tests of the normal form: what the bound on combining marks leaves alone."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scrapy_gp4c.words.normal import MAX_GROWN_CHARACTERS, MAX_MARKS, normalise

MARKS = "\u0301\u0323\u0315\u05ae\u0344\u0f73\uff9e"


@given(st.text(st.sampled_from(MARKS + "aé■…\u00a0ガ"), max_size=400))
def test_marks_in_rows_are_nfkc_up_to_a_bound(text: str) -> None:
    """Texts whose marks stand in shorter rows are NFKC; in a longer row every mark is still there."""
    plain = unicodedata.normalize("NFKC", text).lower()
    rows = unicodedata.normalize("NFKD", text)
    longest = row = 0
    for character in rows:
        row = row + 1 if unicodedata.combining(character) else 0
        longest = max(longest, row)
    if longest <= MAX_MARKS:
        assert "".join(normalise(text).split()) == "".join(plain.split())


@pytest.mark.parametrize("mark", MARKS)
def test_marks_beyond_the_bound_are_kept(mark: str) -> None:
    """A change at the end of a long row of marks is a change."""
    assert normalise("a" + mark * 5000) != normalise("a" + mark * 5001)
    assert normalise("a" + mark * 5000).count("\u034f") in (5000 // MAX_MARKS, (5000 - 1) // MAX_MARKS)


def test_signs_that_grow_are_cut_in_long_texts_only() -> None:
    """One sign may stand for 18: a short text of such is whole, of a long one the head counts."""
    assert len(normalise("\ufdfa" * 5000)) == 18 * 5000
    assert MAX_GROWN_CHARACTERS - len(normalise("\ufdfa" * 100_000)) in (0, 1)  # a last blank
    assert len(normalise("…" * 300_000)) == 3 * 300_000
    assert len(normalise("10:1x\ufdfa" * 170_000)) <= MAX_GROWN_CHARACTERS  # 1.0 million signs, 3.9 as NFKC


@pytest.mark.parametrize("line", ["-" * 1000, "…" * 1000, "■" * 1000, "😀" * 1000, "、" * 1000])
def test_lines_of_signs_are_not_divided(line: str) -> None:
    """What is neither letter nor digit is not a mark: rulers and emoji stay as they were."""
    assert normalise(line) == unicodedata.normalize("NFKC", line)
