"""Compared text of an HTML page: its main part, without advertisements, menus and other page furniture.

Nothing is left out that holds a third of the page's words or more: a root with ``class="ad"`` or a wrapper
that a script shows later is the page itself. Nothing here raises on any body.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Final, NamedTuple

import numpy as np
from scrapy.http import TextResponse
from selectolax.lexbor import LexborCSSSelector, LexborHTMLParser, LexborNode

MAX_SOURCE_BYTES: Final = 2**24
"""Longest HTML source that is parsed, without scripts and styles."""
LITTLE_TEXT_WORDS: Final = 20
"""Words below which a page is the shell of an application: its data in scripts counts as text."""
MAX_DEPTH: Final = 2000  # of open elements: the parser's time grows with its square (20,000 deep: 0.5 s)

_NEVER_TEXT: Final = "script,style,noscript,iframe,svg title,svg desc,defs,metadata,symbol"
_DATA: Final = "script[type*=json]"
_LOUD: Final = "[role=alert],[role=status]"  # news of the whole page, wherever they stand
_AD_ATTRIBUTES: Final = ("data-ad", "data-ad-slot", "data-ad-client", "data-google-query-id")
# A coarse net, `_reason` decides. Each selector costs as much as a hundredth of the parsing.
_CANDIDATES: Final = ",".join(
    (
        "nav,footer,aside,[role],[hidden],[style*=none i],[aria-label^=advert i]",
        *(f"[{attribute}]" for attribute in _AD_ATTRIBUTES),
        *(
            f"[{attribute}*={name} i]"
            for attribute in ("class", "id")
            for name in ("ad", "cookie", "consent", "sponsored")
        ),
        *(f"[class*={name} i]" for name in ("promoted", "taboola", "outbrain")),
    )
)
_SELECTOR: Final = LexborCSSSelector()  # type: ignore[no-untyped-call] # one for all: 10 us a page
# Whole names alone: `ad-listing` has small ads, `no-ads` is a promise, `gpt-4` a product, `sponsors` a list.
_AD: Final = r"(?:ads?|adverts?|advertisements?|advertising)"
_AD_PLACE: Final = (
    r"(?:slots?|units?|containers?|wrap(?:per)?|box|banners?|blocks?|spaces?|placements?|zones?|frames?|labels?|holder"
    r"|placeholder|leaderboard|skyscraper|rectangle|billboard|area|row|iframe|inner|outer|top|bottom|left|right|side"
    r"|sidebar|header|footer|inline|sticky|mobile|desktop|native|google|mpu|\d+)"
)
_AD_NAME: Final = re.compile(
    rf"(?:{_AD}|(?:{_AD_PLACE}[-_]?)+{_AD}(?:[-_]?\d+)?|{_AD}(?:[-_]?{_AD_PLACE})+|ad(?:sbygoogle|sense|slot|unit)"
    r"|div-gpt-ad[-_\w]*|sponsored(?:[-_](?:content|links?|posts?|box|label|ad))?|promoted"
    r"|(?:taboola|outbrain|ob)[-_](?:widget|below|right|container)[-_\w]*|taboola|outbrain)"
)
_CONSENT_NAME: Final = re.compile(
    r"(?:[\w-]*[-_])?(?:cookies?|gdpr|consent|ccpa)[-_]?(?:\w+[-_])*(?:banner|bar|notice|consent|popup|pop-up|modal"
    r"|dialog|overlay|message|alert|wall|layer|law|disclaimer|prompt|manager|hint|hinweis|info|settings|preferences"
    r"|container|wrapper|box)(?:[-_]\w+)*|(?:cookies?|gdpr|consent|cookie-?law|cookiebar|onetrust)[-_\w]*(?:sdk|root)"
    r"|onetrust[-_\w]*|cookiebot[-_\w]*|cybotcookiebot\w*"
)
_COOKIES: Final = re.compile(
    "cookie|кук[иа]|クッキー|쿠키|คุกกี้|कुकी|ملفات تعريف|עוגיות|ciastecz"
    "|galleta|çerez|süti|sušen|kolačić|evästeet|bánh quy",
    re.I,
)
_CAMEL: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_ROOTS: Final = {"html", "body", "main", "article", "head", "title", "h1"}
_MARKUP: Final = re.compile(r"<!\[CDATA\[|\]\]>|<[/?!]?[A-Za-z_][^<>]*>")
_SHADOW_ROOT: Final = re.compile("<template(?=[^<>]{1,500}shadowrootmode)", re.I)
_NESTING: Final = re.compile(
    r"<(/?)(?!(?:area|base|br|col|embed|hr|img|input|link|meta|source|wbr|p|li|t[dhr]|d[dt]|option)\b)[a-z]",
    re.I,
)


class LeftOut(NamedTuple):
    """Text of a page that is not compared."""

    reason: str
    """One of `REASONS`."""
    text: str

    @property
    def words(self) -> int:
        """Number of words."""
        return len(self.text.split())


ADVERTISEMENT: Final = "advertisement"
HIDDEN: Final = "hidden"
NAVIGATION: Final = "navigation"
FOOTER: Final = "footer"
CONSENT: Final = "cookie notice"
SIDEBAR: Final = "sidebar"
OUTSIDE: Final = "outside the main part"
REASONS: Final = (ADVERTISEMENT, HIDDEN, NAVIGATION, FOOTER, CONSENT, SIDEBAR, OUTSIDE)
"""Reasons to leave text out."""


class Content(NamedTuple):
    """Compared text of a page."""

    text: str
    left_out: tuple[LeftOut, ...] = ()
    has_text: bool = True
    """Whether a visitor of the page reads any text; the title of an empty page is none."""


def without_markup(text: str) -> str:
    """Return the text between the tags, without a parser, in time linear in the length of any text."""
    head, *comments = text.split("<!--")
    return _MARKUP.sub(" ", head + " ".join(piece.partition("-->")[2] for piece in comments))


def is_too_deep(html: str) -> bool:
    """Tell whether more than `MAX_DEPTH` elements are open somewhere."""
    if html.count("<") <= MAX_DEPTH or _most_open(html) <= MAX_DEPTH:
        return False
    depth = 0
    for tag in _NESTING.finditer(html):
        depth = max(depth - 1, 0) if tag[1] else depth + 1
        if depth > MAX_DEPTH:
            return True
    return False


def _most_open(html: str) -> int:
    """Bound of the number of open elements, as if none ended without a tag, in a tenth of the exact time."""
    source = np.frombuffer(html.encode("ascii", "replace") + b" ", np.uint8)
    tags = source[(source[:-1] == ord("<")).nonzero()[0] + 1]
    depth = np.cumsum(np.where(tags == ord("/"), -1, 1))
    return int((depth - np.minimum(np.minimum.accumulate(depth), 0)).max())


def html_text(html: str, root: str | None = None) -> str:
    """Return the compared text of an HTML page, see `html_content`."""
    return html_content(html, root).text


def html_content(html: str, root: str | None = None) -> Content:
    """Return the compared text of an HTML page, its pieces joined by blanks, and the text that is left out.

    ``root`` is a CSS selector: of the first element that it matches all text counts, if there is any.
    """
    if is_too_deep(html):
        text = without_markup(html)
        return Content(text, (), bool(text.strip()))
    content = _parsed(html).content
    if root is not None and (document := _parsed(html).document) is not None:
        element = document.css_first(root)
        if element is not None and (text := element.text(separator=" ", strip=True)).strip():
            return Content(text)
    return content


class _Parsed(NamedTuple):
    document: LexborNode | None
    content: Content
    roots: tuple[LexborNode, ...] = ()
    """Elements whose text is compared."""


@lru_cache(1)  # whoever describes a copy asks for the page that has just been fingerprinted
def _parsed(html: str) -> _Parsed:
    kept_reasons: frozenset[str] = frozenset()
    while True:
        document = _document(html)
        if document is None:
            return _Parsed(None, Content("", (), has_text=False))
        left_out = list(_take_out(document, kept_reasons))
        text = document.text(separator=" ", strip=True)
        too_much = {reason for reason in {one.reason for one in left_out} if _is_much(reason, left_out, text)}
        if not too_much:
            break
        kept_reasons |= too_much
    roots: tuple[LexborNode, ...] = (document,)
    if OUTSIDE not in kept_reasons and ("main" in html or "<article" in html):
        text, roots = _main_part(document, text, left_out)
    if len(text.split(None, LITTLE_TEXT_WORDS)) > LITTLE_TEXT_WORDS:
        return _Parsed(document, Content(text, tuple(left_out)), roots)
    body = document.css_first("body")
    data = " ".join(_data(html)) if "json" in html else ""
    has_text = bool(data.strip()) or (body is not None and bool(body.text().strip()))
    text = " ".join((text, data, *_labels(document)))
    return _Parsed(document, Content(text, tuple(left_out), has_text), roots)


def compared_elements(html: str) -> tuple[tuple[LexborNode, ...], str]:
    """Return the elements whose text is compared, and the compared text; none of a page nested too deeply.

    The elements are not to be changed: the next to ask for the same page gets them, too.
    """
    if is_too_deep(html):
        return (), ""
    parsed = _parsed(html)
    return parsed.roots, parsed.content.text


def content_of(html: str) -> LexborNode | None:
    """Return the tree of what is compared of a page that is not too deep; None of an empty page.

    The tree is not to be changed: the next to ask for the same page gets it, too.
    """
    return _parsed(html).document


def _document(html: str) -> LexborNode | None:
    if "shadowrootmode" in html:  # a visitor reads such a template in its place
        html = _SHADOW_ROOT.sub("<div", html)
    document = LexborHTMLParser(html).root
    if document is not None:
        for node in _SELECTOR.find(_NEVER_TEXT, document):
            node.decompose()
    return document


def _is_much(reason: str, left_out: list[LeftOut], remaining: str) -> bool:
    """Tell whether the texts of one reason are a third of the page's text, or the rest says nothing."""
    of_reason = sum(len(one.text) for one in left_out if one.reason == reason)
    others = sum(len(one.text) for one in left_out) - of_reason
    # Characters, which cost nothing to count and are fair to scripts without spaces.
    return of_reason > 0 and len(remaining.strip()) <= max(2 * of_reason - others, 0)


