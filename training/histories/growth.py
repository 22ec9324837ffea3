"""Histories that grow: the cycle of each page's birth, and the page that links to it."""

import itertools
import tempfile
import zipfile
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.arrays import Array
from scrapy_gp4c.errors import HistoryError, ImportFileError
from scrapy_gp4c.foreign_text import counted
from scrapy_gp4c.page_state.claims import DATED_CLAIM, finder_pages
from scrapy_gp4c.page_state.groups import place_of_url
from scrapy_gp4c.scoring import hints
from scrapy_gp4c.store.credentials import Credentials
from scrapy_gp4c.store.export import claims_between, flipped_between
from scrapy_gp4c.store.history_fields import is_header
from scrapy_gp4c.store.opening import Store, import_history
from training.histories.claims import of_crawl
from training.histories.formats import (
    ArrayHeader,
    lines,
    opened,
    read_arrays,
    read_file,
    write_npz,
)
from training.histories.from_store import CrawlOutcomes, flipped_of, opened_store
from training.histories.history import ChangeHistory, known_or_none, weights_or_none

NO_FINDER: Final = -1
"""Finder (page that links to a page) of start requests, which have none."""
LINK: Final = np.dtype([("source", "<i4"), ("target", "<i4"), ("anchor", "<f2")])
"""Link: positions of linking and linked page; share of a query log's words that its text has."""


@dataclass(frozen=True)
class GrowthHistory:
    """History of P pages with their births. Raises HistoryError for arrays that do not fit."""

    history: ChangeHistory
    """Changes of the pages; none up to the cycle of a page's birth."""
    born: npt.NDArray[np.int32]
    """``[P]``: cycle (from 1) in which the page appeared; 0: it was there before."""
    finder: npt.NDArray[np.int32]
    """``[P]``: position of the page by whose link each is found; `NO_FINDER`: known from birth on."""
    claims: npt.NDArray[Any] = field(default_factory=lambda: np.empty(0, DATED_CLAIM))
    """Sites' claims that pages changed, dtype `DATED_CLAIM`, in order of cycles."""
    links: npt.NDArray[Any] = field(default_factory=lambda: np.empty(0, LINK))
    """Links, dtype `LINK`, each from the birth of both pages on; empty: those of the finders alone."""

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
        if len(claims) and not ((claims["page"] < pages) & (claims["kind"] < len(hints.KINDS))).all():
            raise HistoryError(
                f"'claims' of a growth history must be of its {pages:,} pages and of known kinds"
            )
        if self.links.dtype != LINK:
            raise HistoryError(f"'links' of a growth history must be {LINK}; found {self.links.dtype}")
        ends = [self.links[name] for name in ("source", "target")]
        if len(self.links) and not (np.min(ends) >= 0 and np.max(ends) < pages):
            raise HistoryError(f"'links' of a growth history must be between its {pages:,} pages")
        if (self.finder == np.arange(pages)).any():
            raise HistoryError("a page of a growth history must not be its own finder")

    @property
    def observed(self) -> npt.NDArray[np.bool_]:
        """Whether a change of the page could be seen, after its birth: ``[D, P]``."""
        return np.asarray(np.arange(1, self.history.cycles + 1)[:, None] > self.born)

    def until(self, cycle: int) -> "GrowthHistory":
        """The growth history up to `cycle`, with the pages that are born and can be found by then."""
        known = self.born <= cycle
        while len(lost := np.flatnonzero(known & (self.finder != NO_FINDER) & ~known[self.finder])):
            known[lost] = False
        position = np.full(len(known) + 1, NO_FINDER, np.int32)
        position[:-1][known] = np.arange(np.count_nonzero(known))
        claims = self.claims[(self.claims["cycle"] <= cycle) & known[self.claims["page"]]].copy()
        claims["page"] = position[claims["page"]]
        history = self.history.take(known, slice(0, cycle))
        links = numbered_links(self.links, position)
        return GrowthHistory(history, self.born[known], position[self.finder[known]], claims, links)


def numbered_links(links: Array, position: Array) -> npt.NDArray[Any]:
    """Links with renumbered pages, dtype `LINK`; ``position``: new number of each page, -1: left out."""
    inner = links[(position[links["source"]] >= 0) & (position[links["target"]] >= 0)]
    numbered = np.empty(len(inner), LINK)
    numbered["source"], numbered["target"] = position[inner["source"]], position[inner["target"]]
    numbered["anchor"] = inner["anchor"]
    return numbered


def write_growth(path: Path, growth: GrowthHistory) -> None:
    """Write an npz archive of all pages for `read_growth`.

    Read as a plain history it lacks pages born later. Raises HistoryError for a name with a null character.
    """
    known = replace(growth.history, observed=growth.observed)
    arrays = {name: getattr(growth, name) for name in ("born", "finder", "claims", "links")}
    write_npz(path, known, arrays)


