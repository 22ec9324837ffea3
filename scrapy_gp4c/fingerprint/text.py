"""The text of a page: what a visitor reads, in the form that is compared. Nothing here raises on any body."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from scrapy.http import HtmlResponse, Response, TextResponse, XmlResponse
from selectolax.lexbor import LexborCSSSelector, LexborHTMLParser, LexborNode

from scrapy_gp4c.words.normal import MAX_BODY_BYTES

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


def _is_dropped(node: LexborNode) -> bool:
    if node.tag in _KEPT:
        return False
    attributes = node.attributes
    name = f"{attributes.get('class') or ''} {attributes.get('id') or ''}"
    if _AD_NAME.search(_CAMEL.sub("-", name).lower()) is not None:
        return True
    return "display:none" in (attributes.get("style") or "").replace(" ", "").lower()


def without_markup(text: str) -> str:
    """Return the text between the tags, without a parser, in time linear in the length of any text."""
    head, *rest = text.split("<!--")
    return _MARKUP.sub(" ", head + " ".join(piece.partition("-->")[2] for piece in rest))


def is_too_deep(html: str) -> bool:
    """Tell whether more than `MAX_DEPTH` elements are open somewhere."""
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
    if is_too_deep(html):
        return without_markup(html)
    document = content_of(html)
    if document is None:
        return ""
    if root is not None:
        found = document.css_first(root)
        if found is not None and (text := found.text(separator=" ")).strip():
            return text
    return document.text(separator=" ")


@lru_cache(1)  # whoever describes a copy asks for the page that has just been fingerprinted
def content_of(html: str) -> LexborNode | None:
    """Return what a visitor reads of a page that is not too deep, as a tree; None of one without any.

    The tree is not to be changed: the next to ask for the same page gets it, too.
    """
    document = LexborHTMLParser(html).root
    if document is None:
        return None
    for node in _SELECTOR.find(_NEVER_CONTENT, document):
        node.decompose()
    for node in _SELECTOR.find(_CANDIDATE, document):
        if _is_dropped(node):
            node.decompose()
    return document


def source_of(response: TextResponse, most_bytes: int) -> str:
    """Return the source of a page, as far as so many bytes go."""
    if len(response.body) > most_bytes:
        response = response.replace(body=response.body[:most_bytes])
    try:
        return response.text
    except (LookupError, ValueError):  # a charset that is known and is none of text, such as hex_codec
        return response.body.decode("utf-8", "replace")


def page_text(response: Response, root: str | None = None) -> str:
    """Return the text a visitor reads: of HTML what is visible, of XML what is no tag.

    Returns "" for a response that is not text. Only the first `MAX_BODY_BYTES` are looked at. ``root`` as in
    `html_text`.
    """
    if not isinstance(response, TextResponse):
        return ""
    text = source_of(response, MAX_BODY_BYTES)
    if isinstance(response, HtmlResponse):
        return html_text(text, root)
    if isinstance(response, XmlResponse):
        return without_markup(text)
    return text
