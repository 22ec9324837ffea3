"""Rounds that two workers plan through the ledger are those of one store: page for page, score and order."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import pytest_twisted
from scrapy.settings import Settings as ScrapySettings
from twisted.internet.defer import CancelledError, Deferred, gatherResults

from scrapy_gp4c.crawling.begun import as_begun, record_of
from scrapy_gp4c.crawling.planning import Planner
from scrapy_gp4c.distributed import exchange, leases, rounds
from scrapy_gp4c.distributed.connection import Transaction
from scrapy_gp4c.distributed.errors import DiffersError
from scrapy_gp4c.distributed.exchange import Posted, Step, Waiting
from scrapy_gp4c.distributed.leases import lock, new_worker
from scrapy_gp4c.distributed.link import Link
from scrapy_gp4c.distributed.looks import SOON
from scrapy_gp4c.distributed.round_parts import Begun
from scrapy_gp4c.distributed.rounds import Agreed, Exchange, SharedRounds, begun_name, plan, planners_of
from scrapy_gp4c.distributed.shared_store import SharedStore
from scrapy_gp4c.page_state.outcomes import KINDS, PLAN, RANKED
from scrapy_gp4c.policies.policy import Planned
from scrapy_gp4c.policies.shared_cut import Sketch
from scrapy_gp4c.policies.steps import alone
from scrapy_gp4c.settings import Settings
from scrapy_gp4c.store.lmdb_store.store import Store
from scrapy_gp4c.store.opening import LmdbShard, open_shard, shards_in, split
from scrapy_gp4c.store.page_store import PageStore
from scrapy_gp4c.store.records import NewVisit
from tests.store.test_store_kill import SMALL, key
from tests.support.postgres import NEEDS_POSTGRES

pytestmark = NEEDS_POSTGRES
SETTINGS = Settings.load(
    ScrapySettings(
        {
            "GP4C_POLICY": "rounds(rounds=2)",
            "GP4C_BUDGET": 0.8,
            "GP4C_PANEL": 0.2,
            "GP4C_WARMUP_VISITS": 1,
            "GP4C_SCORE_FUNCTION": "X",  # of which many are 0, and all tie with others
        }
    )
)
Row = tuple[str, int, bytes]


@pytest.fixture
def crawled(tmp_path: Path) -> Path:
    """A store of 90 pages on 18 hosts, with three cycles behind it; many pages tie."""
    with Store(tmp_path / "whole", sizes=SMALL) as store:
        store.add_pages(
            (key(number), {"url": f"http://h{number % 18}.org/{number % 3}/{number}"}) for number in range(90)
        )
        for cycle in range(1, 4):
            store.begin_cycle({"started": 86400.0 * cycle})
            for page in range(85 if cycle == 1 else 80):
                outcome = "first" if cycle == 1 else ("unchanged", "changed")[(page * cycle) % 5 == 1]
                store.record(NewVisit(page, outcome, 86400.0 * cycle + page, "other", page * cycle))
            store.finish_cycle({"finished": 86400.0 * cycle + 900})
    return tmp_path / "whole"


class Worker:
    """A worker with two of four shards, in a cycle."""

    def __init__(self, dsn: str, name: str, shards: Sequence[LmdbShard]) -> None:
        self.link = Link(dsn, new_worker(name, 30.0))
        self.shards = shards
        self.waited: list[int] = []

    async def begin(self) -> None:
        """Take the shards, and go to the first round."""
        await self.link.enter([])
        tokens = {}
        for one in self.shards:
            shard = one.shard_of.number
            tokens[shard] = (await self.link.ask(lambda tx, shard=shard: _taken(tx, self, shard))).token

        async def watch(missing: Sequence[int]) -> None:
            self.waited = sorted({*self.waited, *missing})

        self.exchange = Exchange(self.link, 4, 4, tokens, watch)
        self.rounds = SharedRounds(planners_of(self.shards, SETTINGS))

    async def plan(self, number: int) -> Agreed:
        """Plan a round with the other."""
        return await plan(self.exchange, self.rounds.planners, number)


def _taken(tx: Transaction, worker: Worker, shard: int) -> Any:
    return leases.take(tx, worker.link.worker, shard)


@pytest.fixture
def workers(dsn: str, crawled: Path, tmp_path: Path) -> Iterator[list[Worker]]:
    """Two, whose shards have begun cycle 4."""
    split(crawled, tmp_path / "shards", 4, SMALL)
    with ExitStack() as stack:
        shards = [stack.enter_context(open_shard(path, 4, SMALL)) for path in shards_in(tmp_path / "shards")]
        for one in shards:
            one.begin_cycle({**record_of(SETTINGS, None), "started": 86400.0 * 4})
        made = [Worker(dsn, "one", shards[:2]), Worker(dsn, "other", shards[2:])]
        for one_worker in made:
            stack.callback(one_worker.link.close, leave=True)
        yield made


def visit_once(store: PageStore, page: int) -> None:
    """Find a page changed, where the store has it and the cycle has not visited it."""
    local = store.find(key(page))
    if local is not None and not store.visited(local):
        store.record(NewVisit(local, "changed", 86400.0 * 4 + page, "other", 5 * page + 1))


def rows(store: PageStore, first: int) -> set[Row]:
    """Kind, key and score, bit by bit, of the plan from a place on."""
    chunks = np.concatenate([np.empty(0, PLAN), *store.plan()])[first:]
    return {(KINDS[row["kind"]], store.page(int(row["page"])).key, row["score"].tobytes()) for row in chunks}


def ranked(store: PageStore) -> list[int]:
    """Keys of the ranked pages of the plan, in its order."""
    found: npt.NDArray[Any] = np.concatenate([np.empty(0, PLAN), *store.plan()])
    return [store.page(int(page)).key for page in found["page"][found["kind"] == RANKED]]


def first_parts(planners: Mapping[LmdbShard, Planner]) -> dict[int, bytes]:
    """What shards tell in the first step of their next round, having seen all that is acknowledged."""
    parts = {}
    for one, planner in planners.items():
        planned, seen = Planned.of(np.concatenate([np.empty(0, PLAN), *one.plan()])), one.acknowledged_visits
        part = next(planner.steps(one.last_record(), planned, seen=seen))
        parts[one.shard_of.number] = Begun(seen, part).packed()
    return parts


async def both(*work: Coroutine[Any, Any, Any]) -> list[Any]:
    """What two workers come to at the same time."""
    found: list[Any] = await gatherResults([Deferred.fromCoroutine(one) for one in work], consumeErrors=True)
    return found


@pytest_twisted.ensureDeferred
async def test_two_workers_plan_as_one_process(workers: list[Worker], crawled: Path) -> None:
    """Two rounds, with visits between them; then neither has any left."""
    await both(*(one.begin() for one in workers))
    with Store(crawled, sizes=SMALL) as whole:
        whole.begin_cycle({**record_of(SETTINGS, None), "started": 86400.0 * 4})
        planner = Planner(whole, as_begun(SETTINGS, whole.cycles()[-1]))
        before: dict[Any, int] = {}
        for number in range(2):
            planned = Planned.of(np.concatenate([np.empty(0, PLAN), *whole.plan()])[["page", "kind"]])
            by_one = planner.plan(whole.cycles()[-1], planned)
            found = await both(*(one.plan(number) for one in workers))
            assert [one.result for one in found] == [by_one, by_one]
            assert any(one.is_ahead for one in found)
            shards = [shard for one in workers for shard in one.shards]
            parts = [rows(shard, before.get(shard, 0)) for shard in shards]
            assert sum(map(len, parts)) == len(set().union(*parts))
            assert set().union(*parts) == rows(whole, before.get(whole, 0))
            assert parts[0]
            before = {one: sum(len(chunk) for chunk in one.plan()) for one in (whole, *shards)}
            for page in range(0, 90, 7):
                for store in (whole, *shards):
                    visit_once(store, page)
            for shard in shards:
                shard.commit()
        order = ranked(whole)
        for one in workers:
            assert one.rounds.planned_rounds == planner.planned_rounds
            assert one.rounds.is_over == planner.is_over
            mine = ranked(SharedStore(crawled.parent, one.shards))
            assert len(mine) > 3
            assert mine == [one_key for one_key in order if one_key in set(mine)]


@pytest_twisted.ensureDeferred
async def test_a_round_is_that_of_one_process_with_the_same_marks(
    workers: list[Worker], crawled: Path
) -> None:
    """One worker asks early; what comes in after a shard has told what it has seen is not seen."""
    await both(*(one.begin() for one in workers))
    await both(*(one.plan(0) for one in workers))
    shards = [shard for one in workers for shard in one.shards]
    with Store(crawled, sizes=SMALL) as whole:
        whole.begin_cycle({**record_of(SETTINGS, None), "started": 86400.0 * 4})
        planner = Planner(whole, as_begun(SETTINGS, whole.cycles()[-1]))
        planner.plan(whole.cycles()[-1], Planned.of(np.empty(0, PLAN)))
        before = {one: sum(len(chunk) for chunk in one.plan()) for one in (whole, *shards)}

        def visit(pages: Sequence[int]) -> None:
            for page in pages:
                for store in (whole, *shards):
                    visit_once(store, page)
            for shard in shards:
                shard.commit()

        visit(range(0, 90, 9))
        seen = len(whole.open_visits())
        for one in workers:
            await one.exchange.post(begun_name(1), first_parts(planners_of(one.shards, SETTINGS)))
        visit(range(0, 90, 4))
        assert len(whole.open_visits()) > seen
        planned = Planned.of(np.concatenate([np.empty(0, PLAN), *whole.plan()])[["page", "kind"]])
        alone(planner.steps(whole.cycles()[-1], planned, seen=seen))
        step = workers[0].rounds.next_step(4)
        assert step == Step(4, begun_name(1))
        await both(*(one.rounds.plan_with(one.exchange) for one in workers))
        parts = [rows(shard, before[shard]) for shard in shards]
        assert set().union(*parts) == rows(whole, before[whole])
        assert sum(map(len, parts)) > 3
        assert [one.rounds.result for one in workers] == [True, True]
        assert workers[0].rounds.next_step(4) is None, "no round is left"


@pytest_twisted.ensureDeferred
async def test_who_has_little_of_a_round_leaves_it_to_others_to_ask(workers: list[Worker]) -> None:
    """Less than half of an equal share of what the rounds have chosen."""
    await both(*(one.begin() for one in workers))
    await both(*(one.plan(0) for one in workers))
    assert not any(one.rounds.is_light for one in workers)
    shards = workers[0].shards
    for shard in shards:
        counts = shard.cycles()[-1]["plan"]
        shard.amend_record(plan={**counts, "ranked": sum(counts["whole"]["ranked"]) // 10})
    light, other = (SharedRounds(one.rounds.planners) for one in workers)
    assert light.is_light
    assert not other.is_light


@pytest_twisted.ensureDeferred
async def test_what_a_shard_has_seen_is_settled_by_its_first_post(workers: list[Worker]) -> None:
    """Whoever plans a round again, after a kill, with other visits by now, plans the same."""
    await both(*(one.begin() for one in workers))
    await both(*(one.plan(0) for one in workers))
    shard = workers[0].shards[0]
    kept = [chunk.copy() for chunk in shard.plan()]
    shard.keep_rounds(0, None)
    shard.record(NewVisit(0, "changed", 86400.0 * 4, "other", 77))
    shard.commit()
    again = planners_of([shard], SETTINGS)
    assert not (await plan(workers[0].exchange, again, 0)).is_ahead
    for old, new in zip(kept, shard.plan(), strict=True):
        assert old.tobytes() == new.tobytes()


@pytest_twisted.ensureDeferred
async def test_a_first_part_that_others_would_not_find_is_refused(workers: list[Worker]) -> None:
    """By the same visits, as a processor of another kind may."""
    await both(*(one.begin() for one in workers))
    await both(*(one.plan(0) for one in workers))
    told = Begun.unpacked(first_parts(planners_of(workers[1].shards, SETTINGS))[2])
    assert isinstance(told.part, Sketch)
    points = told.part.points.copy()
    points["score"] += 1e-9
    other = told._replace(part=told.part._replace(points=points))
    await workers[1].exchange.post(begun_name(1), {2: other.packed()})
    found = [Deferred.fromCoroutine(one.plan(1)) for one in workers]
    with pytest.raises(DiffersError, match=r"the part of shard 2 for 'round/1' of cycle 4 differs"):
        await found[1]
    found[0].cancel()
    with suppress(CancelledError):  # it may have planned by what it was told
        await found[0]


@pytest_twisted.ensureDeferred
async def test_parts_of_all_are_waited_for(workers: list[Worker], ledger: Any) -> None:
    """Who is early hears whose parts are missing while nobody holds them; all get the same answer."""
    await workers[0].begin()
    early = Deferred.fromCoroutine(workers[0].exchange.agreed("step", {0: b"a", 1: b"b"}, b"".join))
    while not workers[0].waited:
        await workers[0].link.surely(lambda tx: tx.execute("SELECT 1"))
    await workers[1].begin()
    assert not await workers[1].exchange.is_complete("step")
    late = await workers[1].exchange.agreed("step", {2: b"c", 3: b"d"}, b"".join)
    assert await early == late == b"abcd"
    assert workers[0].waited == [2, 3]
    assert await workers[1].exchange.is_complete("step")


@pytest_twisted.ensureDeferred
async def test_of_parts_that_come_at_the_same_time_the_worker_with_shard_0_makes_the_answer(
    workers: list[Worker], ledger: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As none of them sees the others; at its first look, the other one waits for that."""
    await both(*(one.begin() for one in workers))
    for shard in range(4):
        token = ledger.call(lambda tx, shard=shard: lock(tx, [shard]))[shard]
        ledger.single(exchange.post, Step(4, "step"), [Posted(shard, token, b"abcd"[shard : shard + 1])])
    monkeypatch.setattr(rounds, "PATIENCE_S", np.inf)
    pauses: dict[int, list[float]] = {0: [], 1: []}
    turn = Deferred[None]()

    async def unseen(*_: Any) -> Waiting:
        return Waiting(2, 0, None)

    async def paused(seconds: float, number: int) -> None:
        pauses[number].append(seconds)
        if number and len(pauses[number]) == 3:
            await turn

    def combined(number: int) -> Callable[[list[bytes]], bytes]:
        return lambda parts: b"%d " % number + b"".join(parts)

    def agreed(number: int) -> Deferred[bytes]:
        monkeypatch.setattr(workers[number].exchange, "post", unseen)
        own = {2 * number: b"ac"[number : number + 1], 2 * number + 1: b"bd"[number : number + 1]}
        return Deferred.fromCoroutine(workers[number].exchange.agreed("step", own, combined(number)))

    monkeypatch.setattr(rounds, "sleep", lambda seconds: paused(seconds, 1))
    late = agreed(1)
    while len(pauses[1]) < 3:
        await workers[1].link.surely(lambda tx: tx.execute("SELECT 1"))
    monkeypatch.setattr(rounds, "sleep", lambda seconds: paused(seconds, 0))
    assert await agreed(0) == b"0 abcd"
    assert pauses[0] == [SOON.shortest_s]
    turn.callback(None)
    assert await late == b"0 abcd"


