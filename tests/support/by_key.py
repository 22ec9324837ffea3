"""All that a store has, told without page ids and numbers of directories: the same for any order of these."""

from collections import Counter
from typing import Any

import numpy as np

from scrapy_gp4c.page_state.claims import WHAT
from scrapy_gp4c.scoring.discovery import START
from scrapy_gp4c.store.opening import Store

FOUND_BY = WHAT.index("found_by")


def keys_of(store: Store) -> list[int]:
    """Key of every page."""
    return [store.page(page).key for page in range(store.pages)]


def rows_by_key(rows: Any, keys: list[int]) -> list[tuple[Any, ...]]:
    """Rows with a field ``page``, with keys instead; NaN is None."""
    names = [name for name in rows.dtype.names if name != "page"]
    pages = [keys[page] for page in rows["page"].tolist()]
    values = [[None if value != value else value for value in rows[name].tolist()] for name in names]
    return list(zip(pages, *values, strict=True))


def pages_by_key(store: Store) -> dict[int, dict[str, Any]]:
    """All that is kept of each page."""
    keys, directories = keys_of(store), store.directories().tolist()
    content: dict[int, dict[str, Any]] = {}
    for page, key in enumerate(keys):
        row = store.page(page)._asdict()
        directory = directories[row.pop("group")] if page < store.merged_pages else None
        finder = row.pop("found_by")
        content[key] = {
            **row,
            "directory": directory,
            "finder": finder if finder in (0, START) else keys[finder - 1],
            "request": store.request(page),
            "validators": store.validators(page),
            "copy": store.copy_notes(page),
            "description": store.has_description(page),
            "weight": store.weights.of(page),
            "visited": store.visited(page),
        }
    for first, block in store.blocks():
        for row_number in range(len(block["key"])):
            page_content = content[keys[first + row_number]]
            for name, column in block.items():
                value = column[row_number].item()
                if name not in ("group", "found_by", "weight"):
                    assert page_content.setdefault(name, value) == value
            assert directories[block["group"][row_number]] == page_content["directory"]
            finder = int(block["found_by"][row_number])
            assert page_content["finder"] == (finder if finder in (0, START) else keys[finder - 1])
    return content


def content(store: Store) -> dict[str, Any]:
    """All that can be asked of a store but its path."""
    keys, directories = keys_of(store), store.directories()["key"].tolist()
    visits: dict[int, set[tuple[Any, ...]]] = {}
    for cycle, rows in store.visits():
        visits.setdefault(cycle, set()).update(rows_by_key(rows, keys))
    claims: dict[int, list[tuple[Any, ...]]] = {}
    for cycle, rows in store.hints.of_cycles(0):
        if len(rows):
            claims.setdefault(cycle, []).extend(rows_by_key(rows, keys))
    notes = []
    for key, what, value in rows_by_key(store.notes(), keys):
        is_page = what == FOUND_BY and 0 < value < START
        notes.append((key, what, keys[int(value) - 1] if is_page else value))
    last = store.last_cycle
    return {
        "pages": pages_by_key(store),
        "ids": [store.find(key) for key in keys] == list(range(store.pages)),
        "many": store.hints.find(np.array(keys, np.uint64)).tolist() == list(range(store.pages)),
        "new": {keys[page] for page in store.new_pages()},
        "counts": (store.pages, store.merged_pages, last, store.open_cycle, store.planned()),
        "cycles": store.cycles(),
        "rounds": store.rounds(),
        "plan": rows_by_key(store.plan(), keys),
        "open": rows_by_key(store.open_visits(), keys),
        "visits": visits,
        "claims": {cycle: Counter(rows) for cycle, rows in claims.items()},
        "trust": [(row["site"].item(), row["counts"].tolist()) for row in store.trust()],
        "notes": Counter(notes),
        "shadows": [sorted(rows_by_key(store.shadows(cycle), keys)) for cycle in (last, last + 1)],
        "groups": [
            {directories[row[0]]: row[1:] for row in store.group_visits(cycle).tolist()}
            for cycle in range(last + 2)
        ],
        "descriptions": {keys[page]: packed for page, packed in store.descriptions()},
    }
