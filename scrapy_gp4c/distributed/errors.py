"""What the ledger raises: what is wrong, where, and the remedy; never a password."""

from __future__ import annotations

from scrapy_gp4c.errors import StoreDamagedError, StoreError, StoreFullError


class LedgerError(StoreError):
    """The ledger, or this worker's part in it, cannot be used; what it acknowledged is still there."""


class LedgerAwayError(LedgerError):
    """No answer from PostgreSQL now: not there, lost, too slow, too busy. The call may be made again."""


class LedgerFullError(LedgerError, StoreFullError):
    """PostgreSQL has no room for a write; nothing of it was written. The call may be made again."""


class LedgerVersionError(LedgerError):
    """The server is older than what the ledger needs."""


class LedgerRightsError(LedgerError):
    """The server does not let this user in, or not do what a worker does."""


class LedgerSchemaError(LedgerError):
    """The database holds no ledger, or one of another version."""


class LedgerReadOnlyError(LedgerError):
    """The server takes no writes: a standby, or set so."""


class LedgerDamagedError(LedgerError, StoreDamagedError):
    """A segment or an object is missing, damaged or torn; nothing of it was used."""


class FencedError(LedgerError):
    """Others hold these shards now; nothing of the call was written."""

    shards: tuple[int, ...] = ()
    """The shards that were taken over."""


class NameTakenError(LedgerError):
    """A living worker has this name, or took it over."""


class CodeDiffersError(LedgerError):
    """What is code of a cycle differs between its opener and this worker."""


class CycleClosedError(LedgerError):
    """The cycle is closed: nothing more can be recorded in it."""


class DiffersError(LedgerError):
    """What was written once is written again, but differently."""
