"""Sitemaps and feeds: the claims that are read, and hostile files that cost neither time nor memory."""

import gzip
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from math import inf, isnan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scrapy_gp4c.crawling import claim_files
from scrapy_gp4c.crawling.claim_files import (
    MAX_FEED_BYTES,
    MAX_SECONDS,
    kind_of,
    mail_seconds_of,
    read_claims,
    seconds_of,
)
from scrapy_gp4c.errors import ClaimFileError
from tests.support.foreign import fuzzed, mutated

NAMESPACE = "http://www.sitemaps.org/schemas/sitemap/0.9"
ATOM = """<?xml version="1.0"?><feed xmlns="http://www.w3.org/2005/Atom"><title>News</title>
<link href="http://h/" /><updated>2020-01-01T00:00:00Z</updated>
<entry><link rel="edit" href="/edit"/><link href="/a"/><id>1</id><published>2026-01-01T00:00:00Z</published>
<updated>2026-02-03T04:05:06Z</updated><source><link href="/x"/><updated>2021-01-01</updated></source></entry>
<entry><link href="http://h/b"/><id>2</id><updated>long ago</updated></entry>
<entry><title>without a link</title></entry></feed>"""
RSS = """<rss version="2.0"><channel><title>News &nbsp; </title><link>http://h/</link>
<item><link>http://h/a</link><pubDate>Tue, 03 Feb 2026 04:05:06 GMT</pubDate></item>
<item><link>http://h/b</link></item></channel></rss>"""
RDF = """<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns="http://purl.org/rss/1.0/"
xmlns:dc="http://purl.org/dc/elements/1.1/"><channel rdf:about="http://h/"/>
<item rdf:about="http://h/a"><dc:date>2026-02-03T04:05:06Z</dc:date></item>
<item rdf:about="/b"><title>b</title></item></rdf:RDF>"""
CHANGED_S = datetime(2026, 2, 3, 4, 5, 6, tzinfo=UTC).timestamp()


def sitemap(*entries: str, root: str = "urlset", entry: str = "url") -> bytes:
    """A sitemap with entries of the given content."""
    inner = "".join(f"<{entry}>{content}</{entry}>" for content in entries)
    return f'<?xml version="1.0" encoding="UTF-8"?><{root} xmlns="{NAMESPACE}">{inner}</{root}>'.encode()


FULL = sitemap(
    "<loc>http://h/a</loc><lastmod>2026-02-03T04:05:06+01:00</lastmod><changefreq>weekly</changefreq>",
    "<loc>http://[::1]/b</loc><lastmod>2026-02</lastmod><priority>0.4</priority>",
    '<loc>/c</loc><lastmod>Tue, 03 Feb 2026 04:05:06 GMT</lastmod><link href="http://h/d"/>',
)
SITEMAPS = (
    FULL,
    gzip.compress(FULL),
    gzip.compress(FULL[:200]) + gzip.compress(FULL[200:]),
    b"\xef\xbb\xbf" + FULL,
    FULL.decode().replace("UTF-8", "UTF-16").encode("utf-16"),
    FULL.replace(b"urlset", b"sitemapindex").replace(b"<url>", b"<sitemap>").replace(b"/url>", b"/sitemap>"),
)
FEEDS = (ATOM.encode(), RSS.encode(), RDF.encode(), RSS.replace('version="2.0"', 'version="0.9"').encode())


def rows(body: bytes, kind: str = "sitemap") -> list[tuple[str, float, float]]:
    """The claims of a file: URL, time, period."""
    claims = read_claims(kind, body, "http://h/file.xml")
    return list(zip(claims.urls, claims.changed_s.tolist(), claims.period_s.tolist(), strict=True))


