"""Notes of a page's copy, a small record in the store: checksums, counts, and what is learned of its noise.

The checksum of a body is seeded with the fingerprint of that body. So a body that has the stored checksum, if
seeded with the stored fingerprint, has that fingerprint, and is not read again. This holds even if two visits
stored checksum and fingerprint.
"""

import inspect
import re
import struct
import sys
import unicodedata
from functools import cache
from importlib import metadata
from importlib.resources import files
from types import ModuleType
from typing import Any, Final, NamedTuple
from zlib import crc32

import xxhash
from scrapy.http import HtmlResponse, Response, TextResponse

from scrapy_gp4c.fingerprint import (
    KINDS,
    Features,
    PageReading,
    answers,
    data,
    fingerprint_of_text,
    is_changed,
    main_features,
    read,
    simhash_words,
    text,
)
from scrapy_gp4c.fingerprint.answers import html_source, page_text
from scrapy_gp4c.fingerprint.noise import blocks_of, blocks_of_data, clock_positions, learn, without_clock
from scrapy_gp4c.fingerprint.text import REASONS
from scrapy_gp4c.words import masking, normal, shingles

_KNOWN_FEATURES: Final = (None, main_features, simhash_words)
_FINGERPRINT: Final = sys.modules["scrapy_gp4c.fingerprint"]
_RULES: Final[list[ModuleType]] = [_FINGERPRINT, answers, data, text, normal, masking, shingles]
_TABLES: Final = ("mask_words.toml", "date_words.json")
_READERS: Final = ("scrapy", "w3lib", "selectolax", "lxml")


@cache
def rules_digest() -> bytes:
    """Return a digest of the code and libraries that read pages: other versions give other checksums."""
    versions = [f"{name} {metadata.version(name)}" for name in _READERS]
    versions += [unicodedata.unidata_version, str(answers.READS_PDF)]
    for module in _RULES:
        try:
            versions.append(inspect.getsource(module))
        except OSError:  # installed without sources
            versions.append(metadata.version("scrapy-gp4c"))
    versions += [files(shingles.__package__).joinpath(table).read_text(encoding="utf-8") for table in _TABLES]
    return xxhash.xxh3_128_digest("\n".join(versions).encode())


def body_sum(response: Response, features: Features | None, fingerprint: int) -> int | None:
    """Return the checksum of a response's body, uint64, seeded with `fingerprint` (of that body), uint64.

    It covers the body, the Content-Type, the class of the response and `rules_digest`. None for `features` of
    the user's own, which may look at anything.
    """
    if features not in _KNOWN_FEATURES:
        return None
    total = xxhash.xxh3_64(rules_digest(), seed=fingerprint)
    encoding = getattr(response, "_encoding", None)  # set by a middleware, else guessed from header and body
    index = _KNOWN_FEATURES.index(features)
    kind = f"{type(response).__name__} {encoding} {index} {isinstance(response, TextResponse)}"
    content_type = response.headers.get(b"Content-Type") or b""
    total.update(f"{kind} {len(content_type)} ".encode() + content_type)
    total.update(response.body)
    return total.intdigest()


_HEAD: Final = struct.Struct("<QIHHBBBB")
"""Head of packed notes: checksum of the body; numbers of compared words, masks, words left out; bits of the
reasons for these; kind, flags, language."""
_CUT: Final = 1
_PASSWORD: Final = 128
_END: Final = 64
_CHANGED: Final = 32
_LINKS: Final = 16
_HIDDEN: Final = 8
"""Flags (`_CUT` to `_HIDDEN`) in the byte of the kind."""
_MARKUP_SUM: Final = struct.Struct("<Q")
_HIDDEN_SUMS: Final = struct.Struct("<HH")
_CHANGES: Final = struct.Struct("<IB")
"""Packed `CopyNotes.earlier` and `CopyNotes.returns`."""
MAX_RETURNS: Final = 127
_BELIEVED: Final = 128
"""Flag in the byte of `CopyNotes.returns`."""
LOW: Final = 2**32 - 1
_END_BYTES: Final = 1_024
"""Length of the end of an HTML page in which its last tag is looked for."""
_asks_password: Final = re.compile(rb"<input\b[^<>]{0,500}?\btype\s*=\s*[\"']?password", re.IGNORECASE).search
_START_BYTES: Final = 2_048
"""Length of the start of an HTML page in which its language is looked for."""
_language: Final = re.compile(rb"<html\b[^>]{0,300}?\blang\s*=\s*[\"']?([a-z]{2,3})\b", re.IGNORECASE).search
_only_language: Final = re.compile(rb"\s*([a-z]{2,3})(?:-[\w-]{1,30})?\s*", re.IGNORECASE).fullmatch
MAX_LEARNED_BYTES: Final = 2**20
"""Longest page whose noise is learned."""


