"""What sitemaps and feeds say, and what is made of files that say nothing right."""

from __future__ import annotations

import gzip
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from math import inf, isnan

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scrapy.http import HtmlResponse, Response, TextResponse, XmlResponse

from scrapy_gp4c.crawling import hint_files
from scrapy_gp4c.crawling.hint_files import (
    HintsError,
    kind_of,
    mail_seconds_of,
    read_feed,
    read_sitemap,
    seconds_of,
)
from tests.support.foreign import fuzzed, mutated

NAMESPACE = "http://www.sitemaps.org/schemas/sitemap/0.9"
ATOM = """<?xml version="1.0"?><feed xmlns="http://www.w3.org/2005/Atom"><title>News</title>
<entry><link href="/a"/><id>1</id><published>2026-01-01T00:00:00Z</published>
<updated>2026-02-03T04:05:06Z</updated></entry>
<entry><link href="http://h/b"/><id>2</id><updated>long ago</updated></entry>
<entry><title>without a link</title></entry></feed>"""
RSS = """<rss version="2.0"><channel><title>News</title>
<item><link>http://h/a</link><pubDate>Tue, 03 Feb 2026 04:05:06 GMT</pubDate></item>
<item><link>http://h/c</link></item></channel></rss>"""


def sitemap(*entries: str, root: str = "urlset") -> bytes:
    """A sitemap of what stands in its elements."""
    inner = "".join(f"<url>{entry}</url>" for entry in entries)
    return f'<?xml version="1.0" encoding="UTF-8"?><{root} xmlns="{NAMESPACE}">{inner}</{root}>'.encode()


_FULL = sitemap(
    "<loc>http://h/a</loc><lastmod>2026-02-03T04:05:06+01:00</lastmod><changefreq>weekly</changefreq>",
    "<loc>http://[::1]/b</loc><lastmod>2026-02</lastmod><priority>0.4</priority>",
    '<loc>/c</loc><lastmod>Tue, 03 Feb 2026 04:05:06 GMT</lastmod><link href="http://h/d"/>',
)
SITEMAPS = (
    _FULL,
    gzip.compress(_FULL),
    b"\xef\xbb\xbf" + _FULL,
    _FULL.replace(b"urlset", b"sitemapindex").replace(b"<url>", b"<sitemap>").replace(b"/url>", b"/sitemap>"),
)
FEEDS = (ATOM.encode(), RSS.encode(), RSS.replace('version="2.0"', 'version="0.9"').encode())


def told(body: bytes, url: str = "http://h/sitemap.xml") -> list[tuple[str, float, float]]:
    """What is read of a sitemap: URL, time, period."""
    batches = list(read_sitemap(XmlResponse(url, body=body)))
    return [
        row
        for one in batches
        for row in zip(one.urls, one.changed_s.tolist(), one.period_s.tolist(), strict=True)
    ]


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
    """Any text is a time or none: years 0 and 9999, words, emptiness."""
    for read in (seconds_of, mail_seconds_of):
        found = read(text)
        assert isinstance(found, float)
    assert isnan(seconds_of("0000-00-00"))
    assert isnan(seconds_of("a fortnight ago"))


def test_a_sitemap_says_when_its_pages_changed() -> None:
    """Its dates and periods; news and video extensions and alternate links stand beside them."""
    news = (
        '<news:news xmlns:news="http://www.google.com/schemas/sitemap-news/0.9">'
        "<news:publication_date>2020-01-01</news:publication_date></news:news>"
    )
    found = told(
        sitemap(
            f"<loc> http://h/a </loc><lastmod>2026-02-03T04:05:06Z</lastmod>{news}",
            "<loc>http://h/b</loc><changefreq>Weekly</changefreq><priority>0.4</priority>",
            "<loc>http://h/c</loc><lastmod>soon</lastmod><changefreq>now and then</changefreq>",
            "<lastmod>2026-01-01</lastmod>",
        )
    )
    assert [row[0] for row in found] == ["http://h/a", "http://h/b", "http://h/c"]
    assert found[0][1] == datetime(2026, 2, 3, 4, 5, 6, tzinfo=UTC).timestamp()
    assert found[1][2] == 7 * 86_400
    assert [isnan(value) for row in found for value in row[1:]] == [False, True, True, False, True, True]
    batch = next(
        read_sitemap(XmlResponse("http://h/s.xml", body=sitemap("<loc>/c</loc><lastmod>soon</lastmod>")))
    )
    assert batch.unreadable == ["soon"]


def test_an_index_speaks_of_its_sitemaps() -> None:
    """They are pages like others."""
    body = f'<sitemapindex xmlns="{NAMESPACE}"><sitemap><loc>http://h/1.xml</loc><lastmod>2026-01-01</lastmod></sitemap></sitemapindex>'
    assert told(body.encode())[0][:2] == (
        "http://h/1.xml",
        datetime(2026, 1, 1, 23, 59, 59, tzinfo=UTC).timestamp(),
    )


