"""Requests as they are kept: shorter, in full again, one by one and many at once."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import lmdb
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from scrapy_gp4c.store.lmdb_store.checksummed import U32, RequestTable, encode, in_full, shortened

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
    ("request_", "kept"),
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
def test_what_a_code_stands_for_is_never_another(request_: dict[str, Any], kept: bytes) -> None:
    """Stores have them."""
    assert shortened(encode(request_)) == kept
    assert json.loads(in_full(kept)) == request_


@settings(max_examples=40, deadline=None)
@given(st.dictionaries(PAGES, REQUESTS, min_size=1, max_size=8), st.data())
def test_the_table_has_requests_in_full(requests: dict[int, dict[str, Any]], data: st.DataObject) -> None:
    """However they are written and read."""
    with TemporaryDirectory() as place, lmdb.open(place, max_dbs=1) as environment:
        table = RequestTable(Path(place), "urls", environment.open_db(b"urls"))
        told = {U32.pack(page): encode(request) for page, request in requests.items()}
        first = data.draw(st.sampled_from(sorted(told)))
        with environment.begin(write=True) as txn:
            table.put(txn, first, told[first])
            table.put_many(txn, iter(told.items()), overwrite=False)
            assert {key: table.get(txn, key) for key in told} == told
            assert {key: bytes(value) for key, value in table.items(txn)} == told
            pages = np.array(data.draw(st.lists(st.sampled_from(sorted(requests)), min_size=1)))
            values = [told[U32.pack(page)] for page in pages.tolist()]
            assert table.get_many(txn, pages) == values
            assert table.joined(txn, pages) == b",".join(values)
            missing = next(page for page in range(9) if page not in requests)
            assert table.joined(txn, np.array([*pages, missing])) is None
            assert table.get_many(txn, np.array([*pages, missing])) is None
            assert not list(table.wrong_keys(txn))
