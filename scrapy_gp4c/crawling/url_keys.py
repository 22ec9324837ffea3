"""Keys of pages by nothing but their URLs, many at a time: what sitemaps list is mostly known, and not asked
for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from scrapy import Request

from scrapy_gp4c.crawling.stored_requests import WEB, is_plain, plain_fingerprint

if TYPE_CHECKING:
    from scrapy_gp4c.crawling.rebuilding import Rebuilder


class UrlKeys:
    """Tells the keys of pages that a plain GET would have."""

    def __init__(self, rebuilder: Rebuilder) -> None:
        """Take who knows the crawl's fingerprinter."""
        self._keys = rebuilder.keys
        self._hashes_plain = rebuilder.hashes_plain

    def of(self, urls: Sequence[str]) -> npt.NDArray[np.uint64]:
        """Keys of URLs, ``[U]``; 0 for what is no page's."""
        if not (self._hashes_plain and urls):
            return np.array([self._key(url) for url in urls], np.uint64)
        digests = b"".join([plain_fingerprint(url)[:8] for url in urls])
        keys = np.frombuffer(digests, ">u8").astype(np.uint64)
        for row, url in enumerate(urls):
            if is_plain(url) is None:
                keys[row] = self._key(url)
        return keys

    def _key(self, url: str) -> int:
        try:
            return self._keys(Request(url))[0] if url.startswith(WEB) else 0
        except ValueError:
            return 0
