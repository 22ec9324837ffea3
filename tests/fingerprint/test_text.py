"""Tests of texts: what the bound on combining marks leaves alone, and letters that were encoded twice."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scrapy.http import HtmlResponse

from scrapy_gp4c.fingerprint.text import source_of
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


@pytest.mark.parametrize("misread_as", ["cp1252", "latin-1"])
@pytest.mark.parametrize("text", ["schön „grün“ – 5 €, à Öland", "мягких и ещё этих 中文"])
def test_what_was_encoded_twice_is_read_once(text: str, misread_as: str) -> None:
    """UTF-8 that a server takes for windows-1252 is no other text, and no part of one."""
    signs = (bytes([byte]) for byte in text.encode())
    twice = "".join(sign.decode(misread_as, "ignore") or chr(sign[0]) for sign in signs)
    for source in (text, f"{text} | {twice}"):
        page = HtmlResponse("http://a.example/", body=source.encode(), encoding="utf-8")
        assert source_of(page, 10_000) == source.replace(twice, text)


@pytest.mark.parametrize("charset", ["utf-16-le", "utf-16-be"])
def test_zero_bytes_of_an_undeclared_charset_are_left_out(charset: str) -> None:
    """Text in UTF-16 that a server sends as UTF-8 is the page's text, and no change of it."""
    page = HtmlResponse("http://a.example/", body="<p>news of today".encode(charset), encoding="utf-8")
    assert source_of(page, 10_000) == "<p>news of today"
    plain = "<meta charset=utf-16><p>news of today"
    assert source_of(HtmlResponse("http://a.example/", body=plain.encode()), 10_000) == plain
