"""Evaluate generations on worker processes, through joblib, so that the backend is the user's choice.

Trees travel as text. A training set travels once to each worker that lacks it: a task names the set by its
digest, a worker that does not have it says so, and only then the task is sent again with the set. This
needs nothing from the backend but running a function, whether the workers are forks of one machine
(loky) or a Dask cluster, and it survives workers that are replaced.
"""

from __future__ import annotations

import gc
import hashlib
import itertools
import math
import pickle
import signal
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import BrokenExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import joblib
from joblib.parallel import get_active_backend

from scrapy_gp4c.errors import LearningError
from scrapy_gp4c.policies.table import TOP_K
from scrapy_gp4c.scoring.terminals import Clock
from training.evolution.backends import dask_client, no_word_of_lost_work
from training.evolution.dask_pool import DaskPool
from training.evolution.evolve import Outcome
from training.evolution.fitness import TextFitness, Values, load_measure
from training.replaying.arranged import ArrangedHistory

MOST_TEXTS: Final = 640
"""Texts of a task, at most: the more are replayed together, the more they share."""
LEAST_TEXTS: Final = 20
"""Texts for which another worker is worth a task."""
MOST_FITNESSES: Final = 16
"""Training and validation sets that a worker keeps: those of a run of five folds, and some to spare."""


class Key(NamedTuple):
    """What an evaluation depends on besides the text."""

    digest: str
    """Of the training set."""
    fitness: str
    """One or two names, as for `training.evolution.fitness.load_measure`."""
    clock: Clock
    policy: str = TOP_K.text


class Task(NamedTuple):
    """Texts to evaluate on one training set."""

    number: int
    """Of the training set, for the sender."""
    key: Key
    texts: list[str]
    per_cycle: bool
    """Whether to answer with the values per cycle instead of outcomes."""
    payload: bytes | None = None
    """The training set; None: the worker should have it."""
    compiled: Path | None = None
    """Tells, once it is there, that the code is compiled; None: no need to look."""


class Report(NamedTuple):
    """A worker's answer."""

    task: Task
    """Without its payload."""
    answers: list[Outcome] | list[Values] | None
    """One per text; None: the training set is not there."""
    replays: int
    """Texts that were replayed: of those that rank alike, one."""
    replay_s: float
    """Processor time of scoring and replaying, in seconds."""


_FITNESSES: Final[dict[Key, TextFitness]] = {}


def work(task: Task) -> Report:
    """Evaluate a task in this process."""
    fitness = _FITNESSES.get(task.key)
    if fitness is None:
        if task.payload is None:
            return Report(task, None, 0, 0.0)
        fitness = _keep(task.key, pickle.loads(task.payload))
    before = fitness.replays, fitness.replay_s
    evaluate = fitness.values if task.per_cycle else fitness.outcomes
    answers = evaluate(task.texts, task.compiled)
    return Report(
        task._replace(payload=None), answers, fitness.replays - before[0], fitness.replay_s - before[1]
    )


def _work_away(task: Task) -> Report:
    """`work` in a process of its own: there Ctrl-C is the parent's business, and garbage rare."""
    if threading.current_thread() is not threading.main_thread():
        return work(task)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    report = work(task)
    gc.freeze()  # modules, compiled code and outcomes stay
    return report


def _work_with(task: Task, payload: bytes | None) -> Report:
    """`work` on a cluster, where the training set comes beside the task."""
    return work(task._replace(payload=payload))


def _keep(key: Key, arranged: ArrangedHistory) -> TextFitness:
    while len(_FITNESSES) >= MOST_FITNESSES:
        _FITNESSES.pop(next(iter(_FITNESSES)))
    fitness = TextFitness(arranged, load_measure(key.fitness), key.clock, key.policy)
    return _FITNESSES.setdefault(key, fitness)


