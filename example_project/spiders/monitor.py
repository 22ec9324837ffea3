"""A spider as anyone would write it: start at a directory, follow links, sitemaps and feeds, yield pages."""

from collections.abc import Iterator
from typing import Any

from scrapy import Request, Spider
from scrapy.http import Response, TextResponse, XmlResponse
from scrapy.linkextractors import LinkExtractor
from w3lib.url import url_query_cleaner


class MonitorSpider(Spider):
    """Crawls the monitored web from its directory, on the port given with ``-a port=N``."""

    name = "monitor"
    # Session ids would make a new page of every link to it.
    links = LinkExtractor(
        allow=[r":\d+/$", r"/(article|product|page|week)-\d+\.html$", r"/(sitemap|feed)\.xml$"],
        deny_extensions=(),  # the patterns say how an allowed link ends
        restrict_css="main",
        process_value=url_query_cleaner,
    )

    def __init__(self, port: str = "8410", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.start_urls = [f"http://127.0.0.1:{port}/"]

    def parse(self, response: Response) -> Iterator[Request | dict[str, Any]]:
        """Yield the page as an item, and follow its links unless it reads as it did at the last visit."""
        if not isinstance(response, TextResponse):
            return
        changed = response.meta.get("gp4c", {}).get("changed")
        if isinstance(response, XmlResponse):
            yield from self.listed(response)
            return
        yield {
            "url": response.url,
            "title": response.css("title::text").get(),
            "words": len(response.xpath("string(//main)").get("").split()),
            "changed": changed,
        }
        if changed is False:
            return
        for link in self.links.extract_links(response):
            yield response.follow(link, callback=self.parse)

    def listed(self, response: XmlResponse) -> Iterator[Request]:
        """Yield the pages of a sitemap or a feed."""
        response.selector.remove_namespaces()
        for url in response.xpath("//url/loc/text() | //entry/link/@href").getall():
            yield response.follow(url, callback=self.parse)
