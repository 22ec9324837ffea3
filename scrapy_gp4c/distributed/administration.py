"""What is done to a ledger from outside a crawl: making it, looking at it, draining a worker, collecting."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Final

from scrapy_gp4c.crawling.crawl_status import CrawlStatus, WorkerStatus
from scrapy_gp4c.distributed import leases, objects, schema
from scrapy_gp4c.distributed.assignment import assign
from scrapy_gp4c.distributed.connection import Calls, Connection, Transaction
from scrapy_gp4c.distributed.errors import LedgerError
from scrapy_gp4c.distributed.ledger import open_ledger
from scrapy_gp4c.distributed.objects import Owned
from scrapy_gp4c.distributed.places import place_of
from scrapy_gp4c.distributed.standing import standing
from scrapy_gp4c.errors import SettingsError
from scrapy_gp4c.settings import Settings
from scrapy_gp4c.store.opening import Sizes, join, open_shard, split
from scrapy_gp4c.store.shards.directory import shard_path

FILE: Final = "data.mdb"


def ledger_of(settings: Settings) -> Connection:
    """Open the ledger of a spider's settings; raises SettingsError if there is none."""
    if settings.ledger is None:
        raise SettingsError(
            "expected GP4C_LEDGER, the connection string of a PostgreSQL database; found none. Set it in the "
            "settings, or by -s GP4C_LEDGER=..."
        )
    return open_ledger(settings.ledger, settings.lease_s)


def create(settings: Settings, shards: int, store: Path | None, sizes: Sizes) -> schema.About:
    """Make a ledger of so many shards; ``store``: whose pages and history they begin with."""
    assert settings.ledger is not None
    owner = Connection(settings.ledger)
    try:
        about = schema.create(owner, shards)
        if store is not None:
            owner.call(_refuse_used, about)
            _begin_with(owner, settings, about, store, sizes)
    finally:
        owner.close()
    return about


def _refuse_used(tx: Transaction, about: schema.About) -> None:
    row = tx.execute(
        "SELECT (SELECT count(*) FROM gp4c.cycle), (SELECT count(*) FROM gp4c.object)"
    ).fetchone()
    if row != (0, 0):
        raise LedgerError(
            f"the ledger {about.ledger} has pages already: a store can only be put into an empty one. Use "
            "another database."
        )


def _begin_with(calls: Calls, settings: Settings, about: schema.About, store: Path, sizes: Sizes) -> None:
    """Split a store, and store its shards as the copies of its last cycle."""
    place = place_of(settings.objects, calls)
    with tempfile.TemporaryDirectory(prefix="gp4c-split-") as folder:
        made = split(store, Path(folder, "shards"), about.shards, sizes)
        for number in range(about.shards):
            with open_shard(shard_path(Path(folder, "shards"), number), about.shards, sizes) as one:
                one.belong_to(about.ledger)
                record = one.cycles()[-1] if made.cycles else {}
                copy = Path(folder, f"copy-{number}")
                copy.mkdir()
                file = one.copy_to(copy)
            objects.put(calls, place, Owned(number, 0), "snapshot", made.cycles, file)
    if made.cycles:
        record.pop("shard", None)
        calls.call(_enter_history, made.cycles, json.dumps(record, sort_keys=True))


def _enter_history(tx: Transaction, cycle: int, record: str) -> None:
    tx.execute(
        "INSERT INTO gp4c.cycle (cycle, opened, opener, decided, code, closed, record)"
        " VALUES (%s, 'epoch', 'create', '[{}, {}]', '[[], [], \"\", \"\"]', clock_timestamp(), %s)",
        (cycle, record),
    )


def status(calls: Calls, settings: Settings) -> CrawlStatus:
    """Look at the crawl."""
    about, now, view = calls.call(schema.about), calls.call(standing), calls.call(leases.look)
    alive = {row.instance for row in view.workers if row.left_s >= 0}
    parked = list(assign(view, settings.lease_s).parked)
    last = now.last
    return CrawlStatus(
        ledger=about.ledger,
        shards=about.shards,
        pages=sum(row.pages for row in view.shards),
        cycle=last.cycle,
        open=not last.closed,
        complete=now.is_complete,
        next_due_s=max(0.0, settings.cycle_s - last.age_s) if now.is_complete else None,
        waits_for=[row.shard for row in view.shards if row.done < last.cycle] if not last.closed else [],
        homeless=[row.shard for row in view.shards if row.instance not in alive],
        parked=parked,
        letters=calls.call(_letters),
        workers=[
            WorkerStatus(
                row.name,
                row.left_s,
                row.draining,
                [shard.shard for shard in view.shards if shard.instance == row.instance],
            )
            for row in view.workers
        ],
    )


def _letters(tx: Transaction) -> int:
    row = tx.execute("SELECT count(*) FROM gp4c.mail").fetchone()
    return int(row[0]) if row is not None else 0


def is_wanted(found: CrawlStatus) -> bool:
    """Tell whether a further worker has anything to do now."""
    if found.open or not found.complete:
        return bool(set(found.homeless) - set(found.parked))
    return found.next_due_s == 0


def collect(calls: Calls, settings: Settings, directory: Path, sizes: Sizes) -> tuple[int, int, int]:
    """Join the copies of all shards into one ordinary store, without the workers.

    Returns the cycle that it ends with, and its pages and cycles. Raises LedgerError where the copies are of
    different cycles.
    """
    about, place = calls.call(schema.about), place_of(settings.objects, calls)
    newest: dict[int, objects.Stored] = {}
    for stored in calls.call(objects.registered):
        if stored.kind == "snapshot" and stored.cycle >= (newest.get(stored.shard) or stored).cycle:
            newest[stored.shard] = stored
    cycles = {stored.cycle for stored in newest.values()}
    if len(newest) < about.shards or len(cycles) != 1:
        raise LedgerError(
            f"expected a copy of each of {about.shards} shards, all as one cycle left them; found "
            f"{len(newest)}, of the cycles {', '.join(map(str, sorted(cycles))) or 'none'}. Start the "
            "workers: they finish the cycle, and copy."
        )
    directory.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=directory.parent, prefix="collect-") as folder:
        places = []
        for shard, stored in sorted(newest.items()):
            places.append(shard_path(Path(folder), shard))
            places[-1].mkdir()
            objects.get(place, stored, places[-1] / FILE)
        pages, joined = join(places, directory, sizes)
    return cycles.pop(), pages, joined
