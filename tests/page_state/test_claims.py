"""Notes of a cycle about pages: which page found which."""

import numpy as np

from scrapy_gp4c.page_state.claims import finder_pages
from scrapy_gp4c.scoring.discovery import START


def test_only_pages_are_finders() -> None:
    """Neither the spider's start nor nobody is a page; the column counts pages from 1."""
    assert finder_pages(np.array([0, START, 1, 8], np.uint32)).tolist() == [-1, -1, 0, 7]
