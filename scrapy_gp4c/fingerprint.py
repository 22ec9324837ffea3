"""The text fingerprint of a page: 64 bits whose Hamming distance says how much the text changed.

response -> visible text -> times masked -> word 3-shingles -> one 64-bit hash each -> two sketches:

- bits 63..32: SimHash (Charikar 2002; Manku et al. 2007, section 2): which share of the page changed;
- bits 31..0: odd sketch (Mitzenmacher, Pagh and Pham 2014, section 3): how many shingles changed
  *in number*, whatever the length of the page.

SimHash alone moves 1.7 of 64 bits when a price changes on a page of 1,000 words, so a threshold of 3
cannot see it; the odd sketch moves about 9 bits on a page of any length. docs/fingerprint.md has the
measurements. Nothing here raises on any body.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Sequence
from typing import Final

import xxhash
from scrapy.http import HtmlResponse, Response, TextResponse, XmlResponse
from selectolax.lexbor import LexborCSSSelector, LexborHTMLParser, LexborNode
from simhash import Simhash

from scrapy_gp4c.masking import mask
from scrapy_gp4c.sketches import SHINGLE_WORDS, UInt64s, feature_hashes, odd_half, shingle_hashes, sim_half

MAX_BODY_BYTES: Final = 2**20  # of a longer text body only the head is looked at: bounds the reactor's stall

Features = Callable[[Response], Sequence[str]]

_NEVER_CONTENT: Final = (
    "script,style,noscript,iframe,svg,nav,[role=navigation],[role=contentinfo],body>footer,body>div>footer,"
    "[hidden],.adsbygoogle,[aria-label^=advert i],"
    "[data-ad],[data-ad-slot],[data-ad-client],[data-google-query-id]"
)
# A coarse net; _is_dropped decides.
_CANDIDATE: Final = "[style*=none]," + ",".join(
    f"[{attribute}*='{part}' i]"
    for part in ("ad", "spons", "promo", "dfp", "gpt", "taboola", "outbrain")
    for attribute in ("class", "id")
)
_SELECTOR: Final = LexborCSSSelector()  # type: ignore[no-untyped-call] # one for all: 10 us a page
_AD_NAME: Final = re.compile(
    r"(?:^|[\s_-])(?:ads?|adverts?|advertisements?|advertising|adsense|adsbygoogle|adslots?|adunits?|adbox"
    r"|adcontainer|adwrapper|adbanner|sponsor|sponsors|sponsored|sponsorship|promoted|dfp|gpt|taboola|outbrain)"
    r"(?=$|[\s_-]|[0-9])"
)
_CAMEL: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_KEPT: Final = {"html", "body", "main", "article", "head", "title", "h1"}  # class="has-ad" on these is layout
_MARKUP: Final = re.compile(r"<!\[CDATA\[|\]\]>|<[/?!]?[A-Za-z_][^<>]*>")
MAX_DEPTH: Final = 2000  # of open elements: the parser's time grows with its square (20,000 deep: 0.5 s)
_NESTING: Final = re.compile(
    r"<(/?)(?!(?:area|base|br|col|embed|hr|img|input|link|meta|source|wbr|p|li|t[dhr]|d[dt]|option)\b)[a-z]",
    re.I,
)

# Scripts written without spaces between words: Thai, Lao, Myanmar, Khmer, kana, Han.
_UNSPACED: Final = re.compile(
    "([\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff])"
)
_INVISIBLE: Final = re.compile("[\u00ad\u200b-\u200f\u202a-\u202e\u2060-\u2064\ufeff]")
_UNICODE_SPACE: Final = re.compile(r"[\s\x00-\x20\x7f-\xa0]+")


# ---- text ----------------------------------------------------------------------------------------------


def _is_dropped(node: LexborNode) -> bool:
    if node.tag in _KEPT:
        return False
    attributes = node.attributes
    name = f"{attributes.get('class') or ''} {attributes.get('id') or ''}"
    if _AD_NAME.search(_CAMEL.sub("-", name).lower()) is not None:
        return True
    return "display:none" in (attributes.get("style") or "").replace(" ", "").lower()


def _without_markup(text: str) -> str:
    """Return the text between the tags, without a parser, in time linear in the length of any text."""
    head, *rest = text.split("<!--")
    return _MARKUP.sub(" ", head + " ".join(piece.partition("-->")[2] for piece in rest))


def _is_too_deep(html: str) -> bool:
    if html.count("<") <= MAX_DEPTH:
        return False
    depth = 0
    for tag in _NESTING.finditer(html):
        depth = max(depth - 1, 0) if tag[1] else depth + 1
        if depth > MAX_DEPTH:
            return True
    return False


def html_text(html: str, root: str | None = None) -> str:
    """Return the visible text of an HTML page without ads, navigation and footer, pieces joined by a space.

    ``root`` is a CSS selector: the text of the first element it matches, of the page if none does.
    """
    if _is_too_deep(html):
        return _without_markup(html)
    document = LexborHTMLParser(html).root
    if document is None:
        return ""
    for node in _SELECTOR.find(_NEVER_CONTENT, document):
        node.decompose()
    for node in _SELECTOR.find(_CANDIDATE, document):
        if _is_dropped(node):
            node.decompose()
    if root is not None:
        found = document.css_first(root)
        if found is not None and (text := found.text(separator=" ")).strip():
            return text
    return document.text(separator=" ")


def page_text(response: Response, root: str | None = None) -> str:
    """Return the text a visitor reads: of HTML what is visible, of XML what is no tag.

    Returns "" for a response that is not text. Only the first `MAX_BODY_BYTES` are looked at. ``root`` as in
    `html_text`.
    """
    if not isinstance(response, TextResponse):
        return ""
    if len(response.body) > MAX_BODY_BYTES:
        response = response.replace(body=response.body[:MAX_BODY_BYTES])
    text = response.text
    if isinstance(response, HtmlResponse):
        return html_text(text, root)
    if isinstance(response, XmlResponse):
        return _without_markup(text)
    return text


def normalise(text: str) -> str:
    """Return the text in the form that is compared: NFKC, lower case, times masked."""
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text)
        text = _UNICODE_SPACE.sub(" ", _INVISIBLE.sub("", text))
        return _UNSPACED.sub(r" \1 ", mask(text.lower()))
    return mask(text.lower())


def features(text: str) -> list[str]:
    """Return the word 3-shingles of a text, character 3-shingles where a script has no spaces.

    The text is padded on both sides, so that every word is part of three shingles; "" has none.
    """
    words = re.split("[\x00-\x20]+", normalise(text))
    words = [word for word in words if word]
    if not words:
        return []
    words = ["", "", *words, "", ""]
    return [" ".join(words[i : i + SHINGLE_WORDS]) for i in range(len(words) - SHINGLE_WORDS + 1)]


def main_features(response: Response) -> list[str]:
    """Return the shingles of the main content only (for ``GP4C_FEATURES``): of `<main>` or `<article>`."""
    return features(page_text(response, "main,[role=main],article"))


# ---- fingerprint ---------------------------------------------------------------------------------------


def _simhash(names: list[str]) -> int:
    """Return the 32-bit SimHash of features by the simhash package, with xxHash64 as its hash function."""
    return int(Simhash(names, f=32, hashfunc=xxhash.xxh64_digest).value)


def _sketch(hashes: UInt64s) -> int:
    if hashes.size == 0:
        return 0
    return (sim_half(hashes) << 32 | odd_half(hashes)) or 1


def fingerprint_of_text(text: str) -> int:
    """Return the fingerprint of a text as uint64; 0 if and only if it has no words."""
    return _sketch(shingle_hashes(normalise(text)))


def fingerprint(response: Response, features: Features | None = None) -> int:
    """Return the fingerprint of a response as uint64; 0 for a page without text.

    ``features`` names what counts instead of the page's text: one changed string moves about 7 bits. A body
    that is not text (an image, a PDF) gives its xxHash64, so any other byte is a change.
    """
    if features is not None:
        names = [name.encode("utf-8", "replace").decode() for name in features(response)]  # lone surrogates
        if not names:
            return 0
        return (_simhash(names) << 32 | odd_half(feature_hashes(names))) or 1
    if isinstance(response, TextResponse):
        return fingerprint_of_text(page_text(response))
    return (xxhash.xxh64_intdigest(response.body) or 1) if response.body else 0


def distance(a: int, b: int) -> int:
    """Return the Hamming distance of two fingerprints: 0..64 bits."""
    return (a ^ b).bit_count()


def is_changed(a: int, b: int, threshold: int) -> bool:
    """Tell whether the page changed between two fingerprints; text that appears or vanishes always counts."""
    return distance(a, b) >= threshold or (a == 0) != (b == 0)
