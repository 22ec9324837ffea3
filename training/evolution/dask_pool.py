"""The workers of a Dask cluster, used as those of this machine are.

joblib's own way to Dask does the work of a cluster with one worker in the process that sends it, and lets
every worker get every training set. Here all work is the workers', and each gets its next piece when it has
done one: pieces take unequal times, and Dask itself moves work from worker to worker but once a second. What
is on one training set goes to one worker as long as that leaves nobody idle: fewer sets travel, and a worker
meets rankings that it knows.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from functools import partial
from typing import Any, Final, NamedTuple, Protocol

from scrapy_gp4c.errors import LearningError

WAIT_S: Final = 10
"""So long a cluster without workers is waited for, at first; and so long for anything to be done, before a
look whether it waits for workers that are gone."""
ATTEMPTS: Final = 4
"""At a call whose data are lost, as workers die."""

Call = tuple[Callable[..., Any], Sequence[Any], Any]
"""Function, arguments and those by name, as `joblib.delayed` gives them."""


Work = Callable[[Any, Any], Any]
"""Does a task, with a payload or None."""
Missing = Callable[[Any], bytes | None]
"""The payload that a result lacked; None: it is one."""


class Task(Protocol):
    """What is done on some data."""

    @property
    def number(self) -> int:
        """Of the data: tasks of equal number are done by one worker, unless another is idle."""


class Done(NamedTuple):
    """A task's result."""

    result: Any
    worker: str
    """Who did it."""


class Job(NamedTuple):
    """What waits to be done."""

    number: int
    """As of a task."""
    send: Callable[[str], Any]
    """Sends it to a worker; returns the future."""
    is_bound: bool = True
    """Whether it is sent to that worker, and to another one where that is gone; False: to whoever is free."""


class Sent(NamedTuple):
    """What is under way."""

    job: Job
    worker: str
    """To whom it was sent; another one may do it, where that one died."""
    attempt: int


class Seats:
    """Who does what next: each worker as many jobs as it has threads, and one ahead while plenty wait."""

    def __init__(self, threads: Mapping[str, int]) -> None:
        """Take the threads of each worker."""
        self._threads = dict(sorted(threads.items()))
        self._taken = dict.fromkeys(self._threads, 0)
        self.waiting: list[Job] = []

    def take(self, worker: str) -> None:
        """A worker, or one that came later, has got a job."""
        self._taken[worker] = self._taken.get(worker, 0) + 1

    def leave(self, worker: str) -> None:
        """A worker has done one."""
        self._taken[worker] -= 1

    def seated(self) -> Iterator[tuple[Job, str]]:
        """Yield the next jobs, and to whom they go, until nobody has room, or none waits."""
        workers = list(self._threads)
        while self.waiting:
            worker = min(workers, key=lambda one: self._taken[one] / self._threads[one])
            ahead = len(self.waiting) > sum(self._threads.values())
            if self._taken[worker] >= self._threads[worker] + ahead:
                return
            own = (at for at, job in enumerate(self.waiting) if workers[job.number % len(workers)] == worker)
            yield self.waiting.pop(next(own, -1)), worker


