"""Notes of copies: read back as they were."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from scrapy_gp4c.fingerprint import KINDS
from scrapy_gp4c.fingerprint.copy_notes import CopyNotes, pack, unpack
from scrapy_gp4c.fingerprint.text import REASONS


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
        st.booleans(),
        st.binary(max_size=110),
        st.integers(0, 127),
    )
)
def test_notes_are_read_back_as_they_were(notes: CopyNotes) -> None:
    """In at most 128 bytes while noise is learned, 19 for most pages."""
    packed = pack(notes)
    assert unpack(packed) == notes
    assert len(packed) == 19 + len(notes.learned)
