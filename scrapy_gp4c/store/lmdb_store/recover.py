"""Recovery of a damaged store: a new one is built from its intact values; the damaged file is kept.

Values with a right checksum are copied; values that follow from them are recomputed. Pages whose request is
lost are left out with their visits.
"""

import json
import os
import pickle
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO, BinaryIO, Final, NamedTuple

import lmdb
import numpy as np
import numpy.typing as npt

from scrapy_gp4c.arrays import Array
from scrapy_gp4c.errors import StoreError
from scrapy_gp4c.foreign_text import counted
from scrapy_gp4c.page_state import columns
from scrapy_gp4c.page_state.columns import COLUMNS, Columns
from scrapy_gp4c.page_state.groups import GROUP
from scrapy_gp4c.page_state.outcomes import VISIT
from scrapy_gp4c.store.lmdb_store.backup import REWRITE, drop_search_index, keep_aside, locked, work_directory
from scrapy_gp4c.store.lmdb_store.environment import (
    DATA,
    MAP_BYTES,
    SUM_BYTES,
    TABLES,
    U32,
    U32_PAIR,
    NoLmdbFileError,
    damaged,
    in_full,
    is_intact,
    put_in_place,
    read_header,
    seed_of,
)
from scrapy_gp4c.store.lmdb_store.forget import write_without
from scrapy_gp4c.store.lmdb_store.page_facts import put_trust
from scrapy_gp4c.store.lmdb_store.store import Store
from scrapy_gp4c.store.lmdb_store.tables import (
    GROUP_ROWS,
    HINTS,
    REFRESH_VALUES,
    Numbering,
    Sizes,
    Tables,
    urls_of,
)
from scrapy_gp4c.store.lmdb_store.verify import MEANING, check, derive, has_all_visits
from scrapy_gp4c.store.records import CycleRecord, StoredRequest

KeyOf = Callable[[StoredRequest], int]
Values = dict[str, dict[bytes, bytes]]
"""Table -> key -> value, without its checksum."""

_CLAIMED: Final = {"hints", "claims", "trust", "columns", "visits"}
"""Tables that, if damaged, make `recover` recompute the columns of claims and the trust in sites."""


class Recovered(NamedTuple):
    """Result of `recover`: what was lost, and where the damaged file is."""

    lost: list[str]
    """A sentence for each kind of values that were lost; [] if none was."""
    aside: Path
    """Directory that keeps the damaged file."""


def recover(path: Path, sizes: Sizes, key_of: KeyOf) -> Recovered:
    """Replace the damaged store at `path` by one built from its intact values. Memory: its file's size.

    ``key_of``: function from a stored request to its page key. Raises StoreDamagedError where too much is
    lost, StoreInUseError where a crawl has the store.
    """
    with locked(path), work_directory(path, REWRITE) as work:
        values, counts = _read(path, work / "readable")
        if "urls" not in counts:
            raise damaged(path, "the requests of its pages cannot be found")
        built = work / "built"
        try:
            rebuilder = _Rebuilder(values, counts, key_of, sizes)
            missing = rebuilder.write(built)
            if missing.any():
                with Store(built, sizes=sizes) as store:
                    built = work / "without"
                    write_without(store, built, missing, sizes)
            problems = check(built, deep=True)
        except (StoreError, ValueError, KeyError, struct.error) as error:
            raise damaged(path, f"what can be read of it does not fit together ({error})") from error
        if problems:
            raise damaged(path, f"what can be read of it does not fit together: {problems[0]}")
        aside = keep_aside(path)
        drop_search_index(path)
        put_in_place(path, built / DATA)
    return Recovered(rebuilder.lost, aside)


# --- reading


def _read(path: Path, readable: Path) -> tuple[Values, dict[str, int]]:
    """Read all intact values of a damaged file; returns these, and table -> number of values it had.

    A child process reads a copy, in the directory `readable`, lengthened to the size in its header (or SIGBUS
    may follow). Where a damaged page ends the child, another one goes on with the next table.
    """
    readable.mkdir(0o700)
    try:
        shutil.copyfile(path / DATA, readable / DATA)
        with (readable / DATA).open("r+b") as file:
            size = read_header(file).bytes
            if file.seek(0, os.SEEK_END) < size < MAP_BYTES:
                file.truncate(size)
    except (NoLmdbFileError, OSError) as error:
        raise damaged(path, f"nothing of {DATA} can be read ({error or 'it is no such file'})") from None
    values: Values = {name: {} for name in TABLES}
    counts: dict[str, int] = {}
    number = 0
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    while number < len(TABLES):
        command = [sys.executable, "-m", __name__, str(readable), str(number)]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment
        ) as process:
            assert process.stdout is not None
            for number, key, value in _sent(process.stdout):
                name = TABLES[number]
                if isinstance(value, int):
                    counts[name] = value
                elif name == "ids" or (name, key) == ("meta", b"schema"):
                    values[name][key] = value
                elif len(value) >= SUM_BYTES and is_intact(seed_of(name, key), value):
                    content = value[:-SUM_BYTES]
                    values[name][key] = in_full(content) if name == "urls" else content
        number = len(TABLES) if process.returncode == 0 else number + 1
    return values, counts