@pytest.mark.parametrize(
    ("body", "url", "kind"),
    [
        (sitemap(), "http://h/x", "sitemap"),
        (b"\xef\xbb\xbf  <urlset>", "http://h/x", "sitemap"),
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
def test_files_are_told_by_their_first_element(body: bytes, url: str, kind: str | None) -> None:
    """Whatever they are called, and whatever type the server gives them."""
    assert kind_of(Response(url, body=body)) == kind
    assert kind_of(TextResponse(url, body=body, encoding="utf-8")) == kind


def test_a_packed_sitemap_is_unpacked() -> None:
    """As far as it goes, if it was cut off."""
    packed = gzip.compress(sitemap("<loc>http://h/a</loc><lastmod>2026-01-01</lastmod>"))
    assert [row[0] for row in told(packed)] == ["http://h/a"]


@pytest.mark.parametrize(
    "what", ["bomb of entities", "bomb of gzip", "too large", "no sitemap", "no gzip", "empty"]
)
def test_hostile_sitemaps_are_one_error(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is expanded, nothing takes more memory than a sitemap may."""
    monkeypatch.setattr(hint_files, "MAX_SITEMAP_BYTES", 1_000)
    if what == "bomb of entities":
        entities = "".join(f'<!ENTITY e{n} "{f"&e{n - 1};" * 10}">' for n in range(1, 12))
        body = (
            f'<!DOCTYPE x [<!ENTITY e0 "ha">{entities}]><urlset><url><loc>http://h/&e11;</loc></url></urlset>'
        )
        monkeypatch.setattr(hint_files, "MAX_SITEMAP_BYTES", 10_000)
        assert all(len(row[0]) < 100 for row in told(body.encode()))
        return
    bodies = {
        "bomb of gzip": gzip.compress(b"<urlset>" + b" " * 10_000_000),
        "too large": sitemap("<loc>http://h/a</loc>" + " " * 1_000),
        "no sitemap": b"<html><body>Not found</body></html>",
        "no gzip": b"\x1f\x8b\x08" + b"x" * 20,
        "empty": b"",
    }
    with pytest.raises(HintsError):
        told(bodies[what])


@fuzzed
@given(mutated(SITEMAPS))
def test_foreign_bytes_are_a_sitemap_or_one_error(body: bytes) -> None:
    """Behind the first element, before it and within it, packed and not; what is told is told whole."""
    response = Response("http://h/sitemap.xml.gz", body=body)
    assert kind_of(response) in ("sitemap", "feed", None)
    with suppress(HintsError):
        assert all(url and changed_s != inf and not period_s < 0 for url, changed_s, period_s in told(body))


@fuzzed
@given(mutated(FEEDS))
def test_foreign_bytes_are_a_feed_or_one_error(body: bytes) -> None:
    """Also under the name of another type, in an encoding that they are not in."""
    for encoding in ("utf-8", "utf-16", "cp1252"):
        with suppress(HintsError):
            for claims in read_feed(HtmlResponse("http://h/feed", body=body, encoding=encoding)):
                assert len(claims.urls) == len(claims.changed_s) == len(claims.period_s)
                assert all(isinstance(url, str) and url for url in claims.urls)


@pytest.mark.parametrize("body", [ATOM, RSS])
def test_a_feed_says_when_its_entries_changed(body: str) -> None:
    """``updated`` before ``published``; links are told from the feed's own URL on."""
    (found,) = read_feed(TextResponse("http://h/feed", body=body.encode(), encoding="utf-8"))
    assert found.urls[0] == "http://h/a"
    assert len(found.urls) == 2
    assert found.changed_s[0] == datetime(2026, 2, 3, 4, 5, 6, tzinfo=UTC).timestamp()
    assert np.isnan(found.changed_s[1])
    assert found.unreadable == (["long ago"] if body == ATOM else [])


def test_hostile_feeds_are_survived(monkeypatch: pytest.MonkeyPatch) -> None:
    """Entities are not expanded; one that is too large is not read."""
    entities = "".join(f'<!ENTITY e{n} "{f"&e{n - 1};" * 10}">' for n in range(1, 12))
    bomb = f'<!DOCTYPE x [<!ENTITY e0 "ha">{entities}]><rss><channel><item><link>http://h/&e11;</link></item></channel></rss>'
    (found,) = read_feed(TextResponse("http://h/feed", body=bomb.encode(), encoding="utf-8"))
    assert all(len(url) < 1_000 for url in found.urls)
    monkeypatch.setattr(hint_files, "MAX_FEED_BYTES", 100)
    with pytest.raises(HintsError, match="at most 100 bytes"):
        list(read_feed(TextResponse("http://h/feed", body=RSS.encode(), encoding="utf-8")))
