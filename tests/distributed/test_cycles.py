"""Cycles: one opener, one closing, the same for all."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from scrapy_gp4c.distributed import cycles, exchange, objects
from scrapy_gp4c.distributed.arithmetic import Arithmetic
from scrapy_gp4c.distributed.connection import Connection
from scrapy_gp4c.distributed.cycles import Decided, Joined
from scrapy_gp4c.distributed.errors import CodeDiffersError, CycleClosedError, DiffersError
from scrapy_gp4c.distributed.exchange import Step
from scrapy_gp4c.distributed.leases import Worker
from scrapy_gp4c.distributed.ledger import LedgerThread
from scrapy_gp4c.distributed.log import Flush, Letter, Progress, flush, read_log
from scrapy_gp4c.distributed.objects import Owned
from scrapy_gp4c.distributed.places import Blobs
from scrapy_gp4c.distributed.polling import poll
from tests.support.ledgers import CODE, DECIDED, flush_of, joined, opened, segments_of, taken
from tests.support.postgres import Server


def all_done(ledger: Connection, worker: Worker, cycle: int, number: int = 1) -> dict[int, int]:
    """Let a worker take all shards and be done with them; returns their tokens."""
    tokens = {shard: taken(ledger, worker, shard).token for shard in range(4)}
    progress = dict.fromkeys(tokens, Progress(1, True))
    ledger.single(flush, worker, Flush(number, cycle, tokens, progress=progress))
    return tokens


def test_the_first_opens_and_others_join(ledger: Connection) -> None:
    """What the opener decided holds for all; a difference is told, for one warning."""
    assert ledger.call(cycles.state) == (0, True, float("inf"))
    first = opened(ledger, joined(ledger))
    assert (first.cycle, first.opened, first.differs, first.decided) == (1, True, (), DECIDED)
    other = Decided({"formula": "n", "seed": 7, "budget": 0.05, "policy": "top_k"}, {"GP4C_NEW_PAGES": None})
    second = ledger.single(cycles.join, joined(ledger, "two"), other, CODE)
    assert second is not None
    assert (second.cycle, second.opened, second.decided) == (1, False, DECIDED)
    assert second.differs == (
        "GP4C_NEW_PAGES: None here, 100 in the cycle",
        "formula: 'n' here, 'X / n' in the cycle",
        "policy: 'top_k' here, None in the cycle",
    )
    assert second.started == first.started


def test_other_code_is_refused(ledger: Connection) -> None:
    """Each kind is named, with both sides."""
    opened(ledger, joined(ledger))
    worker = joined(ledger, "two")
    for name, value in (
        ("features", ("n",)),
        ("names", ()),
        ("fingerprint", "simhash/2"),
        ("version", "1.1"),
    ):
        with pytest.raises(
            CodeDiffersError, match=rf"cycle 1 was opened by 'one' with another {name}: expected"
        ):
            ledger.single(cycles.join, worker, DECIDED, CODE._replace(**{name: value}))


def test_other_arithmetic_is_refused(ledger: Connection) -> None:
    """With the remedy; what the same bits were computed by does not matter."""
    code = CODE._replace(arithmetic=Arithmetic("aa", ("OLD",)))
    assert ledger.single(cycles.join, joined(ledger), DECIDED, code, 0.0) is not None
    worker = joined(ledger, "two")
    same = code._replace(arithmetic=Arithmetic("aa", ("NEW", "OLD")))
    assert ledger.single(cycles.join, worker, DECIDED, same) is not None
    other = code._replace(arithmetic=Arithmetic("bb", ("NEW", "OLD")))
    with pytest.raises(
        CodeDiffersError,
        match=r"opened by 'one' with another arithmetic: .* expected aa, .* found bb\. .*"
        r'set NPY_DISABLE_CPU_FEATURES="NEW" in the environment of this worker',
    ):
        ledger.single(cycles.join, worker, DECIDED, other)


def test_a_cycle_that_was_opened_before_arithmetics_were_told(ledger: Connection) -> None:
    """Tells none, which is another one: nobody knows by which it was planned."""
    worker = joined(ledger)
    opened(ledger, worker)
    ledger.call(lambda tx: tx.execute("UPDATE gp4c.cycle SET code = %s", (json.dumps(CODE[:4]),)))
    with pytest.raises(CodeDiffersError, match="with another arithmetic"):
        ledger.single(cycles.join, worker, DECIDED, CODE._replace(arithmetic=Arithmetic("aa")))
    assert ledger.single(cycles.join, worker, DECIDED, CODE) is not None


def test_a_cycle_is_opened_when_it_is_due(ledger: Connection) -> None:
    """So long after the last opening, and not while that one is open."""
    worker = joined(ledger)
    first = opened(ledger, worker)
    assert opened(ledger, worker) == first._replace(opened=False)
    all_done(ledger, worker, 1)
    assert ledger.call(cycles.close, 1)
    assert ledger.single(cycles.join, worker, DECIDED, CODE, 3600.0) is None
    assert opened(ledger, worker).cycle == 2
    assert ledger.call(cycles.state)[:2] == (2, False)


def test_workers_that_open_at_once_open_one(connect: Callable[..., Connection]) -> None:
    """One is the opener, and all have its words."""
    ledger = connect()
    start = threading.Barrier(4)
    threads = [LedgerThread(connect()) for _ in range(4)]
    workers = [joined(ledger, f"w{number}") for number in range(4)]

    def open_one(thread: LedgerThread, number: int) -> Joined:
        mine = Decided({"seed": number}, {})
        thread.call(lambda tx: start.wait())
        found = thread.single(cycles.join, workers[number], mine, CODE)
        assert found is not None
        return found

    found: list[Joined] = []
    asking = [
        threading.Thread(target=lambda thread=thread, number=number: found.append(open_one(thread, number)))
        for number, thread in enumerate(threads)
    ]
    for one in asking:
        one.start()
    for one in asking:
        one.join()
    for thread in threads:
        thread.close()
    assert [one.cycle for one in found] == [1] * 4
    assert sum(one.opened for one in found) == 1
    assert len({one.decided.record["seed"] for one in found}) == 1


def test_a_cycle_closes_when_all_are_done_and_no_mail_is_left(ledger: Connection) -> None:
    """A shard that is not done, or a letter, keeps it open; closing twice is closing once."""
    worker = joined(ledger)
    opened(ledger, worker)
    lease = taken(ledger, worker, 0)
    ledger.single(flush, worker, flush_of(1, 1, lease, done=True))
    assert not ledger.call(cycles.close, 1)
    tokens = all_done(ledger, worker, 1, 2)
    ledger.single(flush, worker, Flush(3, 1, tokens, letters=(Letter(0, 1, b""),)))
    assert not ledger.call(cycles.close, 1)
    (letter,) = ledger.single(poll, worker).letters
    ledger.single(flush, worker, Flush(4, 1, tokens, consumed=(letter.id,), progress={1: Progress(2, False)}))
    assert not ledger.call(cycles.close, 1)
    ledger.single(
        flush, worker, Flush(5, 1, tokens, tuple(segments_of(1, 1)), progress={1: Progress(2, True)})
    )
    assert ledger.call(cycles.close, 1)
    assert ledger.call(cycles.close, 1)
    with pytest.raises(CycleClosedError, match="cycle 1 is not open"):
        ledger.single(flush, worker, Flush(6, 1, tokens, tuple(segments_of(0, 1))))
    with pytest.raises(DiffersError, match="the ledger has no cycle 2"):
        ledger.call(cycles.close, 2)


def test_no_flush_slips_into_a_cycle_that_closes(connect: Callable[..., Connection]) -> None:
    """One that is under way is waited for, and keeps the cycle open if it sends mail."""
    ledger, closing = connect(), connect()
    worker = joined(ledger)
    opened(ledger, worker)
    tokens = all_done(ledger, worker, 1)
    thread = LedgerThread(closing)

    def slow(tx: object) -> object:
        flush(tx, worker, Flush(2, 1, tokens, letters=(Letter(0, 1, b""),)))
        done = thread.post(cycles.close, 1)
        while not done.running():
            pass
        return done

    found = ledger.call(slow)
    assert not found.result()
    thread.close()


def test_the_record_is_written_once(ledger: Connection) -> None:
    """Another one is an error, and so is one of an open cycle; records are read in order."""
    worker = joined(ledger)
    for cycle in (1, 2):
        opened(ledger, worker)
        with pytest.raises(DiffersError, match="or the cycle is not closed"):
            ledger.call(cycles.keep_record, cycle, {"cycle": cycle})
        all_done(ledger, worker, cycle, cycle)
        ledger.call(cycles.close, cycle)
        for _ in range(2):
            ledger.call(cycles.keep_record, cycle, {"cycle": cycle, "visited": 7})
        with pytest.raises(DiffersError, match=f"record of cycle {cycle} differs"):
            ledger.call(cycles.keep_record, cycle, {"cycle": cycle, "visited": 8})
    assert [record["cycle"] for record in ledger.call(cycles.records)] == [1, 2]
    assert [record["cycle"] for record in ledger.call(cycles.records, 2)] == [2]


def test_old_reports_are_dropped(ledger: Connection) -> None:
    """Those of the last two cycles stay for whoever is late."""
    worker = joined(ledger)
    for cycle in range(1, 5):
        opened(ledger, worker)
        ledger.call(exchange.put_answer, Step(cycle, "cut"), b"")
        all_done(ledger, worker, cycle, cycle)
        ledger.call(cycles.close, cycle)
    kept = [ledger.call(exchange.answer, Step(cycle, "cut")) for cycle in range(1, 5)]
    assert kept == [None, None, b"", b""]


def test_whoever_closes_a_cycle_opens_the_log_of_the_next_one(
    ledger: Connection, server: Server, database: str
) -> None:
    """Whoever opens that finds it; of a cycle that cannot be closed yet there is none."""
    worker = joined(ledger)
    opened(ledger, worker)
    log_2 = "SELECT to_regclass('gp4c.log_2') IS NOT NULL"
    assert not ledger.call(cycles.close, 1)
    assert server.execute(log_2, database) == [(False,)]
    all_done(ledger, worker, 1)
    assert ledger.call(cycles.close, 1)
    assert server.execute(log_2, database) == [(True,)]
    assert opened(ledger, worker).cycle == 2


def test_a_log_is_dropped_when_its_objects_are_there(
    ledger: Connection, tmp_path: Path, server: Server, database: str
) -> None:
    """Of all shards that recorded anything; before, and while the cycle is open, it stays."""
    worker = joined(ledger)
    opened(ledger, worker)
    tokens = {shard: taken(ledger, worker, shard).token for shard in range(4)}
    ledger.single(flush, worker, Flush(1, 1, tokens, (*segments_of(0, 1), *segments_of(2, 1))))
    path = tmp_path / "cycle"
    path.write_bytes(b"all visits")
    place = Blobs(ledger)
    objects.put(ledger, place, Owned(0, tokens[0]), "cycle", 1, path)
    objects.put(ledger, place, Owned(2, tokens[2]), "snapshot", 1, path)
    all_done(ledger, worker, 1, 2)
    assert not ledger.call(cycles.drop_log, 1)
    ledger.call(cycles.close, 1)
    assert not ledger.call(cycles.drop_log, 1)
    objects.put(ledger, place, Owned(2, tokens[2]), "cycle", 1, path)
    assert len(list(read_log(ledger, 1, 2))) == 1
    for _ in range(2):
        assert ledger.call(cycles.drop_log, 1)
    assert server.execute("SELECT to_regclass('gp4c.log_1')", database) == [(None,)]
    assert opened(ledger, worker).cycle == 2
