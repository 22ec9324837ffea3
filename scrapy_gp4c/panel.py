"""The panel: a fixed random share of the pages, visited in every cycle, and what it tells about the others.

A crawl that visits the pages most likely to have changed cannot tell what happens on the others. Panel
pages can: each is observed in every cycle, and each keeps beside its real state a *shadow*, the state it
would have if it were no panel page: visited only in cycles in which its score, computed from that state,
reaches the cut of the cycle's ranking. The panel is a simple random sample of all pages, so the shadows
that a cycle leaves unvisited are a simple random sample of the pages that it leaves unvisited, and the
share of them whose copy is out of date estimates the share out there. docs/closing-the-loop.md explains
both with an example.

Interval: E. B. Wilson 1927, "Probable inference, the law of succession, and statistical inference", JASA
22, with the effective sample size of a prediction from m sampled pages to M others, m * M / (m + M).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from scrapy_gp4c import columns, score, terminals
from scrapy_gp4c.columns import CHANGED, FIRST, JUDGED, KINDS, NOT_MODIFIED
from scrapy_gp4c.store import Store
from scrapy_gp4c.tables import encode

Array = npt.NDArray[Any]
Bools = npt.NDArray[np.bool_]

SHADOW: Final = np.dtype(
    [
        ("page", "<u4"),
        ("key", "<u8"),
        ("current", "<u8"),  # fingerprint that the page's last visit brought
        ("copy", "<u8"),  # fingerprint that the shadow's last visit brought
        *terminals.STATE.items(),  # as the shadow's visits left it
    ]
)
Z_95: Final = 1.959963984540054
"""97.5% quantile of the normal distribution."""

_BITS: Final = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1).sum(axis=1, dtype=np.uint8)
"""Bits of every byte; NumPy 1 has no bitwise_count."""


def in_panel(keys: npt.NDArray[np.uint64], share: float) -> Bools:
    """Tell which pages are in the panel: bool ``[P]``; ``keys``: uint64 ``[P]``, uniformly distributed.

    A page's key decides, so that the choice is stable while pages come and go, and a larger share keeps
    the panel of a smaller one.
    """
    if share >= 1.0:
        return np.ones(len(keys), np.bool_)
    return np.asarray(keys < np.uint64(share * 2.0**64))


def differ(a: npt.NDArray[np.uint64], b: npt.NDArray[np.uint64], distance_bits: int) -> Bools:
    """`scrapy_gp4c.fingerprint.is_changed` for arrays of fingerprints: bool ``[P]``."""
    bits = _BITS[(a ^ b).view(np.uint8)].reshape(-1, 8).sum(axis=1, dtype=np.uint8)
    return np.asarray((bits >= distance_bits) | ((a == 0) != (b == 0)))


class Interval(NamedTuple):
    """A share of pages with its 95% interval."""

    estimate: float
    low: float
    high: float


def predict(found: int, sampled: int, others: int) -> Interval | None:
    """Share of `others` pages that are like `found` of the `sampled` ones, drawn at random with them.

    The sample's share p and that of the others differ with variance p (1 - p) (1 / m + 1 / M): Wilson's
    interval with the effective size m * M / (m + M). None without a sample or without others.
    """
    if not sampled or not others:
        return None
    share = found / sampled
    n = sampled * others / (sampled + others)
    centre = (share + Z_95**2 / (2.0 * n)) / (1.0 + Z_95**2 / n)
    half = Z_95 / (1.0 + Z_95**2 / n) * math.sqrt(share * (1.0 - share) / n + (Z_95 / (2.0 * n)) ** 2)
    # Rounding must not take the estimate out of its own interval, nor this out of [0, 1].
    return Interval(share, max(0.0, min(share, centre - half)), min(1.0, max(share, centre + half)))


class Tally(NamedTuple):
    """What a cycle found on the panel, and how many pages that speaks for."""

    judged: int
    """Panel pages whose visit told whether they changed."""
    unchosen: int
    """Those of them whose shadow the cycle would not have visited."""
    outdated: int
    """Those of these whose shadow's copy is out of date."""


