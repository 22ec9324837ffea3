"""Stores of different hosts as one: each page has what it had, and what cannot be put together says so."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from scrapy_gp4c.errors import StoreError, StoreInUseError
from scrapy_gp4c.page_state.groups import place_of_url
from scrapy_gp4c.store.lmdb_store.store import Store
from scrapy_gp4c.store.lmdb_store.uniting import unite
from scrapy_gp4c.store.opening import forget, open_store
from scrapy_gp4c.store.page_store import PageStore
from scrapy_gp4c.store.records import NewVisit
from tests.store.test_store_kill import SMALL, crawl, key
from tests.support.by_key import pages_by_key, rows_by_key


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """A crawl of twenty hosts, as three stores that have the hosts of equal remainder each."""
    folder = tmp_path_factory.mktemp("parts")
    with Store(folder / "whole", sizes=SMALL) as store:
        store.add_pages(
            (key(number), {"url": f"http://h{number % 20}.org/{number % 3}/{number}"}) for number in range(60)
        )
        crawl(store, lambda cycle, count: None)
        store.begin_cycle({"started": 1e9, "secret_params": ["sid"], "seed": 7, "plan": {"known": 60}})
        for page in range(0, store.pages, 2):
            store.set_validators(page, f'"{page}"', None)
            store.record(NewVisit(page, "changed", 1e9 + page, fingerprint=page, bytes=9))
        visited = len(range(0, store.pages, 2))
        store.finish_cycle(
            {
                "visited": visited, "judged": visited, "changed": visited, "change_rate": 1.0,
                "outcomes": {"changed": visited}, "finished": 1e9 + 99, "planned": visited,
            }
        )  # fmt: skip
    made = []
    for number in range(3):
        made.append(folder / f"part{number}")
        shutil.copytree(folder / "whole", made[-1])
        forget(made[-1], SMALL, lambda store, own=number: remainders(store) != own)
    return made


def remainders(store: PageStore) -> Any:
    """Of the number in each page's host."""
    sites = [place_of_url(store.request(page)["url"]).site for page in range(store.pages)]
    return np.array([int(site.partition(".")[0].strip("h") or 0) % 3 for site in sites])


def visits_by_key(store: PageStore) -> set[tuple[Any, ...]]:
    """All visits, with their cycles."""
    keys = [store.page(page).key for page in range(store.pages)]
    return {(cycle, *row) for cycle, rows in store.visits() for row in rows_by_key(rows, keys)}


def test_pages_have_what_they_had(parts: list[Path], tmp_path: Path) -> None:
    """Columns, requests, validators, visits; the pages come store by store, and the store is sound."""
    before = {path: (path / "data.mdb").read_bytes() for path in parts}
    steps: list[tuple[str, int, int]] = []
    pages, cycles = unite(parts, tmp_path / "one", SMALL, lambda *step: steps.append(step))
    assert {path: (path / "data.mdb").read_bytes() for path in parts} == before
    with open_store(tmp_path / "one", readonly=True, sizes=SMALL) as one:
        assert one.verify() == []
        assert (one.pages, one.last_cycle) == (pages, cycles)
        together: dict[int, Any] = {}
        visits: set[tuple[Any, ...]] = set()
        for path in parts:
            with open_store(path, readonly=True, sizes=SMALL) as part:
                assert part.pages > 0
                together |= pages_by_key(part)
                visits |= visits_by_key(part)
        assert pages_by_key(one) == together
        assert list(together) == [one.page(page).key for page in range(one.pages)]
        assert visits_by_key(one) == visits
    assert steps[:3] == [("stores", 1, 3), ("stores", 2, 3), ("stores", 3, 3)]


def test_records_are_summed(parts: list[Path], tmp_path: Path) -> None:
    """Counts are sums; what is true of one store alone is left out; names of secrets are those of all."""
    unite(parts, tmp_path / "one", SMALL)
    records = []
    for path in (tmp_path / "one", *parts):
        with open_store(path, readonly=True, sizes=SMALL) as store:
            records.append(store.cycles()[-1])
    one, own = records[0], records[1:]
    for name in ("visited", "judged", "changed", "planned"):
        assert one[name] == sum(record[name] for record in own)  # type: ignore[literal-required]
    assert one["outcomes"] == {"changed": one["changed"]}
    assert (one["change_rate"], one["seed"], one["secret_params"]) == (1.0, 7, ["sid"])
    assert "plan" not in one


def test_what_cannot_be_put_together(parts: list[Path], tmp_path: Path) -> None:
    """The same host twice, fewer cycles, a cycle that is open, a store that a crawl has: one error."""

    def refused(other: Path, expected: str) -> None:
        with pytest.raises(StoreError, match=expected):
            unite([parts[0], other], tmp_path / "one", SMALL)
        assert not (tmp_path / "one").exists()

    refused(
        parts[0].parent / "whole", r"of different hosts.*found pages of h\d+(\.org)? and \d+ more hosts in"
    )
    with Store(tmp_path / "behind", sizes=SMALL) as store:
        store.add_pages([(1, {"url": "http://elsewhere.org/"})])
    refused(tmp_path / "behind", r"as many cycles each.* and .*behind with 0\. Run the spider")
    shutil.copytree(parts[1], tmp_path / "open")
    with Store(tmp_path / "open", sizes=SMALL) as store:
        store.begin_cycle({"started": 1.0})
        with pytest.raises(StoreInUseError):
            unite([parts[0], tmp_path / "open"], tmp_path / "one", SMALL)
    refused(tmp_path / "open", "is not finished: run the spider until it is, then put it together")
