"""Fingerprint of a page: 64 bits whose Hamming distance says how much the page's text changed.

response -> compared text -> normal form with masks -> hashes of word 3-shingles -> two sketches:

- bits 63..32: SimHash (Charikar 2002; Manku et al. 2007, section 2): the share of the page that changed;
- bits 31..0: odd sketch (Mitzenmacher, Pagh & Pham 2014, section 3): the number of changed shingles,
  whatever the length of the page.

SimHash alone moves 1.7 of 64 bits when a price changes on a page of 1,000 words, so that a threshold of 3
cannot see the change; the odd sketch moves about 10 bits on a page of any length. docs/fingerprint.md has
the measurements. The SimHash of a page without visible text is 0. Nothing here raises on any body.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from zlib import crc32

import numpy as np
import numpy.typing as npt
import xxhash
from lxml import etree
from scrapy.http import HtmlResponse, Response, TextResponse, XmlResponse
from simhash import Simhash

from scrapy_gp4c.fingerprint.answers import Answer, answer, bytes_of, page_text
from scrapy_gp4c.fingerprint.text import MAX_SOURCE_BYTES, is_too_deep, source_of
from scrapy_gp4c.words.masking import FRENCH_AGO, FRENCH_UNITS, MASK, RELATIVE_WORDS, mask_relative
from scrapy_gp4c.words.normal import normalise, plain_form, readable
from scrapy_gp4c.words.shingles import (
    SHINGLE_WORDS,
    UInt64s,
    Words,
    hashes_of_shingles,
    hashes_of_words,
    word_hashes,
    words_in,
)

if TYPE_CHECKING:
    from parsel import Selector

KINDS: Final = ("html", "json", "csv", "xml", "pdf", "text", "bytes", "features")
"""Kinds of responses by how they are read; ``features``: by `GP4C_FEATURES`."""
Features = Callable[[Response], Sequence[str]]

_TO_16_BITS: Final = np.uint64(48)


class PageReading(NamedTuple):
    """Reading of a response: its fingerprint, and the text and counts behind it."""

    fingerprint: int
    """uint64; below 2**32 if the page has no visible text, 0 if it has nothing to compare."""
    normal: str | None = None
    """Normal form of the compared text if texts are wanted; "" if the response is no text."""
    text: str | None = None
    """Compared text as a visitor reads it if texts are wanted, whatever the features."""
    kind: str = "text"
    """One of `KINDS`."""
    words: int = 0
    """Number of compared words."""
    masked: int = 0
    """Number of masked times, dates, tokens and counters."""
    left_out: tuple[tuple[str, int], ...] = ()
    """Reason to leave text out -> number of words left out, as pairs."""
    is_cut: bool = False
    """Whether only the head of the page is compared."""
    copy_fingerprint: int | None = None
    """Fingerprint to store for the copy where it is not `fingerprint`, as noise was learned; else None."""
    without_noise: tuple[int, int | None, bytes] | None = None
    """`fingerprint`, `copy_fingerprint` and learned noise, by a worker process that compared the copy."""

    @property
    def kept_fingerprint(self) -> int:
        """Fingerprint to store for the copy: `copy_fingerprint`, without learned noise, if there is one."""
        return self.fingerprint if self.copy_fingerprint is None else self.copy_fingerprint


def features(text: str) -> list[str]:
    """Return the features of a text by default: word 3-shingles; of characters in scripts without spaces.

    The text is padded on both sides, so that every word is part of three shingles; "" has none.
    """
    words = re.split("[\x00-\x20]+", _shingles(normalise(text))[0])
    return _shingles_of([word for word in words if word])


def _shingles_of(words: list[str]) -> list[str]:
    padded = ["", "", *words, "", ""] if words else []
    return [" ".join(padded[at : at + SHINGLE_WORDS]) for at in range(len(padded) - SHINGLE_WORDS + 1)]


def main_features(response: Response) -> list[str]:
    """Return the shingles of the main content only (for ``GP4C_FEATURES``): of `<main>` or `<article>`."""
    return features(page_text(response, "main,[role=main],article"))


def simhash_words(response: Response) -> list[str]:
    """Return the words of the compared text as they stand (``GP4C_FINGERPRINT = "simhash"``).

    `read` makes a 64-bit SimHash of them by the simhash package (thesis 4.2; Manku et al. 2007): nothing is
    masked, and nothing learned.
    """
    return readable(page_text(response)).split()


def _simhash(names: list[str]) -> int:
    """Return the 32-bit SimHash of features by the simhash package, with xxHash64 as its hash function."""
    return int(Simhash(names, f=32, hashfunc=xxhash.xxh64_digest).value)


def _sketch(hashes: UInt64s, *, has_text: bool = True) -> int:
    if hashes.size == 0:
        return 0
    if not has_text:
        return odd_half(hashes) or 1
    return (sim_half(hashes) or 1) << 32 | odd_half(hashes)


def fingerprint_of_text(text: str) -> int:
    """Return the fingerprint of a text as uint64; 0 if and only if it has no words."""
    return _sketch(_shingles(normalise(text))[1])


def fingerprint(response: Response, features: Features | None = None) -> int:
    """Return the fingerprint of a response as uint64; 0 if nothing of it can be compared.

    ``features`` names what counts instead of the page's text: one changed string moves about 10 bits. A
    body without text (an image) gives its xxHash64, so that any other byte is a change.
    """
    return read(response, features).fingerprint


def read(response: Response, features: Features | None = None, *, with_text: bool = False) -> PageReading:
    """Return what is read of a response: its fingerprint, counts, and with `with_text` its texts."""
    if features is None or features is simhash_words:
        content = answer(response)
        reading, normal = _reading(content)
        text = readable(content.content.text) if with_text or features is not None else ""
        if (
            features is not None
            and content.data is None
            and content.content.has_text
            and (words := text.split())
        ):
            value = int(Simhash(words).value)
            # A value below 2**32 would say that the page has no visible text.
            reading = reading._replace(fingerprint=value if value >> 32 else value | 1 << 32, masked=0)
        return reading._replace(normal=normal, text=text) if with_text else reading
    names = [name.encode("utf-8", "replace").decode() for name in features(response)]  # lone surrogates
    value = (_simhash(names) or 1) << 32 | odd_half(feature_hashes(names)) if names else 0
    reading = PageReading(value, kind="features", words=len(names))
    if not with_text:
        return reading
    text = page_text(response)
    return reading._replace(normal=normalise(text), text=readable(text))


def read_bytes(response: Response) -> PageReading:
    """Return the reading of a response whose bytes alone are compared."""
    return _reading(bytes_of(response))[0]


_SPREAD: Final = np.uint64(0x9E3779B97F4A7C15)  # odd: spreads the hashes of short words


def _hashes_of_relative(words: frozenset[str]) -> UInt64s:
    return word_hashes(" ".join(word + end for word in words for end in ("", ".", ",", ")", ":")).encode())


_RELATIVE: Final = frozenset(_hashes_of_relative(RELATIVE_WORDS).tolist())
_FRENCH_RELATIVE: Final = _RELATIVE | frozenset(_hashes_of_relative(FRENCH_UNITS).tolist())
_MAY_BE_RELATIVE: Final = np.zeros(2**16, bool)
_MAY_BE_RELATIVE[_hashes_of_relative(RELATIVE_WORDS | FRENCH_UNITS) * _SPREAD >> _TO_16_BITS] = True


def _shingles(normal: str) -> tuple[str, UInt64s]:
    """Return a normal form with relative times in words masked, and the hashes of its shingles."""
    words = words_in(normal.encode("utf-8", "surrogatepass"))
    hashes = hashes_of_words(words)
    # The hashes say in a few microseconds whether the text has any word of these times, and where.
    candidates = _MAY_BE_RELATIVE.take((hashes * _SPREAD >> _TO_16_BITS).view(np.int64)).nonzero()[0]
    values = zip(candidates.tolist(), hashes.take(candidates).tolist(), strict=True)
    relative = [(place, value) for place, value in values if value in _FRENCH_RELATIVE]
    is_french = bool(relative) and FRENCH_AGO in normal
    places = [place for place, value in relative if is_french or value in _RELATIVE]
    if places and (masked := _without_relative_times(words, places)) is not None:
        return masked, hashes_of_shingles(word_hashes(masked.encode("utf-8", "surrogatepass")))
    return normal, hashes_of_shingles(hashes)


def _without_relative_times(words: Words, places: list[int]) -> str | None:
    """Return a text with relative times masked near `places`, indices of words; None if there are none."""
    text, count = words.padded.tobytes(), len(words.starts)
    pieces: list[bytes] = []
    done = 1  # behind the padding
    for number in places:
        if words.starts[number] < done:
            continue
        start = max(int(words.starts[max(number - 6, 0)]), done)
        last = min(number + 3, count - 1)
        end = int(words.starts[last] + words.sizes[last])
        window = text[start:end].decode("utf-8", "surrogatepass")
        masked = mask_relative(window)
        if masked != window:
            pieces += (text[done:start], masked.encode("utf-8", "surrogatepass"))
            done = end
    if not pieces:
        return None
    return b"".join((*pieces, text[done:])).decode("utf-8", "surrogatepass").rstrip()


def _reading(page_content: Answer) -> tuple[PageReading, str]:
    kind, content, data, is_cut = page_content
    if data is not None:
        value = (xxhash.xxh64_intdigest(data) or 1) if data else 0
        return PageReading(value, kind=kind), ""
    normal, hashes = _shingles(normalise(content.text))
    left_out: dict[str, int] = {}
    for one in content.left_out:
        left_out[one.reason] = left_out.get(one.reason, 0) + one.words
    reading = PageReading(
        _sketch(hashes, has_text=content.has_text),
        kind=kind,
        words=max(hashes.size - SHINGLE_WORDS + 1, 0),
        masked=normal.count(MASK),
        left_out=tuple(left_out.items()),
        is_cut=is_cut,
    )
    return reading, normal


# --- sketches: the two halves of a fingerprint, and their distances


def feature_hashes(names: Sequence[str]) -> UInt64s:
    """Return three hashes per feature, uint64 ``[3 * len(names)]``, because a word is in three shingles."""
    digest = xxhash.xxh64_intdigest
    encoded = [name.encode() for name in names]
    return np.array([digest(name, seed) for seed in range(SHINGLE_WORDS) for name in encoded], np.uint64)


# The odd sketch has three blocks of 11, 11 and 10 bits, and a shingle turns one bit of each. An odd number of
# shingles turns at least one bit a block. Of the six shingles of a changed word fewer than three bits
# stay turned once in 15,000 times; with two blocks it was once in 1,500, after a removed word once in 400.
_BLOCKS: Final = (11, 11, 10)
_TOGGLES: Final = np.array(
    [1 << a | 1 << (11 + b) | 1 << (22 + c) for a, b, c in product(*map(range, _BLOCKS))], np.uint32
)
_OCCURRENCE: Final = np.uint64(0x9FB21C651E98DF25)  # odd
_ROWS: Final = 255  # the most ones that a byte can count


def sim_half(hashes: UInt64s) -> int:
    """Return the 32-bit SimHash of features with these hashes: the majority of their low 32 bits.

    Equals ``Simhash(features, f=32, hashfunc=...)`` of the simhash package, in a tenth of its time.
    """
    columns = -(-hashes.size // _ROWS)
    low = hashes.astype(">u4")  # the low 32 bits
    if columns > 1:
        low = np.concatenate((low, np.zeros(_ROWS * columns - low.size, ">u4")))
    bits = np.unpackbits(low.view(np.uint8)).reshape(-1, columns * 32)
    ones = np.add.reduce(bits, axis=0, dtype=np.uint8)
    if columns > 1:
        ones = ones.reshape(columns, 32).sum(axis=0)
    return int.from_bytes(np.packbits(ones > hashes.size / 2).tobytes(), "big")


def odd_half(hashes: UInt64s) -> int:
    """Return the 32-bit odd sketch of features with these hashes (Mitzenmacher, Pagh & Pham 2014, section 3).

    The sketch is of a set: equal hashes become several elements by `distinct_hashes`.
    """
    top = (distinct_hashes(hashes) >> _TO_16_BITS).view(np.int64)
    top *= len(_TOGGLES)
    top >>= 16
    return int(np.bitwise_xor.reduce(_TOGGLES.take(top)))


def distinct_hashes(hashes: UInt64s) -> UInt64s:
    """Return hashes, uint64 in any order, with repeated ones mixed with a number, so that all differ.

    In an XOR, equal hashes would cancel out: a change of a row that a page shows twice would be lost.
    """
    ordered = np.sort(hashes)
    repeats = (ordered[1:] == ordered[:-1]).nonzero()[0]
    if repeats.size:
        ranks = np.arange(repeats.size)
        runs = repeats - ranks  # equal within a run of repeats
        repeats += 1
        # The number of an occurrence: how far back its run begins.
        numbers = ranks - runs.searchsorted(runs) + 1
        mixed = ordered[repeats] + numbers.astype(np.uint64) * _OCCURRENCE
        mixed ^= mixed >> np.uint64(31)
        mixed *= _OCCURRENCE
        ordered[repeats] = mixed ^ mixed >> np.uint64(29)
    return ordered


_BITS_OF_BYTE: Final = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1).sum(
    axis=1, dtype=np.uint8
)
# NumPy 1 has no bitwise_count.

_HAS_TEXT: Final = np.uint64(2**32)


def differ(a: UInt64s, b: UInt64s, distance_bits: int) -> npt.NDArray[np.bool_]:
    """Return `is_changed` of pairs of fingerprints, bool ``[P]``; ``distance_bits``: its threshold."""
    bits = _BITS_OF_BYTE[(a ^ b).view(np.uint8)].reshape(-1, 8).sum(axis=1, dtype=np.uint8)
    appeared = (a >= _HAS_TEXT) != (b >= _HAS_TEXT)
    return np.asarray((bits >= distance_bits) | appeared | ((a == 0) != (b == 0)))


def distance(a: int, b: int) -> int:
    """Return the Hamming distance of two fingerprints, 0..64 bits."""
    return (a ^ b).bit_count()


def lacks_text(has_copy: npt.NDArray[np.uint8], fingerprints: UInt64s) -> npt.NDArray[np.bool_]:
    """Return which pages have a copy without visible text, bool ``[P]``."""
    return np.asarray((has_copy != 0) & (fingerprints < _HAS_TEXT))


def has_text(fingerprint: int) -> bool:
    """Whether the page of a fingerprint has visible text."""
    return fingerprint >= int(_HAS_TEXT)


def is_changed(a: int, b: int, threshold: int) -> bool:
    """Whether two fingerprints differ in `threshold` bits or more, or just one of them has text, or is 0."""
    return distance(a, b) >= threshold or (a == 0) != (b == 0) or has_text(a) != has_text(b)


# --- parts: watched ones are compared as they stand, nothing of them left out, masked or learned to be noise


NOT_WATCHED_REASON: Final = "its rule leaves nothing to compare"
NEVER_TEXT: Final = ("script", "style", "noscript", "template")
_NO_TEXT: Final = " or ".join(f"ancestor::{tag}" for tag in ("head", *NEVER_TEXT))
_TEXTS: Final = f"/descendant::text()[normalize-space()][not({_NO_TEXT})]"  # "//" takes the square

_OF_DOWNLOAD: Final = frozenset({
    "actions", "echoData", "experimental", "httpResponseHeaders", "networkCapture", "responseCookies",
    "session", "sessionContext",
})  # fmt: skip
"""Fields of Zyte API's answers that are about the download and not about the page."""


