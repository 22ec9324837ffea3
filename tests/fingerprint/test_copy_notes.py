"""Notes of copies: read back as they were; equal checksums of bodies mean equal fingerprints."""

import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scrapy.http import HtmlResponse, Response, TextResponse, XmlResponse

from scrapy_gp4c.fingerprint import KINDS, copy_notes, fingerprint, main_features
from scrapy_gp4c.fingerprint.copy_notes import CopyNotes, body_sum, pack, unpack
from scrapy_gp4c.fingerprint.text import REASONS


@given(
    st.builds(
        CopyNotes,
        st.integers(0, 2**64 - 1),
        st.integers(0, 2**32 - 1),
        st.integers(0, 2**16 - 1),
        st.integers(0, 2**16 - 1),
        st.sets(st.sampled_from(REASONS)).map(
            lambda reasons: tuple(one for one in REASONS if one in reasons)
        ),
        st.sampled_from(KINDS),
        st.booleans(),
        st.booleans(),
        st.binary(max_size=110),
        st.integers(0, 127),
        st.booleans(),
        *(st.integers(1, 2**32 - 1), st.integers(0, 127), st.booleans()),
        st.integers(0, 2**64 - 1),
        st.integers(0, 255),
        *(st.integers(1, 2**16 - 1), st.integers(0, 2**16 - 1)),
    )
)
def test_notes_are_read_back_as_they_were(notes: CopyNotes) -> None:
    """In 20 bytes, 5 more after a change, 8 of links, 4 of what no text shows, and learned noise."""
    packed = pack(notes)
    assert unpack(packed) == notes
    assert len(packed) == 29 + 8 * bool(notes.markup_sum) + len(notes.learned)
    assert len(pack(notes._replace(earlier=0, markup_sum=0, header_sum=0, item_sum=0))) == 20 + len(
        notes.learned
    )


URL = "http://127.0.0.1/"
CLASSES = (HtmlResponse, XmlResponse, TextResponse, Response)


def response(kind: int, charset: str, body: bytes) -> Response:
    """A response of a class, with a charset in its header."""
    return CLASSES[kind](URL, body=body, headers={"Content-Type": f"text/html; charset={charset}"})


one = st.tuples(
    st.integers(0, 3),
    st.sampled_from(["utf-8", "latin-1", "utf-16", ""]),
    st.sampled_from([b"", b"<p>one</p>", "<p>größer</p>".encode(), b"\xff\xfe1 2 3"]),
)


@given(one, one, st.sampled_from([None, main_features]))
def test_where_the_sums_are_equal_so_are_the_fingerprints(
    first: tuple[int, str, bytes], second: tuple[int, str, bytes], features: Any
) -> None:
    """And sums are equal for equal responses, seeded alike."""
    before, now = response(*first), response(*second)
    made = fingerprint(before, features)
    copy_sum = body_sum(before, features, made)
    assert copy_sum is not None
    assert (body_sum(now, features, made) == copy_sum) == (first == second)
    if first == second:
        assert fingerprint(now, features) == made


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1))
def test_a_sum_tells_the_fingerprint_that_it_was_kept_for(stored: int, now: int) -> None:
    """Beside another fingerprint it says nothing, so that no mixture of two visits is ever believed."""
    page = response(0, "utf-8", b"<p>a page</p>")
    assert (body_sum(page, None, stored) == body_sum(page, None, now)) == (stored == now)


def test_features_part_sums() -> None:
    """Those of the main content are others than those of the page; the user's own have none."""
    page = response(0, "utf-8", b"<p>a page</p>")
    assert body_sum(page, None, 1) != body_sum(page, main_features, 1)
    assert body_sum(page, lambda response: ["a"], 1) is None


def test_an_encoding_that_a_middleware_gave_counts() -> None:
    """The same bytes and headers, read otherwise."""
    body = "größer".encode("latin-1")
    sums = {body_sum(HtmlResponse(URL, body=body, encoding=one), None, 1) for one in ("latin-1", "cp1252")}
    assert len(sums) == 2


def test_other_rules_or_readers_make_other_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    """After an update that may read pages otherwise, nothing is believed of before."""
    page = response(0, "utf-8", b"<p>a page</p>")
    copy_sum = body_sum(page, None, 1)
    read_text = Path.read_text

    def other_words(path: Path, encoding: str | None = None) -> str:
        return "other words" if path.suffix in (".json", ".toml") else read_text(path, encoding)

    try:
        for name, value in (
            ("inspect.getsource", lambda module: "other rules"),
            ("importlib.metadata.version", lambda name: "99.0"),
            ("pathlib.Path.read_text", other_words),
        ):
            copy_notes.rules_digest.cache_clear()
            with monkeypatch.context() as patched:
                patched.setattr(name, value)
                assert body_sum(page, None, 1) != copy_sum
    finally:
        copy_notes.rules_digest.cache_clear()
    assert body_sum(page, None, 1) == copy_sum
    assert sys.modules["scrapy_gp4c.fingerprint"] in copy_notes._RULES


def test_without_sources_the_release_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    """A package of compiled modules alone has sums as well."""

    def none(module: Any) -> str:
        raise OSError("could not get source code")

    monkeypatch.setattr("inspect.getsource", none)
    copy_notes.rules_digest.cache_clear()
    try:
        assert body_sum(response(0, "", b"x"), None, 1) == body_sum(response(0, "", b"x"), None, 1)
    finally:
        copy_notes.rules_digest.cache_clear()
