"""Evaluate generations on worker processes of this machine or of a cluster.

Trees travel as programs beside their text, which takes longer to read. A training set travels once to each
worker that lacks it: a task names the set by its digest, a worker that does not have it says so, and only
then the task is sent again with the set. This needs nothing from the workers but running a function, whether
they are processes of one machine (`LocalPool`) or a Dask cluster (`DaskPool`), and it survives workers that
are replaced.
"""

from __future__ import annotations

import gc
import hashlib
import itertools
import math
import pickle
import signal
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import joblib

from scrapy_gp4c.errors import LearningError
from scrapy_gp4c.policies.table import TOP_K
from scrapy_gp4c.scoring.expression import Expression
from scrapy_gp4c.scoring.terminals import Clock
from training.evolution.backends import BACKENDS, dask_client, no_word_of_lost_work
from training.evolution.dask_pool import DaskPool
from training.evolution.evolve import Outcome
from training.evolution.fitness import TextFitness, Values, load_measure
from training.evolution.local_pool import LocalPool
from training.replaying.prepared import PreparedHistory

T = TypeVar("T")

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
    """Functions to evaluate on one training set."""

    number: int
    """Of the training set, for the sender."""
    key: Key
    functions: dict[str, Expression]
    """By text."""
    per_cycle: bool
    """Whether to answer with the values per cycle instead of outcomes."""
    payload: bytes | None = None
    """The training set; None: the worker should have it."""
    compiled: Path | None = None
    """Tells, once it is there, that the code is compiled; None: no need to look."""


Request = tuple[int, Mapping[str, Expression]]
"""Number of a training set, and functions to evaluate on it, by text."""


class Report(NamedTuple):
    """A worker's answer."""

    number: int
    """Of the training set, for the sender."""
    answers: dict[str, Outcome] | dict[str, Values] | None
    """By text; None: the training set is not there."""
    replays: int = 0
    """Functions that were replayed: of those that rank alike, one."""
    replay_s: float = 0.0
    """Processor time of scoring and replaying, in seconds."""
    task: Task | None = None
    """What lacks its training set."""


_FITNESSES: Final[dict[Key, TextFitness]] = {}


def work(task: Task) -> Report:
    """Evaluate a task in this process."""
    fitness = _FITNESSES.get(task.key)
    if fitness is None:
        if task.payload is None:
            return Report(task.number, None, task=task)
        fitness = _keep(task.key, pickle.loads(task.payload))
    before = fitness.replays, fitness.replay_s
    evaluate = fitness.values if task.per_cycle else fitness.outcomes
    answers = evaluate(task.functions, task.compiled)
    return Report(task.number, answers, fitness.replays - before[0], fitness.replay_s - before[1])


def _work_with(task: Task, payload: bytes | None) -> Report:
    """`work` where the training set comes beside the task."""
    return work(task if payload is None else task._replace(payload=payload))


