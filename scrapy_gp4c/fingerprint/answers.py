"""Compared content of any answer: HTML, JSON, lines of JSON, CSV, XML, feeds, PDF, plain text, other bytes.

JSON counts by value: the order of keys is no change, the order of rows is. XML counts with its attributes.
Nothing here raises on any body.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any, Final, NamedTuple

from lxml import etree
from scrapy.http import HtmlResponse, Response, TextResponse, XmlResponse

from scrapy_gp4c.fingerprint.text import (
    MAX_SOURCE_BYTES,
    Content,
    html_content,
    source_of,
    without_markup,
    without_scripts,
)

READS_PDF: Final = find_spec("pypdf") is not None
MAX_TEXT_CHARACTERS: Final = 2**20
"""Longest compared text; of a longer one the head counts."""
PDF_MAGIC: Final = b"%PDF-"
MAX_PDF_BYTES: Final = 2**24
MAX_PDF_PAGES: Final = 500
_TEXT_TYPE: Final = re.compile(rb"^text/|json|\bcsv|xml|yaml|javascript|x-sh\b|toml")
_XSSI: Final = re.compile(r"\s*(?:\)\]\}',?|while\s?\(1\);|for\s?\(;;\);)\s*")
_JSONP: Final = re.compile(r"\s*(?:/\*\*/\s*)?[\w$.]{1,100}\(\s*(?=[\[{])")
_TRACE_KEY: Final = re.compile(
    r"(?:x[-_]?)?(?:request|trace|correlation|session|transaction|span|visitor|csrf|xsrf|nonce|server|node|instance)"
    r"[-_]?(?:id|token|uuid|key|name)?|_?token|(?:next|prev(?:ious)?|page|end|start)?[-_]?(?:cursor|token)|build[-_]?id"
    r"|signature|etag|host_?name|served_?by|generated_?by_?host",
    re.I,
)
_CLOCK_KEY: Final = re.compile(
    r"(?:server|current|response|query|generated|fetched|retrieved|cache[d]?|render(?:ed)?|process(?:ing)?|execution|"
    r"elapsed|now|exec|run|up|latency|last[-_]?(?:updated?|modified|refresh(?:ed)?|fetch(?:ed)?|sync(?:ed)?|check(?:ed)?)|expires?|took|timestamp|time_?stamp|ts|duration)"
    r"[-_]?(?:time|at|on|ms|s|sec|seconds|millis|date|stamp|timestamp|in|duration|until)?(?:[-_](?:ms|s|utc|iso))?",
    re.I,
)
_COUNT_KEY: Final = re.compile(
    r"(?:page[-_]?)?(?:views?|hits|visits|visitors|impressions|online|likes|followers)(?:[-_]?(?:count|total|number|users|now))?",
    re.I,
)
_LIMIT_KEY: Final = re.compile(r"(?:x[-_]?)?rate[-_]?limits?(?:[-_]?\w+)?", re.I)
_PDF_CLOCKS: Final = re.compile(
    rb"/(?:CreationDate|ModDate|M)\s*\([^()]{0,60}\)|/ID\s*\[[^\]]{0,200}\]"
    rb"|<(xmp:\w*Date|xmpMM:\w*ID|pdf:\w*Date)>[^<]{0,200}</\1>"
)


class Answer(NamedTuple):
    """Compared content of a response."""

    kind: str
    """One of html, json, csv, xml, pdf, text, bytes."""
    content: Content
    data: bytes | None = None
    """Compared bytes of an answer without text."""
    is_cut: bool = False
    """Whether only the head is compared."""


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
    """Tell whether a response is read as text, by its class or Content-Type."""
    return isinstance(response, TextResponse) or _TEXT_TYPE.search(_content_type(response)) is not None


def bytes_of(response: Response) -> Answer:
    """Return a response as one that is compared by its bytes."""
    return Answer("bytes", Content("", (), bool(response.body)), response.body)


def html_source(response: HtmlResponse) -> str:
    """Return the source of an HTML page, without scripts if it is long."""
    source = source_of(response, MAX_SOURCE_BYTES)
    return without_scripts(source) if len(source) > MAX_TEXT_CHARACTERS else source


def page_text(response: Response, root: str | None = None) -> str:
    """Return the compared text of a response; "" if it is compared by its bytes."""
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
        data = _json(source)
        kind, text = ("text", source) if data is None else ("json", data)
    return kind, Content(text, (), bool(text.strip())), is_cut


def _content_type(response: Response) -> bytes:
    return (response.headers.get(b"Content-Type") or b"").split(b";")[0].strip().lower()


def _json(source: str) -> str | None:
    """Text of JSON by value, of lines of JSON likewise; None of a source that is neither."""
    source = _XSSI.sub("", source, count=1)
    if (call := _JSONP.match(source)) is not None:
        source = source[call.end() :].rstrip().rstrip(";").rstrip(")")
    try:
        return _values(json.loads(source, object_pairs_hook=_object, parse_float=_number))
    except RecursionError:
        return None
    except ValueError:
        lines = source.splitlines()
    rows = []
    try:
        for line in lines:
            if line.strip():
                rows.append(_values(json.loads(line, object_pairs_hook=_object, parse_float=_number)))
    except (RecursionError, ValueError):
        return None
    return "\n".join(rows) if len(rows) > 1 else None


def _number(text: str) -> float | int | str:
    value = float(text)
    return int(value) if value.is_integer() and abs(value) < 2**53 else value


def _object(pairs: list[tuple[str, Any]]) -> Any:
    """Object without its own clock, tokens and counters; one with a key twice stays a list of pairs."""
    made: dict[str, Any] = {}
    for key, value in pairs:
        if key in made:
            return [[key, value] for key, value in pairs]
        made[key] = "\x7f" if _is_noise(key, value) else value
    return made


def _is_noise(key: str, value: object) -> bool:
    if isinstance(value, (dict, list)):
        return _LIMIT_KEY.fullmatch(key) is not None
    if _TRACE_KEY.fullmatch(key):
        return (isinstance(value, str) and len(value) >= 6) or (isinstance(value, int) and abs(value) > 10**6)
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if _CLOCK_KEY.fullmatch(key):
        return is_number or (isinstance(value, str) and value[:1].isdigit())
    return is_number and _COUNT_KEY.fullmatch(key) is not None


def _values(data: Any) -> str:
    return json.dumps(data, sort_keys=True, ensure_ascii=False, separators=(" , ", " : "))


def _csv(source: str, delimiter: str | None) -> str:
    """Text of a table by its cells, however they are quoted."""
    try:
        dialect = csv.Sniffer().sniff(source[:4096], ",;\t|") if delimiter is None else csv.excel_tab
        rows = csv.reader(io.StringIO(source), dialect, delimiter=delimiter or dialect.delimiter)
        return "\n".join(" , ".join(row) for row in rows)
    except csv.Error:
        return source


def _xml(source: str) -> str:
    """Text and attributes of an XML document, its text alone if it is damaged."""
    parser = etree.XMLParser(resolve_entities=False, no_network=True, encoding="utf-8", remove_comments=True)
    try:
        root = etree.fromstring(source.encode("utf-8", "replace"), parser)
    except (etree.XMLSyntaxError, ValueError):
        return without_markup(source)
    return " ".join(_xml_pieces(root))


def _xml_pieces(root: Any) -> Iterator[str]:
    for event, element in etree.iterwalk(root, ("start", "end")):
        if event == "start":
            attributes = element.attrib
            if attributes:
                for name, value in sorted(attributes.items()):
                    if not name.endswith("schemaLocation"):
                        yield value
            text = element.text
        else:
            text = element.tail
        if text is not None and not text.isspace():
            yield without_markup(text) if "<" in text else text


def _pdf(body: bytes) -> Answer:
    """Text of a PDF if the extra ``pdf`` is installed, else its bytes without dates and ids."""
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
