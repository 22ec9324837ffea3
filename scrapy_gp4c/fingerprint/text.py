"""The text of a page: what a visitor reads, in the form that is compared. Nothing here raises on any body."""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache
from typing import Final

from scrapy.http import HtmlResponse, Response, TextResponse, XmlResponse
from selectolax.lexbor import LexborCSSSelector, LexborHTMLParser, LexborNode

from scrapy_gp4c.fingerprint.masking import mask

MAX_BODY_BYTES: Final = 2**20  # of a longer text body only the head is looked at: bounds the reactor's stall


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


# Sorting n combining marks in a row takes n^2 steps. UAX #15, section 13, divides runs of more than 30; that
# would change pages with stacked marks ("Zalgo"), and 128 bound the time as well.
MAX_MARKS: Final = 128


_JOINER: Final = "\u034f"  # combining grapheme joiner: no mark is sorted across it


# No mark is a letter or digit, but for two of half width. What else is caught (a line of dashes) stays.
# One class of its own to begin with: ASCII is passed over fast.
_PERHAPS_MARKS: Final = re.compile(rf"[^\x00-\x7f](?:[^\w\x00-\x7f]|[\uff9e\uff9f]){{{MAX_MARKS},}}+")


_INVISIBLE: Final = re.compile("[\u00ad\u200b-\u200f\u202a-\u202e\u2060-\u2064\ufeff]")


_UNICODE_SPACE: Final = re.compile(r"[\s\x00-\x20\x7f-\xa0]+")


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


@lru_cache(4096)
def _is_mark(character: str) -> bool:
    return unicodedata.combining(unicodedata.normalize("NFKD", character)[0]) > 0


def _divided(run: re.Match[str]) -> str:
    marks = 0
    characters: list[str] = []
    for character in run[0]:
        marks = marks + 1 if _is_mark(character) else 0
        if marks > MAX_MARKS:
            characters.append(_JOINER)
            marks = 1
        characters.append(character)
    return "".join(characters)


def _nfkc(text: str) -> str:
    """Return the text in NFKC, in time linear in its length: long runs of marks are divided.

    One sign may become 18: what grows beyond twice the text's length and `MAX_BODY_BYTES` characters is cut.
    """
    normal = unicodedata.normalize("NFKC", _PERHAPS_MARKS.sub(_divided, text))
    return normal[: max(2 * len(text), MAX_BODY_BYTES)]


def normalise(text: str) -> str:
    """Return the text in the form that is compared: NFKC, lower case, times masked."""
    if not text.isascii():
        text = _nfkc(text)
        text = _UNICODE_SPACE.sub(" ", _INVISIBLE.sub("", text))
        return _UNSPACED.sub(r" \1 ", mask(text.lower()))
    return mask(text.lower())