def _work_away(task: Task, payload: bytes | None) -> Report:
    """The same in a process of its own: there Ctrl-C is the parent's business, and garbage rare."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    report = _work_with(task, payload)
    gc.freeze()  # modules, compiled code and outcomes stay
    return report


def _keep(key: Key, prepared: PreparedHistory) -> TextFitness:
    while len(_FITNESSES) >= MOST_FITNESSES:
        _FITNESSES.pop(next(iter(_FITNESSES)))
    fitness = TextFitness(prepared, load_measure(key.fitness), key.clock, key.policy)
    return _FITNESSES.setdefault(key, fitness)


class Evaluator:
    """Outcomes of score expressions on several training sets, each text evaluated once.

    ``known`` holds the outcomes per training set; ``replays`` and ``replay_s`` add up those of all
    reports. ``run_by_run``: while code is compiled, requests do not share tasks.
    """

    def __init__(
        self,
        prepared: Iterable[PreparedHistory],
        fitness: str,
        clock: Clock,
        parallel: LocalPool | DaskPool,
        policy: str = TOP_K.text,
        compiled: Path | None = None,
    ) -> None:
        """Take the training sets, and what runs tasks (see `workers`).

        ``compiled``: see `training.evolution.compiling.compiled_beside`.
        """
        payloads = [pickle.dumps(part, protocol=pickle.HIGHEST_PROTOCOL) for part in prepared]
        self._keys = [
            Key(hashlib.sha256(payload).hexdigest(), fitness, clock, policy) for payload in payloads
        ]
        self._payloads = payloads
        self._parallel = parallel
        self._jobs = parallel.n_jobs
        self._compiled = compiled
        self.run_by_run = compiled is not None
        self._beginnings = self._jobs
        self.known: list[dict[str, Outcome]] = [{} for _ in payloads]
        self.replays = 0
        self.replay_s = 0.0

    def evaluate(
        self,
        requests: Iterable[Request | None],
        advance: Callable[[int, int], None] = lambda number, texts: None,
    ) -> None:
        """Evaluate the texts of every request, so that `known` has them all.

        ``requests`` is consumed while workers already evaluate what it gave; None among them: there are none
        until more of those before is known. ``advance`` hears of texts done, those known before included, and
        of the number of their training set.
        """
        for report in self._run(self._tasks(requests, advance)):
            self.known[report.number].update(report.answers)
            advance(report.number, len(report.answers))

    def values(self, requests: Iterable[Request]) -> list[dict[str, Values]]:
        """Fitness per scored cycle of the functions, by training set and text."""
        values: list[dict[str, Values]] = [{} for _ in self._keys]
        tasks = (
            self._task(number, chunk, True)
            for number, functions in requests
            for chunk in self._chunks(list(functions.items()))
        )
        for report in self._run(tasks):
            values[report.number].update(report.answers)
        return values

    def _tasks(
        self, requests: Iterable[Request | None], advance: Callable[[int, int], None]
    ) -> Iterator[Task | None]:
        """Tasks of the texts that are new, from all requests in a row for the same training set."""
        sent: set[tuple[int, str]] = set()
        for number, group in itertools.groupby(requests, lambda request: request[0] if request else None):
            if number is None:
                yield from (None for _ in group)
                continue
            waiting: list[tuple[str, Expression]] = []
            for _, functions in filter(None, group):
                new = [
                    (text, function)
                    for text, function in functions.items()
                    if text not in self.known[number] and (number, text) not in sent
                ]
                advance(number, len(functions) - len(new))
                sent.update((number, text) for text, _ in new)
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

    def _task(self, number: int, chunk: Sequence[tuple[str, Expression]], per_cycle: bool = False) -> Task:
        self._is_compiling()
        return Task(number, self._keys[number], dict(chunk), per_cycle, compiled=self._compiled)

    def _is_compiling(self) -> bool:
        if self._compiled is not None and self._compiled.exists():
            self._compiled = None  # nor need workers on other machines look for it
        return self._compiled is not None

    def _beginning(self, tasks: Iterable[Task | None]) -> Iterator[Task | None]:
        """The tasks, while code is compiled the first with their training set: they come back first."""
        for task in tasks:
            if self._beginnings and task is not None and task.compiled is not None:
                self._beginnings -= 1
                yield task._replace(payload=self._payloads[task.number])
            else:
                yield task

    def _chunks(self, texts: Sequence[T]) -> Iterator[Sequence[T]]:
        """What tasks of about equal size are made of, some for every worker."""
        tasks = max(
            math.ceil(len(texts) / MOST_TEXTS),
            min(self._jobs, len(texts) // LEAST_TEXTS),
        )
        for task in range(tasks):
            yield texts[task * len(texts) // tasks : (task + 1) * len(texts) // tasks]

    def _missing(self, report: Report) -> bytes | None:
        """The training set that a worker lacked; None: it had it."""
        return self._payloads[report.number] if report.answers is None else None

    def _counted(self, report: Report) -> Report:
        self.replays += report.replays
        self.replay_s += report.replay_s
        return report

    def _run(self, tasks: Iterable[Task | None]) -> Iterator[Any]:
        """Run the tasks, those whose training set a worker lacks a second time, with the set."""
        is_away = isinstance(self._parallel, LocalPool) and self._parallel.has_processes
        function = _work_away if is_away else _work_with
        try:
            yield from map(self._counted, self._parallel.run(function, self._beginning(tasks), self._missing))
        except BrokenExecutor as error:
            raise LearningError(
                "a worker process died, perhaps for want of memory: go on from the checkpoint with --resume, "
                "with fewer --jobs"
            ) from error


@contextmanager
def workers(
    jobs: int = 1, backend: str = "loky", scheduler: str | None = None
) -> Iterator[LocalPool | DaskPool]:
    """What runs tasks for an `Evaluator`, with its workers.

    ``jobs``: processes, 1: this one, -1: one per processor. ``backend``: ``loky`` (processes of this machine)
    or ``dask`` (with ``scheduler``, the address of a cluster's scheduler). Raises LearningError when the
    backend or the cluster is not there.
    """
    if jobs == 0:
        raise LearningError(
            "jobs must be a number of processes from 1 on, or -1 for one per processor; found 0"
        )
    if backend not in BACKENDS:
        raise LearningError(f"there is no backend {backend!r}; there are: {', '.join(BACKENDS)}")
    if scheduler is not None and backend != "dask":
        raise LearningError(f"a scheduler address goes with the backend 'dask'; found backend {backend!r}")
    if backend == "dask":
        client = dask_client(scheduler)
        try:
            yield DaskPool(client)
        finally:
            client.close()
        return
    with no_word_of_lost_work():
        yield LocalPool(joblib.effective_n_jobs(jobs))
