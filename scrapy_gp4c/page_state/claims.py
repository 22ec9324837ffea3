"""Notes (facts that a crawl learns of pages besides visits), and claims of sites that their pages changed.

A note, dtype `NOTE`, may have the time of a change that a site claims, as in a sitemap. When a cycle is
folded (its visits and notes applied to the page columns), such a note becomes a claim, dtype `CLAIM`, with a
cycle in place of the time. A claim that adds nothing (an old ``lastmod`` read once more) is dropped.
`scrapy_gp4c.scoring.hints` says how far claims are trusted. Crawls and replays share this module. Lengths of
arrays: P pages, N notes, C claims, V visits, S sites.
"""

import struct
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.arrays import Array, Bools, Floats
from scrapy_gp4c.page_state.columns import RECOVERING, Columns, shorten_wait
from scrapy_gp4c.page_state.outcomes import CHANGED, FIRST, JUDGED, among
from scrapy_gp4c.scoring import hints
from scrapy_gp4c.scoring.discovery import START
from scrapy_gp4c.scoring.hints import CLAIMED, KINDS, LONGEST

WHAT: Final = ("found_by", *KINDS, "weight", "wait", "link", "link_site", "anchor")
"""Subjects of notes: the column ``found_by``, a kind of claims, the page's weight, a new value of
``failures``, or a link to a page without a visit.

A note holds the position in this tuple. The value of a claim is a time, s since 1970, or for `hints.SPANS` a
length, s; that of a link is a bit number of the linking page or site, or the rating of its text.
"""
NOTE: Final = np.dtype([("page", "<u4"), ("what", "u1"), ("value", "<f8")])
NOTE_BYTES: Final = struct.Struct("<IBd")
"""The bytes of one note, in the order of `NOTE`."""


def apply_notes(columns: dict[str, Array], rows: npt.NDArray[np.intp], notes: Array) -> None:
    """Apply the notes of finders, waits and `scrapy gp4c hint` to the columns, in place, after the visits.

    A page's last note of its finder counts; notes ``wait`` and ``told`` (hints) shorten waits. ``columns``:
    writable, each ``[P]``; ``notes``: dtype `NOTE` ``[N]``; ``rows``: row of each note's page, ``[N]``.
    """
    finders = _are_about(notes, "found_by")
    columns["found_by"][rows[finders]] = notes["value"][finders].astype(columns["found_by"].dtype)
    waits = _are_about(notes, "wait")
    shorten_wait(columns, rows[waits], notes["value"][waits], notes["value"][waits] == RECOVERING)
    shorten_wait(columns, rows[_are_about(notes, "told")])


def _are_about(notes: Array, subject: str) -> Bools:
    return np.asarray(notes["what"] == WHAT.index(subject))


def of_links(notes: Array) -> npt.NDArray[np.bool_]:
    """Mask ``[N]`` of the notes about links to pages that wait for their first visit."""
    return np.asarray(notes["what"] >= WHAT.index("link"))


def apply_links(columns: dict[str, Array], rows: npt.NDArray[np.intp], notes: Array) -> None:
    """Set the bits and link texts of `notes` in the columns `scoring.first_visits.COLUMNS`, in place.

    ``rows``: row in the columns of each note's page, ``[N]``.
    """
    for subject, name in (("link", "link_bits"), ("link_site", "link_site_bits")):
        linked = _are_about(notes, subject)
        bits = np.uint64(1) << notes["value"][linked].astype(np.uint64)
        np.bitwise_or.at(columns[name], rows[linked], bits)
    read = _are_about(notes, "anchor")
    np.maximum.at(columns["anchor"], rows[read], notes["value"][read].astype(np.float16))


def of_claims(notes: Array) -> npt.NDArray[np.bool_]:
    """Mask ``[N]`` of the notes that are claims."""
    return np.asarray((notes["what"] >= 1) & (notes["what"] <= len(KINDS)))


def of_weights(notes: Array) -> npt.NDArray[np.bool_]:
    """Mask ``[N]`` of the notes that set a page's weight."""
    return _are_about(notes, "weight")


