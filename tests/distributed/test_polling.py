"""The one row that a worker asks for from time to time."""

from __future__ import annotations

from scrapy_gp4c.distributed import cycles, exchange, leases
from scrapy_gp4c.distributed.connection import Connection
from scrapy_gp4c.distributed.exchange import Posted, Step
from scrapy_gp4c.distributed.log import Flush, Letter, Progress, flush
from scrapy_gp4c.distributed.polling import Poll, heard, looking, poll
from tests.support.ledgers import joined, killed, opened, segments_of, taken


def test_what_others_did_is_seen(ledger: Connection) -> None:
    """Cycles, mail, deaths, and that one is to go."""
    one = joined(ledger)
    assert ledger.call(poll, one) == Poll(0, True, ended=False, homeless=4, draining=False)
    two = joined(ledger, "two")
    opened(ledger, two)
    tokens = {shard: taken(ledger, one if shard < 2 else two, shard).token for shard in range(4)}
    assert ledger.call(poll, one) == Poll(1, False, ended=False, homeless=0, draining=False)
    theirs = {shard: tokens[shard] for shard in (2, 3)}
    ledger.single(flush, two, Flush(1, 1, theirs, letters=(Letter(2, 1, b""),)))
    ledger.call(leases.drain, "one")
    found = ledger.call(poll, one)
    assert [letter.letter for letter in found.letters] == [Letter(2, 1, b"")]
    assert found._replace(letters=()) == Poll(1, False, ended=False, homeless=0, draining=True)
    assert ledger.call(poll, one, None, (found.letters[0].id,)).letters == ()
    assert ledger.call(poll, two) == Poll(1, False, ended=False, homeless=0, draining=False)
    killed(ledger, two)
    ledger.call(lambda tx: tx.execute("UPDATE gp4c.shard SET deaths = 3 WHERE shard = 3"))
    ledger.call(lambda tx: tx.execute("DELETE FROM gp4c.mail"))
    assert ledger.call(poll, one) == Poll(1, False, ended=False, homeless=1, draining=True)
    heir = taken(ledger, one, 2)
    done = dict.fromkeys((0, 1, 2), Progress(1, True))
    ledger.single(flush, one, Flush(1, 1, {0: tokens[0], 1: tokens[1], 2: heir.token}, progress=done))
    ledger.call(lambda tx: tx.execute("UPDATE gp4c.shard SET done = 1"))
    assert ledger.single(poll, one) == Poll(1, False, ended=True, homeless=0, draining=True)
    assert ledger.call(cycles.close, 1)
    assert ledger.call(poll, one).closed


def test_who_asks_for_a_round_is_heard(ledger: Connection) -> None:
    """As soon as one shard has begun the step that was asked about; of other steps nothing is told."""
    one = joined(ledger)
    opened(ledger, one)
    step = Step(1, "round/1")
    assert not ledger.single(poll, one, step).asked
    ledger.single(exchange.post, step, [Posted(2, taken(ledger, one, 2).token, b"[3, true]")])
    assert ledger.single(poll, one, step).asked
    assert not ledger.single(poll, one, Step(1, "round/2")).asked
    assert not ledger.single(poll, one).asked
    assert ledger.single(poll, one, step)._replace(asked=False) == ledger.single(poll, one)


def test_a_look_goes_with_a_flush(ledger: Connection) -> None:
    """It tells what was before the flush, and of a repeated one what is then."""
    one = joined(ledger)
    opened(ledger, one)
    step = Step(1, "100%/1")
    lease = taken(ledger, one, 2)
    before = ledger.single(poll, one, step)
    what = Flush(1, 1, {2: lease.token}, tuple(segments_of(2, 1)), (Letter(2, 2, b""),))
    for repeated in (False, True):
        found = ledger.single(flush, one, what, looking(one, step, ()))
        assert found.repeated is repeated
        assert found.told is not None
        told = heard(found.told)
        assert told._replace(letters=()) == before
        assert [letter.letter for letter in told.letters] == [*what.letters] * repeated
    assert ledger.single(flush, one, what).told is None
