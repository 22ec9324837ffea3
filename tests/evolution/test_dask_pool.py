"""A Dask cluster's workers do all of the work; data travel once to who lacks them; deaths cost nothing."""

from __future__ import annotations

import heapq
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import joblib
import pytest
from distributed import Client, LocalCluster, get_worker
from hypothesis import given
from hypothesis import strategies as st

from scrapy_gp4c.errors import LearningError
from tests.support.dask_cluster import Cluster
from training.evolution import dask_pool
from training.evolution.dask_pool import DaskPool, Job, Seats
from training.evolution.workers import workers

QUIET = {"dashboard_address": ":0", "silence_logs": 50}


class Task(NamedTuple):
    """Some work on data of a number."""

    number: int
    name: int = 0
    seconds: float = 0.0


class Answer(NamedTuple):
    """What came of it."""

    task: Task
    content: bytes | None
    process: int


def work(task: Task, payload: bytes | None) -> Answer:
    """Answer with the data, which a worker keeps once it has them."""
    time.sleep(task.seconds)
    kept = get_worker().__dict__.setdefault("kept", {})
    if payload is not None:
        assert task.number not in kept or kept[task.number] == payload
        kept[task.number] = payload
    return Answer(task, kept.get(task.number), os.getpid())


def missing(answer: Answer) -> bytes | None:
    """What the worker lacked."""
    return b"data %d" % answer.task.number if answer.content is None else None


def deadly(number: int) -> int:
    """Kill the worker that does it."""
    os.kill(os.getpid(), signal.SIGKILL)
    return number


def failing(number: int) -> int:
    """Fail."""
    raise ValueError(f"no {number}")


def simulated(threads: dict[str, int], jobs: list[tuple[int, float]]) -> tuple[list[tuple[int, str]], float]:
    """Who does which job of (number, seconds), in this order, and when the last one is done."""
    seats, clock = Seats(threads), 0.0
    free_at = {worker: [0.0] * count for worker, count in threads.items()}
    under_way: list[tuple[float, str]] = []
    placed = []
    seats.waiting += [Job(number, lambda worker, seconds=seconds: seconds) for number, seconds in jobs]
    while True:
        for job, worker in seats.seated():
            seats.take(worker)
            seat = free_at[worker].index(min(free_at[worker]))
            free_at[worker][seat] = max(free_at[worker][seat], clock) + job.send(worker)
            heapq.heappush(under_way, (free_at[worker][seat], worker))
            placed.append((job.number, worker))
        if not under_way:
            return placed, clock
        clock, worker = heapq.heappop(under_way)
        seats.leave(worker)


@given(
    st.dictionaries(st.sampled_from("abcd"), st.integers(1, 3), min_size=1),
    st.lists(st.tuples(st.integers(0, 9), st.floats(0.01, 10.0))),
)
def test_nobody_is_idle_while_others_have_plenty(
    threads: dict[str, int], jobs: list[tuple[int, float]]
) -> None:
    """However unequal the jobs: all are done in an equal share of the time, and two jobs' more at most."""
    placed, end_s = simulated(threads, jobs)
    assert sorted(number for number, _ in placed) == sorted(number for number, _ in jobs)
    all_s = sum(seconds for _, seconds in jobs)
    longest_s = max((seconds for _, seconds in jobs), default=0.0)
    assert end_s <= all_s / sum(threads.values()) + 2 * longest_s + 1e-9


def test_data_stay_where_they_are_while_all_are_busy() -> None:
    """Jobs of a number are one worker's; of five numbers for two workers, the last one is shared."""
    even, _ = simulated({"a": 1, "b": 1}, [(number, 1.0) for number in (0, 0, 1, 1, 2, 2, 3, 3)])
    assert {(number, worker) for number, worker in even} == {(0, "a"), (1, "b"), (2, "a"), (3, "b")}
    odd, end_s = simulated({"a": 1, "b": 1}, [(number, 1.0) for number in (0, 0, 1, 1, 2, 2, 3, 3, 4, 4)])
    assert set(odd) == {(0, "a"), (1, "b"), (2, "a"), (3, "b"), (4, "a"), (4, "b")}
    assert end_s == 5.0


