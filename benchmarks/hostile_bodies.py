"""Bodies of answers that cost a careless parser much time or memory, for each parser.

Successive visits get slightly different bodies, so that code that compares two versions runs too.
"""

import gzip
import zlib
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Final, NamedTuple

import brotli
import zstandard

HTML: Final = "text/html; charset=utf-8"


class HostileBody(NamedTuple):
    """Body of any size, with its headers and the promise rule of its page."""

    headers: dict[str, str]
    make: Callable[[int, int], bytes]
    """Function of the size in bytes and the number of the visit."""
    rule: Mapping[str, str] = MappingProxyType({})
    """Promise rule of ``GP4C_RULES`` for the page, without its ``match``; empty: none."""
    is_robots_txt: bool = False
    """Whether the body is a robots.txt, whose host serves `SHORT` as its page."""


def _repeated(head: str, piece: str, tail: str = "") -> Callable[[int, int], bytes]:
    """Maker of a body: head, repeated piece, tail; ``{}`` in the head becomes words of the visit."""

    def make(size: int, visit: int) -> bytes:
        return (head.replace("{}", f"visit{visit} " * visit) + piece * (size // len(piece)) + tail).encode()

    return make


def _text(piece: str) -> HostileBody:
    return HostileBody({"Content-Type": HTML}, _repeated("<html><body><main><h1>{}</h1><p>", piece))


def _of(kind: str, head: str, piece: str, tail: str = "") -> HostileBody:
    return HostileBody({"Content-Type": kind}, _repeated(head, piece, tail))


def _pdf(stream: bytes, pages: int) -> bytes:
    """PDF of ``pages`` pages that share one compressed stream."""
    objects = [
        b"<</Type/Catalog/Pages 2 0 R>>",
        b"<</Type/Pages/Kids[%s]/Count %d>>" % (b" ".join(b"%d 0 R" % (5 + n) for n in range(pages)), pages),
        b"<</Length %d/Filter/FlateDecode>>stream\n%s\nendstream" % (len(stream), stream),
        b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>",
    ]
    page = b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 9 9]/Contents 3 0 R/Resources<</Font<</F 4 0 R>>>>>>"
    objects += [page] * pages
    body, positions = b"%PDF-1.4\n", []
    for number, content in enumerate(objects, 1):
        positions.append(len(body))
        body += b"%d 0 obj\n%s\nendobj\n" % (number, content)
    table = b"".join(b"%010d 00000 n \n" % position for position in positions)
    count, start = len(objects) + 1, len(body)
    end = b"xref\n0 %d\n0000000000 65535 f \n%strailer<</Size %d/Root 1 0 R>>\nstartxref\n%d\n%%%%EOF"
    return body + end % (
        count, table, count, start,
    )  # fmt: skip


def _text_pdf(size: int, visit: int) -> bytes:
    """PDF of 400 pages that share a text of an eighth of ``size``, compressed."""
    words = b"BT /F 9 Tf (%s) Tj ET\n" % (b"visit%d " % visit * 20)
    return _pdf(zlib.compress(words * (size // len(words) // 8)), 400)


def _bomb(coding: str, pack: Callable[[bytes], bytes]) -> HostileBody:
    """Compressed page that unpacks to 20 times ``size``, within Scrapy's limits."""
    return HostileBody(
        {"Content-Type": HTML, "Content-Encoding": coding},
        lambda size, visit: pack(b"<html><body><p>visit%d " % visit + b"a " * (size * 10)),
    )


def _watched(piece: str, **rule: str) -> HostileBody:
    return _text(piece)._replace(rule=rule)


def _robots(piece: str) -> HostileBody:
    return _of("text/plain", "User-agent: *\n", piece)._replace(is_robots_txt=True)


NO_RULES: Final = HostileBody({"Content-Type": "text/plain"}, lambda size, visit: b"")
"""A robots.txt without rules."""
SHORT: Final = HostileBody({"Content-Type": HTML}, lambda size, visit: b"<html><body><p>visit%d" % visit)
"""A page whose host has a hostile robots.txt."""
SITEMAP: Final = '<?xml version="1.0"?><urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">'
BODIES: Final[dict[str, HostileBody]] = {
    "words": _text("word other more "),
    "changing words": HostileBody(
        {"Content-Type": HTML},
        lambda size, visit: (
            "<html><body><main>" + "".join(f"<p>w{n * visit % 9973} w{n}</p>" for n in range(size // 16))
        ).encode(),
    ),
    "blocks below a megabyte": HostileBody(
        {"Content-Type": HTML},
        lambda size, visit: (
            "<html><body><main>" + "".join(f"<p>w{n * visit % 9973} w{n}</p>" for n in range(60_000))
        ).encode(),
    ),
    "dates below a megabyte": HostileBody(
        {"Content-Type": HTML},
        lambda size, visit: b"<html><body><p>visit%d " % visit + b"january 1, 10:10 views: 1, " * 38_000,
    ),
    "64 kB of dates": HostileBody(
        {"Content-Type": HTML},
        lambda size, visit: b"<html><body><main><p>visit%d " % visit + b"january 1, 10:10 views: 1, " * 2_400,
    ),
    "64 kB of nested elements": HostileBody(
        {"Content-Type": HTML}, lambda size, visit: b"<html><body>%d" % visit + b"<div>" * 13_000
    ),
    "digits": _text("1.1.1."),
    "dates": _text("january 1, 10:10 , 2026-01-01 "),
    "nested elements": _text("<div>"),
    "unclosed tags": _text("<a "),
    "attributes": _text('<a x="1" y=\'2\' z=3>'),
    "comments": _text("<!--"),
    "scripts": _text("<script>a"),
    "entities": _text("&amp;&#x1F600;&notanentity"),
    "links": _text('<a href="/x?utm_source=1&a=2">a</a> '),
    "names of data below a megabyte": HostileBody(
        {"Content-Type": HTML}, lambda size, visit: b"<main>" + b"data-" * (190_000 + visit)
    ),
    "inputs": _text("<input "),
    "canonical links": _of(HTML, "<html><head>{}", '<link rel="canonical" href="http://h/a">'),
    "meta refreshes": _of(HTML, "<html><head>", '<meta http-equiv="refresh" content="0;url=', "{}"),
    "JSON-LD": _of(HTML, '<html><head><script type="application/ld+json">{"a{}":', '[{"a":', ""),
    "JSON-LD scripts": _of(HTML, "<html><body>{}", '<script type="application/ld+json">{"a":[1,2]}</script>'),
    "a table": _of(HTML, "<html><body><table>{}", "<tr><td>1<td>2"),
    "JSON, nested": _of("application/json", "", "[", "{}"),
    "JSON, objects": _of("application/json", '[{"v":"{}"}', ',{"id":1,"token":"abcdef1"}', "]"),
    "JSON, tokens": _of("application/json", '{"v":"{}"', ',"a":"' + "a11" * 40 + '!"', "}"),
    "JSON, one number": _of("application/json", "[{}", "1", "]"),
    "JSON, floats": _of("application/json", '["{}"', ",1e308", "]"),
    "JSON, equal keys": _of("application/json", '{"v":"{}"', ',"a":1', "}"),
    "JSON lines": _of("application/x-ndjson", '{"v":"{}"}\n', '{"id":1,"at":"2026-01-01"}\n'),
    "CSV": _of("text/csv", "{},b,c\n", '1,"x ""y""",2\n'),
    "CSV, one quote": _of("text/csv", '{}"', "a,b\n"),
    "XML, elements": _of("application/xml", "<?xml version='1.0'?><a>{}", "<b c='1'>2</b>", "</a>"),
    "XML, nested": _of("application/xml", "<?xml version='1.0'?>", "<a>", "{}"),
    "XML, entities": _of(
        "application/xml",
        "<!DOCTYPE a [<!ENTITY b '" + "b" * 1000 + "'><!ENTITY c '" + "&b;" * 1000 + "'>]><a>{}",
        "&c;",
        "</a>",
    ),
    "feed": _of(
        "application/rss+xml",
        "<rss version='2.0'><channel>{}",
        "<item><link>/a</link><pubDate>Tue, 03 Feb 2026 04:05:06 GMT</pubDate><author>a@a.a</author></item>",
    ),
    "feed, one address": _of("application/rss+xml", "<rss><channel><item><author>{}", "a@a."),
    "Atom, nested": _of("application/atom+xml", "<feed xmlns='http://www.w3.org/2005/Atom'>{}", "<entry>"),
    "sitemap": _of("application/xml", SITEMAP, "<url><loc>http://127.0.0.1/a</loc><lastmod>2026</lastmod></url>"),
    "sitemap, attributes": _of("application/xml", SITEMAP + "<url ", "a='1' ", "/>"),
    "sitemap, packed": HostileBody(
        {"Content-Type": "application/gzip"},
        lambda size, visit: gzip.compress(
            SITEMAP.encode() + b"<url><loc>http://127.0.0.1/b</loc></url>" * (size // 4)
        ),
    ),
    "plain text": _of("text/plain", "{}", "word 10:10 "),
    "YAML": _of("application/yaml", "{}: 1\n", "a: &b [1, 2]\n"),
    "unknown text": _of("application/x-foo+json", '["{}"', ",[1,2]", "]"),
    "other bytes": HostileBody(
        {"Content-Type": "application/octet-stream"},
        lambda size, visit: b"\0\1" * (size // 2) + b"%d" % visit,
    ),
    "PDF": HostileBody({"Content-Type": "application/pdf"}, _text_pdf),
    "PDF, no objects": HostileBody(
        {"Content-Type": "application/pdf"}, lambda size, visit: b"%PDF-1.4\n" + b"1 0 obj\n" * (size // 8)
    ),
    "PDF, dates": HostileBody(
        {"Content-Type": "application/pdf"}, lambda size, visit: b"%PDF-1.4\n" + b"/M (" * (size // 4)
    ),
    "a bomb of gzip": _bomb("gzip", partial(gzip.compress, compresslevel=9)),
    "a bomb of brotli": _bomb("br", partial(brotli.compress, quality=5)),
    "a bomb of zstandard": _bomb("zstd", zstandard.ZstdCompressor().compress),
    "watched, many": _watched("<p class=a>1 <b>2</b></p>", watch=".a"),
    "watched, nested": _watched("<div class=a>1 ", watch=".a"),
    "watched, in all above": _watched("<i><p>a</p></i>", watch="//p[preceding::p[1]]"),
    "watched, a square": _watched("<p>a</p>", watch="//p[count(preceding-sibling::p) mod 2 = 0]"),
    "ignored, many": _watched("<p>1 <b>2</b> 3</p>", ignore="b"),
    "ignored, by words": _watched("<p>word 1 </p>", ignore="//p[contains(., '1')]"),
    "calendar": _of("text/calendar", "BEGIN:VCALENDAR\n{}", "DTSTAMP:20260310T102100Z\nEND:VEVENT\n"),
    "calendar, one line": _of("text/calendar", "BEGIN:VCALENDAR\nSUMMARY:{}", "a\r\n "),
    "calendar, dates": _of("text/calendar", "BEGIN:VCALENDAR\n{}", "DTSTART:20260310T102100Z\n"),
    "robots.txt, rules": _robots("Disallow: /a*b*c*d*e*f*$\n"),
    "robots.txt, stars": _robots("Disallow: /" + "*a" * 500 + "\n"),
    "robots.txt, agents": _robots("User-agent: a\nCrawl-delay: 1\n"),
    "robots.txt, sitemaps": _robots("Sitemap: http://127.0.0.1/s.xml\n"),
    "robots.txt, one line": _robots("a"),
    "a wrong charset": HostileBody(
        {"Content-Type": "text/html; charset=utf-7"}, _repeated("<p>{}", "+ADw-")
    ),
    "no charset": HostileBody(
        {"Content-Type": "text/html"}, lambda size, visit: b"<p>\xe4\xff%d" % visit * (size // 5)
    ),
    "UTF-16": HostileBody(
        {"Content-Type": "text/html; charset=utf-16"},
        lambda size, visit: ("<p>" + "漢字 " * (size // 6) + str(visit)).encode("utf-16"),
    ),
    "Han": HostileBody(
        {"Content-Type": HTML},
        lambda size, visit: (
            "<main>" + "".join(chr(0x4E00 + n % (20_000 + visit)) for n in range(size // 3))
        ).encode(),
    ),
    "headers": HostileBody(
        {
            "Content-Type": HTML,
            "Last-Modified": "Tue, " + "1" * 8_000,
            "Cache-Control": "max-age=" * 1_000 + "9" * 900,
            "ETag": '"' + "e" * 16_000 + '"',
            "Expires": "-" * 8_000,
            "Retry-After": "9" * 5_000,
            "Set-Cookie": "a=" + "b" * 8_000,
            "Link": "<a>; rel=canonical, " * 400,
        },
        _repeated("<html><body><p>{}", "word "),
    ),
}  # fmt: skip
