"""Restoring a store from the lines of an exported history (see `export` for the format).

The store is built beside its place and moved there when it is complete, so that an error or a kill leaves
nothing behind that looks like a store.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.errors import ImportFileError, StoreError
from scrapy_gp4c.page_state import columns, outcomes
from scrapy_gp4c.page_state.outcomes import CHANGED, FIRST, OUTCOMES, UNCHANGED, VISIT
from scrapy_gp4c.store.history_text import CHANGED_BIT, FORMAT, UNCHANGED_BIT, is_header
from scrapy_gp4c.store.lmdb_store import fold
from scrapy_gp4c.store.lmdb_store.store import Store
from scrapy_gp4c.store.lmdb_store.tables import encode
from scrapy_gp4c.store.records import CycleRecord, StoredRequest

if TYPE_CHECKING:
    from scrapy_gp4c.commands.project import Project

PAGES_PER_BATCH = 16_384
FAILURES = ("error", "gone", "excluded")


class Page(NamedTuple):
    """One line of a history."""

    line: int
    key: int
    request: StoredRequest
    bits: bytes
    state: dict[str, Any]


def restore(project: Project, name: str, lines: Iterable[tuple[int, str]]) -> tuple[int, int]:
    """Restore a history into the project's store, which must be new; returns its pages and cycles."""
    place = project.store_path
    if (place / "data.mdb").exists():
        with Store(place) as store:
            if store.pages or store.cycles():
                raise StoreError(
                    f"the store {place} has {store.pages:,} pages and {len(store.cycles()):,} cycles: a "
                    "history is restored into a new store only. Set GP4C_STORE to another directory, or move "
                    "this one away."
                )
    work = place.with_name(place.name + ".import")
    shutil.rmtree(work, ignore_errors=True)
    try:
        with Store(work) as store:
            pages, cycles = _restore(project, name, iter(lines), store)
        place.mkdir(parents=True, exist_ok=True)
        (place / "lock.mdb").unlink(missing_ok=True)
        os.replace(work / "data.mdb", place / "data.mdb")
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return pages, cycles


def _restore(project: Project, name: str, lines: Iterator[tuple[int, str]], store: Store) -> tuple[int, int]:
    records: list[CycleRecord] | None = None
    first = next(lines)
    if is_header(first[1]):
        records = _records(name, first[1])
    else:
        lines = chain([first], lines)
    pages = (_page(project, name, number, line) for number, line in lines)
    cycles = -1 if records is None else len(records)
    for chunk, batch in enumerate(fold.batches(pages, PAGES_PER_BATCH)):
        if cycles < 0:
            cycles = len(batch[0].bits) + 1
        _check(name, batch, cycles, store)
        _restore_batch(batch, cycles, store, chunk)
    cycles = max(0, cycles)
    fold.restore(store, records or [{"started": None, "finished": None} for _ in range(cycles)])
    return store.pages, cycles


def _records(name: str, header: str) -> list[CycleRecord]:
    try:
        content = json.loads(header[1:])
        records: list[CycleRecord] = content["cycles"]
        sound = content["format"] == FORMAT and all("finished" in record for record in records)
    except (ValueError, KeyError, TypeError, RecursionError):
        sound = False
    if not sound:
        raise ImportFileError(
            f'{name}, line 1: expected the header of a history, # {{"format": "{FORMAT}", "cycles": [...]}}; '
            f"found {header[:80]!r}. Export it anew."
        )
    return records


def _page(project: Project, name: str, number: int, line: str) -> Page:
    try:
        fields = line.split("\t")
        if len(fields) not in (3, 4):
            raise ValueError(
                f"expected site, page, bits and JSON with tabs between; found {len(fields)} fields"
            )
        bits = fields[2].encode()
        if bits.strip(b"01."):
            raise ValueError(f"expected bits of '0', '1' and '.'; found {fields[2][:40]!r}")
        state = json.loads(fields[3]) if len(fields) == 4 else {"first_cycle": 1}
        if not isinstance(state, dict) or not isinstance(state.get("request", {}), dict):
            raise ValueError(f"expected a JSON object in the fourth field; found {fields[3][:40]!r}")
        key, request = project.page({"url": fields[1], **state.get("request", {})})  # type: ignore[typeddict-item]
        for column in ("first_cycle", "last_cycle", "failures", "gone", "last_attempt"):
            if not isinstance(state.get(column, 0), int):
                raise ValueError(f"expected a whole number as {column}; found {state[column]!r}")
        state["fingerprint"] = int(state["fingerprint"], 16) if "fingerprint" in state else None
        if state.get("outcome", "error") not in FAILURES:
            raise ValueError(f"expected one of {FAILURES} as outcome; found {state['outcome']!r}")
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise ImportFileError(
            f"{name}, line {number}: {error}. Correct the line; nothing was imported."
        ) from None
    return Page(number, key, request, bits, state)