def estimates(tally: Tally, copies: int, judged: int, changed: int, first: int) -> dict[str, Any] | None:
    """Estimates for the whole store, as the cycle record holds them; None without a sample.

    ``copies``: pages with a copy, and not gone, before the cycle; ``judged``: its visits that told
    whether a page changed, ``changed``: those that found a change; ``first``: first visits.

    ``changed_share``: share of the pages with a copy that had changed since their last visit, before the
    visits of the cycle. ``freshness``: share of the copies that are current after them. What was visited is
    known; the panel speaks for the others.
    """
    others = max(0, copies - judged)
    share = predict(tally.outdated, tally.unchosen, others)
    if not copies or (others and share is None):
        return None
    outdated = Interval(*(others * value for value in share or (0.0, 0.0, 0.0)))
    before = Interval(*((changed + pages) / copies for pages in outdated))
    after = [1.0 - pages / (copies + first) for pages in outdated]
    return {
        **tally._asdict(),
        "changed_share": before._asdict(),
        "freshness": Interval(after[0], after[2], after[1])._asdict(),
    }


def describe(estimated: Mapping[str, Any] | None) -> str:
    """`estimates` in words, to go on a line; empty for None."""
    if estimated is None:
        return ""

    def percent(share: Mapping[str, float]) -> str:
        return f"{share['estimate']:.1%} ({share['low']:.1%} to {share['high']:.1%})"

    return (
        f"; by a panel of {estimated['judged']} pages, {percent(estimated['changed_share'])} of the pages "
        f"had changed since our last visit, and {percent(estimated['freshness'])} of the copies are current"
    )


def chosen(shadows: Array, record: Mapping[str, Any], warmup_visits: int) -> Bools:
    """Tell which shadows the cycle of `record` would have visited: bool ``[S]``.

    ``shadows``: dtype `SHADOW` ``[S]``, as the cycle before left them. They take part in its ranking by the
    formula, clock and seed of the record, even if settings have changed since the cycle was planned.
    """
    plan, cycle = record["plan"], record["cycle"]
    warming = np.asarray(shadows["n"] < warmup_visits)
    if plan["ranked"] == plan["rankable"]:
        return np.ones(len(shadows), np.bool_)
    if not plan["ranked"]:
        return warming
    function = dataclasses.replace(score.load(record["formula"]), clock=record["clock"])
    needed = ("n", *terminals.columns_of(function.terminals, function.clock))
    state = {name: np.ascontiguousarray(shadows[name]) for name in terminals.STATE if name in needed}
    state["draw"] = score.draws(np.ascontiguousarray(shadows["key"]), record["seed"], cycle)
    scores = function.scores(state, cycle)
    cut, draw = plan["cut"]
    return np.asarray(warming | (scores > cut) | ((scores == cut) & (state["draw"] <= np.uint64(draw))))


def advance(
    shadows: Array, visits: Array, record: Mapping[str, Any], warmup_visits: int, distance_bits: int
) -> tuple[Array, Tally]:
    """Take the shadows through one cycle, given what it visited.

    ``shadows``: dtype `SHADOW` ``[S]`` as the cycle before left them; ``visits``: dtype `VISIT` ``[V]``.
    A page that is not judged in this cycle (an error, a rest after errors) tells nothing and its shadow
    stays as it is; the next judged visit covers the time since.
    """
    judged_visits = visits[["page", "outcome", "fingerprint"]][np.isin(visits["outcome"], JUDGED)]
    _, rows, of_visit = np.intersect1d(
        shadows["page"], judged_visits["page"], assume_unique=True, return_indices=True
    )
    current = np.ascontiguousarray(shadows["current"])
    compared = judged_visits["outcome"][of_visit] != NOT_MODIFIED
    current[rows[compared]] = judged_visits["fingerprint"][of_visit[compared]]
    outdated = differ(current, np.ascontiguousarray(shadows["copy"]), distance_bits)[rows]
    visited = chosen(shadows, record, warmup_visits)[rows]
    tally = Tally(len(rows), int((~visited).sum()), int((outdated & ~visited).sum()))

    shadows = shadows.copy()
    shadows["current"] = current
    rows, outdated = rows[visited], outdated[visited]
    state = {name: shadows[name][rows] for name in terminals.STATE}
    terminals.observe(state, outdated, record["cycle"])
    for name, values in state.items():
        shadows[name][rows] = values
    shadows["copy"][rows] = current[rows]
    return shadows, tally


