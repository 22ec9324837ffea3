"""Restoring a history beside whatever else happens: a crawl, a kill, a power cut."""

import json
import os
import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from scrapy_gp4c.errors import StoreError, StoreInUseError
from scrapy_gp4c.scoring import first_visits, measured
from scrapy_gp4c.store import export
from scrapy_gp4c.store.lmdb_store.store import Store
from scrapy_gp4c.store.opening import import_history, remove_leftovers
from scrapy_gp4c.store.records import NewVisit, StoredRequest
from tests.support.stores import pages

LINE = "h\thttp://h/{}\t01\t{{}}"


def to_page(request: StoredRequest) -> tuple[int, StoredRequest]:
    """A page's key by its URL."""
    return int(request["url"].rpartition("/")[2]) + 1, request


def lines(folder: Path, count: int = 3) -> Iterator[tuple[int, str]]:
    """Yield the lines of a history; `place` is where it goes."""
    assert not (folder / "data.mdb").exists()
    for number in range(count):
        yield number + 1, LINE.format(number)


def crawl(folder: Path) -> None:
    with Store(folder) as store:
        store.add_pages(pages(2))
        store.begin_cycle({})
        store.record(NewVisit(1, "first", time=1.0))
        store.finish_cycle({})


def test_a_crawl_that_begins_during_an_import_is_told_who_has_the_store(tmp_path: Path) -> None:
    """The import holds the store from its first line to its last."""
    folder = tmp_path / "store"

    def beside() -> Iterator[tuple[int, str]]:
        for line in lines(folder):
            with pytest.raises(StoreInUseError, match=f"process {os.getpid()}"):
                crawl(folder)
            yield line

    assert import_history(folder, "history", beside(), to_page) == (3, 3)
    with Store(folder) as store:
        assert (store.pages, store.last_cycle, store.verify()) == (3, 3, [])


def test_an_import_replaces_no_finished_cycle(tmp_path: Path) -> None:
    """Nor where somebody removed the lock: what is there by then stays, and the import is an error."""
    folder = tmp_path / "store"

    def beside() -> Iterator[tuple[int, str]]:
        yield from lines(folder)
        (folder / "writer.lock").unlink()
        crawl(folder)

    with pytest.raises(StoreError, match="has 2 pages and 1 cycle"):
        import_history(folder, "history", beside(), to_page)
    with Store(folder) as store:
        assert (store.pages, store.last_cycle, store.verify()) == (2, 1, [])
    assert os.listdir(tmp_path) == ["store"]


def test_an_import_during_a_crawl_is_told_who_has_the_store(tmp_path: Path) -> None:
    """An empty store that a crawl has open is not replaced under it."""
    folder = tmp_path / "store"
    with Store(folder) as store:
        with pytest.raises(StoreInUseError):
            import_history(folder, "history", iter([(1, LINE.format(0))]), to_page)
        store.add_pages(pages(2))
    with Store(folder, readonly=True) as store:
        assert store.pages == 2