MAX_MISSED: Final = 2
"""Largest number of cycles of a page without an outcome; they count as unchanged."""


def is_export(path: Path) -> bool:
    """Whether a file begins as one of `scrapy gp4c export`; raises HistoryError if it cannot be read."""
    with opened(path) as file:
        return is_header(file.readline(1_000).decode(errors="replace"))


def read_export_growth(path: Path) -> GrowthHistory:
    """Read a growth history from a file of `scrapy gp4c export`, by way of a temporary store.

    Raises HistoryError for a line that is no export's, and for pages that were visited now and then.
    """
    numbers = itertools.count(1)
    try:
        with tempfile.TemporaryDirectory() as directory, opened(path) as file:
            store_path = Path(directory) / "store"
            rows = ((number, row.decode()) for number, row in enumerate(lines(path, file), 1))
            import_history(store_path, str(path), rows, lambda stored: (next(numbers), stored))
            grown = read_store_growth(store_path, str(path))
    except ImportFileError as error:
        raise HistoryError(str(error)) from None
    return replace(grown, history=replace(grown.history, key=None))


def read_store_growth(path: Path, source: str | None = None) -> GrowthHistory:
    """Read a growth history from the store of a crawl that visited its pages in every cycle.

    A page's birth is the cycle in which the crawl found it. Cycle c of the crawl is c - 1 of the history.
    ``source``: name in messages. Raises HistoryError for no store, or pages visited now and then.
    """
    with opened_store(path, "read growth from") as store:
        return _growth_of(store, source or str(path))


def _growth_of(store: Store, source: str) -> GrowthHistory:
    outcomes = CrawlOutcomes(store, everything=True)
    last, pages = len(outcomes.judged) - 1, outcomes.judged.shape[1]
    if last < 2:
        raise HistoryError(
            f"{source} has {counted(last, 'finished cycle')}; growth begins with the second: crawl once more"
        )
    columns = store.columns_of(outcomes.page.astype(np.uint32))
    entered = np.maximum(columns["entered"], 1)
    since = np.arange(last + 1)[:, None] > entered
    missed = np.count_nonzero(since & ~outcomes.judged, axis=0)
    regular = np.flatnonzero((missed <= MAX_MISSED) & (columns["first_cycle"] > 0))
    if len(regular) * 2 < pages or not pages:
        raise HistoryError(
            f"{source}: of its {pages:,} pages, {len(regular):,} were judged in all but {MAX_MISSED} "
            "cycles since they became known; set GP4C_BUDGET or GP4C_PANEL to 1.0 for some cycles"
        )
    position = np.full(pages + 1, NO_FINDER, np.int32)
    position[regular] = np.arange(len(regular))
    finder = position[finder_pages(columns["found_by"][regular])]  # the last place stands for -1
    shown = Credentials.of_store(store.cycles()).url
    names = [shown(stored["url"]) for stored in store.requests(regular)]
    sites, site = np.unique([place_of_url(name).site for name in names], return_inverse=True)
    changed = np.ascontiguousarray((outcomes.changed & since)[2:, regular])
    history = ChangeHistory(
        changed=changed,
        site=site.astype(np.int32),
        weight=weights_or_none(columns["weight"][regular]),
        size=known_or_none(columns["size"][regular]),
        latency_ms=known_or_none(columns["latency_ms"][regular]),
        flipped=flipped_of(flipped_between(store, 0, pages), position[:-1], changed, 2),
        site_names=sites.tolist(),
        page_names=names,
        key=columns["key"][regular].astype(np.uint64),
        source=source,
    )
    claims = of_crawl(claims_between(store, 0, pages), position, 1)
    born = (entered[regular] - 1).astype(np.int32)
    return GrowthHistory(history, born, finder.astype(np.int32), claims, _links_of(store, position))


def _links_of(store: Store, position: Array) -> npt.NDArray[Any]:
    clusters = store.clusters()
    if clusters is None:
        return np.empty(0, LINK)
    of_store = clusters.groups.links
    links = np.zeros(len(of_store.source), LINK)
    links["source"], links["target"] = of_store.source, of_store.target
    return numbered_links(links, position)


def read_growth(path: Path) -> GrowthHistory:
    """Read a growth history from an archive of `write_growth`, a crawl's store (a directory), or its export.

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
            arrays = read_arrays(path, file, ("born", "finder", "claims", "links"), "expected growth", check)
    if not {"born", "finder"} <= arrays.keys():
        raise HistoryError(
            f"{path} tells nothing of growth: expected an npz archive with the arrays born and finder, as "
            "`python -m training.from_git --growth` writes it, the store of a crawl, or what `scrapy gp4c "
            "export` writes of one"
        )
    history = ChangeHistory(**fields._replace(observed=None)._asdict(), source=str(path))
    extras = {name: arrays[name] for name in ("claims", "links") if name in arrays}
    return GrowthHistory(history, arrays["born"], arrays["finder"], **extras)