def close_cycle(
    store: Store, record: Mapping[str, Any], share: float, warmup_visits: int, distance_bits: int
) -> dict[str, Any] | None:
    """Advance the shadows of the open cycle and return its estimates (see `estimates`).

    Call it before the cycle is folded, with its record. The shadows of the cycle before are kept
    besides, so that a cycle that is resumed after a kill is closed from where it began.
    """
    plan = record.get("plan") or {}
    if share <= 0.0 or "cut" not in plan:
        return None
    cycle, visits = record["cycle"], store.open_visits()
    shadows = load(store, cycle - 1)
    shadows = shadows[in_panel(np.ascontiguousarray(shadows["key"]), share)]
    entering = np.setdiff1d(visits["page"][visits["kind"] == KINDS.index("panel")], shadows["page"])
    shadows = np.concatenate((shadows, _entering(store, entering)))
    shadows, tally = advance(shadows, visits, record, warmup_visits, distance_bits)
    save(store, cycle, shadows)
    outcome = visits["outcome"]
    counts = [int(np.isin(outcome, codes).sum()) for codes in (JUDGED, (CHANGED,), (FIRST,))]
    return estimates(tally, plan["copies"], *counts)


def _entering(store: Store, pages: npt.NDArray[np.uint32]) -> Array:
    shadows = [np.empty(0, SHADOW)]
    of_page = pages // store.block_rows
    for block in np.unique(of_page).tolist():
        with store.transaction() as txn:
            state = columns.unpack(store.get_block(txn, block))
        shadows.append(enter(pages[of_page == block], state, block * store.block_rows))
    return np.concatenate(shadows)


def enter(pages: npt.NDArray[np.uint32], state: columns.Columns, first: int = 0) -> Array:
    """Shadows of pages visited as panel pages for the first time, equal to the pages themselves.

    ``pages``: uint32 ``[S]``; ``state``: page columns of the pages from `first` on. Dtype `SHADOW` ``[S]``.
    """
    shadows = np.zeros(len(pages), SHADOW)
    rows = pages - np.uint32(first)
    shadows["page"] = pages
    for name in ("key", *terminals.STATE):
        shadows[name] = state[name][rows]
    shadows["current"] = shadows["copy"] = state["fingerprint"][rows]
    return shadows


def save(store: Store, cycle: int, shadows: Array) -> None:
    """Keep the shadows as `cycle` left them; those of the cycle before stay."""
    with store.transaction(write=True) as txn:
        txn.put(_key(cycle), _head(cycle) + shadows.tobytes(), db=store.tables["meta"])


def load(store: Store, cycle: int) -> Array:
    """Shadows as `cycle` left them, dtype `SHADOW` ``[S]``; none if it had no panel."""
    with store.transaction() as txn:
        value = txn.get(_key(cycle), db=store.tables["meta"], default=b"")
    head = _head(cycle)
    return np.frombuffer(value[len(head) :] if value.startswith(head) else b"", SHADOW)


def _key(cycle: int) -> bytes:
    return b"shadows%d" % (cycle % 2)


def _head(cycle: int) -> bytes:
    return encode({"cycle": cycle, "columns": SHADOW.descr}) + b"\n"
