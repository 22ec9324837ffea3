"""One crawl twice: in one store, and in shards that have all pages of some hosts each; nothing is fetched."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.crawling.begun import record_of
from scrapy_gp4c.crawling.panel import close_cycle
from scrapy_gp4c.crawling.planning import Planner
from scrapy_gp4c.page_state.columns import PageRow
from scrapy_gp4c.page_state.groups import place_of_url
from scrapy_gp4c.page_state.outcomes import KINDS
from scrapy_gp4c.policies.policy import Planned
from scrapy_gp4c.policies.steps import Shard, Steps, combined, packed, unpacked
from scrapy_gp4c.scoring import hints
from scrapy_gp4c.scoring.discovery import START
from scrapy_gp4c.scoring.draws import GOLDEN, draws, mix
from scrapy_gp4c.settings import Settings
from scrapy_gp4c.store.lmdb_store.sizes import Sizes
from scrapy_gp4c.store.lmdb_store.store import Store
from scrapy_gp4c.store.records import CycleRecord, NewVisit, PlanCounts

T = TypeVar("T")
SMALL = Sizes(block_rows=8, plan_rows=5)
DAY_S = 86_400.0


def shard_of(url: str, shards: int) -> int:
    """The shard of a page: any that follows from its site."""
    return zlib.crc32(place_of_url(url).site.encode()) % shards


def together(
    steps: Sequence[Steps[T]], sent: list[int] | None = None, again: Callable[[], Steps[T]] | None = None
) -> list[T]:
    """Go through the steps of all shards, whose parts and answers travel as bytes.

    ``sent``: gets the bytes that shard 0 sends; ``again``: begins the steps of shard 0 anew, as after a kill:
    it is told the answers so far, and tells the same parts.
    """
    ended: list[T] = []
    told: list[tuple[bytes, bytes]] = []
    answer = None
    while True:
        parts = []
        if again is not None and told:
            begun = again()
            assert packed(next(begun)) == told[0][0]
            for (_, before), (part, _) in pairwise(told):
                assert packed(begun.send(unpacked(before))) == part  # type: ignore[arg-type] # an answer
            steps = [begun, *steps[1:]]
        for one in steps:
            try:
                told_all = None if answer is None else unpacked(answer)
                parts.append(one.send(told_all))  # type: ignore[arg-type] # None begins, and none is a part
            except StopIteration as end:
                ended.append(end.value)
        if ended:
            assert not parts, "all shards are through at once"
            return ended
        raw = [packed(part) for part in parts]
        if sent is not None:
            sent.append(len(raw[0]))
        answer = packed(combined([unpacked(part) for part in raw]))  # type: ignore[misc] # none is an answer
        told.append((raw[0], answer))


class Row(NamedTuple):
    """A page of a plan."""

    kind: str
    key: int
    score: bytes
    """Bit for bit."""
    rank: tuple[float, int]
    """By score, if there is one, and draw."""


class Planning:
    """What one store is planned with."""

    def __init__(self, path: Path, settings: Settings, shard: Shard) -> None:
        self.store = Store(path, sizes=SMALL)
        self.settings, self.shard = settings, shard
        self.planner: Planner | None = None

    @property
    def record(self) -> CycleRecord:
        """Of the newest cycle."""
        return self.store.cycles()[-1]

    def begin(self) -> None:
        """Open a cycle that begins on the day of its number."""
        day: CycleRecord = {"started": (self.store.last_cycle + 1) * DAY_S}
        self.store.begin_cycle({**record_of(self.settings, self.store), **day})
        self.planner = None

    def steps(self, is_moved: bool, seen: int | None = None) -> Steps[bool]:
        """Plan the next round; ``is_moved``: with a new planner, as where nobody remembers the last one."""
        if self.planner is None or is_moved:
            self.planner = Planner(self.store, self.settings, self.shard)
        plan = np.concatenate([np.empty(0, [("page", "u4"), ("kind", "u1")]), *self._plan()])
        return self.planner.steps(self.record, Planned.of(plan), seen=seen)

    def _plan(self) -> list[npt.NDArray[Any]]:
        return [chunk[["page", "kind"]] for chunk in self.store.plan()]

    def rows(self) -> list[Row]:
        """The last round's plan."""
        plan = np.concatenate(list(self.store.plan()) or [np.empty(0, [("page", "u4")])])
        last = plan[len(plan) - self.store.rounds()[-1]["planned"] :]
        pages = np.sort(last["page"])
        key_of = dict(zip(pages.tolist(), self.store.columns_of(pages)["key"].tolist(), strict=True))
        keys = np.array([key_of[page] for page in last["page"].tolist()], np.uint64)
        drawn = draws(keys, self.settings.seed, self.record["cycle"])
        return [
            Row(KINDS[row["kind"]], key, row["score"].tobytes(), (-float(np.nan_to_num(row["score"])), draw))
            for row, key, draw in zip(last, keys.tolist(), drawn.tolist(), strict=True)
        ]

    def page(self, key: int) -> int:
        """Its number for a page."""
        found = self.store.find(key)
        assert found is not None
        return found

    def close(self) -> npt.NDArray[Any]:
        """Close the cycle; returns the shadows of the panel by key, without what differs by store."""
        own = self.settings
        close_cycle(
            self.store, self.record, own.panel, own.warmup_visits, own.distance_bits, own.score_function
        )
        self.store.finish_cycle({"finished": 0.0})
        shadows = self.store.shadows(self.store.last_cycle)
        names = [name for name in shadows.dtype.names or () if name not in ("page", "key")]
        return shadows[["key", *names]][np.argsort(shadows["key"])]


