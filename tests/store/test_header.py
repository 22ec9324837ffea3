"""Truncated store files: noticed before LMDB maps them, whatever they lack."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from scrapy_gp4c.errors import StoreDamagedError
from scrapy_gp4c.page_state.blocks import pack
from scrapy_gp4c.store.lmdb_store.environment import read_header
from scrapy_gp4c.store.lmdb_store.store import Store
from scrapy_gp4c.store.records import NewVisit
from tests.support.stores import pages

PAGE = os.sysconf("SC_PAGE_SIZE")
READ_ALL = """
import sys
from scrapy_gp4c.errors import StoreDamagedError
from scrapy_gp4c.store.lmdb_store.store import Store
for path in sys.argv[2:]:
    try:
        with Store(path, readonly=sys.argv[1] == "reader") as store:
            store.verify()
            if sys.argv[1] == "writer":
                store.begin_cycle({})
                store.finish_cycle({})
        print("sound")
    except StoreDamagedError:
        print("damaged")
"""


@pytest.fixture(scope="module")
def crawled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with large values, small ones, and a free list of several pages."""
    path = tmp_path_factory.mktemp("crawled") / "store"
    with Store(path) as store:
        store.add_pages(pages(6000))
        for _ in range(3):
            store.begin_cycle({})
            for page in range(0, 6000, 2):
                store.record(NewVisit(page, "first", time=1.0, fingerprint=page))
            store.finish_cycle({})
    return path


@pytest.mark.parametrize("who", ["reader", "writer"])
def test_a_truncated_store_ends_nobody_with_a_signal(tmp_path: Path, crawled: Path, who: str) -> None:
    """Cut by 1 to 32 pages and at random: an error, or nothing that was cut off was ever referred to."""
    whole = (crawled / "data.mdb").stat().st_size // PAGE
    left = {whole - cut for cut in (1, 2, 3, 5, 8, 13, 21, 32)}
    left |= {int(one) for one in np.random.default_rng(7).integers(2, whole, 12)}
    copies = []
    for kept in sorted(left):
        copies.append(tmp_path / str(kept))
        shutil.copytree(crawled, copies[-1])
        os.truncate(copies[-1] / "data.mdb", kept * PAGE)
    command = [sys.executable, "-c", READ_ALL, who, *map(str, copies)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert set(done.stdout.split()[:12]) == {"damaged"}
    assert len(done.stdout.split()) == len(copies)


def test_a_large_value_that_is_cut_off_is_noticed(tmp_path: Path) -> None:
    """The end of a block of columns at the end of the file, which no tree page names."""
    with Store(tmp_path / "store") as store:
        store.add_pages(pages(3000))
    data = tmp_path / "store" / "data.mdb"
    content = data.read_bytes()
    with Store(tmp_path / "store", readonly=True) as store:
        ((_, block),) = store.blocks()
        start = content.rindex(pack(block))
    os.truncate(data, (start // PAGE + 2) * PAGE)
    with pytest.raises(StoreDamagedError, match="is truncated"):
        Store(tmp_path / "store", readonly=True)


def test_a_file_shorter_than_its_header_says_may_be_sound(tmp_path: Path) -> None:
    """Pages at the end to which nothing refers need not be there."""
    with Store(tmp_path / "store") as store:
        store.add_pages(pages(300))
    data = tmp_path / "store" / "data.mdb"
    content = bytearray(data.read_bytes())
    for meta in (0, PAGE):  # the number of the last page
        content[meta + 136 : meta + 144] = (len(content) // PAGE + 5).to_bytes(8, sys.byteorder)
    data.write_bytes(content)
    with Store(tmp_path / "store") as store:
        assert store.pages == 300


@pytest.mark.parametrize("commits", range(6))
def test_a_header_is_read_while_a_writer_commits(tmp_path: Path, commits: int) -> None:
    """What is committed between the reading of its first half and of its second is no damage."""

    class Overtaken(io.FileIO):
        """A file that is written as soon as its first meta page is read."""

        left = 2

        def seek(self, at: int, whence: int = 0, /) -> int:
            if at and self.left:
                self.left -= 1
                for _ in range(commits):
                    store.begin_cycle({})
                    store.finish_cycle({})
            return super().seek(at, whence)

    with Store(tmp_path / "store") as store:
        store.add_pages(pages(30))
        with Overtaken(tmp_path / "store" / "data.mdb") as file:
            found = read_header(file)
            assert 0 <= read_header(file).transaction - found.transaction <= 1


def test_halves_of_a_header_that_never_fit_are_damage(tmp_path: Path) -> None:
    """Read twice, to the same end: nobody is writing."""
    with Store(tmp_path / "store") as store:
        store.add_pages(pages(30))
    data = tmp_path / "store" / "data.mdb"
    content = bytearray(data.read_bytes())
    content[PAGE + 144 : PAGE + 152] = (10**6 + 1).to_bytes(8, sys.byteorder)
    data.write_bytes(content)
    with pytest.raises(StoreDamagedError, match="damaged header"):
        Store(tmp_path / "store", readonly=True)