class ComparedPart(NamedTuple):
    """Response whose body is the compared part of a page, by ``watch`` and ``ignore`` of its rule."""

    response: Response
    features: Features | None
    is_missing: bool = False
    """Whether nothing of the page is left to compare."""


def part_sum(watch: tuple[str, ...], ignore: tuple[str, ...]) -> int:
    """Return a checksum, 1 to 127, of the XPaths that select the compared part of a page; 0: no XPath."""
    return crc32(repr((watch, ignore)).encode()) % 127 + 1 if watch or ignore else 0


class CutBody(NamedTuple):
    """Body of the compared part of a page, in UTF-8."""

    body: bytes
    is_watched: bool
    """Whether it is the text of the watched elements; else it is HTML or XML without the ignored ones."""
    is_missing: bool = False


def compared_part(
    response: Response, features: Features | None, watch: tuple[str, ...], ignore: tuple[str, ...]
) -> ComparedPart:
    """Return the part of a response that is compared.

    ``watch``, ``ignore``: XPaths of a page rule. Only HTML and XML have parts: of others, all is compared.
    """
    if features is None and not response.body and (data := extracted_data(response)):
        headers = {"Content-Type": "application/json"}
        return ComparedPart(TextResponse(response.url, body=data, headers=headers, encoding="utf-8"), None)
    cut = cut_body(response, watch, ignore) if has_parts(response, watch, ignore) else None
    return with_cut_body(response, features, cut)


