"""Change histories: which page changed in which cycle.

Cycle i of D tells what changed between download i - 1 and download i: a history of D cycles comes from D + 1
downloads, of which download 0 only sets the copies (thesis section 4.2; journal section 5.1).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.arrays import Floats
from scrapy_gp4c.errors import HistoryError
from scrapy_gp4c.page_state.claims import renumbered
from scrapy_gp4c.scoring.sizes import CLASSES
from training.histories.names import PackedNames
from training.histories.neighbours import Neighbours

Ints = npt.NDArray[Any]


@dataclass(frozen=True, eq=False)
class Impact:
    """Gains of search quality by refreshing copies of P pages, for all pairs of a page's versions.

    They are estimates, delta-Q_A of Pandey & Olston 2005. A live version is the one on the site in a cycle.
    """

    version: npt.NDArray[np.int32]
    """``[D + 1, P]``: number of each page's live version in cycles 0..D, 0 for its first."""
    start: npt.NDArray[np.int64]
    """``[P]``: where the pairs of each page's versions begin in `gain`."""
    versions: npt.NDArray[np.int32]
    gain: npt.NDArray[np.float32]
    """By page, held version and live version: delta-Q_A of the refresh, in ppm of cycle 0's usefulness."""
    quality: Callable[[Ints], Floats] | None = None
    """Exact search quality ``[C]`` of copies ``[C, P]`` in the last C cycles; None in a part of a history."""
    difference: npt.NDArray[np.float32] | None = None
    """``[D, P]``: share of the shingles in which a page's text of each cycle differs from that before."""
    clicks: Callable[[], Floats] | None = None
    """Mean number of views of each page per cycle: ``[P]``; None in a part of a history."""

    def between(self, held: Ints, live: Ints, pages: Ints | slice = slice(None)) -> Floats:
        """Gains of refreshing pages from held to live versions, ``[pages]``; 0 where these are equal."""
        position = self.start[pages] + held.astype(np.int64) * self.versions[pages] + live
        return self.gain[position].astype(np.float64)

    def take(self, pages: Ints | slice | None, cycles: slice, count: int) -> "Impact":
        first, last, _ = cycles.indices(count)
        impact = replace(self, version=self.version[first : last + 1])
        if self.difference is not None:
            impact = replace(impact, difference=self.difference[first:last])
        if last < count:
            impact = replace(impact, quality=None)  # it is of the last cycles
        if pages is None:
            return impact
        return replace(
            impact,
            version=impact.version[:, pages],
            start=self.start[pages],
            versions=self.versions[pages],
            quality=None,
            difference=None,
            clicks=None,
        )

    def unrefreshed(self, warmup: int) -> Floats:
        """Gain of refreshing all pages in each later cycle, if none was since `warmup`: ``[D - warmup]``."""
        held = self.version[warmup]
        return np.array([self.between(held, live).sum() for live in self.version[warmup + 1 :]])


NOW_AND_THEN: Final = (
    "a crawl with a budget visits most pages now and then; set GP4C_PANEL to a share of pages to observe in "
    "every cycle, or GP4C_BUDGET to 1.0 for some cycles, or read the crawl's store by "
    "`python -m training.store_history STORE --partial` (docs/lab/closing-the-loop.md)"
)
"""Advice for error messages where too few pages were observed in every cycle."""


def known_or_none(values: npt.NDArray[Any]) -> npt.NDArray[Any] | None:
    """The array `values`, or None if all are 0, which means unknown."""
    return values if values.any() else None


def weights_or_none(weight: npt.NDArray[np.float64]) -> npt.NDArray[np.float64] | None:
    """Weights of pages, ``[P]``; None where all are 1."""
    return weight if (weight != 1.0).any() else None


class HistoryFields(NamedTuple):
    """Unchecked fields of a history file, as `ChangeHistory` has them."""

    changed: npt.NDArray[Any]
    site: npt.NDArray[Any]
    weight: npt.NDArray[Any] | None = None
    observed: npt.NDArray[Any] | None = None
    site_names: Sequence[str] | None = None
    page_names: PackedNames | None = None
    dropped_pages: int = 0
    size: npt.NDArray[Any] | None = None
    latency_ms: npt.NDArray[Any] | None = None
    flipped: npt.NDArray[Any] | None = None


class RecordedHistory(NamedTuple):
    """Identity of a history, as results and score files record it."""

    source: str
    pages: int
    cycles: int
    sha256: str

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> "RecordedHistory":
        return cls(*(content[name] for name in cls._fields))


