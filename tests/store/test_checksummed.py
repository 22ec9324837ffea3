"""Checksums of values, and the kept form of requests."""

import json
import os
import random
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import lmdb
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from scrapy_gp4c.errors import StoreDamagedError
from scrapy_gp4c.page_state.outcomes import PLAN
from scrapy_gp4c.store.lmdb_store.environment import TABLES as ALL_TABLES
from scrapy_gp4c.store.lmdb_store.environment import (
    U32,
    RequestTable,
    Table,
    decode,
    encode,
    in_full,
    is_intact,
    seed_of,
    shortened,
    with_checksum,
)
from scrapy_gp4c.store.lmdb_store.store import Store
from scrapy_gp4c.store.records import NewVisit
from tests.store.test_store_kill import SMALL, build, crawl, in_child, key, wait

TABLES = ("ids", "urls", "validators", "log", "new", "visits", "cycles", "plans", "columns", "groups")


@given(key=st.binary(min_size=1, max_size=12), value=st.binary(max_size=40), bit=st.integers(0, 10**6))
def test_any_flipped_bit_is_noticed(key: bytes, value: bytes, bit: int) -> None:
    """In the value, in its checksum, and in the key; and a value in another table."""
    checked = with_checksum(seed_of("urls", key), value)
    assert is_intact(seed_of("urls", key), checked)
    assert not is_intact(seed_of("urls", key), flipped(checked, bit))
    assert not is_intact(seed_of("urls", flipped(key, bit)), checked)
    assert not any(is_intact(seed_of(table, key), checked) for table in set(ALL_TABLES) - {"urls"})


def flipped(content: bytes, bit: int) -> bytes:
    """The same bytes but for one bit."""
    byte, bit_number = divmod(bit % (8 * len(content)), 8)
    return content[:byte] + bytes([content[byte] ^ 1 << bit_number]) + content[byte + 1 :]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(), max_size=9),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
)


@given(content=JSON, places=st.lists(st.integers(0, 10**6), max_size=3), byte=st.integers(0, 255))
def test_json_is_read_as_python_reads_it(content: object, places: list[int], byte: int) -> None:
    """Whatever a store may have written, NaN and lone surrogates too; and what is damaged gives its error."""
    raw = bytearray(encode(content))
    for place in places:
        raw[place % len(raw)] = byte
    assert what_comes_of(decode, bytes(raw)) == what_comes_of(json.loads, bytes(raw))


def what_comes_of(read: Callable[[bytes], Any], raw: bytes) -> tuple[type, str]:
    """What a reader returns, to the sign of a zero, or raises."""
    try:
        result = read(raw)
    except ValueError as error:
        return type(error), str(error)
    return type(result), repr(result)


@given(
    numbers=st.sets(st.integers(0, 2**32 - 1), min_size=1, max_size=9),
    which=st.integers(0, 8),
    bit=st.integers(0, 31),
)
def test_a_value_that_lost_its_key_is_missed(numbers: set[int], which: int, bit: int) -> None:
    """A key that was altered, and still is in order, is noticed by whoever asks for the old or new one."""
    before = sorted(numbers)
    lost = before[which % len(before)]
    after = lost ^ 1 << bit
    if sorted(numbers - {lost} | {after}).index(after) != before.index(lost) or after in numbers:
        return  # LMDB finds nothing in a page out of order
    with TemporaryDirectory() as path, lmdb.open(path, max_dbs=1) as environment:
        table = Table(Path(path), "urls", environment.open_db(b"urls"))
        with environment.begin(write=True) as txn:
            for number in before:
                table.put(txn, U32.pack(number), b"%d" % number)
            txn.delete(U32.pack(lost), db=table.handle)
            txn.put(
                U32.pack(after), with_checksum(seed_of("urls", U32.pack(lost)), b"%d" % lost), db=table.handle
            )
            for number in (lost, after):
                with pytest.raises(StoreDamagedError, match=f"urls {after}: its checksum is another"):
                    table.get(txn, U32.pack(number))
            with pytest.raises(StoreDamagedError):
                list(table.items(txn, U32.pack(lost), U32.pack(lost + 1) if lost < 2**32 - 1 else None))


