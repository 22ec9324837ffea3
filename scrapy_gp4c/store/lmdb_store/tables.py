"""Tables of a store's LMDB file: schema, counters, typed reading and writing, directories of pages.

A `PageColumns` or `CycleRows` describes each optional table: its name, its columns or dtype, and the value of
a page that has none. The *fold* (the pass that applies a finished cycle's visits to the page columns),
export, `forget` and `recover` go through these descriptions. Columns are kept in *blocks* of
`Tables.block_rows` pages, by page id.

docs/code/store.md describes keys and values. Numbers in keys are big-endian, so that they sort. `groups` has
the directories in blocks, in the order in which they were added. `group_visits` has the sums of a cycle's
visits by directory, in parts while the cycle is folded, and then as one value.
"""

import json
import secrets
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import groupby, islice, pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple

import lmdb
import numpy as np
import numpy.typing as npt

from scrapy_gp4c.arrays import Array, Bools
from scrapy_gp4c.errors import StoreDamagedError, StoreError
from scrapy_gp4c.foreign_text import counted
from scrapy_gp4c.page_state import columns
from scrapy_gp4c.page_state.claims import CLAIM, NOTE
from scrapy_gp4c.page_state.columns import COLUMNS, Columns
from scrapy_gp4c.page_state.groups import (
    GROUP,
    GROUP_VISITS,
    KEPT_CYCLES,
    Place,
    add_up,
    count_visits,
    place_of_url,
)
from scrapy_gp4c.page_state.outcomes import CHANGED, JUDGED, PLAN, VISIT, WARMUP, among
from scrapy_gp4c.scoring import first_visits, hints, refresh_value, weights
from scrapy_gp4c.scoring.refresh_value import GAIN, observe_gains
from scrapy_gp4c.scoring.terminals import change_probability
from scrapy_gp4c.store.lmdb_store.environment import (
    KEY,
    PLAIN_KEY,
    TABLES,
    U32,
    U32_PAIR,
    Environment,
    RequestTable,
    Table,
    damaged,
    decode,
    encode,
    read_only_error,
    split,
    translated,
)
from scrapy_gp4c.store.records import SHADOW, TRUST, CycleRecord, FoldMarker

Handles = dict[str, Table]


class PageColumns(NamedTuple):
    """Description of a table of optional page columns, stored for blocks where any is not `missing`."""

    table: str
    dtypes: dict[str, str]
    """Column name -> dtype."""
    missing: float
    """Value of a page that has none."""

    def none(self, rows: int) -> Columns:
        """Return columns of a number of pages, ``[rows]``, in which each has the value `missing`."""
        return {name: np.full(rows, self.missing, dtype) for name, dtype in self.dtypes.items()}

    def read(self, txn: Any, db: Handles, block: int, rows: int) -> Columns:
        """Read a block's writable columns ``[rows]``; pages newer than its stored value get `missing`."""
        return self.unpack(db[self.table].get(txn, U32.pack(block)), rows)

    def unpack(self, value: bytes | None, rows: int) -> Columns:
        """Unpack the stored value of a block (None: none is stored) into writable columns ``[rows]``."""
        values = self.none(rows)
        if value is None:
            return values
        stored, offset = len(value) // sum(column.itemsize for column in values.values()), 0
        for column in values.values():
            column[:stored] = np.frombuffer(value, column.dtype, stored, offset)[:rows]
            offset += stored * column.itemsize
        return values

    def put(self, txn: Any, db: Handles, block: int, columns: Columns) -> None:
        """Write the columns of a block, or delete it where all pages have the value `missing`."""
        if any((columns[name] != self.missing).any() for name in self.dtypes):
            packed = [np.ascontiguousarray(columns[name], dtype).data for name, dtype in self.dtypes.items()]
            db[self.table].put(txn, U32.pack(block), b"".join(packed))
        else:
            db[self.table].delete(txn, U32.pack(block))


def _pack_claims(claimed: Array) -> bytes:
    """Compress claims, dtype `CLAIM`: sorted by page, all of one field after the other, for equal numbers."""
    claimed = claimed[np.argsort(claimed["page"], kind="stable")]
    page = np.diff(claimed["page"].astype(np.int64), prepend=0).astype("<u4")
    raw = page.tobytes() + claimed["kind"].tobytes() + claimed["value"].astype("<i4").tobytes()
    return zlib.compress(raw, 1)


def _unpack_claims(value: bytes | memoryview) -> Array:
    raw = zlib.decompress(value)
    count = len(raw) // CLAIM.itemsize
    claimed = np.empty(count, CLAIM)
    claimed["page"] = np.cumsum(np.frombuffer(raw, "<u4", count))
    claimed["kind"] = np.frombuffer(raw, "u1", count, 4 * count)
    claimed["value"] = np.frombuffer(raw, "<i4", count, 5 * count)
    return claimed


