"""Histories in the stores of crawls (docs/lab/closing-the-loop.md)."""

import contextlib
import hashlib
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.arrays import Array
from scrapy_gp4c.errors import HistoryError, StoreError
from scrapy_gp4c.foreign_text import counted
from scrapy_gp4c.page_state.outcomes import CHANGED, FIRST, JUDGED, KINDS
from scrapy_gp4c.store.credentials import Credentials
from scrapy_gp4c.store.export import claims_between, flipped_between
from scrapy_gp4c.store.opening import Store, open_store
from training.histories.claims import of_crawl
from training.histories.history import NOW_AND_THEN, ChangeHistory, known_or_none, weights_or_none
from training.histories.imputation import draw_between_visits, fill_lost_cycles, unchanged_gaps
from training.histories.names import BATCH, PackedNames

COLLECTED_SHARE: Final = 0.5
"""Least share of a cycle's pages with copies that it compared, for the cycle to be part of a history."""
SAMPLE: Final = 20_000
"""Number of pages, drawn from a larger store, by which the `window` is chosen."""


class CrawlOutcomes:
    """Outcomes (`judged`, `changed`) of visits in all finished cycles of a store: row c is store cycle c.

    Its P pages are all if ``everything``; else the control group (``GP4C_PANEL``), if there is one.
    """

    def __init__(self, store: Store, everything: bool) -> None:
        panel = np.zeros(store.pages, np.bool_)
        for _, visits in store.visits(1, store.last_cycle):
            panel[visits["page"][visits["kind"] == KINDS.index("panel")]] = True
        if not panel.any():
            panel[:] = True
        taken = np.ones_like(panel) if everything else panel
        self.page = np.flatnonzero(taken)
        """``[P]``: page ids in the store."""
        self.candidates = np.flatnonzero(panel[self.page])
        shape = store.last_cycle + 1, len(self.page)
        self.judged = np.zeros(shape, np.bool_)
        self.changed = np.zeros(shape, np.bool_)
        self.entry = np.full(len(self.page), store.last_cycle + 1)
        """``[P]``: store cycle of each page's first copy; the last cycle + 1 without one."""
        position = np.cumsum(taken) - 1
        for cycle, visits in store.visits(1, store.last_cycle):
            visits = visits[taken[visits["page"]]]
            page, outcome = position[visits["page"]], visits["outcome"]
            judged = page[np.isin(outcome, JUDGED)]
            self.judged[cycle, judged] = True
            self.changed[cycle, page[outcome == CHANGED]] = True
            first = page[outcome == FIRST]
            self.entry[first] = np.minimum(self.entry[first], cycle)
            self.entry[judged] = np.minimum(self.entry[judged], cycle - 1)


