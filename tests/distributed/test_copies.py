"""Copies of shards: built again they are the same, after any kill, and snapshots stay within their bound."""

from __future__ import annotations

import multiprocessing
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from scrapy_gp4c.distributed import closed_cycles, copies, cycles, objects, schema
from scrapy_gp4c.distributed.connection import Connection
from scrapy_gp4c.distributed.errors import LedgerDamagedError
from scrapy_gp4c.distributed.ledger import open_ledger
from scrapy_gp4c.distributed.places import Blobs, place_of
from scrapy_gp4c.store.opening import LmdbShard, open_shard
from tests.support.ledgers import joined
from tests.support.logged import SHARDS, SIZES, Brought, Logged, Step, contents, die_at


@pytest.fixture
def logged(ledger: Connection, tmp_path: Path) -> Iterator[Logged]:
    """A shard whose objects are in the ledger."""
    one = Logged(ledger, joined(ledger), Blobs(ledger), tmp_path, ledger.call(schema.about).ledger)
    yield one
    one.shard.close()


def built(logged: Logged, name: str = "built") -> LmdbShard:
    """The shard, built of its copies in another place."""
    path = logged.folder / name
    copies.build(logged.ledger, logged.place, logged.of, path, SIZES)
    return open_shard(path, SHARDS, SIZES)


def test_what_is_built_is_the_same(logged: Logged) -> None:
    """After each of some cycles: columns byte by byte, visits, records, requests, finders and shadows."""
    for cycle in range(1, 5):
        logged.crawl(300 if cycle == 1 else 20, 0.5)
        logged.keep(logged.close())
        with built(logged, f"built-{cycle}") as one:
            assert contents(one) == contents(logged.shard)
            assert one.verify() == []
    known = logged.ledger.call(objects.copies, 0)
    assert known.snapshot is not None
    stored = logged.ledger.call(objects.registered, 0)
    assert [one.cycle for one in stored if one.kind == "cycle"] == [1, 2, 3, 4]
    assert sum(one.log for one in stored) == logged.log_bytes


def test_a_cycle_takes_fewer_bytes_than_its_log(logged: Logged) -> None:
    """Its segments are made into one, though what the fold needs besides is added."""
    logged.crawl(3000, 0.0)
    logged.keep(logged.close())
    (stored,) = (one for one in logged.ledger.call(objects.registered, 0) if one.kind == "cycle")
    assert stored.size < stored.log == logged.log_bytes


def test_who_missed_cycles_goes_through_them(logged: Logged) -> None:
    """A directory that was left behind by closed cycles is brought to where the others are."""
    logged.crawl(300, 0.0)
    logged.keep(logged.close())
    logged.shard.close()
    shutil.copytree(logged.folder / "shard", logged.folder / "left")
    logged.shard = open_shard(logged.folder / "shard", SHARDS, SIZES)
    for _ in range(2):
        logged.crawl(5, 0.3)
        logged.keep(logged.close())
    with open_shard(logged.folder / "left", SHARDS, SIZES) as left:
        missed = logged.ledger.call(objects.copies, 0, left.last_cycle).cycles
        assert [one.cycle for one in missed] == [2, 3]
        copies.replay(logged.place, left, missed)
        assert contents(left) == contents(logged.shard)


def test_a_log_that_lost_a_segment_makes_no_object(logged: Logged) -> None:
    """What the shard has and the log has not is told, and the log stays."""
    logged.crawl(300, 0.0)
    brought = logged.close()
    logged.ledger.call(lambda tx: tx.execute("DELETE FROM gp4c.log WHERE seq = 2"))
    with pytest.raises(LedgerDamagedError, match="the log has 200 visits, the shard 300"):
        logged.keep(brought)
    assert logged.ledger.call(objects.registered) == []
    assert not logged.ledger.call(cycles.drop_log, 1)


def damaged(logged: Logged, name: str, change: Callable[[bytes], bytes]) -> None:
    """Change an object where it lies."""
    content = change(b"".join(logged.place.read(name)))
    logged.place.write(name, [content])