class CycleRows(NamedTuple):
    """A table of arrays by cycle, such as visits: the value under key (cycle, part) has rows of one dtype."""

    table: str
    dtype: np.dtype[Any]
    packing: tuple[Callable[[Array], bytes], Callable[[bytes | memoryview], Array]] | None = None
    """Functions that pack and unpack rows; None: rows are stored as bytes of the array."""

    def none(self) -> Array:
        return np.empty(0, self.dtype)

    def pack(self, rows: Array) -> bytes:
        return rows.tobytes() if self.packing is None else self.packing[0](rows)

    def unpack(self, value: bytes | memoryview) -> Array:
        return np.frombuffer(value, self.dtype) if self.packing is None else self.packing[1](value)

    def put(self, txn: Any, db: Handles, cycle: int, number: int, rows: Array) -> None:
        """Write rows as part `number` of a cycle."""
        db[self.table].put(txn, U32_PAIR.pack(cycle, number), self.pack(rows))

    def parts(
        self, txn: Any, db: Handles, first_cycle: int, last_cycle: int
    ) -> Iterator[tuple[bytes, Array]]:
        """Yield (key, rows) for all parts of the cycles from `first_cycle` to `last_cycle`."""
        if last_cycle >= 0:
            start, stop = U32_PAIR.pack(max(0, first_cycle), 0), U32_PAIR.pack(last_cycle + 1, 0)
            for key, value in db[self.table].items(txn, start, stop):
                yield key, self.unpack(value)

    def read(self, txn: Any, db: Handles, cycle: int) -> Array:
        return np.concatenate([self.none(), *(rows for _, rows in self.parts(txn, db, cycle, cycle))])

    def drop(self, txn: Any, db: Handles, first_cycle: int, last_cycle: int) -> None:
        for key, _ in list(self.parts(txn, db, first_cycle, last_cycle)):
            db[self.table].delete(txn, key)


HINTS: Final = PageColumns("hints", hints.COLUMNS, 0)
"""Newest claims of sites about changes of their pages: see `scrapy_gp4c.scoring.hints`."""
REFRESH_VALUES: Final = PageColumns("refresh_values", refresh_value.COLUMNS, 0)
"""Sums of the gains in search quality that visits brought: see `scrapy_gp4c.scoring.refresh_value`."""
WEIGHTS: Final = PageColumns("weights", weights.COLUMNS, weights.DEFAULT_WEIGHT)
LINKS: Final = PageColumns("links", first_visits.COLUMNS, 0)
"""Links to pages that wait for their first visit: see `scrapy_gp4c.scoring.first_visits`."""
PAGE_COLUMNS: Final = (HINTS, REFRESH_VALUES, WEIGHTS, LINKS)

SITE_COUNTS: Final = np.dtype([("group", "<u4"), ("counts", "<u4", TRUST["counts"].shape)])
"""Right and wrong claims, as in `TRUST`, about one directory's pages; the end of a fold sums them by site."""
VISITS: Final = CycleRows("visits", VISIT)
PLANS: Final = CycleRows("plans", PLAN)
GROUP_ROWS: Final = CycleRows("group_visits", GROUP_VISITS)
CLAIMS: Final = CycleRows("claims", CLAIM, (_pack_claims, _unpack_claims))
"""Claims by the cycle that read them, without those that repeated earlier ones."""
GAINS: Final = CycleRows("gains", GAIN)
TRUST_PARTS: Final = CycleRows("trust", SITE_COUNTS)
"""Counts by directory while a cycle is folded; under cycle 0 the table has sums by site, dtype `TRUST`."""
SHADOWS: Final = CycleRows("shadows", SHADOW)
OF_PAGES: Final = ("validators", "first_urls", "copies", "descriptions", "answers")
"""Tables by page id, with a small value for some of the pages."""
QUERY_LOG: Final = "query_log"
"""Name in `meta` of the digest of the query log that gains are measured by, and of the first such cycle."""
_SAMPLE: Final = 64


class Numbered(NamedTuple):
    """Directory numbers of several pages, and the directories that are new: result of `Numbering.number`."""

    group: npt.NDArray[np.uint32]
    """Number of each page's directory, ``[P]``."""
    new: Array
    """New directories, dtype `GROUP`; their numbers follow those of the known directories."""


class Numbering:
    """Map from directory keys to directory numbers, for pages that are added in bulk."""

    def __init__(self, known: Array) -> None:
        """``known``: keys of directories 0..G-1, uint64 ``[G]``. Memory: 12 bytes each, 28 meanwhile."""
        self._keys = np.empty(0, np.uint64)
        self._numbers = np.empty(0, np.uint32)
        self._learn(known)

    def _learn(self, keys: Array) -> None:
        order = np.argsort(keys)
        places = np.searchsorted(self._keys, keys[order])
        numbers = (order + len(self._keys)).astype(np.uint32)
        self._keys = np.insert(self._keys, places, keys[order])
        self._numbers = np.insert(self._numbers, places, numbers)

    def number(self, urls: Sequence[str]) -> Numbered:
        """Return the directory numbers of pages by their URLs; unknown directories are numbered and added."""
        place_numbers: dict[Place, int] = {}
        of_page = [place_numbers.setdefault(place_of_url(url), len(place_numbers)) for url in urls]
        places = np.array([url_place.keys() for url_place in place_numbers], GROUP)
        if not len(places):
            return Numbered(np.empty(0, np.uint32), places)
        unknown = places[~np.isin(places["key"], self._keys)]
        first = np.sort(np.unique(unknown["key"], return_index=True)[1])
        self._learn(unknown["key"][first])
        numbers = self._numbers[np.searchsorted(self._keys, places["key"])]
        return Numbered(numbers[of_page], unknown[first])


