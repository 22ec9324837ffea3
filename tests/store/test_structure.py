"""The trees of a store's file: what is wrong with them is told before LMDB follows them."""

from __future__ import annotations

import os
import random
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from scrapy_gp4c.errors import StoreDamagedError
from scrapy_gp4c.store.lmdb_store import structure
from scrapy_gp4c.store.lmdb_store.header import NoLmdbFileError
from scrapy_gp4c.store.lmdb_store.store import Store
from scrapy_gp4c.store.lmdb_store.structure import look
from scrapy_gp4c.store.records import NewVisit
from tests.store.test_sealed import flipped, read_all, varied
from tests.store.test_store_kill import in_child, wait
from tests.support.stores import pages

PAGE = os.sysconf("SC_PAGE_SIZE")


@pytest.fixture(scope="module")
def crawled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of a small store with something in every table."""
    return varied(tmp_path_factory.mktemp("crawled") / "store") / "data.mdb"


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of a store whose trees have branches, and a free list."""
    path = tmp_path_factory.mktemp("large") / "store"
    with Store(path) as store:
        store.add_pages(pages(3000, padding="x" * 100))
        for _ in range(2):
            store.begin_cycle({})
            for page in range(0, 3000, 3):
                store.record(NewVisit(page, "first", time=1.0, fingerprint=page))
            store.finish_cycle({})
    return path / "data.mdb"


def test_a_sound_file_is_sound(crawled: Path, large: Path) -> None:
    """All its pages are looked at."""
    for data in (crawled, large):
        looked = look(data)
        assert looked == look(data, thorough=True)
        assert looked.pages == looked.of > 10


def test_of_many_leaves_some_are_looked_at(large: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All branches, and a sample of leaves; a thorough look takes all."""
    monkeypatch.setattr(structure, "ALL_LEAVES", 10)
    monkeypatch.setattr(structure, "SAMPLED_LEAVES", 5)
    looked = look(large)
    assert 10 < looked.pages < looked.of / 3
    assert look(large, thorough=True).pages == looked.of


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@example(place=135, change=b"\0\0\0\0\0\6", wipes=False)  # a last page that no memory has room for
@example(place=135, change=b"\xff" * 8, wipes=False)
@given(place=st.integers(0, 2**40), change=st.binary(min_size=1, max_size=12), wipes=st.booleans())
def test_any_bytes_are_sound_or_one_error(
    large: Path, tmp_path: Path, place: int, change: bytes, wipes: bool
) -> None:
    """Whatever stands in a file, looking at it ends with a verdict."""
    content = bytearray(large.read_bytes())
    # Half of all changes are where LMDB's own bytes are densest.
    at = place % len(content) if place % 2 else place // 2 % (len(content) // PAGE) * PAGE + place // 2 % 64
    content[at : at + len(change)] = change[: len(content) - at]
    if wipes:
        content[at // PAGE * PAGE : (at // PAGE + 1) * PAGE] = bytes(PAGE)
    (tmp_path / "data.mdb").write_bytes(content)
    with suppress(NoLmdbFileError):
        look(tmp_path / "data.mdb")


@pytest.mark.parametrize("how", ["flip", "zero"])
def test_no_damage_is_silent_and_none_ends_the_process(tmp_path: Path, crawled: Path, how: str) -> None:
    """A flipped bit or a page of zeros anywhere: all is read as it was, or an error says what is damaged."""
    sound, content = list(read_all(crawled.parent)), crawled.read_bytes()
    numbers = random.Random(3)

    def work(path: Path) -> None:
        try:
            assert list(read_all(path)) == sound
        except StoreDamagedError:
            os._exit(2)

    ends: list[Any] = []
    for number in range(30):
        path = tmp_path / str(number)
        path.mkdir()
        at = numbers.randrange(len(content) // PAGE) * PAGE
        damaged = content[:at] + bytes(PAGE) + content[at + PAGE :]
        if how == "flip":
            # At the beginning of a page there is its header, at its end are its nodes.
            damaged = flipped(content, 8 * (at + int(numbers.choice(np.r_[0:60, PAGE - 500 : PAGE]))))
        (path / "data.mdb").write_bytes(damaged)
        ends.append(wait(in_child(partial(work, path))))
    assert set(ends) == {0, 2}
