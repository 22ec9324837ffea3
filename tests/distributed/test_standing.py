"""Where the crawl as a whole stands: by cycles, copies and segments in the ledger alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from scrapy_gp4c.distributed import cycles, objects
from scrapy_gp4c.distributed.connection import Connection
from scrapy_gp4c.distributed.errors import DiffersError
from scrapy_gp4c.distributed.exchange import Posted, Step, Waiting, post
from scrapy_gp4c.distributed.log import Flush, Progress, flush
from scrapy_gp4c.distributed.objects import Owned
from scrapy_gp4c.distributed.places import Blobs
from scrapy_gp4c.distributed.schema import about
from scrapy_gp4c.distributed.standing import appended, begun, come_to, standing
from tests.support.ledgers import DECIDED, joined, opened, segments_of, taken
from tests.support.postgres import NEEDS_POSTGRES

pytestmark = NEEDS_POSTGRES


def test_a_cycle_is_complete_when_all_shards_have_a_copy(ledger: Connection, tmp_path: Path) -> None:
    """Not while it is open, nor closed with copies missing, nor by copies of the cycle before."""
    now = ledger.call(standing)
    assert (now.last.cycle, now.is_complete) == (0, True)
    worker = joined(ledger)
    held = [taken(ledger, worker, shard) for shard in range(4)]
    (tmp_path / "copy").write_bytes(b"a shard")
    for cycle in (1, 2):
        assert opened(ledger, worker).cycle == cycle
        assert not ledger.call(standing).is_complete
        done = {lease.shard: Progress(1, True) for lease in held}
        tokens = {lease.shard: lease.token for lease in held}
        ledger.single(flush, worker, Flush(cycle, cycle, tokens, progress=done))
        assert ledger.call(cycles.close, cycle)
        for lease in held:
            assert not ledger.call(standing).is_complete
            owned = Owned(lease.shard, lease.token)
            objects.put(ledger, Blobs(ledger), owned, "snapshot", cycle, tmp_path / "copy")
        now = ledger.call(standing)
        assert (now.last.cycle, now.is_complete) == (cycle, True)


def test_a_cycle_is_as_its_opener_has_decided(ledger: Connection) -> None:
    """Read back as it was written, dated by the server; one that is not there is told."""
    opened(ledger, joined(ledger))
    found = ledger.call(begun, 1)
    assert (found.cycle, found.closed, found.decided) == (1, None, DECIDED)
    clock = ledger.call(
        lambda tx: tx.execute("SELECT extract(epoch FROM clock_timestamp())::float8").fetchone()
    )
    assert clock is not None
    assert clock[0] - 60 < found.started <= clock[0]
    with pytest.raises(DiffersError, match="has no cycle 2: it may be an older backup"):
        ledger.call(begun, 2)


def test_segments_are_counted_by_shard_and_cycle(ledger: Connection) -> None:
    """Those of others are no concern."""
    worker = joined(ledger)
    opened(ledger, worker)
    for shard in (0, 1):
        lease = taken(ledger, worker, shard)
        what = Flush(shard + 1, 1, {shard: lease.token}, tuple(segments_of(shard, 3 - shard)))
        ledger.single(flush, worker, what)
    assert [ledger.call(appended, 1, shard) for shard in range(3)] == [3, 2, 0]
    assert ledger.call(appended, 2, 0) == 0


def test_segments_of_shards_are_counted_by_cycle(ledger: Connection) -> None:
    """As the log has them, in one statement; of a cycle in which a shard recorded nothing, none."""
    worker = joined(ledger)
    opened(ledger, worker)
    held = [taken(ledger, worker, shard) for shard in (1, 2)]
    tokens = {lease.shard: lease.token for lease in held}
    ledger.single(flush, worker, Flush(1, 1, tokens, tuple(segments_of(2, 3))))
    missing = Waiting(ledger.call(about).shards, 2, None)
    assert ledger.single(come_to, Step(1, "round/1"), [1, 2, 3]) == ({2: 3}, missing)
    assert ledger.call(appended, 1, 2) == 3
    assert ledger.single(come_to, Step(2, "round/1"), [1, 2, 3]) == ({}, missing)
    ledger.single(post, Step(1, "round/1"), [Posted(lease.shard, lease.token, b"part") for lease in held])
    found = ledger.single(come_to, Step(1, "round/1"), [2])
    assert found == ({2: 3}, missing._replace(missing=missing.missing - 2))