def window(outcomes: CrawlOutcomes, max_errors: int) -> tuple[int, int] | None:
    """Window of cycles start + 1..stop with the most outcomes of suitable pages; None: there are none.

    A suitable page had a copy in cycle `start`, and at most `max_errors` cycles since have no outcome. A
    window begins and ends with a cycle that compared `COLLECTED_SHARE` of its pages, and has at most
    `max_errors` others.
    """
    sample = outcomes.candidates[:: max(1, len(outcomes.candidates) // SAMPLE)]
    judged, entry = outcomes.judged[:, sample], outcomes.entry[sample]
    cycles = np.arange(len(judged))
    entered = np.array([np.count_nonzero(entry < cycle) for cycle in cycles])
    collected = (judged.sum(axis=1) >= COLLECTED_SHARE * entered) & (entered > 0)
    best, best_window = 0, None
    stop = len(judged) - 1
    while stop >= 2:
        if not collected[stop]:
            stop -= 1
            continue
        lost = np.zeros(len(sample), np.int64)
        uncollected = 0
        begin = stop
        for cycle in range(stop, 1, -1):
            uncollected += int(not collected[cycle])
            if uncollected > max_errors:
                break
            begin = cycle
            lost += ~judged[cycle]
            area = (stop - cycle + 1) * int(np.count_nonzero((entry < cycle) & (lost <= max_errors)))
            if collected[cycle] and area >= best and area > 0:
                best, best_window = area, (cycle - 1, stop)
        stop = begin - 1
    return best_window


logger = logging.getLogger(__name__)

MAX_ERRORS: Final = 2
"""Default for the number of cycles without an outcome that a page may have (thesis, section 4.2)."""


@dataclass(frozen=True)
class ReadReport:
    """Counts of the pages of a store that are in its history, and of those left out, by reason."""

    source: str
    pages: int
    first_cycle: int
    """Store cycles first_cycle..last_cycle are the cycles of the history."""
    last_cycle: int
    finished_cycles: int
    imputed: int
    """Number of lost outcomes guessed by `training.histories.imputation.fill_lost_cycles`."""
    known: int
    """Number of lost outcomes known by the next visit: nothing had changed."""
    late: int
    """Number of pages left out because their first copy came after the history's first cycle."""
    erroneous: int
    """Number of pages left out because too many of their cycles have no outcome."""
    off_panel: int
    """Number of pages outside the control group, which are visited only when their score is high."""
    partial: int
    """Number of pages of the history that were not visited in every cycle: outcomes between are drawn."""

    @property
    def unused_cycles(self) -> int:
        """Number of cycles that compared pages, but are not in the history."""
        return self.finished_cycles - 1 - (self.last_cycle - self.first_cycle + 1)

    def __str__(self) -> str:
        cycles = self.last_cycle - self.first_cycle + 1
        parts = [
            f"{self.source}: {counted(self.pages, 'page')}, {counted(cycles, 'cycle')} (cycles "
            f"{self.first_cycle} to {self.last_cycle} of the store)"
        ]
        for number, noun, remark in (
            (self.imputed, "outcome", "lost to errors and imputed"),
            (self.known, "outcome", "lost to errors, and known from the next visit"),
            (self.erroneous, "page", "left out for too many errors"),
            (self.late, "page", "left out as newer than the first cycle"),
            (self.partial, "page", "outside the panel, with outcomes drawn between visits (PARTIAL)"),
            (0 if self.partial else self.off_panel, "page", "outside the panel, and left out"),
            (self.unused_cycles, "cycle", f"of the store left out: {NOW_AND_THEN}"),
        ):
            if number:
                parts.append(f"{counted(number, noun)} {remark}")
        return "; ".join(parts)

    def log(self) -> None:
        """Log the report: as a warning if something was guessed or left out."""
        doubtful = self.imputed or self.late or self.erroneous or self.partial or self.unused_cycles
        (logger.warning if doubtful else logger.info)("%s", self)


def read_with_report(
    path: Path, *, max_errors: int = MAX_ERRORS, partial: bool = False
) -> tuple[ChangeHistory, ReadReport]:
    """Read the history in a crawl's store, and a report of what was read and left out.

    ``max_errors``: cycles without an outcome that a page may have; ``partial``: admit also pages that were
    visited now and then. Raises HistoryError for a directory that is no store, or whose store has no history.
    """
    with opened_store(path, "read a history from") as store:
        return _read(path, store, max_errors, partial)


@contextlib.contextmanager
def opened_store(path: Path, purpose: str) -> Iterator[Store]:
    """Context with the store of a crawl to read; raises HistoryError, with ``purpose``, where it cannot."""
    try:
        with open_store(path, readonly=True) as store:
            yield store
    except StoreError as error:
        raise HistoryError(f"{path} is a directory, but no store of a crawl to {purpose}: {error}") from error


def _read(path: Path, store: Store, max_errors: int, partial: bool) -> tuple[ChangeHistory, ReadReport]:
    last = store.last_cycle
    if last < 2:
        raise HistoryError(
            f"{path} has {counted(last, 'finished cycle')}; a history begins with the second, which compares "
            "pages with the first: run the crawl again"
        )
    outcomes = CrawlOutcomes(store, everything=partial)
    start, stop = _window(path, store, outcomes, max_errors, partial)
    cycles = slice(start + 1, stop + 1)
    candidates = outcomes.candidates
    late = outcomes.entry[candidates] > start
    lost = stop - start - outcomes.judged[cycles, candidates].sum(axis=0)
    key = np.concatenate([block["key"] for _, block in store.blocks()])  # not yet of all pages of `outcomes`

    def in_order(positions: npt.NDArray[np.intp]) -> npt.NDArray[np.intp]:
        return positions[np.argsort(key[outcomes.page[positions]])]

    complete = in_order(candidates[~late & (lost <= max_errors)])
    observed = outcomes.judged[cycles][:, complete]
    changed_when_observed = outcomes.changed[cycles][:, complete]
    known = int(np.count_nonzero(unchanged_gaps(changed_when_observed, observed)))
    changed, guessed = fill_lost_cycles(changed_when_observed, observed)
    admitted = np.empty(0, np.intp)
    if partial:
        admitted = in_order(_seen_now_and_then(outcomes, complete, start, cycles))
        changes, judged = (of[cycles][:, admitted] for of in (outcomes.changed, outcomes.judged))
        drawn = draw_between_visits(changes, judged, np.random.default_rng(0))
        changed = np.concatenate((changed, drawn), axis=1)
    chosen = outcomes.page[np.concatenate((complete, admitted))]
    report = ReadReport(
        source=str(path),
        pages=len(chosen),
        first_cycle=start + 1,
        last_cycle=stop,
        finished_cycles=last,
        imputed=int(np.count_nonzero(guessed)),
        known=known,
        late=int(np.count_nonzero(late)),
        erroneous=int(np.count_nonzero(~late)) - len(complete),
        off_panel=store.pages - len(candidates),
        partial=len(admitted),
    )
    site, site_names, page_names = _identities(store, chosen)
    weight, size, latency_ms = (
        np.concatenate([block[name] for _, block in store.blocks()])[chosen]
        for name in ("weight", "size", "latency_ms")
    )
    position = np.full(store.pages, -1)
    position[chosen] = np.arange(len(chosen))
    claims = of_crawl(claims_between(store, 0, store.pages), position, start)
    history = ChangeHistory(
        changed=changed,
        site=site,
        weight=weights_or_none(weight),
        size=known_or_none(size),
        latency_ms=known_or_none(latency_ms),
        flipped=flipped_of(flipped_between(store, 0, store.pages), position, changed, start + 1),
        site_names=site_names,
        page_names=page_names,
        key=key[chosen],
        source=f"{path} (PARTIAL: {len(admitted):,} of {len(chosen):,} pages)" if partial else str(path),
        claims=claims[claims["cycle"] <= stop - start] if len(claims) else None,
        sha256=hashlib.sha256(changed.tobytes()).hexdigest(),
        dropped_pages=report.late + report.erroneous,
    )
    return history, report


def flipped_of(
    flipped: Array, position: npt.NDArray[Any], changed: npt.NDArray[np.bool_], first_cycle: int
) -> npt.NDArray[np.uint64] | None:
    """`ChangeHistory.flipped` from the bits that a store has for its visits; None where no bit is known.

    ``flipped``: of the store, dtype `FLIPPED`; ``position``: of the store's pages in the history, -1: none.
    ``changed``: of the history; a visit's bits go to the last change up to the visit's cycle.
    """
    cycles = len(changed)
    page, row = position[flipped["page"]], flipped["cycle"] - first_cycle
    inside = (page >= 0) & (row >= 0) & (row < cycles)
    page, row, bits = page[inside], row[inside], flipped["bits"][inside]
    last = np.where(changed, np.arange(cycles, dtype=np.int32)[:, None], np.int32(-1))
    row = np.maximum.accumulate(last, axis=0)[row, page]
    of_page, cycle = np.nonzero(changed.T)
    result = np.zeros(len(cycle), np.uint64)
    flip = np.searchsorted(of_page * cycles + cycle, page.astype(np.int64)[row >= 0] * cycles + row[row >= 0])
    np.bitwise_xor.at(result, flip, bits[row >= 0])
    return known_or_none(result)


def _window(
    path: Path, store: Store, outcomes: CrawlOutcomes, max_errors: int, partial: bool
) -> tuple[int, int]:
    last = store.last_cycle
    chosen = window(outcomes, max_errors)
    if chosen is None and partial:
        entered = np.array([np.count_nonzero(outcomes.entry <= first) for first in range(last)])
        start = int(np.argmax(entered * (last - np.arange(last))))
        chosen = (start, last) if entered[start] else None
    if chosen is None:
        raise HistoryError(
            f"{path}: none of its {store.pages:,} pages was judged in all but {max_errors} cycles of any "
            f"period from cycle 2 to {last}: {NOW_AND_THEN}"
        )
    return chosen


def _seen_now_and_then(
    outcomes: CrawlOutcomes, complete: npt.NDArray[np.intp], start: int, cycles: slice
) -> npt.NDArray[np.intp]:
    """Positions of pages not in ``complete`` that had a copy in cycle `start` and were compared since."""
    others = np.setdiff1d(np.arange(len(outcomes.page)), complete)
    seen = outcomes.judged[cycles, others].any(axis=0)
    return np.asarray(others[seen & (outcomes.entry[others] <= start)])


def _identities(
    store: Store, chosen: npt.NDArray[np.intp]
) -> tuple[npt.NDArray[np.int32], PackedNames, PackedNames]:
    hosts: dict[str, int] = {}
    site, names = np.empty(len(chosen), np.int32), PackedNames()
    shown = Credentials.of_store(store.cycles()).url
    for start in range(0, len(chosen), BATCH):
        batch = [shown(request["url"]) for request in store.requests(chosen[start : start + BATCH].tolist())]
        site[start : start + len(batch)] = [
            hosts.setdefault(urlsplit(url).netloc, len(hosts)) for url in batch
        ]
        names.extend(batch)
    return site, PackedNames(hosts), names


def merge(histories: Sequence[ChangeHistory]) -> ChangeHistory:
    """Join histories to one that has the pages of all, over the newest cycles that all have.

    Their last cycles are taken to be the same day. A page of several histories is in the result several
    times.
    """
    if len(histories) == 1:
        return histories[0]
    cycles = min(history.cycles for history in histories)
    parts = [history.take(cycles=slice(history.cycles - cycles, None)) for history in histories]
    hosts: dict[str, int] = {}
    sites, names = [], PackedNames()
    for history in parts:
        assert history.site_names is not None
        assert history.page_names is not None
        number = [hosts.setdefault(name, len(hosts)) for name in history.site_names]
        sites.append(np.array(number)[history.site])
        names.extend(history.page_names)
    changed = np.concatenate([history.changed for history in parts], axis=1)
    flipped = [history.flipped for history in parts if history.flipped is not None]
    key = [history.key for history in parts if history.key is not None]
    claims, pages = [], 0
    for history in parts:
        if history.claims is not None:
            claims.append(history.claims.copy())
            claims[-1]["page"] += pages
        pages += history.pages
    return ChangeHistory(
        changed=changed,
        site=np.concatenate(sites),
        weight=weights_or_none(np.concatenate([history.weights for history in parts])),
        size=known_or_none(np.concatenate([history.sizes for history in parts])),
        latency_ms=known_or_none(np.concatenate([history.latencies_ms for history in parts])),
        flipped=np.concatenate(flipped) if len(flipped) == len(parts) else None,
        site_names=PackedNames(hosts),
        page_names=names,
        key=np.concatenate(key) if len(key) == len(parts) else None,
        claims=np.concatenate(claims) if claims else None,
        source=" + ".join(history.source for history in parts),
        sha256=hashlib.sha256(changed.tobytes()).hexdigest(),
        dropped_pages=sum(history.dropped_pages for history in parts),
    )
