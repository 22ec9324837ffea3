"""Import of an exported history into a new store: see `scrapy_gp4c.store.history_fields`.

The store is built next to its place and moved there when it is complete, so that an error or a kill leaves
nothing behind that looks like a store.
"""

import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, suppress
from functools import partial, reduce
from itertools import chain
from operator import xor
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.errors import ImportFileError, StoreError
from scrapy_gp4c.foreign_text import counted
from scrapy_gp4c.page_state import columns, outcomes
from scrapy_gp4c.page_state.claims import CLAIM, after_visits, before_visits
from scrapy_gp4c.page_state.groups import KEPT_CYCLES
from scrapy_gp4c.page_state.outcomes import CHANGED, FIRST, OUTCOMES, UNCHANGED, VISIT
from scrapy_gp4c.scoring.discovery import START
from scrapy_gp4c.scoring.hints import KINDS
from scrapy_gp4c.scoring.refresh_value import GAIN
from scrapy_gp4c.store.atomic_files import sync
from scrapy_gp4c.store.history_fields import (
    BROUGHT,
    CHANGED_BIT,
    HEADER_START,
    UNCHANGED_BIT,
    HistoryHeader,
    PageLine,
    PageState,
    ToPage,
    check_pages,
    is_header,
    read_header,
    read_page,
    read_record,
)
from scrapy_gp4c.store.lmdb_store import fold
from scrapy_gp4c.store.lmdb_store.backup import IMPORT, drop_search_index, work_directory
from scrapy_gp4c.store.lmdb_store.environment import (
    DATA,
    READERS,
    U32,
    Environment,
    WriterLock,
    check_directory,
    encode,
)
from scrapy_gp4c.store.lmdb_store.page_facts import put_claims, sum_up_trust
from scrapy_gp4c.store.lmdb_store.store import Store
from scrapy_gp4c.store.lmdb_store.tables import (
    GAINS,
    GROUP_ROWS,
    HINTS,
    LINKS,
    REFRESH_VALUES,
    USUAL,
    WEIGHTS,
    Numbered,
    Tables,
    judged_visits,
    open_tables,
    sums_by_group,
)
from scrapy_gp4c.store.records import CycleRecord

Lines = Iterable[tuple[int, str]]
"""Lines of a file as (line number, line) pairs."""
MOST_CYCLES: Final = 1_000_000
_NO_OUTCOME = 255


def import_history(
    store_path: Path, name: str, lines: Lines, to_page: ToPage, *, pages_per_batch: int = 16_384
) -> tuple[int, int]:
    """Import an exported history into a new store at `store_path`; returns numbers of pages and cycles.

    ``name``: name of the file in errors; ``to_page``: see `scrapy_gp4c.store.history_fields.ToPage`. Raises
    ImportFileError for lines that are no history, StoreError where there is a store with content,
    StoreInUseError where a crawl has it.
    """
    existed = store_path.exists()
    check_directory(store_path, readonly=False)
    lock = WriterLock(store_path)  # held throughout: a crawl that starts meanwhile learns who has the store
    try:
        _check_new(store_path)
        with work_directory(store_path, IMPORT) as work:
            with Store(work) as store:
                cycles = _import(name, iter(lines), to_page, store, pages_per_batch)
                counts = store.merged_pages, cycles
            sync(work / DATA)  # closing leaves the newest header in memory
            _check_new(store_path)
            drop_search_index(store_path)
            (store_path / READERS).unlink(missing_ok=True)
            os.replace(work / DATA, store_path / DATA)
            sync(store_path)
            sync(work.parent)
    except BaseException:
        trace = not existed and not (store_path / DATA).exists()
        lock.release(remove=trace)
        if trace:
            with suppress(OSError):
                store_path.rmdir()
        raise
    lock.release()
    return counts


def _check_new(store_path: Path) -> None:
    """Raise StoreError unless the store at `store_path` is without content or does not exist."""
    data = store_path / DATA
    if not data.exists() or data.stat().st_size == 0:
        return
    with closing(Environment(store_path, readonly=True)) as environment:
        with environment.transaction() as txn:
            if txn.stat()["entries"] == 0:  # a crawl was killed while it made the store
                return
        tables = Tables(environment, open_tables(environment, USUAL.block_rows))
        pages, cycles = tables.merged_pages, len(tables.cycles())
    if pages or cycles:
        content = f"{counted(pages, 'page')} and {counted(cycles, 'cycle')}"
        raise StoreError(
            f"the store {store_path} has {content}: a history is restored into a "
            "new store only. Set GP4C_STORE to another directory, or move this one away."
        )


