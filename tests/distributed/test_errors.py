"""What the ledger raises is what docs/distributed.md says that it raises."""

from __future__ import annotations

import re

from scrapy_gp4c.distributed import errors
from scrapy_gp4c.distributed.errors import LedgerDamagedError, LedgerError, LedgerFullError
from scrapy_gp4c.errors import StoreDamagedError, StoreError, StoreFullError
from tests.support.sources import ROOT

OURS = {
    name: one
    for name, one in vars(errors).items()
    if isinstance(one, type) and one.__module__ == errors.__name__
}


def test_all_are_errors_of_the_ledger_and_the_store() -> None:
    """So that whoever knows a store's errors knows these; full and damaged are the store's, too."""
    assert all(issubclass(one, LedgerError) for one in OURS.values())
    assert issubclass(LedgerError, StoreError)
    assert issubclass(LedgerFullError, StoreFullError)
    assert issubclass(LedgerDamagedError, StoreDamagedError)


def test_the_documents_name_those_that_there_are() -> None:
    """In the table of a call's faults; none is missing there but the one that a worker never sees."""
    text = (ROOT / "docs" / "distributed.md").read_text("utf-8").partition("## Faults of a call")[2]
    named = set(re.findall(r"`([A-Z]\w+Error)`", text.partition("\n## ")[0]))
    assert named <= OURS.keys()
    assert OURS.keys() - named <= {"LedgerError", "CycleClosedError"}
