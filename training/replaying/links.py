"""Which pages the texts of others link to: a stand-in for the importance that a search engine knows."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from typing import Final
from urllib.parse import unquote, urlsplit

import numpy as np
import numpy.typing as npt

from training.histories.contents import ContentHistory

_LINK: Final = re.compile(
    r"\]\(\s*<?([^)\s>]+)|href=[\"']([^\"']+)|^\s*\[[^\]]+\]:\s*(\S+)|`[^`<]*<([^>`]+)>`_", re.M
)
"""Targets of links in Markdown, HTML and reStructuredText."""
_ENDINGS: Final = (".md", ".mdx", ".rst", ".txt", ".html", ".markdown")
_INDEXES: Final = ("index", "_index", "readme")


def importance(contents: ContentHistory) -> npt.NDArray[np.float64]:
    """1 + pages of the same site that link to each page in cycle 0: ``[P]``."""
    history = contents.history
    assert history.page_names is not None
    sites, names = history.site.tolist(), list(history.page_names)
    number = {(site, _place(name)): page for page, (site, name) in enumerate(zip(sites, names, strict=True))}
    found = np.ones(history.pages)
    for page, text in enumerate(contents.texts_at(0)):
        targets = {
            number.get((sites[page], place))
            for link in _links(text or "")
            for place in _places(names[page], link)
        }
        for target in targets - {None, page}:
            found[target] += 1.0
    return found


def _links(text: str) -> Iterator[str]:
    for match in _LINK.finditer(text):
        target = next((group for group in match.groups() if group), "")
        try:
            parts = urlsplit(target)
        except ValueError:  # no address, such as //[
            continue
        if parts.path and not parts.netloc and "://" not in target:
            yield unquote(parts.path)


def _places(page: str, path: str) -> tuple[str, ...]:
    """Where a link of a page may lead: beside it, below it as its own directory, or from the root."""
    if path.startswith("/"):
        return (_place(path.lstrip("/")), _place(posixpath.join("docs", path.lstrip("/"))))
    folder = posixpath.dirname(page)
    return (
        _place(posixpath.normpath(posixpath.join(folder, path))),
        _place(posixpath.normpath(posixpath.join(posixpath.splitext(page)[0], path))),
    )


def _place(name: str) -> str:
    """A page's name as links have it: no ending, no index file, no slash at the end."""
    name = name.rstrip("/").lower()
    ending = next((ending for ending in _ENDINGS if name.endswith(ending)), "")
    name = name.removesuffix(ending)
    folder, _, last = name.rpartition("/")
    return folder if last in _INDEXES else name
