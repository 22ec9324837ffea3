"""Plans and reports: parts of all shards, and one answer."""

from __future__ import annotations

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from scrapy_gp4c.distributed import exchange
from scrapy_gp4c.distributed.connection import Connection
from scrapy_gp4c.distributed.errors import DiffersError, FencedError
from scrapy_gp4c.distributed.exchange import Posted, Step, Waiting
from tests.support.ledgers import joined, killed, taken

CUT = Step(1, "cut/1")


def test_parts_are_there_when_all_are(ledger: Connection) -> None:
    """By shard, whoever came first; meanwhile, whom the others wait for."""
    worker = joined(ledger)
    tokens = {shard: taken(ledger, worker, shard).token for shard in (3, 0, 2)}
    for shard, token in tokens.items():
        ledger.call(exchange.post, CUT, [Posted(shard, token, b"part %d" % shard)])
    assert ledger.call(exchange.missing, CUT) == [1]
    assert ledger.single(exchange.look, CUT) == Waiting(1, 1, None)
    ledger.call(exchange.put_answer, Step(1, "cut/0"), b"another step's")
    ledger.call(exchange.post, CUT, [Posted(1, taken(ledger, worker, 1).token, bytes(range(256)))])
    assert ledger.call(exchange.told, CUT) == [b"part 0", bytes(range(256)), b"part 2", b"part 3"]
    assert ledger.call(exchange.missing, CUT) == []
    assert ledger.single(exchange.look, CUT) == Waiting(0, 0, None)
    assert ledger.call(exchange.answer, CUT) is None


def test_the_first_answer_counts(ledger: Connection) -> None:
    """An equal one is welcome, another one is an error that says what to look at."""
    ledger.call(exchange.put_answer, CUT, b"0.5 7")
    ledger.call(exchange.put_answer, CUT, b"0.5 7")
    with pytest.raises(DiffersError, match=r"the combined answer for 'cut/1' of cycle 1 differs.*processors"):
        ledger.call(exchange.put_answer, CUT, b"0.5 8")
    assert ledger.call(exchange.answer, CUT) == b"0.5 7"
    assert ledger.single(exchange.look, CUT).answer == b"0.5 7"


def test_a_part_is_its_holders_to_post(ledger: Connection) -> None:
    """A heir posts the same again; a former holder nothing."""
    worker = joined(ledger)
    old = taken(ledger, worker, 0).token
    ledger.call(exchange.post, CUT, [Posted(0, old, b"part")])
    killed(ledger, worker)
    new = taken(ledger, joined(ledger, "two"), 0).token
    ledger.call(exchange.post, CUT, [Posted(0, new, b"part")])
    with pytest.raises(DiffersError, match="the part of shard 0 for 'cut/1' of cycle 1 differs"):
        ledger.call(exchange.post, CUT, [Posted(0, new, b"other")])
    with pytest.raises(FencedError):
        ledger.call(exchange.post, Step(1, "cut/2"), [Posted(0, old, b"part")])
    assert ledger.call(exchange.missing, Step(1, "cut/2")) == [0, 1, 2, 3]


def test_parts_of_several_shards_are_one_statement(ledger: Connection) -> None:
    """Which tells how far the step is with all of them; one that was lost is named."""
    worker = joined(ledger)
    held = {shard: taken(ledger, worker, shard).token for shard in range(3)}
    posts = [Posted(shard, token, b"%d" % shard) for shard, token in held.items()]
    assert ledger.single(exchange.post, CUT, posts) == Waiting(1, 1, None)
    assert ledger.single(exchange.post, CUT, posts) == Waiting(1, 1, None), "the same again is welcome"
    assert ledger.single(exchange.parts_of, CUT, [0, 2, 3]) == {0: b"0", 2: b"2"}
    with pytest.raises(DiffersError, match="the part of shard 1"):
        ledger.single(exchange.post, CUT, [posts[0], posts[1]._replace(part=b"other")])
    with pytest.raises(FencedError) as lost:
        ledger.single(exchange.post, CUT, [posts[0], posts[2]._replace(token=held[2] - 1)])
    assert lost.value.shards == (2,)


def test_what_was_posted_first_is_settled(ledger: Connection) -> None:
    """Whoever held the shard then; a part is written where there is none, under its fence."""
    worker = joined(ledger)
    held = {shard: taken(ledger, worker, shard).token for shard in range(3)}
    ledger.single(exchange.post, CUT, [Posted(1, held[1], b"first")])
    posts = [Posted(shard, token, b"%d" % shard) for shard, token in held.items()]
    for _ in range(2):
        found = ledger.single(exchange.settle, CUT, posts)
        assert found == ({0: b"0", 1: b"first", 2: b"2"}, Waiting(1, 1, None))
    assert ledger.single(exchange.settle, CUT, posts[2:]) == ({2: b"2"}, Waiting(1, 1, None))
    assert ledger.call(exchange.told, CUT) == [b"0", b"first", b"2"]
    with pytest.raises(FencedError):
        ledger.single(exchange.settle, CUT, [posts[0]._replace(token=held[0] - 1)])


def test_the_last_to_post_may_have_all_parts(ledger: Connection) -> None:
    """Empty ones too, by shard; nobody else, and not once there is an answer."""
    worker = joined(ledger)
    parts = [b"part", b"", bytes(range(256)) * 20, b"3"]
    posts = [Posted(n, taken(ledger, worker, n).token, part) for n, part in enumerate(parts)]
    assert ledger.single(exchange.post, CUT, [posts[2], posts[0]], True) == Waiting(2, 0, None)
    assert ledger.single(exchange.settle, CUT, [posts[3]], True)[1] == Waiting(1, 0, None)
    assert ledger.single(exchange.settle, CUT, [posts[1]], True)[1] == Waiting(0, 0, None, tuple(parts))
    assert ledger.single(exchange.post, CUT, posts, True).parts == tuple(parts)
    assert (
        ledger.single(exchange.post, CUT, posts) == ledger.single(exchange.look, CUT) == Waiting(0, 0, None)
    )
    ledger.single(exchange.put_answer, CUT, b"answer")
    assert ledger.single(exchange.post, CUT, posts, True) == Waiting(0, 0, b"answer")


def test_each_shard_gets_what_is_addressed_to_it(ledger: Connection) -> None:
    """Of all parts, by sender; numbers of 64 bits as they are."""
    worker = joined(ledger)
    parts = {0: {"1": [[2**64 - 1, 3]], "2": [[5, 1]]}, 1: {}, 2: {"1": [[7, 2]]}, 3: {"0": [[1, 1]]}}
    for shard, part in parts.items():
        posted = Posted(shard, taken(ledger, worker, shard).token, json.dumps(part).encode())
        ledger.single(exchange.post, CUT, [posted])
    assert ledger.single(exchange.addressed, CUT, [1, 3]) == [(1, [[2**64 - 1, 3]]), (1, [[7, 2]])]
    assert ledger.single(exchange.addressed, CUT, [3]) == []


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(body=st.binary(max_size=2000), number=st.integers(0, 10**6))
def test_any_bytes_are_kept(ledger: Connection, body: bytes, number: int) -> None:
    """What they mean is not the ledger's affair."""
    step = Step(2, f"{number} {body.hex()[:40]}")
    ledger.call(exchange.put_answer, step, body)
    assert ledger.call(exchange.answer, step) == body