class Twice:
    """A crawl in one store and in shards."""

    def __init__(self, place: Path, settings: Settings, shards: int, seed: int) -> None:
        """Begin with no pages; ``seed``: of all that happens."""
        self.rng = np.random.default_rng(seed)
        self.whole = Planning(place / "whole", settings, Shard(0, 1))
        self.shards = [
            Planning(place / f"shard-{number}", settings, Shard(number, shards)) for number in range(shards)
        ]
        self.urls: dict[int, str] = {}

    def close(self) -> None:
        """Close all stores."""
        for one in (self.whole, *self.shards):
            one.store.close()

    def shard(self, key: int) -> Planning:
        """That of a page."""
        return self.shards[shard_of(self.urls[key], len(self.shards))]

    def homes(self, key: int) -> tuple[Planning, Planning]:
        """The two that have a page."""
        return self.whole, self.shard(key)

    def _pages(self, count: int, hosts: int) -> list[int]:
        """Keys of new pages."""
        keys = self.rng.integers(0, 2**64, count, np.uint64).tolist()
        for key in keys:
            host, directory = self.rng.integers(0, hosts), self.rng.integers(0, 3)
            self.urls[key] = f"http://h{host}.example:{8000 + host % 2}/d{directory}/{key}"
        return keys

    def add(self, count: int, hosts: int) -> None:
        """Add pages of so many hosts outside a cycle."""
        keys = self._pages(count, hosts)
        self.whole.store.add_pages((key, {"url": self.urls[key]}) for key in keys)
        for one in self.shards:
            one.store.add_pages((key, {"url": self.urls[key]}) for key in keys if self.shard(key) is one)

    def begin(self) -> None:
        """Open a cycle."""
        for one in (self.whole, *self.shards):
            one.begin()

    def visit(self, keys: list[int], cycle: int) -> None:
        """Visit pages, whose outcomes follow from key and cycle."""
        for key in keys:
            chance = float(mix(np.array([key ^ cycle * GOLDEN % 2**64], np.uint64))[0]) * 2.0**-64
            row = self.whole.store.page(self.whole.page(key))
            outcome, fingerprint = _outcome(row, chance, key)
            time = cycle * DAY_S + chance * 3600.0
            kinds = self._planned_kinds
            for one in self.homes(key):
                page = one.page(key)
                one.store.record(NewVisit(page, outcome, time, kinds.get(key, "new"), fingerprint))

    def plan(self, sent: list[int]) -> bool:
        """Plan a round of both; False: there is none left. ``sent``: see `together`."""
        moved = self.rng.random(len(self.shards)) < 0.5
        together([self.whole.steps(is_moved=False)])
        first = self.shards[0]
        together(
            [one.steps(bool(is_moved)) for one, is_moved in zip(self.shards, moved, strict=True)],
            sent,
            (lambda: first.steps(is_moved=True)) if moved[-1] else None,
        )
        self._planned_kinds = {row.key: row.kind for row in self.whole.rows()}
        assert self.whole.planner is not None
        return not self.whole.planner.is_over

    def find_pages(self, count: int, hosts: int) -> None:
        """Let visits find pages: of their own hosts, or start requests."""
        found = [key for key in self.urls if self.whole.store.visited(self.whole.page(key))]
        for key in self._pages(count, hosts):
            finder = found[self.rng.integers(0, len(found))] if found else None
            for one in self.homes(key):
                page = one.store.add_page(key, {"url": self.urls[key]})
                if finder is None or self.rng_free(key):
                    one.store.note(page, "found_by", START)
                elif self.shard(finder) is self.shard(key):
                    one.store.note(page, "found_by", one.page(finder) + 1)

    @staticmethod
    def rng_free(key: int) -> bool:
        """Whether a page was the spider's own start."""
        return key % 5 == 0

    def claim(self, cycle: int) -> None:
        """Let sites claim something of some pages, and requests say weights of others."""
        keys = list(self.urls)
        for key in self.rng.choice(np.array(keys, np.uint64), len(keys) // 2).tolist() if keys else ():
            kind = str(self.rng.choice(hints.KINDS))
            value = (cycle - 2 * self.rng.random()) * DAY_S
            value = self.rng.choice([3600.0, 3 * DAY_S]) if kind in hints.SPANS else value
            weight = float(self.rng.choice([0.0, 0.5, 1.0, 4.0]))
            for one in self.homes(key):
                page = one.page(key)
                one.store.hints.note(np.array([page], np.uint32), kind, np.array([value]))
                one.store.note(page, "weight", weight)

    def finish(self) -> tuple[npt.NDArray[Any], list[npt.NDArray[Any]]]:
        """Close the cycle; the shadows of the one store, and of the shards."""
        return self.whole.close(), [one.close() for one in self.shards]

    @property
    def counts(self) -> tuple[PlanCounts, list[PlanCounts]]:
        """What the records say of the plan."""
        return self.whole.record["plan"], [one.record["plan"] for one in self.shards]


def _outcome(row: PageRow, chance: float, key: int) -> tuple[str, int]:
    if chance < 0.1:
        return "error", 0
    if chance < 0.2:
        return "gone", 0
    if not row.has_copy:
        return "first", key ^ 0xFF
    is_changed = chance < 0.6
    return ("changed", row.fingerprint ^ (2**64 - 1)) if is_changed else ("unchanged", row.fingerprint)
