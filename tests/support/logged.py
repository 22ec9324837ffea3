"""A shard whose cycles go through a ledger, without a web: to be copied, killed and built again."""

from __future__ import annotations

import os
import signal
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from scrapy_gp4c.distributed import copies, cycles
from scrapy_gp4c.distributed.connection import Connection
from scrapy_gp4c.distributed.copies import Copying
from scrapy_gp4c.distributed.leases import Worker
from scrapy_gp4c.distributed.log import Flush, Progress, flush
from scrapy_gp4c.distributed.objects import Owned, Place
from scrapy_gp4c.distributed.segments import segment
from scrapy_gp4c.page_state.outcomes import OUTCOMES
from scrapy_gp4c.scoring.draws import mix
from scrapy_gp4c.store.opening import USUAL, LmdbShard, new_shard, open_shard
from scrapy_gp4c.store.records import SHADOW, NewVisit
from scrapy_gp4c.store.shards.part import Finder, ShardOf, counts_of
from tests.support.ledgers import opened, taken

SHARDS = 4
VISITS_OF_FLUSH = 100
SIZES = USUAL._replace(map_size=2**30)
Brought = list[tuple[int, int]]


def key(page: int) -> int:
    """Key of a page: well mixed."""
    return int(mix(np.array([page + 1], np.uint64))[0])


class Logged:
    """Shard 0 of a ledger, held by a worker that holds all of them."""

    def __init__(
        self, ledger: Connection, worker: Worker, place: Place, folder: Path, ledger_id: str
    ) -> None:
        """Make it in a folder, or open the one that is there."""
        self.ledger, self.worker, self.place, self.folder = ledger, worker, place, folder
        self.of = ShardOf(0, SHARDS, ledger_id)
        self.tokens = {shard: taken(ledger, worker, shard).token for shard in range(SHARDS)}
        new_shard(folder / "shard", self.of, SIZES)
        self.shard = open_shard(folder / "shard", SHARDS, SIZES)
        self.flushes = 0
        self.log_bytes = 0

    @property
    def copying(self) -> Copying:
        """Where its copies go."""
        return Copying(self.ledger, self.place, Owned(0, self.tokens[0]), self.folder)

    def crawl(self, new: int, share: float) -> None:
        """Record a cycle in the ledger, and then in the shard: some new pages, and revisits of a share."""
        cycle, shard = opened(self.ledger, self.worker).cycle, self.shard
        shard.begin_cycle({"started": 1000.0 * cycle})
        shard.wait()
        rng = np.random.default_rng(cycle)
        known = shard.pages
        due = [
            shard.add_page(key(known + number), {"url": f"http://h{number % 7}.example/{cycle}/{number}"})
            for number in range(new)
        ]
        due += rng.choice(known, int(share * known), replace=False).tolist()
        for page in due[: new // 3]:
            shard.find_elsewhere(page, Finder(int(rng.integers(2**63)), 1))
            shard.note(page, "weight", 2.0)
        for seq, start in enumerate(range(0, len(due), VISITS_OF_FLUSH)):
            for number, page in enumerate(due[start : start + VISITS_OF_FLUSH], start):
                outcome = "first" if page >= known else OUTCOMES[int(rng.integers(1, 3))]
                time = 1000.0 * cycle + number / 10
                fingerprint, size = rng.integers(2**64, dtype=np.uint64), rng.integers(9999)
                visit = NewVisit(page, outcome, time, "ranked", int(fingerprint), bytes=int(size))
                shard.record(visit)
            sealed = shard.seal(seq)
            assert sealed is not None
            one = segment(0, seq, sealed.visits, sealed.rest)
            self._flush(cycle, (one,))
            shard.write()
            self.log_bytes += len(one.body)

    def close(self) -> Brought:
        """Close the cycle in the ledger and fold it; returns what its pages have brought elsewhere."""
        cycle, shard = self.shard.open_cycle, self.shard
        assert cycle is not None
        self._flush(cycle, (), done=True)
        assert self.ledger.call(cycles.close, cycle)
        brought = [(key(page), page % 5 + 1) for page in range(0, shard.pages, 50)]
        shard.wait(False)
        pages = np.arange(0, shard.pages, 50, dtype=np.uint32)
        shard.note_brought(pages, pages.astype(np.int64) % 5 + 1)
        shard.commit()
        shadows = np.zeros(3, SHADOW)
        shadows["page"] = range(3)
        shadows["n"] = cycle
        shard.keep_shadows(cycle, shadows)
        counts = counts_of(shard.open_visits())
        shard.finish_cycle({"finished": 1000.0 * cycle + 900, "reason": "finished", "shard": counts})
        return brought

    def keep(self, brought: Brought) -> None:
        """Store what is due, and drop the log."""
        copies.keep(self.copying, self.shard, brought)
        self.ledger.call(cycles.drop_log, self.shard.last_cycle)

    def _flush(self, cycle: int, segments: tuple[Any, ...], *, done: bool = False) -> None:
        self.flushes += 1
        progress = dict.fromkeys(self.tokens, Progress(self.shard.pages, True)) if done else {}
        self.ledger.call(
            flush, self.worker, Flush(self.flushes, cycle, self.tokens, segments, progress=progress)
        )


def contents(shard: LmdbShard) -> dict[str, Any]:
    """All that a shard knows, as bytes and records."""
    columns = [(first, {name: block[name].tobytes() for name in block}) for first, block in shard.blocks()]
    pages = np.arange(shard.pages, dtype=np.uint32)
    return {
        "columns": columns,
        "records": shard.cycles(),
        "visits": [(cycle, part.tobytes()) for cycle, part in shard.visits()],
        "requests": shard.requests(pages),
        "directories": shard.directories().tobytes(),
        "finders": shard.finders().tobytes(),
        "shadows": [shard.shadows(shard.last_cycle - back).tobytes() for back in (0, 1)],
    }


class Step(NamedTuple):
    """A moment at which a process dies."""

    module: Any
    name: str
    """Of a function of it."""
    call: int
    """Which call of it, from 1 on."""
    after: bool
    """Behind it, or before."""


def die_at(step: Step) -> None:
    """Let this process die at a step, by kill -9."""
    real, calls = getattr(step.module, step.name), count(1)

    def dying(*arguments: Any, **named: Any) -> Any:
        is_it = next(calls) == step.call
        if is_it and not step.after:
            os.kill(os.getpid(), signal.SIGKILL)
        found = real(*arguments, **named)
        if is_it:
            os.kill(os.getpid(), signal.SIGKILL)
        return found

    setattr(step.module, step.name, dying)
