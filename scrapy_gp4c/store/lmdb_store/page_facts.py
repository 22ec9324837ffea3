"""Stored claims of sites that pages changed, and how often these were right.

The table `hints` has the newest claims by page, `claims` the new ones of each cycle. `trust` has counts of
right and wrong claims by site, under cycle 0; while a cycle is folded, it also has the counts to add, under
that cycle, by directory.
"""

from typing import Any, Final, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.arrays import Array
from scrapy_gp4c.page_state import claims
from scrapy_gp4c.page_state.claims import ClaimOutcomes, Times, of_claims
from scrapy_gp4c.page_state.columns import Columns, shorten_wait, unpack
from scrapy_gp4c.page_state.outcomes import FIRST, JUDGED, among
from scrapy_gp4c.scoring import hints
from scrapy_gp4c.store.lmdb_store.environment import U32, U32_PAIR
from scrapy_gp4c.store.lmdb_store.tables import (
    CLAIMS,
    HINTS,
    SITE_COUNTS,
    TRUST_PARTS,
    Handles,
    Tables,
    read_directories,
)
from scrapy_gp4c.store.records import TRUST

_ROWS: Final = 4_096
"""Sites in one value of the table `trust`."""


def shorten_waits(txn: Any, tables: Tables, block: int, rows: npt.NDArray[np.intp]) -> None:
    """Make pages that wait after failures due in the next cycle, for a hint or an import that names them.

    ``rows``: positions of the pages in the block number `block`. Pages with a doubtful answer wait on.
    """
    state = unpack(tables.block(txn, block))
    if state["failures"][rows].any():
        state = {name: column.copy() for name, column in state.items()}
        shorten_wait(state, rows)
        tables.put_block(txn, block, state)


def read_trust(txn: Any, db: Handles) -> Array:
    """Read how often the claims of each site were right: dtype `TRUST`, sorted by site key."""
    values = db["trust"].items(txn, b"", U32_PAIR.pack(1, 0))
    return np.concatenate([np.empty(0, TRUST), *(np.frombuffer(value, TRUST) for _, value in values)])


def put_trust(txn: Any, db: Handles, rows: Array) -> None:
    """Write the counts that `read_trust` reads; ``rows``: of all sites, dtype `TRUST`, sorted by site key."""
    for number in range(0, len(rows), _ROWS):
        chunk = rows[number : number + _ROWS]
        db["trust"].put(txn, U32_PAIR.pack(0, number // _ROWS), chunk.tobytes())


def put_claims(txn: Any, db: Handles, cycle: int, number: int, claimed: Array, seen: ClaimOutcomes) -> None:
    """Write the claims of part `number` of a cycle, and counts of right and wrong claims in its visits.

    ``claimed``: dtype `CLAIM`; ``seen``: outcomes of the claims. The counts are by directory, until
    `sum_up_trust` adds them up by site.
    """
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
    """Decay the `trust` counts of sites, and add the parts of `cycle`; ``directories``: how many exist."""
    added, old = TRUST_PARTS.read(txn, db, cycle), read_trust(txn, db)
    if not len(old) and not len(added):
        return
    site = read_directories(txn, db["groups"], directories, "site")[added["group"]]
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
    """Writer of a cycle's claims in the fold: `begin` and `end` are called around each block's visits."""

    tables: Tables
    cycle: int
    starts_s: npt.NDArray[np.float64]
    """Starts of all cycles up to this one, s since 1970, ascending."""

    @classmethod
    def of(cls, tables: Tables, cycle: int) -> Self:
        """Make an instance for the open cycle `cycle`, with the start times in the records of cycles."""
        starts = [record.get("started") for record in tables.cycles() if record["cycle"] <= cycle]
        return cls(tables, cycle, claims.ascending_starts(starts))

    def begin(
        self, txn: Any, block: int, state: Columns, visits: Array, notes: Array
    ) -> tuple[Columns, Array] | None:
        """Apply to a block the claims that its visits could confirm, and count whether they did.

        ``state``: columns before the visits; ``visits``, ``notes``: of the block's pages. Returns what `end`
        needs (`state` with the columns `HINTS`, and the cycle's claims); None where the block has no claims.
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
        """Apply to a block the claims that its visits could not see yet, and write its claim columns.

        ``before``: what `begin` returned; the visits have changed its other columns in place meanwhile.
        """
        block_columns, claimed = before
        rows = (visits["page"] - block * self.tables.block_rows).astype(np.intp)
        seen_min = claims.seen_after_min(visits["time"], float(self.starts_s[-1]))
        claims.after_visits(block_columns, rows, visits["outcome"], claimed, self.cycle, seen_min)
        HINTS.put(txn, self.tables.db, block, block_columns)
