"""Opening, joining and closing a cycle: any worker does it, the first one's word counts."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, Final, NamedTuple, cast

from scrapy_gp4c.distributed.arithmetic import Arithmetic
from scrapy_gp4c.distributed.connection import Transaction
from scrapy_gp4c.distributed.errors import CodeDiffersError, DiffersError
from scrapy_gp4c.distributed.leases import Worker
from scrapy_gp4c.store.records import CycleRecord

CYCLE_S: Final = 3600.0
KEPT_REPORTS: Final = 2
"""Cycles whose parts of plans and reports are kept, for whoever is late."""


class Code(NamedTuple):
    """What of a cycle is code, and must be the same on every worker."""

    features: tuple[str, ...]
    """Terminals of scores, extra columns, whatever a store was made with."""
    names: tuple[str, ...]
    """Dotted names of score functions, policies and fingerprints."""
    fingerprint: str
    """What tells versions of the fingerprint apart."""
    version: str
    """Of scrapy-gp4c."""
    arithmetic: Arithmetic = Arithmetic()
    """Its bits are compared, not by what they were computed."""


class Decided(NamedTuple):
    """What a cycle's opener decides for all."""

    record: CycleRecord
    """Formula, policy, clock, seed, budget and the like; without `cycle` and `started`."""
    caps: Mapping[str, int | float | None]
    """Setting -> its value: what bounds new pages, say."""


class Joined(NamedTuple):
    """The open cycle, as its opener decided it."""

    cycle: int
    started: float
    """s since 1970, by the server's clock."""
    decided: Decided
    opened: bool
    """Whether this worker opened it."""
    differs: tuple[str, ...]
    """What this worker would have decided otherwise: for one warning."""


class CycleState(NamedTuple):
    """Where the last cycle is."""

    cycle: int
    """0: there was none."""
    closed: bool
    age_s: float
    """Since its opening."""


_STATE: Final = "cycle, closed IS NOT NULL, extract(epoch FROM clock_timestamp() - opened)::float8"
_LAST: Final = "FROM gp4c.cycle ORDER BY cycle DESC LIMIT 1"


def state(tx: Transaction) -> CycleState:
    """Return where the last cycle is."""
    return _state(tx.execute(f"SELECT {_STATE} {_LAST}".encode()).fetchone())


def _state(row: tuple[Any, ...] | None) -> CycleState:
    return CycleState(0, True, math.inf) if row is None else CycleState(*row[:3])


def join(
    tx: Transaction, worker: Worker, decided: Decided, code: Code, cycle_s: float = CYCLE_S
) -> Joined | None:
    """Join the open cycle, or open one if it is due, `cycle_s` after the last opening; None if it is not.

    One statement where it is open, else three, each of which may be a transaction of its own. Raises
    CodeDiffersError for a worker whose code differs from the opener's.
    """
    opened = False
    while True:
        row = tx.execute(
            f"SELECT {_STATE}, extract(epoch FROM opened)::float8, opener, decided, code {_LAST}".encode()
        ).fetchone()
        last = _state(row)
        if row is not None and not last.closed:
            break
        if last.age_s < cycle_s:
            return None
        opened = _open(tx, last.cycle + 1, worker, decided, code)
    started, opener, text, their_code = row[3:]
    _compare_code(code, _code(their_code), last.cycle, opener)
    theirs = _decided(text)
    return Joined(last.cycle, started, theirs, opened, tuple(_differences(decided, theirs)))


def _open(tx: Transaction, cycle: int, worker: Worker, decided: Decided, code: Code) -> bool:
    """Open a cycle, with its log; False if another worker did so in the meantime: one statement.

    The log of the cycle before is dropped, unless whoever registered the last of its objects has done so.
    """
    made = tx.execute(
        "WITH waits AS MATERIALIZED (SELECT set_config('lock_timeout', %s::text, true)),"
        " made AS (INSERT INTO gp4c.cycle (cycle, opener, decided, code)"
        " SELECT %s, %s, %s, %s FROM waits ON CONFLICT (cycle) DO NOTHING RETURNING cycle)"
        " SELECT gp4c.open_log(cycle), gp4c.drop_log(cycle - 1) FROM made",
        (worker.call_ms, cycle, worker.name, json.dumps(decided), json.dumps(code)),
    ).fetchone()
    return made is not None


def _decided(text: str) -> Decided:
    record, caps = json.loads(text)
    return Decided(cast(CycleRecord, record), caps)


def _code(text: str) -> Code:
    features, names, fingerprint, version, *rest = json.loads(text)
    bits, extensions = rest[0] if rest else Arithmetic()  # none of a cycle that an older version opened
    return Code(tuple(features), tuple(names), fingerprint, version, Arithmetic(bits, tuple(extensions)))


