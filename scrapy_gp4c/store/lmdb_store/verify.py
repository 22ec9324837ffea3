"""Verification of a store: every checksum and count, and on demand all derived data recomputed.

A problem is one sentence that names the table, the pages or cycle, and the meaning of the damaged value.
"""

import zlib
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.arrays import Array
from scrapy_gp4c.errors import StoreDamagedError, StoreError
from scrapy_gp4c.foreign_text import counted
from scrapy_gp4c.page_state import columns
from scrapy_gp4c.page_state.claims import CLAIM, NO_CLAIMS, after_visits, before_visits
from scrapy_gp4c.page_state.columns import COLUMNS, Columns
from scrapy_gp4c.page_state.groups import GROUP, KEPT_CYCLES, SUMS
from scrapy_gp4c.page_state.outcomes import OUTCOMES, VISIT
from scrapy_gp4c.scoring import hints, refresh_value
from scrapy_gp4c.scoring.weights import are_weights
from scrapy_gp4c.store.lmdb_store.environment import (
    DATA,
    KEY,
    U32,
    U32_PAIR,
    Environment,
    damaged,
    read_all_pages,
    split,
)
from scrapy_gp4c.store.lmdb_store.page_facts import read_trust
from scrapy_gp4c.store.lmdb_store.tables import (
    CLAIMS,
    HINTS,
    PAGE_COLUMNS,
    PLANS,
    USUAL,
    WEIGHTS,
    Numbering,
    Tables,
    judged_visits,
    open_tables,
    sums_by_group,
    url_of,
)
from scrapy_gp4c.store.records import TRUST

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
    "clusters": "what pages are in which cluster, and how they are linked",
    "hints": "what sites claim of a block of pages",
    "claims": "what sites claimed in a cycle",
    "trust": "how often sites were right",
    "weights": "the weights of a block of pages",
    "links": "the links to a block of pages",
    "shadows": "shadows of a cycle's control group",
}
"""Table -> meaning of one of its values, in words for people."""
_BY_CYCLE: Final = (
    "visits", "log", "plans", "group_visits", "notes", "gains", "claims", "trust", "shadows",
)  # fmt: skip
"""Tables with keys (cycle, part)."""


class Verification(NamedTuple):
    """Result of the verification of a store."""

    problems: list[str]
    """A sentence for each damaged value; empty: the store is sound."""
    under_way: str
    """Sentence about an unfinished fold (the pass that ends a cycle); "": there is none."""


def check(path: Path, *, deep: bool = False) -> list[str]:
    """Return only the problems that `verify` finds; [] for a sound store."""
    return verify(path, deep=deep).problems


def verify(path: Path, *, deep: bool) -> Verification:
    """Check all checksums and counts of the store at `path`, also during a crawl.

    ``deep``: also recompute values that follow from URLs and visits, unless a fold is under way. Raises
    StoreError where there is no store to read, StoreDamagedError where it cannot even be opened.
    """
    with closing(Environment(path, readonly=True)) as environment:
        if problem := check_tree_pages(path):
            return Verification([problem], "")
        tables = Tables(environment, open_tables(environment, USUAL.block_rows))
        for _ in range(_ATTEMPTS):
            before, problems_now = _counters(tables), _check_tables(tables, deep)
            if not problems_now or _counters(tables) == before:
                break  # else a crawl has changed the store between the reading of two tables
        if tables.fold_marker is None:
            return Verification(problems_now, "")
        fold = f"the fold of cycle {tables.last_cycle + 1} is under way"
        return Verification(problems_now, f"{fold}: the crawl that does it, or the next one, completes it")


def _counters(tables: Tables) -> tuple[Any, ...]:
    with tables.transaction() as txn:
        tables.read_counters(txn)
    return tables.merged_pages, tables.groups, tables.last_cycle, str(tables.fold_marker)


def _check_tables(tables: Tables, deep: bool) -> list[str]:
    if sentences := [*_values(tables), *_counts(tables)]:
        return sentences
    return list(problems(tables) if deep and tables.fold_marker is None else _ids(tables))


def check_tree_pages(path: Path) -> str:
    """Return a sentence if LMDB cannot read all B-tree pages of the store's file, else ""."""
    problem = read_all_pages(path)
    return f"{DATA}: LMDB cannot read its pages ({problem})" if problem else ""