def extracted_data(response: Response) -> bytes:
    """Return the data that Zyte API has extracted from a page in place of its body, as JSON, or b""."""
    raw = getattr(response, "raw_api_response", None)
    if not isinstance(raw, dict):
        return b""
    data = {key: raw[key] for key in raw.keys() - _OF_DOWNLOAD if isinstance(raw[key], dict | list)}
    return json.dumps(_without_metadata(data), sort_keys=True).encode() if data else b""


def _without_metadata(value: Any) -> Any:
    """Return extracted data without its fields ``metadata`` (times and probabilities of the extraction)."""
    if isinstance(value, list):
        return [_without_metadata(entry) for entry in value]
    if isinstance(value, dict):
        return {key: _without_metadata(entry) for key, entry in value.items() if key != "metadata"}
    return value


def has_parts(response: Response, watch: tuple[str, ...], ignore: tuple[str, ...]) -> bool:
    """Whether `compared_part` may be less than the response: HTML or XML for which a rule selects parts."""
    return bool(watch or ignore) and isinstance(response, HtmlResponse | XmlResponse)


def cut_body(response: Response, watch: tuple[str, ...], ignore: tuple[str, ...]) -> CutBody | None:
    """Return the compared part of HTML or XML by XPaths of a page rule; None: all of it is compared."""
    assert isinstance(response, TextResponse)
    source = source_of(response, MAX_SOURCE_BYTES).encode("utf-8", "replace")
    if is_too_deep(source):
        return None
    selector = response.replace(body=source, encoding="utf-8").selector
    has_text = not watch and bool(_nodes(selector, _TEXTS))
    for xpath in ignore:
        for node in _nodes(selector, xpath):
            _remove(node)
    if watch:
        nodes = [node for xpath in watch for node in _nodes(selector, xpath)]
        text = "\n".join(filter(None, map(_text, nodes)))
        return CutBody(text.encode("utf-8", "replace"), True, not nodes)
    root = selector.root
    if root is None:
        return None
    html = etree.tostring(root, encoding="unicode", method=selector.type)
    # Where `ignore` had taken all, the page was unchanged for ever, or all of it was compared.
    is_missing = has_text and not _nodes(selector, _TEXTS)
    return CutBody(html.encode("utf-8", "replace"), False, is_missing)


