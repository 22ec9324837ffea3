"""Compared content of any response: HTML, JSON, JSON Lines, CSV, XML, feeds, PDF, plain text, other bytes.

JSON counts by value: the order of keys is no change, the order of rows is. XML counts with its attributes.
Nothing here raises on any body.
"""

import csv
import io
import re
from collections.abc import Iterator
from importlib.util import find_spec
from itertools import chain, repeat
from typing import Any, Final, NamedTuple

from lxml import etree
from scrapy.http import HtmlResponse, Response, TextResponse, XmlResponse

from scrapy_gp4c.fingerprint.data import calendar_text, data_text, dated_text, is_clock, is_noise_of_answer
from scrapy_gp4c.fingerprint.text import (
    MAX_SOURCE_BYTES,
    SEPARATOR,
    Content,
    html_content,
    source_of,
    without_markup,
    without_scripts,
)
from scrapy_gp4c.words.masking import DATED, marked_prose

READS_PDF: Final = find_spec("pypdf") is not None
MAX_TEXT_CHARACTERS: Final = 2**20
"""Longest compared text, in characters; of a longer one the head is compared."""
PDF_MAGIC: Final = b"%PDF-"
MAX_PDF_BYTES: Final = 2**24
MAX_PDF_PAGES: Final = 500
_TEXT_TYPE: Final = re.compile(rb"^text/|json|\bcsv|xml|yaml|javascript|x-sh\b|toml")
_PDF_CLOCKS: Final = re.compile(
    rb"/(?:CreationDate|ModDate|M)\s*\([^()]{0,60}\)|/ID\s*\[[^\]]{0,200}\]"
    rb"|<(xmp:\w*Date|xmpMM:\w*ID|pdf:\w*Date)>[^<]{0,200}</\1>"
)

_CSV_QUOTED: Final = re.compile(r'"[^"]*"')
_FEED_NOISE: Final = (
    "generator",
    "lastBuildDate",
    "{http://www.w3.org/2005/Atom}generator",
    "{http://purl.org/rss/1.0/modules/slash/}comments",
    "{http://purl.org/syndication/thread/1.0}total",
    "{http://search.yahoo.com/mrss/}statistics",
    "{http://search.yahoo.com/mrss/}starRating",
)
"""Elements of feeds that are not compared: counts of comments and views, the program, the time of its run."""

_FILE_LISTS: Final = ("ListBucketResult", "EnumerationResults", "multistatus")
"""Root elements of file lists (S3, Azure, WebDAV), where only a date shows a file's new version."""
_DAY: Final = len("2026-11-28")


class Answer(NamedTuple):
    """Compared text of a response, or its bytes if it has none."""

    kind: str
    """One of `KINDS` of `scrapy_gp4c.fingerprint`, but ``features``."""
    content: Content
    data: bytes | None = None
    """Compared bytes of a response that is no text; None: its text is compared."""
    is_cut: bool = False
    """Whether only the head of a long text is compared."""


def answer(response: Response, root: str | None = None) -> Answer:
    """Return what is compared of a response; ``root`` as in `scrapy_gp4c.fingerprint.text.html_content`."""
    body = response.body
    if body.startswith(PDF_MAGIC):
        return _pdf(body)
    if not is_text(response):
        return bytes_of(response)
    if not isinstance(response, TextResponse):
        # Scrapy knows only some of the types that are text.
        response = TextResponse(response.url, body=body, headers=response.headers)
    kind, content, is_cut = _text_content(response, root)
    if len(content.text) > MAX_TEXT_CHARACTERS:
        content, is_cut = content._replace(text=content.text[:MAX_TEXT_CHARACTERS]), True
    return Answer(kind, content, None, is_cut)


def is_text(response: Response) -> bool:
    """Whether a response is read as text, by its class or Content-Type."""
    return isinstance(response, TextResponse) or _TEXT_TYPE.search(_content_type(response)) is not None


def bytes_of(response: Response) -> Answer:
    """Return the compared content of a response of which only the bytes count."""
    return Answer("bytes", Content("", (), bool(response.body)), response.body)


def html_source(response: HtmlResponse) -> str:
    """Return the source of an HTML page, without scripts if it is long."""
    source = source_of(response, MAX_SOURCE_BYTES)
    return without_scripts(source) if len(source) > MAX_TEXT_CHARACTERS else source


def page_text(response: Response, root: str | None = None) -> str:
    """Return the compared text of a response (`root` as for `answer`); "" if its bytes are compared."""
    return answer(response, root).content.text