def weights_of_notes(parts: Iterable[Array]) -> dict[int, float]:
    """Return page -> weight by its last note of a weight; ``parts``: arrays of dtype `NOTE`, oldest first."""
    newest_weights: dict[int, float] = {}
    for notes in parts:
        weights = notes[of_weights(notes)]
        newest_weights.update(zip(weights["page"].tolist(), weights["value"].tolist(), strict=True))
    return newest_weights


def count_brought(notes: Array, pages: int) -> npt.NDArray[np.int64]:
    """Count the new pages that were first found by a link on each page: ``[pages]``.

    ``notes``: of one cycle; ``pages``: number of pages in the store.
    """
    finders = finder_pages(notes["value"][_are_about(notes, "found_by")])
    return np.bincount(finders[(finders >= 0) & (finders < pages)], minlength=pages)


def finder_pages(found_by: Array) -> npt.NDArray[np.int64]:
    """Convert the column ``found_by`` to the ids of finders; -1: a start request, or unknown."""
    return np.where(found_by == START, 0, found_by).astype(np.int64) - 1


CLAIM: Final = np.dtype([("page", "<u4"), ("kind", "u1"), ("value", "<i4")])
"""A claim: position of its kind in `hints.KINDS`, and the first cycle whose visit could see the change or,
for `hints.SPANS`, for how many cycles the page stays as it is."""
NO_CLAIMS: Final = np.empty(0, CLAIM)
DATED_CLAIM: Final = np.dtype([("cycle", "<i4"), *CLAIM.descr])
"""A claim and the cycle that read it; in a history, both cycles count from its first cycle as 1."""
EARLIEST_CYCLES: Final = 1_000_000
"""Most cycles before the crawl's first one that a claimed change can lie."""
_CYCLES: Final = ("first_cycle", "last_cycle")
SPAN_CYCLES: Final = 8
"""Number of last cycles whose mean length converts seconds to cycles."""


class ClaimOutcomes(NamedTuple):
    """Whether claims said that pages had changed, and whether they had, for V visits that showed it."""

    group: Array
    """Directory of each page, ``[V]``."""
    outcomes: npt.NDArray[np.int64]
    """``[V, kinds]``: 2 * claimed + changed, -1 without claims of the kind, see `hints.tally`."""


class Times(NamedTuple):
    """Times by which claimed times become cycles: starts of all cycles, and the newest cycle's visits."""

    starts_s: Floats
    """Start of each cycle from cycle 1 to the one that is folded, s since 1970; ascending."""
    visit_s: Floats
    """``[P]``: time of this cycle's visit to the page, s since 1970; NaN: not visited."""


def ascending_starts(starts_s: list[float | None]) -> Floats:
    """Replace start times of cycles that are unknown (None) or too early by that of the cycle before."""
    known = np.array([-np.inf if one is None else one for one in starts_s], np.float64)
    return np.maximum.accumulate(known)


def claims_of(notes: Array, rows: npt.NDArray[np.intp], columns: Columns, times: Times) -> Array:
    """Return the claims among the open cycle's notes, as dtype `CLAIM`, without those that change no column.

    ``notes``: dtype `NOTE` ``[N]``; ``rows``: row in ``columns`` of each note's page, ``[N]``; ``columns``:
    of a block of pages before the cycle's visits, ``[P]``.
    """
    kind = notes["what"].astype(np.intp) - 1
    order = np.lexsort((notes["value"], kind, rows))
    order = order[kind[order] >= 0]
    kind, row, value, page = kind[order], rows[order], notes["value"][order], notes["page"][order]
    if not len(kind):
        return NO_CLAIMS
    newest = np.append((kind[1:] != kind[:-1]) | (row[1:] != row[:-1]), True)
    kind, row, value, page = kind[newest], row[newest], value[newest], page[newest]
    dated = kind < len(CLAIMED)
    claims = np.zeros(len(kind), CLAIM)
    claims["page"], claims["kind"] = page, kind
    claims["value"][dated] = _due_cycles(value[dated], row[dated], columns, times)
    length_s = _cycle_s(times.starts_s)
    spans = np.floor(value[~dated] / length_s) if length_s else value[~dated]
    claims["value"][~dated] = np.clip(spans, 0, LONGEST)
    news = _is_new(claims, row, columns)
    return claims[news if length_s else news & dated]


