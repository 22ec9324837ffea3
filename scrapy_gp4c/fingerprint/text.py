"""Compared text of an HTML page: its main part, without advertisements, menus and other page furniture.

Nothing is left out that holds a third of the page's words or more: a root with ``class="ad"`` or a wrapper
that a script shows later is the page itself. Nothing here raises on any body.
"""

import codecs
import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import islice
from string import ascii_letters, ascii_lowercase, ascii_uppercase, digits
from typing import Final, NamedTuple
from urllib.parse import unquote

import numpy as np
import xxhash
from scrapy.http import TextResponse
from selectolax.lexbor import LexborCSSSelector, LexborHTMLParser, LexborNode
from w3lib.encoding import html_body_declared_encoding

from scrapy_gp4c.fingerprint.data import script_data
from scrapy_gp4c.words.masking import (
    CLOCK_BEGIN,
    CLOCK_END,
    CURRENCIES,
    DATED,
    LETTERS,
    RANGE,
    RECENT,
    VIEWS,
    WEEKDAYS,
    WORDS,
    is_counter,
    is_moment,
    is_prose,
    marked_prose,
    names_time,
    says_update,
    states_date,
)
from scrapy_gp4c.words.normal import CODE_FORM

MAX_SOURCE_BYTES: Final = 2**24
"""Largest HTML source, in bytes without scripts and styles, that is parsed."""
LITTLE_TEXT_WORDS: Final = 20
"""Most words of a page that counts as the shell of an application, so that data in its scripts is text."""
MAX_DEPTH: Final = 2000  # of open elements: the parser's time grows with its square (20,000 deep: 0.5 s)

ADVERTISEMENT: Final = "advertisement"
HIDDEN: Final = "hidden"
NAVIGATION: Final = "navigation"
FOOTER: Final = "footer"
CONSENT: Final = "cookie notice"
SIDEBAR: Final = "sidebar or page header"
OUTSIDE: Final = "outside the main part"
OTHER_PAGES: Final = "not about this page"
REASONS: Final = (ADVERTISEMENT, HIDDEN, NAVIGATION, FOOTER, CONSENT, SIDEBAR, OUTSIDE, OTHER_PAGES)
"""Reasons for which text of a page is not compared."""

_NEVER_TEXT: Final = "script,style,noscript,iframe,svg title,svg desc,defs,metadata,symbol,annotation"


def _by_tag(*selectors: str) -> dict[str, str]:
    """Return last tag in a selector -> that selector: a page without the tag cannot match it."""
    return {
        re.split("[>+]", selector)[-1].partition("[")[0].partition(":")[0]: selector for selector in selectors
    }


