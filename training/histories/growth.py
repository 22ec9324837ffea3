"""Histories that grow: which page appeared in which cycle, and whose response leads to it."""

from __future__ import annotations

import gzip
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import IO, Any, Final, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.arrays import Array
from scrapy_gp4c.errors import HistoryError, ImportFileError, StoreError
from scrapy_gp4c.page_state.claims import CLAIM_KINDS, finder_pages
from scrapy_gp4c.page_state.groups import place_of_url
from scrapy_gp4c.store.credentials import Credentials
from scrapy_gp4c.store.export import claims_between
from scrapy_gp4c.store.history_fields import (
    CHANGED_BIT,
    NOT_JUDGED,
    PageLine,
    check_pages,
    is_header,
    joined,
    read_header,
    read_page,
)
from scrapy_gp4c.store.protocols import PageReader
from scrapy_gp4c.store.records import StoredRequest
from training.histories.claims import DATED_CLAIM, of_crawl
from training.histories.formats import ArrayHeader, check_size, lines, read_arrays, read_file, write_npz
from training.histories.from_store import CrawlOutcomes
from training.histories.history import ChangeHistory, sizes_or_none, weights_or_none

NO_FINDER: Final = -1
"""Finder of a page that needs none: a start request."""


@dataclass(frozen=True)
class GrowthHistory:
    """A history of P pages with their births. Raises HistoryError for arrays that do not fit."""

    history: ChangeHistory
    """Changes; none up to the cycle of a page's birth."""
    born: npt.NDArray[np.int32]
    """``[P]``: cycle (from 1) in which the page appeared; 0: it was there before."""
    finder: npt.NDArray[np.int32]
    """``[P]``: position of the page that links to each page; `NO_FINDER`: known from birth on."""
    claims: npt.NDArray[Any] = field(default_factory=lambda: np.empty(0, DATED_CLAIM))
    """Dtype `DATED_CLAIM`: what sites claimed of pages, in order of cycles."""

    def __post_init__(self) -> None:
        pages, cycles = self.history.pages, self.history.cycles
        for name, values, low, high in (
            ("born", self.born, 0, cycles),
            ("finder", self.finder, NO_FINDER, pages - 1),
        ):
            fits = values.shape == (pages,) and values.dtype.kind in "iu"
            if not fits or values.min() < low or values.max() > high:
                raise HistoryError(
                    f"{name!r} of a growth history must be integers from {low} to {high:,}, one for each of "
                    f"{pages:,} pages; found {values.dtype} of shape {list(values.shape)}"
                )
        claims = self.claims
        if len(claims) and not ((claims["page"] < pages) & (claims["kind"] < CLAIM_KINDS)).all():
            raise HistoryError(
                f"'claims' of a growth history must be of its {pages:,} pages and of known kinds"
            )
        if (self.finder == np.arange(pages)).any():
            raise HistoryError("a page of a growth history must not be its own finder")

    @property
    def observed(self) -> npt.NDArray[np.bool_]:
        """``[D, P]``: whether a change of the page could be seen: after its birth."""
        return np.asarray(np.arange(1, self.history.cycles + 1)[:, None] > self.born)

    def until(self, cycle: int) -> GrowthHistory:
        """Growth up to a cycle: pages that are born and can be found by then; cycles keep their numbers."""
        known = self.born <= cycle
        while len(lost := np.flatnonzero(known & (self.finder != NO_FINDER) & ~known[self.finder])):
            known[lost] = False
        position = np.full(len(known) + 1, NO_FINDER, np.int32)
        position[:-1][known] = np.arange(np.count_nonzero(known))
        claims = self.claims[(self.claims["cycle"] <= cycle) & known[self.claims["page"]]].copy()
        claims["page"] = position[claims["page"]]
        history = self.history.take(known, slice(0, cycle))
        return GrowthHistory(history, self.born[known], position[self.finder[known]], claims)


def write_growth(path: Path, growth: GrowthHistory) -> None:
    """Write an npz archive that is a history too: of the pages that were there from the start.

    Raises HistoryError for a name that it cannot hold.
    """
    history = growth.history
    known = ChangeHistory(
        history.changed,
        history.site,
        history.weight,
        growth.observed,
        history.site_names,
        history.page_names,
        history.key,
        size=history.size,
    )
    write_npz(path, known, {"born": growth.born, "finder": growth.finder, "claims": growth.claims})


