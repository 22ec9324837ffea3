"""Parts of a page that are compared: watched ones alone, and without those that are ignored.

Watched parts are compared as they stand: nothing of them is left out, masked or learned to be noise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple
from zlib import crc32

from lxml import etree
from scrapy.http import HtmlResponse, Response, TextResponse, XmlResponse

from scrapy_gp4c.fingerprint.text import MAX_SOURCE_BYTES, is_too_deep, source_of
from scrapy_gp4c.words.normal import plain_form
from scrapy_gp4c.words.shingles import SHINGLE_WORDS

if TYPE_CHECKING:
    from parsel import Selector

    from scrapy_gp4c.fingerprint import Features

NOT_WATCHED_REASON: Final = "its rule leaves nothing to compare"
NEVER_TEXT: Final = ("script", "style", "noscript", "template")
_NO_TEXT: Final = " or ".join(f"ancestor::{tag}" for tag in ("head", *NEVER_TEXT))
_TEXTS: Final = f"//text()[normalize-space()][not({_NO_TEXT})]"


class ComparedPart(NamedTuple):
    """Response with what is compared of a page."""

    response: Response
    features: Features | None
    is_missing: bool = False
    """Whether nothing is left to compare."""


def part_sum(watch: tuple[str, ...], ignore: tuple[str, ...]) -> int:
    """Checksum from 1 to 127 of what is compared of a page; 0: all of it."""
    return crc32(repr((watch, ignore)).encode()) % 127 + 1 if watch or ignore else 0


class CutBody(NamedTuple):
    """Body of what is compared of a page, UTF-8."""

    body: bytes
    is_watched: bool
    """Whether it is the text of what is watched; else HTML or XML without what is ignored."""
    is_missing: bool = False


def compared_part(
    response: Response, features: Features | None, watch: tuple[str, ...], ignore: tuple[str, ...]
) -> ComparedPart:
    """Return a response with what is compared of it.

    ``watch``, ``ignore``: XPaths. Only HTML and XML have parts: of others, all is compared.
    """
    cut = cut_body(response, watch, ignore) if has_parts(response, watch, ignore) else None
    return with_cut_body(response, features, cut)


def has_parts(response: Response, watch: tuple[str, ...], ignore: tuple[str, ...]) -> bool:
    """Whether perhaps not all of a response is compared."""
    return bool(watch or ignore) and isinstance(response, HtmlResponse | XmlResponse)


def cut_body(response: Response, watch: tuple[str, ...], ignore: tuple[str, ...]) -> CutBody | None:
    """Return what is compared of a response that may have parts; None: all of it."""
    assert isinstance(response, TextResponse)
    source = source_of(response, MAX_SOURCE_BYTES)
    if is_too_deep(source):
        return None
    selector = response.replace(body=source.encode("utf-8", "replace"), encoding="utf-8").selector
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
    """Return a response with what is compared of it; ``cut``: None where that is all."""
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
    """Elements, attributes and texts at an XPath, without a Selector for each: these take half a minute."""
    if selector.root is None:
        return []
    nodes = selector.root.xpath(xpath, namespaces=selector.namespaces, smart_strings=False)
    return nodes if isinstance(nodes, list) else [nodes]


def watched_features(response: Response) -> list[str]:
    """Return the shingles of a text without masks."""
    assert isinstance(response, TextResponse)
    words = plain_form(response.text).split()
    if not words:
        return []
    words = ["", "", *words, "", ""]
    return [" ".join(words[at : at + SHINGLE_WORDS]) for at in range(len(words) - SHINGLE_WORDS + 1)]


def _text(root: Any) -> str:
    """Text of an element, its words joined by blanks; of an attribute or text node, its value."""
    if not isinstance(root, etree._Element):
        return str(root).strip()
    for element in root.iter(*NEVER_TEXT):
        if element is not root:
            _remove(element)
    return " ".join(" ".join(root.itertext(etree.Element)).split())


def _remove(root: Any) -> None:
    """Take an element out of its tree; its tail stays, and so do the root, attributes and texts."""
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
