"""Who should hold what: alike for all workers, even, and with few moves."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from scrapy_gp4c.distributed.assignment import SLACK, Assignment, assign
from scrapy_gp4c.distributed.leases import PARKED_AFTER, ShardRow, View, WorkerRow

UP_S = 1e6
LEASE_S = 30.0


def worker(name: str, left_s: float = 20.0, draining: bool = False, copies: object = ()) -> WorkerRow:
    """A worker."""
    return WorkerRow(name, f"{name}'s", left_s, draining, frozenset(copies))


def shard(number: int, holder: str | None = None, pages: int = 100, deaths: int = 0) -> ShardRow:
    """A shard."""
    return ShardRow(number, 1, holder, holder and f"{holder}'s", deaths, pages, 0, 0, 0)


def view(workers: list[WorkerRow], shards: list[ShardRow], up_s: float = UP_S) -> View:
    """All that is known."""
    return View(tuple(workers), tuple(shards), up_s)


@st.composite
def views(draw: st.DrawFn) -> View:
    """Workers of all kinds, and shards that some of them, dead ones or nobody hold."""
    names = [f"w{number}" for number in range(draw(st.integers(1, 8)))]
    count = draw(st.integers(1, 40))
    workers = [
        worker(
            name,
            draw(st.sampled_from([20.0, 20.0, 20.0, -5.0])),
            draw(st.sampled_from([False, False, False, True])),
            draw(st.sets(st.integers(0, count - 1), max_size=8)),
        )
        for name in names
    ]
    holders = st.sampled_from([None, *names, *names, *names, "gone"])
    pages = st.one_of(st.just(0), st.integers(0, 1000), st.integers(0, 10**7))
    shards = [
        shard(number, draw(holders), draw(pages), draw(st.sampled_from([0, 0, 0, 1, 2, 3])))
        for number in range(count)
    ]
    return view(workers, shards, draw(st.sampled_from([UP_S, UP_S, 5.0])))


def loads(found: Assignment, shards: tuple[ShardRow, ...], workers: list[str]) -> dict[str, int]:
    """What workers hold."""
    weights = {row.shard: max(1, row.pages) for row in shards}
    return {name: sum(weights[one] for one in found.of(name)) for name in workers}


@given(views(), st.booleans(), st.randoms(use_true_random=False))
def test_every_worker_finds_the_same(known: View, at_end: bool, random: object) -> None:
    """The order in which rows come does not matter."""
    found = assign(known, LEASE_S, at_end)
    workers, shards = list(known.workers), list(known.shards)
    random.shuffle(workers)
    assert assign(view(workers, shards, known.server_up_s), LEASE_S, at_end) == found


@given(views(), st.booleans())
def test_shards_go_to_who_may_have_them(known: View, at_end: bool) -> None:
    """Each shard to one living worker that does not drain, if there is one; parked ones to nobody."""
    found = assign(known, LEASE_S, at_end)
    alive = {row.name for row in known.workers if row.left_s >= 0}
    takes = {row.name for row in known.workers if row.left_s >= 0 and not row.draining}
    for row in known.shards:
        name = found.holders.get(row.shard)
        if row.shard in found.parked:
            continue
        if takes and known.server_up_s >= LEASE_S:
            assert name in takes
        elif name is not None and name not in alive:
            assert name == row.holder  # nobody could renew yet
    living = {(row.name, row.instance) for row in known.workers if row.left_s >= 0}
    for number in found.parked:
        row = known.shards[number]
        dies_with = row.holder is not None and (row.holder, row.instance) not in living
        assert row.deaths + dies_with >= PARKED_AFTER


@given(views())
def test_within_a_cycle_only_the_homeless_move(known: View) -> None:
    """What a living worker holds that does not drain stays, however uneven that is."""
    found = assign(known, LEASE_S)
    stays = {row.name for row in known.workers if row.left_s >= 0 and not row.draining}
    for row in known.shards:
        if row.holder in stays and row.deaths < PARKED_AFTER:
            assert found.holders[row.shard] == row.holder


@given(views())
def test_at_a_cycles_end_no_single_move_evens_out_more(known: View) -> None:
    """The fullest is within the slack of the emptiest, or every shard of it weighs more than the gap."""
    found = assign(known, LEASE_S, at_cycle_end=True)
    names = [row.name for row in known.workers if row.left_s >= 0 and not row.draining]
    if not names:
        return
    held = loads(found, known.shards, names)
    gap = max(held.values()) - min(held.values())
    if gap > SLACK * sum(held.values()) / len(held):
        full = max(held, key=lambda name: (held[name], name))
        assert min(max(1, known.shards[one].pages) for one in found.of(full)) >= gap


@given(views())
def test_what_was_evened_out_stays(known: View) -> None:
    """The next end of a cycle moves nothing."""
    found = assign(known, LEASE_S, at_cycle_end=True)
    settled = [
        row._replace(holder=found.holders.get(row.shard), deaths=0)._replace(
            instance=f"{found.holders[row.shard]}'s" if row.shard in found.holders else None
        )
        for row in known.shards
        if row.shard in found.holders
    ]
    again = assign(View(known.workers, tuple(settled), known.server_up_s), LEASE_S, at_cycle_end=True)
    assert again.holders == found.holders


@given(st.integers(2, 8), st.integers(1, 8))
def test_a_new_worker_gets_its_share_and_no_more_moves(workers: int, shards_each: int) -> None:
    """Of equal shards: what it gets moved to it, and nothing moved between others."""
    names = [f"w{number}" for number in range(workers)]
    shards = [shard(number, names[number % (workers - 1)]) for number in range(shards_each * workers)]
    found = assign(view([worker(name) for name in names], shards), LEASE_S, at_cycle_end=True)
    assert [len(found.of(name)) for name in names] == [shards_each] * workers
    moved = [row.shard for row in shards if found.holders[row.shard] != row.holder]
    assert len(moved) == shards_each
    assert {found.holders[one] for one in moved} == {names[-1]}


def test_a_dead_ones_shards_go_where_copies_are() -> None:
    """Even if another holds a little less; but not to one that is too full by it."""
    shards = [shard(0, "a"), shard(1, "b"), shard(2, "c"), shard(3, "c")]
    workers = [worker("a", copies={0, 2, 3}), worker("b"), worker("c", -1.0)]
    found = assign(view(workers, shards), LEASE_S)
    assert found.holders == {0: "a", 1: "b", 2: "a", 3: "a"}
    heavy = [shard(0, "a", 500), shard(1, "b", 300), shard(2, "c", 400)]
    assert assign(view(workers, heavy), LEASE_S).holders[2] == "a"
    heavier = [shard(0, "a", 501), shard(1, "b", 300), shard(2, "c", 400)]
    assert assign(view(workers, heavier), LEASE_S).holders[2] == "b"


def test_nobody_is_dead_within_a_lease_of_the_servers_start() -> None:
    """Who could not renew keeps its shards; what nobody held is given out."""
    workers = [worker("a", -100.0), worker("b")]
    shards = [shard(0, "a"), shard(1)]
    assert assign(view(workers, shards, 5.0), LEASE_S).holders == {0: "a", 1: "b"}
    assert assign(view(workers, shards, 31.0), LEASE_S).holders == {0: "b", 1: "b"}


def test_a_draining_worker_gives_all_away() -> None:
    """At once, but not if nobody else is there."""
    shards = [shard(0, "a"), shard(1, "a")]
    alone = view([worker("a", draining=True)], shards)
    assert assign(alone, LEASE_S).holders == {0: "a", 1: "a"}
    both = view([worker("a", draining=True), worker("b")], shards)
    assert assign(both, LEASE_S).holders == {0: "b", 1: "b"}


def test_a_killing_shard_is_parked_and_named() -> None:
    """And those that died with it are held apart from each other."""
    workers = [worker("a"), worker("b"), worker("c", -1.0)]
    shards = [shard(0, "c", deaths=2), shard(1, "c", deaths=1), shard(2, "c", deaths=1), shard(3, "a")]
    found = assign(view(workers, shards), LEASE_S)
    assert found.parked == (0,)
    assert 0 not in found.holders
    assert found.holders[1] != found.holders[2]


def test_one_host_with_most_pages_is_one_workers() -> None:
    """A shard cannot be divided: the others are spread over the others."""
    shards = [shard(0, None, 4_000_000), *(shard(number, None, 1_000_000) for number in range(1, 7))]
    found = assign(view([worker(name) for name in "abc"], shards), LEASE_S, at_cycle_end=True)
    assert sorted(loads(found, tuple(shards), list("abc")).values()) == [3_000_000, 3_000_000, 4_000_000]
