"""Protocols of a page store: reading pages, planning a cycle, recording its visits, and maintenance.

Names and errors are those of every implementer; `tests/store/test_store_model.py` holds them to it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self, Unpack

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.errors import StoreError
from scrapy_gp4c.page_state.columns import Columns, PageRow
from scrapy_gp4c.page_state.groups import place_of_url
from scrapy_gp4c.store.records import (
    CycleRecord,
    LastAnswer,
    NewVisit,
    RoundCounts,
    StoredGroups,
    StoredRequest,
)

Pages = Sequence[int] | npt.NDArray[Any]
"""Page ids."""


class SiteTrust(Protocol):
    """Trust in sites."""

    def trust(self) -> npt.NDArray[Any]:
        """Counts of right and wrong claims by site, dtype `TRUST`."""


class PageHints(SiteTrust, Protocol):
    """Claims of sites about pages; see `scrapy_gp4c.page_state.claims`."""

    def find(self, keys: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
        """Page ids of page keys, ``[K]``; -1 for those that are not known."""

    def note(self, pages: npt.NDArray[Any], kind: str, values: npt.NDArray[Any]) -> None:
        """Note claims of a kind of `hints.KINDS` in the open cycle; the next commit writes all or none.

        ``pages``, ``values``: ``[C]``; times, s since 1970, or for spans s.
        """

    def tell(self, pages: npt.NDArray[Any], time_s: float) -> None:
        """Note that pages changed at a time that no finished cycle has seen, and commit."""

    def of_cycles(self, first: int = 1, last: int | None = None) -> Iterator[tuple[int, npt.NDArray[Any]]]:
        """Yield (cycle, claims) of finished cycles, dtype `CLAIM`, those that were new, in chunks."""


class PageGains(Protocol):
    """Gains of a search by visits: none until `begin`."""

    @property
    def log(self) -> str | None:
        """Digest of the log that gains are measured by; None: nothing was ever measured."""

    @property
    def since(self) -> int:
        """First cycle whose gains are in the columns."""

    def begin(self, log: str, since: int | None = None) -> bool:
        """Measure by this log from now on; True if it is another, by which the columns of gains are emptied.

        ``since``: the first cycle that is measured so; None: the one that is open, or will be.
        """

    def keep(self, gains: npt.NDArray[Any]) -> None:
        """Keep the gains of the open cycle, dtype `GAIN`, in place of those kept before, for its fold."""

    def of_cycles(self, first: int = 1, last: int | None = None) -> Iterator[tuple[int, npt.NDArray[Any]]]:
        """Yield (cycle, gains) of finished cycles, dtype `GAIN`."""


class PageWeights(Protocol):
    """Weights of pages; see `scrapy_gp4c.scoring.weights`."""

    def of(self, page: int) -> float:
        """Weight of a page, as the newest request or list has it; `note` says another in the open cycle."""

    def put(self, pages: npt.NDArray[Any], values: npt.NDArray[np.float64]) -> None:
        """Set the weights of pages, ``[P]``, the last one of a page that is named twice, and commit.

        While a cycle is open, its fold does so.
        """


class PageReader(Protocol):
    """Reading of pages, visits and cycles that are finished, and of what is buffered of the open cycle.

    ``pages`` are ids 0..P-1. Readers work beside a writer.
    """

    @property
    def path(self) -> Path:
        """Directory of the store."""

    @property
    def store_id(self) -> str:
        """Random hex digits that name the store."""

    @property
    def pages(self) -> int:
        """Number of known pages: ids are 0..pages-1, those found in the open cycle included."""

    @property
    def merged_pages(self) -> int:
        """Number of pages with columns in `blocks`: all but those found in the open cycle."""

    @property
    def last_cycle(self) -> int:
        """Last finished cycle; 0: none."""

    @property
    def open_cycle(self) -> int | None:
        """Unfinished cycle; None: there is none."""

    @property
    def hints(self) -> PageHints:
        """Claims of sites about pages."""

    @property
    def gains(self) -> PageGains:
        """Gains of a search by visits."""

    @property
    def weights(self) -> PageWeights:
        """Weights of pages."""

    def cycles(self, first: int = 1) -> list[CycleRecord]:
        """Records of all cycles from one on, oldest first; that of the open one has no ``finished``."""

    def starts_s(self, cycles: Iterable[int]) -> dict[int, float]:
        """Starts of some cycles, s since 1970; without those that are not known."""

    def newest_record(self, name: str) -> CycleRecord:
        """Record of the newest cycle that has a value of this name; empty where none has."""

    def find(self, key: int) -> int | None:
        """Page id of a page key, or None."""

    def page(self, page: int) -> PageRow:
        """Columns of one page as the last finished cycle left them."""

    def blocks(self, names: Collection[str] | None = None) -> Iterator[tuple[int, Columns]]:
        """Yield the page columns block by block: first page id, and read-only columns ``[rows]``.

        ``names``: at least these of `scrapy_gp4c.page_state.columns.COLUMNS`, maybe several blocks at a time;
        None: all, and others besides, those of `scrapy_gp4c.scoring.refresh_value.COLUMNS` if any was ever
        measured.
        """

    def columns_of(self, pages: npt.NDArray[np.uint32], names: Collection[str] | None = None) -> Columns:
        """Columns ``[P]`` of pages below `merged_pages`, whose ids ascend.

        ``names``: at least these, of `scrapy_gp4c.page_state.columns.COLUMNS`; None: all.
        """

    def request(self, page: int) -> StoredRequest:
        """Return the stored request of one page."""

    def requests(self, pages: Pages) -> list[StoredRequest]:
        """Return the stored requests of pages, aligned with `pages` (ids in any order)."""

    def validators(self, page: int) -> tuple[str | None, str | None]:
        """ETag and Last-Modified of the page's copy, as the server sent them."""

    def answer(self, page: int) -> LastAnswer:
        """How the last visit of a page failed, or from where it was answered."""

    def copy_notes(self, page: int) -> bytes | None:
        """Notes of the page's copy (`scrapy_gp4c.fingerprint.copy_notes`), if kept."""

    def has_description(self, page: int) -> bool:
        """Whether a description of the page's copy is kept (`scrapy_gp4c.words.descriptions`)."""

    def descriptions(self) -> Iterator[tuple[int, bytes]]:
        """Yield the descriptions that are committed, by page."""

    def clusters(self) -> StoredGroups | None:
        """Clusters, links and popularity of pages; None: there are none."""

    def directories(self) -> npt.NDArray[Any]:
        """Directories of the pages in `blocks`, dtype `GROUP` ``[G]``: the column ``group`` numbers them."""

    def group_visits(self, cycle: int) -> npt.NDArray[Any]:
        """Sums of a finished cycle's judged visits by directory, dtype `GROUP_VISITS`, by number.

        Empty for a cycle without, or older than the last `KEPT_CYCLES`.
        """

    def visits(
        self, first_cycle: int = 1, last_cycle: int | None = None
    ) -> Iterator[tuple[int, npt.NDArray[Any]]]:
        """Yield the visits of finished cycles, dtype `VISIT`, in chunks: (cycle, visits)."""

    def open_visits(self) -> npt.NDArray[Any]:
        """Visits of the open cycle so far, dtype `VISIT`, in order of time."""

    def shadows(self, cycle: int) -> npt.NDArray[Any]:
        """Shadows as `cycle` left them, dtype `SHADOW` ``[S]``; none if it had no control group."""


