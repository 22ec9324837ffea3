"""Building a store anew from what a damaged one still has, beside it; the damaged file is kept.

What can be derived is derived: ids and directories from requests, the state of pages whose block is lost from
their visits. A page without a request is left out, with its visits; the ids of the others close up.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.page_state import columns
from scrapy_gp4c.page_state.blocks import EXTRAS, unpack_extras
from scrapy_gp4c.page_state.columns import COLUMNS, Columns
from scrapy_gp4c.page_state.groups import KEPT_CYCLES
from scrapy_gp4c.page_state.outcomes import VISIT
from scrapy_gp4c.scoring.discovery import COLUMNS as GROWTH
from scrapy_gp4c.scoring.discovery import START
from scrapy_gp4c.store.lmdb_store import fold, groups, hints, trust, weights
from scrapy_gp4c.store.lmdb_store.beside import REWRITE, beside, drop_search_index, keep_aside, locked
from scrapy_gp4c.store.lmdb_store.checking import check
from scrapy_gp4c.store.lmdb_store.environment import put_in_place
from scrapy_gp4c.store.lmdb_store.failures import DATA, damaged
from scrapy_gp4c.store.lmdb_store.gains import rebuilt
from scrapy_gp4c.store.lmdb_store.groups import Numbering
from scrapy_gp4c.store.lmdb_store.header import NoLmdbFileError
from scrapy_gp4c.store.lmdb_store.reopening import reopen_cycle
from scrapy_gp4c.store.lmdb_store.salvage import LOST, Lost, Salvaged, new_finders, remapped, salvage
from scrapy_gp4c.store.lmdb_store.sealed import TABLES, U32, U32_PAIR
from scrapy_gp4c.store.lmdb_store.shadows import without
from scrapy_gp4c.store.lmdb_store.sizes import Sizes
from scrapy_gp4c.store.lmdb_store.store import Store
from scrapy_gp4c.store.lmdb_store.tables import Tables
from scrapy_gp4c.store.lmdb_store.verify import is_told
from scrapy_gp4c.store.records import CycleRecord, StoredRequest

Array = npt.NDArray[Any]
KeyOf = Callable[[StoredRequest], int]

_OF_PAGES: Final = {
    "validators": "pages' validators: the next time these are asked for in full",
    "first_urls": "URLs that pages were found by: their directories are those of their URLs now",
    "bodies": "sums of pages' bodies: the next time these are fingerprinted, changed or not",
    "descriptions": "descriptions of pages' copies: their next change brings them, for clusters",
}
"""Table -> what it is to miss some of it."""
_OF_SITES: Final = {
    "hints": "blocks of pages of which is lost what sites claim",
    "claims": "parts of what sites have claimed in past cycles",
    "trust": "parts of how often sites were right",
    "weights": "blocks of pages whose weights are lost: say them anew",
}
"""The same of what is kept of claims and weights."""


class Repaired(NamedTuple):
    """What became of a store."""

    lost: list[Lost]
    aside: Path
    """Directory that keeps the damaged file."""


def repair(path: Path, sizes: Sizes, key_of: KeyOf) -> Repaired:
    """Put a store made of what can be read in the place of a damaged one. Memory: about the store's size.

    ``key_of``: the key of a stored request, where nothing else tells it. Raises StoreDamagedError where there
    is nothing to begin with, StoreInUseError where a crawl has the store.
    """
    with locked(path), beside(path, REWRITE) as work:
        try:
            found = salvage(path / DATA)
        except (NoLmdbFileError, OSError) as error:
            raise damaged(path, f"nothing of {DATA} can be read ({error or 'it is no such file'})") from None
        lost = _Rebuild(found, key_of).write(work, sizes)
        if problems := check(work, sizes, deep=True):
            raise damaged(path, f"what can be read of it does not fit: {problems[0]}")
        aside = keep_aside(path, "before-repair")
        drop_search_index(path)
        put_in_place(path, work / DATA)
    return Repaired(lost, aside)


class _Rebuild:
    """A store's content, taken apart and put together again."""

    def __init__(self, found: Salvaged, key_of: KeyOf) -> None:
        values = found.values
        self._found, self._values, self._key_of = found, values, key_of
        meta = values["meta"].items()
        self._meta = {name.decode(): json.loads(text) for name, text in meta if b"shadow" not in name}
        self._records: dict[int, CycleRecord] = {
            U32.unpack(key)[0]: json.loads(text) for key, text in values["cycles"].items()
        }
        blocks = found.blocks()
        rows = max((len(block["n"]) for block in blocks.values()), default=0)
        self._block_rows: int = self._meta.get("block_rows") or max(rows, 1)
        finished = [cycle for cycle, record in self._records.items() if "finished" in record]
        finished += [U32_PAIR.unpack(key)[0] for key in values["visits"]]
        finished += [int(block["last_attempt"].max(initial=0)) for block in blocks.values()]
        self._last: int = self._meta.get("last_cycle", max(finished, default=0))
        known = [int.from_bytes(page, "big") + 1 for page in values["ids"].values()]
        known += [number * self._block_rows + len(block["n"]) for number, block in blocks.items()]
        counted = self._meta.get("pages", found.entries.get("ids"))
        self._pages: int = max(known, default=0) if counted is None else counted
        marker = self._meta.get("fold")
        self._folded = 0 if marker is None else marker["next_block"]
        self._blocks = blocks
        self._lost: list[Lost] = []

    def write(self, work: Path, sizes: Sizes) -> list[Lost]:
        """Write the store; returns what is lost."""
        if self._found.entries.keys() < {*TABLES}:
            self._lose(1, "table of tables: whether single values are missing besides, cannot be told")
        keys = self._keys()
        has = np.array([U32.pack(page) in self._values["urls"] for page in range(self._pages)], bool)
        kept = np.flatnonzero(has & (keys > 0))
        new_id = np.full(self._pages, LOST, np.int64)
        new_id[kept] = np.arange(len(kept))
        self._lose(self._pages - len(kept), "pages, with their visits: links to them find them anew")
        with Store(work, sizes=sizes._replace(block_rows=self._block_rows)) as store:
            tables = store.tables
            state = columns.new_columns(keys[kept])
            news = self._directories(kept, state, sizes)
            dropped = self._replay(tables, state, new_id, sizes)
            self._put_pages(tables, kept, state, news, sizes)
            records = [self._record(cycle) for cycle in range(1, self._last + 1)]
            tables.restore_cycles(records)
            self._put_rest(tables, new_id, dropped)
            self._put_claims(tables, new_id)
            weights.rebuilt(tables, self._values, new_id)
            missing = self._found.entries.get("gains", 0) - len(self._values["gains"])
            self._lose(missing, "parts of what visits gained a search")
            lost_gains = rebuilt(tables, self._values, new_id, dropped)
            self._lose(lost_gains, "pages of which is lost what they gained a search")
            self._lost += reopen_cycle(tables, self._found, self._records.get(self._last + 1), new_id)
        with Store(work, sizes=sizes) as store:
            lost_record = self._last + 1 not in self._records
            marker = self._meta.get("fold")
            if store.open_cycle is not None and (marker is not None or lost_record):
                store.finish_cycle(marker["record"] if marker is not None else {"reason": "repaired"})
        return self._lost

    def _lose(self, count: int, what: str) -> None:
        if count > 0:
            so_far = sum(lost.number for lost in self._lost if lost.what == what)
            self._lost = [*(lost for lost in self._lost if lost.what != what), Lost(so_far + count, what)]

    def _record(self, cycle: int) -> CycleRecord:
        record = self._records.get(cycle)
        if record is None:
            self._lose(1, f"record, of cycle {cycle}")
            return {"started": None, "finished": None}
        return record

    def _keys(self) -> npt.NDArray[np.uint64]:
        """Keys of all pages: of the columns, else of the requests; 0 where neither tells.

        Not of `ids`: these have no checksum, and a page by a wrong key is another page.
        """
        keys = np.zeros(self._pages, np.uint64)
        for number, block in self._blocks.items():
            first = number * self._block_rows
            keys[first : first + len(block["key"])] = block["key"][: self._pages - first]
        for page in np.flatnonzero(keys == 0).tolist():
            request = self._values["urls"].get(U32.pack(page))
            keys[page] = 0 if request is None else self._key_of(json.loads(request))
        return keys

    def _directories(self, kept: Array, state: Columns, sizes: Sizes) -> list[Array]:
        """Number the directories of all pages; returns the new ones of each batch."""
        numbering, news = Numbering(np.empty(0, np.uint64)), []
        for first in range(0, len(kept), sizes.pages_per_transaction):
            batch = kept[first : first + sizes.pages_per_transaction].tolist()
            numbered = numbering.number([self._first_url(page) for page in batch])
            state["group"][first : first + len(batch)] = numbered.group
            news.append(numbered.new)
        return news

    def _first_url(self, page: int) -> str:
        url = self._values["first_urls"].get(U32.pack(page))
        if url is not None:
            return str(json.loads(url))
        return groups.urls_of([self._values["urls"][U32.pack(page)]])[0]

    def _replay(self, tables: Tables, state: Columns, new_id: Array, sizes: Sizes) -> int:
        """Do to new columns what all visits did, and take over the blocks that are there.

        Returns the last cycle whose visits are not all there.
        """
        dropped: int = self._meta.get("dropped", 0)
        chunks: dict[int, list[Array]] = {}
        for key in sorted(self._values["visits"]):
            visits = np.frombuffer(self._values["visits"][key], VISIT)
            chunks.setdefault(U32_PAIR.unpack(key)[0], []).append(visits)
        for cycle in range(1, self._last + 1):
            found = np.concatenate([np.empty(0, VISIT), *chunks.get(cycle, [])])
            record = self._records.get(cycle, {})
            expected = record.get("visited", len(found)) - record.get("forgotten", 0)
            if cycle > dropped and len(found) < expected:
                self._lose(expected - len(found), f"visits of cycle {cycle}")
                dropped = cycle
            visits = remapped(found, new_id)
            rows, outcome = visits["page"].astype(np.intp), visits["outcome"]
            if cycle > self._last - KEPT_CYCLES:
                with tables.transaction(write=True) as txn:
                    told = groups.counted([groups.told(state, rows, outcome, cycle)])
                    tables.put_group_visits(txn, cycle, 0, told)
            columns.apply_visits(state, rows, visits, cycle)
            fold.put_visits(tables, cycle, 0, visits, sizes)
        if self._take_blocks(state, new_id, dropped):
            self._lose(1, "or more visits, of no cycle that can be told")
            dropped = self._last
        return dropped

    def _take_blocks(self, state: Columns, new_id: Array, dropped: int) -> bool:
        """Take over the blocks that are there; tells whether they know more visits than there are."""
        knows_more = False
        for number in range(-(-self._pages // self._block_rows)):
            first = number * self._block_rows
            block, own = self._blocks.get(number), new_id[first : first + self._block_rows]
            there, rows = own != LOST, own[own != LOST]
            if block is None or number < self._folded:
                self._take_growth(
                    state, rows, None if block is None else {n: block[n][there] for n in GROWTH}
                )
                if dropped and block is None:
                    self._lose(len(rows), f"pages' states of before cycle {dropped + 1}")
                continue
            told = is_told(block, dropped)[there]
            more = [block[name][there] > state[name][rows] for name in ("n", "last_attempt")]
            knows_more |= bool(np.any(np.logical_or(*more) & told))
            for name in COLUMNS.keys() - {"group"}:
                state[name][rows] = block[name][there]
        found_by = state["found_by"]
        is_page = (found_by > 0) & (found_by < START)
        found_by[is_page] = new_finders(found_by[is_page], new_id)
        return knows_more

    def _take_growth(self, state: Columns, rows: Array, kept: Columns | None) -> None:
        """Take over what no visit tells: who found pages and when; ``kept``: of a block that is folded."""
        state["brought_cycle"][rows] = state["first_cycle"][rows]
        if kept is None:
            self._lose(len(rows), "pages of which is lost who found them, and what they brought")
            return
        state["found_by"][rows], state["entered"][rows] = kept["found_by"], kept["entered"]
        self._lose(int((kept["brought_sum"] > 0).sum()), "pages of which is lost what they brought")

    def _put_pages(
        self, tables: Tables, kept: Array, state: Columns, news: Sequence[Array], sizes: Sizes
    ) -> None:
        for number, new in enumerate(news):
            rows = slice(number * sizes.pages_per_transaction, (number + 1) * sizes.pages_per_transaction)
            requests = [self._values["urls"][U32.pack(page)] for page in kept[rows].tolist()]
            tables.append_pages(requests, {name: column[rows] for name, column in state.items()}, new)

    def _put_rest(self, tables: Tables, new_id: Array, dropped: int) -> None:
        """Write what is kept of single pages, and of the store."""
        with tables.transaction(write=True) as txn:
            for name in _OF_PAGES:
                for key, value in self._values[name].items():
                    page = U32.unpack(key)[0]
                    if page < self._pages and new_id[page] != LOST:
                        tables.db[name].put(txn, U32.pack(new_id[page]), value)
                missing = self._found.entries.get(name, 0) - len(self._values[name])
                self._lose(missing, _OF_PAGES[name])
            if self._values["clusters"]:
                self._lose(1, "clusters of pages: make them anew with `scrapy gp4c cluster`")
            if "store_id" in self._meta:
                tables.put_meta(txn, "store_id", self._meta["store_id"])
            if dropped:
                tables.put_meta(txn, "dropped", dropped)
            for key, value in self._values["meta"].items():
                if b"shadows" in key:
                    tables.db["meta"].put(txn, key, without(value, new_id))

    def _put_claims(self, tables: Tables, new_id: Array) -> None:
        """Write what sites claim of the pages that are left, and how often they were right."""
        state = unpack_extras(None, tables.merged_pages)
        for key, value in self._values["hints"].items():
            first = U32.unpack(key)[0] * self._block_rows
            block = columns.read_columns(value, EXTRAS)
            own = new_id[first : first + len(block["claims"])]
            for name in EXTRAS:
                state[name][own[own != LOST]] = block[name][: len(own)][own != LOST]
        hints.put_extras(tables, 0, state)
        with tables.transaction(write=True) as txn:
            for key, value in self._values["claims"].items():
                claimed = remapped(trust.unpacked(tables.db["claims"], key, value), new_id)
                trust.put_claims(txn, tables.db, key, claimed)
            for key, value in self._values["trust"].items():
                if U32_PAIR.unpack(key)[0] == 0:
                    tables.db["trust"].put(txn, key, value)
        for name, what in _OF_SITES.items():
            self._lose(self._found.entries.get(name, 0) - len(self._values[name]), what)
