"""Mail: it arrives once, in the transaction it belongs to, and whatever is none is counted."""

from __future__ import annotations

import json
import pickle
import zlib
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scrapy_gp4c.distributed import letters
from scrapy_gp4c.distributed.connection import Connection
from scrapy_gp4c.distributed.errors import DiffersError, FencedError
from scrapy_gp4c.distributed.letters import (
    Copy,
    Found,
    Handover,
    Message,
    Received,
    Returned,
    Tries,
)
from scrapy_gp4c.distributed.log import Flush, Letter, flush
from scrapy_gp4c.distributed.mail import Sender
from scrapy_gp4c.distributed.polling import poll
from scrapy_gp4c.page_state.outcomes import KINDS, OUTCOMES
from scrapy_gp4c.scoring import hints
from scrapy_gp4c.store.records import NewVisit, StoredRequest
from tests.support.ledgers import joined, killed, opened, segments_of, taken

FOUND = Found(5, {"url": "https://a.example/"}, 1, 0)
KEYS = st.integers(0, 2**64 - 1)
REQUESTS = st.builds(
    lambda url, priority: StoredRequest(url="https://a.example/" + url, priority=priority),
    st.text(max_size=20),
    st.integers(-5, 5),
)
TIMES = st.floats(0, 1e12)
SHARDS = st.integers(0, 1023)
TIMES_TRIED = st.integers(0, 20)
TEXTS = st.lists(st.text(max_size=20), max_size=3).map(tuple)
HEADERS = st.one_of(st.none(), st.text(st.characters(max_codepoint=255), max_size=20))
MESSAGES: st.SearchStrategy[Message] = st.one_of(
    st.builds(Found, KEYS, REQUESTS, KEYS, SHARDS),
    st.builds(
        Handover,
        KEYS,
        SHARDS,
        REQUESTS,
        st.builds(Tries, TIMES_TRIED, TIMES_TRIED, TEXTS, st.tuples(st.just(301), st.text()), TIMES_TRIED),
        st.sampled_from(KINDS),
        st.one_of(st.none(), st.floats(allow_nan=False, allow_infinity=False)),
        st.builds(Copy, st.booleans(), KEYS, st.integers(0, 1000), st.integers(0, 1000)),
    ),
    st.builds(
        Returned,
        KEYS,
        st.builds(
            NewVisit,
            st.just(0),
            st.sampled_from(OUTCOMES),
            TIMES,
            st.sampled_from(KINDS),
            KEYS,
            st.integers(0, 255),
            st.integers(0, 2**40),
            TIMES,
        ),
        st.one_of(st.none(), st.tuples(HEADERS, HEADERS)),
        st.one_of(st.none(), KEYS),
        st.lists(st.tuples(st.sampled_from(hints.KINDS), TIMES), max_size=3).map(tuple),
    ),
)


def check(request: StoredRequest) -> None:
    """What stands for the import's check."""
    if not isinstance(request, dict) or not str(request.get("url")).startswith("https://"):
        raise ValueError("expected a request")


@given(st.lists(MESSAGES, max_size=30))
def test_what_is_written_is_read(messages: list[Message]) -> None:
    """Every message, with all its bits, in order."""
    found = [letters.read(body, check) for body in letters.write(messages)]
    assert [one for received in found for one in received.messages] == messages
    assert sum(received.refused for received in found) == 0


def test_much_mail_is_several_letters() -> None:
    """Each one of bounded size; the receiver reads them apart."""
    messages = [Found(key, {"url": f"https://a.example/{key:0200}"}, 0, 0) for key in range(3000)]
    bodies = letters.write(messages)
    assert len(bodies) > 2
    assert [one for body in bodies for one in letters.read(body, check).messages] == messages


NUMBERS = st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), NUMBERS, st.text(max_size=8)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=8), st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=30,
)
NAMED = st.tuples(st.sampled_from(["found", "handover", "returned", "other"]), st.lists(VALUES, max_size=5))


