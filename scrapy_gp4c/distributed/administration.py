"""What is done to a ledger from outside a crawl: making it, looking at it, draining a worker, collecting."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.crawling.crawl_status import CrawlStatus, WorkerStatus
from scrapy_gp4c.distributed import copies, leases, schema
from scrapy_gp4c.distributed.assignment import assign
from scrapy_gp4c.distributed.connection import Calls, Connection, Transaction
from scrapy_gp4c.distributed.copies import Copying
from scrapy_gp4c.distributed.errors import LedgerError
from scrapy_gp4c.distributed.ledger import open_ledger
from scrapy_gp4c.distributed.objects import Owned, Place
from scrapy_gp4c.distributed.places import place_of
from scrapy_gp4c.distributed.standing import standing
from scrapy_gp4c.errors import SettingsError, StoreError
from scrapy_gp4c.page_state.outcomes import PANEL
from scrapy_gp4c.settings import Settings
from scrapy_gp4c.store.opening import Progress, Sizes, forget, join, no_progress, open_shard, split
from scrapy_gp4c.store.page_store import PageStore
from scrapy_gp4c.store.shards.directory import shard_path
from scrapy_gp4c.store.shards.part import ShardOf


def ledger_of(settings: Settings) -> Connection:
    """Open the ledger of a spider's settings; raises SettingsError if there is none."""
    if settings.ledger is None:
        raise SettingsError(
            "expected GP4C_LEDGER, the connection string of a PostgreSQL database; found none. Set it in the "
            "settings, or by -s GP4C_LEDGER=..."
        )
    return open_ledger(settings.ledger, settings.lease_s)


def create(
    settings: Settings, shards: int, store: Path | None, sizes: Sizes, progress: Progress = no_progress
) -> schema.About:
    """Make a ledger of so many shards; ``store``: whose pages and history they begin with."""
    assert settings.ledger is not None
    owner = Connection(settings.ledger)
    try:
        about = schema.create(owner, shards)
        if store is not None:
            owner.call(_refuse_used, about)
            place = place_of(settings.objects, owner)
            _begin_with(owner, place, about, store, sizes, progress)
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


def _begin_with(
    calls: Calls, place: Place, about: schema.About, store: Path, sizes: Sizes, progress: Progress
) -> None:
    """Split a store, and store its shards as the copies of its last cycle."""
    with tempfile.TemporaryDirectory(prefix="gp4c-split-") as folder:
        made = split(store, Path(folder, "shards"), about.shards, sizes, progress)
        for number in range(about.shards):
            with open_shard(shard_path(Path(folder, "shards"), number), about.shards, sizes) as one:
                one.belong_to(about.ledger)
                record = one.cycles()[-1] if made.cycles else {}
                copy = Path(folder, f"copy-{number}")
                copy.mkdir()
                copies.put_snapshot(Copying(calls, place, Owned(number, 0), copy), one)
            progress("copies", number + 1, about.shards)
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
    about, now, view = calls.call(schema.about), calls.call(standing), calls.call(leases.look, True)
    alive = {row.instance for row in view.workers if row.left_s >= 0}
    parked = list(assign(view, settings.lease_s).parked)
    last, letters = now.last, calls.call(_letters)
    waits_for = [row.shard for row in view.shards if row.done < last.cycle] if not last.closed else []
    return CrawlStatus(
        ledger=about.ledger,
        shards=about.shards,
        pages=sum(row.pages for row in view.shards),
        cycle=last.cycle,
        open=not last.closed,
        complete=now.is_complete,
        next_due_s=max(0.0, settings.cycle_s - last.age_s) if now.is_complete else None,
        waits_for=waits_for,
        homeless=[row.shard for row in view.shards if row.instance not in alive],
        parked=parked,
        letters=sum(letters.values()),
        workers=[
            WorkerStatus(
                row.name,
                row.left_s,
                row.draining,
                held := [shard.shard for shard in view.shards if shard.instance == row.instance],
                [shard for shard in held if shard in waits_for],
                sum(letters.get(shard, 0) for shard in held),
            )
            for row in view.workers
        ],
    )


def _letters(tx: Transaction) -> dict[int, int]:
    """Letters that nobody has read, by the shard that they are for."""
    return dict(tx.execute("SELECT receiver, count(*) FROM gp4c.mail GROUP BY receiver").fetchall())


def is_wanted(found: CrawlStatus) -> bool:
    """Tell whether a further worker has anything to do now."""
    if found.open or not found.complete:
        return bool(set(found.homeless) - set(found.parked))
    return found.next_due_s == 0


def collect(
    calls: Calls,
    settings: Settings,
    directory: Path,
    sizes: Sizes,
    *,
    panel: bool = False,
    progress: Progress = no_progress,
) -> tuple[int, int, int]:
    """Join the copies of all shards into one ordinary store, without the workers.

    ``panel``: of the panel's pages alone, which were visited whatever their score: a history of them is
    without bias. Returns the cycle that it ends with, and its pages and cycles. Raises LedgerError where the
    copies are of different cycles, and where there is no panel.
    """
    about, place = calls.call(schema.about), place_of(settings.objects, calls)
    directory.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=directory.parent, prefix="collect-") as folder:
        places = [shard_path(Path(folder), shard) for shard in range(about.shards)]
        cycles = set()
        for shard, path in enumerate(places):
            own = ShardOf(shard, about.shards, about.ledger)
            cycles.add(copies.build(calls, place, own, path, sizes))
            progress("copies", shard + 1, about.shards)
        if len(cycles) != 1 or not max(cycles):
            raise LedgerError(
                f"expected the objects of {about.shards} shards, all up to one cycle; found "
                f"{', '.join(map(str, sorted(cycles)))}. Start the workers: they finish the cycle, and copy."
            )
        whole = Path(folder, "whole") if panel else directory
        pages, joined = join(places, whole, sizes, progress)
        if panel:
            pages -= forget(whole, sizes, _off_panel)
            _move(whole, directory)
    return cycles.pop(), pages, joined


def _move(store: Path, directory: Path) -> None:
    try:
        store.replace(directory)
    except OSError as error:
        raise StoreError(
            f"expected {directory} to be empty or not there, to put a store into it; found {error.strerror}. "
            "Give another directory."
        ) from None


def _off_panel(store: PageStore) -> npt.NDArray[np.bool_]:
    """Tell which pages were never visited as some of the panel; raises LedgerError if that is all of them."""
    off = np.ones(store.merged_pages, np.bool_)
    for _, visits in store.visits():
        off[visits["page"][visits["kind"] == PANEL]] = False
    if off.all():
        raise LedgerError(
            "expected visits to a panel, a random share of the pages; found none. Set GP4C_PANEL and crawl, "
            "or leave out --panel."
        )
    return off
