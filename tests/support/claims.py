"""Independent computation of the column `claims` and of sites' trust counts, from claims and visits."""

from collections import defaultdict
from typing import NamedTuple, Self

import numpy as np

from scrapy_gp4c.page_state.groups import place_of_url
from scrapy_gp4c.page_state.outcomes import CHANGED, FIRST, JUDGED
from scrapy_gp4c.scoring.hints import CLAIMED, KINDS
from scrapy_gp4c.store.lmdb_store.store import Store

Counts = dict[tuple[int, int], list[list[float]]]
"""``[site, kind]``: decayed numbers of visits, ``[whether a change was claimed][whether it was found]``."""


class Page:
    """Last visit and valid claims of a page."""

    def __init__(self) -> None:
        self.last_cycle = 0
        self.due: dict[int, int] = {}
        """Kind of claims that name a cycle -> the latest cycle claimed."""
        self.span: tuple[int, int] | None = None
        """Kind and value of the claim that names a duration, in cycles."""

    def claims_in(self, cycle: int) -> dict[int, bool]:
        """Kind -> whether its claims say that the page changed since its last visit."""
        claimed = {kind: due > self.last_cycle for kind, due in self.due.items()}
        if self.span is not None:
            claimed[self.span[0]] = cycle - self.last_cycle > self.span[1]
        return claimed

    def claim(self, kind: int, value: int) -> None:
        if kind < len(CLAIMED):
            self.due[kind] = max(value, self.due.get(kind, 0))
        elif KINDS[kind] == "expires" or self.span is None or KINDS[self.span[0]] == "changefreq":
            self.span = kind, value


class Oracle(NamedTuple):
    """Expected column and counts of a store without an open cycle."""

    claims: list[int]
    """The column `claims` of the pages: bits of the kinds claimed, and of those not yet checked."""
    counts: Counts

    @classmethod
    def of(cls, store: Store) -> Self:
        """Compute both from the visits and claims that the store has of all cycles."""
        pages = [Page() for _ in range(store.pages)]
        site = [place_of_url(request["url"]).site_key for request in store.requests(range(store.pages))]
        claims: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
        for cycle, rows in store.claims_of_cycles(0):
            claims[cycle] += rows.tolist()
        visits: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for cycle, rows in store.visits():
            visits[cycle] += zip(rows["page"].tolist(), rows["outcome"].tolist(), strict=True)
        counts: Counts = defaultdict(lambda: [[0.0, 0.0], [0.0, 0.0]])
        for cycle in range(store.last_cycle + 1):
            for cell in counts.values():
                cell[:] = [[number * 2 ** (-1 / 16) for number in row] for row in cell]
            early = [one for one in claims[cycle] if one[1] < len(CLAIMED) and one[2] <= cycle]
            for page, kind, value in early:
                pages[page].claim(kind, value)
            for page, outcome in visits[cycle]:
                for kind, claimed in pages[page].claims_in(cycle).items() if outcome in JUDGED else ():
                    counts[site[page], kind][claimed][outcome == CHANGED] += 1
                if outcome in (FIRST, *JUDGED):
                    pages[page].last_cycle = cycle
            for page, kind, value in claims[cycle]:
                if (page, kind, value) not in early:
                    pages[page].claim(kind, value)
        bits_of_pages = []
        for page in pages:
            bits = 0
            for kind, due in page.due.items():
                bits |= (1 << kind) | (16 << kind if due > page.last_cycle else 0)
            bits_of_pages.append(bits)
        return cls(bits_of_pages, counts)

    def agrees(self, store: Store) -> None:
        """Check that the store has the same column and counts."""
        blocks = [block for _, block in store.blocks()]
        assert np.concatenate([np.empty(0), *(block["claims"] for block in blocks)]).tolist() == self.claims
        stored = {int(row["site"]): row["counts"] for row in store.trust()}
        for site, counts in stored.items():
            for kind in range(len(KINDS)):
                expected = self.counts.get((site, kind), [[0.0, 0.0], [0.0, 0.0]])
                assert np.allclose(counts[kind], expected, rtol=1e-9)
        assert {site for site, _ in self.counts} <= stored.keys()