MAX_MISSED: Final = 2
"""Cycles without an outcome that a page may have: they count as unchanged."""


class CrawlVisits(NamedTuple):
    """Growth of P pages in a crawl of C finished cycles."""

    source: str
    judged: npt.NDArray[np.bool_]
    """``[C + 1, P]``; row c is cycle c, as in the next."""
    changed: npt.NDArray[np.bool_]
    entered: Array
    """``[P]``: cycle in which each became known; 0: not known."""
    first_cycle: Array
    """``[P]``: cycle of its first copy; 0: there is none."""
    found_by: Array
    """``[P]``: as the column of this name, of the pages 0..P-1."""
    urls: Callable[[npt.NDArray[np.intp]], Sequence[str]]
    """URLs of some pages."""
    key: npt.NDArray[np.uint64] | None
    weight: npt.NDArray[np.float64]
    """``[P]``"""
    size: npt.NDArray[np.uint8]
    """``[P]``: classes of sizes at first sight; 0: unknown."""
    claims: Array
    """With fields as `DATED_CLAIM` has them, but in the crawl's cycles."""


def growth_of(visited: CrawlVisits) -> GrowthHistory:
    """Pages, births, finders and claims of a crawl that visited its pages in every cycle.

    A page is born in the cycle in which the crawl found it, at the latest. Cycle c of the crawl is c - 1 of
    the history. Raises HistoryError for pages that were visited now and then.
    """
    last, pages = len(visited.judged) - 1, visited.judged.shape[1]
    if last < 2:
        raise HistoryError(f"{visited.source} has {last} closed cycle(s); growth begins with the second")
    entered = np.maximum(visited.entered, 1)
    since = np.arange(last + 1)[:, None] > entered
    missed = np.count_nonzero(since & ~visited.judged, axis=0)
    regular = np.flatnonzero((missed <= MAX_MISSED) & (visited.first_cycle > 0))
    if len(regular) * 2 < pages or not pages:
        raise HistoryError(
            f"{visited.source}: of its {pages:,} pages, {len(regular):,} were judged in all but {MAX_MISSED} "
            "cycles since they became known; set GP4C_BUDGET or GP4C_PANEL to 1.0 for some cycles"
        )
    position = np.full(pages + 1, NO_FINDER, np.int32)
    position[regular] = np.arange(len(regular))
    finder = position[finder_pages(visited.found_by[regular])]  # the last place stands for -1
    names = visited.urls(regular)
    sites, site = np.unique([place_of_url(name).site for name in names], return_inverse=True)
    history = ChangeHistory(
        changed=np.ascontiguousarray((visited.changed & since)[2:, regular]),
        site=site.astype(np.int32),
        weight=weights_or_none(visited.weight[regular]),
        size=sizes_or_none(visited.size[regular]),
        site_names=sites.tolist(),
        page_names=names,
        key=None if visited.key is None else visited.key[regular],
        source=visited.source,
    )
    claims = of_crawl(visited.claims, position, 1)
    return GrowthHistory(history, (entered[regular] - 1).astype(np.int32), finder.astype(np.int32), claims)


GZIP = b"\x1f\x8b"


def is_export(path: Path) -> bool:
    """Tell whether a file begins as an export does; raises HistoryError for one that cannot be read."""
    try:
        with _open(path) as file:
            return is_header(file.readline(1_000).decode())
    except (OSError, EOFError, UnicodeDecodeError):
        return False


def read_export_growth(path: Path) -> GrowthHistory:
    """Growth in an export, as `growth_of`; its pages have no keys, so that ties fall by their order.

    Raises HistoryError, which names the line, for what is no export, and for pages that were visited now and
    then.
    """
    try:
        with _open(path) as file:
            rows = ((number, row.decode()) for number, row in enumerate(lines(path, file), 1))
            cycles = read_header(str(path), next(rows)[1]).cycles
            check_size(path, cycles, 1)
            pages = [
                read_page(str(path), number, row.rstrip("\n"), partial(_numbered, number))
                for number, row in rows
                if not row.startswith("#")
            ]
        check_size(path, cycles, len(pages))
        check_pages(str(path), pages, cycles, lambda key: False)
    except ImportFileError as error:
        raise HistoryError(str(error)) from None
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise HistoryError(f"cannot read the export {path}: {error}") from error
    return growth_of(_visits_of_export(path, pages, cycles))


