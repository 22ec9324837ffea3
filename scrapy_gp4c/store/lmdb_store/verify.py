"""Verification of a store: every checksum and count, and on demand all derived data computed anew.

A problem is one sentence: the table, the pages or the cycle of the damaged value, and what the value is.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.arrays import Array
from scrapy_gp4c.errors import StoreDamagedError, StoreError
from scrapy_gp4c.foreign_text import counted
from scrapy_gp4c.page_state import columns
from scrapy_gp4c.page_state.claims import CLAIM, NO_CLAIMS, after_visits, before_visits
from scrapy_gp4c.page_state.columns import EXTRAS, Columns
from scrapy_gp4c.page_state.groups import GROUP, GROUP_VISITS, KEPT_CYCLES, NO_VISITS
from scrapy_gp4c.page_state.outcomes import CHANGED, FIRST, JUDGED, OUTCOMES, VISIT, among
from scrapy_gp4c.scoring import hints, refresh_value, terminals
from scrapy_gp4c.scoring.weights import are_weights
from scrapy_gp4c.store.lmdb_store.environment import DATA, KEY, U32, U32_PAIR, Environment, read_all_pages
from scrapy_gp4c.store.lmdb_store.page_facts import Gains, read_trust
from scrapy_gp4c.store.lmdb_store.tables import (
    CLAIMS,
    HINTS,
    PAGE_COLUMNS,
    REFRESH_VALUES,
    WEIGHTS,
    JudgedVisits,
    Numbering,
    Sizes,
    Tables,
    judged_visits,
    open_tables,
    sums_by_group,
    url_of,
)
from scrapy_gp4c.store.records import TRUST

_BATCH: Final = 2**20
_ATTEMPTS: Final = 3

MEANING: Final = {
    "meta": "counters and settings of the store",
    "urls": "the request of a page",
    "validators": "ETag and Last-Modified of a page",
    "log": "visits of the cycle under way",
    "notes": "who found new pages, what was claimed and what pages weigh, in the cycle under way",
    "new": "a page found in the cycle under way",
    "visits": "visits of a finished cycle",
    "cycles": "the record of a cycle",
    "plans": "the plan of the cycle under way",
    "columns": "the state of a block of pages",
    "groups": "a block of directories",
    "group_visits": "what a cycle found in directories",
    "first_urls": "the URL that a page was found by",
    "gains": "what visits of a cycle gained a search",
    "refresh_values": "what a block of pages gained a search",
    "copies": "the notes of a page's copy",
    "descriptions": "what a page's copy is like",
    "answers": "how a page failed, or from where it was answered",
    "clusters": "a part of the clusters of pages, and of their links",
    "hints": "what sites claim of a block of pages",
    "claims": "what sites claimed in a cycle",
    "trust": "how often sites were right",
    "weights": "the weights of a block of pages",
    "shadows": "shadows of a cycle's control group",
}
"""Table -> what a value of the table holds."""
_BY_CYCLE: Final = (
    "visits", "log", "plans", "group_visits", "notes", "gains", "claims", "trust", "shadows",
)  # fmt: skip
"""Tables with parts of cycles."""


class Verification(NamedTuple):
    """Result of the verification of a store."""

    problems: list[str]
    """A sentence for each damaged value; empty: the store is sound."""
    under_way: str
    """Sentence about a fold that a kill interrupted or a crawl is doing; empty: there is none."""


def check(path: Path, sizes: Sizes, *, deep: bool = False) -> list[str]:
    """Problems of a store: see `verify`."""
    return verify(path, sizes, deep=deep).problems


def verify(path: Path, sizes: Sizes, *, deep: bool = False) -> Verification:
    """Check a store, also during a crawl.

    ``deep``: also compute what is derived from URLs and visits anew, unless a fold is under way. Raises
    StoreError where there is no store to read, StoreDamagedError where it cannot even be opened.
    """
    environment = Environment(path, True, sizes.map_size)
    try:
        if problem := check_pages(path):
            return Verification([problem], "")
        tables = Tables(environment, open_tables(environment, sizes.block_rows))
        for _ in range(_ATTEMPTS):
            before, problems_now = _counters(tables), _check_tables(tables, deep)
            if not problems_now or _counters(tables) == before:
                break  # else a crawl has changed the store between the reading of two tables
        if tables.fold_marker is None:
            return Verification(problems_now, "")
        fold = (
            f"the fold of cycle {tables.last_cycle + 1} is under way: the crawl that does it, or the next one"
        )
        return Verification(problems_now, f"{fold}, completes it")
    finally:
        environment.close()


def _counters(tables: Tables) -> tuple[Any, ...]:
    with tables.transaction() as txn:
        tables.read_counters(txn)
    return tables.merged_pages, tables.groups, tables.last_cycle, str(tables.fold_marker)


def _check_tables(tables: Tables, deep: bool) -> list[str]:
    sentences = [*_values(tables), *_counts(tables)]
    if not sentences:
        sentences += _ids(tables)
    if deep and not sentences and tables.fold_marker is None:
        sentences += problems(tables)
    return sentences


def check_pages(path: Path) -> str:
    """Problem with the pages that LMDB keeps for itself; empty where there is none."""
    problem = read_all_pages(path)
    return f"{DATA}: LMDB cannot read its pages ({problem})" if problem else ""


def _values(tables: Tables) -> Iterator[str]:
    """Yield every value whose checksum is wrong."""
    for name, table in tables.db.items():
        try:
            with tables.transaction(buffers=True) as txn:
                for key in table.wrong_keys(txn):
                    yield f"{_key_in_words(tables, name, key)}: {MEANING[name]} is damaged"
        except StoreDamagedError as error:
            yield error.what


def _key_in_words(tables: Tables, name: str, key: bytes) -> str:
    """Description of a key."""
    if name == "clusters" and len(key) == U32_PAIR.size:
        return f"{name}: part {', '.join(map(str, U32_PAIR.unpack(key)))}"
    if name in (*_BY_CYCLE, "new") and len(key) == U32_PAIR.size:
        cycle, number = U32_PAIR.unpack(key)
        return f"{name}: cycle {cycle}, {'page' if name == 'new' else 'part'} {number}"
    if len(key) != U32.size:
        return f"{name}: {key.decode('latin-1')}"
    number = U32.unpack(key)[0]
    if name in ("columns", *(kind.table for kind in PAGE_COLUMNS)):
        first = number * tables.block_rows
        return f"{name}: pages {first} to {min(first + tables.block_rows, tables.merged_pages) - 1}"
    return f"{name}: {'cycle' if name == 'cycles' else 'block' if name == 'groups' else 'page'} {number}"


def _counts(tables: Tables) -> Iterator[str]:
    """Compare numbers of values with what the counters say."""
    blocks = -(-tables.merged_pages // tables.block_rows)
    expected = {"ids": tables.merged_pages, "columns": blocks}
    with tables.transaction() as txn:
        for name, count in expected.items():
            if (entries := tables.db[name].entries(txn)) != count:
                yield f"{name}: there should be {count:,} values; found {entries:,}"
        if (entries := tables.db["urls"].entries(txn)) < tables.merged_pages:
            yield f"urls: there should be {tables.merged_pages:,} values or more; found {entries:,}"


def _ids(tables: Tables) -> Iterator[str]:
    """Compare `ids` with the keys in the columns, both ways at once."""
    keys = np.empty(tables.merged_pages, np.uint64)
    try:
        for first, block in tables.blocks():
            keys[first : first + len(block["key"])] = block["key"]
    except (StoreDamagedError, ValueError) as error:
        yield getattr(error, "what", str(error))
        return
    seen, wrong = np.zeros(len(keys), bool), 0
    for listed, pages in _entries(tables):
        known = pages < len(keys)
        right = known.copy()
        right[known] = keys[pages[known]] == listed[known]
        seen[pages[right]] = True
        wrong += int((~right).sum())
    if wrong or not seen.all():
        yield f"ids: of {len(keys):,} pages, {int((~seen).sum()):,} cannot be found by their keys"


def _entries(tables: Tables) -> Iterator[tuple[npt.NDArray[np.uint64], npt.NDArray[np.int64]]]:
    """Yield keys and pages of `ids`, many at a time."""
    with tables.transaction() as txn:
        rows: list[Any] = []
        for row in txn.cursor(tables.db["ids"].handle):
            rows.append(row)
            if len(rows) == _BATCH:
                yield _unpacked(rows)
                rows = []
        yield _unpacked(rows)


def _unpacked(rows: list[Any]) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.int64]]:
    keys = np.frombuffer(b"".join([key for key, _ in rows]), f">u{KEY.size}").astype(np.uint64)
    return keys, np.frombuffer(b"".join([page for _, page in rows]), ">u4").astype(np.int64)


def problems(tables: Tables) -> Iterator[str]:
    """Yield a sentence per problem found. Memory: 50 bytes per page."""
    if tables.fold_marker is not None:
        yield f"the fold of cycle {tables.last_cycle + 1} is not complete: open the store for writing"
        return
    for check_of in (
        _cycles(tables),
        _pages(tables),
        _directories(tables),
        _history(tables),
        _claims(tables),
        _gains(tables),
        _weights(tables),
        _open_cycle(tables),
    ):
        try:
            yield from check_of
        except StoreDamagedError as error:
            yield error.what
        except zlib.error as error:
            yield f"claims: a value cannot be unpacked ({error})"


def _cycles(tables: Tables) -> Iterator[str]:
    with tables.transaction() as txn:
        last = tables.open_cycle(txn) or tables.last_cycle
    records = tables.cycles()
    numbers = [record["cycle"] for record in records]
    if numbers != list(range(1, last + 1)):
        yield f"the cycles should be 1..{last}; found {numbers}"
    for record in records:
        if ("finished" in record) != (record["cycle"] <= tables.last_cycle):
            yield f"cycle {record['cycle']} is {'' if 'finished' in record else 'not '}marked as finished"


def _pages(tables: Tables) -> Iterator[str]:
    """Check ids against the key column, and that every page has one request."""
    pages = tables.merged_pages
    yield from _counts(tables)
    for first, block in tables.blocks():
        keys = block["key"]
        if len(keys) != min(tables.block_rows, pages - first):
            yield f"the block of page {first} has {len(keys)} pages"
        with tables.transaction(buffers=True) as txn:
            for row in np.argsort(keys).tolist():
                page_id = tables.get_id(txn, int(keys[row]))
                if page_id != first + row:
                    yield f"page {first + row} has a key that belongs to page {page_id}"
        try:
            requests = tables.requests(first, first + len(keys))
        except StoreDamagedError as error:
            yield error.what
        else:
            for page, request in enumerate(requests, first):
                if not isinstance(request, dict) or "url" not in request:
                    yield f"page {page} has no URL but {request!r}"


def _history(tables: Tables) -> Iterator[str]:
    """Compare the columns of pages with counts that are computed anew from the visits."""
    pages = tables.merged_pages
    counts: Columns = {name: np.zeros(pages, np.int32) for name in ("n", "X", "last_cycle", "last_attempt")}
    seen, number, replay = np.zeros(pages, bool), 0, Replay(tables)
    for cycle, visits in tables.visits():
        while number < cycle:
            yield from replay.end_cycle(number)
            seen, number = np.zeros(pages, bool), number + 1
        page, outcome = visits["page"], visits["outcome"]
        if (strange := _strange(visits, pages)) is not None:
            yield f"cycle {cycle} {strange}"
            return
        if len(np.unique(page)) != len(page) or seen[page].any():
            yield f"cycle {cycle} has two visits of one page"
        seen[page] = True
        judged = page[among(outcome, JUDGED)]
        replay.visit(visits, cycle)
        np.add.at(counts["n"], judged, 1)
        np.add.at(counts["X"], page[outcome == CHANGED], 1)
        counts["last_attempt"][page] = cycle
        counts["last_cycle"][judged] = cycle
        counts["last_cycle"][page[outcome == FIRST]] = cycle
    for cycle in range(number, tables.last_cycle + 1):
        yield from replay.end_cycle(cycle)
    yield from replay.end()
    counts |= replay.columns()
    for first, block in tables.blocks():
        # What dropped visits did is in columns only.
        known = has_all_visits(block, tables.dropped)
        for name, count in counts.items():
            differs = block[name] != count[first : first + len(block[name])]
            wrong = np.flatnonzero(
                differs & (block[name] > tables.dropped if name == "last_attempt" else known)
            )
            if len(wrong):
                row = wrong[0]
                yield (
                    f"page {first + row} has {name} {block[name][row]}, but {count[first + row]} by its "
                    f"visits (and so have {len(wrong) - 1} other pages of its block)"
                )


def has_all_visits(columns: Columns, dropped: int) -> npt.NDArray[np.bool_]:
    """Mask of pages all of whose visits are kept, where those up to the cycle `dropped` are not."""
    first, unjudged = columns["first_cycle"], columns["n"] == 0
    return np.asarray((first > dropped) | (first == 0) & unjudged | (dropped == 0))


def _strange(visits: npt.NDArray[Any], pages: int) -> str | None:
    if len(visits) and visits["page"].max() >= pages:
        return f"has a visit of page {visits['page'].max()} of {pages}"
    if len(visits) and visits["outcome"].max() >= len(OUTCOMES):
        return f"has a visit with outcome {visits['outcome'].max()}"
    return None


def _open_cycle(tables: Tables) -> Iterator[str]:
    with tables.transaction() as txn:
        cycle, known_pages = tables.open_cycle(txn), tables.merged_pages + len(tables.new_keys(txn))
        visits = np.concatenate([np.empty(0, VISIT), *tables.log(txn)])
    if cycle is None and len(visits):
        yield f"there are {len(visits)} visits in the log but no cycle is open"
    if (strange := _strange(visits, known_pages)) is not None:
        yield f"the open cycle {strange}"
    if len(np.unique(visits["page"])) != len(visits):
        yield "the open cycle has two visits of one page"
    record = tables.cycles()[-1] if cycle is not None else None
    rounds = record.get("rounds", []) if record else []
    if record is None or not rounds:
        return
    planned = record["planned"] or 0
    if planned != sum(one["planned"] for one in rounds):
        yield f"the rounds should have {planned} pages; found {[one['planned'] for one in rounds]}"
    if rounds[-1]["seen"] > len(visits):
        yield f"the last round saw {rounds[-1]['seen']} visits; found {len(visits)}"
    plan = [chunk["page"] for chunk in tables.plan_chunks(record["cycle"], planned)]
    pages = np.concatenate([np.empty(0, np.uint32), *plan])
    if planned != len(pages):
        yield f"the plan should have {planned} pages; found {len(pages)}"
    if len(np.unique(pages)) != len(pages) or (len(pages) and pages.max() >= known_pages):
        yield "the plan has a page twice, or one that does not exist"


_RATE: Final = ("E", "T", "found_cycle")


def _directories(tables: Tables) -> Iterator[str]:
    """Yield what is wrong with the directories of pages whose requests can be read."""
    with tables.transaction() as txn:
        first_urls = {
            U32.unpack(page)[0]: json.loads(bytes(url)) for page, url in tables.db["first_urls"].items(txn)
        }
    numbering, expected = Numbering(np.empty(0, np.uint64)), [np.empty(0, GROUP)]
    for first, block in tables.blocks():
        stop = first + len(block["n"])
        try:
            urls = list(map(url_of, tables.requests(first, stop)))
        except StoreError:  # reported with the pages
            return
        numbered = numbering.number(
            [first_urls.get(page, url) for page, url in zip(range(first, stop), urls, strict=True)]
        )
        expected.append(numbered.new)
        wrong = np.flatnonzero(block["group"] != numbered.group)
        if len(wrong):
            row = wrong[0]
            yield (
                f"page {first + row} is in directory {block['group'][row]}, but in {numbered.group[row]} by "
                f"its URL (and so are {len(wrong) - 1} other pages of its block)"
            )
    stored, by_urls = tables.directories(), np.concatenate(expected)
    if len(stored) != len(by_urls):
        yield f"there should be {len(by_urls)} directories by the URLs; found {len(stored)}"
    elif len(wrong := np.flatnonzero(stored != by_urls)):
        yield f"directory {wrong[0]} has other keys than by its URLs (and so have {len(wrong) - 1} others)"


class Replay:
    """Columns that rates are made of, and sums by directory, computed from the visits alone."""

    def __init__(self, tables: Tables) -> None:
        """Start with pages without visits. Memory: 28 bytes per page."""
        self._tables = tables
        pages = tables.merged_pages
        self._state: Columns = {
            name: np.zeros(pages, terminals.STATE[name]) for name in ("n", "last_cycle", *_RATE)
        }
        self._state["group"] = np.zeros(pages, np.uint32)
        for first, block in tables.blocks():
            group = block["group"][: pages - first]  # a damaged block may have any size
            self._state["group"][first : first + len(group)] = group
        self._parts: list[JudgedVisits] = []

    def visit(self, visits: Array, cycle: int) -> None:
        """Take some visits of a cycle."""
        rows = visits["page"].astype(np.intp)
        if cycle > self._tables.last_cycle - KEPT_CYCLES:
            self._parts.append(judged_visits(self._state, rows, visits["outcome"], cycle))
        columns.observe(self._state, rows, visits["outcome"], cycle)

    def end_cycle(self, cycle: int) -> Iterator[str]:
        """Compare what is kept of a cycle, all of whose visits were taken."""
        expected, stored = sums_by_group(self._parts), self._tables.group_visits(cycle)
        self._parts = []
        if cycle <= self._tables.last_cycle - KEPT_CYCLES:
            expected = NO_VISITS
        if cycle <= self._tables.dropped or np.array_equal(expected, stored):
            return
        if self._tables.dropped:  # the expected changes follow from dropped visits
            names = ["group", "visits", "changes"]
            if np.array_equal(expected[names], stored[names]):
                return
        sums = [dict(zip(one["group"].tolist(), one.tolist(), strict=True)) for one in (expected, stored)]
        group = min(number for number in sums[0] | sums[1] if sums[0].get(number) != sums[1].get(number))
        shown = [_in_words(one.get(group)) for one in sums]
        yield f"of cycle {cycle}, {shown[1]} are kept for directory {group}; by its visits it has {shown[0]}"

    def columns(self) -> Columns:
        """Columns of all pages, all visits taken."""
        return {name: self._state[name] for name in _RATE}

    def end(self) -> Iterator[str]:
        """Look for what should have been dropped."""
        with self._tables.transaction() as txn:
            keys = [U32_PAIR.unpack(key) for key in self._tables.db["group_visits"].keys(txn)]
        last = self._tables.last_cycle
        if keys != [(cycle, 0) for cycle in range(max(1, last - KEPT_CYCLES + 1), last + 1)]:
            yield f"the visits to directories should be those of the last {KEPT_CYCLES} cycles; found {keys}"


def _in_words(visits: tuple[Any, ...] | None) -> str:
    _, judged, changes, predicted = visits or (0,) * len(GROUP_VISITS.names or ())
    return f"{judged} judged visits with {changes} changes, {predicted} expected"


def _claims(tables: Tables) -> Iterator[str]:
    """Yield what is wrong with the claims of a store, as far as nothing of its past was dropped."""
    pages = tables.merged_pages
    with tables.transaction() as txn:
        stored = read_trust(txn, tables.db)
        blocks = [U32.unpack(key)[0] for key in tables.db["hints"].keys(txn)]
    chunks = list(tables.rows_of_cycles(CLAIMS, 0))
    if blocks and max(blocks) * tables.block_rows >= pages:
        yield f"claims are kept of block {max(blocks)}, but there are {pages} pages"
        return
    strange = [cycle for cycle, rows in chunks if len(rows) and rows["page"].max() >= pages]
    if strange:
        yield f"claims of cycle {strange[0]} are about pages that do not exist"
        return
    if tables.dropped or not (chunks or blocks):
        return
    state, counts = replay_claims(tables)
    for block in range(-(-pages // tables.block_rows)):
        first = block * tables.block_rows
        rows = min(tables.block_rows, pages - first)
        with tables.transaction() as txn:
            columns_now = HINTS.read(txn, tables.db, block, rows)
        for name in EXTRAS.keys() - {"seen_min"}:  # the visits of an imported history have no times
            wrong = np.flatnonzero(columns_now[name] != state[name][first : first + rows])
            if len(wrong):
                row = wrong[0]
                yield (
                    f"page {first + row} has {name} {columns_now[name][row]}, but {state[name][first + row]} "
                    f"by what was claimed of it (and so have {len(wrong) - 1} other pages of its block)"
                )
    expected = {site: row for site, row in counts.items() if row.any()}
    counted = {int(row["site"]): row["counts"] for row in stored if row["counts"].any()}
    for site in expected.keys() | counted.keys():
        if not np.array_equal(expected.get(site, 0), counted.get(site, 0)):
            yield f"how often the site {site:#x} was right is counted otherwise than by visits and claims"


def counts_of_sites(tables: Tables) -> Array:
    """Counts of sites, dtype `TRUST`, by site, computed anew: for a store that has dropped no visits."""
    _, counts = replay_claims(tables)
    rows = [(site, of_site) for site, of_site in counts.items() if of_site.any()]
    return np.array(rows, TRUST)


def replay_claims(tables: Tables) -> tuple[Columns, dict[int, Array]]:
    """Columns of claims of all pages, and the counts of sites: by the claims and visits of all cycles."""
    pages = tables.merged_pages
    by_cycle = groupby(tables.rows_of_cycles(CLAIMS, 0), lambda rows_of: rows_of[0])
    claims = {cycle: np.concatenate([rows for _, rows in parts]) for cycle, parts in by_cycle}
    group = np.concatenate([np.empty(0, np.uint32), *(block["group"] for _, block in tables.blocks())])
    state: Columns = {name: np.zeros(pages, np.int32) for name in ("n", "first_cycle", "last_cycle")}
    state |= {"group": group, **HINTS.none(pages)}
    sites, number = np.unique(tables.directories()["site"], return_inverse=True)
    counts = np.zeros((len(sites), len(hints.KINDS), 2, 2))
    for cycle in range(tables.last_cycle + 1):
        visits = np.concatenate(
            [np.empty(0, VISIT), *(rows_of for _, rows_of in tables.visits(cycle, cycle))]
        )
        rows, outcome = visits["page"].astype(np.intp), visits["outcome"]
        claimed = claims.get(cycle, NO_CLAIMS).astype(CLAIM)
        seen = before_visits(state, rows, outcome, claimed, cycle)
        added = hints.counted(seen.outcomes, number[seen.group], len(sites))
        counts = hints.decayed(counts, added)
        columns.observe(state, rows, outcome, cycle)
        after_visits(state, rows, outcome, claimed, cycle, np.zeros(len(rows)))
    return state, dict(zip(sites.tolist(), counts, strict=True))


def _gains(tables: Tables) -> Iterator[str]:
    """Compute the columns of refresh values anew from the gains that are kept."""
    gains = Gains(tables)
    if gains.log is None:
        return
    expected, dropped = gains.counted(), tables.dropped >= gains.since
    stored = tables.all_values(REFRESH_VALUES)
    # What dropped visits gained is in columns only.
    wrong = stored["dq_n"] < expected["dq_n"]
    if not dropped:
        wrong = np.logical_or.reduce([stored[name] != expected[name] for name in refresh_value.COLUMNS])
    if len(pages := np.flatnonzero(wrong)):
        yield f"page {pages[0]} has gained otherwise than by its visits (and so have {len(pages) - 1} others)"


def _weights(tables: Tables) -> Iterator[str]:
    """Check that every weight belongs to a page and is a number that a weight may be."""
    pages, rows = tables.merged_pages, tables.block_rows
    with tables.transaction() as txn:
        for key, value in tables.db["weights"].items(txn):
            block = U32.unpack(key)[0]
            if block * rows >= pages or len(value) % 8 or len(value) > 8 * min(rows, pages - block * rows):
                weighed = counted(len(value) // 8, "page")
                yield f"weights are kept of {weighed} of block {block}, which there are not"
            elif not are_weights(WEIGHTS.unpack(bytes(value), len(value) // 8)["weight"]):
                yield f"a page of block {block} has a weight that is none"