def test_a_page_is_its_number_in_checksums() -> None:
    """Requests are checked many at a time, with the pages for seeds."""
    urls = seed_of("urls", b"")
    assert [seed_of("urls", U32.pack(page)) - urls for page in (0, 1, 10**9)] == [0, 1, 10**9]
    seeds = {seed_of("urls", (1 << bit).to_bytes(8, "big")) for bit in range(64)}
    assert len(seeds) == 64
    assert urls not in seeds


@pytest.fixture(scope="module")
def crawled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with something in every table, a cycle under way."""
    return varied(tmp_path_factory.mktemp("crawled") / "store")


def varied(path: Path) -> Path:
    build(path)
    with Store(path, sizes=SMALL) as store:
        crawl(store, lambda cycle, count: None)
        store.begin_cycle({})
        plan = np.zeros(3, PLAN)
        plan["page"] = [5, 3, 9]
        store.add_round(plan, 0)
        store.record(NewVisit(3, "changed", 1.0))
        store.add_page(99, {"url": "http://h/new/1"})
        store.set_validators(5, "etag", None)
        store.set_validators(9, "other", None)
    return path


def read_all(path: Path) -> Iterator[Any]:
    """What a crawl and commands would read."""
    with Store(path, readonly=True) as store:
        yield [store.find(key(number)) for number in range(100)]
        yield store.requests(range(store.pages))
        yield [store.validators(page) for page in range(store.pages)]
        yield [{name: column.tolist() for name, column in block.items()} for _, block in store.blocks()]
        yield [(cycle, visits.tobytes()) for cycle, visits in store.visits()]
        yield [store.group_visits(cycle).tobytes() for cycle in range(9)]
        yield store.open_visits().tobytes(), store.cycles(), store.directories().tobytes()
        yield store.plan().tobytes(), store.shadows(2).tobytes(), store.store_id


@pytest.mark.parametrize("table", TABLES)
def test_no_table_is_silently_different(tmp_path: Path, crawled: Path, table: str) -> None:
    """A flipped bit in any value of a table, or its key moved within its place: an error names the table."""
    sound = list(read_all(crawled))
    with lmdb.open(str(crawled), max_dbs=32, readonly=True) as environment:
        db = environment.open_db(table.encode(), create=False)
        with environment.begin() as txn:
            rows = list(txn.cursor(db))
    for number, (position, value) in list(enumerate(rows))[:: max(1, len(rows) // 4)]:
        path = tmp_path / str(number)
        shutil.copytree(crawled, path)
        with lmdb.open(str(path), max_dbs=32, map_size=2**30) as environment:
            db = environment.open_db(table.encode())
            with environment.begin(write=True) as txn:
                txn.put(position, flipped(value, 7 * number + 3), db=db)
        with pytest.raises(StoreDamagedError, match=f"is damaged: {table} "):
            assert list(read_all(path)) == sound


@pytest.mark.slow
@pytest.mark.parametrize("how", ["flip", "zero"])
def test_no_damage_is_silent(tmp_path: Path, crawled: Path, how: str) -> None:
    """A flipped bit or a page of zeros: all rows that are read are as they were, or one error says so.

    LMDB may end the process with a signal where its own pages are damaged, which is not silent.
    """
    sound, content = list(read_all(crawled)), (crawled / "data.mdb").read_bytes()
    numbers, size = random.Random(3), os.sysconf("SC_PAGE_SIZE")

    def work(path: Path) -> None:
        try:
            assert list(read_all(path)) == sound
        except StoreDamagedError:
            os._exit(2)

    ends = []
    for number in range(60):
        path = tmp_path / str(number)
        path.mkdir()
        at = numbers.randrange(2, len(content) // size) * size
        damaged = content[:at] + bytes(size) + content[at + size :]
        if how == "flip":  # LMDB's own bytes are at the beginning of a page, its nodes at the end
            byte = numbers.choice((numbers.randrange(64), numbers.randrange(size - 500, size)))
            damaged = flipped(content, 8 * (at + byte) + numbers.randrange(8))
        (path / "data.mdb").write_bytes(damaged)
        ends.append(wait(in_child(partial(work, path))))
    assert 0 in ends
    assert 2 in ends
    assert 1 not in ends


URLS = st.builds(
    "{}{}{}".format,
    st.sampled_from(["http://", "https://", "http://www.", "https://www.", "ftp://", ""]),
    st.text(),
    st.sampled_from(["", ".html", '","callback":"', '"}', '","callback":"parse_']),
)
PAGES = st.integers(0, 2**32 - 1) | st.sampled_from([0, 2**32 - 6, 2**32 - 5, 2**32 - 1])
NESTED = st.dictionaries(st.sampled_from(["url", "callback", "x"]), URLS, max_size=3)
REQUESTS = st.fixed_dictionaries(
    {"url": URLS},
    optional={
        "callback": st.sampled_from(["parse", "parse_page", "item", "parse_", "\xff\u20ac"]),
        "cb_kwargs": NESTED,
        "meta": st.dictionaries(st.text(max_size=3), NESTED, max_size=2),
    },
)


@given(REQUESTS)
@example({"url": "https://www.h/", "callback": "parse_item"})
@example({"url": "http://h/", "meta": {"url": "http://h/", "callback": "parse"}})
def test_a_request_comes_back_from_what_is_kept_of_it(request_: dict[str, Any]) -> None:
    """Byte by byte, whatever looks like a part of it within it."""
    text = encode(request_)
    assert in_full(shortened(text)) == text
    assert len(shortened(text)) <= len(text)


@given(st.binary() | st.text().map(str.encode))
def test_other_bytes_stay_as_they_are_if_they_are_text(raw: bytes) -> None:
    """UTF-8 has none of the codes; what is no request, in ASCII, comes back as well."""
    try:
        raw.decode()
    except UnicodeDecodeError:
        return
    assert in_full(shortened(raw)) == raw


@pytest.mark.parametrize(
    ("request_", "stored"),
    [
        ({"url": "https://www.h/1"}, b"\xffh/1\xf9"),
        ({"url": "http://www.h/1"}, b"\xfeh/1\xf9"),
        ({"url": "https://h/1"}, b"\xfdh/1\xf9"),
        ({"url": "http://h/1", "callback": "parse_item"}, b"\xfch/1\xfbitem\xf9"),
        ({"url": "http://h/1", "callback": "parse"}, b"\xfch/1\xfaparse\xf9"),
        ({"url": "h"}, b'{"url":"h\xf9'),
        ({"url": "http://h/1", "priority": 3}, b'\xfch/1","priority":3}'),
    ],
)
def test_what_a_code_stands_for_is_never_another(request_: dict[str, Any], stored: bytes) -> None:
    """Stores have them."""
    assert shortened(encode(request_)) == stored
    assert json.loads(in_full(stored)) == request_


@given(st.dictionaries(PAGES, REQUESTS, min_size=1, max_size=8), st.data())
def test_the_table_has_requests_in_full(requests: dict[int, dict[str, Any]], data: st.DataObject) -> None:
    """However they are written and read."""
    with TemporaryDirectory() as folder, lmdb.open(folder, max_dbs=1) as environment:
        table = RequestTable(Path(folder), "urls", environment.open_db(b"urls"))
        expected = {U32.pack(page): encode(request) for page, request in requests.items()}
        first = data.draw(st.sampled_from(sorted(expected)))
        with environment.begin(write=True) as txn:
            table.put(txn, first, expected[first])
            table.put_many(txn, iter(expected.items()), overwrite=False)
            assert {key: table.get(txn, key) for key in expected} == expected
            assert {key: bytes(value) for key, value in table.items(txn)} == expected
            pages = np.array(data.draw(st.lists(st.sampled_from(sorted(requests)), min_size=1)))
            values = [expected[U32.pack(page)] for page in pages.tolist()]
            assert table.get_many(txn, pages) == values
            missing = next(page for page in range(9) if page not in requests)
            assert table.get_many(txn, np.array([*pages, missing])) is None
            assert not list(table.wrong_keys(txn))