def _take_out(document: LexborNode, kept_reasons: frozenset[str]) -> Iterator[LeftOut]:
    """Take the outermost elements that are not compared off the tree."""
    taken: set[int] = set()
    inside: dict[int, bool] = {}
    in_main = _InMain(document)
    nodes = []
    for node in _SELECTOR.find(_CANDIDATES, document):
        reason = _reason(node)
        if reason is None or reason in kept_reasons or (reason == SIDEBAR and in_main.has(node)):
            continue
        if not (taken and _is_inside(node, taken, inside)):
            taken.add(node.mem_id)
            nodes.append((reason, node))
    for reason, node in nodes:
        yield LeftOut(reason, node.text(separator=" ", strip=True))
        node.decompose()


def _is_inside(node: LexborNode, ids: set[int], known: dict[int, bool]) -> bool:
    """Tell whether an element stands in one of these; what is known of parents bounds the time."""
    path = []
    parent = node.parent
    answer = False
    while parent is not None:
        identity = parent.mem_id
        if identity in ids:
            answer = True
            break
        if identity in known:
            answer = known[identity]
            break
        path.append(identity)
        parent = parent.parent
    known.update(dict.fromkeys(path, answer))
    return answer


def _reason(node: LexborNode) -> str | None:
    """Reason to leave an element out, None if it stays."""
    tag, attributes = node.tag, node.attributes
    if tag in _ROOTS:
        return None
    role = (attributes.get("role") or "").lower()
    if (reason := _reason_of_name(attributes.get("class"), attributes.get("id"))) is not None:
        return reason
    if (attributes.get("aria-label") or "").lower().startswith("advert") or any(
        name in attributes for name in _AD_ATTRIBUTES
    ):
        return ADVERTISEMENT
    if "hidden" in attributes or "display:none" in (attributes.get("style") or "").replace(" ", "").lower():
        return HIDDEN
    if tag == "nav" or role == "navigation":
        return NAVIGATION
    if role == "contentinfo" or (tag == "footer" and _is_of_page(node, 2)):
        return FOOTER
    if tag == "aside" or role == "complementary":
        return SIDEBAR
    if role in ("dialog", "alertdialog") and _COOKIES.search(node.text()):
        return CONSENT
    return None