def _text_content(response: TextResponse, root: str | None) -> tuple[str, Content, bool]:
    is_cut = len(response.body) > MAX_SOURCE_BYTES
    if isinstance(response, HtmlResponse):
        source = html_source(response)
        start = source[:400].lstrip()
        is_json, is_xml = start[:1] in ("{", "["), start[:5] in ("<?xml", "<rss ", "<feed")
        if not is_json and (not is_xml or "<html" in start.lower()):
            return "html", html_content(source, root), is_cut
        # Many servers send data as HTML.
    else:
        source = source_of(response, MAX_SOURCE_BYTES)
        is_xml = isinstance(response, XmlResponse)
    content_type = _content_type(response)
    kind, text = "text", source
    if is_xml:
        kind, text = "xml", _xml(source)
    elif b"csv" in content_type or content_type == b"text/tab-separated-values":
        kind, text = "csv", _csv(source, "\t" if b"tab" in content_type else None)
    elif (head := source[:200].lstrip()[:1]) and (head in "[{" or b"json" in content_type or head in ")wf/"):
        data = data_text(source)
        kind, text = ("text", source) if data is None else ("json", data)
    elif (calendar := calendar_text(source)) is not None:
        text = calendar
    if kind == "text" and text is source:
        text = marked_prose(text, "\n", "\n")
    return kind, Content(text, (), bool(text.strip())), is_cut


def _content_type(response: Response) -> bytes:
    return (response.headers.get(b"Content-Type") or b"").split(b";")[0].strip().lower()


def _csv(source: str, delimiter: str | None) -> str:
    """Return the text of a CSV table's cells, which does not depend on how they are quoted."""
    if delimiter is None:
        # csv.Sniffer takes hours for a few kB of quotes.
        head = _CSV_QUOTED.sub("", source[:4096])
        first = head.lstrip().partition("\n")[0]
        delimiter = max(",;\t|", key=lambda sign: (first.count(sign), head.count(sign)))
    rows = csv.reader(io.StringIO(source), delimiter=delimiter, skipinitialspace=True)
    try:
        header = next(rows, [])
        lines = [header, *([*map(dated_text, chain(header, repeat("")), row)] for row in rows)]
        return "\n".join(" , ".join(row) for row in lines)
    except csv.Error:
        return source


def _xml(source: str) -> str:
    """Return text and attributes of an XML document; only its text if it is damaged."""
    parser = etree.XMLParser(resolve_entities=False, no_network=True, encoding="utf-8", remove_comments=True)
    try:
        root = etree.fromstring(source.encode("utf-8", "replace"), parser)
    except (etree.XMLSyntaxError, ValueError):
        return without_markup(source)
    return marked_prose(SEPARATOR.join(_xml_pieces(root)), SEPARATOR)


def _xml_pieces(root: Any) -> Iterator[str]:
    root_name, depth = root.tag.rpartition("}")[2], 0
    is_feed = root_name in ("rss", "feed", "RDF", "urlset")
    # The days of a list's entries are its content; one day for all is that on which it was made.
    days = {(element.text or "")[:_DAY] for element in root.iter("{*}lastmod")}
    for event, element in etree.iterwalk(root, ("start", "end")):
        if event == "start":
            depth += 1
            if element.tag in _FEED_NOISE:
                continue
            attributes = element.attrib
            if attributes:
                for name, value in sorted(attributes.items()):
                    is_noise = depth == 1 and is_noise_of_answer(name, value)
                    if not is_noise and not name.endswith("schemaLocation"):
                        label = element.tag if name == "value" else name
                        yield value if is_feed else dated_text(label, value, depth > 1)
            text = element.text
            if text is not None and len(days) > 1 and element.tag.endswith("}lastmod"):
                text = DATED + text.strip()
            elif text is not None and not is_feed and not isinstance(element.tag, type(etree.Comment)):
                name, text = str(element.tag).rpartition("}")[2], text.strip()
                if root_name in _FILE_LISTS and "modified" in name.lower():
                    text = DATED + text
                else:
                    text = None if depth == 2 and is_clock(name, text) else dated_text(name, text, depth > 2)
        else:
            depth -= 1
            text = element.tail
        if text is not None and not text.isspace():
            yield without_markup(text) if "<" in text else text


def _pdf(body: bytes) -> Answer:
    """Return the text of a PDF if the extra ``pdf`` is installed, else its bytes without dates and ids."""
    if READS_PDF and len(body) <= MAX_PDF_BYTES:
        # Not before there is a PDF: its 11,000 objects are looked at by every garbage collection of a crawl.
        import pypdf

        try:
            reader = pypdf.PdfReader(io.BytesIO(body))
            pages = [page.extract_text() for page in reader.pages[:MAX_PDF_PAGES]]
        except Exception:  # pypdf raises many kinds of errors on damaged files
            pages = []
        text = "\n".join(pages)
        if text.strip():
            is_cut = len(text) > MAX_TEXT_CHARACTERS
            return Answer("pdf", Content(text[:MAX_TEXT_CHARACTERS]), None, is_cut)
    return Answer("bytes", Content("", (), bool(body)), _PDF_CLOCKS.sub(b"", body))
