"""Sources of news that a store knows: its hubs, and the sites whose hints hold."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from scrapy_gp4c.commands.output import print_table, say
from scrapy_gp4c.scoring import discovery, hints
from scrapy_gp4c.store.protocols import PageReader
from scrapy_gp4c.store.site_names import site_names

MOST: Final = 10
"""Hubs that are shown, and sites."""


@dataclass(frozen=True)
class Hub:
    """Page whose visits bring new pages."""

    url: str
    brought: float
    """New pages per cycle that its next visit is expected to bring."""
    brought_cycle: int
    """The last cycle in which a visit brought one."""


@dataclass(frozen=True)
class TrustedSite:
    """A site of which one kind of hints holds, by the judged visits of its pages, of which older ones count
    less."""

    site: str
    hints: str
    """One of `scrapy_gp4c.scoring.hints.KINDS`."""
    claimed_changed: float
    claimed_unchanged: float
    silent_changed: float
    """Visits that found a change although none was claimed."""
    silent_unchanged: float


def hubs(store: PageReader) -> list[Hub]:
    """The hubs that promise most, at most `MOST`."""
    cycle = store.last_cycle + 1
    parts = [np.empty((0, 3))]
    for first, block in store.blocks():
        rows = np.flatnonzero(discovery.is_hub(block, cycle) & (block["has_copy"] != 0))
        rate = discovery.rate(block, cycle)[rows]
        best = np.argsort(-rate, kind="stable")[:MOST]
        parts.append(np.stack((rows[best] + first, rate[best], block["brought_cycle"][rows[best]]), axis=1))
    finds = np.concatenate(parts)
    finds = finds[np.argsort(-finds[:, 1], kind="stable")][:MOST]
    requests = store.requests(finds[:, 0].astype(np.int64))
    return [
        Hub(stored["url"], round(float(row[1]), 3), int(row[2]))
        for stored, row in zip(requests, finds, strict=True)
    ]


def trusted_sites(store: PageReader) -> list[TrustedSite]:
    """Sites whose hints are tested best, at most `MOST`: those with the most visits after a hint."""
    rows = store.hints.trust()
    where, kind = np.nonzero(hints.holds(rows["counts"]))
    weight = rows["counts"][where, kind].sum(axis=(1, 2))
    best = np.argsort(-weight, kind="stable")[:MOST]
    names = site_names(store, rows["site"][where[best]].tolist())
    trusted = []
    for row, number in zip(where[best], kind[best], strict=True):
        (silent, silent_changed), (claimed, claimed_changed) = rows["counts"][row, number].round(1).tolist()
        name = names.get(int(rows["site"][row]), "?")
        trusted.append(
            TrustedSite(name, hints.KINDS[number], claimed_changed, claimed, silent_changed, silent)
        )
    return trusted


def print_sources(hubs_found: list[Hub], trusted: list[TrustedSite]) -> None:
    """Print both as tables, if there is anything in them."""
    if hubs_found:
        say()
        head = ("hub", "new pages per cycle", "last in cycle")
        print_table([head, *((hub.url, f"{hub.brought:.2f}", str(hub.brought_cycle)) for hub in hubs_found)])
    if trusted:
        say()
        columns = ("site", "hints that hold", "claimed: changed", "unchanged", "silent: changed", "unchanged")
        print_table([columns, *map(_row, trusted)])


def _row(one: TrustedSite) -> tuple[str, ...]:
    counts = (one.claimed_changed, one.claimed_unchanged, one.silent_changed, one.silent_unchanged)
    return one.site, one.hints, *(f"{count:.1f}" for count in counts)
