"""Notes of a page's copy: checksum of the body, what is compared of it, and what is learned of its noise.

A page that changed at its last visit has hashes of its blocks in its notes. Blocks that changed at each of
three visits, in place and without a trace elsewhere, are the page's clock: they stop counting until they stop
changing.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

import xxhash
from scrapy.http import HtmlResponse, Response

from scrapy_gp4c.fingerprint import KINDS, Features, PageReading, fingerprint_of_text
from scrapy_gp4c.fingerprint.answers import html_source
from scrapy_gp4c.fingerprint.body_sums import body_sum
from scrapy_gp4c.fingerprint.sketches import is_changed
from scrapy_gp4c.fingerprint.text import REASONS, Block, blocks_of
from scrapy_gp4c.words.normal import normalise

_HEAD: Final = struct.Struct("<QIHHBBB")
"""Checksum of the body, compared words, masked parts, words left out, bits of their reasons, kind, flags."""
_CUT: Final = 1
_ROW: Final = struct.Struct("<IH")
"""Position of a block, and 16 bits of the hash of its text."""
MAX_LEARNED_BYTES: Final = 2**20
"""Longest page whose noise is learned."""
BUCKETS: Final = 53
MAX_ROWS: Final = 18
_BUCKETS: Final = struct.Struct(f"<{BUCKETS}H")
_ALL, _SOME, _CLOCK = b"abc"
"""First byte of what is learned: sums of all blocks, hashes of some that changed, hashes of a clock."""


class CopyNotes(NamedTuple):
    """Notes of a page's copy."""

    body_sum: int = 0
    """Checksum of the body, 0 if there is none."""
    words: int = 0
    masked: int = 0
    left_out_words: int = 0
    reasons: tuple[str, ...] = ()
    """Why text is left out."""
    kind: str = "text"
    is_cut: bool = False
    learned: bytes = b""
    """State of the learning of noise; empty for most pages."""


def notes_of(reading: PageReading, body_sum: int | None, learned: bytes) -> CopyNotes:
    """Return the notes of a copy by its reading."""
    return CopyNotes(
        body_sum or 0,
        reading.words,
        reading.masked,
        sum(words for _, words in reading.left_out),
        tuple(reason for reason, _ in reading.left_out),
        reading.kind,
        reading.is_cut,
        learned,
    )


def compared(
    response: Response,
    reading: PageReading,
    features: Features | None,
    copy: int | None,
    packed: bytes | None,
    distance_bits: int,
) -> tuple[PageReading, bytes]:
    """Return a reading without the page's clock, and the packed notes of the page with what is learned of it.

    ``copy``: fingerprint of the page's copy, None if it has none; ``packed``: notes of that copy.
    """
    learned = b"" if packed is None else unpack(packed).learned
    changed = copy is not None and is_changed(reading.fingerprint, copy, distance_bits)
    if copy is not None and (changed or learned) and features is None:
        reading, learned = without_noise(response, reading, learned, copy, distance_bits)
    total = body_sum(response, features, reading.kept_fingerprint)
    return reading, pack(notes_of(reading, total, learned))


def pack(notes: CopyNotes) -> bytes:
    """Return notes as the store keeps them: 19 bytes, and what is learned."""
    reasons = sum(1 << REASONS.index(reason) for reason in set(notes.reasons))
    counts = (min(notes.words, 2**32 - 1), min(notes.masked, 2**16 - 1), min(notes.left_out_words, 2**16 - 1))
    head = _HEAD.pack(notes.body_sum, *counts, reasons, KINDS.index(notes.kind), _CUT * notes.is_cut)
    return head + notes.learned


def unpack(value: bytes) -> CopyNotes:
    """Return the notes of `pack`'s bytes."""
    body_sum, words, masked, left_out, reasons, kind, flags = _HEAD.unpack_from(value)
    names = tuple(reason for bit, reason in enumerate(REASONS) if reasons >> bit & 1)
    learned = value[_HEAD.size :]
    return CopyNotes(body_sum, words, masked, left_out, names, KINDS[kind], bool(flags & _CUT), learned)