@given(
    st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30)),
    st.one_of(st.none(), st.integers(-720, 720)),
    st.sampled_from(("seconds", "minutes", "microseconds")),
)
def test_a_date_is_read_as_it_was_written(date: datetime, zone_min: int | None, precision: str) -> None:
    """With a zone and without, to its precision: by the difference to 1970."""
    text = date.isoformat(timespec=precision)
    date = datetime.fromisoformat(text)
    offset = timedelta(minutes=zone_min or 0)
    if zone_min is not None:
        hours, minutes = divmod(abs(zone_min), 60)
        text += f"{'-' if zone_min < 0 else '+'}{hours:02}:{minutes:02}"
    expected = (date - offset - datetime(1970, 1, 1)) / timedelta(seconds=1)
    assert seconds_of(text) == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize(
    ("text", "last"),
    [
        ("2026-02-28", datetime(2026, 2, 28, 23, 59, 59)),
        ("2026-02", datetime(2026, 2, 28, 23, 59, 59)),
        ("2026-12", datetime(2026, 12, 31, 23, 59, 59)),
        ("2026", datetime(2026, 12, 31, 23, 59, 59)),
        ("Tue, 03 Feb 2026 04:05:06 GMT", datetime(2026, 2, 3, 4, 5, 6)),
    ],
)
def test_a_day_or_a_month_stands_for_its_end(text: str, last: datetime) -> None:
    """A page may have changed after a visit on the same day."""
    assert seconds_of(text) == last.replace(tzinfo=UTC).timestamp()


@given(
    st.one_of(
        st.text(max_size=40),
        st.sampled_from(("0000-00-00", "0000", "9999", "9999-12", "yesterday", "32.13.")),
    )
)
def test_what_is_no_date_says_no_time(text: str) -> None:
    """Any text is a time or NaN: years 0 and 9999, words, emptiness."""
    for read in (seconds_of, mail_seconds_of):
        assert isinstance(read(text), float)
    assert isnan(seconds_of("0000-00-00"))
    assert isnan(seconds_of("a fortnight ago"))
    assert isnan(seconds_of("2026-13"))


def test_a_sitemap_claims_when_its_pages_changed() -> None:
    """Dates and periods are read; extensions for news and videos and alternate links are passed over."""
    news = (
        '<news:news xmlns:news="http://www.google.com/schemas/sitemap-news/0.9">'
        "<news:publication_date>2020-01-01</news:publication_date></news:news>"
    )
    body = sitemap(
        f"<loc> http://h/a </loc><lastmod>2026-02-03T04:05:06Z</lastmod>{news}",
        "<loc>http://h/b</loc><changefreq>Weekly</changefreq><priority>0.4</priority>",
        "<loc>http://h/c</loc><lastmod>soon</lastmod><changefreq>now and then</changefreq>",
        "<lastmod>2026-01-01</lastmod>",
    )
    claimed = rows(body)
    assert [row[0] for row in claimed] == ["http://h/a", "http://h/b", "http://h/c"]
    assert claimed[0][1] == CHANGED_S
    assert claimed[1][2] == 7 * 86_400
    assert [isnan(value) for row in claimed for value in row[1:]] == [False, True, True, False, True, True]
    assert read_claims("sitemap", body, "http://h/s.xml").unreadable == ["soon"]


def test_an_index_claims_when_its_sitemaps_changed() -> None:
    """Sitemaps of an index are pages like others."""
    body = sitemap(
        "<loc>http://h/1.xml</loc><lastmod>2026-01-01</lastmod>", root="sitemapindex", entry="sitemap"
    )
    assert rows(body)[0][:2] == ("http://h/1.xml", datetime(2026, 1, 1, 23, 59, 59, tzinfo=UTC).timestamp())


def test_every_encoding_of_a_sitemap_is_read() -> None:
    """Packed, with a byte order mark, in UTF-16: the same three pages."""
    for body in SITEMAPS:
        assert [row[0] for row in rows(body)] == ["http://h/a", "http://[::1]/b", "http://h/c"]


@pytest.mark.parametrize("body", [ATOM, RSS, RDF])
def test_a_feed_claims_when_its_entries_changed(body: str) -> None:
    """``updated`` comes before ``published``; links are relative to the feed; its own link is no entry."""
    claims = read_claims("feed", body.encode(), "http://h/feed")
    assert claims.urls == ["http://h/a", "http://h/b"]
    assert claims.changed_s[0] == CHANGED_S
    assert isnan(claims.changed_s[1])
    assert claims.unreadable == (["long ago"] if body == ATOM else [])


