"""What a sealed commit is as bytes."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scrapy_gp4c.page_state.outcomes import VISIT
from scrapy_gp4c.store.lmdb_store.packing import pack_rest, unpacked
from scrapy_gp4c.store.lmdb_store.unsaved import OF_PAGES, Unsaved
from scrapy_gp4c.store.opening import Sizes, new_shard, open_shard
from scrapy_gp4c.store.records import NewVisit
from scrapy_gp4c.store.shards.part import ShardOf

PAGES = st.dictionaries(st.integers(0, 2**32 - 1), st.binary(max_size=20), max_size=4)


@given(PAGES, PAGES, st.lists(st.tuples(st.sampled_from(OF_PAGES), PAGES)), st.lists(st.floats(0, 9)))
def test_what_is_packed_comes_back(
    pages: dict[int, bytes],
    requests: dict[int, bytes],
    values: list[tuple[str, dict[int, bytes]]],
    notes: list[float],
) -> None:
    """New pages, requests, values, those that are none, and notes."""
    sealed = Unsaved()
    sealed.pages, sealed.requests = pages, requests
    for name, kept in values:
        sealed.values[name].update({page: value or None for page, value in kept.items()})
    for page, value in enumerate(notes):
        sealed.note(page, "weight", value)
    rest = pack_rest(sealed)
    found = unpacked(np.empty(0, VISIT), rest)
    assert (found.pages, found.requests, found.values) == (sealed.pages, sealed.requests, sealed.values)
    assert found.notes().tobytes() == sealed.notes().tobytes()
    assert pack_rest(found) == rest


@given(st.binary(max_size=60))
def test_other_bytes_are_refused_or_make_a_commit(raw: bytes) -> None:
    """Nothing but ValueError comes of them."""
    with suppress(ValueError):
        assert pack_rest(unpacked(np.empty(0, VISIT), raw)) is not None


def test_a_shard_is_built_again_from_what_it_sealed(tmp_path: Path) -> None:
    """Nothing is in its file before it is acknowledged; what is applied elsewhere is the same, once."""
    sizes = Sizes(commit_visits=2**31 - 1)
    for name in ("one", "other"):
        new_shard(tmp_path / name, ShardOf(1, 4, "crawl"), sizes)
    with (
        open_shard(tmp_path / "one", 4, sizes) as one,
        open_shard(tmp_path / "other", 4, sizes) as other,
    ):
        for shard in (one, other):
            shard.wait()
            shard.begin_cycle({"started": 1.0})
        page = one.add_page(7, {"url": "http://a/"})
        one.record(NewVisit(page, "first", 1.0, "new", fingerprint=5))
        one.set_validators(page, "e", None)
        one.commit()
        assert one.acknowledged_visits == 0
        sealed = one.seal(0)
        assert sealed is not None
        one.write()
        other.apply(sealed, 0)
        for shard in (one, other):
            assert (shard.applied, shard.acknowledged_visits, shard.pages) == (1, 1, 1)
        assert other.open_visits().tobytes() == one.open_visits().tobytes()
        assert other.validators(0) == ("e", None)
        with pytest.raises(ValueError, match="expected new pages from 1 on"):
            other.apply(sealed, 0)


def test_acknowledged_segments_are_written_together(tmp_path: Path) -> None:
    """One transaction for a hundred visits, with a round, or before anybody asks how far the shard is."""
    sizes = Sizes(commit_visits=2**31 - 1)
    new_shard(tmp_path / "one", ShardOf(1, 4, "crawl"), sizes)
    with open_shard(tmp_path / "one", 4, sizes) as one:
        one.wait()
        one.begin_cycle({"started": 1.0})

        def transactions() -> int:
            return int(one.environment.lmdb.info()["last_txnid"])

        def visit(number: int, seq: int) -> None:
            for key in range(number):
                page = one.add_page(1000 * seq + key + 1, {"url": f"http://a/{seq}/{key}"})
                one.record(NewVisit(page, "first", 1.0, "new", fingerprint=5))
            assert one.seal(seq) is not None
            one.write()

        before = transactions()
        for seq in range(3):
            visit(33, seq)
        assert transactions() == before
        visit(1, 3)
        assert transactions() == before + 1
        visit(1, 4)
        assert transactions() == before + 1
        assert (one.applied, one.acknowledged_visits, transactions()) == (5, 101, before + 2)
        visit(1, 5)
        assert (one.acknowledged_visits, transactions()) == (102, before + 2)
        one.add_round([], seen=102, plan={})
        assert (transactions(), one.rounds()) == (before + 3, [{"planned": 0, "seen": 102}])
        assert (one.applied, transactions()) == (6, before + 3), "they went with the round"
        visit(1, 6)
        one.wait(False)
        assert transactions() == before + 4
        assert len(one.open_visits()) == 103