def _import(
    name: str, lines: Iterator[tuple[int, str]], to_page: ToPage, tables: Tables, pages_per_batch: int
) -> int:
    """Write the pages and cycles of a history's lines into an empty store; returns the number of cycles."""
    first = next(lines)
    header: HistoryHeader | None = None
    records: list[CycleRecord] = []
    if is_header(first[1]):
        header = read_header(name, first[1])
        for number, line in lines:
            if not line.startswith(HEADER_START):
                lines = chain([(number, line)], lines)
                break
            records.append(read_record(name, number, line, len(records) + 1))
        if len(records) != header.cycles:
            raise ImportFileError(
                f"{name}: expected the records of {counted(header.cycles, 'cycle')} after the first line; "
                f"found {len(records)}. Export it anew."
            )
    else:
        lines = chain([first], lines)
    pages = (read_page(name, number, line, to_page) for number, line in lines)
    cycles = -1 if header is None else header.cycles
    numbering = fold.numbering_of(tables)
    for chunk, batch in enumerate(fold.batches(pages, pages_per_batch)):
        if cycles < 0:
            cycles = len(batch[0].bits) + 1
            if cycles > MOST_CYCLES:
                raise ImportFileError(
                    f"{name}: expected at most {MOST_CYCLES:,} cycles; found {cycles:,}. Shorten its bits."
                )
        with tables.transaction(buffers=True) as txn:
            check_pages(name, batch, cycles, partial(_is_known, tables, txn))
        numbered = numbering.number([page.request["url"] for page in batch])
        _import_batch(batch, numbered, cycles, tables, chunk)
    cycles = max(0, cycles)
    tables.restore_cycles(records or [{"started": None, "finished": None} for _ in range(cycles)])
    for cycle in range(1, cycles + 1):
        with tables.transaction(write=True) as txn:
            sum_up_trust(txn, tables.db, tables.groups, cycle)
    if header is not None and header.measured is not None:
        tables.set_gains_log(*header.measured)
        sums = tables.summed_gains(header.measured[1])
        tables.put_values(REFRESH_VALUES, np.arange(tables.merged_pages), sums)
    return cycles


def _is_known(tables: Tables, txn: Any, key: int) -> bool:
    return tables.get_id(txn, key) is not None


def _import_batch(
    batch: Sequence[PageLine], numbered: Numbered, cycles: int, tables: Tables, chunk: int
) -> None:
    """Append the pages of some lines, with visits and columns rebuilt from the bits of the lines.

    ``numbered``: directories of the pages; ``cycles``: number of cycles; ``chunk``: part number under which
    the visits and claims of each cycle are written.
    """
    state = columns.new_columns(np.array([page.key for page in batch], np.uint64))
    state |= HINTS.none(len(batch))
    state["group"][:] = numbered.group
    lines = [page.state for page in batch]
    claims_of_cycle: defaultdict[int, list[tuple[int, int, int]]] = defaultdict(list)
    for row, line in enumerate(lines):
        for cycle, kind, value in line.claims:
            claims_of_cycle[cycle].append((row, KINDS.index(kind), value))
    # The cycle of a gain is in `gap_cycles` at first, and the row of its page in `page`.
    gains = np.array([(row, cycle, ppm) for row, line in enumerate(lines) for cycle, ppm in line.dq], GAIN)
    first_page = tables.merged_pages
    for cycle, (outcome, copies) in enumerate(_visits_by_cycle(batch, cycles), 1):
        rows: npt.NDArray[np.intp] = np.flatnonzero(outcome != _NO_OUTCOME)
        visits = np.zeros(len(rows), VISIT)
        visits["fingerprint"] = copies[rows]
        visits["page"] = rows + first_page
        visits["outcome"] = outcome[rows]
        visits["kind"] = outcomes.KINDS.index("other")
        visits["distance"] = outcomes.NO_DISTANCE
        claimed = np.array(claims_of_cycle[cycle], CLAIM)
        tallied = before_visits(state, rows, visits["outcome"], claimed, cycle)
        judged = judged_visits(state, rows, visits, cycle)
        measured = gains[gains["gap_cycles"] == cycle]
        of_page = measured["page"].astype(np.intp)
        measured["gap_cycles"] -= np.where(outcome[of_page] == FIRST, cycle, state["last_cycle"][of_page])
        measured["page"] += np.uint32(first_page)
        columns.apply_visits(state, rows, visits, cycle)
        after_visits(state, rows, visits["outcome"], claimed, cycle, np.zeros(len(rows)))
        claimed["page"] += np.uint32(first_page)
        with tables.transaction(write=True) as txn:
            if cycle > cycles - KEPT_CYCLES:
                GROUP_ROWS.put(txn, tables.db, cycle, chunk, sums_by_group([judged]))
            if len(measured):
                GAINS.put(txn, tables.db, cycle, chunk, measured)
            put_claims(txn, tables.db, cycle, chunk, claimed, tallied)
        fold.put_visits(tables, cycle, chunk, visits, USUAL)
    state["fingerprint"][:] = [int(line.fingerprint or "0", 16) for line in lines]
    state["has_copy"][:] = [line.fingerprint is not None for line in lines]
    state["found_by"][:] = [START if line.found_by == "start" else line.found_by for line in lines]
    for name in ("failures", "gone", "entered", "seen_min", "size", "latency_ms"):
        state[name][:] = [getattr(line, name) for line in lines]
    for number, name in enumerate(BROUGHT):
        state[name][:] = [line.brought[number] if line.brought else 0 for line in lines]
    tables.append_pages([encode(page.request) for page in batch], state, numbered.new)
    _put_values(lines, tables, first_page, state)