def _check(name: str, batch: list[Page], cycles: int, store: Store) -> None:
    """Check what concerns several pages, or a page and the cycles."""
    seen: dict[int, int] = {}
    with store.transaction() as txn:
        for page in batch:
            problem = None
            judged = [cycle for cycle, bit in enumerate(page.bits, 2) if bit != ord(".")]
            dates = [page.state.get(column, 0) for column in ("first_cycle", "last_cycle", "last_attempt")]
            if len(page.bits) != max(0, cycles - 1):
                problem = f"expected {max(0, cycles - 1)} bits as for {cycles} cycles; found {len(page.bits)}"
            elif page.key in seen or store.get_id(txn, page.key) is not None:
                problem = f"the page {page.request['url']} comes a second time"
            elif not all(0 <= date <= cycles for date in dates):
                problem = f"expected cycles of at most {cycles}; found {dates}"
            elif judged and dates[0] >= judged[0]:
                problem = f"the first fetch, cycle {dates[0]}, must come before the first judged {judged[0]}"
            elif judged and 0 < max(dates[1:]) <= judged[-1]:
                problem = f"the last visit cannot come before the last judged cycle {judged[-1]}"
            if problem:
                raise ImportFileError(f"{name}, line {page.line}: {problem}. Nothing was imported.")
            seen[page.key] = page.line


def _restore_batch(batch: list[Page], cycles: int, store: Store, chunk: int) -> None:
    """Replay the visits that the lines tell of, and append the pages with the columns that result."""
    state = columns.new_columns(np.array([page.key for page in batch], np.uint64))
    bits = np.frombuffer(b"".join(page.bits for page in batch), np.uint8).reshape(len(batch), -1)
    dates = {
        column: np.array([page.state.get(column, 0) for page in batch], np.int32)
        for column in ("first_cycle", "last_cycle", "last_attempt", "failures", "gone")
    }
    failed = np.array([OUTCOMES.index(page.state.get("outcome", "error")) for page in batch], np.uint8)
    first_page = store.pages
    for cycle in range(1, cycles + 1):
        outcome = np.full(len(batch), 255, np.uint8)
        missed = (dates["last_attempt"] == cycle) & (dates["failures"] > 0)
        outcome[missed] = failed[missed]
        outcome[(dates["first_cycle"] == cycle) | (dates["last_cycle"] == cycle)] = FIRST
        if cycle > 1:
            outcome[bits[:, cycle - 2] == CHANGED_BIT] = CHANGED
            outcome[bits[:, cycle - 2] == UNCHANGED_BIT] = UNCHANGED
        rows: npt.NDArray[np.intp] = np.flatnonzero(outcome != 255)
        visits = np.zeros(len(rows), VISIT)
        visits["page"] = rows + first_page
        visits["outcome"] = outcome[rows]
        visits["kind"] = outcomes.KINDS.index("other")
        visits["distance"] = outcomes.NO_DISTANCE
        columns.apply_visits(state, rows, visits, cycle)
        fold.put_visits(store, cycle, chunk, visits)
    prints = [page.state["fingerprint"] for page in batch]
    state["fingerprint"][:] = [value or 0 for value in prints]
    state["has_copy"][:] = [value is not None for value in prints]
    state["failures"][:] = dates["failures"]
    state["gone"][:] = dates["gone"]
    fold.append_pages(store, [(page.key, encode(page.request)) for page in batch], state)
    for number, page in enumerate(batch, first_page):
        validators = page.state.get("etag"), page.state.get("last_modified")
        if validators != (None, None):
            store.set_validators(number, *validators)
    store.commit()
