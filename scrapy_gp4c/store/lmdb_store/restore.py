"""Restoring a store from the lines of an exported history (see `scrapy_gp4c.store.history_text`).

The store is built beside its place and moved there when it is complete, so that an error or a kill leaves
nothing behind that looks like a store.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.errors import StoreError
from scrapy_gp4c.page_state import columns, outcomes
from scrapy_gp4c.page_state.blocks import unpack_extras
from scrapy_gp4c.page_state.claims import CLAIM, after_visits, before_visits
from scrapy_gp4c.page_state.groups import KEPT_CYCLES
from scrapy_gp4c.page_state.outcomes import CHANGED, FIRST, UNCHANGED, VISIT
from scrapy_gp4c.scoring.refresh_value import GAIN, NO_GAINS
from scrapy_gp4c.store.claims_text import joined
from scrapy_gp4c.store.gain_text import read_measured
from scrapy_gp4c.store.growth_text import BROUGHT
from scrapy_gp4c.store.history_text import (
    CHANGED_BIT,
    UNCHANGED_BIT,
    PageLine,
    ToPage,
    check_pages,
    is_header,
    read_header,
    read_page,
)
from scrapy_gp4c.store.lmdb_store import fold, hints, weights
from scrapy_gp4c.store.lmdb_store.beside import IMPORT, beside, drop_search_index
from scrapy_gp4c.store.lmdb_store.environment import (
    READERS,
    Environment,
    WriterLock,
    check_directory,
)
from scrapy_gp4c.store.lmdb_store.failures import DATA
from scrapy_gp4c.store.lmdb_store.gains import Gains
from scrapy_gp4c.store.lmdb_store.groups import Numbered, counted, told
from scrapy_gp4c.store.lmdb_store.schema import open_tables
from scrapy_gp4c.store.lmdb_store.sealed import encode
from scrapy_gp4c.store.lmdb_store.sizes import USUAL
from scrapy_gp4c.store.lmdb_store.store import Store
from scrapy_gp4c.store.lmdb_store.tables import Tables
from scrapy_gp4c.store.records import CycleRecord
from scrapy_gp4c.store.whole_files import sync

Built = TypeVar("Built")
Lines = Iterable[tuple[int, str]]
"""(line number, line)."""


def restore(
    place: Path, name: str, lines: Lines, to_page: ToPage, *, pages_per_batch: int = 16_384
) -> tuple[int, int]:
    """Restore a history into the store at `place`, which must be new; returns its pages and cycles.

    ``name``: of the file that the lines are from; ``to_page``: gives each page its key. Raises
    ImportFileError for lines that are no history, StoreError where there is a store with content,
    StoreInUseError where a crawl has it.
    """

    def build(work: Path) -> tuple[int, int]:
        with Store(work) as store:
            cycles = _restore(name, iter(lines), to_page, store.tables, pages_per_batch)
            return store.merged_pages, cycles

    return build_new(place, build)


def build_new(place: Path, build: Callable[[Path], Built]) -> Built:
    """Build a store beside its place and move it there when it is complete; returns what `build` does.

    ``build``: makes a store in a directory, and closes it. Raises StoreError where there is a store with
    content, StoreInUseError where a crawl has it.
    """
    there = place.exists()
    check_directory(place, readonly=False)
    lock = WriterLock(place)  # throughout: a crawl that begins meanwhile is told who has the store
    try:
        _check_new(place)
        with beside(place, IMPORT) as work:
            built = build(work)
            sync(work / DATA)  # closing leaves the newest header in memory
            _check_new(place)
            drop_search_index(place)
            (place / READERS).unlink(missing_ok=True)
            os.replace(work / DATA, place / DATA)
            sync(place)
            sync(work.parent)
    except BaseException:
        trace = not there and not (place / DATA).exists()
        lock.release(remove=trace)
        if trace:
            with suppress(OSError):
                place.rmdir()
        raise
    lock.release()
    return built


def _check_new(place: Path) -> None:
    """Raise StoreError unless the store at `place` is without content, or not there."""
    data = place / DATA
    if not data.exists() or data.stat().st_size == 0:
        return
    environment = Environment(place, readonly=True, map_size=USUAL.map_size)
    try:
        with environment.transaction() as txn:
            if txn.stat()["entries"] == 0:  # killed at birth
                return
        tables = Tables(environment, open_tables(environment, USUAL.block_rows))
        pages, cycles = tables.merged_pages, len(tables.cycles())
    finally:
        environment.close()
    if pages or cycles:
        raise StoreError(
            f"the store {place} has {pages:,} pages and {cycles:,} cycles: a history is restored into a new "
            "store only. Set GP4C_STORE to another directory, or move this one away."
        )


def _restore(
    name: str, lines: Iterator[tuple[int, str]], to_page: ToPage, tables: Tables, pages_per_batch: int
) -> int:
    """Write all that the lines tell; returns the number of cycles."""
    records: list[CycleRecord] | None = None
    first, measured = next(lines), None
    if is_header(first[1]):
        records = read_header(name, first[1])
        measured = read_measured(name, first[1])
    else:
        lines = chain([first], lines)
    pages = (read_page(name, number, line, to_page) for number, line in lines)
    cycles = -1 if records is None else len(records)
    numbering = fold.numbering_of(tables)
    for chunk, batch in enumerate(fold.batches(pages, pages_per_batch)):
        if cycles < 0:
            cycles = len(batch[0].bits) + 1
        _check(name, batch, cycles, tables)
        numbered = numbering.number([page.request["url"] for page in batch])
        _restore_batch(batch, numbered, cycles, tables, chunk)
    cycles = max(0, cycles)
    tables.restore_cycles(records or [{"started": None, "finished": None} for _ in range(cycles)])
    hints.count_trust(tables)
    if measured is not None:
        gains = Gains(tables)
        gains.begin(*measured)
        gains.put_columns(gains.counted())
    return cycles


def _check(name: str, batch: Sequence[PageLine], cycles: int, tables: Tables) -> None:
    with tables.transaction(buffers=True) as txn:
        check_pages(name, batch, cycles, lambda key: tables.get_id(txn, key) is not None)


def _restore_batch(
    batch: Sequence[PageLine], numbered: Numbered, cycles: int, tables: Tables, chunk: int
) -> None:
    """Replay the visits that the lines tell of, and append the pages with the columns that result."""
    state = columns.new_columns(np.array([page.key for page in batch], np.uint64))
    state |= unpack_extras(None, len(batch))
    claims = joined([page.claims for page in batch])
    state["group"][:] = numbered.group
    bits = np.frombuffer(b"".join(page.bits for page in batch), np.uint8).reshape(len(batch), -1)
    first_cycle, last_cycle, last_attempt, failures, gone = np.array(
        [(page.first_cycle, page.last_cycle, page.last_attempt, page.failures, page.gone) for page in batch],
        np.int32,
    ).T
    failed = np.array([page.outcome for page in batch], np.uint8)
    first_page, gains = tables.merged_pages, _gains(batch)
    for cycle in range(1, cycles + 1):
        outcome = np.full(len(batch), 255, np.uint8)
        missed = (last_attempt == cycle) & (failures > 0)
        outcome[missed] = failed[missed]
        outcome[(first_cycle == cycle) | (last_cycle == cycle)] = FIRST
        if cycle > 1:
            outcome[bits[:, cycle - 2] == CHANGED_BIT] = CHANGED
            outcome[bits[:, cycle - 2] == UNCHANGED_BIT] = UNCHANGED
        rows: npt.NDArray[np.intp] = np.flatnonzero(outcome != 255)
        visits = np.zeros(len(rows), VISIT)
        visits["page"] = rows + first_page
        visits["outcome"] = outcome[rows]
        visits["kind"] = outcomes.KINDS.index("other")
        visits["distance"] = outcomes.NO_DISTANCE
        claimed = claims[claims["cycle"] == cycle][list(CLAIM.names or ())].astype(CLAIM)
        found = before_visits(state, rows, visits["outcome"], claimed, cycle)
        if cycle > cycles - KEPT_CYCLES:
            part = counted([told(state, rows, visits["outcome"], cycle)])
            with tables.transaction(write=True) as txn:
                tables.put_group_visits(txn, cycle, chunk, part)
        if len(own := gains[gains["gap_cycles"] == cycle]):
            of_page = own["page"].astype(np.intp)
            own["gap_cycles"] -= np.where(outcome[of_page] == FIRST, cycle, state["last_cycle"][of_page])
            own["page"] += np.uint32(first_page)
            Gains(tables).keep(own, chunk, cycle)
        columns.apply_visits(state, rows, visits, cycle)
        after_visits(state, rows, visits["outcome"], claimed, cycle, np.zeros(len(rows)))
        claimed["page"] += np.uint32(first_page)
        hints.put_claims(tables, cycle, chunk, claimed, found)
        fold.put_visits(tables, cycle, chunk, visits, USUAL)
    state["fingerprint"][:] = [page.fingerprint or 0 for page in batch]
    state["has_copy"][:] = [page.fingerprint is not None for page in batch]
    state["entered"][:] = [page.entered for page in batch]
    state["found_by"][:] = [page.found_by for page in batch]
    for number, name in enumerate(BROUGHT):
        state[name][:] = [page.brought[number] if page.brought else 0 for page in batch]
    state["seen_min"][:] = [page.seen_min for page in batch]
    state["failures"][:], state["gone"][:] = failures, gone
    tables.append_pages([encode(page.request) for page in batch], state, numbered.new)
    hints.put_extras(tables, first_page, state)
    weights.put_consecutive(tables, first_page, np.array([page.weight for page in batch]))
    with tables.transaction(write=True) as txn:
        for number, page in enumerate(batch, first_page):
            if page.validators != (None, None):
                tables.put_validators(txn, number, page.validators)


def _gains(batch: Sequence[PageLine]) -> npt.NDArray[Any]:
    """All gains of some pages; ``gap_cycles`` holds their cycles, and ``page`` their rows."""
    found = [(row, cycle, ppm) for row, page in enumerate(batch) for cycle, ppm in page.gains]
    return np.array(found, GAIN) if found else NO_GAINS
