"""Links in the sources of pages: Markdown, and reST targets, that are pages of the same site."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from scrapy_gp4c.page_state.groupings import Links

_MARKDOWN: Final = re.compile(r"(!?)\[[^\]\n]*\]\(\s*<?([^)\s>]+)")
_REST: Final = re.compile(r":(doc|pep):`(?:[^`<]*<)?([^`>]+)>?`")
_ENDINGS: Final = ("", ".md", ".rst", ".mdx", ".html", "/index.md", "/_index.md", "/README.md", "/index.rst")


def count_images(text: str) -> int:
    """Images of a Markdown or reST source."""
    return len([1 for found in _MARKDOWN.finditer(text) if found[1]]) + text.count(".. image::")


def targets(text: str) -> Iterator[str]:
    """Yield what a source links to, as it is written there."""
    for found in _MARKDOWN.finditer(text):
        if not found[1] and "://" not in found[2]:
            yield found[2].partition("#")[0].partition("?")[0]
    for found in _REST.finditer(text):
        yield f"pep-{found[2].strip():0>4}" if found[1] == "pep" else found[2].strip()


def links_of(sites: Sequence[int], pages: Sequence[str], texts: Sequence[str | None]) -> Links:
    """The links between pages, each once, none from a page to itself."""
    known = {(site, page): number for number, (site, page) in enumerate(zip(sites, pages, strict=True))}
    found: set[tuple[int, int]] = set()
    for source, (site, page, text) in enumerate(zip(sites, pages, texts, strict=True)):
        folder = posixpath.dirname(page)
        for target in targets(text or ""):
            is_rooted = target.startswith("/")
            path = posixpath.normpath(target.lstrip("/") if is_rooted else posixpath.join(folder, target))
            number = next(
                (known[site, path + end] for end in _ENDINGS if (site, path + end) in known), source
            )
            if number != source:
                found.add((source, number))
    pairs = np.array(sorted(found), np.intp).reshape(-1, 2)
    return Links(np.ascontiguousarray(pairs[:, 0]), np.ascontiguousarray(pairs[:, 1]), len(pages))
