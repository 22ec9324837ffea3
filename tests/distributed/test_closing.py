"""The end of a cycle: two workers write the record, and fold the columns, that one store would have."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest_twisted
from hypothesis import given
from hypothesis import strategies as st

from scrapy_gp4c.crawling import reports
from scrapy_gp4c.crawling.begun import as_begun, record_of
from scrapy_gp4c.crawling.estimates import Tally
from scrapy_gp4c.crawling.panel import OnPanel
from scrapy_gp4c.crawling.planning import Planner
from scrapy_gp4c.crawling.reports import Report, report_of
from scrapy_gp4c.distributed import closing
from scrapy_gp4c.distributed.closing import Told
from scrapy_gp4c.distributed.connection import Connection
from scrapy_gp4c.distributed.standing import begun
from scrapy_gp4c.page_state.outcomes import OUTCOMES, PLAN
from scrapy_gp4c.policies.policy import Planned
from scrapy_gp4c.store.lmdb_store.store import Store
from scrapy_gp4c.store.page_store import PageStore
from scrapy_gp4c.store.records import NewVisit
from scrapy_gp4c.store.shards.part import Finder
from tests.distributed.test_rounds import SETTINGS, Worker, both
from tests.distributed.test_rounds import crawled as crawled
from tests.distributed.test_rounds import workers as workers
from tests.store.test_store_kill import SMALL, key
from tests.support.by_key import pages_by_key
from tests.support.postgres import NEEDS_POSTGRES

pytestmark = NEEDS_POSTGRES
COUNTS = st.integers(0, 2**53)
PANELS = st.none() | st.builds(
    OnPanel, st.builds(Tally, *[COUNTS] * 3), *[COUNTS] * 4, *[st.floats(0, 1e12)] * 2, st.booleans()
)
REPORTS = st.builds(Report, COUNTS, st.tuples(*[COUNTS] * len(OUTCOMES)), COUNTS, COUNTS, PANELS)


@given(REPORTS, st.lists(st.fixed_dictionaries({"planned": COUNTS, "seen": COUNTS})), st.data())
def test_what_a_shard_tells_comes_back_as_it_was(report: Report, rounds: Any, data: st.DataObject) -> None:
    """Through the ledger's JSON; the same is the same bytes, whoever tells it again."""
    plan: Any = data.draw(st.dictionaries(st.sampled_from(["known", "due", "budget", "panel"]), COUNTS))
    told = Told(report, rounds, plan)
    assert Told.unpacked(told.packed()) == told
    assert Told.unpacked(told.packed()).packed() == told.packed()


def visit(stores: Sequence[PageStore], seed: int) -> None:
    """Visit the plan, and let two visits find a page each; the same in all stores that have the pages."""
    for number in range(90):
        for store in stores:
            page = store.find(key(number))
            planned = np.concatenate([np.empty(0, PLAN), *store.plan()])["page"]
            if page is not None and page in planned and not store.visited(page):
                outcome = ("changed", "unchanged", "error", "gone")[(number * seed) % 4]
                store.record(NewVisit(page, outcome, 86400.0 * 4 + number, "panel", number * seed))


def kept(store: PageStore) -> dict[int, Any]:
    """All that is kept of each page; who found it apart, as that may be a page elsewhere."""
    return {one: {**row, "finder": None} for one, row in pages_by_key(store).items()}


@pytest_twisted.ensureDeferred
async def test_two_workers_close_as_one_process(
    workers: list[Worker], crawled: Path, ledger: Connection
) -> None:
    """Counts, change rate, panel and plan of the record; columns of all pages, those found elsewhere too."""
    await both(*(one.begin() for one in workers))
    ledger.call(_entered, 4)
    with Store(crawled, sizes=SMALL) as whole:
        whole.begin_cycle({**record_of(SETTINGS, None), "started": 86400.0 * 4})
        planner = Planner(whole, as_begun(SETTINGS, whole.cycles()[-1]))
        planner.plan(whole.cycles()[-1], Planned.of(np.empty(0, PLAN)))
        await both(*(one.plan(0) for one in workers))
        shards = [shard for one in workers for shard in one.shards]
        visit([whole], 3)
        for shard in shards:
            visit([shard], 3)
        finder, found = key(0), key(0) ^ 1
        home = next(shard for shard in shards if shard.find(finder) is not None)
        other = next(shard for shard in shards if shard is not home)
        page = whole.find(finder)
        assert page is not None
        whole.note(whole.add_page(found, {"url": "http://elsewhere.org/"}), "found_by", page + 1)
        other.find_elsewhere(
            other.add_page(found, {"url": "http://elsewhere.org/"}), Finder(finder, home.shard_of.number)
        )
        for shard in shards:
            shard.commit()
        whole.commit()
        alone = reports.merged([report_of(whole, SETTINGS)])
        plan = whole.cycles()[-1]["plan"]
        ended = ledger.call(begun, 4)
        assert ended.closed is not None
        records = await both(
            *(closing.close(one.exchange, one.shards, ended.closed, SETTINGS) for one in workers)
        )
        assert records[0] == records[1]
        assert {name: records[0][name] for name in alone} == alone
        assert alone["visited"] > 20
        assert {name: records[0]["plan"][name] for name in ("known", "copies", "panel", "ranked")} == {
            name: plan[name]
            for name in ("known", "copies", "panel", "ranked")  # type: ignore[literal-required] # counts of a plan
        }
        whole.finish_cycle({**alone, "finished": ended.closed})
        everything = kept(whole)
        assert {one: row for shard in shards for one, row in kept(shard).items()}.keys() == everything.keys()
        for shard in shards:
            assert shard.verify() == []
            for one, row in kept(shard).items():
                assert row == everything[one]
    shutil.rmtree(crawled)


def _entered(tx: Any, cycle: int) -> None:
    """Enter a cycle that is closed."""
    tx.execute(
        "INSERT INTO gp4c.cycle (cycle, opened, opener, decided, code, closed)"
        " VALUES (%s, clock_timestamp(), 'one', '[{}, {}]', '[[], [], \"\", \"\"]', clock_timestamp())",
        (cycle,),
    )