def _values(tables: Tables) -> Iterator[str]:
    for name, table in tables.db.items():
        try:
            with tables.transaction(buffers=True) as txn:
                for key in table.wrong_keys(txn):
                    yield f"{_key_in_words(tables, name, key)}: {MEANING[name]} is damaged"
        except StoreDamagedError as error:
            yield error.what


def _key_in_words(tables: Tables, name: str, key: bytes) -> str:
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
    """Yield a problem for each of `ids`, `columns`, `urls` with another number of values than expected."""
    blocks = -(-tables.merged_pages // tables.block_rows)
    expected = {"ids": tables.merged_pages, "columns": blocks}
    with tables.transaction() as txn:
        for name, count in expected.items():
            if (entries := tables.db[name].entries(txn)) != count:
                yield f"{name}: there should be {count:,} values; found {entries:,}"
        if (entries := tables.db["urls"].entries(txn)) < tables.merged_pages:
            yield f"urls: there should be {tables.merged_pages:,} values or more; found {entries:,}"


def _ids(tables: Tables) -> Iterator[str]:
    """Yield a problem if pages cannot be found in `ids` by the keys in their columns."""
    missing = 0
    try:
        for first, block in tables.blocks({"key"}):
            order = np.argsort(block["key"])
            keys = split(block["key"][order].astype(">u8").tobytes(), KEY.size)
            pages = split((order + first).astype(">u4").tobytes(), U32.size)
            with tables.transaction() as txn:
                listed = dict(txn.cursor(tables.db["ids"].handle).getmulti(keys))
            missing += sum(listed.get(key) != page for key, page in zip(keys, pages, strict=True))
    except (StoreDamagedError, ValueError) as error:
        yield getattr(error, "what", str(error))
    if missing:
        yield f"ids: of {counted(tables.merged_pages, 'page')}, {missing:,} cannot be found by their keys"


def problems(tables: Tables) -> Iterator[str]:
    """Yield a sentence per problem between tables, for a deep `verify`. Memory: 50 bytes per page."""
    if tables.fold_marker is not None:
        yield f"the fold of cycle {tables.last_cycle + 1} is not complete: open the store for writing"
        return
    for check_of in (
        _counts(tables),
        _ids(tables),
        _cycles(tables),
        _pages(tables),
        _directories(tables),
        _history(tables),
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
        last = tables.unfinished_cycle(txn) or tables.last_cycle
    records = tables.cycles()
    numbers = [record["cycle"] for record in records]
    if numbers != list(range(1, last + 1)):
        yield f"the cycles should be 1..{last}; found {numbers}"
    for record in records:
        if ("finished" in record) != (record["cycle"] <= tables.last_cycle):
            yield f"cycle {record['cycle']} is {'' if 'finished' in record else 'not '}marked as finished"


def _pages(tables: Tables) -> Iterator[str]:
    """Yield a problem for each block of columns with a wrong number of pages, and each page without a URL."""
    pages = tables.merged_pages
    for first, block in tables.blocks():
        keys = block["key"]
        if len(keys) != min(tables.block_rows, pages - first):
            yield f"the block of page {first} has {counted(len(keys), 'page')}"
        try:
            requests = tables.merged_requests(first, first + len(keys))
        except StoreDamagedError as error:
            yield error.what
        else:
            for page, request in enumerate(requests, first):
                if not isinstance(request, dict) or "url" not in request:
                    yield f"page {page} has no URL but {request!r}"


class Derived(NamedTuple):
    """Values of a store as recomputed by `derive` from its visits and claims."""

    state: Columns
    """Columns `_COUNTED` and `HINTS` of all pages, ``[P]``."""
    sums: dict[int, Array]
    """Cycle -> sums of its visits by directory, dtype `GROUP_VISITS`: of the last `KEPT_CYCLES` cycles."""
    trust: Array
    """How often claims of sites were right, dtype `TRUST`, by site, without sites that have no counts."""


def derive(tables: Tables) -> Derived:
    """Recompute page columns, directory sums and trust from stored visits and claims.

    Memory: 60 bytes per page. Raises StoreDamagedError for impossible visits, claims or directories.
    """
    pages, last = tables.merged_pages, tables.last_cycle
    groups = [block["group"] for _, block in tables.blocks(["group"])]
    group = np.concatenate([np.empty(0, np.uint32), *groups])
    sites, site_of = np.unique(tables.site_keys(), return_inverse=True)
    claims = dict(tables.whole_cycles(CLAIMS, 0))
    claimed_page = max((rows["page"].max(initial=0) for rows in claims.values()), default=0)
    is_known = group.max(initial=0) < max(1, len(site_of)) and claimed_page < max(1, pages)
    if len(group) != pages or not is_known:
        raise damaged(tables.path, "columns, groups and claims are not of the same pages")
    state: Columns = {name: np.zeros(pages, COLUMNS[name]) for name in _COUNTED}
    state |= {"group": group, **HINTS.none(pages)}
    counts, sums = np.zeros((len(sites), len(hints.KINDS), 2, 2)), dict[int, Array]()
    for cycle in range(last + 1):
        visits = np.concatenate([np.empty(0, VISIT), *(rows for _, rows in tables.visits(cycle, cycle))])
        if strange := _strange(visits, pages):
            raise damaged(tables.path, f"cycle {cycle} {strange}")
        rows, outcome = visits["page"].astype(np.intp), visits["outcome"]
        claimed = claims.get(cycle, NO_CLAIMS).astype(CLAIM)
        if claims:
            seen = before_visits(state, rows, outcome, claimed, cycle)
            counts = hints.decayed(counts, hints.counted(seen.outcomes, site_of[seen.group], len(sites)))
        if cycle > max(0, last - KEPT_CYCLES):
            sums[cycle] = sums_by_group([judged_visits(state, rows, visits, cycle)])
        columns.observe(state, rows, outcome, cycle)
        state["last_attempt"][rows] = cycle
        if claims:
            after_visits(state, rows, outcome, claimed, cycle, np.zeros(len(rows)))
    trust = [(site, of_site) for site, of_site in zip(sites, counts, strict=True) if of_site.any()]
    return Derived(state, sums, np.array(trust, TRUST))


def _history(tables: Tables) -> Iterator[str]:
    """Yield differences between stored columns, sums, trust and what `derive` recomputes."""
    derived, names = derive(tables), [*_COUNTED[1:]]
    yield from _sums(tables, derived.sums)
    if not tables.dropped:  # what dropped visits did is in columns only
        names += hints.COLUMNS.keys() - {"seen_min"}  # the visits of an imported history have no times
    for first, block in tables.blocks():
        known = has_all_visits(block, tables.dropped)
        for name in names:
            expected = derived.state[name][first : first + len(block[name])]
            is_known = block[name] > tables.dropped if name == "last_attempt" else known
            if len(wrong := np.flatnonzero((block[name] != expected) & is_known)):
                row = wrong[0]
                yield (
                    f"page {first + row} has {name} {block[name][row]}, but {expected[row]} by its visits "
                    f"and claims ({counted(len(wrong), 'such page')} in its block)"
                )
    with tables.transaction() as txn:
        trust = read_trust(txn, tables.db)
        blocks = [U32.unpack(key)[0] for key in tables.db["hints"].keys(txn)]
    if blocks and max(blocks) * tables.block_rows >= tables.merged_pages:
        yield f"claims are kept of block {max(blocks)}, but there are {counted(tables.merged_pages, 'page')}"
    if not tables.dropped and not np.array_equal(trust[trust["counts"].any(axis=(1, 2, 3))], derived.trust):
        yield "the counts of right and wrong claims by site are not those of the visits"


def _sums(tables: Tables, expected_sums: dict[int, Array]) -> Iterator[str]:
    for cycle, expected in expected_sums.items():
        stored = tables.group_visits(cycle)
        # Expected changes follow from dropped visits, too.
        names = ["group", *(name for name in SUMS if name != "predicted" or not tables.dropped)]
        if cycle > tables.dropped and not np.array_equal(expected[names], stored[names]):
            yield f"of cycle {cycle}, the sums by directory are not those of its visits"
    with tables.transaction() as txn:
        keys = [U32_PAIR.unpack(key) for key in tables.db["group_visits"].keys(txn)]
    if keys != [(cycle, 0) for cycle in expected_sums]:
        yield f"the visits to directories should be those of the last {KEPT_CYCLES} cycles; found {keys}"


def has_all_visits(columns: Columns, dropped: int) -> npt.NDArray[np.bool_]:
    """Mask of the pages without deleted visits; ``dropped``: last cycle of deleted visits, 0: none."""
    first, unjudged = columns["first_cycle"], columns["n"] == 0
    return np.asarray((first > dropped) | (first == 0) & unjudged | (dropped == 0))


def _strange(visits: Array, pages: int) -> str:
    """Return what is wrong with a cycle's visits, in words; "": nothing. ``pages``: number of known pages."""
    if len(visits) and visits["page"].max() >= pages:
        return f"has a visit of page {visits['page'].max()} of {pages}"
    if len(visits) and visits["outcome"].max() >= len(OUTCOMES):
        return f"has a visit with outcome {visits['outcome'].max()}"
    return "has two visits of one page" if len(np.unique(visits["page"])) != len(visits) else ""


def _open_cycle(tables: Tables) -> Iterator[str]:
    with tables.transaction() as txn:
        cycle, known_pages = tables.unfinished_cycle(txn), tables.merged_pages + len(tables.new_keys(txn))
        visits = np.concatenate([np.empty(0, VISIT), *tables.log(txn)])
        record = tables.last_record(txn) if cycle is not None else None
    if cycle is None and len(visits):
        yield f"there are {counted(len(visits), 'visit')} in the log but no cycle is open"
    if strange := _strange(visits, known_pages):
        yield f"the open cycle {strange}"
    rounds = record.get("rounds", []) if record else []
    if record is None or not rounds:
        return
    planned = record["planned"] or 0
    if planned != sum(one["planned"] for one in rounds):
        yield f"the rounds should have {counted(planned, 'page')}; found {[one['planned'] for one in rounds]}"
    if rounds[-1]["seen"] > len(visits):
        yield f"the last round saw {counted(rounds[-1]['seen'], 'visit')}; found {len(visits)}"
    with tables.transaction() as txn:
        pages = PLANS.read(txn, tables.db, record["cycle"])["page"]
    if planned != len(pages):
        yield f"the plan should have {counted(planned, 'page')}; found {len(pages)}"
    if len(np.unique(pages)) != len(pages) or (len(pages) and pages.max() >= known_pages):
        yield "the plan has a page twice, or one that does not exist"


_COUNTED: Final = ("first_cycle", "n", "X", "last_cycle", "last_attempt", "E", "T", "found_cycle")
"""Page columns that `derive` recomputes; `_history` compares all but the first."""


def _directories(tables: Tables) -> Iterator[str]:
    """Yield differences between the stored directories and those of the pages' URLs."""
    first_urls = tables.first_urls()
    numbering, expected = Numbering(np.empty(0, np.uint64)), [np.empty(0, GROUP)]
    for first, block in tables.blocks():
        stop = first + len(block["n"])
        try:
            urls = list(map(url_of, tables.merged_requests(first, stop)))
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
                f"its URL ({counted(len(wrong), 'such page')} in its block)"
            )
    stored, by_urls = tables.directories(), np.concatenate(expected)
    if len(stored) != len(by_urls):
        expected_count = counted(len(by_urls), "directory", "directories")
        yield f"there should be {expected_count} by the URLs; found {len(stored)}"
    elif len(wrong := np.flatnonzero(stored != by_urls)):
        alike = counted(len(wrong), "such directory", "such directories")
        yield f"directory {wrong[0]} has other keys than by its URLs ({alike})"


def _gains(tables: Tables) -> Iterator[str]:
    if (log := tables.gains_log()) is None:
        return
    expected, dropped = tables.summed_gains(log[1]), tables.dropped >= log[1]
    for first, block in tables.blocks():
        by_visits = {name: expected[name][first : first + len(block["n"])] for name in refresh_value.COLUMNS}
        # What dropped visits gained is in columns only.
        wrong = block["dq_n"] < by_visits["dq_n"]
        if not dropped:
            wrong = np.logical_or.reduce([block[name] != values for name, values in by_visits.items()])
        if len(rows := np.flatnonzero(wrong)):
            pages = counted(len(rows), "such page")
            yield f"the gain of page {first + rows[0]} is not that of its visits ({pages} in its block)"


def _weights(tables: Tables) -> Iterator[str]:
    """Yield a problem for each block with weights that belong to no page or are out of range."""
    pages, rows = tables.merged_pages, tables.block_rows
    with tables.transaction() as txn:
        for key, value in tables.db["weights"].items(txn):
            block = U32.unpack(key)[0]
            if block * rows >= pages or len(value) % 8 or len(value) > 8 * min(rows, pages - block * rows):
                weighed = counted(len(value) // 8, "page")
                yield f"there are weights for {weighed} of block {block} that do not exist"
            elif not are_weights(WEIGHTS.unpack(bytes(value), len(value) // 8)["weight"]):
                yield f"a page of block {block} has an invalid weight"