def urls_of(requests: Sequence[bytes]) -> list[str]:
    """Return the URLs of requests in JSON, "" where one has none; raises ValueError for invalid JSON."""
    return list(map(url_of, decode(b"[" + b",".join(requests) + b"]")))


def url_of(request: Any) -> str:
    """Return the URL of a decoded request; "" if it has none or is no dictionary."""
    return str(request.get("url", "")) if isinstance(request, dict) else ""


def keep_first_url(txn: Any, table: Table, page: int, known: bytes, request: bytes) -> None:
    """Write a page's old URL to `table` (``first_urls``) if its new request is to another directory.

    ``known``, ``request``: old and new request in JSON. A URL in the table stays: it is the first one, whose
    directory the page stays in, because the sums of past visits cannot move.
    """
    old, new = urls_of([known, request])
    if old != new and place_of_url(old) != place_of_url(new):
        table.put(txn, U32.pack(page), json.dumps(old).encode(), overwrite=False)


def append_directories(txn: Any, table: Table, directories: Array, count: int, rows: int) -> None:
    """Append directories, dtype `GROUP`, to the `count` stored ones, in blocks of `rows` directories."""
    start = 0
    while start < len(directories):
        block, filled = divmod(count + start, rows)
        added = directories[start : start + rows - filled].tobytes()
        old = bytes(table.view(txn, U32.pack(block))[: filled * GROUP.itemsize]) if filled else b""
        table.put(txn, U32.pack(block), old + added)
        start += rows - filled


def read_directories(txn: Any, table: Table, count: int, name: str | None = None) -> Array:
    """Read directories 0..count-1 from `table` (`groups`), dtype `GROUP`; ``name``: only this column."""
    parts = [np.empty(0, GROUP if name is None else GROUP[name])]
    for number, (key, value) in enumerate(table.items(txn)):
        if key != U32.pack(number):
            raise table.wrong(key, f"block {number} is missing")
        block = np.frombuffer(value, GROUP)
        parts.append(block if name is None else block[name].copy())
    directories = np.concatenate(parts)
    if len(directories) < count:
        expected = counted(count, "directory", "directories")
        raise table.wrong(U32.pack(0), f"there should be {expected} by the URLs; found {len(directories)}")
    return directories[:count]


class JudgedVisits(NamedTuple):
    """Visits that showed whether their page had changed, as four arrays ``[V]``."""

    group: Array
    """Number of the page's directory."""
    changed: Array
    predicted: Array
    """Probability of a change by the page's state before the visit."""
    is_warmup: Bools


def judged_visits(state: Columns, rows: npt.NDArray[np.intp], visits: Array, cycle: int) -> JudgedVisits:
    """Pick the visits that showed whether their page had changed.

    ``state``: page columns before the visits; ``rows``: each visit's row in them, ``[V]``; ``visits``: of
    `cycle`, dtype `VISIT` ``[V]``.
    """
    outcome, judged = visits["outcome"], among(visits["outcome"], JUDGED)
    before = {name: state[name][rows[judged]] for name in ("group", "E", "T", "last_cycle")}
    predicted = change_probability(before, cycle)
    is_warmup = visits["kind"][judged] == WARMUP
    return JudgedVisits(before["group"], outcome[judged] == CHANGED, predicted, is_warmup)


def sums_by_group(parts: Sequence[JudgedVisits]) -> Array:
    """Sum up judged visits of several `parts` by directory: dtype `GROUP_VISITS`, only visited ones."""
    if not parts:
        return GROUP_ROWS.none()
    group, *of_visits = map(np.concatenate, zip(*parts, strict=True))
    numbers, local = np.unique(group, return_inverse=True)
    visits = count_visits(local, *of_visits)
    visits["group"] = numbers
    return visits


def sum_up_visits(txn: Any, db: Handles, cycle: int) -> None:
    """Merge the `group_visits` parts of a finished cycle, and delete sums older than `KEPT_CYCLES` cycles."""
    sums = directory_visits(txn, db, cycle)
    GROUP_ROWS.drop(txn, db, 0, cycle - KEPT_CYCLES)
    GROUP_ROWS.drop(txn, db, cycle, cycle)
    GROUP_ROWS.put(txn, db, cycle, 0, sums)


def directory_visits(txn: Any, db: Handles, cycle: int) -> Array:
    """Read the sums of a cycle's visits by directory, dtype `GROUP_VISITS`; empty if none are stored."""
    return add_up([rows for _, rows in GROUP_ROWS.parts(txn, db, cycle, cycle)])


_META: Final = {
    "schema", "store_id", "block_rows", "pages", "groups", "last_cycle", "dropped", "fold", "query_log",
}  # fmt: skip
"""All keys of `meta`: another key there is a damaged one."""
_BLOCKS_TOGETHER: Final = 4
"""Number of blocks read at a time where only some columns are wanted: it costs less per block."""


class Sizes(NamedTuple):
    """Batch sizes of a store's reads and writes; tests take small ones, to have several batches."""

    block_rows: int = 16_384
    """Pages per block of a new store; an existing store keeps the number that it was made with."""
    commit_visits: int = 100
    """Visits in the write buffer at which `Store.record` commits."""
    visits_per_chunk: int = 16_384
    plan_rows: int = 16_384
    """Pages per chunk of a plan."""
    chunks_per_transaction: int = 64
    blocks_per_transaction: int = 4
    """Number of blocks that one transaction of a fold changes; they are in memory twice."""
    pages_per_transaction: int = 65_536


