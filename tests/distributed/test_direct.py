"""Statements as libpq takes them: values go in and come out, and what goes wrong is psycopg's error."""

from __future__ import annotations

import socket
import struct

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from scrapy_gp4c.distributed.connection import Connection
from scrapy_gp4c.distributed.direct import byteas, numbers, of_byteas, rows
from tests.support.postgres import NEEDS_POSTGRES

IN_ONE_DATABASE = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


@given(st.lists(st.binary(max_size=300)))
def test_bytes_come_back(items: list[bytes]) -> None:
    """Any bytes, empty ones among them; none is NULL."""
    packed = byteas(items)
    assert (packed is None) == (not items)
    assert of_byteas(packed) == items


@NEEDS_POSTGRES
@IN_ONE_DATABASE
@given(st.lists(st.binary(max_size=50)), st.lists(st.integers(-(2**63), 2**63 - 1)))
def test_the_server_reads_arrays_as_they_were(
    ledger: Connection, items: list[bytes], whole: list[int]
) -> None:
    """Bytes, numbers and truths, in their order; what it sends of bytes is read."""
    [(told, sizes, same, truths)] = ledger.single(
        rows,
        "SELECT $1::bytea[], (SELECT array_agg(octet_length(b) ORDER BY n)::text"
        " FROM unnest($1::bytea[]) WITH ORDINALITY AS t (b, n)), $2::bigint[]::text, $3::boolean[]::text",
        *(byteas(items), numbers(whole), numbers([number > 0 for number in whole])),
    )
    assert of_byteas(told) == items
    assert sizes == (f"{{{','.join(str(len(item)) for item in items)}}}".encode() if items else None)
    assert same == (f"{{{','.join(map(str, whole))}}}".encode() if whole else None)
    assert truths == (f"{{{','.join('ft'[number > 0] for number in whole)}}}".encode() if whole else None)


@NEEDS_POSTGRES
@IN_ONE_DATABASE
@given(
    st.integers(-(2**31), 2**31 - 1),
    st.floats(allow_nan=False),
    st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])),
    st.binary(max_size=50),
    st.booleans(),
)
def test_single_values_are_what_they_were(
    ledger: Connection, number: int, share: float, text: str, raw: bytes, truth: bool
) -> None:
    """Bit for bit, and NULL is None."""
    values = number, share, text, raw, truth, None
    found = ledger.single(
        rows, "SELECT $1::int, $2::float8, $3::text, $4::bytea, $5::boolean, $6::int", *values
    )
    packed = struct.pack(">i", number), struct.pack(">d", share), text.encode(), raw, struct.pack("?", truth)
    assert found == [(*packed, None)]


@NEEDS_POSTGRES
def test_rows_come_in_order(ledger: Connection) -> None:
    """As many as there are."""
    assert ledger.single(rows, "SELECT n::text FROM generate_series(1, $1::int) AS n", 3) == [
        (b"1",),
        (b"2",),
        (b"3",),
    ]
    assert ledger.single(rows, "SELECT 1 WHERE false") == []
    assert of_byteas(ledger.single(rows, "SELECT '{}'::bytea[]")[0][0]) == []


@NEEDS_POSTGRES
def test_what_the_server_refuses_is_an_error_of_psycopg(dsn: str) -> None:
    """With its SQLSTATE and words; the connection goes on."""
    with psycopg.connect(dsn, autocommit=True) as tx:
        with pytest.raises(psycopg.errors.DivisionByZero, match="division by zero") as refused:
            rows(tx, "SELECT 1 / $1::int", 0)
        assert refused.value.sqlstate == "22012"
        assert refused.value.diag.message_primary == "division by zero"
        assert rows(tx, "SELECT $1::text", "on") == [(b"on",)]


@NEEDS_POSTGRES
def test_a_lost_connection_is_an_operational_error(dsn: str) -> None:
    """As of psycopg's own: whoever calls does it again."""
    with psycopg.connect(dsn, autocommit=True) as tx:
        wire = socket.fromfd(tx.fileno(), socket.AF_INET, socket.SOCK_STREAM)
        wire.shutdown(socket.SHUT_RDWR)
        wire.close()
        with pytest.raises(psycopg.OperationalError):
            rows(tx, "SELECT 1")
        assert tx.broken