@lru_cache(4096)
def _reason_of_name(classes: str | None, identity: str | None) -> str | None:
    for name in names_of(classes, identity):
        if _AD_NAME.fullmatch(name):
            return ADVERTISEMENT
        if _CONSENT_NAME.fullmatch(name):
            return CONSENT
    return None


def names_of(*attributes: str | None) -> Iterator[str]:
    """Names in classes and ids, in lower case with hyphens."""
    for attribute in attributes:
        if attribute:
            yield from _CAMEL.sub("-", attribute).lower().split()


def _is_of_page(node: LexborNode, depth: int) -> bool:
    """Tell whether an element stands in the body, at most so deep in plain containers."""
    parent = node.parent
    for _ in range(depth):
        if parent is None or parent.tag == "body":
            return True
        if parent.tag != "div":
            return False
        parent = parent.parent
    return False


class _InMain:
    """Elements of a page's main part: notes of documentation are asides there."""

    def __init__(self, document: LexborNode) -> None:
        self._document = document
        self._mains: set[int] | None = None
        self._known: dict[int, bool] = {}

    def has(self, node: LexborNode) -> bool:
        if self._mains is None:
            self._mains = {main.mem_id for main in self._document.css("main,article,[role=main]")}
        return bool(self._mains) and _is_inside(node, self._mains, self._known)