class CyclePlanning(Protocol):
    """Planning of the open cycle, in rounds, from the visits that it has so far."""

    def begin_cycle(self, record: CycleRecord) -> int:
        """Open the next cycle with its record; returns its number, from 1 on."""

    def amend_record(self, number: int | None = None, /, **fields: Unpack[CycleRecord]) -> None:
        """Add to the record of the open cycle, at once."""

    def add_round(self, chunks: Iterable[npt.NDArray[Any]], seen: int, **about: Unpack[CycleRecord]) -> None:
        """Write the plan of the open cycle's next round: dtype `PLAN`, first to visit first.

        ``seen``: visits of the cycle that it was made from, which are committed first; ``about``: what the
        cycle's record says from then on. The round, and that, counts when all of it is written.
        """

    def rounds(self) -> list[RoundCounts]:
        """Return the open cycle's planned rounds; empty while there is no complete one."""

    def planned(self) -> int | None:
        """Pages of all complete rounds of the open cycle; None while there is none."""

    def plan(self) -> Iterator[npt.NDArray[Any]]:
        """Yield the complete rounds' plan, dtype `PLAN`, in chunks, first to visit first."""

    def new_pages(self) -> Iterator[int]:
        """Yield the ids of the pages found in the open cycle, in order."""

    def visited(self, page: int) -> bool:
        """Whether the page has an outcome in the open cycle, committed or not."""

    def notes(self) -> npt.NDArray[Any]:
        """Notes of the open cycle so far, dtype `NOTE`."""