@pytest.mark.parametrize(
    ("body", "url", "kind"),
    [
        (sitemap(), "http://h/x", "sitemap"),
        (b"\xef\xbb\xbf  <urlset>", "http://h/x", "sitemap"),
        ("<?xml version='1.0'?><urlset >".encode("utf-16"), "http://h/x", "sitemap"),
        (b"<?xml version='1.0'?><!-- by hand --><sitemapindex >", "http://h/x", "sitemap"),
        (ATOM.encode(), "http://h/x", "feed"),
        (RSS.encode(), "http://h/x", "feed"),
        (b"<rdf:RDF xmlns:rdf='x'>", "http://h/x", "feed"),
        (gzip.compress(sitemap()), "http://h/sitemap.xml.gz?x=1", "sitemap"),
        (gzip.compress(sitemap()), "http://h/backup.tar.gz", None),
        (b"<!DOCTYPE html><html><body><rss >", "http://h/sitemap.xml", None),
        (b"<html><feed >", "http://h/feed", None),
        (b"<?xml version='1.0'?><svg><text/></svg>", "http://h/x.svg", None),
        (b"urlset", "http://h/x", None),
        (b"", "http://h/sitemap.xml", None),
        (b"{}", "http://h/feed.json", None),
    ],
)
def test_the_first_element_decides_the_kind(body: bytes, url: str, kind: str | None) -> None:
    """Neither name nor media type count."""
    assert kind_of(body, url) == kind


def test_files_that_cannot_be_read_are_one_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says what was expected and what was found."""
    monkeypatch.setattr(claim_files, "MAX_UNPACKED_BYTES", 30_000)
    bodies = {
        "at most 30,000 bytes; found": sitemap("<loc>http://h/a</loc>" + " " * 30_000),
        "expected a sitemap; found the element 'html'": b"<html><body>Not found</body></html>",
        "it is not XML: .* while decompressing": b"\x1f\x8b\x08" + b"x" * 20,
        "it is not XML: no element found": b"",
        "a tag is longer than 16,384 bytes": b"<urlset " + b"a" * 20_000 + b">",
        "more than 30,000 bytes unpacked": gzip.compress(b" " * 40_000),
    }
    for message, body in bodies.items():
        with pytest.raises(ClaimFileError, match=message):
            rows(body)


def test_what_was_read_before_a_limit_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file with too many entries gives the first ones, and says which limit ended it."""
    monkeypatch.setattr(claim_files, "MAX_ENTRIES", 2)
    claims = read_claims("sitemap", FULL, "http://h/s.xml")
    assert (len(claims.urls), claims.stopped) == (2, "it has more than 2 entries")
    cut, wrong = gzip.compress(FULL)[:-20], gzip.compress(FULL)[:-8] + b"\0" * 8
    monkeypatch.setattr(claim_files, "CHUNK_BYTES", 200)
    for body, limit in ((cut, "it lacks its end"), (wrong, "cannot be read: .*incorrect data check")):
        assert re.search(limit, read_claims("sitemap", body, "http://h/s.xml").stopped or "")


def test_entities_are_not_expanded() -> None:
    """A bomb of entities within entities stays as small as it was sent."""
    entities = "".join(f'<!ENTITY e{n} "{f"&e{n - 1};" * 10}">' for n in range(1, 12))
    for body in ("<urlset><url><loc>{}</loc></url></urlset>", "<rss><item><link>{}</link></item></rss>"):
        bomb = f'<!DOCTYPE x [<!ENTITY e0 "ha">{entities}]>' + body.format("http://h/&e11;")
        kind = "sitemap" if "urlset" in bomb else "feed"
        assert all(len(row[0]) < 100 for row in rows(bomb.encode(), kind))


def test_a_url_of_many_entities_is_read_to_its_end() -> None:
    """The parser hands over a piece before and behind each ``&amp;``."""
    url = "http://h/a?" + "&".join(f"{n}={n}" for n in range(60))
    assert [row[0] for row in rows(sitemap(f"<loc>{url.replace('&', '&amp;')}</loc>"))] == [url]


@fuzzed
@given(mutated(SITEMAPS))
def test_foreign_bytes_are_a_sitemap_or_one_error(body: bytes) -> None:
    """Bytes before, within and behind the first element, packed and not, never raise anything else."""
    assert kind_of(body, "http://h/sitemap.xml.gz") in ("sitemap", "feed", None)
    with suppress(ClaimFileError):
        assert all(url and changed_s != inf and not period_s < 0 for url, changed_s, period_s in rows(body))