class CopyNotes(NamedTuple):
    """Notes of a page's copy: checksums, counts of words, and what the next comparison needs."""

    body_sum: int = 0
    """Checksum of the body, see `body_sum`; 0: there is none."""
    words: int = 0
    """Number of compared words."""
    masked: int = 0
    """Number of masked words, such as dates."""
    left_out_words: int = 0
    reasons: tuple[str, ...] = ()
    """Reasons for which text was left out, of `REASONS`."""
    kind: str = "text"
    is_cut: bool = False
    asks_password: bool = False
    learned: bytes = b""
    """State of noise learning, see `scrapy_gp4c.fingerprint.noise.learn`; empty for most pages."""
    part_sum: int = 0
    """Checksum of the XPaths of the compared part, see `scrapy_gp4c.fingerprint.part_sum`."""
    has_end: bool = False
    """Whether it is HTML that ends with its last tag."""
    earlier: int = 0
    """Low half of the fingerprint of the copy before this one; 0: there was none."""
    returns: int = 0
    """How often a change brought back the text before the last change."""
    was_believed: bool = False
    """Whether the last change was doubted before it was believed."""
    markup_sum: int = 0
    """Checksum of data in the markup, and of the links when the callback followed them last; 0: not known."""
    language: int = 0
    """Checksum of the page's language, see `language_of`."""
    header_sum: int = 0
    """Checksum of the headers that the callback read last, 16 bits; 0: not known."""
    item_sum: int = 0
    """Checksum of the items that the callback made last, 16 bits; 0: not known."""


def with_sums(packed: bytes, **sums: Any) -> bytes:
    """Return packed notes with other values of fields of `CopyNotes`, such as ``item_sum=7``."""
    return pack(unpack(packed)._replace(**sums))


def asks_password(response: Response) -> bool:
    """Whether an HTML page has a field for a password."""
    return isinstance(response, HtmlResponse) and _asks_password(response.body) is not None


def has_end(response: Response) -> bool:
    """Whether an HTML page ends with its last tag."""
    return isinstance(response, HtmlResponse) and b"</html" in response.body[-_END_BYTES:].lower()


def language_of(response: Response) -> int:
    """Return a checksum of the language, a byte, that an HTML page or else its header names; 0: none does."""
    if not isinstance(response, HtmlResponse):
        return 0
    header = response.headers.get(b"Content-Language") or b""
    named = _language(response.body[:_START_BYTES]) or _only_language(header)
    return 0 if named is None else crc32(named[1].lower()) % 255 + 1


def notes_of(reading: PageReading, body_sum: int | None, learned: bytes, part_sum: int = 0) -> CopyNotes:
    """Make the notes that the store keeps beside a page's copy, from the reading of the response.

    ``body_sum``: see `body_sum`; ``learned``: state of noise learning; ``part_sum``: of the compared part.
    """
    return CopyNotes(
        body_sum or 0,
        reading.words,
        reading.masked,
        sum(words for _, words in reading.left_out),
        tuple(reason for reason, _ in reading.left_out),
        reading.kind,
        reading.is_cut,
        learned=learned,
        part_sum=part_sum,
    )


def compared(
    response: Response,
    reading: PageReading,
    features: Features | None,
    copy: int | None,
    packed: bytes | None,
    distance_bits: int,
    part_sum: int = 0,
    *,
    is_believed: bool = False,
) -> tuple[PageReading, bytes]:
    """Return `reading` without learned noise, such as clocks, and the packed notes for the new copy.

    ``copy``: fingerprint of the page's copy, None if it has none; ``packed``: notes of that copy;
    ``part_sum``: of the XPaths of the compared part; notes with another one are ignored; ``is_believed``:
    whether the answer is believed after it was doubted.
    """
    if packed is not None and unpack(packed).part_sum != part_sum:
        copy = packed = None
    before = CopyNotes() if packed is None else unpack(packed)
    learned = before.learned
    if reading.without_noise is not None:
        fingerprint, copy_fingerprint, learned = reading.without_noise
        reading = reading._replace(
            fingerprint=fingerprint, copy_fingerprint=copy_fingerprint, without_noise=None
        )
    elif copy is not None and features is None:
        reading, learned = _compared(response, reading, CopyState(copy, learned, distance_bits))
    total = body_sum(response, features, reading.kept_fingerprint)
    earlier, returns, was_believed = before.earlier, before.returns, before.was_believed
    if copy is not None and is_changed(reading.fingerprint, copy, distance_bits):
        returns = min(returns + (earlier == reading.kept_fingerprint & LOW), MAX_RETURNS)
        earlier, was_believed = copy & LOW, is_believed
    return reading, pack(
        notes_of(reading, total, learned, part_sum)._replace(
            asks_password=asks_password(response),
            has_end=has_end(response),
            earlier=earlier,
            returns=returns,
            was_believed=was_believed,
            markup_sum=before.markup_sum,
            language=language_of(response),
            header_sum=before.header_sum,
            item_sum=before.item_sum,
        )
    )


