"""Keys of pages by nothing but their URLs, many at a time: what sitemaps list is mostly known, and not asked
for."""

from __future__ import annotations

import re
from collections.abc import Sequence
from hashlib import sha1
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt
from scrapy import Request

from scrapy_gp4c.crawling.stored_requests import WEB

if TYPE_CHECKING:
    from scrapy_gp4c.crawling.rebuilding import Rebuilder

_PLAIN: Final = re.compile(r"https?://[a-z0-9.-]+(?::[0-9]+)?/[A-Za-z0-9/._~-]*").fullmatch
"""URLs that Scrapy neither quotes, nor sorts, nor shortens before it hashes them, and that hold no secret."""
_HEAD: Final = b'{"body": "", "headers": {}, "method": "GET", "url": "'
_TAIL: Final = b'"}'


class UrlKeys:
    """Tells the keys of pages that a plain GET would have."""

    def __init__(self, rebuilder: Rebuilder) -> None:
        """Take who knows the crawl's fingerprinter."""
        self._keys = rebuilder.keys
        self._is_usual = rebuilder.by_url_alone
        """Whether plain URLs are hashed here, in a tenth of the time: as long as that gives the same."""
        self._is_checked = False

    def of(self, urls: Sequence[str]) -> npt.NDArray[np.uint64]:
        """Keys of URLs, ``[U]``; 0 for what is no page's."""
        if not (self._is_usual and urls):
            return np.array([self._key(url) for url in urls], np.uint64)
        plain = [_PLAIN(url) is not None for url in urls]
        digests = b"".join(
            [sha1(_HEAD + url.encode("utf-8", "replace") + _TAIL).digest()[:8] for url in urls]
        )
        keys = np.frombuffer(digests, ">u8").astype(np.uint64)
        if not self._is_checked and any(plain):
            row = plain.index(True)
            self._is_checked, self._is_usual = True, int(keys[row]) == self._key(urls[row])
            return self.of(urls)
        for row in np.flatnonzero(~np.array(plain)).tolist():
            keys[row] = self._key(urls[row])
        return keys

    def _key(self, url: str) -> int:
        try:
            return self._keys(Request(url))[0] if url.startswith(WEB) else 0
        except ValueError:
            return 0