def _sent(stream: IO[bytes]) -> Iterator[tuple[int, bytes, bytes | int]]:
    with suppress(EOFError, pickle.UnpicklingError):  # where that process dies
        while True:
            yield pickle.load(stream)


def send_values(path: str, first_table: int, out: BinaryIO) -> None:
    """Write all values that LMDB can read of table number `first_table` and later ones to a stream.

    As pickles of (table number, key, value), after one with the table's number of values. Runs in a child
    process.
    """
    with lmdb.open(path, readonly=True, create=False, lock=False, max_dbs=64, map_size=MAP_BYTES) as file:
        for number in range(first_table, len(TABLES)):
            try:
                table = file.open_db(TABLES[number].encode(), create=False)
                with file.begin(buffers=True) as txn:
                    count = txn.stat(table)["entries"]
            except lmdb.Error:
                continue  # every store has all tables: the page that lists them is damaged
            pickle.dump((number, b"", count), out)
            out.flush()  # the reader knows which table was read if this process dies
            for step in (lmdb.Cursor.next, lmdb.Cursor.prev):
                sent = 0
                try:
                    with file.begin(buffers=True) as txn:
                        cursor = txn.cursor(table)
                        is_there = cursor.first() if step is lmdb.Cursor.next else cursor.last()
                        while is_there:
                            pickle.dump((number, *map(bytes, cursor.item())), out)
                            sent += 1
                            is_there = step(cursor)
                except lmdb.Error:
                    continue  # from the other end
                if sent >= count:
                    break
        out.flush()


# --- building