def with_cut_body(response: Response, features: Features | None, cut: CutBody | None) -> ComparedPart:
    """Return the compared part of a response as a response; ``cut``: by `cut_body`, None: all is compared."""
    if cut is None:
        return ComparedPart(response, features)
    if not cut.is_watched:
        return ComparedPart(
            response.replace(body=cut.body, encoding="utf-8"), features, cut.is_missing and features is None
        )
    headers = response.headers.copy()
    headers["Content-Type"] = "text/plain; charset=utf-8"
    watched = TextResponse(response.url, response.status, headers, cut.body, encoding="utf-8")
    return ComparedPart(watched, watched_features, cut.is_missing)


def _nodes(selector: Selector, xpath: str) -> list[Any]:
    """Return elements, attributes and texts at an XPath; a Selector for each would take half a minute."""
    if selector.root is None:
        return []
    nodes = selector.root.xpath(xpath, namespaces=selector.namespaces, smart_strings=False)
    return nodes if isinstance(nodes, list) else [nodes]


def watched_features(response: Response) -> list[str]:
    """Return the shingles of a watched text, in which nothing is masked (for ``GP4C_FEATURES``)."""
    assert isinstance(response, TextResponse)
    return _shingles_of(plain_form(response.text).split())


def _text(root: Any) -> str:
    """Return the text of an element, words joined by blanks, or the value of an attribute or text node."""
    if not isinstance(root, etree._Element):
        return str(root).strip()
    for element in root.iter(*NEVER_TEXT):
        if element is not root:
            _remove(element)
    return " ".join(" ".join(root.itertext(etree.Element)).split())


def _remove(root: Any) -> None:
    """Remove an element from its tree, but not its tail; a tree's root, attributes and texts stay."""
    parent = root.getparent() if isinstance(root, etree._Element) else None
    if parent is None:
        return
    before = root.getprevious()
    if root.tail:
        if before is None:
            parent.text = (parent.text or "") + " " + root.tail
        else:
            before.tail = (before.tail or "") + " " + root.tail
    parent.remove(root)