class CycleRecording(Protocol):
    """Recording of the open cycle: new pages, visits, and what they bring.

    What was written counts when `commit` returned; a failed one keeps it for the next.
    """

    def add_page(self, key: int, request: StoredRequest) -> int:
        """Remember a page found in the open cycle; its id is valid at once."""

    def set_request(self, page: int, request: StoredRequest) -> None:
        """Replace the stored request of a page, at the next commit."""

    def set_validators(self, page: int, etag: str | None, last_modified: str | None) -> None:
        """Replace the validators of a page, at the next commit."""

    def set_answer(self, page: int, answer: LastAnswer) -> None:
        """Replace the last answer of a page, at the next commit."""

    def set_copy_notes(self, page: int, packed: bytes) -> None:
        """Replace the notes of a page's copy, at the next commit."""

    def set_description(self, page: int, packed: bytes) -> None:
        """Replace the description of a page's copy, at the next commit."""

    def note(self, page: int, what: str, value: float) -> None:
        """Note a value of a page in the open cycle, whose fold uses it; ``what``: one of `claims.WHAT`."""

    def record(self, visit: NewVisit) -> None:
        """Note one visit of the open cycle; raises ValueError for the second one of a page."""

    def amend_visit(self, page: int, outcome: str) -> None:
        """Replace the outcome of a page's visit of the open cycle by one without a fingerprint."""

    def before_commit(self, call: Callable[[], object]) -> None:
        """Set a function to call before each commit; an exception of it keeps everything buffered."""

    def commit(self) -> None:
        """Write the buffer."""

    @property
    def committed_s(self) -> float:
        """Monotonic time at which the last commit returned, s."""

    def keep_shadows(self, cycle: int, shadows: npt.NDArray[Any]) -> None:
        """Keep the shadows as `cycle` left them; those of the cycle before stay."""

    def finish_cycle(self, record: CycleRecord) -> None:
        """Close the open cycle, so that its visits count; `record` is added to its record."""


class Maintenance(Protocol):
    """Care of a store outside a cycle."""

    def add_pages(self, pages: Iterable[tuple[int, StoredRequest]]) -> tuple[int, int]:
        """Add (key, request) pairs in bulk, outside a crawl; returns how many were added and known."""

    def put_clusters(self, groups: StoredGroups) -> None:
        """Replace clusters, links and popularity.

        Raises StoreError while a cycle is open: its plan may follow from them.
        """

    def keep_visits(self, cycles: int) -> None:
        """Drop the visits of all finished cycles but the last ones; the columns of pages stay."""

    def look_over(self) -> str:
        """Check a sample of checksums; says how many are right. Raises StoreDamagedError."""

    def verify(self) -> list[str]:
        """Compare all tables with each other; returns the problems found, none for a sound store."""


class PageStore(PageReader, CyclePlanning, CycleRecording, Maintenance, Protocol):
    """Page store, open for writing (one process at a time) or for reading; used by one thread.

    Every method that writes raises StoreError on a store opened for reading, and StoreFullError where there
    is no room.
    """

    def close(self) -> None:
        """Commit what is buffered and close."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


def has_open_cycle(path: Path, cycle: int) -> StoreError:
    """Return the error for clusters that come while a cycle is open."""
    return StoreError(
        f"cycle {cycle} of the store {path} is not finished, and its plan may follow from the clusters that "
        "it has: run the spider until it is, then cluster its pages."
    )


def site_names(store: PageReader, sites: Iterable[int]) -> dict[int, str]:
    """Names of sites by their keys, from the URL of any page that a site still has."""
    of_directory = store.directories()["site"]
    todo, names = set(sites), dict[int, str]()
    for first, block in store.blocks() if todo else ():
        groups, rows = np.unique(block["group"], return_index=True)
        for group, row in zip(groups.tolist(), rows.tolist(), strict=True):
            site = int(of_directory[group])
            if site in todo:
                url_place = place_of_url(store.request(first + row)["url"])
                if url_place.site_key == site:  # else the page is requested elsewhere by now
                    todo.remove(site)
                    names[site] = url_place.site
        if not todo:
            break
    return names