_MAIN_BY_TAG: Final = _by_tag("main", "article")
_ROOT_BY_TAG: Final = _by_tag("main", "article", "title")
_ROOT_BY_ATTRIBUTE: Final = {b"role": "[role=main],[role=alert],[role=status]"}
"""Attribute -> selector of main part and alerts, which are compared wherever they stand."""
_MOST_PARTS: Final = 8
# Attributes of advertisements; `data-ad-id` is the number of a small ad.
_AD_ATTRIBUTE: Final = re.compile(
    rb"data-(?:ads?|ad-(?:slot|client|unit|position|size|format|placement|zone|network|type|name|region|container"
    rb"|layout)(?:-(?:path|id|name))?|[a-z]{3,20}-ads?|google-query-id)(?=[\s=>/])"
)
_NAMING: Final = "data-(?:test-?id|test|qa|cy|component)"
"""Pattern of attributes, such as ``data-testid``, whose values name elements as classes do."""
_LABELS: Final = [  # each begins with a text, which makes it fast
    re.compile(rf"({name})=[\"']([^\"'\\]{{2,80}})[\"']".encode()) for name in (_NAMING, "aria-label")
]
# Selectors of what may be left out. Each is tried on all elements of a page, which takes time: only those are
# tried that can match by the page's tags and attributes, in which names of classes and ids are sought, too.
_CANDIDATES_BY_TAG: Final = _by_tag(
    *("main", "article", "nav", "footer", "aside", "time", "amp-ad", "amp-embed", "dialog:not([open])")
)
_CANDIDATES_BY_ATTRIBUTE: Final = {b"role": "[role]", b"hidden": "[hidden]", b"style": "[style*=none i]"}
_MOST_NAMES: Final = 64
_FILES: Final = frozenset(
    (
        *("pdf", "doc", "docx", "docm", "xls", "xlsx", "xlsm", "ppt", "pptx", "odt", "ods", "odp", "rtf"),
        *("csv", "tsv", "epub", "mobi", "djvu", "hwp", "hwpx", "ics", "gpx", "kml", "kmz", "geojson", "shp"),
        *("mp3", "mp4", "dwg", "dxf", "stl"),
        *("zip", "rar", "7z", "gz", "tgz", "xz", "bz2", "zst", "exe", "msi", "msix", "dmg"),
        *("pkg", "deb", "rpm", "apk", "ipa", "jar", "whl", "iso", "img", "appimage", "snap", "torrent"),
    )
)
"""File extensions by which a link leads to a file. Its name is compared, as it may change alone."""
_FILE_END: Final = re.compile(rf"\.({'|'.join(sorted(_FILES))})(?![a-z0-9])".encode())
_OFFER_DATA: Final = ("data-price", "data-stock", "data-availability", "data-available")
# Selectors of elements that are never text, or say more than their text, by the tag or attribute they need.
_FIRST_BY_TAG: Final = {"svg": "svg title,svg desc"} | _by_tag(
    *("script", "style", "noscript", "iframe", "defs", "metadata", "symbol", "annotation"),
    *("object[data]", "embed[src]", "video[src]", "audio[src]", "source[src]"),
    *("area[alt]", "optgroup[label]"),
    *("del", "s", "strike", "input", "meter", "progress", "img[alt]", "i:empty", "span:empty"),
    *("option[selected],option[label]", "data[value]:empty", "textarea[placeholder]:empty"),
    *("link[itemprop]", "meta[property$=':price:amount']"),
)
_FIRST_BY_ATTRIBUTE: Final = {
    b"role": "[role=img]",
    b"disabled": "[disabled],[aria-disabled=true]",
    b"aria-label": "[aria-label]:not(input)",
    b"aria-checked": "[aria-checked=true]",
    b"progressbar": "[role=progressbar]",
    b"meter": "[role=meter]",
    **{name.encode(): f"[{name}]:empty" for name in _OFFER_DATA},
    b"download": "a[download]",
    b"mailto:": "a[href^='mailto:' i]",
    b"tel:": "a[href^='tel:' i]",
    b"sms:": "a[href^='sms:' i]",
    b"//wa.me/": "a[href*='//wa.me/' i]",
    b"data-cfemail": "[data-cfemail]",
    b"email-protection#": "a[href*='email-protection#']",
    b"itemprop": "[itemprop][content]",
}
_ATTRIBUTES: Final = {*_ROOT_BY_ATTRIBUTE, *_CANDIDATES_BY_ATTRIBUTE, *_FIRST_BY_ATTRIBUTE}
_TAGS: Final = re.compile(rb"<[a-zA-Z](?:[^<]*>|[^<]*)")
_LONGEST_LISTED_BYTES: Final = 2**20
_TAG_NAME: Final = re.compile("<([a-z][a-z-]*+)")
_OFFER: Final = frozenset(("price", "lowPrice", "highPrice", "priceCurrency", "availability"))
"""Properties of schema.org/Offer whose values are compared although they stand in attributes."""
_EVENT_PROPERTIES: Final = frozenset(
    ("startDate", "endDate", "doorTime", "validThrough", "validUntil", "departureTime", "arrivalTime")
)
"""Properties of schema.org whose times are statements of the page (``startDate``), and are not masked."""
_TEXTLESS: Final = [name.split()[-1] for name in _NEVER_TEXT.split(",")]
_SAID_BY: Final = {
    "img": "alt",
    "area": "alt",
    "option": "label",
    "optgroup": "label",
    "textarea": "placeholder",
    "meter": "value",
    "progress": "value",
    "data": "value",
}
_UNSEEN_INPUTS: Final = ("hidden", "password", "checkbox", "radio", "file", "image")
_MOMENT_NAME: Final = re.compile(
    r"(?:[\w-]+-)?(?:ago|timeago|timestamp|posted|published|updated|modified|edited|created|dates?|datetime|countdown"
    r"|relative-time|when|last-\w+)(?:-\w+)?|(?:[\w-]+-)?(?:post|comment|item|entry|article|story|message|msg)-time|time"
    r"|timer|age"
)
# Names of parts whose dates are statements of the page.
_DATED_NAME: Final = re.compile(
    r"(?:^|-)(?:event|due|start|begin|end|expir\w*|deadline|deliver\w*|depart\w*|arriv\w*|clos\w*|open\w*|release\w*|birth|bday|valid"
    r"|effective|ship\w*|exam|until|from|check-?(?:in|out))(?:-|$)"
)
_COUNT_NAME: Final = re.compile(
    r"(?:[\w-]+-)?(?:likes?|stargazers?|shares?|views?|hits?|comments?|visitors?|reads?|readers|watchers|online|(?:mini-?)?cart|basket"
    r"|wish-?list|favou?rites?|compare|upvotes?|followers|subscribers|downloads?)-?(?:count(?:s|er)?|num(?:ber)?|total)"
)
_META_NAME: Final = re.compile(
    "(?:entry|post|article|story|topic|thread|news|blog)-?meta|(?:social-?)?(?:share|sharing)-?(?:buttons?|bar|links?|tools|box)"
    "|social-?(?:share|sharing)"
)
"""Names (classes, ids) of lines below a headline, with author, date, and numbers of readers or shares."""
_EVENT_NAME: Final = re.compile(
    r"(?:[\w-]+-)?(?:v?events?|fixtures?|departures?|arrivals?|timetables?|schedules?|agenda|showtimes?|screenings?|match(?:es)?|termine?"
    r"|veranstaltung(?:en)?|eventos?|evenements?|concerts?|konzerte?)(?:[-_]{1,2}(?:item|card|row|entry|box|teaser|details?|info|summary|when))*"
)
"""Names of parts about an event, whose day is a statement and is not masked."""
_LONGEST_EVENT: Final = 600
_COUNTER_OF_LINE: Final = re.compile(rf"(?=\D*\d)[^{CURRENCIES}]{{1,60}}")
_YEAR: Final = re.compile(r"(?:19|20)\d\d|25[5-9]\d")
_COUNT: Final = re.compile(
    rf"(?:[^\w\s{CURRENCIES}]\s?)?[0-9][0-9.,\s]{{0,12}}[km]?(?:\s[^\W\d]{{3,12}})?", re.I
)
_LONGEST_MOMENT: Final = 60
_MOST_ICON_NAMES: Final = 8
_LONGEST_NAME: Final = 80
"""Longest class or id, in characters, that is looked at."""
_MOST_ELEMENTS_WITH_DATA: Final = 2000
_SELECTOR: Final = LexborCSSSelector()  # type: ignore[no-untyped-call] # one for all: 10 us a page
# Whole names alone: `ad-listing` has small ads, `no-ads` is a promise, `gpt-4` a product, `sponsors` a list.
_AD: Final = (
    r"(?:ads?|adverts?|advertisements?|advertising|werbung|anzeigen?|publicit[eé]|publicidade?|pubblicit[aà]"
    r"|reklam[ay]?)"
)
_AD_PLACE: Final = (
    r"(?:slots?|units?|containers?|wrap(?:per)?|box|banners?|blocks?|spaces?|placements?|zones?|frames?|labels?|holder"
    r"|placeholder|leaderboard|skyscraper|rectangle|billboard|area|row|iframe|inner|outer|top|bottom|left|right|side"
    r"|sidebar|header|footer|inline|dfp|gam|prebid|sticky|mobile|desktop|native|google|mpu|\d++)"
)  # possessive: of a repeated `\d+`, a name of 30 digits would take hours
_AD_NAME: Final = re.compile(
    rf"(?:{_AD}|(?:{_AD_PLACE}[-_]?)+{_AD}(?:[-_]?{_AD_PLACE})*|{_AD}(?:[-_]?{_AD_PLACE})+|ad(?:sbygoogle|sense|slot|unit)"
    r"|div-gpt-ad[-_\w]*|google-auto-placed|sponsored(?:[-_](?:content|links?|posts?|box|label|ad))?|promoted"
    r"|(?:taboola|outbrain|ob)[-_](?:widget|below|right|container)[-_\w]*|taboola|outbrain)"
)
_AFFIXES: Final = re.compile(r"^(?:c|m|o|l|js|u)-|(?:__|--).*$")  # of BEM and of modules of styles
OTHER_PAGES_NAME: Final = (
    r"related|recommend(?:ed|ations?)?|see-?also|also-?(?:like|read|viewed|bought)"
    r"|you-?(?:may|might)-?(?:also-?)?like|read-?(?:next|also)|further-?reading"
    r"|most-?(?:read|viewed|popular|shared)|recently-?viewed|trending"
)
"""Pattern of names of parts that are about other pages."""
_OF_WIDGET: Final = "(?:weather|wetter|meteo|clock|visitors?|share|social)"
_MOST_WITH_LINK: Final = 200  # elements
_LINKED_PAGES: Final = "linked pages"
"""`OTHER_PAGES` if the part has a link: "recommended" may be a dose."""
_OTHER_PAGES_NAME: Final = re.compile(
    rf"(?:[\w-]*?[-_])?(?:{OTHER_PAGES_NAME}|(?:weather|wetter|meteo)[-_]?(?:box|bar|block|info)"
    rf"|{_OF_WIDGET}[-_]?widget|widget[-_]?{_OF_WIDGET}|(?:who-?is-?|whos-?|users?-?)?online-?(?:list|users)|(?:live-?)?chat[-_]?(?:launcher|bubble|widget|button)|random-?(?:quote|tip|fact|image)s?"
    r"|(?:quote|tip|fact|word|joke|thought)-?of-?(?:the-?)?(?:day|moment)|daily-?(?:quote|tip|fact)|captcha|breaking-?news|news-?ticker)(?:[-_][\w-]*)?"
    r"|(?:mini|header|site|top|nav)[-_]?(?:cart|basket|bag)|(?:cart|basket|bag)[-_](?:icon|toggle|widget|bubble|count)(?:[-_][\w-]*)?"
)
_STRIP_NAME: Final = re.compile("(?:(?:site|page|header)[-_]?)?(?:top|utility|greeting|date)[-_]?bar")
"""Names of strips above a page that each page of a site has: the date, a greeting, contacts."""
_STATE_NAME: Final = re.compile(
    r"(?:[\w-]+(?:--|__))?(?:(?:is|has|status|state|product|item|day)[-_])?(?:sold[-_]?out|(?:out[-_]?of|in|no|low)[-_]?stock"
    r"|(?:un|not[-_]?)?available|back[-_]?order(?:ed)?|discontinued|cancell?ed|(?:fully[-_]?)?booked|reserved|occupied|vacant)"
)
_SHOWN_ID: Final = re.compile(rb"=(?:[\"']#|(?<=controls=)[\"'])([^\"'\s<>]{1,80})[\"']")
"""Ids of elements that a link or button on the page shows."""
_OVERLAY_NAME: Final = re.compile(
    "modal|popup|pop-up|dialog|menu|nav|search|cart|drawer|offcanvas|lightbox|toast|tooltip|overlay|login|share"
)
_CONSENT_NAME: Final = re.compile(
    r"(?:[\w-]*[-_])?(?:cookies?|gdpr|consent|ccpa)[-_]?(?:[^\W_]+[-_])*(?:banner|bar|notice|consent|popup|pop-up|modal"
    r"|dialog|overlay|message|alert|wall|layer|law|disclaimer|prompt|manager|hint|hinweis|info|settings|preferences"
    r"|container|wrapper|box|root|window)(?:[-_][^\W_]+)*|(?:cookies?|gdpr|consent|cookie-?law|cookiebar|onetrust)[-_\w]*(?:sdk|root)"
    r"|[\w-]*(?:cookie[-_]?compliance|(?:cookie|gdpr|pdpa|lgpd|ccpa)[-_]?consent)[-_\w]*|sliding-popup|cc-(?:window|banner)"
    r"|(?:tarteaucitron|didomi|usercentrics|cmplz|cky|iubenda-cs|qc-cmp2|sp-message|axeptio|borlabs-?cookie|klaro|truste"
    r"|osano-cm|termly|fc-consent|moove-gdpr|hs-eu-cookie)(?>(?:[-_]\w*)*)"
    r"|onetrust[-_\w]*|cookiebot[-_\w]*|cybot-?cookiebot[-\w]*"
)
_COOKIES: Final = re.compile(
    "ookie|slapuk|sīkdat|vafrak|informasjonskaps|ciastecz|galleta|çerez|süti|sušen|kolačić|evästeet"
    "|bánh quy|кук[иі]|колачић|クッキー|쿠키|คุกกี้|कुकी|کوکی|ملفات تعريف|עוגיות"
)
_LONGEST_NOTICE: Final = 1500
_MOST_DIALOGS: Final = 8
_CAMEL: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_NAMES: Final = {  # the look behind comes second: a search for a literal is fast; "?id=" of a URL is none
    attribute: re.compile(rf"""{attribute}=(?<=[\s"'/]{attribute}=)(?:"[^"]*|'[^']*|[^\s>]*)""".encode())
    for attribute in ("class", "id")
}
_NO_QUOTES: Final = bytes.maketrans(b"\"'", b"  ")
SEPARATOR: Final = "\x1f"  # between the texts of a page; a blank for what splits words
_CLOSED_UP: Final = re.compile(  # no blank stands there in any language, as it does before a French colon
    rf"{SEPARATOR}(?:(?=[.,)\]])|(?<=[(\[].))"
)
"""Separator between a word that is bold or a link and its punctuation, where no blank belongs."""
_JOINT: Final = "\x0e"  # in its place
_BETWEEN: Final = re.compile(f"([{SEPARATOR}{_JOINT}])")


def _phrases(name: str) -> frozenset[str]:
    return frozenset(" ".join(phrase.split()) for phrase in WORDS[name].split("|"))


