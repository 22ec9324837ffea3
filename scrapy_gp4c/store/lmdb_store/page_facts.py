"""Facts of pages beside their columns: claims of sites, and gains of a search.

`hints` has the newest claims by page, `claims` those that were new in a cycle, and `trust`, under cycle 0,
the counts of all sites; while a cycle is folded, also the counts that each part of its fold adds. Gains stand
by visit in `gains`, summed up by page in `refresh_values`; both are empty until a log of queries is given.
"""

from collections.abc import Iterator
from typing import Any, Final, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.arrays import Array
from scrapy_gp4c.page_state import claims
from scrapy_gp4c.page_state.claims import ClaimOutcomes, Times, of_claims
from scrapy_gp4c.page_state.columns import Columns, shorten_wait, unpack
from scrapy_gp4c.page_state.outcomes import FIRST, JUDGED, among
from scrapy_gp4c.scoring import hints
from scrapy_gp4c.scoring.refresh_value import observe_gains
from scrapy_gp4c.store.lmdb_store.environment import U32, U32_PAIR
from scrapy_gp4c.store.lmdb_store.tables import (
    CLAIMS,
    GAINS,
    HINTS,
    QUERY_LOG,
    REFRESH_VALUES,
    SITE_COUNTS,
    TRUST_PARTS,
    Handles,
    Tables,
    read_directories,
)
from scrapy_gp4c.store.records import TRUST

_ROWS: Final = 4_096
"""Sites in one value."""


def shorten_waits(txn: Any, tables: Tables, block: int, rows: npt.NDArray[np.intp]) -> None:
    """Make pages of a block, named by a hint or an import, due at once where they wait after failures."""
    state = unpack(tables.block(txn, block))
    if state["failures"][rows].any():
        state = {name: column.copy() for name, column in state.items()}
        shorten_wait(state, rows)
        tables.put_block(txn, block, state)


def read_trust(txn: Any, db: Handles) -> Array:
    """Counts of all sites, dtype `TRUST`, by site."""
    values = db["trust"].items(txn, b"", U32_PAIR.pack(1, 0))
    return np.concatenate([np.empty(0, TRUST), *(np.frombuffer(value, TRUST) for _, value in values)])


