"""Tokens of pages and queries."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scrapy_gp4c.words.tokens import spaced, tokens, tokens_of


@pytest.mark.parametrize(
    ("text", "results"),
    [
        ("New Technology: A new chipset", ["new", "technology", "a", "new", "chipset"]),
        ("snake_case, C++ and C#", ["snake", "case", "c", "and", "c"]),
        ("ＦＵＬＬ width; naïve café", ["full", "width", "naïve", "café"]),
        ("東京 2024", ["東", "京", "2024"]),
        ("updated on 2026-11-21 02:03", ["updated", "on"]),
        ("", []),
    ],
)
def test_texts_are_cut_at_all_that_is_no_letter_or_digit(text: str, results: list[str]) -> None:
    """Lower case, compatible forms made equal, unspaced scripts by character, times masked."""
    assert tokens(text) == results


@given(st.text())
def test_tokens_of_any_text_are_tokens(text: str) -> None:
    """Each is one token again, unless masking or normalising sees another text in it."""
    for token in tokens(text):
        assert token
        assert not set(token) & set(" _-.,;\n")


@given(st.text(st.characters(max_codepoint=127)) | st.text())
def test_tokens_are_the_longest_runs_of_letters_and_digits(normal: str) -> None:
    """ASCII or not: what a pattern finds."""
    assert tokens_of(normal) == re.findall(r"[^\W_]+", normal)


@given(st.text(st.characters(max_codepoint=127)) | st.text())
def test_spaced_tokens_are_those_tokens(normal: str) -> None:
    """One blank between each two, and nowhere else."""
    assert spaced(normal) == " ".join(tokens_of(normal)).encode()