@pytest.mark.parametrize("kind", ["cycle", "snapshot"])
def test_a_damaged_object_is_named_by_who_builds(logged: Logged, kind: str) -> None:
    """And one that is missing between others; nothing is left that might be taken for the shard."""
    for _ in range(3):
        logged.crawl(300, 0.2)
        logged.keep(logged.close())
    known = logged.ledger.call(objects.copies, 0)
    assert known.snapshot is not None
    if kind == "cycle":
        logged.ledger.call(lambda tx: tx.execute("DELETE FROM gp4c.object WHERE kind = 'snapshot'"))
        victim = next(one for one in logged.ledger.call(objects.registered, 0) if one.cycle == 2)
    else:
        victim = known.snapshot
    damaged(logged, victim.name, lambda content: content[:50] + b"x" + content[51:])
    with pytest.raises(LedgerDamagedError, match=f"object {victim.name} at the ledger is damaged"):
        built(logged)
    if kind == "cycle":
        logged.ledger.call(lambda tx: tx.execute("DELETE FROM gp4c.object WHERE cycle = 2"))
        with pytest.raises(LedgerDamagedError, match="shard 0 has no object of cycle 2, and later ones"):
            built(logged, "again")


STEPS = (
    Step(closed_cycles, "write", 1, after=True),
    Step(objects, "_checked", 1, after=False),
    Step(objects, "_register", 1, after=False),
    Step(objects, "_register", 1, after=True),
    Step(copies, "put_snapshot", 1, after=False),
    Step(objects, "_register", 2, after=False),
    Step(objects, "_register", 2, after=True),
    Step(objects, "clean", 1, after=True),
    Step(cycles, "drop_log", 1, after=False),
    Step(cycles, "drop_log", 1, after=True),
)


def keep_and_die(dsn: str, logged: Logged, brought: Brought, step: Step) -> None:
    """Store copies in a process that dies at a step."""
    die_at(step)
    logged.ledger = open_ledger(dsn)
    logged.place = place_of(None, logged.ledger)
    logged.shard = open_shard(logged.folder / "shard", SHARDS, SIZES)
    logged.keep(brought)


@pytest.mark.parametrize("step", STEPS, ids=lambda one: f"{one.name}-{one.call}-{one.after}")
def test_a_kill_costs_nothing(logged: Logged, dsn: str, step: Step) -> None:
    """kill -9 at each step: done again, each cycle has one object, the log is gone, and all is built."""
    logged.crawl(400, 0.0)
    brought = logged.close()
    logged.shard.close()
    child = multiprocessing.get_context("fork").Process(
        target=keep_and_die, args=(dsn, logged, brought, step)
    )
    child.start()
    child.join()
    assert child.exitcode == -signal.SIGKILL
    logged.shard = open_shard(logged.folder / "shard", SHARDS, SIZES)
    logged.keep(brought)
    found = logged.ledger.call(objects.registered, 0)
    assert [(one.kind, one.cycle) for one in found if one.kind == "cycle"] == [("cycle", 1)]
    assert logged.ledger.call(lambda tx: tx.execute("SELECT to_regclass('gp4c.log_1')").fetchone()) == (None,)
    logged.crawl(50, 0.5)
    logged.keep(logged.close())
    with built(logged) as one:
        assert contents(one) == contents(logged.shard)
    left = {one.name for one in logged.ledger.call(objects.registered, 0)}
    objects.clean(logged.ledger, logged.place, logged.copying.owned)
    assert set(logged.place.names(f"{logged.of.store_id}/0000/")) == left


def test_snapshots_stay_within_three_times_the_log(logged: Logged, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over 200 cycles, at each of them, and from the last one on few cycles are left to go through."""
    snapshots: list[int] = []
    real = objects.put

    def counting(*arguments: object) -> objects.Stored:
        stored = real(*arguments)  # type: ignore[arg-type] # whatever it is given
        if stored.kind == "snapshot":
            snapshots.append(stored.size)
        return stored

    monkeypatch.setattr(objects, "put", counting)
    for cycle in range(200):
        logged.crawl(1000 if cycle == 0 else 2, 0.05)
        logged.keep(logged.close())
        assert sum(snapshots) <= 3 * logged.log_bytes
    assert len(snapshots) >= 2
    with built(logged) as one:
        assert contents(one) == contents(logged.shard)
    known = logged.ledger.call(objects.copies, 0)
    print(
        f"200 cycles: log {logged.log_bytes:,} bytes, {len(snapshots)} snapshots of {sum(snapshots):,}, "
        f"{len(known.cycles)} cycles since the last"
    )
