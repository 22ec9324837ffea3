"""What is kept of a page: visible words and images, links of the main content within the site."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scrapy.http import HtmlResponse, Response, TextResponse, XmlResponse

from scrapy_gp4c.fingerprint.description import MAX_DESCRIBED_BYTES, description
from scrapy_gp4c.fingerprint.text import MAX_DEPTH
from scrapy_gp4c.words.descriptions import Description, describe, link_hash, unpack


def described(body: str, url: str = "http://h.example/a/page") -> Description:
    return unpack(description(HtmlResponse(url, body=body.encode(), encoding="utf-8")))


def hashes(*urls: str) -> list[int]:
    """Of links, as they are kept."""
    return sorted(map(link_hash, urls))


def test_links_are_those_of_the_main_content_to_the_same_site() -> None:
    """Relative ones too, each once; none to itself, to others, or to what is no page."""
    body = """<html><body><nav><a href="/menu">m</a></nav><main>
        <a href="/b">b</a> <a href="c?x=1#top">c</a> <a href="../d">d</a> <a href="http://h.example/b">b</a>
        <a href="#here">self</a> <a href="page">self</a> <a href="http://other.example/">o</a>
        <a href="/x/../e">e</a>
        <a href="//h.example/f">f</a> <a href="mailto:me@h.example">m</a>
        <a href="http://h.example:99999999/">p</a>
        <a href="http://[bad/">bad</a> <a>none</a></main>
        <footer><a href="/imprint">i</a></footer></body></html>"""
    expected = hashes(
        "http://h.example/b",
        "http://h.example/a/c?x=1",
        "http://h.example/d",
        "http://h.example/e",
        "http://h.example/f",
    )
    assert described(body).links.tolist() == expected


def test_the_base_of_a_page_counts() -> None:
    """As in a browser; another port is another site."""
    base = '<html><head><base href="http://h.example/else/"></head><body>'
    assert described(f'{base}<a href="x">x</a></body></html>').links.tolist() == hashes(
        "http://h.example/else/x"
    )
    other = described('<a href="http://h.example:8080/x">x</a> <a href="/y">y</a>', "http://h.example:8080/a")
    assert other.links.tolist() == hashes("http://h.example:8080/x", "http://h.example:8080/y")


def test_words_and_images_are_those_that_a_visitor_sees() -> None:
    """No menu, no advertisement, no script."""
    body = """<html><body><nav>menu</nav><p>two words</p><img src=a><img src=b><script>no()</script>
        <div class="ad">buy</div></body></html>"""
    result = described(body)
    assert (result.words, result.images) == (2, 2)
    assert result.terms.tolist() == describe("two words", [], 0, 0).terms.tolist()
    assert result.size_bytes == len(body)


@pytest.mark.parametrize(
    ("response", "words"),
    [
        (Response("http://h/", body=b"\x89PNG\x00\xff"), 0),
        (TextResponse("http://h/", body=b"three plain words"), 3),
        (XmlResponse("http://h/", body=b"<a><b>two</b> words</a>"), 2),
        (HtmlResponse("http://h/", body=b""), 0),
        (HtmlResponse("http://h/", body=b"<b>" * (MAX_DEPTH + 9) + b"deep"), 1),
        (HtmlResponse("http://h/", body=b"<p>" + b"word " * MAX_DESCRIBED_BYTES), MAX_DESCRIBED_BYTES // 5),
    ],
)
def test_any_response_has_a_description(response: Response, words: int) -> None:
    """What is no page has no words; of a large one the beginning counts."""
    assert unpack(description(response)).words == words
    assert unpack(description(response)).size_bytes == len(response.body)


@given(body=st.binary(max_size=300), html=st.booleans())
def test_no_body_makes_it_raise(body: bytes, html: bool) -> None:
    """Nor markup that is cut off anywhere."""
    response = HtmlResponse("http://h/", body=b"<main><a href='" + body + b"'>" + body if html else body)
    assert unpack(description(response)).size_bytes == len(response.body)