@dataclass(frozen=True, eq=False, repr=False)
class ChangeHistory:
    """Recorded history of P pages over D cycles. Raises HistoryError for arrays that do not fit."""

    changed: npt.NDArray[np.bool_]
    """``[D, P]``, C-contiguous: did the page change between cycle i - 1 and cycle i (row i - 1)?"""
    site: npt.NDArray[np.int32]
    """``[P]``: number of the page's site, from 0."""
    weight: npt.NDArray[np.float64] | None = None
    """``[P]``: importance, at least 0; None: all pages weigh the same."""
    observed: npt.NDArray[np.bool_] | None = None
    """``[D, P]``: False where the outcome is not known (`changed` means nothing there); None: all known.
    A replay needs all known: `read_history` leaves other pages out."""
    site_names: Sequence[str] | None = None
    page_names: Sequence[str] | None = None
    """``[P]``; with the site, the identity of the page."""
    key: npt.NDArray[np.uint64] | None = None
    """``[P]``: key of the page in the crawl's store, which stays its own whatever pages come and go; None: a
    page is known by its position."""
    source: str = "memory"
    """Where the history came from: a path as given."""
    sha256: str = ""
    """Digest of the file as it stands (of a store: of the bits read from it); empty: made in memory."""
    dropped_pages: int = 0
    """Pages that were left out because some of their cycles were not observed."""
    impact: Impact | None = None
    """Values of refreshing the pages for users of a search; None: unknown."""
    claims: npt.NDArray[Any] | None = None
    """Sites' claims of changes, `scrapy_gp4c.page_state.claims.DATED_CLAIM`, by cycle; None: unknown."""
    size: npt.NDArray[np.uint8] | None = None
    """``[P]``: class of each page's size at first sight, see `scrapy_gp4c.scoring.sizes`; None: unknown."""
    latency_ms: npt.NDArray[np.uint16] | None = None
    """``[P]``: download time of each page, 0 where none was measured; None: unknown."""
    flipped: npt.NDArray[np.uint64] | None = None
    """A number for each change, by page and cycle, whose 1-bits are those of the fingerprint that changed.
    0: not known; None: unknown of all."""

    def __post_init__(self) -> None:
        changed, site = np.asarray(self.changed), np.asarray(self.site)
        _check("changed", changed, "bool [cycles, pages]", changed.dtype == np.bool_ and changed.ndim == 2)
        if not changed.size:
            raise HistoryError(
                "a change history needs at least one page and one cycle; found an array of shape "
                f"{changed.shape} (cycles, pages)"
            )
        cycles, pages = changed.shape
        fits = site.shape == (pages,) and site.dtype.kind in "iu" and 0 <= site.min() <= site.max() < 2**31
        _check("site", site, f"integers of at least 0, one for each of {pages:,} pages", fits)
        set_field = object.__setattr__
        set_field(self, "changed", np.ascontiguousarray(changed))
        set_field(self, "site", np.ascontiguousarray(site, np.int32))
        for name, kinds, bound, dtype, expected in (
            ("weight", "iuf", np.inf, np.float64, "finite numbers of at least 0"),
            ("size", "iu", CLASSES, np.uint8, f"integers from 0 to {CLASSES - 1}"),
            ("latency_ms", "iu", 2**16, np.uint16, "ms below 65,536"),
        ):
            if getattr(self, name) is not None:
                values = np.asarray(getattr(self, name))
                fits = values.shape == (pages,) and values.dtype.kind in kinds
                fits = fits and bool(((values >= 0) & (values < bound)).all())
                _check(name, values, f"{expected}, one for each of {pages:,} pages", fits)
                set_field(self, name, np.ascontiguousarray(values, dtype))
        if self.flipped is not None:
            flipped, changes = np.asarray(self.flipped), int(np.count_nonzero(changed))
            fits = flipped.shape == (changes,) and flipped.dtype == np.uint64
            _check("flipped", flipped, f"uint64, one for each of {changes:,} changes", fits)
        if self.observed is not None:
            observed = np.asarray(self.observed)
            fits = observed.shape == changed.shape and observed.dtype == np.bool_
            _check("observed", observed, f"bool [{cycles}, {pages}] like changed", fits)
            set_field(self, "observed", np.ascontiguousarray(observed))
        for names, least, what in (
            (self.page_names, pages, "pages"),
            (self.site_names, int(self.site.max()) + 1, "sites"),
        ):
            if names is not None and (len(names) < least or (what == "pages" and len(names) != least)):
                raise HistoryError(f"a change history of {least:,} {what} has {len(names):,} names for them")

    @property
    def pages(self) -> int:
        return int(self.changed.shape[1])

    @property
    def cycles(self) -> int:
        return int(self.changed.shape[0])

    @property
    def identity(self) -> RecordedHistory:
        return RecordedHistory(self.source, self.pages, self.cycles, self.sha256)

    @cached_property
    def neighbours(self) -> Neighbours:
        return Neighbours(self.site, self.page_names, self.weight)

    def __repr__(self) -> str:
        return f"<ChangeHistory {self.source}: {self.pages:,} pages, {self.cycles} cycles>"

    def take(
        self, pages: npt.NDArray[Any] | slice | None = None, cycles: slice = slice(None)
    ) -> "ChangeHistory":
        """History of these pages (positions or a bool mask) in these cycles (from 0), copied.

        The first of the cycles keeps its outcomes: they say what changed since the cycle before.
        """
        chosen = slice(None) if pages is None else pages
        columns: dict[str, Any] = {
            name: getattr(self, name) for name in ("weight", "key", "size", "latency_ms")
        }
        names = self.page_names
        if names is not None and pages is not None:
            names = (names if isinstance(names, PackedNames) else PackedNames(names)).take(pages)
        return replace(
            self,
            changed=self.changed[cycles][:, chosen],
            site=self.site[chosen],
            observed=None if self.observed is None else self.observed[cycles][:, chosen],
            page_names=names,
            impact=None if self.impact is None else self.impact.take(pages, cycles, self.cycles),
            claims=None if self.claims is None else self._claims_of(chosen, cycles),
            flipped=None if self.flipped is None else self._flipped_of(chosen, cycles),
            **{name: column[chosen] for name, column in columns.items() if column is not None},
        )

    def _flipped_of(self, pages: npt.NDArray[Any] | slice, cycles: slice) -> npt.NDArray[np.uint64]:
        assert self.flipped is not None
        page, cycle = np.nonzero(self.changed.T)
        begin, end, _ = cycles.indices(self.cycles)
        is_inside = (cycle >= begin) & (cycle < end)
        page, flipped = page[is_inside], self.flipped[is_inside]
        chosen = np.arange(self.pages)[pages]
        first, last = np.searchsorted(page, chosen), np.searchsorted(page, chosen, side="right")
        begins = np.cumsum(last - first) - (last - first)
        position = np.arange(int((last - first).sum())) + np.repeat(first - begins, last - first)
        return np.asarray(flipped[position])

    def _claims_of(self, pages: npt.NDArray[Any] | slice, cycles: slice) -> npt.NDArray[np.void]:
        """The `claims` about some pages up to the end of some cycles, pages and cycles renumbered."""
        assert self.claims is not None
        chosen = np.arange(self.pages)[pages]
        order = np.argsort(chosen, kind="stable")
        position = np.searchsorted(chosen[order], self.claims["page"])
        row = order[np.minimum(position, max(len(order) - 1, 0))]
        begin, end, _ = cycles.indices(self.cycles)
        is_kept = (chosen[row] == self.claims["page"]) & (self.claims["cycle"] <= end)
        claims: npt.NDArray[np.void] = self.claims[is_kept].copy()
        claims["page"] = row[is_kept]
        claims["cycle"] -= begin
        claims["value"] = renumbered(claims["kind"], claims["value"], begin)
        return claims

    @property
    def site_labels(self) -> Sequence[str]:
        """Names of the sites, or their numbers where the history has no names."""
        return self.site_names or [str(number) for number in range(int(self.site.max()) + 1)]

    @property
    def weights(self) -> npt.NDArray[np.float64]:
        """Weights of all pages, 1 by default: ``[P]``."""
        return np.ones(self.pages) if self.weight is None else self.weight

    @property
    def sizes(self) -> npt.NDArray[np.uint8]:
        """Class of each page's size, see `scrapy_gp4c.scoring.sizes`, 0 where unknown: ``[P]``."""
        return np.zeros(self.pages, np.uint8) if self.size is None else self.size

    @property
    def latencies_ms(self) -> npt.NDArray[np.uint16]:
        """Download times of all pages, 0 by default: ``[P]``."""
        return np.zeros(self.pages, np.uint16) if self.latency_ms is None else self.latency_ms

    def observed_pages(self) -> "ChangeHistory":
        """History of the pages observed in every cycle. HistoryError if there are none."""
        if self.observed is None:
            return self
        full = np.asarray(self.observed.all(axis=0))
        count = int(np.count_nonzero(full))
        if not count:
            raise HistoryError(
                f"{self.source}: each of its {self.pages:,} pages has cycles that were not observed, and "
                f"only pages observed in every cycle can be used; choose a shorter window: {NOW_AND_THEN}"
            )
        dropped = self.dropped_pages + self.pages - count
        return replace(self.take(full), observed=None, dropped_pages=dropped)


def _check(name: str, array: npt.NDArray[Any], expected: str, fits: bool | np.bool_) -> None:
    if not fits:
        range_ = f" from {array.min()} to {array.max()}" if array.size and array.dtype.kind in "iuf" else ""
        raise HistoryError(
            f"{name!r} of a change history must be {expected}; found {array.dtype} of shape "
            f"{list(array.shape)}{range_}"
        )


def addresses_of(history: ChangeHistory) -> list[str]:
    """Site and path of every page, without scheme, ``[P]``. Raises HistoryError where they have no names."""
    if history.page_names is None:
        raise HistoryError(
            f"{history.source} does not tell the names of its pages: give a history with names"
        )
    names = history.site_labels
    return [
        page.partition("://")[2] if "://" in page else f"{names[site]}/{page.lstrip('/')}"
        for site, page in zip(history.site.tolist(), history.page_names, strict=True)
    ]


def domain_of(address: str) -> str:
    """Top-level domain: what follows the last dot before the first slash."""
    return address.partition("/")[0].rpartition(".")[2]


def depth_of(address: str) -> int:
    """Number of slashes of an address, without those of a scheme (Tan et al. 2007, section 4.3, Figure 4)."""
    return address.count("/")