@fuzzed
@given(mutated(FEEDS))
def test_foreign_bytes_are_a_feed_or_one_error(body: bytes) -> None:
    """An entry without a link is none."""
    with suppress(ClaimFileError):
        assert all(url for url, _, _ in rows(body, "feed"))


RSS_START = b'<?xml version="1.0"?><rss version="2.0"><channel>'
ITEM = b"<item><link>http://h/1</link><pubDate>Tue, 03 Feb 2026 04:05:06 GMT</pubDate></item>"


def hostile_bodies() -> Iterator[tuple[str, bytes]]:
    """Feeds and sitemaps of up to 5 MiB, each made to cost a parser time or memory."""

    def filled(start: bytes, unit: bytes, end: bytes = b"") -> bytes:
        return start + unit * ((MAX_FEED_BYTES - len(start) - len(end)) // len(unit)) + end

    yield "a long author", filled(RSS_START + b"<item><author>", b"a@", b"</author></item></channel></rss>")
    units = (
        ITEM, b"<item>", b"<item/>", b"<a/>", b"<a>", b"</a>", b"<", b">", b"&", b"&amp;", b"&#0;", b"&x;",
        b"\0", b"<?a?>", b"<!---->", b"<!--", b"<![CDATA[", b"<![CDATA[]]>", b"]]>", b"<item><link>", b"\xff",
        b" ", b"<item a='", b"<item a=''", b"<a xmlns='x'>", b"<!ENTITY b '&b;'>",
        b"<item><link>x</link><date>" + b"a" * 99 + b"</date></item>",
        b"<item><link>" + b"x" * 5000 + b"</link></item>", b"<!DOCTYPE a [<!ENTITY b 'c'>]>",
    )  # fmt: skip
    for unit in units:
        yield f"many {unit[:20]!r}", filled(RSS_START, unit)
        yield f"one item with many {unit[:20]!r}", filled(RSS_START + b"<item><link>", unit)
    yield "attributes", RSS_START + b"<item " + b" ".join(b'a%d=""' % n for n in range(400_000)) + b">"
    some = b" ".join(b'a%d=""' % n for n in range(1_500))
    yield "tags of 1,500 attributes", filled(RSS_START, b"<item %s/>" % some)
    yield "names", RSS_START + b"".join(b"<a%d/>" % n for n in range(480_000))
    yield "namespaces", RSS_START + b"".join(b'<a xmlns:b%d="u%d"/>' % (n, n) for n in range(160_000))
    chain = b"".join(b'<!ENTITY a%d "&a%d;&a%d;">' % (n + 1, n, n) for n in range(99_000))
    yield "entities", b"<!DOCTYPE a [" + chain + b"]>" + RSS_START + b"<item><link>&a99000;</link></item>"
    yield "a packed bomb", gzip.compress(b"<urlset>" + b" " * 200_000_000)
    entries = b"".join(
        b"<url><loc>http://h/%d</loc><lastmod>2026</lastmod></url>" % n for n in range(700_000)
    )
    yield "a packed sitemap of 700,000 pages", gzip.compress(b"<urlset>" + entries[: 49 * 2**20])


MEASURE = """
import sys, time
from benchmarks.common import peak_mb
from tests.crawling.test_claim_files import hostile_bodies
from scrapy_gp4c.crawling.claim_files import kind_of, read_claims
from scrapy_gp4c.errors import ClaimFileError
for name, body in hostile_bodies():
    kind = "feed" if body[:6] in (b"<?xml ", b"<!DOCT") else "sitemap"
    before, began = peak_mb(), time.thread_time()
    try:
        read_claims(kind, body, "http://h/")
    except ClaimFileError:
        pass
    print(time.thread_time() - began, peak_mb() - before, name, sep="\t")
"""


@pytest.mark.slow
def test_hostile_files_cost_neither_time_nor_memory() -> None:
    """60 hostile files take at most the limit of processor time and 100 MB more of memory each."""
    lines = subprocess.run([sys.executable, "-c", MEASURE], capture_output=True, text=True, check=True).stdout
    measured = [line.split("\t") for line in lines.splitlines()]
    assert len(measured) >= 60
    assert [row for row in measured if float(row[0]) > MAX_SECONDS + 0.5] == []
    assert [row for row in measured if float(row[1]) > 100] == []