USUAL: Final = Sizes()
_LAYOUTS: Final = (
    COLUMNS,
    *((kind.table, kind.dtypes) for kind in PAGE_COLUMNS),
    *(dtype.descr for dtype in (VISIT, PLAN, GROUP, GROUP_VISITS, CLAIM, GAIN, NOTE, SHADOW, TRUST)),
)
SCHEMA: Final = f"gp4c-store/1.{zlib.crc32(repr(_LAYOUTS).encode()):08x}"
"""Schema of a store, with a checksum of all dtypes: a store with another schema is refused, not damaged."""


def open_tables(environment: Environment, block_rows: int) -> Handles:
    """Open all tables of an LMDB file, or create them in an empty one.

    ``block_rows``: pages per block of a new store; an existing one keeps its own number. Raises
    StoreDamagedError for another schema, StoreError where an empty file is opened for reading.
    """
    path, file = environment.path, environment.lmdb
    with translated(path), file.begin() as txn:
        empty = txn.stat()["entries"] == 0
    if empty:
        return _create(environment, block_rows)
    try:
        meta = file.open_db(b"meta", create=False)
    except lmdb.Error as error:
        raise StoreDamagedError(
            f"the LMDB file in {path} holds no page store. Set GP4C_STORE to another directory, or "
            "move this one away."
        ) from error
    with translated(path):
        with file.begin() as txn:
            schema = txn.get(PLAIN_KEY, db=meta, default=b"none").decode("latin-1")
        if schema != json.dumps(SCHEMA):
            raise StoreDamagedError(
                f"the store {path} has schema {schema}; this version reads {SCHEMA!r}. Use the "
                "version of scrapy-gp4c that wrote it, or move its history: export there, then import here, "
                "with GP4C_STORE set to another directory."
            )
        return _tables(path, {name: file.open_db(name.encode(), create=False) for name in TABLES})


def _tables(path: Path, handles: dict[str, object]) -> Handles:
    kinds: dict[str, type[Table]] = {"urls": RequestTable}
    return {name: kinds.get(name, Table)(path, name, handle) for name, handle in handles.items()}


def _create(environment: Environment, block_rows: int) -> Handles:
    if environment.readonly:
        raise StoreError(
            f"there is no page store in {environment.path} yet: a crawl creates it just now, or ended before "
            "it could. Try again in a moment, or run the spider."
        )
    path = environment.path
    with environment.transaction(write=True) as txn:
        handles = {name: environment.lmdb.open_db(name.encode(), txn) for name in TABLES}
        db = _tables(path, handles)
        txn.put(PLAIN_KEY, json.dumps(SCHEMA).encode(), db=db["meta"].handle)
        values: dict[str, str | int] = {"store_id": secrets.token_hex(8), "block_rows": block_rows}
        values |= {"pages": 0, "groups": 0, "last_cycle": 0}
        for name, value in values.items():
            db["meta"].put(txn, name.encode(), json.dumps(value).encode())
    return db