def compare_bytes(
    response: Response, features: Features | None, fingerprint: int, packed: bytes
) -> tuple[bool, bytes | None]:
    """Return whether a body has the checksum of the copy, and so need not be read, and its new packed notes.

    ``fingerprint``, ``packed``: fingerprint and notes of the copy. The new notes are None if nothing changes.
    """
    notes = unpack(packed)
    if notes.body_sum != body_sum(response, features, fingerprint):
        return False, None
    if not notes.learned:
        return True, None
    if clock_positions(notes.learned):
        return False, None  # the page is read: its clock stopped, and counts again
    return True, pack(notes._replace(learned=b""))


class CopyState(NamedTuple):
    """Fingerprint and learned noise of the copy that a page is compared with."""

    fingerprint: int
    learned: bytes
    """State of noise learning, see `CopyNotes.learned`."""
    distance_bits: int


def read_and_compare(
    response: Response, features: Features | None, *, with_text: bool, copy: CopyState | None
) -> PageReading:
    """Read a response in a worker process, and compare it with the copy to fill `PageReading.without_noise`.

    ``copy``: None if there is nothing to compare with.
    """
    reading = read(response, features, with_text=with_text)
    if copy is None or features is not None:
        return reading
    other, learned = _compared(response, reading, copy)
    return reading._replace(without_noise=(other.fingerprint, other.copy_fingerprint, learned))


def _compared(response: Response, reading: PageReading, copy: CopyState) -> tuple[PageReading, bytes]:
    if not copy.learned and not is_changed(reading.fingerprint, copy.fingerprint, copy.distance_bits):
        return reading, b""
    return without_noise(response, reading, copy.learned, copy.fingerprint, copy.distance_bits)


def pack(notes: CopyNotes) -> bytes:
    """Return notes as the bytes that the store keeps; `unpack` reads them.

    20 bytes of every page; 5 more if its copy ever changed, 8 for `CopyNotes.markup_sum`, 4 for the sums of
    headers and items; then the state of noise learning.
    """
    reasons = sum(1 << REASONS.index(reason) for reason in set(notes.reasons))
    counts = (min(notes.words, 2**32 - 1), min(notes.masked, 2**16 - 1), min(notes.left_out_words, 2**16 - 1))
    kind = KINDS.index(notes.kind) | _PASSWORD * notes.asks_password | _END * notes.has_end
    returns = notes.returns | _BELIEVED * notes.was_believed
    changes = _CHANGES.pack(notes.earlier, returns) if notes.earlier else b""
    links = _MARKUP_SUM.pack(notes.markup_sum) if notes.markup_sum else b""
    sums = notes.header_sum, notes.item_sum
    hidden = _HIDDEN_SUMS.pack(*sums) if any(sums) else b""
    kind |= _CHANGED * bool(changes) | _LINKS * bool(links) | _HIDDEN * bool(hidden)
    flags = _CUT * notes.is_cut + 2 * notes.part_sum
    head = _HEAD.pack(notes.body_sum, *counts, reasons, kind, flags, notes.language)
    return head + changes + links + hidden + notes.learned


def unpack(value: bytes) -> CopyNotes:
    """Return the notes that `pack` made these bytes of."""
    body_sum, words, masked, left_out, reasons, kind, flags, language = _HEAD.unpack_from(value)
    names = tuple(reason for bit, reason in enumerate(REASONS) if reasons >> bit & 1)
    size, changes, markup_sum, hidden = _HEAD.size, (0, 0), 0, (0, 0)
    if kind & _CHANGED:
        size, changes = size + _CHANGES.size, _CHANGES.unpack_from(value, size)
    if kind & _LINKS:
        (markup_sum,) = _MARKUP_SUM.unpack_from(value, size)
        size += _MARKUP_SUM.size
    if kind & _HIDDEN:
        hidden = _HIDDEN_SUMS.unpack_from(value, size)
        size += _HIDDEN_SUMS.size
    flag_bits = _PASSWORD | _END | _CHANGED | _LINKS | _HIDDEN
    return CopyNotes(
        body_sum,
        *(words, masked, left_out),
        names,
        KINDS[kind & ~flag_bits],
        bool(flags & _CUT),
        bool(kind & _PASSWORD),
        value[size:],
        flags >> 1,
        bool(kind & _END),
        changes[0],
        changes[1] & MAX_RETURNS,
        bool(changes[1] & _BELIEVED),
        markup_sum,
        language,
        *hidden,
    )


def without_noise(
    response: Response, reading: PageReading, learned: bytes, copy_fingerprint: int, distance_bits: int
) -> tuple[PageReading, bytes]:
    """Return a reading of HTML or JSON without its learned noise, and the state of learning after this visit.

    ``learned``: the state before; ``copy_fingerprint``: of the page's copy, without that noise.
    """
    if reading.kind not in ("html", "json") or len(response.body) > MAX_LEARNED_BYTES:
        return reading, b""
    if reading.kind == "json":
        blocks = blocks_of_data(page_text(response))
    else:
        assert isinstance(response, HtmlResponse)
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
