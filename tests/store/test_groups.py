"""Numbers of directories, their blocks, and what is kept of the visits to them."""

from pathlib import Path
from tempfile import TemporaryDirectory

import lmdb
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from scrapy_gp4c.page_state.groups import GROUP, GROUP_VISITS, Place, add_up, place_of_url
from scrapy_gp4c.store.lmdb_store.environment import Table
from scrapy_gp4c.store.lmdb_store.store import Store
from scrapy_gp4c.store.lmdb_store.tables import (
    JudgedVisits,
    Numbering,
    append_directories,
    read_directories,
    sums_by_group,
)
from scrapy_gp4c.store.records import NewVisit
from tests.support.stores import pages

URL = st.builds("http://h{}/{}/{}".format, *[st.integers(0, 3)] * 3) | st.text(max_size=8)
URLS = st.lists(URL, max_size=12)


@given(bulks=st.lists(URLS, max_size=5), reopened=st.booleans())
def test_directories_are_numbered_in_the_order_in_which_they_are_come_upon(
    bulks: list[list[str]], reopened: bool
) -> None:
    """Whatever comes in one bulk or in several, and whether the known ones were read anew between."""
    numbering, known = Numbering(np.empty(0, np.uint64)), np.empty(0, GROUP)
    expected: dict[Place, int] = {}
    for urls in bulks:
        numbered = numbering.number(urls)
        known = np.concatenate([known, numbered.new])
        assert numbered.group.dtype == np.uint32
        assert numbered.group.tolist() == [
            expected.setdefault(place_of_url(url), len(expected)) for url in urls
        ]
        assert [tuple(row) for row in known.tolist()] == [place.keys() for place in expected]
        if reopened:
            numbering = Numbering(known["key"])


@given(sizes=st.lists(st.integers(0, 7), max_size=6), rows=st.integers(1, 5))
def test_blocks_of_directories_are_filled_one_after_the_other(sizes: list[int], rows: int) -> None:
    """Appended in any portions they read as they were written, in full blocks but for the last."""
    directories = np.zeros(sum(sizes), GROUP)
    directories["key"] = np.arange(len(directories)) + 1
    with TemporaryDirectory() as path, lmdb.open(path, max_dbs=1) as environment:
        table = Table(Path(path), "groups", environment.open_db(b"groups"))
        with environment.begin(write=True) as txn:
            count = 0
            for size in sizes:
                append_directories(txn, table, directories[count : count + size], count, rows)
                count += size
            result = read_directories(txn, table, count)
            assert result.tolist() == directories.tolist()
            lengths = [len(value) // GROUP.itemsize for _, value in table.items(txn)]
    assert lengths == [rows] * (count // rows) + [count % rows] * (count % rows > 0)


VISIT = st.tuples(st.integers(0, 10**9), st.booleans(), st.floats(0, 1), st.booleans())


@given(visits=st.lists(VISIT, max_size=30))
def test_counting_costs_nothing_for_directories_without_visits(
    visits: list[tuple[int, bool, float, bool]],
) -> None:
    """Numbers of any size are counted one by one, in any parts."""
    parts = []
    for start in range(0, len(visits), 7):
        group, *of_visits = map(np.array, zip(*visits[start : start + 7], strict=True))
        parts.append(JudgedVisits(group.astype(np.uint32), *of_visits))
    expected: dict[int, list[float]] = {}
    for group, changed, predicted, warmup in visits:
        sums = expected.setdefault(group, [0, 0, 0.0, 0, 0])
        sums[0] += 1
        sums[1] += changed
        sums[2] += round(predicted * 2**24) / 2**24
        sums[3] += warmup
        sums[4] += warmup and changed
    counted = sums_by_group(parts)
    assert counted.dtype == GROUP_VISITS
    assert counted.tolist() == [(group, *expected[group]) for group in sorted(expected)]


def test_a_page_stays_in_the_directory_in_which_it_was_found(tmp_path: Path) -> None:
    """A request that is replaced by one to another URL moves nothing that was found there."""
    with Store(tmp_path) as store:
        store.add_pages(pages(3))
        store.begin_cycle({})
        new = store.add_page(50, {"url": "http://h/new/1"})
        for url in ("http://h/other/0", "http://h/third/0"):
            store.set_request(0, {"url": url})
            store.set_request(new, {"url": url})
            store.commit()
        store.set_request(1, {"url": "http://h/other-page-of-the-same"})
        store.record(NewVisit(0, "first", 1.0))
        store.finish_cycle({})
        assert [store.page(page).group for page in range(4)] == [0, 0, 0, 1]
        assert store.request(new)["url"] == "http://h/third/0"
        assert store.verify() == []
        first = list(store.first_urls().values())
    assert first == ["http://h/0", "http://h/new/1"]


def test_the_last_eight_cycles_are_kept(tmp_path: Path) -> None:
    """Each as one value, with the visits that can be judged; older ones and the open one are empty."""
    with Store(tmp_path) as store:
        store.add_pages((number + 1, {"url": f"http://h/{number % 2}/x"}) for number in range(4))
        for cycle in range(1, 13):
            assert store.begin_cycle({}) == cycle
            for page, outcome in enumerate(("changed", "unchanged", "error", "not_modified")):
                store.record(NewVisit(page, "first" if cycle == 1 else outcome, 1.0))
            if cycle < 12:
                store.finish_cycle({})
        store.commit()
        sums = [store.group_visits(cycle) for cycle in range(14)]
        assert [len(visits) for visits in sums] == [*[0] * 4, *[2] * 8, 0, 0]
        assert sums[5][["group", "visits", "changes"]].tolist() == [(0, 1, 1), (1, 2, 0)]
        full = add_up(sums)
        assert full[["group", "visits", "changes"]].tolist() == [(0, 8, 8), (1, 16, 0)]
        assert store.verify() == []
