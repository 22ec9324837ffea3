"""Notes of copies: read back as they were, and the noise that they learn."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st
from scrapy.http import HtmlResponse

from scrapy_gp4c.fingerprint import KINDS, read
from scrapy_gp4c.fingerprint.copy_notes import CopyNotes, pack, unpack, without_noise
from scrapy_gp4c.fingerprint.sketches import is_changed
from scrapy_gp4c.fingerprint.text import REASONS

FILLER = [f"paragraph {number} about the harbour and its lamps" for number in range(40)]


@given(
    st.builds(
        CopyNotes,
        st.integers(0, 2**64 - 1),
        st.integers(0, 2**32 - 1),
        st.integers(0, 2**16 - 1),
        st.integers(0, 2**16 - 1),
        st.sets(st.sampled_from(REASONS)).map(lambda found: tuple(one for one in REASONS if one in found)),
        st.sampled_from(KINDS),
        st.booleans(),
        st.binary(max_size=110),
    )
)
def test_notes_are_read_back_as_they_were(notes: CopyNotes) -> None:
    """In at most 128 bytes while noise is learned, 19 for most pages."""
    packed = pack(notes)
    assert unpack(packed) == notes
    assert len(packed) == 19 + len(notes.learned)


def outcomes(pages: Sequence[str]) -> list[bool]:
    """Whether each visit of a page after the first finds a change."""
    copy, learned, found = None, b"", []
    for page in pages:
        response = HtmlResponse("http://127.0.0.1/", body=page.encode(), encoding="utf-8")
        reading = read(response)
        if copy is not None:
            if learned or is_changed(reading.fingerprint, copy, 3):
                reading, learned = without_noise(response, reading, learned, copy, 3)
            found.append(is_changed(reading.fingerprint, copy, 3))
            assert len(learned) <= 128 - 19
        copy = reading.fingerprint if reading.copy_fingerprint is None else reading.copy_fingerprint
    return found


def page(*blocks: str, filler: Sequence[str] = FILLER) -> str:
    """A page of paragraphs, with some blocks above and below."""
    middle = "".join(f"<p>{one}</p>" for one in filler)
    return f"<html><title>Page</title><body><div>{'</div><div>'.join(blocks)}</div>{middle}</body></html>"


def test_a_clock_stops_counting_and_counts_again() -> None:
    """After three changes in a row; a change beside it is found; if it stops, its next change is one."""
    clocks = [f"{17 + n} members like this" for n in range(8)]
    assert outcomes([page(one) for one in clocks]) == [True] * 3 + [False] * 4
    pages = [page(one) for one in clocks[:6]]
    edited = [*FILLER[:-1], "the harbour is closed"]
    assert outcomes([*pages, page(clocks[6], filler=edited), page(clocks[7], filler=edited)])[-2:] == [
        True,
        False,
    ]
    stopped = [*pages, pages[-1], page("99 members like this"), page("99 members like this")]
    assert outcomes(stopped) == [True] * 3 + [False] * 3 + [True, False]


def test_kinds_of_clocks() -> None:
    """Counters, quotes of the day, weather, names of visitors, several at once."""
    for made in (
        lambda n: (f"{1000 + n * n} readers so far",),
        lambda n: (["Know thyself", "Less is more", "Time flies", "Act now", "Be kind", "Stay calm"][n],),
        lambda n: (f"Weather: {['sun', 'rain', 'fog', 'snow', 'wind', 'hail'][n]}, {n} degrees",),
        lambda n: (f"Welcome guest {n * 77 + 5}",),
        lambda n: (f"{n} in line", "stable text", f"queue {n * 3 + 1}"),
    ):
        assert outcomes([page(*made(n)) for n in range(6)]) == [True] * 3 + [False] * 2


def test_pages_that_change_are_no_clocks() -> None:
    """All of the text, the newest entry of a list, or other blocks each time."""
    whole = [page(filler=[f"{one} {n}" for one in FILLER]) for n in range(7)]
    assert outcomes(whole) == [True] * 6
    news = [page(filler=[f"headline {30 + n - at} of the day" for at in range(30)]) for n in range(7)]
    assert outcomes(news) == [True] * 6
    wandering = [page(filler=[*FILLER[: 5 * n], f"corrected {n}", *FILLER[5 * n + 1 :]]) for n in range(7)]
    assert outcomes(wandering) == [True] * 6
    rare = [page("one") if n % 4 else page("two") for n in range(9)]
    assert outcomes(rare).count(True) == 4
