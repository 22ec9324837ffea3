"""The spider of all golden crawls."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from scrapy import Request, Spider

from golden_project.web import HOST


class Golden(Spider):
    """Follows every link and yields what the add-on says of each page."""

    name = "golden"

    async def start(self) -> AsyncIterator[Any]:
        """Request the front page, unless the pages were imported."""
        if self.settings.getbool("GOLDEN_START", True):
            yield Request(f"{HOST}/")

    def parse(self, response: Any) -> Any:
        """Yield the page's outcome, then follow its links."""
        yield {"url": response.url, "gp4c": response.meta.get("gp4c")}
        if response.status == 200:
            yield from response.follow_all(css="a")