def _first_upper(text: str) -> str:
    return text[:1].upper() + text[1:]


_PHRASES: Final = {ADVERTISEMENT: _phrases("advertisements"), OTHER_PAGES: _phrases("other_pages")}
_REASON_OF_LABEL: Final = {phrase.lower(): reason for reason, names in _PHRASES.items() for phrase in names}
# In all spellings: lowering every text of a page would take longer than the look-up.
_ALONE: Final = frozenset(
    form(text) + colon
    for text in WEEKDAYS.union(RECENT, *_PHRASES.values())
    for form in (_first_upper, str.lower, str.upper, str.title, str.capitalize)
    for colon in ("", ":")
)
"""Texts of whole elements that are a time ("yesterday"), or label what follows ("Advertisement")."""
_COUNTED: Final = frozenset(WORDS["reactions"].split()) | {"k", "m"}
_COUNT_SIGNS: Final = "👍❤♥♡👁💬"
_COUNT_ALONE: Final = re.compile(
    rf"{SEPARATOR}(?=[0-9{_COUNT_SIGNS}])(?:[0-9][0-9.,]{{0,9}}+\s?[km]?\s?[^\W\d][^{SEPARATOR}]{{0,20}}|[{_COUNT_SIGNS}]\ufe0f?\s?[0-9][0-9.,]{{0,9}}+\s?[km]?"
    rf"|[0-3]?\d([-/])[0-3]?\d\1\d\d)(?={SEPARATOR}|\Z)",
    re.I,
)
_COUNTED_WORD: Final = re.compile(rf"{LETTERS}(?:'{LETTERS})?")
HEADINGS: Final = frozenset(("h1", "h2", "h3", "h4", "h5", "h6", "hr", "main", "article"))
_LISTS: Final = frozenset(("ul", "ol", "div", "section", "table", "nav"))
_SIMILAR: Final = frozenset(WORDS["similar"].split())
_SIMILAR_SIGNS: Final = re.compile("|".join(WORDS["similar_signs"].split()).replace("_", " "))
_LONGEST_HEADING: Final = 40
_LONGEST_AD: Final = 600
MOST_LABELLED: Final = 40
_DATES_BY_TAG: Final = _by_tag(*("strong", "b", "em", "mark", "u", "p>i", "p>span", "p>a", "dt+dd", "table"))
_MOST_TABLES: Final = 50
_MOST_ROWS: Final = 2000
_LONGEST_LINK: Final = 200
"""Most characters per link in a list of links to other pages."""
_ROOTS: Final = {"html", "body", "main", "article", "head", "title", "h1"}
_MARKUP: Final = re.compile(r"<!\[CDATA\[|\]\]>|<[/?!]?[A-Za-z_][^<>]*>")
_SHADOW_ROOT: Final = re.compile(b"<template(?=[^<>]{1,500}shadowrootmode)", re.I)
_NESTING: Final = re.compile(
    rb"<(/?)(?!(?:area|base|br|col|embed|hr|img|input|link|meta|source|wbr|p|li|t[dhr]|d[dt]|option)\b)[a-z]",
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


class Content(NamedTuple):
    """Compared text of a page."""

    text: str
    """Its times that markup shows to be clocks ("2h") stand between `CLOCK_BEGIN` and `CLOCK_END`."""
    left_out: tuple[LeftOut, ...] = ()
    has_text: bool = True
    """Whether the page shows any text; False for an empty page with a title."""


def without_markup(text: str) -> str:
    """Return the text between the tags, without a parser, in time linear in the length of any text."""
    head, *comments = text.split("<!--")
    return _MARKUP.sub(" ", head + " ".join(piece.partition("-->")[2] for piece in comments))


def is_too_deep(source: bytes) -> bool:
    """Whether more than `MAX_DEPTH` elements are open somewhere in an HTML source in UTF-8."""
    if source.count(b"<") <= MAX_DEPTH or _most_open(source) <= MAX_DEPTH:
        return False
    depth = 0
    for tag in _NESTING.finditer(source):
        depth = max(depth - 1, 0) if tag[1] else depth + 1
        if depth > MAX_DEPTH:
            return True
    return False


def _most_open(source: bytes) -> int:
    """Return an upper bound of the number of open elements at a time, ten times as fast as the exact one."""
    signs = np.frombuffer(source + b" ", np.uint8)
    tags = signs[(signs[:-1] == ord("<")).nonzero()[0] + 1]
    depth = np.cumsum(np.where(tags == ord("/"), -1, 1))
    return int((depth - np.minimum(np.minimum.accumulate(depth), 0)).max())


def html_content(html: str, root: str | None = None) -> Content:
    """Return the compared text of an HTML page, its pieces joined by blanks, and the text that is left out.

    ``root``: CSS selector; if the first element that it matches has text, all of this is returned instead.
    """
    parsed = _parsed(html)
    if root is not None and parsed.document is not None:
        element = parsed.document.css_first(root)
        if element is not None and (text := element.text(separator=" ", strip=True)).strip():
            return Content(text)
    return parsed.content


class _Markup(NamedTuple):
    """Distinct tags of a page's source, in which names are sought, as the whole source is longer."""

    source: bytes
    lower: bytes
    tags: frozenset[str]
    attributes: frozenset[bytes]
    """Those of `_ATTRIBUTES` that occur on the page, perhaps only in texts."""

    @classmethod
    def of(cls, source: bytes) -> "_Markup":
        markup = source  # millions of tags would take hundreds of megabytes
        if len(source) <= _LONGEST_LISTED_BYTES:
            markup = b"".join(dict.fromkeys(_TAGS.findall(source)))
        lower = markup.lower()
        tags = frozenset(_TAG_NAME.findall(lower.decode("latin-1")))
        return cls(markup, lower, tags, frozenset(name for name in _ATTRIBUTES if name in lower))

    def selectors(self, by_tag: dict[str, str], by_attribute: dict[bytes, str]) -> list[str]:
        """Return the selectors that may match this page: those with a tag or attribute that it has."""
        return [
            *(by_tag[tag] for tag in self.tags & by_tag.keys()),
            *(by_attribute[name] for name in self.attributes & by_attribute.keys()),
        ]


class _Parsed(NamedTuple):
    document: LexborNode | None
    """None: the page is empty or too deep."""
    content: Content
    roots: tuple[LexborNode, ...] = ()
    """Elements whose text is compared."""
    data: tuple[str, ...] = ()
    """Compared texts that follow that of the elements: data of scripts, and the page's description."""


@lru_cache(1)  # whoever describes a copy asks for the page that has just been fingerprinted
def _parsed(html: str) -> _Parsed:
    kept_reasons: frozenset[str] = frozenset()
    source = html.encode("utf-8", "ignore")  # a word is found in bytes in a tenth of the time
    if is_too_deep(source):
        text = without_markup(html)
        return _Parsed(None, Content(text, (), bool(text.strip())))
    markup = _Markup.of(source)
    while True:
        document = _document(source, markup)
        if document is None:
            return _Parsed(None, Content("", (), has_text=False))
        left_out = list(_take_out(document, source, markup, kept_reasons))
        _mark_dates(document, markup)
        text = document.text(separator=SEPARATOR, strip=True)
        if not _ALONE.isdisjoint(text.split(SEPARATOR)) or any(
            _is_count(count[0][1:]) for count in _COUNT_ALONE.finditer(text)
        ):
            left_out += _take_out_labelled(document, kept_reasons)
            text = document.text(separator=SEPARATOR, strip=True)
        similar = [] if OTHER_PAGES in kept_reasons else [*_take_out_similar(document, markup)]
        if similar:
            left_out += similar
            text = document.text(separator=SEPARATOR, strip=True)
        if SIDEBAR not in kept_reasons and (head := [*_take_out_head(document, markup)]):
            left_out += head
            text = document.text(separator=SEPARATOR, strip=True)
        too_much = _excessive_reasons(left_out, text)
        if not too_much:
            break
        kept_reasons |= too_much
    roots: tuple[LexborNode, ...] = (document,)
    if OUTSIDE not in kept_reasons:
        text, roots = _main_part(document, markup, text, left_out)
    text = marked_prose(_CLOSED_UP.sub("", text), SEPARATOR)
    said = [*_contacts(left_out), *_offers_and_events(source), _form(text, roots, markup.tags)]
    form = " ".join(filter(None, said))
    text = f"{text} {form}" if form else text
    if len(text.split(None, LITTLE_TEXT_WORDS)) > LITTLE_TEXT_WORDS:
        return _Parsed(document, Content(text, tuple(left_out)), roots, (form,) if form else ())
    body = document.css_first("body")
    data = tuple(_data(html))
    has_text = bool(data) or (body is not None and bool(body.text().strip()))
    description = document.css_first("meta[name=description i],meta[property='og:description']")
    about = "" if description is None else description.attributes.get("content") or ""
    text = " ".join((text, *data, about))
    return _Parsed(document, Content(text, tuple(left_out), has_text), roots, (form, *data, about))


def _contacts(left_out: list[LeftOut]) -> Iterator[str]:
    """Yield hours of opening, phone numbers and mail addresses of footers, headers and sidebars."""
    for reason, text in left_out:
        if reason in (FOOTER, SIDEBAR):
            # To try the long pattern at each character would take a tenth of a small page's time.
            matches = [_CONTACT.match(text, run.start()) for run in _NUMBER_BEGIN.finditer(text)]
            contacts = [match for match in matches if match is not None]
            are_hours = sum(contact.lastgroup == "hours" for contact in contacts) > 1  # one: "items 1-20"
            for contact in contacts:
                is_phone = (
                    contact.lastgroup == "phone" and sum(map(str.isdigit, contact[0])) >= _FEWEST_DIGITS
                )
                if is_phone or contact.lastgroup == "clocks" or (contact.lastgroup == "hours" and are_hours):
                    yield contact[0]
            yield from _MAIL.findall(text) if "@" in text else ()


_HALF: Final = r"(?:\s?[ap]\.?m\b\.?|\s?uhr\b|\s?h\b)?"
_OPENING: Final = rf"(?:[0-2]?\d[:.h][0-5]\d{_HALF}|[01]?\d\s?[ap]\.?m\b\.?|[0-2]?\dh\b)"
_CONTACT: Final = re.compile(
    rf"(?<![\w./:+-])(?:(?P<hours>[0-2]?\d\s?[-–—]\s?[0-2]?\d{_HALF})|(?P<clocks>{_OPENING}\s?{RANGE}\s?{_OPENING})"
    r"|(?P<phone>(?:\+\d|\(?0[1-9])\d{0,4}[) /-]?[\d() /-]{4,18}\d"
    r"|(?:\(\d{3}\)\s?|\d{3}[-.])\d{3}[-.]\d{4}))(?![\w/:-]|\.\d)",
    re.I,
)
_FEWEST_DIGITS: Final = 9
"""Fewest digits of a phone number with the code of its area or country."""
_NUMBER_BEGIN: Final = re.compile(r"[\d+(]+")
_MAIL: Final = re.compile(r"[\w.+-]{1,40}@[\w-]{1,40}\.[\w.-]{1,20}")


def _offers_and_events(source: bytes) -> Iterator[str]:
    """Yield prices, availability and dates in JSON-LD, which a script may show; skip lists of offers."""
    for script in _JSON_LD.findall(source) if b"ld+json" in source else ():
        if script.count(b'"offers"') <= 1 and b'"ItemList"' not in script:
            for quoted, bare in _STATED_VALUE.findall(script)[:_MOST_STATED]:
                value = (quoted or bare).decode("utf-8", "replace")
                yield DATED + (value.rpartition("/")[2] if value.startswith("http") else value)


_MOST_STATED: Final = 16
_JSON_LD: Final = re.compile(rb"<script\b[^>]{0,200}\bld\+json[^>]{0,200}>(.*?)</script", re.S | re.I)
_STATED_VALUE: Final = re.compile(
    rb'"(?:price|lowPrice|highPrice|availability|eventStatus|startDate|endDate)"\s*:\s*(?:"([^"]{1,80})"|([^",\s}\]]{1,80}))'
)


def compared_pieces(text: str) -> list[str]:
    """Return the compared text of each element, with the blank behind it; ``text``: joined by `SEPARATOR`."""
    marked = marked_prose(_CLOSED_UP.sub(_JOINT, text), SEPARATOR, SEPARATOR)
    pieces = _BETWEEN.split(marked + SEPARATOR)
    return [text + " " * (sign == SEPARATOR) for text, sign in zip(pieces[::2], pieces[1::2], strict=False)]


def _form(text: str, roots: tuple[LexborNode, ...], tags: frozenset[str]) -> str:
    """Return a word that encodes what the text lacks: case and indentation of code, and pictures; or ""."""
    lines: list[str] = []
    pictures: list[str] = []
    for node in (node for root in roots for node in _find(sorted(tags & _CODE_TAGS), root)):
        if node.tag == "img":
            pictures.append(_picture(node))
        elif (above := node.parent) is None or above.tag != "pre":
            lines += node.text()[:_LONGEST_CODE].splitlines()
    code = "\n".join(f"{line.find(bare)} {bare}" for line in lines if (bare := line.strip()))
    # Clocks and tokens in code have one shape.
    form = _without_repeats(_CODE_TOKEN.sub(" 0", code).encode("utf-8", "replace").translate(_CASES))
    form += " ".join(filter(None, (*pictures, *_shapes_of_codes(text)))).encode("utf-8", "replace")
    return f"{CODE_FORM}{xxhash.xxh32_hexdigest(form).translate(_TO_LETTERS)}" if form else ""


def _without_repeats(cases: bytes) -> bytes:
    for letter in (b"A", b"a"):
        while 2 * letter in cases:
            cases = cases.replace(2 * letter, letter)
    return cases


def _picture(image: LexborNode) -> str:
    """Return words of a picture's file name; "" for one in a link (to another page), or of a sponsor."""
    attributes = image.attributes
    above = image.parent
    for _ in range(3):
        if above is None or above.tag == "a" or _SPONSOR_NAME.search(above.attributes.get("class") or ""):
            return ""
        above = above.parent
    if not (attributes.get("alt") or "").strip():
        return ""
    names = ("data-src", "data-lazy-src", "data-original", "src")
    sources = [*(attributes.get(name) or "" for name in names)]
    sources.append((attributes.get("srcset") or "").partition(" ")[0])
    source = next((source for source in sources if source and not source.startswith("data:")), "")
    stem = _file_of(source).rpartition(".")[0].lower()
    return "-".join(word for word in _NAME_WORD.findall(stem) if _NO_NAME.fullmatch(word) is None)


_SPONSOR_NAME: Final = re.compile("sponsor|partner|banner|testimonial|quote", re.I)
_NAME_WORD: Final = re.compile(r"[^\W_]+")
_NO_NAME: Final = re.compile(  # sizes, hashes and times
    r"\d{2,4}x\d{2,4}|[wh]\d{2,4}|\d{2,4}(?:w|px)|[1-4]x|scaled|thumb(?:nail)?|\d{9,}|(?=[^\d]*\d)(?=\d*[a-z])[a-z\d]{6,}|[a-f]{8,}"
)


def _shapes_of_codes(text: str) -> Iterator[str]:
    """Yield shapes of codes with capitals, such as TR-gtx-44b: text is compared in small letters."""
    done = 0
    for hyphen in _HYPHEN.finditer(text):
        at = hyphen.start()
        if at < done:
            continue
        head, tail = text[max(at - _REACH, done) : at], text[at : at + _REACH]
        behind = tail.lstrip(_OF_CODES)
        done = at + len(tail) - len(behind)
        code = head[len(head.rstrip(_OF_CODES)) :] + text[at:done]
        shape = code.encode().translate(_CASES, digits.encode())
        if b"A" in shape and len(shape) < len(code):
            yield _without_repeats(shape).decode()


_HYPHEN: Final = re.compile("-(?<=[A-Za-z0-9]-)(?=[A-Za-z0-9])")  # its literal begin makes the search fast
_REACH: Final = 12
_OF_CODES: Final = f"{ascii_letters}{digits}-"
_CASES: Final = bytes.maketrans(
    ascii_letters.encode(), b"a" * len(ascii_lowercase) + b"A" * len(ascii_uppercase)
)
_CODE_TAGS: Final = frozenset(("pre", "code", "kbd", "samp", "img"))
_LONGEST_CODE: Final = 2**16
_CODE_TOKEN: Final = re.compile(r"[ \t]++[^\s\d]{0,99}+\d\S*+")
_TO_LETTERS: Final = str.maketrans("0123456789abcdef", "ghijklmnopqrstuv")


def compared_parts(html: str) -> tuple[tuple[LexborNode, ...], tuple[str, ...], str]:
    """Return the compared elements of a page, its compared data, and the text of both.

    All are empty for a page that is nested too deeply. Callers share the elements and must not change them.
    """
    parsed = _parsed(html)
    return parsed.roots, parsed.data, parsed.content.text


def content_of(html: str) -> LexborNode | None:
    """Return the tree of a page without the parts that are left out; None for an empty or too deep page.

    Do not change the tree: it is cached for the next call with the same page.
    """
    return _parsed(html).document


def _document(source: bytes, markup: _Markup) -> LexborNode | None:
    if b"shadowrootmode" in markup.source:  # a visitor reads such a template in its place
        source = _SHADOW_ROOT.sub(b"<div", source)
    if "wbr" in markup.tags:
        for end in (b">", b"/>", b" />"):
            source = source.replace(b"<wbr" + end, b"")
    if "sup" in markup.tags:
        for raised, sign in ((b"<sup>2</sup>", "²"), (b"<sup>3</sup>", "³")):
            source = source.replace(raised, sign.encode())
    document = LexborHTMLParser(source).root
    if document is not None:
        selectors = markup.selectors(_FIRST_BY_TAG, _FIRST_BY_ATTRIBUTE)
        selectors += [f"a[href*='.{end.decode()}' i]" for end in sorted({*_FILE_END.findall(markup.lower)})]
        for node in _find(selectors, document):
            tag = node.tag
            if (
                (tag == "iframe" or tag not in _TEXTLESS)
                and (said := _words_besides_text(node))
                and node.parent is not None
            ):
                node.insert_before(f" {said} ")
            is_list = tag == "noscript" and _SELECTOR.find("li,td,dd", node)  # what a script draws
            if tag in _TEXTLESS and not is_list:
                node.decompose()
    return document


def _find(selectors: Iterable[str], root: LexborNode) -> list[LexborNode]:
    selector = ",".join(selectors)
    return _SELECTOR.find(selector, root) if selector else []


def _words_besides_text(node: LexborNode) -> str:
    """Return words that an element shows or says besides its text: of ``alt``, ``value``, icons, files."""
    tag, attributes = node.tag, node.attributes
    if tag == "iframe":
        source = attributes.get("src") or ""
        words = [attributes.get("title") or "", _file_of(source) if "/embed/" in source else ""]
        inner = LexborHTMLParser(attributes.get("srcdoc") or "").root
        if inner is not None:
            for hidden in _SELECTOR.find(_NEVER_TEXT, inner):
                hidden.decompose()
            words.append(inner.text(separator=" ", strip=True))
        return " ".join(words).strip()
    words = [attributes.get(_SAID_BY.get(tag or "", "")) or ""]
    if tag == "input" and (attributes.get("type") or "text").lower() not in _UNSEEN_INPUTS:
        words.append(attributes.get("value") or attributes.get("placeholder") or "")
    if tag == "input" and attributes.get("type") == "image":
        words.append(attributes.get("alt") or "")
    if (tag == "input" and "checked" in attributes) or attributes.get("aria-checked") == "true":
        words.append("checked")
    role = attributes.get("role")
    if role in ("progressbar", "meter") and not node.text(strip=True):
        words.append(attributes.get("aria-valuetext") or attributes.get("aria-valuenow") or "")
    if "aria-label" in attributes and (role == "img" or (tag != "input" and not node.text(strip=True))):
        words.append(attributes["aria-label"] or "")
    if tag in ("object", "embed", "video", "audio", "source"):
        words.append(_target(attributes.get("data") or attributes.get("src") or "", ""))
    words.append(_protected_address(attributes))
    if tag in ("i", "span") and node.child is None:
        words.append(attributes.get("title") or _icon_name(node))
    if tag == "a":
        words.append(_target(attributes.get("href") or "", node.text(), "download" in attributes))
    if tag in ("del", "s", "strike"):
        words.append("struck")
    if tag == "option" and "selected" in attributes and not _names_day(node.text(strip=True)):
        words.append("selected")
    if node.child is None:
        words += [attributes.get(name) or "" for name in _OFFER_DATA]
    if tag == "meta" and "property" in attributes:
        words.append(attributes.get("content") or "")
    elif not _OFFER.isdisjoint((attributes.get("itemprop") or "").split()):
        words.append((attributes.get("content") or attributes.get("href") or "").rpartition("/")[2])
    elif not _EVENT_PROPERTIES.isdisjoint((attributes.get("itemprop") or "").split()):
        words.append(DATED + (attributes.get("content") or ""))
    if "disabled" in attributes or attributes.get("aria-disabled") == "true":
        words.append("disabled")
    return " ".join(words).strip()


def _protected_address(attributes: dict[str, str | None]) -> str:
    """Return the mail address that Cloudflare shows by a script, encoded with another key at each visit."""
    code = attributes.get("data-cfemail") or (attributes.get("href") or "").partition("email-protection#")[2]
    if not code:
        return ""
    try:
        key, *encoded = bytes.fromhex(code)
    except ValueError:
        return ""
    return bytes(key ^ byte for byte in encoded).decode("utf-8", "replace")


def _icon_name(icon: LexborNode) -> str:
    """Return what an icon's classes say: all of them if it is alone in a cell, else suffixes.

    The suffix of "dot dot--down" is "down".
    """
    above = icon.parent
    names = [*islice(names_of(icon.attributes.get("class")), _MOST_ICON_NAMES)]
    if above is None or above.tag in ("a", "button") or not names:
        return ""
    if above.tag == "td" and not above.text(strip=True):
        return " ".join(name for name in names if not any(map(str.isdigit, name)))
    if icon.tag == "i":  # "check" of "fas fa-check"
        names += [name.partition("-")[0] for name in names]
    longest = (
        max((base for base in names if name.startswith((f"{base}-", f"{base}_"))), default="", key=len)
        for name in names
    )
    return " ".join(name[len(base) :].lstrip("-_") for name, base in zip(names, longest, strict=True) if base)


def _target(href: str, text: str, is_download: bool = False) -> str:
    """Return the file, mail address or phone number that a link's text lacks; "" for links to pages."""
    scheme, _, address = href.partition(":")
    if "//wa.me/" in href:
        scheme, address = "tel", href.partition("//wa.me/")[2]
    if scheme.lower() in ("mailto", "tel", "sms"):
        address = unquote(address.partition("?")[0])
        said = "".join(filter(str.isalnum, text)).lower()
        return "" if "".join(filter(str.isalnum, address)).lower() in said else address
    if scheme.lower() in ("blob", "data", "javascript"):
        return ""
    name = _STAMP.sub("", _file_of(href))
    return name if (is_download or _is_file(name)) and name not in text else ""


def _is_file(name: str) -> bool:
    return name.lower().rpartition(".")[2] in _FILES


_STAMP: Final = re.compile(r"[0-9]{10,}")
"""Digits such as a Unix time in the name of a file that is made at each visit."""


def _file_of(url: str) -> str:
    return unquote(url.partition("?")[0].partition("#")[0].rpartition("/")[2])


def _names_day(text: str) -> bool:
    """Whether an option's text is a day, month or hour: forms often select that of the visit."""
    return any(map(str.isdigit, text)) or is_moment(f"1 {text}")


def _is_moment(node: LexborNode, naming: "_Naming") -> bool:
    """Whether an element is a clock: its name says time, and its text is only a time ("2h", "10.11.26").

    The sign `DATED` is put before a date that is a statement of the page, and so no clock.
    """
    tag, attributes = node.tag, node.attributes
    if tag in ("html", "body", "td", "th", "dd") or node.parent is None:
        return False
    if tag == "time":
        if (attributes.get("datetime") or "").startswith(("P", "p")):  # a duration
            return False
        if states_date(node.text(strip=True)) and names_time(_text_before(node)):
            node.insert_before(DATED)
            return False
    elif naming.is_count:
        return _COUNT.fullmatch(node.text(strip=True)) is not None
    elif not naming.is_moment:
        return False
    if any(map(_DATED_NAME.search, names_of(attributes.get("class"), attributes.get("itemprop")))):
        node.insert_before(DATED)
        return False
    text = node.text(separator=" ", strip=True)
    if text.startswith(CLOCK_BEGIN):  # within a line that is marked
        return False
    if _is_in_sentence(node, text):
        node.insert_before(DATED)
        return False
    return len(text) <= _LONGEST_MOMENT and is_moment(text)


def _text_before(node: LexborNode) -> str:
    """Return the text of the element before a node, or before its parent if it is the first there."""
    for one in (node, node.parent):
        before = None if one is None else one.prev
        for _ in range(_MOST_EMPTY):
            if before is None:
                break
            if text := before.text(strip=True):
                return text
            before = before.prev
    return ""


_MOST_EMPTY: Final = 4


def _mark_clock(node: LexborNode) -> None:
    node.insert_before(CLOCK_BEGIN)
    node.insert_after(CLOCK_END)


def _is_in_sentence(node: LexborNode, text: str) -> bool:
    """Whether an element with this text is a date within a sentence, such as the bold day of a meeting."""
    if len(text) > _LONGEST_MOMENT or not states_date(text):
        return False
    siblings = (one for one in (node.prev, node.next) if one is not None and one.tag == "-text")
    sentence = " ".join(sibling.text_content or "" for sibling in siblings)
    return is_prose(sentence) and not says_update(sentence)


def _excessive_reasons(left_out: list[LeftOut], remaining: str) -> set[str]:
    """Return the reasons that would each leave out a third of the page's text, or all that remains of it."""
    sizes: dict[str, int] = {}
    for reason, text in left_out:
        sizes[reason] = sizes.get(reason, 0) + len(text)
    total, size = sum(sizes.values()), len(remaining.strip())
    # Characters, which cost nothing to count and are fair to scripts without spaces.
    return {reason for reason, taken in sizes.items() if taken and size <= max(3 * taken - total, 0)}


def _take_out(
    document: LexborNode, source: bytes, markup: _Markup, kept_reasons: frozenset[str]
) -> Iterator[LeftOut]:
    """Remove the outermost uncompared elements, but for `kept_reasons`, from the tree; yields their texts."""
    taken: set[int] = set()
    inside: dict[int, bool] = {}
    in_main: dict[int, bool] = {}
    nodes = []
    selectors = markup.selectors(_CANDIDATES_BY_TAG, _CANDIDATES_BY_ATTRIBUTE)
    for attribute, pattern in _NAMES.items():
        values = b" ".join({*pattern.findall(markup.source)}).replace(attribute.encode() + b"=", b" ")
        names = {*values.translate(_NO_QUOTES).split()}
        # In an order that every process has: of more names, each would take others.
        meaningful = sorted(filter(_has_meaning, names))[:_MOST_NAMES]
        selectors += [f'[{attribute}~="{name.decode()}"]' for name in meaningful]
    labels = {label for pattern in _LABELS for label in pattern.findall(markup.source)}
    named = [(name.decode(), value.decode("utf-8", "replace")) for name, value in labels]
    selectors += [f'[{name}="{value}"]' for name, value in named if _is_ad_attribute((name, value))]
    selectors += [f"[{attribute.decode()}]" for attribute in set(_AD_ATTRIBUTE.findall(markup.source))]
    candidates = [(_reason(node), node) for node in _find(selectors, document)]
    has_role = b"role" in markup.attributes  # to ask for the attributes of an element takes long
    mains = {node.mem_id for _, node in candidates if _is_main(node, has_role)}
    has_hidden = any(reason == HIDDEN for reason, _ in candidates)
    shown_ids = {*_SHOWN_ID.findall(markup.source)} if has_hidden else set[bytes]()
    reasons = {node.mem_id: reason for reason, node in candidates} if has_hidden else {}
    for number, (reason, node) in enumerate(candidates):
        if reason == HIDDEN and _is_opened(node, shown_ids, reasons):
            candidates[number] = (None, node)
        elif reason is None:
            _mark_named(node)
    if b"ookie" in source and all(reason != CONSENT for reason, _ in candidates):
        candidates += [(CONSENT, node) for node in _notices(document)]
    around_headlines = set[int]()
    if any(reason == SIDEBAR for reason, _ in candidates):
        for headline in _SELECTOR.find("h1", document)[:_MOST_PARTS]:
            around_headlines.update(one.mem_id for one in _ancestors(headline))
    for reason, node in candidates:
        if (
            reason is None
            or reason in kept_reasons
            # A note of documentation; a box of the whole page.
            or (
                reason == SIDEBAR
                and (node.mem_id in around_headlines or (mains and _is_inside(node, mains, in_main)))
            )
        ):
            continue
        if not (taken and _is_inside(node, taken, inside)):
            taken.add(node.mem_id)
            nodes.append((reason, node))
    for reason, node in nodes:
        if text := node.text(separator=" ", strip=True):
            yield LeftOut(reason, text)
        node.decompose()


def _is_opened(node: LexborNode, shown_ids: set[bytes], reasons: dict[int, str | None]) -> bool:
    """Whether a hidden element is shown by a click on a tab or button in the page's text."""
    attributes = node.attributes
    role, identity = attributes.get("role") or "", attributes.get("id") or ""
    if role == "tabpanel" or attributes.get("hidden") == "until-found":
        return True
    if role not in ("", "region") or node.tag in ("ul", "nav", "form", "dialog"):
        return False
    return (
        (identity.encode() in shown_ids or _is_unfolded(node, reasons))
        and _OVERLAY_NAME.search(" ".join(names_of(attributes.get("class"), identity))) is None
        and not _SELECTOR.find("nav,form,dialog,[role=dialog],[role=menu]", node)
    )


def _is_unfolded(node: LexborNode, reasons: dict[int, str | None]) -> bool:
    """Whether a click on the element before a hidden one shows it: a question, a spoiler, or another tab."""
    elements = (one for one in _siblings(node, ("prev",)) if not (one.tag or "-").startswith("-"))
    before = [*islice(elements, _MOST_ANSWERS)]
    header = next((one for one in before if reasons.get(one.mem_id) != HIDDEN), None)
    if header is None or header.tag in ("ul", "ol", "table", "form", "nav"):
        return False
    classes = (set((one.attributes.get("class") or "").split()) for one in (before[0], node))
    if not set.isdisjoint(*classes):
        return True
    text = header.text(strip=True)
    is_question = header.tag != "p" or text.endswith(_QUESTION_SIGNS)
    return is_question and 0 < len(text) <= _LONGEST_QUESTION and reasons.get(header.mem_id) is None


_MOST_ANSWERS: Final = 4  # hidden elements behind one question
_LONGEST_QUESTION: Final = 160  # characters
_QUESTION_SIGNS: Final = ("?", "？", "؟")


def _mark_named(node: LexborNode) -> None:
    """Mark what an element's class names: a state by words; counters, dates of events, clocks by signs."""
    naming = _naming(node.attributes.get("class"))
    if naming.states and node.tag not in _ROOTS:
        node.insert_before(f" {naming.states} ")
    elif naming.is_line:
        nodes = islice(node.traverse(include_text=True), MOST_LABELLED)
        for part in [one for one in nodes if one.tag == "-text"]:
            if _COUNTER_OF_LINE.fullmatch(part.text_content or "") is not None:
                _mark_clock(part)
    elif naming.is_event and node.tag not in _ROOTS and len(node.text()) <= _LONGEST_EVENT:
        nodes = islice(node.traverse(include_text=True), MOST_LABELLED)
        for part in [one for one in nodes if one.tag == "-text"]:
            text = (part.text_content or "").lstrip()
            if len(text) <= _LONGEST_MOMENT and (text[:1].isdigit() or states_date(text)):
                part.insert_before(DATED)
    elif _is_moment(node, naming):
        _mark_clock(node)


def _is_inside(node: LexborNode, ids: set[int], known: dict[int, bool]) -> bool:
    """Whether an element is within one of those with these ids; ``known``: cache of answers for parents."""
    path: list[int] = []
    parent = node.parent
    while parent is not None and parent.mem_id not in ids and parent.mem_id not in known:
        path.append(parent.mem_id)
        parent = parent.parent
    answer = parent is not None and (parent.mem_id in ids or known[parent.mem_id])
    known.update(dict.fromkeys(path, answer))
    return answer


def _reason(node: LexborNode) -> str | None:
    tag, attributes = node.tag, node.attributes
    if tag in _ROOTS:
        return None
    role = (attributes.get("role") or "").lower()
    reason = _naming(attributes.get("class")).reason or _naming(attributes.get("id")).reason
    if reason == _LINKED_PAGES:
        within = islice(node.traverse(), _MOST_WITH_LINK)  # to search nested ones would take their square
        reason = OTHER_PAGES if any(one.tag == "a" for one in within) else None
    if reason is not None:
        return reason
    if tag in ("amp-ad", "amp-embed") or any(map(_is_ad_attribute, attributes.items())):
        return ADVERTISEMENT
    style = (attributes.get("style") or "").replace(" ", "").lower()
    is_closed = tag == "dialog" and "open" not in attributes
    if is_closed or "hidden" in attributes or "display:none" in style:
        return HIDDEN
    if tag == "nav" or role == "navigation":
        return NAVIGATION
    if role == "contentinfo" or (tag == "footer" and _is_near_body(node, 2)):
        return FOOTER
    if tag == "aside" or role == "complementary":
        return SIDEBAR
    return None


@lru_cache(4096)
def _is_ad_attribute(attribute: tuple[str, str | None]) -> bool:
    name, value = attribute
    if name == "aria-label":
        return _is_ad_label(value or "")
    if re.fullmatch(_NAMING, name):
        return _names_ad(value or "")
    return name.startswith("data-") and _AD_ATTRIBUTE.match(f"{name}=".encode()) is not None


def _is_ad_name(name: str) -> bool:
    short = _AFFIXES.sub("", name)
    return bool(_AD_NAME.fullmatch(name) or (short != name and _AD_NAME.fullmatch(short)))


def _names_ad(value: str) -> bool:
    """Whether a value of ``data-testid`` or so names an advertisement; "ad" alone names a classified one."""
    return any(len(name) > 3 and _is_ad_name(name) for name in names_of(value))


def _is_ad_label(label: str) -> bool:
    label = label.strip().lower()
    return _REASON_OF_LABEL.get(label) == ADVERTISEMENT or label.startswith(("advert", "sponsored"))


def _take_out_labelled(document: LexborNode, kept_reasons: frozenset[str]) -> Iterator[LeftOut]:
    """Remove lists of other pages under a heading, and advertisements under a label; yields their texts.

    A label is an element's whole text. A time that is an element's whole text is marked as a clock.
    """
    topics = _topics(document)
    labels: list[tuple[str, LexborNode]] = []
    alone: list[LexborNode] = []
    weekdays: list[LexborNode | None] = []
    is_head = True
    for node in document.traverse(include_text=True, skip_empty=True):
        if node.tag != "-text":
            is_head = is_head and node.tag not in ("h1", "main", "article")
            continue
        text = (node.text_content or "").strip()
        if not text or len(text) > _LONGEST_MOMENT:
            continue
        label = text.lower().rstrip(":： ")
        if label in WEEKDAYS:
            weekdays.append(node if is_head else None)
        elif (reason := _REASON_OF_LABEL.get(label)) is not None:
            if reason not in kept_reasons and label not in topics:
                labels.append((reason, node))
        elif label in RECENT or _is_count(text):
            alone.append(node)
    if len(weekdays) == 1 and weekdays[0] is not None:  # the day in a page's head, no hours of opening
        alone.append(weekdays[0])
    for node in alone:
        is_link = node.parent is None or node.parent.tag in ("a", "option")
        if not is_link or (node.text_content or "")[:1].isdigit():
            _mark_clock(node)
    yield from _take_out_below(labels)


def _topics(document: LexborNode) -> str:
    return " ".join(node.text() for node in _SELECTOR.find("title,h1", document)[:10]).lower()


def _take_out_below(labels: list[tuple[str, LexborNode]]) -> Iterator[LeftOut]:
    for reason, node in labels[:_MOST_NAMES]:
        for part in _labelled(node, reason == ADVERTISEMENT):
            yield LeftOut(reason, part.text(separator=" ", strip=True))
            part.decompose()


def _take_out_similar(document: LexborNode, markup: _Markup) -> Iterator[LeftOut]:
    """Remove lists of links under a heading such as "Similar jobs", unless to files; yields their texts."""
    if "h" not in markup.tags:  # digits are no part of these names
        return
    labels = []
    for heading in _SELECTOR.find("h2,h3,h4,h5,h6", document):
        text = heading.text(strip=True).lower().replace("i\u0307", "i")  # of a Turkish capital
        if len(text) <= _LONGEST_HEADING and (
            (words := _SIMILAR.intersection(text.split()))
            or (not text.isascii() and _SIMILAR_SIGNS.search(text) is not None)
        ):
            labels.append((words, heading))
    if labels:
        topics = _topics(document)
        about_others = [
            (OTHER_PAGES, heading) for words, heading in labels if not any(word in topics for word in words)
        ]
        yield from _take_out_below(about_others)


def _mark_dates(document: LexborNode, markup: _Markup) -> None:
    """Mark dates in bold, lists of values and tables as statements, counts of views as clocks, by labels."""
    nodes = _find(markup.selectors(_DATES_BY_TAG, {}), document)
    values, tables = ([node for node in nodes if node.tag == tag] for tag in ("dd", "table"))
    for node in [node for node in nodes if node.tag not in ("dd", "table")][:_MOST_ROWS]:
        if _is_in_sentence(node, node.text(strip=True)):
            node.insert_before(DATED)
    for value in values[:_MOST_ROWS]:
        label = value.prev
        while label is not None and label.tag != "dt":
            label = label.prev
        _mark_value([value] if label is None else [label, value], len(values) >= _FEWEST_VALUES)
    for table in tables[:_MOST_TABLES]:
        rows = _SELECTOR.find("tr", table)
        heads = [cell.text(strip=True) for cell in _cells(rows[0])] if rows else []
        if len(rows) < 2 or any(cell.tag != "th" for cell in _cells(rows[0])):
            cells_of_rows = [cells for row in rows[:_MOST_ROWS] if (cells := _cells(row))]
            for cells in cells_of_rows:
                _mark_value(cells, len(rows) >= _FEWEST_VALUES)
            continue
        first = [cell.text(separator=" ", strip=True) for cell in _cells(rows[1])]
        marked: dict[int, bool] = {}
        for at, (head, text) in enumerate(zip(heads, first, strict=False)):
            if (head.lower() in VIEWS or head.lower() in _COUNTED) and _COUNT.fullmatch(text):
                marked[at] = False
            elif _is_stated(head, text, is_list=True):
                marked[at] = True
        for row in rows[1:_MOST_ROWS] if marked else ():
            cells = _cells(row)
            for at, is_statement in marked.items():
                inner = cells[at].child if at < len(cells) else None
                if inner is not None and is_statement:
                    inner.insert_before(DATED)
                elif inner is not None and _COUNT.fullmatch(cells[at].text(strip=True)):
                    _mark_clock(inner)


def _mark_value(cells: list[LexborNode], is_list: bool) -> None:
    """Mark the second of two cells by the label in the first: a date as statement, views as clock."""
    if len(cells) != 2 or (inner := cells[1].child) is None:
        return
    text = cells[1].text(separator=" ", strip=True)
    if len(text) > _LONGEST_MOMENT or not any(map(str.isdigit, text)):
        return
    label = cells[0].text(separator=" ", strip=True)
    if label and _is_stated(label, text, is_list):
        inner.insert_before(DATED)
    elif label and _COUNT.fullmatch(text) is not None:
        label = label.lower()
        if label in VIEWS or is_counter(f"{label}: {text}"):
            _mark_clock(inner)


def _is_stated(label: str, text: str, is_list: bool) -> bool:
    """Whether a cell's text is a time or date that is a statement, by its label and by being in a list."""
    is_time = _TIME_CELL.match(text) is not None
    if not is_time and _YEAR.search(text) is None and not is_moment(text):
        return False
    return (is_list and names_time(label)) or not says_update(label)


_TIME_CELL: Final = re.compile(r"[0-2]?\d\s?[:h時时시][0-5]?\d?")
_FEWEST_VALUES: Final = 3


def _cells(row: LexborNode) -> list[LexborNode]:
    return [cell for cell in row.iter() if cell.tag in ("td", "th")]


def _is_count(text: str) -> bool:
    """Whether a text is just a number of comments or likes; a date such as 10-11-26 counts as one."""
    if not (text[0].isdigit() or text[0] in _COUNT_SIGNS):
        return False
    if (count := _COUNT_ALONE.match(f"{SEPARATOR}{text}{SEPARATOR}")) is None or count.end() <= len(text):
        return False
    return count[1] is not None or all(word in _COUNTED for word in _COUNTED_WORD.findall(text.lower()))


def _labelled(label: LexborNode, is_ad: bool) -> list[LexborNode]:
    """Return the elements to which a label belongs: a list of links to other pages, or a short ad."""
    size = len((label.text_content or "").strip() if label.tag == "-text" else label.text(strip=True))
    heading = label
    while (above := heading.parent) is not None and len(above.text(strip=True)) == size:
        if above.tag in ("a", "button", "option", "body", "html"):
            return []
        heading = above
    parts: list[LexborNode] = []
    sibling, block = heading.next, ""
    while sibling is not None and len(parts) < MOST_LABELLED and sibling.tag not in HEADINGS:
        text = sibling.text(strip=True)
        if text:
            if sibling.tag == "-text" or (parts and (block in _LISTS or sibling.tag != block)):
                break
            parts.append(sibling)
            block = sibling.tag or ""
            links = [sibling] if sibling.tag == "a" else _SELECTOR.find("a", sibling)
            if len(text) > (_LONGEST_AD if is_ad else _LONGEST_LINK * len(links)):
                return []
            if not is_ad and any(_is_file(_file_of(link.attributes.get("href") or "")) for link in links):
                return []
        sibling = sibling.next
    # A script fills the place of an ad: what follows in the source is the page's own text.
    if is_ad and not all(map(_is_menu, parts)):
        taken = size + sum(len(part.text(strip=True)) for part in parts)
        return parts if above is not None and len(above.text(strip=True)) == taken else []
    return parts


def _notices(document: LexborNode) -> Iterator[LexborNode]:
    """Yield elements with a short text about cookies and a button, at the top of the body or in dialogs."""
    dialogs = _SELECTOR.find("dialog,[role*=dialog]", document)[:_MOST_DIALOGS]
    others = _SELECTOR.find("body>div,body>section,body>div>div", document)
    for number, node in enumerate((*dialogs, *others)):
        text = node.text()
        if (
            len(text) <= _LONGEST_NOTICE
            and _COOKIES.search(text.lower()) is not None
            and (
                number < len(dialogs)
                or _SELECTOR.find("button,[role=button],input[type=submit],a[href='#']", node)
            )
        ):
            yield node


_MEANINGS: Final = (_META_NAME, _COUNT_NAME, _MOMENT_NAME, _EVENT_NAME)


class _Naming(NamedTuple):
    """Meanings of the classes or the id of an element."""

    reason: str | None
    """Reason to leave its text out; None: no reason."""
    states: str
    """Those of its names that say whether something is available: a size sold out, a day booked."""
    is_line: bool
    """Whether it is a line below a headline, with author, date and counters."""
    is_count: bool
    is_moment: bool
    is_event: bool


@lru_cache(16384)
def _naming(classes: str | None) -> _Naming:
    names = [*names_of(classes)]
    return _Naming(
        next(filter(None, map(_reason_of_name, names)), None),
        " ".join(filter(_STATE_NAME.fullmatch, names)),
        *(any(map(pattern.fullmatch, names)) for pattern in _MEANINGS),
    )


@lru_cache(16384)
def _has_meaning(name: bytes) -> bool:
    text = name.decode("utf-8", "replace")
    return not any(sign in text for sign in '"\\\ufffd') and any(_naming(text))


def _reason_of_name(name: str) -> str | None:
    if _is_ad_name(name):
        return ADVERTISEMENT
    if _CONSENT_NAME.fullmatch(name):
        return CONSENT
    if _OTHER_PAGES_NAME.fullmatch(name):
        return _LINKED_PAGES if name in ("related", "recommended") else OTHER_PAGES
    return SIDEBAR if _STRIP_NAME.fullmatch(name) else None


def names_of(*attributes: str | None) -> Iterator[str]:
    """Yield the names in values of class or id, in lower case, with hyphens in place of camel case."""
    for attribute in attributes:
        if attribute:
            lower = attribute if attribute.islower() else _CAMEL.sub("-", attribute).lower()
            yield from (name for name in lower.split() if len(name) <= _LONGEST_NAME)


def _is_main(node: LexborNode, has_role: bool) -> bool:
    return node.tag in _MAIN_BY_TAG or (has_role and node.attributes.get("role") == "main")


def _is_near_body(node: LexborNode, depth: int) -> bool:
    """Whether an element is at most `depth` levels below the body, with only ``div`` between."""
    parent = node.parent
    for _ in range(depth):
        if parent is None or parent.tag == "body":
            return True
        if parent.tag != "div":
            return False
        parent = parent.parent
    return False


def _main_part(
    document: LexborNode, markup: _Markup, text: str, left_out: list[LeftOut]
) -> tuple[str, tuple[LexborNode, ...]]:
    """Return text and elements of main part, title and alerts, or of the page if too much is outside.

    Text outside is added to `left_out`.
    """
    nodes = _find(markup.selectors(_ROOT_BY_TAG, _ROOT_BY_ATTRIBUTE), document)
    has_role = b"role" in markup.attributes
    all_mains = [node for node in nodes if _is_main(node, has_role)]
    mains = [one for one in all_mains if one.tag != "article" or one.attributes.get("role") == "main"]
    mains = mains or all_mains
    if len(mains) != 1:
        return text, (document,)
    title = next((node for node in nodes if node.tag == "title"), None)
    main_ids, inside = {main.mem_id for main in all_mains}, dict[int, bool]()
    alerts = [node for node in nodes if node.tag != "title" and not _is_main(node, has_role)][:_MOST_PARTS]
    alerts = [node for node in alerts if not _is_inside(node, main_ids, inside)]
    roots = (*([] if title is None else [title]), *alerts, *_before_main(mains[0]), mains[0])
    texts = [root.text(separator=SEPARATOR, strip=True) for root in roots]
    size = len(text) - sum(map(len, texts))
    total = len(text) + sum(len(one.text) for one in left_out)
    if size <= len(roots) or size * 3 >= total or size * 2 >= len(text):
        return text, (document,)
    outside = text
    for one in texts[::-1]:
        outside = _without(outside, one)
    left_out.append(LeftOut(OUTSIDE, outside.replace(SEPARATOR, " ")))
    return SEPARATOR.join(texts), roots


def _take_out_head(document: LexborNode, markup: _Markup) -> Iterator[LeftOut]:
    """Remove headers before the likely main part of a page that marks none; yields their texts.

    The main part is likely the smallest element with the headline and two thirds of the text outside links.
    """
    if not markup.tags.isdisjoint(("main", "article")) or not any(name in markup.lower for name in _HEADS):
        return
    if b"role" in markup.attributes and _SELECTOR.find("[role=main]", document):
        return
    body = document.css_first("body")
    headline = next((h1 for h1 in _SELECTOR.find("h1", document) if not _SELECTOR.find("a", h1)), None)
    if body is None or headline is None:
        return
    node, missing = headline, 2 * _unlinked_size(body) / 3 - _unlinked_size(headline)
    for above in _ancestors(headline):
        if missing > 0:
            missing -= sum(map(_unlinked_size, _siblings(node)))
        elif above.tag != "html":
            for part in [one for one in _siblings(node, ("prev",)) if not (one.tag or "-").startswith("-")]:
                names = names_of(*map(part.attributes.get, ("class", "id", "role")))
                is_header = part.tag == "header" or any(map(_HEAD_NAME.fullmatch, names))
                if is_header and not _SELECTOR.find("[role=alert],[role=status]", part):
                    yield LeftOut(SIDEBAR, part.text(separator=" ", strip=True))
                    part.decompose()
        node = above


_HEADS: Final = (b"header", b"masthead", b"toolbar", b"branding", b"banner")
_HEAD_NAME: Final = re.compile(rf"(?:(?:site|page|main|global)[-_]?)?(?:{b'|'.join(_HEADS).decode()})")


def _ancestors(node: LexborNode) -> Iterator[LexborNode]:
    while (above := node.parent) is not None:
        yield above
        node = above


def _siblings(node: LexborNode, directions: Iterable[str] = ("prev", "next")) -> Iterator[LexborNode]:
    """Yield the other children of a node's parent, texts included; ``directions``: "prev", "next" or both."""
    for direction in directions:
        one = getattr(node, direction)
        while one is not None:
            yield one
            one = getattr(one, direction)


def _unlinked_size(node: LexborNode) -> int:
    """Return how many characters of a node's text are in no link."""
    if node.tag == "-text":
        return len((node.text_content or "").strip())
    links = [node] if node.tag == "a" else _SELECTOR.find("a", node)
    return len(node.text(strip=True)) - sum(len(link.text(strip=True)) for link in links)


def _before_main(main: LexborNode) -> list[LexborNode]:
    """Return the elements between the page's header and its main part: headline, notice, bar with the price.

    Menus (lists of links) are left out. If the header has the headline, it is returned, too.
    """
    parts: list[LexborNode] = []
    between: list[LexborNode] = []  # with menus, which count between a headline and its text
    node: LexborNode | None = main
    while node is not None and node.tag not in ("body", "html"):
        sibling = node.prev
        while sibling is not None and len(between) < _MOST_PARTS:
            if not (sibling.tag or "-").startswith("-"):
                headlines = [sibling] if sibling.tag == "h1" else _SELECTOR.find("h1", sibling)
                has_headline = any(not _SELECTOR.find("a", one) for one in headlines)
                if sibling.tag == "header" and not has_headline:
                    return parts[::-1]
                between.append(sibling)
                if has_headline:
                    parts = [*between]
                elif not _is_menu(sibling):
                    parts.append(sibling)
            sibling = sibling.prev
        node = node.parent
    return parts[::-1]


def _is_menu(node: LexborNode) -> bool:
    """Whether half of an element's text or more is in links."""
    return 2 * _unlinked_size(node) <= len(node.text(strip=True))


def _without(text: str, passage: str) -> str:
    """Return a text without the first occurrence of a passage, in time linear in the length of the text."""
    head, at = passage[:64], text.find(passage[:64])
    while at >= 0 and not text.startswith(passage, at):
        at = text.find(head, at + 1)
    return text if at < 0 or not passage else f"{text[:at]} {text[at + len(passage) :]}"


def _data(html: str) -> Iterator[str]:
    """Yield the data of an application's page as texts: JSON-LD, and the initial state in its scripts."""
    root = LexborHTMLParser(html).root
    if root is None:
        return
    for node in root.css("script:not([src])"):
        yield from script_data(node.text())
    for node in root.css("body *")[:_MOST_ELEMENTS_WITH_DATA]:
        for value in node.attributes.values():
            if value and value[0] in "{[":
                yield from script_data(value)


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

_BYTE_OF_SIGN: Final = {
    ord(sign): byte for byte in range(0x80, 0xA0) for sign in bytes([byte]).decode("cp1252", "ignore")
}
"""Code point of a character of windows-1252 -> its byte, from 0x80 to 0x9f."""
_LATER: Final = "\x80-\xbf" + "".join(map(chr, _BYTE_OF_SIGN))
_ENCODED_TWICE: Final = re.compile(f"[\xc2-\xf4][{_LATER}][\xc2-\xf4{_LATER}]*")
_MAYBE_TWICE: Final = re.compile(rb"\xc3[\x82-\xb4][\xc2\xc5\xc6\xcb\xe2]")
"""Beginning of `_ENCODED_TWICE` in UTF-8, which a search finds in a quarter of the time."""


def source_of(response: TextResponse, most_bytes: int) -> str:
    """Return the source of a page, at most its first `most_bytes` bytes, decoded.

    Bytes that are UTF-8 are read as that, whatever a header or the page declares: texts in other charsets
    hardly ever are. Where the header's charset does not fit, that of the page's ``meta`` is tried. Text that
    was encoded twice is decoded twice. Zero bytes, as of undeclared UTF-16, are left out, as by browsers.
    """
    body = response.body[:most_bytes]
    if len(body) < len(response.body):
        response = response.replace(body=body)
    try:
        text, declared = response.text, response.encoding
    except (LookupError, ValueError):  # a charset that is known and is none of text, such as hex_codec
        return body.decode("utf-8", "replace")
    others = []
    # ASCII without zero bytes is no UTF-16, whatever it says of itself.
    is_wide = declared.startswith(("utf-16", "utf-32")) and b"\0" not in body
    if declared != "utf-8" and (is_wide or not body.isascii()):
        others.append("utf-8-sig")
    if "\ufffd" in text:
        others.append(html_body_declared_encoding(body[:4096]) or declared)
    text = next((other for charset in others if (other := _decoded(body, charset)) is not None), text)
    if b"\xc3" in body and _MAYBE_TWICE.search(text.encode("utf-8", "ignore")) is not None:
        text = _ENCODED_TWICE.sub(_encoded_once, text)
    return text.replace("\0", "")


def _encoded_once(run: re.Match[str]) -> str:
    """Return the correct text of a run that is UTF-8 decoded as windows-1252; other runs as they are."""
    try:
        return run[0].translate(_BYTE_OF_SIGN).encode("latin-1").decode()
    except ValueError:
        return run[0]


def _decoded(body: bytes, charset: str) -> str | None:
    try:
        return codecs.getincrementaldecoder(charset)().decode(body)
    except (LookupError, ValueError):
        return None