def _compare_code(ours: Code, theirs: Code, cycle: int, opener: str) -> None:
    for name in ("features", "names", "fingerprint", "version"):
        here, there = getattr(ours, name), getattr(theirs, name)
        if here != there:
            raise CodeDiffersError(
                f"cycle {cycle} was opened by {opener!r} with another {name}: expected {there!r}, as it "
                f"has; found "
                f"{here!r}. Let all workers run the same code and versions, or wait until the cycle is "
                f"closed."
            )
    here, there = ours.arithmetic, theirs.arithmetic
    if here.bits != there.bits:
        raise CodeDiffersError(
            f"cycle {cycle} was opened by {opener!r} with another arithmetic: the last bits of exp, log and "
            f"powers, expected {there.bits}, as it has; found {here.bits}. By these, plans differ. To crawl "
            f"together, {here.remedy(there)} (docs/distributed.md, Processors of different kinds), or wait "
            f"until the cycle is closed."
        )


def _differences(ours: Decided, theirs: Decided) -> list[str]:
    """What differs, as ``name: value here, value there``."""
    text: tuple[Decided, Decided] = ours, _decided(json.dumps(theirs))
    here, there = ({**one.record, **one.caps} for one in text)
    here = json.loads(json.dumps(here))
    return [
        f"{name}: {here.get(name)!r} here, {there.get(name)!r} in the cycle"
        for name in sorted({*here, *there})
        if here.get(name) != there.get(name)
    ]


def close(tx: Transaction, cycle: int) -> bool:
    """Close a cycle if all shards are done with it and no mail is left; tells whether it is closed now.

    All shards' rows are locked, so that no flush is under way, and none that comes later finds it open.
    """
    row = tx.execute(
        "SELECT closed IS NOT NULL FROM gp4c.cycle WHERE cycle = %s FOR UPDATE", (cycle,)
    ).fetchone()
    if row is None:
        raise DiffersError(f"the ledger has no cycle {cycle}: it may be an older backup. Rebuild from it.")
    if row[0]:
        return True
    done = tx.execute("SELECT done FROM gp4c.shard ORDER BY shard FOR UPDATE").fetchall()
    if any(one < cycle for (one,) in done):
        return False
    if tx.execute("SELECT 1 FROM gp4c.mail LIMIT 1").fetchone() is not None:
        return False
    tx.execute("UPDATE gp4c.cycle SET closed = clock_timestamp() WHERE cycle = %s", (cycle,))
    tx.execute("SELECT gp4c.open_log(%s)", (cycle + 1,))  # all others wait for whoever opens a cycle
    tx.execute("DELETE FROM gp4c.report WHERE cycle <= %s", (cycle - KEPT_REPORTS,))
    return True


def closed_s(tx: Transaction, cycle: int) -> float | None:
    """Return when a cycle was closed, s since 1970, by the server; None: it is open. One statement."""
    row = tx.execute(
        "SELECT extract(epoch FROM closed)::float8 FROM gp4c.cycle WHERE cycle = %s", (cycle,)
    ).fetchone()
    return None if row is None else row[0]


def keep_record(tx: Transaction, cycle: int, record: CycleRecord) -> None:
    """Keep the merged record of a closed cycle; the first one counts. Raises DiffersError for another one."""
    text = json.dumps(record, sort_keys=True)
    tx.execute(
        "UPDATE gp4c.cycle SET record = %s WHERE cycle = %s AND closed IS NOT NULL AND record IS NULL",
        (text, cycle),
    )
    row = tx.execute("SELECT record FROM gp4c.cycle WHERE cycle = %s", (cycle,)).fetchone()
    if row is None or row[0] != text:
        raise DiffersError(
            f"the record of cycle {cycle} differs from the one in the ledger, or the cycle is not closed: "
            f"workers "
            "that merge the same reports write the same. Let all of them run the same version."
        )


def records(tx: Transaction, first: int = 1) -> list[CycleRecord]:
    """Return the merged records of closed cycles, from one on, oldest first."""
    rows = tx.execute(
        "SELECT record FROM gp4c.cycle WHERE record IS NOT NULL AND cycle >= %s ORDER BY cycle", (first,)
    ).fetchall()
    return [cast(CycleRecord, json.loads(text)) for (text,) in rows]


def drop_log(tx: Transaction, cycle: int) -> bool:
    """Drop the log of a closed cycle all of whose shards have registered its object; False: not yet."""
    row = tx.execute("SELECT gp4c.drop_log(%s)", (cycle,)).fetchone()
    return row == (True,)
