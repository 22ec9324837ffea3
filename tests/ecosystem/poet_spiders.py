"""Spiders with page objects: scrapy-poet reads annotations, which must be no text."""

from typing import Any

from scrapy_poet import DummyResponse, callback_for
from web_poet import HttpClient, HttpResponse, ItemPage, WebPage, field

from scrapy_gp4c import visit
from tests.ecosystem.test_plugins import PATHS, Shop


class TextPage(WebPage[dict]):
    """The text of a page."""

    @field
    def text(self) -> Any:
        return self.css("p::text").get()


class Objects(Shop):
    """Takes a page object beside the response."""

    name = "objects"

    async def parse(self, response, page: TextPage):  # type: ignore[no-untyped-def]
        seen = visit(response)
        if seen.is_new or seen.changed:
            self.items.append(page.text)
            yield {"text": page.text}


class Named(Shop):
    """Has a callback that a function made."""

    name = "named"
    parse_page = callback_for(TextPage)

    async def start(self):  # type: ignore[no-untyped-def]
        from scrapy import signals

        async for request in super().start():
            yield request.replace(callback=self.parse_page)
        self.crawler.signals.connect(self.keep, signals.item_scraped)

    def keep(self, item: Any, response: Any) -> None:
        """Keep items of pages that changed."""
        seen = visit(response)
        if seen.is_new or seen.changed:
            self.items.append(item)


class ClientPage(ItemPage[dict]):
    """A page that an object fetches itself."""

    def __init__(self, client: HttpClient) -> None:
        self.client = client


class Client(Shop):
    """Gets no response, but a client."""

    name = "client"

    async def parse(self, response: DummyResponse, page: ClientPage):  # type: ignore[no-untyped-def,override]
        answer: HttpResponse = await page.client.get(self.site.url(PATHS[0]))
        assert answer.status == 200
        self.items.append(visit(response).managed)