class Tables:
    """The committed content of a store: its tables, and counters that only this class changes.

    ``db``: table name -> `Table`; ``store_id``: random hex digits that identify the store; ``block_rows``:
    pages per block; ``merged_pages``: number of pages in `ids`, `urls` and the columns, which have the lowest
    ids; ``groups``: number of known directories; ``last_cycle``: last finished cycle, 0: none; ``dropped``:
    last cycle whose visits were deleted, 0: none; ``fold_marker``: progress of an unfinished fold, or None.
    """

    store_id: str
    block_rows: int
    merged_pages: int
    groups: int
    last_cycle: int
    dropped: int
    fold_marker: FoldMarker | None

    def __init__(self, environment: Environment, db: Handles) -> None:
        self.path = environment.path
        self.readonly = environment.readonly
        self.transaction = environment.transaction
        self.db = db
        self._checked_blocks: set[int] = set()
        with self.transaction() as txn:
            self.read_counters(txn)

    def read_counters(self, txn: Any) -> None:
        """Read the counters anew from `meta`, as a transaction sees them; raises StoreDamagedError."""
        if strange := {key.decode("latin-1") for key in self.db["meta"].keys(txn)} - _META:
            raise damaged(self.path, f"the table meta has {', '.join(map(repr, strange))}")
        self.store_id = self.get_meta(txn, "store_id")
        self.block_rows = self.get_meta(txn, "block_rows")
        self.merged_pages = self.get_meta(txn, "pages")
        self.groups = self.get_meta(txn, "groups") or 0
        self._site_keys = np.empty(0, np.uint64)
        self.last_cycle = self.get_meta(txn, "last_cycle")
        self.dropped = self.get_meta(txn, "dropped") or 0
        self.fold_marker = self.get_meta(txn, "fold")

    def check_writable(self) -> None:
        """Raise StoreError if the store was opened for reading, or a fold is incomplete for want of room."""
        if self.readonly:
            raise read_only_error(self.path)
        if self.fold_marker is not None:
            raise StoreError(
                f"the store {self.path} could not complete cycle {self.last_cycle + 1}: free disk space "
                "and open it again."
            )

    # --- methods that change the counters: one transaction each

    def mark_fold(self, marker: FoldMarker) -> None:
        """Begin the fold of the open cycle by storing its marker; a killed fold goes on from that."""
        with self.transaction(write=True) as txn:
            self.put_meta(txn, "fold", marker)
        self.fold_marker = marker

    def change_blocks(
        self, numbers: Sequence[int], change: Callable[[Any, int, Columns], JudgedVisits], marker: FoldMarker
    ) -> None:
        """Change the blocks `numbers` of page columns and store the fold's `marker`, in one transaction.

        ``change(txn, block, columns)``: alters a block's columns in place, and returns its judged visits,
        which are summed up by directory in `group_visits`.
        """
        with self.transaction(write=True) as txn:
            parts = []
            for block in numbers:
                state = {
                    name: column.copy() for name, column in columns.unpack(self.block(txn, block)).items()
                }
                parts.append(change(txn, block, state))
                self.put_block(txn, block, state)
            GROUP_ROWS.put(txn, self.db, self.last_cycle + 1, numbers[0], sums_by_group(parts))
            self.put_meta(txn, "fold", marker)
        self.fold_marker = marker

    def end_cycle(self, cycle: int, record: CycleRecord, sum_up: Callable[[Any], object]) -> None:
        """End the fold: `cycle` becomes the last finished one, and the tables of the open cycle are emptied.

        ``record``: fields to add to the cycle's record; ``sum_up(txn)``: further writes of the transaction.
        """
        with self.transaction(write=True) as txn:
            self.put_record(txn, cycle, record)
            self.put_meta(txn, "last_cycle", cycle)
            sum_up_visits(txn, self.db, cycle)
            sum_up(txn)
            for table in ("log", "new", "notes", "plans"):
                self.db[table].drop(txn)
            self.db["meta"].delete(txn, b"fold")
        self.last_cycle, self.fold_marker = cycle, None

    def drop_cycles(self, cycle: int, chunks: int) -> None:
        """Delete visits, gains and claims of the cycles up to `cycle`; page columns stay.

        ``chunks``: most stored parts of visits that one transaction deletes.
        """
        with self.transaction(write=True) as txn:
            for kind in (GAINS, CLAIMS):
                kind.drop(txn, self.db, 0, cycle)
        stop = U32_PAIR.pack(cycle + 1, 0)
        while True:
            with self.transaction(write=True) as txn:
                keys = [key for key, _ in islice(self.db["visits"].items(txn, stop=stop), chunks)]
                for key in keys:
                    self.db["visits"].delete(txn, key)
                if cycle > self.dropped:
                    self.put_meta(txn, "dropped", cycle)
            self.dropped = max(self.dropped, cycle)
            if len(keys) < chunks:
                return

    def restore_cycles(self, records: Sequence[CycleRecord]) -> None:
        """Finish the cycles 1..C of a new store at once, by their records; their visits must be there."""
        with self.transaction(write=True) as txn:
            for cycle, record in enumerate(records, 1):
                self.put_record(txn, cycle, {**record, "cycle": cycle})
                sum_up_visits(txn, self.db, cycle)
            self.put_meta(txn, "last_cycle", len(records))
        self.last_cycle = len(records)

    def append_pages(self, requests: Sequence[bytes], state: Columns, directories: Array) -> None:
        """Append new pages: JSON requests ``[P]``, columns ``[P]``, and new `directories`, dtype `GROUP`.

        A request that was set for a page of the open cycle, and so is in `urls` already, stays there.
        """
        first, pages = self.merged_pages, len(requests)
        with self.transaction(write=True) as txn:
            self._put_pages(txn, first, state["key"], requests)
            append_directories(txn, self.db["groups"], directories, self.groups, self.block_rows)
            start = 0
            while start < pages:
                block, filled = divmod(first + start, self.block_rows)
                stop = min(pages, start + self.block_rows - filled)
                parts = [columns.unpack(self.block(txn, block))] if filled else []
                parts.append({name: state[name][start:stop] for name in COLUMNS})
                self.put_block(
                    txn,
                    block,
                    {n: np.concatenate([block_columns[n] for block_columns in parts]) for n in COLUMNS},
                )
                start = stop
            self.put_meta(txn, "pages", first + pages)
            self.put_meta(txn, "groups", self.groups + len(directories))
        self.merged_pages += pages
        self.groups += len(directories)

    # --- each table

    def get_meta(self, txn: Any, name: str) -> Any:
        """Read the value under `name` in the table `meta`; None: there is none."""
        value = self.db["meta"].get(txn, name.encode())
        return None if value is None else json.loads(value)

    def put_meta(self, txn: Any, name: str, value: Any) -> None:
        self.db["meta"].put(txn, name.encode(), encode(value))

    def put_record(self, txn: Any, cycle: int, record: CycleRecord) -> None:
        """Update the JSON record of a cycle with the fields of `record`; create it if there is none."""
        key = U32.pack(cycle)
        old = self.db["cycles"].get(txn, key)
        merged = {"cycle": cycle, **(decode(old) if old else {}), **record}
        self.db["cycles"].put(txn, key, encode(merged))

    def last_record(self, txn: Any) -> CycleRecord | None:
        """Record of the newest cycle, open or finished; None: there is no cycle."""
        value = self.db["cycles"].last(txn)
        return None if value is None else decode(value)

    def unfinished_cycle(self, txn: Any) -> int | None:
        """Number of the open cycle; None: all are finished."""
        last, number = self.last_record(txn), self.last_cycle + 1
        return number if last is not None and last["cycle"] == number else None

    def new_keys(self, txn: Any) -> list[int]:
        """Keys of pages in `new` that no fold, finished or not, has merged yet, in order of ids."""
        keys: list[int] = []
        for key, value in self.db["new"].items(txn):
            page, following = U32_PAIR.unpack(key)[1], self.merged_pages + len(keys)
            if page > following:
                raise self.db["new"].wrong(key, f"page {following} is missing")
            if page == following:
                keys.append(KEY.unpack_from(value)[0])
        return keys

    def log(self, txn: Any) -> list[Array]:
        """Visits of the open cycle: an array of dtype `VISIT` for each commit."""
        commits: list[Array] = []
        for key, value in self.db["log"].items(txn):
            if U32_PAIR.unpack(key)[1] != len(commits):
                raise self.db["log"].wrong(key, f"commit {len(commits)} is missing")
            commits.append(np.frombuffer(value, VISIT))
        return commits

    def block(self, txn: Any, block: int) -> memoryview:
        """Read the packed columns of block number `block`, as `scrapy_gp4c.page_state.columns` packs them.

        A writer checks the block's checksum at its first reading only, because nobody else changes it.
        """
        known = not self.readonly and block in self._checked_blocks
        value = self.db["columns"].view(txn, U32.pack(block), trusted=known)
        self._checked_blocks.add(block)
        return value

    def put_block(self, txn: Any, block: int, state: Columns) -> None:
        """Pack and write the page columns of block number `block`."""
        self.db["columns"].put(txn, U32.pack(block), columns.pack(state))

    def _put_pages(
        self, txn: Any, first: int, keys: npt.NDArray[np.uint64], requests: Sequence[bytes]
    ) -> None:
        """Write keys and JSON requests of pages `first`, `first` + 1, ...; existing requests stay."""
        order = np.argsort(keys)
        sorted_keys = split(keys[order].astype(">u8").tobytes(), KEY.size)
        ids = split((order + first).astype(">u4").tobytes(), U32.size)
        self.db["ids"].put_many(txn, zip(sorted_keys, ids, strict=True))
        pages = split(np.arange(first, first + len(keys)).astype(">u4").tobytes(), U32.size)
        self.db["urls"].put_many(txn, zip(pages, requests, strict=True), overwrite=False)

    def get_id(self, txn: Any, key: int) -> int | None:
        """Return the id of the merged page with this key, or None; faster if `txn` hands out buffers.

        Because `ids` has no checksums, the key is compared with that in the page's columns. For an unknown
        key this is done with the entries on both sides of it. Raises StoreDamagedError.
        """
        table, packed = self.db["ids"], KEY.pack(key)
        value = txn.get(packed, db=table.handle)
        if value is not None:
            return self._id_of(txn, packed, value)
        for neighbour, value in table.neighbours(txn, packed):
            self._id_of(txn, neighbour, value)
        return None

    def _id_of(self, txn: Any, key: bytes, value: bytes) -> int:
        """Decode an entry of `ids`; raises StoreDamagedError where the page's columns have another key."""
        page = int.from_bytes(value, "big")
        block, row = divmod(page, self.block_rows)
        if page >= self.merged_pages or columns.key_at(self.block(txn, block), row) != KEY.unpack(key)[0]:
            raise self.db["ids"].wrong(key, f"page {page} has another key")
        return page

    def first_urls(self) -> dict[int, str]:
        """Page id -> first URL of the page, where its request now has a URL in another directory."""
        with self.transaction() as txn:
            urls = self.db["first_urls"].items(txn)
            return {U32.unpack(page)[0]: json.loads(bytes(url)) for page, url in urls}

    def group_visits(self, cycle: int) -> Array:
        """Sums of a finished cycle's judged visits by directory, dtype `GROUP_VISITS`, directories ascending.

        Empty for a cycle that is open, had no judged visits, or is older than the last `KEPT_CYCLES`.
        """
        with self.transaction() as txn:
            return directory_visits(txn, self.db, cycle if cycle <= self.last_cycle else -1)

    def directories(self) -> Array:
        """All directories, dtype `GROUP` ``[G]``; the page column ``group`` has positions in this array."""
        with self.transaction() as txn:
            return read_directories(txn, self.db["groups"], self.groups)

    def site_keys(self) -> npt.NDArray[np.uint64]:
        """Key of the site of each directory, ``[G]``; cached until directories are added."""
        if len(self._site_keys) != self.groups:
            with self.transaction() as txn:
                self._site_keys = read_directories(txn, self.db["groups"], self.groups, "site")
        return self._site_keys

    def cycles(self, first: int = 1) -> list[CycleRecord]:
        """Records of the cycles from number `first` on, oldest first; the open one's has no ``finished``."""
        start = U32.pack(first) if first > 1 else b""
        with self.transaction() as txn:
            return [decode(bytes(value)) for _, value in self.db["cycles"].items(txn, start)]

    def starts_s(self, cycles: Iterable[int]) -> dict[int, float]:
        """Cycle -> start, s since 1970, for those of `cycles` whose start is known."""
        with self.transaction() as txn:
            values = {cycle: self.db["cycles"].get(txn, U32.pack(cycle)) for cycle in cycles}
        starts = {cycle: decode(value).get("started") for cycle, value in values.items() if value is not None}
        return {cycle: start for cycle, start in starts.items() if start is not None}

    def newest_value(self, name: str, default: Any) -> Any:
        """Return the field `name` of the newest cycle's record that has it, or `default`."""
        quoted = f'"{name}"'.encode()
        with self.transaction() as txn:
            for cycle in range(self.last_cycle + 1, 0, -1):
                value = self.db["cycles"].get(txn, U32.pack(cycle))
                # Most records need not be decoded: a year of hourly cycles has 8,760 of them.
                if value is not None and quoted in value:
                    record = decode(value)
                    if name in record:
                        return record[name]
        return default

    def merged_requests(self, first: int, stop: int) -> list[Any]:
        """Read the decoded requests of the merged pages first..stop-1; raises StoreDamagedError."""
        with self.transaction() as txn:
            requests = self.db["urls"].joined(txn, np.arange(first, stop), b",")
        if requests is None:
            raise damaged(self.path, f"of the pages {first} to {stop - 1}, some have no request")
        try:
            read: list[Any] = decode(b"[" + requests + b"]")
        except ValueError as error:
            raise damaged(self.path, f"the requests of the pages {first} to {stop - 1}: {error}") from None
        return read

    def blocks(self, names: Collection[str] | None = None) -> Iterator[tuple[int, Columns]]:
        """Yield all page columns, in parts: (id of the part's first page, read-only columns of its pages).

        ``names``: only these columns, a part for several blocks; None: all columns, with those of
        `optional_columns`, a part for each block. Columns stay valid after the next part is read.
        """
        count, together = -(-self.merged_pages // self.block_rows), 1 if names is None else _BLOCKS_TOGETHER
        kinds = self.optional_columns() if names is None else ()
        for first in range(0, count, together):
            with self.transaction(buffers=names is not None) as txn:
                values = [self.block(txn, block) for block in range(first, min(count, first + together))]
                state = columns.unpack(values[0]) if names is None else columns.some_of(values, names)
                for kind in kinds:
                    state |= kind.read(txn, self.db, first, len(state["n"]))
            yield first * self.block_rows, state

    def rows_of_cycles(
        self, kind: CycleRows, first_cycle: int = 1, last_cycle: int | None = None
    ) -> Iterator[tuple[int, Array]]:
        """Yield (cycle, rows) of table `kind`, part by part, for the finished cycles of this range."""
        last = self.last_cycle if last_cycle is None else min(last_cycle, self.last_cycle)
        first, stop = U32_PAIR.pack(first_cycle, 0), U32_PAIR.pack(last + 1, 0)
        key: bytes | None = None
        while True:
            with self.transaction() as txn:  # one for each part: whoever takes them may take long
                item = next(self.db[kind.table].items(txn, first, stop, after=key), None)
            if item is None:
                return
            key = item[0]
            yield U32_PAIR.unpack(key)[0], kind.unpack(item[1])

    def whole_cycles(
        self, kind: CycleRows, first_cycle: int = 1, last_cycle: int | None = None
    ) -> Iterator[tuple[int, Array]]:
        """Yield (cycle, all rows of the cycle) of table `kind`, for the finished cycles that have rows."""
        parts = self.rows_of_cycles(kind, first_cycle, last_cycle)
        for cycle, of_cycle in groupby(parts, lambda part: part[0]):
            yield cycle, np.concatenate([rows for _, rows in of_cycle])

    def visits(self, first_cycle: int = 1, last_cycle: int | None = None) -> Iterator[tuple[int, Array]]:
        """Yield (cycle, visits) in chunks of dtype `VISIT`, for the finished cycles of this range."""
        return self.rows_of_cycles(VISITS, first_cycle, last_cycle)

    # --- gains of search quality by single visits; none without ``GP4C_QUERY_LOG``

    def gains_log(self) -> tuple[str, int] | None:
        """Return the digest of the query log that gains are measured by, and its first cycle; None: no gains.

        The columns `REFRESH_VALUES` sum up the gains since that cycle.
        """
        with self.transaction() as txn:
            entry = self.get_meta(txn, QUERY_LOG)
        return None if entry is None else (entry["log"], entry["since"])

    def set_gains_log(self, log: str, since: int | None = None) -> bool:
        """Set the query log that gains are measured by; another one empties `REFRESH_VALUES`.

        ``log``: its digest; ``since``: first cycle measured by it, None: the open cycle, or the next one.
        Returns whether it is another than before.
        """
        if (before := self.gains_log()) is not None and log == before[0]:
            return False
        self.check_writable()
        with self.transaction(write=True) as txn:
            self.db[REFRESH_VALUES.table].drop(txn)
            log_entry = {"log": log, "since": self.last_cycle + 1 if since is None else since}
            self.put_meta(txn, QUERY_LOG, log_entry)
        return True

    def put_gains(self, gains: Array) -> None:
        """Replace the gains of the open cycle, dtype `GAIN`; the cycle's fold adds them to page columns."""
        with self.transaction(write=True) as txn:
            GAINS.put(txn, self.db, self.last_cycle + 1, 0, gains)

    def gains_of_cycles(self, first: int = 1) -> Iterator[tuple[int, Array]]:
        """Yield (cycle, gains), dtype `GAIN`, for each finished cycle from `first` on that has any."""
        for cycle, gains in self.whole_cycles(GAINS, first):
            if len(gains):
                yield cycle, gains

    def gains_of(self, cycle: int) -> Array:
        """Read the gains of one cycle, open or finished: dtype `GAIN`."""
        with self.transaction() as txn:
            return GAINS.read(txn, self.db, cycle)

    def summed_gains(self, since: int) -> Columns:
        """Compute the columns `REFRESH_VALUES` of all pages from the gains. Memory: 28 bytes per page."""
        state = REFRESH_VALUES.none(self.merged_pages)
        for cycle, gains in self.gains_of_cycles(since):
            if gains["page"].max() >= self.merged_pages:
                raise self.db["gains"].wrong(U32_PAIR.pack(cycle, 0), "it has a page that does not exist")
            observe_gains(state, gains["page"].astype(np.intp), gains)
        return state

    # --- columns with optional ones

    def optional_columns(self) -> tuple[PageColumns, ...]:
        """Tables of optional columns: `PAGE_COLUMNS`, without `REFRESH_VALUES` if no gain was measured."""
        return (HINTS, WEIGHTS, LINKS) if self.gains_log() is None else PAGE_COLUMNS

    def columns_of(self, pages: npt.NDArray[np.uint32], names: Collection[str] | None = None) -> Columns:
        """Read the columns ``[P]`` of merged pages; the ids in `pages` must ascend.

        ``names``: only these of `COLUMNS`; None: all, and the optional ones.
        """
        kinds = self.optional_columns() if names is None else ()
        wanted = COLUMNS if names is None else names
        parts: list[Columns] = [{name: np.empty(0, COLUMNS[name]) for name in wanted}]
        for kind in kinds:
            parts[0] |= kind.none(0)
        number = pages // self.block_rows
        ends = {0, *(np.flatnonzero(number[1:] != number[:-1]) + 1).tolist(), len(pages)}
        for start, end in pairwise(sorted(ends)):
            block = int(number[start])
            rows = (pages[start:end] - np.uint32(block * self.block_rows)).astype(np.intp)
            with self.transaction(buffers=True) as txn:  # a block is not copied for a few of its pages
                value = self.block(txn, block)
                of_block, size = columns.rows_of(value, rows, wanted), columns.page_count(value)
                for kind in kinds:
                    optional = kind.read(txn, self.db, block, size)
                    of_block |= {name: column[rows] for name, column in optional.items()}
            parts.append(of_block)
        if names is not None and len(parts) == 2:
            return parts[1]
        return {name: np.concatenate([of_block[name] for of_block in parts]) for name in parts[0]}

    def put_values(self, kind: PageColumns, pages: npt.NDArray[Any], values: Columns) -> None:
        """Write columns `values`, ``[P]``, of merged pages to table `kind`; a repeated page's last counts."""
        order = np.argsort(pages, kind="stable")
        number = pages[order] // self.block_rows
        for block in np.flatnonzero(np.bincount(number)).tolist():
            first = block * self.block_rows
            in_block = order[slice(*np.searchsorted(number, (block, block + 1)))]
            with self.transaction(write=True) as txn:
                state = kind.read(txn, self.db, block, min(self.block_rows, self.merged_pages - first))
                for name in kind.dtypes:
                    state[name][(pages[in_block] - first).astype(np.intp)] = values[name][in_block]
                kind.put(txn, self.db, block, state)

    def ids_of(self, keys: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
        """Return the ids of merged pages by their keys, ``[K]``, which must ascend; -1: no such page."""
        table, page_ids = self.db["ids"], np.full(len(keys), -1, np.int64)
        with self.transaction() as txn:
            items = txn.cursor(table.handle).getmulti(split(keys.astype(">u8").tobytes(), KEY.size))
        known = np.frombuffer(b"".join([key for key, _ in items]), ">u8").astype(np.uint64)
        pages = np.frombuffer(b"".join([page for _, page in items]), ">u4").astype(np.int64)
        for block in np.unique(pages // self.block_rows).tolist():
            in_block = np.flatnonzero(pages // self.block_rows == block)
            if pages[in_block].max() >= self.merged_pages:
                raise damaged(self.path, "ids: a key belongs to no page")
            with self.transaction() as txn:
                block_keys = columns.unpack(self.block(txn, block), ("key",))["key"][
                    pages[in_block] - block * self.block_rows
                ]
            if (block_keys != known[in_block]).any():
                raise damaged(self.path, "ids: a key leads to a page that has another key")
        page_ids[np.searchsorted(keys, known)] = pages
        return page_ids

    def check_sample(self) -> int:
        """Check the checksums of a sample of values; returns their number. Raises StoreDamagedError."""
        # No np.unique: without any option it imports numpy.ma, which takes longer than all else.
        evenly = np.linspace(0, self.merged_pages, _SAMPLE, endpoint=False, dtype=int)
        pages = sorted(set(evenly.tolist())) if self.merged_pages else []
        blocks = {page // self.block_rows for page in pages[:: _SAMPLE // 4]}
        cycles = range(1, self.last_cycle + 1, max(1, self.last_cycle // 4))
        with self.transaction(buffers=True) as txn:
            for page in pages:
                self.db["urls"].view(txn, U32.pack(page))
            for block in blocks:
                self.block(txn, block)
            for cycle in cycles:
                next(self.db["visits"].items(txn, U32_PAIR.pack(cycle, 0)), None)
        records = self.cycles(max(1, self.last_cycle - _SAMPLE))
        return len(pages) + len(blocks) + len(cycles) + len(records)