def _due_cycles(time_s: Floats, row: npt.NDArray[np.intp], columns: Columns, times: Times) -> Array:
    """Return the first cycle whose visit sees each claimed change, ``[C]``: at most the next cycle.

    ``time_s``: claimed time of each change; ``row``: its page's row in ``columns``, ``[C]``.
    """
    starts, cycle = times.starts_s, len(times.starts_s)
    first_cycle = np.searchsorted(starts, time_s, side="left") + 1
    length_s = _cycle_s(starts)
    if length_s and np.isfinite(starts[0]):  # before the crawl cycles are as long as its last ones
        early_cycles = np.ceil(np.maximum(starts[0] - time_s, 0.0) / length_s)
        first_cycle -= np.minimum(early_cycles, EARLIEST_CYCLES).astype(first_cycle.dtype)
    last = columns["last_cycle"][row]
    last_s = np.where(last > 0, starts[np.maximum(last, 1) - 1], -np.inf)
    last_s = last_s + columns["seen_min"][row].astype(np.float64) * 60.0
    due = np.minimum(
        np.where(time_s <= last_s, np.minimum(first_cycle, last), np.maximum(first_cycle, last + 1)), cycle
    )
    return np.where(time_s > times.visit_s[row], cycle + 1, due)


def _cycle_s(starts_s: Floats) -> float:
    """Mean length of the last `SPAN_CYCLES` cycles, s; 0: unknown."""
    starts_s = starts_s[np.isfinite(starts_s)][-SPAN_CYCLES - 1 :]
    return float(starts_s[-1] - starts_s[0]) / (len(starts_s) - 1) if len(starts_s) > 1 else 0.0


def _is_new(claimed: Array, row: npt.NDArray[np.intp], columns: Columns) -> npt.NDArray[np.bool_]:
    news = np.zeros(len(claimed), np.bool_)
    for kind in range(len(KINDS)):
        of_kind = np.flatnonzero(claimed["kind"] == kind)
        state = {name: columns[name][row[of_kind]] for name in (*hints.COLUMNS, *_CYCLES)}
        before = {name: column.copy() for name, column in state.items()}
        hints.claim(state, np.arange(len(of_kind)), claimed["kind"][of_kind], claimed["value"][of_kind])
        for name in hints.COLUMNS:
            news[of_kind] |= state[name] != before[name]
    return news


def seen_after_min(visit_s: Floats, start_s: float) -> Array:
    """Minutes from the cycle's start to each visit, rounded up to float16 (column ``seen_min``): ``[V]``."""
    after_min = np.clip((visit_s - start_s) / 60.0, 0.0, 65_000.0)
    rounded = after_min.astype(np.float16)
    low = rounded.astype(np.float64) < after_min
    rounded[low] = np.nextafter(rounded[low], np.float16(np.inf))
    return rounded


def before_visits(
    columns: Columns, rows: npt.NDArray[np.intp], outcome: Array, claimed: Array, cycle: int
) -> ClaimOutcomes:
    """Apply claims of changes before the visits of `cycle` to the columns, and compare claims with visits.

    Call before the visits are applied. ``columns``: writable, each ``[P]``; ``rows``, ``outcome``: page row
    and outcome of each visit, ``[V]``; ``claimed``: all claims read in the cycle, dtype `CLAIM`, with page
    rows in the field ``page``.
    """
    apply_claims(columns, claimed[_could_be_seen(claimed, cycle)])
    judged = among(outcome, JUDGED)
    outcomes = hints.tally(columns, rows[judged], outcome[judged] == CHANGED, cycle)
    return ClaimOutcomes(columns["group"][rows[judged]], outcomes)


def after_visits(
    columns: Columns, rows: npt.NDArray[np.intp], outcome: Array, claimed: Array, cycle: int, seen_min: Array
) -> None:
    """Mark claims of visited pages as seen, in the columns, then apply claims that `before_visits` left out.

    Call it after the visits are applied, with the arguments of `before_visits`; ``seen_min``: minutes from
    the cycle's start to each visit, ``[V]``.
    """
    is_fetched = among(outcome, (FIRST, *JUDGED))
    hints.mark_seen(columns, rows[is_fetched], seen_min[is_fetched])
    apply_claims(columns, claimed[~_could_be_seen(claimed, cycle)])