@pytest.fixture
def cluster(request: pytest.FixtureRequest) -> Iterator[LocalCluster]:
    """So many workers in processes of their own, without one that starts dead ones again."""
    with LocalCluster(n_workers=request.param, threads_per_worker=1, host="127.0.0.1", **QUIET) as started:
        yield started


@pytest.mark.parametrize("cluster", [1], indirect=True)
def test_one_worker_does_the_work_too(cluster: LocalCluster) -> None:
    """Not the process that sends it, whose machine may be a small one."""
    with workers(backend="dask", scheduler=cluster.scheduler_address) as pool:
        assert pool.n_jobs == 1
        assert set(pool(joblib.delayed(os.getpid)() for _ in range(3))).isdisjoint({os.getpid()})
        found = list(pool.run(work, [Task(n % 3, n) for n in range(9)], missing))
    assert {answer.process for answer in found}.isdisjoint({os.getpid()})
    assert sorted(answer.task.name for answer in found) == list(range(9))
    assert all(answer.content == b"data %d" % answer.task.number for answer in found)


@pytest.mark.parametrize("cluster", [2], indirect=True)
def test_data_of_a_number_are_one_workers(cluster: LocalCluster) -> None:
    """While both are busy; one that is idle helps. What is wrong is raised, and the rest dropped."""
    with Client(cluster) as client:
        pool = DaskPool(client)
        tasks = [Task(number, name, 0.05) for name in range(4) for number in range(4)]
        found = list(pool.run(work, iter(tasks), missing))
        assert sorted(answer.task for answer in found) == sorted(tasks)
        assert all(answer.content == b"data %d" % answer.task.number for answer in found)
        again = list(pool.run(work, [Task(0, name, 0.3) for name in range(8)], missing))
        assert len({answer.process for answer in again}) == 2, "an idle worker helps"
        with pytest.raises(ValueError, match="no 3"):
            list(pool(joblib.delayed(failing)(3) for _ in range(4)))
        assert list(pool(joblib.delayed(abs)(-number) for number in range(1))) == [0]


@pytest.mark.parametrize("cluster", [2], indirect=True)
def test_work_that_kills_worker_after_worker(cluster: LocalCluster) -> None:
    """One error that says how to go on."""
    with (
        workers(backend="dask", scheduler=cluster.scheduler_address) as pool,
        pytest.raises(LearningError, match=r"worker after worker .* died of the same work.*--resume"),
    ):
        list(pool([joblib.delayed(deadly)(1)]))


def test_workers_that_come_when_all_have_died_do_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under other names: what was sent to the dead ones is theirs, and what waits besides."""
    monkeypatch.setattr(dask_pool, "WAIT_S", 1.0)
    cluster = Cluster(tmp_path, 2, {})
    try:
        with Client(cluster.address) as client:
            client.wait_for_workers(2)
            found = DaskPool(client).run(
                work, [Task(number % 3, number, 0.3) for number in range(9)], missing
            )
            first = next(found)
            for worker in cluster.workers:
                worker.kill()
                worker.wait()
            while client.ncores():
                time.sleep(0.05)
            last = cluster.join()
            rest = list(found)
    finally:
        cluster.stop()
    assert sorted(answer.task.name for answer in [first, *rest]) == list(range(9))
    assert {answer.process for answer in rest} == {last.pid}
    assert all(answer.content == b"data %d" % answer.task.number for answer in rest)


@pytest.mark.parametrize("cluster", [0], indirect=True)
def test_a_cluster_without_workers(cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Is waited for, for a while; one error then."""
    monkeypatch.setattr(dask_pool, "WAIT_S", 0.5)
    with (
        pytest.raises(LearningError, match=r"expected a worker on the cluster of .*; found none within"),
        workers(backend="dask", scheduler=cluster.scheduler_address),
    ):
        pass