class DaskPool:
    """Runs calls on the workers of a cluster."""

    def __init__(self, client: Any) -> None:
        """Take a `distributed.Client`; raises LearningError where there is no worker."""
        self._client = client
        self._distributed: Any = importlib.import_module("distributed")
        self._wait_for_workers()
        self.n_jobs = sum(client.ncores().values())
        """Calls that are done at a time."""

    def _wait_for_workers(self) -> None:
        """Raise LearningError where there is none."""
        try:
            self._client.wait_for_workers(1, timeout=WAIT_S)
        except TimeoutError:
            raise LearningError(
                f"expected a worker on the cluster of {self._client.scheduler.address}; found none within "
                f"{WAIT_S} s. Start some (docs/learning.md, On a Dask cluster)"
            ) from None

    def __call__(self, calls: Iterable[Call]) -> Iterator[Any]:
        """Yield what calls return, in the order in which they are done; raises as `run`."""

        def send(call: Call, worker: str) -> Any:
            function, args, options = call
            return self._client.submit(function, *args, pure=False, **options)

        jobs = (Job(number, partial(send, call), is_bound=False) for number, call in enumerate(calls))
        return self._results(jobs, lambda result: None)

    def run(self, work: Work, tasks: Iterable[Task | None], missing: Missing) -> Iterator[Any]:
        """Yield what ``work(task, payload)`` returns of tasks, in the order in which they are done.

        It is given no payload at first. ``missing``: tells of a result what it lacked; then its ``task`` is
        done again with that, which goes to that worker once. `tasks` is consumed while workers begin; None
        among them: there are none until what is yielded next has been taken. A task whose worker died is done
        by another one. Raises what `work` raises; LearningError for a task that kills worker after worker.
        """
        payloads: dict[tuple[int, str], Any] = {}

        def send(task: Task, worker: str) -> Any:
            return self._submit(worker, _told, work, task, None)

        def send_with(payload: bytes, task: Task, worker: str) -> Any:
            place = task.number, worker
            if (kept := payloads.get(place)) is None or kept.status != "finished":
                try:
                    payloads[place] = self._client.scatter(payload, workers=[worker], hash=False)
                except (KeyError, TimeoutError):  # it has died: another one tells what it lacks
                    return send(task, worker)
            return self._submit(worker, _told, work, task, payloads[place])

        def again(done: Done) -> tuple[Job, str] | None:
            if (payload := missing(done.result)) is None:
                return None
            task = done.result.task
            return Job(task.number, partial(send_with, payload, task)), done.worker

        jobs = (None if task is None else Job(task.number, partial(send, task)) for task in tasks)
        for done in self._results(jobs, again):
            yield done.result

    def _submit(self, worker: str, *args: Any) -> Any:
        return self._client.submit(*args, workers=[worker], allow_other_workers=True, pure=False)

    def _results(
        self, jobs: Iterable[Job | None], again: Callable[[Any], tuple[Job, str] | None]
    ) -> Iterator[Any]:
        """Yield results of jobs. ``again``: what is sent in place of a result, and to whom; None: nothing."""
        done = self._distributed.as_completed(loop=self._client.loop, with_results=True, raise_errors=False)
        self._wait_for_workers()
        seats = Seats(self._client.ncores())
        sent: dict[Any, Sent] = {}

        def begin(job: Job, worker: str, attempt: int = 1) -> None:
            future = job.send(worker)
            sent[future] = Sent(job, worker, attempt)
            seats.take(worker)
            done.add(future)

        def ended(future: Any, result: Any) -> Iterator[Any]:
            job, worker, attempt = sent.pop(future)
            seats.leave(worker)
            more = None
            if future.status == "finished":
                if (more := again(result)) is not None:
                    begin(*more)
            elif future.status == "error" or attempt == ATTEMPTS:
                raise self._failure(future)
            else:  # its payload was with workers that died
                begin(job, worker, attempt + 1)
            for one in seats.seated():
                begin(*one)
            if future.status == "finished" and more is None:
                yield result

        try:
            for job in jobs:
                if job is not None:
                    seats.waiting.append(job)
                    for one in seats.seated():
                        begin(*one)
                for one in self._batch(done, sent) if job is None else done.next_batch(block=False):
                    yield from ended(*one)
            while sent:
                for one in self._batch(done, sent):
                    yield from ended(*one)
        finally:
            if sent:
                self._client.cancel(list(sent))

    def _batch(self, done: Any, sent: Mapping[Any, Sent]) -> list[Any]:
        """Futures that are done, with their results, as soon as there are any; maybe none."""
        try:
            self._distributed.wait(list(sent), WAIT_S, "FIRST_COMPLETED")
        except TimeoutError:
            self._free(sent)
        except CancelledError:
            pass  # of a future whose data were lost, which is done as well
        return list(done.next_batch(block=False))

    def _free(self, sent: Mapping[Any, Sent]) -> None:
        """Take back what waits for workers that are gone, to be sent anew.

        Dask gives it to another one at once, but where there is none at that moment, it waits for the name of
        the old one, whoever comes.
        """
        at_work = self._client.processing()
        begun = {key for keys in at_work.values() for key in keys}
        stuck = [
            future
            for future, (job, worker, _) in sent.items()
            if at_work and job.is_bound and worker not in at_work and future.key not in begun
        ]
        self._client.cancel(stuck)

    def _failure(self, future: Any) -> BaseException:
        error: BaseException | None = future.exception() if future.status == "error" else None
        if error is None or isinstance(error, self._distributed.KilledWorker):
            return LearningError(
                "worker after worker of the cluster died of the same work, perhaps for want of memory: go on "
                "from the checkpoint with --resume, with more memory for each worker"
            )
        return error


def _told(work: Callable[[Any, Any], Any], task: Task, payload: Any) -> Done:
    """Do a task on a worker."""
    distributed: Any = importlib.import_module("distributed")
    return Done(work(task, payload), distributed.get_worker().address)