def _could_be_seen(claimed: Array, cycle: int) -> npt.NDArray[np.bool_]:
    return np.asarray((claimed["kind"] < len(CLAIMED)) & (claimed["value"] <= cycle))


def apply_claims(columns: Columns, claimed: Array) -> None:
    """Apply all claims, dtype `CLAIM` with page rows in the field ``page``, to the columns, in place."""
    if len(claimed):
        hints.claim(
            columns, claimed["page"].astype(np.intp), claimed["kind"].astype(np.intp), claimed["value"]
        )


def renumbered(kind: Array, value: Array, cycles: int) -> Array:
    """Values of claims, ``[C]``, with cycle numbers lowered by `cycles`; lengths (of `hints.SPANS`) stay."""
    return np.asarray(value - cycles * (kind < len(CLAIMED)))


KINDS_OF: Final[dict[str, tuple[int, ...]]] = {
    "hint_listed": hints.LISTED,
    "hint_span": (hints.EXPIRES, hints.CHANGEFREQ),
    "age_trust": (),
}
"""Page column that terminals about claims read -> positions in `hints.KINDS` of the claims in its sum."""


class SiteClaims:
    """Computes the columns of `KINDS_OF`: what a site's claims add to its pages' log-odds of a change."""

    def __init__(
        self,
        counts: Floats,
        pages: npt.NDArray[np.int64],
        cycle: int,
        ages: Callable[[], npt.NDArray[np.int64]],
    ) -> None:
        """``counts``: visits by site, kind, claimed and changed, ``[S, kinds, 2, 2]``, see `hints.lifts`.

        ``pages``: result of `pages_with_claims`; ``cycle``: the one that is planned; ``ages``: returns
        `evidence_of_ages`, ``[S]``; called when the column ``age_trust`` is first read.
        """
        self._lifts = hints.lifts(counts, pages)
        self._cycle = cycle
        # A crawl reads no claims before a visit has judged any.
        self._ages = cache(lambda: hints.trust_of_ages(ages()) if counts.any() else np.zeros(len(counts)))

    def column(self, name: str, site: Array, state: Mapping[str, Array]) -> Floats:
        """Compute a column of `KINDS_OF` ``[P]``; ``site``: number of each page's site; ``state``: columns
        ``last_cycle`` and `hints.COLUMNS` of the pages."""
        if name == "age_trust":
            return np.asarray(self._ages()[site])
        return hints.lift_of(self._lifts, site, state, KINDS_OF[name], self._cycle)


def pages_with_claims(
    parts: Iterable[tuple[Array, Mapping[str, Array]]], sites: int, cycle: int
) -> npt.NDArray[np.int64]:
    """Count pages with claims by site, kind, and what the claims say now: ``[S, kinds, 2]``.

    At [..., 1] are pages that have changed since their last visit by these claims, at [..., 0] the others.
    ``parts``: pairs (site number of each page, columns of these pages), for some pages at a time; ``sites``:
    number of sites, S; ``cycle``: the one that is planned.
    """
    counts = np.zeros((sites, len(hints.KINDS), 2), np.int64)
    for site, state in parts:
        for kind in range(len(hints.KINDS)):
            known = hints.has_claims(state, kind)
            if known.any():
                claimed = hints.is_claimed(state, kind, cycle)
                for one in (0, 1):
                    counts[:, kind, one] += np.bincount(site[known & (claimed == one)], minlength=sites)
    return counts


def evidence_of_ages(
    parts: Iterable[tuple[Array, Mapping[str, Array]]], sites: int, crawl_rate: float
) -> npt.NDArray[np.int64]:
    """Sum up `hints.age_evidence` by site, in units of `rates.UNIT`: ``[S]``.

    It is evidence that a page's change rate follows from its age at its first fetch. ``parts``, ``sites``: as
    for `pages_with_claims`; ``crawl_rate``: changes per cycle and page in the whole crawl.
    """
    total = np.zeros(sites, np.int64)
    for site, state in parts:
        aged = np.flatnonzero(state["age_first"])
        columns = {name: state[name][aged] for name in ("E", "T", "age_first")}
        np.add.at(total, site[aged], hints.age_evidence(columns, crawl_rate))
    return total
