"""Making a ledger, bringing it up to date, and telling whether a database holds one of this version."""

from __future__ import annotations

import secrets
from typing import Final, NamedTuple

from psycopg import errors, sql

from scrapy_gp4c.distributed.connection import Connection, Transaction
from scrapy_gp4c.distributed.errors import LedgerReadOnlyError, LedgerSchemaError
from scrapy_gp4c.distributed.migrations import GRANTS, MIGRATIONS

VERSION: Final = len(MIGRATIONS)
"""Of the schema that this version of scrapy-gp4c works on."""
MOST_SHARDS: Final = 1024
DEFAULT_SHARDS: Final = 64


class About(NamedTuple):
    """What a ledger says of itself."""

    version: int
    """Of its schema."""
    ledger: str
    """Random hex digits that name it."""
    shards: int
    """Fixed when it was created: shards are numbered from 0."""


def create(connection: Connection, shards: int = DEFAULT_SHARDS) -> About:
    """Make a ledger of so many shards, or bring an older one up to date; needs a role that may create.

    Raises ValueError for a number of shards that is none; LedgerSchemaError for a ledger of another number,
    or of a newer version.
    """
    if not 1 <= shards <= MOST_SHARDS:
        raise ValueError(f"expected 1 to {MOST_SHARDS} shards; found {shards}")
    about = connection.call(_migrated, shards)
    if about.shards != shards:
        raise LedgerSchemaError(
            f"{connection.where} holds a ledger of {about.shards} shards, and {shards} are asked for: their "
            "number is fixed when it is created. Use that number, or another database."
        )
    return about


def _migrated(tx: Transaction, shards: int) -> About:
    found = tx.execute("SELECT to_regclass('gp4c.about') IS NOT NULL").fetchone()
    version = 0
    if found == (True,):
        row = tx.execute("SELECT version FROM gp4c.about FOR UPDATE").fetchone()
        assert row is not None
        version = row[0]
    if version > VERSION:
        raise _other_version(version)
    for statements in MIGRATIONS[version:]:
        try:
            tx.execute(statements.encode())
        except (errors.DuplicateSchema, errors.UniqueViolation) as error:
            raise errors.SerializationFailure("another one creates it") from error  # done again, and finds it
    if version == 0:
        tx.execute(
            "INSERT INTO gp4c.about (version, ledger, shards) VALUES (%s, %s, %s)",
            (VERSION, secrets.token_hex(8), shards),
        )
        tx.execute(
            "INSERT INTO gp4c.shard (shard) SELECT generate_series(0, %s)",
            (shards - 1,),
        )
    else:
        tx.execute("UPDATE gp4c.about SET version = %s", (VERSION,))
    return about(tx)


def grants(role: str) -> list[str]:
    """Return the statements that let a role be a worker's; its owner runs them, once a version."""
    name = sql.Identifier(role).as_string(None)
    return [text.format(role=name) for text in GRANTS]


def check(tx: Transaction) -> None:
    """Raise LedgerSchemaError or LedgerReadOnlyError for a database that a worker cannot work with."""
    found = about(tx)
    if found.version != VERSION:
        raise _other_version(found.version)
    row = tx.execute("SELECT pg_is_in_recovery(), current_setting('transaction_read_only') = 'on'").fetchone()
    if row != (False, False):
        raise LedgerReadOnlyError(
            "the ledger's server takes no writes: it is a standby or set to read only. Name the primary, "
            "or add "
            "target_session_attrs=read-write to the connection string."
        )


def about(tx: Transaction) -> About:
    """Return what the ledger says of itself."""
    row = tx.execute("SELECT version, ledger, shards FROM gp4c.about").fetchone()
    if row is None:
        raise LedgerSchemaError("the ledger is empty: its creation was undone by hand. Create it anew.")
    return About(*row)


def _other_version(found: int) -> LedgerSchemaError:
    remedy = "install that version" if found > VERSION else "let its owner bring it up to date"
    return LedgerSchemaError(
        f"the ledger has version {found} of the schema, and this scrapy-gp4c works on version {VERSION}: "
        f"{remedy}."
    )
