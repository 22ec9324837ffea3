"""Description of a response for the clustering of similar pages. No body makes it raise."""

from typing import Final
from urllib.parse import urljoin, urlsplit

from scrapy.http import HtmlResponse, Response, TextResponse
from scrapy.utils.response import get_base_url
from selectolax.lexbor import LexborNode

from scrapy_gp4c.fingerprint.text import content_of, source_of, without_markup
from scrapy_gp4c.words.descriptions import Description, describe, pack

MAX_DESCRIBED_BYTES: Final = 65_536
"""Bytes at a page's start that are described: likeness shows early, and the crawl waits meanwhile."""
MAX_ANCHORS: Final = 512
_MAIN: Final = "main,[role=main],article"


def description(response: Response) -> bytes:
    """Return the packed description of a page, see `scrapy_gp4c.words.descriptions`.

    It covers visible words and images, and links of the main content to pages of the same site.
    """
    return pack(_described(response))


def _described(response: Response) -> Description:
    size_bytes = len(response.body)
    if not isinstance(response, TextResponse):
        return describe("", [], 0, size_bytes)
    source = source_of(response, MAX_DESCRIBED_BYTES)
    if not isinstance(response, HtmlResponse) or (document := content_of(source)) is None:
        return describe(without_markup(source), [], 0, size_bytes)
    main = document.css_first(_MAIN) or document
    text = document.text(separator=" ")
    return describe(text, _links(main, response), len(document.css("img")), size_bytes)


def _links(node: LexborNode, response: HtmlResponse) -> list[str]:
    """Return the URLs on the page's host and port that an element links to, without the page itself."""
    anchors = node.css("a[href]")[:MAX_ANCHORS]
    hrefs = {(anchor.attributes.get("href") or "").partition("#")[0].strip() for anchor in anchors}
    try:
        base = get_base_url(response)
        scheme, host = urlsplit(base)[:2]
        home = urlsplit(response.url).netloc.lower()
    except (LookupError, ValueError):
        return []
    urls = []
    for href in hrefs - {""}:
        if (
            href[0] == "/" and href[1:2] != "/" and "/." not in href
        ):  # most links: urljoin takes ten times as long
            url, netloc = f"{scheme}://{host}{href}", host
        else:
            try:
                url = urljoin(base, href)
                netloc = urlsplit(url).netloc
            except ValueError:  # such as a port that is no number
                continue
        if netloc.lower() == home and url.startswith(("http://", "https://")):
            urls.append(url)
    itself = response.url.partition("#")[0]
    return [url for url in urls if url != itself]