def without_noise(
    response: Response, reading: PageReading, learned: bytes, copy_fingerprint: int, distance_bits: int
) -> tuple[PageReading, bytes]:
    """Return the reading of an HTML page without its clock, and what is learned after this visit.

    ``copy_fingerprint``: of the page's copy, without the clock that is learned.
    """
    if not isinstance(response, HtmlResponse) or len(response.body) > MAX_LEARNED_BYTES:
        return reading, b""
    blocks = blocks_of(html_source(response))
    if not blocks:
        return reading, b""
    clock = clock_positions(learned)
    if clock:
        reading = reading._replace(fingerprint=fingerprint_of_text(without_clock(blocks, clock)))
    is_page_changed = is_changed(reading.fingerprint, copy_fingerprint, distance_bits)
    learned = learn(learned, blocks, is_changed=is_page_changed)
    if (after := clock_positions(learned)) != clock:
        # The next visit is compared with the copy without what is a clock by then.
        text = without_clock(blocks, after)
        reading = reading._replace(copy_fingerprint=fingerprint_of_text(text))
    return reading, learned


def clock_positions(learned: bytes) -> frozenset[int]:
    """Return the positions of the blocks that do not count."""
    return frozenset(_rows(learned)) if learned[:1] == bytes([_CLOCK]) else frozenset()


def without_clock(blocks: Sequence[Block], positions: frozenset[int]) -> str:
    """Return the text of a page without some blocks."""
    return " ".join(block.text for block in blocks if block.position not in positions)


def learn(learned: bytes, blocks: Sequence[Block], *, is_changed: bool) -> bytes:
    """Return what is learned after a visit; ``is_changed``: whether the page changed beside its clock."""
    hashes = {block.position: _hash(block.text) for block in blocks}
    if clock := clock_positions(learned):
        before = _rows(learned)
        going = {at: hashes[at] for at in clock if at in hashes and hashes[at] != before[at]}
        if going:
            return _packed_rows(_CLOCK, going)
        return _sums(hashes) if is_changed else b""
    if not is_changed:
        return b""
    if learned[:1] == bytes([_ALL]):
        old, new = (_BUCKETS.unpack(state[1:]) for state in (learned, _sums(hashes)))
        moved = {bucket for bucket in range(BUCKETS) if old[bucket] != new[bucket]}
        rows = {at: value for at, value in hashes.items() if at % BUCKETS in moved}
        if 0 < len(rows) <= MAX_ROWS:
            return _packed_rows(_SOME, rows)
    elif learned[:1] == bytes([_SOME]):
        now = set(hashes.values())
        # A text that moved to another block is news: a list whose newest entry comes first.
        noisy = {
            at: hashes[at]
            for at, old_hash in _rows(learned).items()
            if at in hashes and hashes[at] != old_hash and old_hash not in now
        }
        words = {block.position: len(block.text.split()) for block in blocks}
        if noisy and 3 * sum(words[at] for at in noisy) < sum(words.values()):
            return _packed_rows(_CLOCK, noisy)
    return _sums(hashes)


def _hash(text: str) -> int:
    return xxhash.xxh64_intdigest(" ".join(normalise(text).split()).encode("utf-8", "replace")) & 0xFFFF


def _rows(learned: bytes) -> dict[int, int]:
    return dict(_ROW.iter_unpack(learned[1:]))


def _packed_rows(state: int, rows: dict[int, int]) -> bytes:
    return bytes([state]) + b"".join(_ROW.pack(*row) for row in rows.items())


def _sums(hashes: dict[int, int]) -> bytes:
    """State of sums of blocks, in buckets by their positions."""
    sums = [0] * BUCKETS
    for position, value in hashes.items():
        sums[position % BUCKETS] = (sums[position % BUCKETS] + (position ^ value * 40_503)) & 0xFFFF
    return bytes([_ALL]) + _BUCKETS.pack(*sums)