class Evaluator:
    """Outcomes of score expressions on several training sets, each text evaluated once.

    ``known`` holds the outcomes per training set; ``replays`` and ``replay_s`` add up those of all
    reports. ``run_by_run``: while code is compiled, requests do not share tasks.
    """

    def __init__(
        self,
        arranged: Iterable[ArrangedHistory],
        fitness: str,
        clock: Clock,
        parallel: Any,
        policy: str = TOP_K.text,
        compiled: Path | None = None,
    ) -> None:
        """Take the training sets, and what runs tasks (see `workers`).

        ``compiled``: see `training.evolution.compiling.compiled_beside`.
        """
        payloads = [pickle.dumps(part, protocol=pickle.HIGHEST_PROTOCOL) for part in arranged]
        self._keys = [
            Key(hashlib.sha256(payload).hexdigest(), fitness, clock, policy) for payload in payloads
        ]
        self._payloads = payloads
        self._parallel = parallel
        # Asked once: a cluster answers by a call to its scheduler.
        self._jobs = joblib.effective_n_jobs(parallel.n_jobs)
        self._compiled = compiled
        self.run_by_run = compiled is not None
        self._beginnings = self._jobs
        self.known: list[dict[str, Outcome]] = [{} for _ in payloads]
        self.replays = 0
        self.replay_s = 0.0

    def evaluate(
        self, requests: Iterable[tuple[int, list[str]]], advance: Callable[[int], None] = lambda texts: None
    ) -> None:
        """Evaluate the texts of every (number of the training set, texts), so that `known` has them all.

        ``requests`` is consumed while workers already evaluate what it gave; ``advance`` hears of texts
        done, those known before included.
        """
        for report in self._run(self._tasks(requests, advance)):
            self.known[report.task.number].update(zip(report.task.texts, report.answers, strict=True))
            advance(len(report.task.texts))

    def values(self, requests: Iterable[tuple[int, list[str]]]) -> list[dict[str, Values]]:
        """Fitness per scored cycle of the texts, by training set and text."""
        values: list[dict[str, Values]] = [{} for _ in self._keys]
        tasks = (
            self._task(number, chunk, True) for number, texts in requests for chunk in self._chunks(texts)
        )
        for report in self._run(tasks):
            values[report.task.number].update(zip(report.task.texts, report.answers, strict=True))
        return values

    def _tasks(
        self, requests: Iterable[tuple[int, list[str]]], advance: Callable[[int], None]
    ) -> Iterator[Task]:
        """Tasks of the texts that are new, from all requests in a row for the same training set."""
        sent: set[tuple[int, str]] = set()
        for number, group in itertools.groupby(requests, lambda request: request[0]):
            waiting: list[str] = []
            for _, texts in group:
                new = [
                    text for text in texts if text not in self.known[number] and (number, text) not in sent
                ]
                advance(len(texts) - len(new))
                sent.update((number, text) for text in new)
                waiting += new
                if self._is_compiling():  # nothing is shared then: run by run, so that the first is soon told
                    for chunk in self._chunks(waiting):
                        yield self._task(number, chunk)
                    waiting = []
                while len(waiting) >= 2 * MOST_TEXTS:  # what is left makes tasks of equal size
                    yield self._task(number, waiting[:MOST_TEXTS])
                    del waiting[:MOST_TEXTS]
            for chunk in self._chunks(waiting):
                yield self._task(number, chunk)

    def _task(self, number: int, texts: list[str], per_cycle: bool = False) -> Task:
        self._is_compiling()
        return Task(number, self._keys[number], texts, per_cycle, compiled=self._compiled)

    def _is_compiling(self) -> bool:
        if self._compiled is not None and self._compiled.exists():
            self._compiled = None  # nor need workers on other machines look for it
        return self._compiled is not None

    def _beginning(self, task: Task) -> Task:
        """The task, while code is compiled the first with their training set: they come back first."""
        if not self._beginnings or task.compiled is None:
            return task
        self._beginnings -= 1
        return task._replace(payload=self._payloads[task.number])

    def _chunks(self, texts: list[str]) -> Iterator[list[str]]:
        """Texts for tasks of about equal size, some for every worker."""
        tasks = max(
            math.ceil(len(texts) / MOST_TEXTS),
            min(self._jobs, len(texts) // LEAST_TEXTS),
        )
        for task in range(tasks):
            yield texts[task * len(texts) // tasks : (task + 1) * len(texts) // tasks]

    def _missing(self, report: Report) -> bytes | None:
        """The training set that a worker lacked; None: it had it."""
        return self._payloads[report.task.number] if report.answers is None else None

    def _counted(self, report: Report) -> Report:
        self.replays += report.replays
        self.replay_s += report.replay_s
        return report

    def _run(self, tasks: Iterable[Task]) -> Iterator[Any]:
        """Run the tasks, those whose training set a worker lacks a second time, with the set."""
        function = work if self._parallel.n_jobs == 1 else _work_away
        again: list[Task] = []
        try:
            if isinstance(self._parallel, DaskPool):
                yield from map(self._counted, self._parallel.run(_work_with, tasks, self._missing))
                return
            for report in self._parallel(joblib.delayed(function)(self._beginning(task)) for task in tasks):
                if (payload := self._missing(report)) is not None:
                    again.append(report.task._replace(payload=payload))
                else:
                    yield self._counted(report)
            if again:
                for report in self._parallel(joblib.delayed(function)(task) for task in again):
                    yield self._counted(report)
        except BrokenExecutor as error:
            raise LearningError(
                "a worker process died, perhaps for want of memory: go on from the checkpoint with --resume, "
                "with fewer --jobs"
            ) from error


@contextmanager
def workers(jobs: int = 1, backend: str = "loky", scheduler: str | None = None) -> Iterator[Any]:
    """A `joblib.Parallel` for an `Evaluator`, with its workers; on a cluster, a `DaskPool`.

    ``jobs``: processes, 1: this one, -1: one per processor. ``backend``: ``loky`` (processes of this
    machine), ``dask`` (with ``scheduler``, the address of a cluster's scheduler), or any other that joblib
    knows. Raises LearningError when the backend or the cluster is not there.
    """
    if jobs == 0:
        raise LearningError(
            "jobs must be a number of processes from 1 on, or -1 for one per processor; found 0"
        )
    if scheduler is not None and backend != "dask":
        raise LearningError(f"a scheduler address goes with the backend 'dask'; found backend {backend!r}")
    if backend == "dask":
        client = dask_client(scheduler)
        try:
            yield DaskPool(client)
        finally:
            client.close()
        return
    try:
        config = joblib.parallel_config(backend=backend, n_jobs=jobs)
    except (ValueError, ImportError) as error:
        raise LearningError(f"joblib cannot use the backend {backend!r}: {error}") from error
    options = {"return_as": "generator_unordered", "pre_dispatch": "all", "batch_size": 1}
    with config, no_word_of_lost_work(), warnings.catch_warnings():
        # loky replaces a worker that grows, in case it leaks; ours grow by the training sets they keep.
        warnings.filterwarnings("ignore", "A worker stopped while some jobs were given", UserWarning)
        if not get_active_backend()[0].supports_return_generator:
            options["return_as"] = "list"  # the answers of a generation come all at once
        with joblib.Parallel(**options) as parallel:
            yield parallel