def _numbered(number: int, stored: StoredRequest) -> tuple[int, StoredRequest]:
    """A page by its line: its key would take the spider's settings."""
    return number, stored


def _visits_of_export(path: Path, pages: list[PageLine], cycles: int) -> CrawlVisits:
    bits = np.full((cycles + 1, len(pages)), NOT_JUDGED, np.uint8)
    for number, page in enumerate(pages):
        bits[2:, number] = np.frombuffer(page.bits, np.uint8)
    claims = joined([page.claims for page in pages])

    def column(name: str) -> npt.NDArray[np.int64]:
        return np.array([getattr(page, name) for page in pages], np.int64)

    return CrawlVisits(
        str(path),
        bits != NOT_JUDGED,
        bits == CHANGED_BIT,
        column("entered"),
        column("first_cycle"),
        column("found_by"),
        lambda chosen: [pages[page].request["url"] for page in chosen.tolist()],
        None,
        np.array([page.weight for page in pages]),
        column("size").astype(np.uint8),
        claims,
    )


def _open(path: Path) -> IO[bytes]:
    with open(path, "rb") as file:
        packed = file.read(2) == GZIP
    return cast(IO[bytes], gzip.open(path)) if packed else open(path, "rb")


def read_store_growth(path: Path) -> GrowthHistory:
    """Growth in the store at `path`, as `growth_of`.

    Raises HistoryError for a directory that is no store, or whose pages were visited now and then.
    """
    from scrapy_gp4c.store.opening import open_store  # needs lmdb; only a store does

    try:
        with open_store(path, readonly=True) as store:
            return growth_of(_visits_of_store(path, store))
    except StoreError as error:
        raise HistoryError(
            f"{path} is a directory, but no store of a crawl to read growth from: {error}"
        ) from error


def _visits_of_store(path: Path, store: PageReader) -> CrawlVisits:
    outcomes = CrawlOutcomes(store, everything=True)
    columns = store.columns_of(outcomes.page.astype(np.uint32))
    shown = Credentials.of_store(store.cycles()).url

    def urls(pages: npt.NDArray[np.intp]) -> list[str]:
        return [shown(stored["url"]) for stored in store.requests(pages)]

    claims = claims_between(store, 0, len(outcomes.page))
    return CrawlVisits(
        str(path),
        outcomes.judged,
        outcomes.changed,
        columns["entered"],
        columns["first_cycle"],
        columns["found_by"],
        urls,
        columns["key"].astype(np.uint64),
        columns["weight"],
        columns["size"],
        claims,
    )


def read_growth(path: Path) -> GrowthHistory:
    """Read an npz archive of `write_growth`, the store of a crawl (a directory), or a store's export.

    Raises HistoryError, which names what was expected and found.
    """
    if path.is_dir():
        return read_store_growth(path)
    if is_export(path):
        return read_export_growth(path)
    fields = read_file(path)
    pages = len(fields.site)

    def check(headers: dict[str, ArrayHeader]) -> None:
        for name in ("born", "finder"):
            if name in headers and headers[name].shape != (pages,):
                raise HistoryError(
                    f"{path}: expected {name!r} of {pages:,} pages; found {list(headers[name].shape)}"
                )

    arrays: dict[str, npt.NDArray[Any]] = {}
    if zipfile.is_zipfile(path):
        with open(path, "rb") as file:
            arrays = read_arrays(path, file, ("born", "finder", "claims"), "expected growth", check)
    if not {"born", "finder"} <= arrays.keys():
        raise HistoryError(
            f"{path} tells nothing of growth: expected an npz archive with the arrays born and finder, as "
            "`python -m training.from_git --growth` writes it, the store of a crawl, or what `scrapy gp4c "
            "export` writes of one"
        )
    history = ChangeHistory(**fields._replace(observed=None)._asdict(), source=str(path))
    return GrowthHistory(
        history, arrays["born"], arrays["finder"], arrays.get("claims", np.empty(0, DATED_CLAIM))
    )