def test_an_imported_history_survives_a_power_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The data file is on the disk before it gets its name, and the name before the import is over."""
    events: list[tuple[str, str]] = []
    fsync, replace = os.fsync, os.replace

    def synced(descriptor: int) -> None:
        fsync(descriptor)
        events.append(("sync", os.path.relpath(os.readlink(f"/proc/self/fd/{descriptor}"), tmp_path)))

    def replaced(old: Path, new: Path) -> None:
        replace(old, new)
        events.append(("rename", os.path.relpath(new, tmp_path)))

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", replaced)
    folder = tmp_path / "store"
    import_history(folder, "history", lines(folder), to_page)
    assert events == [
        ("sync", "store.import/data.mdb"),
        ("rename", "store/data.mdb"),
        ("sync", "store"),
        ("sync", "."),
    ]


def test_leftovers_of_a_killed_import_go_with_the_next(tmp_path: Path) -> None:
    """A half-built store beside the place is removed; a directory of other files by that name is not."""
    folder, leftover = tmp_path / "store", tmp_path / "store.import"
    for clean in ("restore", "urls"):
        crawl(leftover)
        if clean == "restore":
            import_history(folder, "history", lines(folder), to_page)
        else:
            remove_leftovers(folder)
        assert os.listdir(tmp_path) == ["store"]
    leftover.mkdir()
    (leftover / "thesis.tex").write_text("years of work")
    remove_leftovers(folder)
    folder.rename(tmp_path / "old")
    with pytest.raises(StoreError, match="holds other files: move it away"):
        import_history(folder, "history", lines(folder), to_page)
    assert (leftover / "thesis.tex").read_text() == "years of work"


@pytest.mark.parametrize("pages_per_batch", [7, 10_000])
def test_rates_and_directories_come_back(tmp_path: Path, pages_per_batch: int) -> None:
    """Exported and imported, pages have the columns that they had, and directories the visits to them."""
    numbers = random.Random(3)
    cycles, count = 12, 40
    with Store(tmp_path / "one") as one:
        one.add_pages((n + 1, {"url": f"http://h{n % 3}/{n % 5}/{n % 7}/{n}"}) for n in range(count))
        fingerprints = [page + 1 for page in range(count)]
        for cycle in range(1, cycles + 1):
            one.begin_cycle({"cycle": cycle})
            for page in range(count):
                seen = one.page(page)
                outcome = numbers.choice(("changed", "unchanged", "not_modified", "error"))
                if not seen.has_copy or (cycle == cycles and page % 9 == 0):
                    outcome = numbers.choice(("first", "error"))
                if numbers.random() < 0.7 and page != 31:
                    if outcome == "changed":
                        fingerprints[page] = numbers.getrandbits(64)
                    bits = fingerprints[page] if outcome in ("first", "changed", "unchanged") else 0
                    one.record(NewVisit(page, outcome, 1.0, fingerprint=bits, latency_s=page / 100))
            for what, value in (("link", 63), ("link", 5), ("link_site", 7), ("anchor", 0.7)):
                one.note(31, what, value)  # a page that waits for its first visit
            one.finish_cycle({"finished": 1.0})
        text = list(enumerate(export.lines(one), 1))
        columns = [one.page(page) for page in range(count)]
        links = {
            name: one.columns_of(np.arange(count, dtype=np.uint32))[name] for name in first_visits.COLUMNS
        }
        directories, sums = one.directories(), [one.group_visits(cycle) for cycle in range(cycles + 1)]
    assert len(directories) > 20
    assert any(len(visits) for visits in sums)
    assert [column[31].item() for column in links.values()] == [2**63 + 2**5, 2**7, np.float16(0.7)]
    restored = import_history(
        tmp_path / "other", "history", iter(text), to_page, pages_per_batch=pages_per_batch
    )
    assert restored == (count, cycles)
    with Store(tmp_path / "other") as other:
        assert other.verify() == []
        assert [one.distance_n for one in columns] != [0] * count
        again = list(export.lines(other))[cycles + 1 :]
        assert [json.loads(line.split("\t")[3]).get("flipped") for line in again] == [
            json.loads(line.split("\t")[3]).get("flipped") for _, line in text[cycles + 1 :]
        ]
        for page, expected in enumerate(columns):
            result = other.page(page)
            for name in (
                "n",
                "X",
                "first_cycle",
                "last_cycle",
                "E",
                "T",
                "found_cycle",
                "group",
                *measured.COLUMNS,
            ):
                assert getattr(result, name) == getattr(expected, name), (page, name)
        for name, column in other.columns_of(np.arange(count, dtype=np.uint32)).items():
            assert name not in links or column.tolist() == links[name].tolist(), name
        assert other.directories().tobytes() == directories.tobytes()
        assert [other.group_visits(cycle).tobytes() for cycle in range(cycles + 1)] == [
            visits.tobytes() for visits in sums
        ]