def _main_part(
    document: LexborNode, text: str, left_out: list[LeftOut]
) -> tuple[str, tuple[LexborNode, ...]]:
    """Return the text and elements of the main part, the title and alerts, if they hold most of the words."""
    mains = document.css("main,[role=main]") or document.css("article")
    if len(mains) != 1:
        return text, (document,)
    title = document.css_first("title")
    in_main = _InMain(document)
    loud = [node for node in document.css(_LOUD)[:8] if not in_main.has(node)]
    roots = (*([] if title is None else [title]), *loud, mains[0])
    texts = [root.text(separator=" ", strip=True) for root in roots]
    outside = _without(text, texts[-1])
    size = len(text) - sum(map(len, texts))
    total = len(text) + sum(len(one.text) for one in left_out)
    if size <= len(roots) or size * 3 >= total or size * 2 >= len(text):
        return text, (document,)
    left_out.append(LeftOut(OUTSIDE, outside if title is None else _without(outside, texts[0])))
    return " ".join(texts), roots


def _without(text: str, passage: str) -> str:
    """Return a text without a long part of it, in time linear in its length."""
    head, at = passage[:64], text.find(passage[:64])
    while at >= 0 and not text.startswith(passage, at):
        at = text.find(head, at + 1)
    return text if at < 0 or not passage else f"{text[:at]} {text[at + len(passage) :]}"


def _data(html: str) -> Iterator[str]:
    """Data that a page brings for its scripts: JSON-LD, state of applications."""
    root = LexborHTMLParser(html).root
    if root is not None:
        for node in root.css(_DATA):
            yield node.text()


def _labels(document: LexborNode) -> Iterator[str]:
    """Descriptions in attributes of a page with little text."""
    for node in document.css(
        "meta[name=description i],meta[property='og:description'],img[alt],input,[role=img]"
    ):
        attributes = node.attributes
        if node.tag == "meta":
            yield attributes.get("content") or ""
        elif node.tag == "input":
            if (attributes.get("type") or "text").lower() not in ("hidden", "password"):
                yield attributes.get("value") or ""
        else:
            yield attributes.get("alt") or attributes.get("aria-label") or ""


def without_scripts(html: str) -> str:
    """Return an HTML source without the contents of its scripts and styles, except data, in linear time."""
    pieces, done, lower = [], 0, html.lower()
    if len(lower) != len(html):  # a letter whose lower case is two: positions would be others
        lower = html
    for start in _SCRIPT.finditer(lower):
        if start.start() < done or "json" in start[0]:
            continue
        end = lower.find(f"</{start[1]}", start.end())
        pieces.append(html[done : start.end()])
        if end < 0:
            return "".join(pieces)
        done = end
    return "".join((*pieces, html[done:]))


_SCRIPT: Final = re.compile(r"<(script|style)\b[^>]{0,2000}>")


def source_of(response: TextResponse, most_bytes: int) -> str:
    """Return the source of a page, as far as so many bytes go."""
    if len(response.body) > most_bytes:
        response = response.replace(body=response.body[:most_bytes])
    try:
        return response.text
    except (LookupError, ValueError):  # a charset that is known and is none of text, such as hex_codec
        return response.body.decode("utf-8", "replace")