@given(
    st.one_of(VALUES, st.lists(st.one_of(VALUES, NAMED.map(lambda pair: [pair[0], *pair[1]])), max_size=5))
)
def test_hostile_mail_is_counted(value: object) -> None:
    """Any JSON: what is no message is refused, one by one; nothing is raised."""
    found = letters.read(zlib.compress(json.dumps(value).encode()), check)
    for message in found.messages:
        assert isinstance(message, Found | Handover | Returned)
    expected = len(value) if isinstance(value, list) else 1
    assert len(found.messages) + found.refused == expected


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity"])
def test_what_no_json_has_is_no_letter(number: str) -> None:
    """Python writes such numbers, and nobody else reads them: the letter is refused as a whole."""
    found = letters.read(zlib.compress(f"[null, {number}]".encode()), check)
    assert found == letters.Received((), 1)


@given(st.binary(max_size=200))
def test_hostile_bytes_are_counted(body: bytes) -> None:
    """What is no letter at all is one refusal; deflated or not."""
    assert letters.read(body, check).messages == ()
    assert letters.read(body, check).refused == 1
    assert letters.read(zlib.compress(b"[" + body), check).messages == ()


@pytest.mark.parametrize(
    "body",
    [
        pickle.dumps(["found", 1, 1]),
        zlib.compress(pickle.dumps([1])),
        zlib.compress(b"[" * 200_000),
        zlib.compress(b" " * 2**25 + b"[]"),
        zlib.compress(b'[["found", NaN, 1]]'),
        zlib.compress(b"[" + b"9" * 10_000 + b"]"),
        b"",
    ],
)
def test_what_bursts_is_one_refusal(body: bytes) -> None:
    """Pickles, nesting, bombs, numbers that are none or too long."""
    assert letters.read(body, check) == Received((), 1)


WANTED = {"url": "https://a.example/"}
GOOD = [0, "changed", 1.0, "ranked", 0, 0, 0, 0]


@pytest.mark.parametrize(
    "item",
    [
        ["found", "ab", {"url": "https://a.example/"}, 0, 0],
        ["found", 1, {"url": "file:///etc/passwd"}, 0, 0],
        ["found", 2**64, {"url": "https://a.example/"}, 0, 0],
        ["found", True, {"url": "https://a.example/"}, 0, 0],
        ["found", 1, {"url": "https://a.example/"}, 0, 1024],
        ["handover", 1, 1, WANTED, [1, 19, [], [], 0], "ranked?", 0.5, [True, 1, 2, 1]],
        ["handover", 1, 1, {"url": "file:///etc/passwd"}, [1, 19, [], [], 0], "ranked", 0.5, [True, 1, 2, 1]],
        ["handover", 1, 1, WANTED, [-1, 19, [], [], 0], "ranked", 0.5, [True, 1, 2, 1]],
        ["handover", 1, 1, WANTED, [1, 19, [7], [], 0], "ranked", 0.5, [True, 1, 2, 1]],
        ["handover", 1, 1, WANTED, [1, 19, [], [], 0], "ranked", 1e999, [True, 1, 2, 1]],
        ["handover", 1, 1, WANTED, [1, 19, [], [], 0], "ranked", 0.5, [1, 1, 2, 1]],
        ["handover", 1, 9999, WANTED, [1, 19, [], [], 0], "ranked", 0.5, [True, 1, 2, 1]],
        ["returned", 1, [0, "lost", 1.0, "ranked", 0, 0, 0, 0], None, None, []],
        ["returned", 1, [0, "changed", 1e999, "ranked", 0, 0, 0, 0], None, None, []],
        ["returned", 1, [7, "changed", 1.0, "ranked", 0, 0, 0, 0], None, None, []],
        ["returned", 1, [0, ["changed"], 1.0, "ranked", 0, 0, 0, 0], None, None, []],
        ["returned", 1, GOOD, ["\u20ac", None], None, []],
        ["returned", 1, GOOD, None, 2**64, []],
        ["returned", 1, GOOD, None, None, [["lastmod", 1.0]]],
        ["returned", 1, GOOD, None, None, [["expires", -1.0]]],
        [["found"]],
    ],
)
def test_what_is_nearly_a_message_is_refused(item: object) -> None:
    """Beside it, the good ones count."""
    text = json.dumps([item, ["found", *FOUND]]).replace("Infinity", "1e999")
    assert letters.read(zlib.compress(text.encode()), check) == Received(
        (Found(5, {"url": "https://a.example/"}, 1, 0),), 1
    )


