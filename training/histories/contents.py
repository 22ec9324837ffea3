"""Contents: texts of every page in every cycle.

A file of contents has one JSON object per line, plain, gzip or xz: ``{"site": "docs", "page":
"guide/install", "versions": {"0": "text", "13": "text", "40": null}}``. The keys of ``versions`` are cycles:
in cycle c a page holds the version of the greatest key that is at most c; null means that there is no page
from then on. Every page has a text in cycle 0.
"""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.errors import HistoryError
from training.histories.formats import check_size, lines, opened
from training.histories.history import ChangeHistory
from training.histories.names import PackedNames

LAYOUT: Final = (
    'a line of JSON per page such as {"site": "docs", "page": "guide", "versions": {"0": "text"}}, '
    "plain, gzip or xz"
)


class PageVersions(NamedTuple):
    """Versions of one page: the record of one line of a file of contents."""

    site: str
    page: str
    since: list[int]
    """Cycles in which the versions appear, ascending from 0."""
    texts: list[str | None]
    """Texts of the versions, each different from the version before; None: there is no page."""


@dataclass(frozen=True, eq=False)
class ContentHistory:
    """Texts of P pages over D cycles; versions are numbered page by page, in order of time."""

    history: ChangeHistory
    version: npt.NDArray[np.int32]
    """``[D + 1, P]``: number of the version that each page has in cycles 0..D."""
    first_version: npt.NDArray[np.int32]
    """``[P + 1]``: number of each page's first version, and the number of versions."""
    texts: list[str | None]
    """``[versions]``: text of each version; None: the page does not exist."""

    @property
    def page_of_version(self) -> npt.NDArray[np.int32]:
        return np.repeat(np.arange(self.history.pages, dtype=np.int32), np.diff(self.first_version))

    def texts_at(self, cycle: int) -> list[str | None]:
        return [self.texts[number] for number in self.version[cycle].tolist()]


def has_contents(path: Path) -> bool:
    """Whether a file is a file of contents, by its beginning; HistoryError if it cannot be read."""
    with opened(path) as file:
        line = file.read(4_096).lstrip().partition(b"\n")[0]
    return line[:1] == b"{" and b"\t" not in line  # with a tab it is a site of TSV, as JSON escapes tabs


def read_contents(path: str | Path, site: str | None = None, changed_only: bool = False) -> ContentHistory:
    """Read a file of contents.

    ``site``: only its pages; ``changed_only``: only pages that change at all. The last cycle is the greatest
    key of the whole file. Raises HistoryError, naming file, line, what was expected and what was found.
    """
    path = Path(path)
    pages: list[PageVersions] = []
    sites: dict[str, int] = {}
    seen: dict[tuple[str, str], int] = {}
    cycles = 0
    for number, page in _lines(path):
        first = seen.setdefault((page.site, page.page), number)
        if first != number:
            raise HistoryError(
                f"{path}, line {number}: page {page.page!r} of site {page.site!r} stands in line {first} "
                "already; give each page one line with all of its versions"
            )
        cycles = max(cycles, page.since[-1])
        check_size(path, cycles, len(seen))
        sites.setdefault(page.site, len(sites))
        page = _changes(page)
        if site in (None, page.site) and (len(page.since) > 1 or not changed_only):
            pages.append(page)
    if not seen:
        raise HistoryError(f"{path} is empty: expected {LAYOUT}")
    if site is not None and site not in sites:
        raise HistoryError(f"{path} has no site {site!r}; it has: {', '.join(sorted(sites))}")
    if not pages or not cycles:
        raise HistoryError(
            f"{path}: nothing {f'of site {site!r} ' if site else ''}changes in its {cycles} cycles; "
            "a history needs a page and a cycle after cycle 0"
        )
    return _assembled(path, pages, cycles)


def _assembled(path: Path, pages: list[PageVersions], cycles: int) -> ContentHistory:
    count = np.array([len(page.since) for page in pages])
    first_version = np.concatenate(([0], np.cumsum(count))).astype(np.int32)
    appears = np.zeros((cycles + 1, len(pages)), np.int32)
    for column, page in enumerate(pages):
        appears[page.since, column] = 1
    sites = {name: number for number, name in enumerate(dict.fromkeys(page.site for page in pages))}
    with open(path, "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    history = ChangeHistory(
        appears[1:].astype(np.bool_),
        np.array([sites[page.site] for page in pages], np.int32),
        site_names=list(sites),
        page_names=PackedNames(page.page for page in pages),
        source=str(path),
        sha256=digest,
    )
    version = np.cumsum(appears, axis=0, dtype=np.int32) - 1 + first_version[:-1]
    return ContentHistory(history, version, first_version, [text for page in pages for text in page.texts])


def _changes(page: PageVersions) -> PageVersions:
    """The page without versions that are equal to the one before."""
    differs = [True, *(before != after for before, after in pairwise(page.texts))]
    changing = [number for number, is_other in enumerate(differs) if is_other]
    return page._replace(since=[page.since[i] for i in changing], texts=[page.texts[i] for i in changing])


def _lines(path: Path) -> Iterator[tuple[int, PageVersions]]:
    with opened(path) as file:
        for number, line in enumerate(lines(path, file), start=1):
            if line.strip():
                yield number, _page(path, number, line)


def _page(path: Path, number: int, line: bytes) -> PageVersions:
    def wrong(description: str) -> HistoryError:
        return HistoryError(f"{path}, line {number}: expected {LAYOUT}; found {description}")

    try:
        parsed = json.loads(line)
    except (ValueError, RecursionError) as error:  # JSON or UTF-8
        raise wrong(f"what is no JSON: {error}") from None
    fields = [parsed.get(name) for name in ("site", "page", "versions")] if isinstance(parsed, dict) else []
    match fields:
        case [str(site), str(page), dict(versions)] if site and page:
            pass
        case _:
            raise wrong(f"{line[:60].decode('utf-8', 'replace')!r}")
    since = []
    for key, text in versions.items():
        if not (key.isascii() and key.isdigit() and len(key) < 10) or not isinstance(text, str | None):
            raise wrong(f"version {key!r}: {str(text)[:20]!r}; a version is a cycle and a text (or null)")
        since.append(int(key))
    order = sorted(range(len(since)), key=since.__getitem__)
    since, texts = [since[i] for i in order], [list(versions.values())[i] for i in order]
    if not since or since[0] != 0 or texts[0] is None:
        raise wrong("no text in cycle 0; leave out pages that come later")
    if len(set(since)) < len(since):
        raise wrong("two versions of one cycle")
    return PageVersions(site, page, since, texts)
