"""The workers of a Dask cluster, used as a `joblib.Parallel` is.

joblib's own way to Dask does the work of a cluster with one worker in the process that sends it, and lets
every worker get every training set. Here all work is the workers', and what is on one training set goes to
one of them, as long as that leaves nobody idle: fewer sets travel, and a worker meets rankings that it knows.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, Protocol

from scrapy_gp4c.errors import LearningError

WAIT_S: Final = 10
"""So long a cluster without workers is waited for."""
ATTEMPTS: Final = 4
"""At a call whose data are lost, as workers die."""

Call = tuple[Callable[..., Any], Sequence[Any], Any]
"""Function, arguments and those by name, as `joblib.delayed` gives them."""


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


class DaskPool:
    """Runs calls on the workers of a cluster."""

    def __init__(self, client: Any) -> None:
        """Take a `distributed.Client`; raises LearningError where there is no worker."""
        self._client = client
        self._distributed: Any = importlib.import_module("distributed")
        self._workers()
        self.n_jobs = sum(client.ncores().values())
        """Calls that are done at a time."""

    def _workers(self) -> list[str]:
        """Addresses of the workers; raises LearningError where there is none."""
        try:
            self._client.wait_for_workers(1, timeout=WAIT_S)
        except TimeoutError:
            raise LearningError(
                f"expected a worker on the cluster of {self._client.scheduler.address}; found none within "
                f"{WAIT_S} s. Start some (docs/learning.md, On a Dask cluster)"
            ) from None
        return sorted(self._client.ncores())

    def __call__(self, calls: Iterable[Call]) -> Iterator[Any]:
        """Yield what calls return, in the order in which they are done; raises as `run`."""
        sends = (
            partial(self._client.submit, function, *args, pure=False, **options)
            for function, args, options in calls
        )
        return self._results(sends, lambda result: None)

    def run(
        self,
        work: Callable[[Any, Any], Any],
        tasks: Iterable[Task],
        missing: Callable[[Any], bytes | None],
    ) -> Iterator[Any]:
        """Yield what ``work(task, payload)`` returns of tasks, in the order in which they are done.

        It is given no payload at first. ``missing``: tells of a result what it lacked; then its ``task`` is
        done again with that, which goes to that worker once. `tasks` is consumed at once, while workers
        begin. A task whose worker died is done by another one. Raises what `work` raises, and LearningError
        for a task that kills worker after worker.
        """
        workers = self._workers()
        payloads: dict[tuple[int, str], Any] = {}

        def send(task: Task, worker: str, payload: Any = None) -> Any:
            options = {"workers": [worker], "allow_other_workers": True, "pure": False}
            return self._client.submit(_told, work, task, payload, **options)

        def with_payload(task: Task, worker: str, payload: bytes) -> Any:
            place = task.number, worker
            if (kept := payloads.get(place)) is None or kept.status != "finished":
                payloads[place] = self._client.scatter(payload, workers=[worker], hash=False)
            return send(task, worker, payloads[place])

        def again(done: Done) -> Callable[[], Any] | None:
            payload = missing(done.result)
            return None if payload is None else partial(with_payload, done.result.task, done.worker, payload)

        sends = (partial(send, task, workers[task.number % len(workers)]) for task in tasks)
        for done in self._results(sends, again):
            yield done.result

    def _results(
        self, sends: Iterable[Callable[[], Any]], again: Callable[[Any], Callable[[], Any] | None]
    ) -> Iterator[Any]:
        """Yield results of what is sent. ``again``: what is sent in place of a result; None: nothing."""
        done = self._distributed.as_completed(loop=self._client.loop, with_results=True, raise_errors=False)
        sent: dict[Any, tuple[Callable[[], Any], int]] = {}

        def begin(send: Callable[[], Any], attempt: int) -> None:
            future = send()
            sent[future] = send, attempt
            done.add(future)

        try:
            for send in sends:
                begin(send, 1)
            for future, result in done:
                send, attempt = sent.pop(future)
                if future.status == "finished":
                    if (more := again(result)) is None:
                        yield result
                    else:
                        begin(more, 1)
                elif future.status == "error" or attempt == ATTEMPTS:
                    raise self._failure(future)
                else:  # its payload was with workers that died
                    begin(send, attempt + 1)
        finally:
            if sent:
                self._client.cancel(list(sent))

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
