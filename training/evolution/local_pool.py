"""The processes of this machine that evaluate: the counterpart of `training.evolution.dask_pool.DaskPool`.

`joblib.Parallel` takes all of its work at once. A search has more of it whenever something is done, so this
hands work to joblib's processes (loky) one by one.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from typing import Any, Final

from joblib.externals import loky
from joblib.externals.loky import process_executor

from training.evolution.dask_pool import Call, Missing, Task, Work

IDLE_S: Final = 300
"""So long a process waits for work before it ends."""
LOOK_S: Final = 1.0
"""From one look of a process for the one that began it to the next."""


def begin(parent: int) -> None:
    """In a worker: let it grow, and end with the process that began it.

    loky replaces one that has grown by 300 MB, in case it leaks: ours grow by the training sets that they
    keep, and by what they know of these. A process that was killed cannot end its workers, and what they
    wait for is locked by it; on Windows, where nobody is told of that, they go on.
    """
    process_executor._MAX_MEMORY_LEAK_SIZE = math.inf
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(LOOK_S)
    os._exit(1)


class InThisProcess(Executor):
    """Does what is submitted at once."""

    def submit(self, function: Callable[..., Any], /, *args: Any, **options: Any) -> Future[Any]:
        """A future that is done; raises what `function` raises."""
        future: Future[Any] = Future()
        future.set_result(function(*args, **options))
        return future


class LocalPool:
    """Runs calls in some processes, in threads, or in this process."""

    def __init__(self, n_jobs: int, threads: Executor | None = None) -> None:
        """``n_jobs``: calls that are done at a time. ``threads``: what does them instead of processes."""
        self.n_jobs = n_jobs
        self._threads = InThisProcess() if threads is None and n_jobs == 1 else threads

    @property
    def has_processes(self) -> bool:
        """Whether calls are done in processes of their own."""
        return self._threads is None

    def __call__(self, calls: Iterable[Call]) -> Iterator[Any]:
        """Yield what calls return, in the order in which they are done."""
        return self._results(calls, lambda result: None)

    def run(self, work: Work, tasks: Iterable[Task | None], missing: Missing) -> Iterator[Any]:
        """As `DaskPool.run`."""

        def again(result: Any) -> Call | None:
            payload = missing(result)
            return None if payload is None else (work, (result.task, payload), {})

        calls: Iterable[Call | None] = (None if task is None else (work, (task, None), {}) for task in tasks)
        return self._results(calls, again)

    def _results(self, calls: Iterable[Call | None], again: Callable[[Any], Call | None]) -> Iterator[Any]:
        """Yield results of calls. ``again``: what is called in place of a result; None: nothing."""
        executor: Any = self._threads or loky.get_reusable_executor(
            self.n_jobs, timeout=IDLE_S, initializer=begin, initargs=(os.getpid(),)
        )
        sent: set[Future[Any]] = set()

        def send(call: Call) -> None:
            function, args, options = call
            sent.add(executor.submit(function, *args, **options))

        def ended(wait_s: float | None) -> Iterator[Any]:
            for future in wait(sent, wait_s, FIRST_COMPLETED).done:
                sent.remove(future)
                result = future.result()
                if (call := again(result)) is None:
                    yield result
                else:
                    send(call)

        try:
            for call in calls:
                if call is not None:
                    send(call)
                yield from ended(None if call is None else 0.0)
            while sent:
                yield from ended(None)
        finally:
            if sent and self._threads is None:
                executor.shutdown(kill_workers=True)