class _Rebuilder:
    """Builder of a new store from the intact values of a damaged one; lists in `lost` what is missing."""

    def __init__(self, values: Values, counts: dict[str, int], key_of: KeyOf, sizes: Sizes) -> None:
        self._values, self._key_of, self._sizes = values, key_of, sizes
        self.lost = [
            f"{missing:,} of {count:,} values of {name}: {MEANING[name]}"
            for name, count in counts.items()
            if name in MEANING and (missing := count - len(values[name])) > 0
        ]
        self.lost += [
            f"all values of {name}, if there were any: {MEANING[name]}"
            for name in TABLES
            if name in MEANING and name not in counts
        ]
        self._damaged = {name for name, count in counts.items() if count > len(values[name])}
        self._damaged |= set(TABLES) - counts.keys()
        self._meta = {
            name.decode(): json.loads(text) for name, text in values["meta"].items() if name != b"schema"
        }
        self._blocks = {U32.unpack(key)[0]: columns.unpack(value) for key, value in values["columns"].items()}
        longest = max((len(block["n"]) for block in self._blocks.values()), default=1)
        self._block_rows: int = self._meta.get("block_rows", longest)
        self._pages: int = self._meta.get("pages", counts.get("ids", 0))
        self._records: dict[int, CycleRecord] = {
            U32.unpack(key)[0]: json.loads(text) for key, text in values["cycles"].items()
        }
        finished = [cycle for cycle, record in self._records.items() if "finished" in record]
        finished += [U32_PAIR.unpack(key)[0] for key in values["visits"]] if "fold" not in self._meta else []
        self._last: int = self._meta.get("last_cycle", max(finished, default=0))
        self._dropped: int = self._meta.get("dropped", 0)
        self._folded: int = self._meta.get("fold", {}).get("next_block", 0)

    def write(self, path: Path) -> npt.NDArray[np.bool_]:
        """Write the new store; returns a mask ``[P]`` of pages without request, for the caller to remove."""
        keys, has_request = self._keys()
        missing = ~has_request
        if missing.any():
            self.lost.append(
                f"{counted(int(missing.sum()), 'page')} with all visits: a link finds such a page anew"
            )
        with Store(path, sizes=self._sizes._replace(block_rows=self._block_rows)) as tables:
            self._write_values(tables)
            self._write_pages(tables, keys, has_request)
            with tables.transaction() as txn:
                tables.read_counters(txn)
            self._derive(tables)
        with Store(path, sizes=self._sizes) as store:
            if store.open_cycle is not None and (missing.any() or store.open_cycle not in self._records):
                store.finish_cycle({"reason": "restored from damage"})
            return np.append(missing, np.zeros(store.merged_pages - len(missing), np.bool_))

    def _keys(self) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.bool_]]:
        """Return the keys of all pages, from columns or requests, and which pages have a request, ``[P]``.

        The keys in `ids` are not used: they have no checksums, and a page with a wrong key is another page.
        """
        keys = np.zeros(self._pages, np.uint64)
        for number, block in self._blocks.items():
            first = number * self._block_rows
            keys[first : first + len(block["key"])] = block["key"][: self._pages - first]
        requests = self._values["urls"]
        has_request = np.array([U32.pack(page) in requests for page in range(self._pages)], bool)
        for page in np.flatnonzero(keys == 0).tolist():
            # A page that is to be left out needs a key that no other page has.
            keys[page] = (
                self._key_of(json.loads(requests[U32.pack(page)])) if has_request[page] else 2**63 + page
            )
        return keys, has_request

    def _write_values(self, tables: Tables) -> None:
        """Copy values of tables that need no rebuilding, and the open cycle up to its first gap."""
        as_they_are = set(TABLES) - {
            "meta", "ids", "urls", "columns", "groups", "log", "new", "notes", "plans", "cycles",
        }  # fmt: skip
        new, log = self._open_cycle()
        note_keys = sorted(self._values["notes"])
        notes = {
            U32_PAIR.pack(self._last + 1, number): self._values["notes"][key]
            for number, key in enumerate(note_keys)
        }
        with tables.transaction(write=True) as txn:
            for name in as_they_are:
                for key, value in self._values[name].items():
                    tables.db[name].put(txn, key, value)
            for name, rows in (("new", new), ("log", log), ("notes", notes)):
                for key, value in rows.items():
                    tables.db[name].put(txn, key, value)
            for cycle in range(1, self._last + 1):
                if cycle not in self._records:
                    self.lost.append(f"the record of cycle {cycle}")
                tables.put_record(txn, cycle, self._records.get(cycle, {"started": None, "finished": None}))
            record = self._records.get(self._last + 1)
            if record is not None and "plans" in self._damaged:
                record = {**record, "planned": None}
                record.pop("rounds", None)
                self.lost.append("the plan of the cycle under way: it is planned anew")
            elif record is not None:
                for key, value in self._values["plans"].items():
                    tables.db["plans"].put(txn, key, value)
            if record is not None or new or log:
                tables.put_record(txn, self._last + 1, record or {"started": None})
            for name in ("store_id", "fold", "query_log"):
                if name in self._meta:
                    tables.put_meta(txn, name, self._meta[name])

    def _open_cycle(self) -> tuple[dict[bytes, bytes], dict[bytes, bytes]]:
        """Return the entries of `new` up to the first gap, and those of `log` with visits of known pages."""
        cycle = self._last + 1
        new, pages = {}, self._pages
        merged = {key: value for key, value in self._values["new"].items() if U32_PAIR.unpack(key)[1] < pages}
        while (value := self._values["new"].get(key := U32_PAIR.pack(cycle, pages))) is not None:
            new[key] = value
            pages += 1
        log: dict[bytes, bytes] = {}
        for key in sorted(self._values["log"]):
            visits = np.frombuffer(self._values["log"][key], VISIT)
            known = visits[visits["page"] < pages]
            if len(known) < len(visits):
                self.lost.append(
                    f"{counted(len(visits) - len(known), 'visit')} of lost pages in the cycle under way"
                )
            if len(known):
                log[U32_PAIR.pack(cycle, len(log))] = known.tobytes()
        return merged | new, log

    def _write_pages(self, tables: Tables, keys: npt.NDArray[np.uint64], has_request: Array) -> None:
        """Write requests, ids, directories and columns of all pages; a lost request becomes an empty URL."""
        state = columns.new_columns(keys)
        self._replay(tables, state)
        urls = []
        for page in range(self._pages):
            first_url = self._values["first_urls"].get(U32.pack(page))
            request = self._values["urls"].get(U32.pack(page))
            url = "" if request is None else urls_of([request])[0]
            urls.append(url if first_url is None else str(json.loads(first_url)))
        numbered = Numbering(np.empty(0, np.uint64)).number(urls)
        state["group"][:] = numbered.group if self._pages else 0
        for first in range(0, self._pages, self._sizes.pages_per_transaction):
            rows = slice(first, first + self._sizes.pages_per_transaction)
            requests = [
                self._values["urls"].get(U32.pack(page), b'{"url":""}') for page in range(self._pages)[rows]
            ]
            new = numbered.new if first == 0 else np.empty(0, GROUP)
            tables.append_pages(requests, {name: column[rows] for name, column in state.items()}, new)
        with tables.transaction(write=True) as txn:
            for key, request in self._values["urls"].items():  # those of pages of the cycle under way
                if U32.unpack(key)[0] >= self._pages:
                    tables.db["urls"].put(txn, key, request)
            tables.put_meta(txn, "last_cycle", self._last)
            if self._dropped:
                tables.put_meta(txn, "dropped", self._dropped)

    def _replay(self, tables: Tables, state: Columns) -> None:
        """Set the columns `state` of all pages: from intact blocks or, where one is lost, from the visits."""
        chunks: dict[int, list[Array]] = {}
        for key in sorted(self._values["visits"]):
            chunks.setdefault(U32_PAIR.unpack(key)[0], []).append(
                np.frombuffer(self._values["visits"][key], VISIT)
            )
        for cycle in range(1, self._last + 1):
            visits = np.concatenate([np.empty(0, VISIT), *chunks.get(cycle, [])])
            visits = visits[visits["page"] < self._pages]
            record = self._records.get(cycle, {})
            expected = record.get("visited", len(visits)) - record.get("forgotten", 0)
            if cycle > self._dropped and len(visits) < expected:
                self.lost.append(f"{counted(expected - len(visits), 'visit')} of cycle {cycle}")
                self._dropped = cycle
            columns.apply_visits(state, visits["page"].astype(np.intp), visits, cycle)
        knows_more = False
        for number in range(-(-self._pages // self._block_rows)):
            rows = slice(number * self._block_rows, (number + 1) * self._block_rows)
            block = self._blocks.get(number)
            if block is None:
                size = len(state["n"][rows])
                pages = counted(size, "page")
                self.lost.append(f"{pages}: finders, pages brought, and visits that are not kept")
                state["brought_cycle"][rows] = state["first_cycle"][rows]
                if number < self._folded:
                    self._apply_open(state, rows)
                continue
            if number >= self._folded:
                known = has_all_visits(block, self._dropped)
                exceeds = [block[name] > state[name][rows] for name in ("n", "last_attempt")]
                knows_more |= bool(np.any(np.logical_or(*exceeds) & known))
            for name in COLUMNS:
                state[name][rows] = block[name]
        if knows_more:
            self.lost.append("visits of a cycle that cannot be told")
            self._dropped = self._last

    def _apply_open(self, state: Columns, pages: slice) -> None:
        """Apply the open cycle's visits to a lost block (`pages`), if its unfinished fold had done so."""
        for value in self._values["log"].values():
            visits = np.frombuffer(value, VISIT)
            of_pages = visits[
                (visits["page"] >= pages.start) & (visits["page"] < min(pages.stop, self._pages))
            ]
            columns.apply_visits(state, of_pages["page"].astype(np.intp), of_pages, self._last + 1)

    def _derive(self, tables: Tables) -> None:
        """Recompute `group_visits`, `trust`, `hints` and `refresh_values` from visits, claims and gains."""
        if self._damaged or self.lost:
            derived = derive(tables)
            with tables.transaction(write=True) as txn:
                GROUP_ROWS.drop(txn, tables.db, 0, self._last)
                for cycle, sums in derived.sums.items():
                    GROUP_ROWS.put(txn, tables.db, cycle, 0, sums)
                if has_claims := not self._dropped and bool(self._damaged & _CLAIMED):
                    put_trust(txn, tables.db, derived.trust)
            if has_claims:
                tables.put_values(HINTS, np.arange(tables.merged_pages), derived.state)
        log = tables.gains_log()
        if self._damaged & {"gains", REFRESH_VALUES.table} and log is not None:
            tables.put_values(REFRESH_VALUES, np.arange(tables.merged_pages), tables.summed_gains(log[1]))


if __name__ == "__main__":
    send_values(sys.argv[1], int(sys.argv[2]), sys.stdout.buffer)