def put_trust(txn: Any, db: Handles, rows: Array) -> None:
    """Write the counts of all sites, dtype `TRUST`, by site."""
    for number in range(0, len(rows), _ROWS):
        chunk = rows[number : number + _ROWS]
        db["trust"].put(txn, U32_PAIR.pack(0, number // _ROWS), chunk.tobytes())


def put_claims(txn: Any, db: Handles, cycle: int, number: int, claimed: Array, seen: ClaimOutcomes) -> None:
    """Keep the claims of a part of a cycle, dtype `CLAIM`, and counts of its judged visits by directory."""
    if len(claimed):
        CLAIMS.put(txn, db, cycle, number, claimed)
    has_outcome = (seen.outcomes >= 0).any(axis=1)
    if has_outcome.any():
        numbers, local = np.unique(seen.group[has_outcome], return_inverse=True)
        counts = np.zeros(len(numbers), SITE_COUNTS)
        counts["group"] = numbers
        counts["counts"] = hints.counted(seen.outcomes[has_outcome], local, len(numbers))
        TRUST_PARTS.put(txn, db, cycle, number, counts)


def sum_up_trust(txn: Any, db: Handles, directories: int, cycle: int) -> None:
    """Decay the counts of all sites by a cycle and add those of its parts; ``directories``: their number."""
    added, old = TRUST_PARTS.read(txn, db, cycle), read_trust(txn, db)
    if not len(old) and not len(added):
        return
    site = read_directories(txn, db["groups"], directories)["site"][added["group"]]
    known, position = np.unique(np.concatenate((old["site"], site)), return_inverse=True)
    rows = np.zeros(len(known), TRUST)
    rows["site"] = known
    rows["counts"][position[: len(old)]] = old["counts"]
    new = np.zeros(rows["counts"].shape, np.int64)
    np.add.at(new, position[len(old) :], added["counts"])
    rows["counts"] = hints.decayed(rows["counts"], new)
    put_trust(txn, db, rows)
    TRUST_PARTS.drop(txn, db, cycle, cycle)


class ClaimsFold(NamedTuple):
    """Fold of a cycle's claims, block by block, in the transactions of the fold."""

    tables: Tables
    cycle: int
    starts_s: npt.NDArray[np.float64]
    """Starts of all cycles up to this one."""

    @classmethod
    def of(cls, tables: Tables, cycle: int) -> Self:
        starts = [record.get("started") for record in tables.cycles() if record["cycle"] <= cycle]
        return cls(tables, cycle, claims.ascending(starts))

    def begin(
        self, txn: Any, block: int, state: Columns, visits: Array, notes: Array
    ) -> tuple[Columns, Array] | None:
        """Apply claims that count before a block's visits; returns columns and claims, None without claims.

        ``visits``, ``notes``: of its pages.
        """
        first = block * self.tables.block_rows
        claim_notes = notes[of_claims(notes)]
        if not len(claim_notes) and self.tables.db["hints"].get(txn, U32.pack(block)) is None:
            return None
        block_columns = state | HINTS.read(txn, self.tables.db, block, len(state["n"]))
        fetches = visits[among(visits["outcome"], (FIRST, *JUDGED))]
        visit_s = np.full(len(state["n"]), np.nan)
        visit_s[fetches["page"] - first] = fetches["time"]
        rows = (claim_notes["page"] - first).astype(np.intp)
        claimed = claims.claims_of(claim_notes, rows, block_columns, Times(self.starts_s, visit_s))
        local_claims = claimed.copy()
        local_claims["page"] -= np.uint32(first)
        seen = claims.before_visits(
            block_columns,
            (visits["page"] - first).astype(np.intp),
            visits["outcome"],
            local_claims,
            self.cycle,
        )
        put_claims(txn, self.tables.db, self.cycle, block, claimed, seen)
        return block_columns, local_claims

    def end(self, txn: Any, block: int, before: tuple[Columns, Array], visits: Array) -> None:
        """Apply claims that count after a block's visits, which have changed other columns in place."""
        block_columns, claimed = before
        rows = (visits["page"] - block * self.tables.block_rows).astype(np.intp)
        seen_min = claims.seen_after_min(visits["time"], float(self.starts_s[-1]))
        claims.after_visits(block_columns, rows, visits["outcome"], claimed, self.cycle, seen_min)
        HINTS.put(txn, self.tables.db, block, block_columns)


class Gains:
    """Gains of a store's visits, none until `begin`."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    def _meta(self) -> dict[str, Any]:
        with self._tables.transaction() as txn:
            return self._tables.get_meta(txn, QUERY_LOG) or {}

    @property
    def log(self) -> str | None:
        """Digest of the log that gains are measured by; None: nothing was ever measured."""
        return self._meta().get("log")

    @property
    def since(self) -> int:
        """First cycle whose gains are in the columns."""
        return int(self._meta().get("since", 0))

    def begin(self, log: str, since: int | None = None) -> bool:
        """Measure by this log from now on; True if it is another, by which the columns of gains are emptied.

        ``since``: the first cycle that is measured so; None: the one that is open, or will be.
        """
        if log == self.log:
            return False
        tables = self._tables
        tables.check_writable()
        with tables.transaction(write=True) as txn:
            tables.db[REFRESH_VALUES.table].drop(txn)
            log_entry = {"log": log, "since": tables.last_cycle + 1 if since is None else since}
            tables.put_meta(txn, QUERY_LOG, log_entry)
        return True

    def keep(self, gains: Array) -> None:
        """Keep the gains of the open cycle, dtype `GAIN`, in place of those kept before, for its fold."""
        with self._tables.transaction(write=True) as txn:
            GAINS.put(txn, self._tables.db, self._tables.last_cycle + 1, 0, gains)

    def of_cycles(self, first: int = 1, last: int | None = None) -> Iterator[tuple[int, Array]]:
        """Yield (cycle, gains) of finished cycles, dtype `GAIN`."""
        for cycle, gains in self._tables.whole_cycles(GAINS, first, last):
            if len(gains):
                yield cycle, gains

    def of(self, cycle: int) -> Array:
        """Gains of a cycle, the open one's too; dtype `GAIN`."""
        with self._tables.transaction() as txn:
            return GAINS.read(txn, self._tables.db, cycle)

    def counted(self) -> Columns:
        """Columns `REFRESH_VALUES` of all pages, computed from the gains. Memory: 28 bytes per page."""
        pages = self._tables.merged_pages
        state = REFRESH_VALUES.none(pages)
        for cycle, gains in self.of_cycles(max(1, self.since)):
            if gains["page"].max() >= pages:
                raise self._tables.db["gains"].wrong(
                    U32_PAIR.pack(cycle, 0), "it has a page that does not exist"
                )
            observe_gains(state, gains["page"].astype(np.intp), gains)
        return state
