"""Validators of copies: what a server gave to ask it later whether a page is still the same (RFC 9110)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy_gp4c.errors import StoreError

if TYPE_CHECKING:
    from scrapy.http import Response

    from scrapy_gp4c.crawling.cycle import Cycle


def kept_validators(cycle: Cycle, page: int) -> tuple[str | None, str | None]:
    """Validators of a page's copy; none where the store cannot be read, which ends the crawl."""
    try:
        return cycle.store.validators(page)
    except StoreError as error:
        cycle.failure = error
        return None, None


def keep_validators(cycle: Cycle, page: int, response: Response) -> None:
    """Remember the validators of the copy that the next visit will be compared with."""
    values = (response.headers.get(name) for name in ("ETag", "Last-Modified"))
    etag, last_modified = (value.decode("latin-1") if value else None for value in values)
    if (etag, last_modified) != kept_validators(cycle, page) and cycle.failure is None:
        cycle.store.set_validators(page, etag, last_modified)
