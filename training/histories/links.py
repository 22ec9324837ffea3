"""Links between the pages of recorded contents, as Markdown, HTML and reStructuredText write them."""

import posixpath
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Final
from urllib.parse import unquote, urlsplit

import numpy as np

from scrapy_gp4c.page_state.groupings import Links
from training.histories.history import ChangeHistory

_LINK: Final = re.compile(
    r"(?:\[([^\[\]]{0,1000}))?\]\(\s*<?([^)\s>]+)"
    r"|href=[\"'](?=[^\"']+(?:[\"'][^<>]{0,1000}>([^<]{0,1000}))?)([^\"']+)"
    r"|^\s*\[([^\]]+)\]:\s*(\S+)|`([^`<]*)<([^>`]+)>`_"
    r"|:doc:`(?:([^`<]*)<)?([^`>]+)>?`|:pep:`(?:([^`<]*)<)?\s*(?P<pep>\d+)",
    re.M,
)
"""In every alternative the text of a link, where it has any, comes before its target."""
_ENDINGS: Final = (".md", ".mdx", ".rst", ".txt", ".html", ".markdown")
_INDEXES: Final = ("index", "_index", "readme")


def links_of(history: ChangeHistory, texts: Sequence[str | None]) -> Links:
    """Find links between pages of one site, each once, none from a page to itself: see `link_texts`."""
    pairs = np.array(list(link_texts(history, texts)), np.intp).reshape(-1, 2)
    return Links(np.ascontiguousarray(pairs[:, 0]), np.ascontiguousarray(pairs[:, 1]), history.pages)


def link_texts(history: ChangeHistory, texts: Sequence[str | None]) -> dict[tuple[int, int], list[str]]:
    """Find links within sites: (position of the linking page, of the linked page), ascending -> link texts.

    A link leads to the page beside the one that has it, below that one as a directory, or from the root or
    its folder ``docs``: the first of these that exists, whatever the ending. Images count as links.
    """
    sites, pages = history.site.tolist(), list(history.page_names or ())
    known: dict[tuple[int, str], int] = {}
    for number, (site, page) in enumerate(zip(sites, pages, strict=True)):
        known.setdefault((site, _name(page)), number)
    links: defaultdict[tuple[int, int], list[str]] = defaultdict(list)
    for source, (site, page, text) in enumerate(zip(sites, pages, texts, strict=True)):
        for path, anchor in _paths(text or ""):
            names = ((site, name) for name in _names(page, path))
            target = next((known[name] for name in names if name in known), source)
            if target != source:
                links[source, target].append(anchor)
    return dict(sorted(links.items()))


def _paths(text: str) -> Iterator[tuple[str, str]]:
    for match in _LINK.finditer(text):
        last = match.lastindex or 0
        target = match[last]
        if match["pep"]:
            target = f"pep-{target:0>4}"
        try:
            parts = urlsplit(target)
        except ValueError:  # not a valid address, such as //[
            continue
        if parts.path and not parts.netloc and "://" not in target:
            yield unquote(parts.path), match[last - 1] or ""


def _names(page: str, path: str) -> tuple[str, str]:
    """Names of pages that the link target `path` in `page` may mean, the likeliest first."""
    if path.startswith("/"):
        return _name(path.lstrip("/")), _name(posixpath.join("docs", path.lstrip("/")))
    sibling = posixpath.normpath(posixpath.join(posixpath.dirname(page), path))
    return _name(sibling), _name(posixpath.normpath(posixpath.join(posixpath.splitext(page)[0], path)))


def _name(path: str) -> str:
    """Page name as links have it: no ending, no index file, no slash at the end."""
    name = path.rstrip("/").lower()
    ending = next((ending for ending in _ENDINGS if name.endswith(ending)), "")
    name = name.removesuffix(ending)
    folder, _, last = name.rpartition("/")
    return folder if last in _INDEXES else name