def test_a_url_is_sent_once_a_cycle() -> None:
    """Whoever finds it; all else goes as often as it is said."""
    sender = Sender()
    found = Found(9, {"url": "https://a.example/"}, 1, 0)
    assert sender.add(0, 1, found)
    assert not sender.add(2, 1, found._replace(finder=5))
    told = Returned(1, NewVisit(0, "unchanged", 1.0, "ranked", 7))
    assert sender.add(0, 1, told)
    assert sender.add(0, 1, told)
    (letter,) = sender.letters()
    assert letter[:2] == (0, 1)
    assert letters.read(letter.body, check).messages == (found, told, told)
    assert sender.letters() == ()
    assert not sender.add(0, 1, found)
    sender.next_cycle()
    assert sender.add(0, 1, found)


def test_a_sender_remembers_so_many() -> None:
    """Beyond, the oldest may go again: their receiver knows them."""
    sender = Sender(remembered=2)
    first, *others = (Found(key, {"url": "https://a.example/"}, 0, 0) for key in range(3))
    assert all(sender.add(0, 1, one) for one in (first, *others))
    assert not any(sender.add(0, 1, one) for one in others)
    assert sender.add(0, 1, first)


def test_mail_goes_with_the_flush(ledger: Connection, connect: Callable[..., Connection]) -> None:
    """Not at all if that fails; and it is consumed with what it led to, or not."""
    one, two = joined(ledger), joined(ledger, "two")
    opened(ledger, one)
    first, second = taken(ledger, one, 0), taken(ledger, two, 1)
    sent = tuple(Letter(0, 1, body) for body in letters.write([FOUND]) * 3)
    with pytest.raises(FencedError):
        ledger.single(flush, one, Flush(1, 1, {0: first.token - 1}, letters=sent))
    assert ledger.single(poll, two).letters == ()
    ledger.single(flush, one, Flush(1, 1, {0: first.token}, letters=sent))
    waiting = ledger.single(poll, two).letters
    assert [one.letter for one in waiting] == list(sent)
    assert ledger.single(poll, one).letters == ()
    assert ledger.single(poll, two, None, (waiting[0].id,)).letters == waiting[1:]
    consumed = tuple(one.id for one in waiting[:2])
    what = Flush(1, 1, {1: second.token}, tuple(segments_of(1, 1)), consumed=consumed)
    killed(ledger, two)
    heir = joined(ledger, "three")
    third = taken(ledger, heir, 1)
    with pytest.raises(FencedError):
        ledger.single(flush, two, what)
    assert len(ledger.single(poll, heir).letters) == 3
    ledger.single(flush, heir, what._replace(tokens={1: third.token}))
    assert [one.id for one in ledger.single(poll, heir).letters] == [waiting[2].id]
    with pytest.raises(DiffersError, match="of 2 letters that were to be consumed, 0 are there"):
        ledger.single(flush, heir, Flush(2, 1, {1: third.token}, consumed=consumed))


def test_a_letter_beyond_all_bounds_is_read_as_none(ledger: Connection) -> None:
    """Its bytes stay where they are; it is refused, and consumed, like any other."""
    worker = joined(ledger)
    opened(ledger, worker)
    lease = taken(ledger, worker, 0)
    ledger.call(
        flush, worker, Flush(1, 1, {0: lease.token}, letters=(Letter(0, 0, bytes(letters.MOST_BYTES + 1)),))
    )
    (found,) = ledger.single(poll, worker).letters
    assert found.letter.body == b""
    assert letters.read(found.letter.body, check).refused == 1
