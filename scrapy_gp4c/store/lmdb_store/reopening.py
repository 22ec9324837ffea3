"""The cycle under way of a store that is repaired: its new pages, visits and plan, as far as there are."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.page_state.claims import NOTE, WHAT
from scrapy_gp4c.page_state.outcomes import PLAN, VISIT
from scrapy_gp4c.scoring.discovery import START
from scrapy_gp4c.store.lmdb_store.salvage import LOST, Lost, Salvaged, new_finders, remapped
from scrapy_gp4c.store.lmdb_store.sealed import U32, U32_PAIR
from scrapy_gp4c.store.lmdb_store.tables import Tables
from scrapy_gp4c.store.records import CycleRecord, RoundCounts

Array = npt.NDArray[Any]

_PAGES: Final = "pages found in the cycle under way"
_COMMITS: Final = "commits of visits of the cycle under way"


def reopen_cycle(tables: Tables, found: Salvaged, record: CycleRecord | None, new_id: Array) -> list[Lost]:
    """Write the cycle after the last finished one, if anything is left of one; returns what is lost.

    ``record``: its record, or None; ``new_id``: new ids of the pages that have columns.
    """
    cycle, values = tables.last_cycle + 1, found.values
    log, new, plan, notes = (_of(values[name], cycle) for name in ("log", "new", "plans", "notes"))
    # Values of earlier cycles may be found too, in pages of the file that nothing leads to any more.
    own = {"log": log, "new": new}
    missing = {name: found.entries.get(name, 0) - len(one) for name, one in own.items()}
    if record is None and not (log or new or plan):
        lost: list[Lost] = []
        _lose(lost, missing["new"], _PAGES)
        _lose(lost, missing["log"], _COMMITS)
        return lost
    lost = [] if record is not None else [Lost(1, f"record, of cycle {cycle}, which is ended")]
    new = {page: value for page, value in new.items() if page >= len(new_id)}
    last = max(new, default=len(new_id) - 1)
    for page in (np.frombuffer(value, VISIT)["page"].max() for value in log.values()):
        last = max(last, int(page))
    new_ids = np.full(last + 1, LOST, np.int64)
    new_ids[: len(new_id)] = new_id
    new_ids[sorted(new)] = tables.merged_pages + np.arange(len(new))
    _lose(lost, max(missing["new"], last + 1 - len(new_id) - len(new)), _PAGES)
    seen = 0
    with tables.transaction(write=True) as txn:
        tables.put_record(txn, cycle, record or {"started": None})
        for page, value in new.items():
            tables.db["new"].put(txn, U32_PAIR.pack(cycle, new_ids[page]), value)
            replaced = values["urls"].get(U32.pack(page))
            if replaced is not None:
                tables.db["urls"].put(txn, U32.pack(new_ids[page]), replaced)
        for number, commit in enumerate(sorted(log)):
            visits = remapped(np.frombuffer(log[commit], VISIT), new_ids)
            tables.db["log"].put(txn, U32_PAIR.pack(cycle, number), visits.tobytes())
            seen += len(visits)
        _lose(
            lost,
            max(missing["log"], max(log, default=-1) + 1 - len(log)),
            _COMMITS,
        )
    _put_notes(tables, notes, new_ids)
    _lose(lost, found.entries.get("notes", 0) - len(notes), "commits of who found new pages")
    left = remapped(_planned(plan, record or {}), new_ids)
    _put_plan(tables, record or {}, left, seen)
    _lose(lost, ((record or {}).get("planned") or 0) - len(left), "pages of the plan of the cycle under way")
    return lost


def _put_notes(tables: Tables, notes: dict[int, bytes], new_ids: Array) -> None:
    """Write who found the new pages."""
    with tables.transaction(write=True) as txn:
        for number, commit in enumerate(sorted(notes)):
            kept = remapped(np.frombuffer(notes[commit], NOTE), new_ids)
            value = kept["value"]
            is_page = (kept["what"] == WHAT.index("found_by")) & (value > 0) & (value < START)
            value[is_page] = new_finders(value[is_page], new_ids)
            tables.db["notes"].put(txn, U32_PAIR.pack(tables.last_cycle + 1, number), kept.tobytes())


def _of(table: dict[bytes, bytes], cycle: int) -> dict[int, bytes]:
    """Number -> value, of one cycle."""
    pairs = {U32_PAIR.unpack(key): value for key, value in table.items()}
    return {number: value for (of, number), value in pairs.items() if of == cycle}


def _lose(lost: list[Lost], count: int, what: str) -> None:
    if count > 0:
        lost.append(Lost(count, what))


def _planned(plan: dict[int, bytes], record: CycleRecord) -> Array:
    """What is left of the plan of the rounds that the record counts, dtype `PLAN`."""
    chunks = [np.frombuffer(plan[number], PLAN) for number in sorted(plan)]
    return np.concatenate([np.empty(0, PLAN), *chunks])[: record.get("planned") or 0]


def _put_plan(tables: Tables, record: CycleRecord, left: Array, seen: int) -> None:
    """Write what is left of the plan, as one round where some of it is lost; ``seen``: visits there are."""
    planned = record.get("planned")
    if planned is None:
        return
    rounds: list[RoundCounts] = [{"planned": len(left), "seen": 0}]
    if len(left) == planned and record.get("rounds"):
        rounds = [{"planned": one["planned"], "seen": min(one["seen"], seen)} for one in record["rounds"]]
    cycle = tables.last_cycle + 1
    with tables.transaction(write=True) as txn:
        if len(left):
            tables.db["plans"].put(txn, U32_PAIR.pack(cycle, 0), left.tobytes())
        tables.put_record(txn, cycle, {"planned": len(left), "rounds": rounds})