def _visits_by_cycle(
    batch: Sequence[PageLine], cycles: int
) -> Iterator[tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint64]]]:
    """Yield for each cycle the outcomes of the lines' pages, or `_NO_OUTCOME`, and fingerprints of copies."""
    lines = [page.state for page in batch]
    bits = np.frombuffer(b"".join(page.bits for page in batch), np.uint8).reshape(len(batch), -1)
    names = ("first_cycle", "last_cycle", "last_attempt", "failures")
    first_cycle, last_cycle, last_attempt, failures = (
        np.array([getattr(line, name) for line in lines], np.int32) for name in names
    )
    failed = np.array([OUTCOMES.index(line.outcome) for line in lines], np.uint8)
    # The fingerprint of the first copy follows from the last one, and the bits of all changes between.
    flipped = [[int(bits, 16) for bits in reversed(line.flipped)] for line in lines]
    copies = np.array([int(line.fingerprint or "0", 16) for line in lines], np.uint64)
    copies ^= np.array([reduce(xor, bits, 0) for bits in flipped], np.uint64)
    for cycle in range(1, cycles + 1):
        outcome = np.full(len(batch), _NO_OUTCOME, np.uint8)
        missed = (last_attempt == cycle) & (failures > 0)
        outcome[missed] = failed[missed]
        outcome[(first_cycle == cycle) | (last_cycle == cycle)] = FIRST
        if cycle > 1:
            outcome[bits[:, cycle - 2] == CHANGED_BIT] = CHANGED
            outcome[bits[:, cycle - 2] == UNCHANGED_BIT] = UNCHANGED
        for row in np.flatnonzero(outcome == CHANGED).tolist():
            if flipped[row]:
                copies[row] ^= np.uint64(flipped[row].pop())
        yield outcome, copies


def _put_values(lines: Sequence[PageState], tables: Tables, first_page: int, state: columns.Columns) -> None:
    """Write the hints, weights, links and validators of new pages, which begin at `first_page`."""
    links = LINKS.none(len(lines))
    for row, line in enumerate(lines):
        if line.links is not None:
            link_bits, site_bits, links["anchor"][row] = line.links
            links["link_bits"][row], links["link_site_bits"][row] = int(link_bits, 16), int(site_bits, 16)
    pages = np.arange(first_page, tables.merged_pages)
    tables.put_values(HINTS, pages, state)
    tables.put_values(WEIGHTS, pages, {"weight": np.array([line.weight for line in lines])})
    tables.put_values(LINKS, pages, links)
    with tables.transaction(write=True) as txn:
        for number, line in enumerate(lines, first_page):
            validators = line.etag, line.last_modified
            if validators != (None, None):
                tables.db["validators"].put(txn, U32.pack(number), encode(validators))
