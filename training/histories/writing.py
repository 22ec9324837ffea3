"""Files that training writes appear whole or not at all, in the one way that the store has for its own."""

from __future__ import annotations

from scrapy_gp4c.store.whole_files import probe, replacing

__all__ = ["probe", "replacing"]