@pytest_twisted.ensureDeferred
async def test_another_puts_the_parts_together_in_the_end(workers: list[Worker], ledger: Any) -> None:
    """Where the worker with shard 0 has posted its parts, and comes to no answer."""
    await both(*(one.begin() for one in workers))
    for shard in range(2):
        token = ledger.call(lambda tx, shard=shard: lock(tx, [shard]))[shard]
        ledger.single(exchange.post, Step(4, "step"), [Posted(shard, token, b"ab"[shard : shard + 1])])
    noted: list[bytes] = []

    def note(tx: Any, answer: bytes) -> None:
        noted.append(answer)

    told = await workers[1].exchange.agreed("step", {2: b"c", 3: b"d"}, b"".join, note)
    assert told == b"abcd"
    assert noted == [told], "in the transaction that writes the answer"
    assert await workers[0].exchange.agreed("step", {0: b"a", 1: b"b"}, bytes) == told


@pytest_twisted.ensureDeferred
async def test_one_worker_with_all_shards_posts_its_parts_alone(workers: list[Worker], ledger: Any) -> None:
    """What follows from them nobody waits for; a heir of some shards makes it of the parts."""
    one = workers[0]
    one.shards = [*workers[0].shards, *workers[1].shards]
    await one.begin()
    own = {shard: b"abcd"[shard : shard + 1] for shard in (2, 0, 1, 3)}
    assert await one.exchange.agreed("step", own, b"".join) == b"abcd"
    assert ledger.call(exchange.answer, Step(4, "step")) is None
    assert ledger.call(exchange.told, Step(4, "step")) == [b"a", b"b", b"c", b"d"]
    assert await one.exchange.agreed("step", {2: b"c"}, b"".join) == b"abcd"
    assert ledger.call(exchange.answer, Step(4, "step")) == b"abcd"
    noted: list[bytes] = []
    told = await one.exchange.agreed("other", own, b"".join, lambda _, answer: noted.append(answer))
    assert noted == [told] == [ledger.call(exchange.answer, Step(4, "other"))]


def test_a_planned_round_is_taken_over_once(workers: list[Worker]) -> None:
    """What the others have planned, too, waits until the run asks for it."""
    rounds = SharedRounds(planners_of(workers[0].shards, SETTINGS))
    record, nothing = workers[0].shards[0].cycles()[-1], Planned.of(np.empty(0, PLAN))
    assert (rounds.planned_rounds, rounds.rounds, rounds.is_over) == (0, 2, False)
    rounds.result = True
    assert rounds.plan(record, nothing) is True
    assert rounds.result is None
    rounds.result = False
    rounds.stop()
    assert not rounds.is_over, "one is to be taken over"
    assert rounds.plan(record, nothing) is False
    assert rounds.is_over
