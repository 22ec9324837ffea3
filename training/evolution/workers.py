"""Fitness of score functions, and the workers that evaluate generations: processes, or a Dask cluster.

The fitness of an individual is the mean over the scored cycles of the training set (Santos et al. 2014,
section 4.2.2). Higher is better for every measure: a metric that is to be small counts negative.

Score functions are sent to workers as parsed expressions, as parsing their texts takes longer. A training set
is sent only to workers that lack it: a task names it by its digest, and is sent again with the set where it
is missing. So a worker may be replaced by another one at any time.
"""

import contextlib
import copy
import gc
import hashlib
import importlib
import itertools
import math
import multiprocessing
import os
import pickle
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import (
    FIRST_COMPLETED,
    BrokenExecutor,
    CancelledError,
    Executor,
    Future,
    ProcessPoolExecutor,
    wait,
)
from contextlib import contextmanager
from functools import lru_cache, partial
from multiprocessing.connection import Connection
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self, TypeVar

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.errors import LearningError
from scrapy_gp4c.policies.table import TOP_K
from scrapy_gp4c.scoring.expression import Expression
from scrapy_gp4c.scoring.functions import is_dotted, load_callable, of_expression
from scrapy_gp4c.scoring.terminals import Clock
from training.evolution.evolve import Outcome, named_expression
from training.replaying.metrics import IMPACT, MEASURES, METRICS
from training.replaying.prepared import PreparedHistory
from training.replaying.replay import ReplayResult, run_all


class JackknifeParts(NamedTuple):
    """Copies of a fold's splits, each without one group of sites, for the jackknife of `promotion_test`."""

    training: tuple[PreparedHistory, ...]
    validation: tuple[PreparedHistory, ...]


class PreparedSplit(NamedTuple):
    """Training, validation and test split of one fold, prepared for replay."""

    training: PreparedHistory
    validation: PreparedHistory
    test: PreparedHistory
    draws: tuple[PreparedHistory, ...] = ()
    """Further copies of the training split, each without another random share of its changes.

    Made by `training.evolution.choices.forgetful`, for the selection rule ``guarded``.
    """
    leave_one_out: JackknifeParts | None = None
    """Copies without groups of sites, for the selection rule ``guarded``; None where splits are of pages."""


if TYPE_CHECKING:
    from training.replaying.grouped import PrefixCaches  # its loops are imported where they are used

Values = npt.NDArray[np.float64]


class Fitness(NamedTuple):
    """Measure that evolution maximizes: a metric of replays, or a function of the user (``custom``)."""

    name: str
    metrics: tuple[str, ...]
    """Names of the metrics that the replay must compute for it."""
    sign: float
    """Factor of the metric in the fitness: -1 where smaller is better."""
    custom: Callable[[ReplayResult], npt.ArrayLike] | None = None

    def values(self, result: ReplayResult) -> Values:
        """Fitness per scored cycle, float64 ``[scored cycles]``, higher is better.

        Raises LearningError when a custom function returns something else.
        """
        if self.custom is None:
            metric = getattr(result, self.name)
            return np.asarray(self.sign * metric, dtype=np.float64)
        try:
            values = np.array(self.custom(result), dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise LearningError(f"the fitness function {self.name!r} failed: {error}") from error
        if values.shape != result.scored_cycles.shape:
            raise LearningError(
                f"the fitness function {self.name!r} must return one number per scored cycle, shape "
                f"{result.scored_cycles.shape}; it returned shape {values.shape}"
            )
        return values


@lru_cache
def load_fitness(name: str) -> Fitness:
    """Load the fitness `name`: a metric of `MEASURES`, ``impact``, or the dotted path of a function.

    The function takes a `ReplayResult` with every metric and returns one number per scored cycle, higher is
    better. Raises LearningError for any other name.
    """
    if name in MEASURES or name == IMPACT:
        return Fitness(name, (name,), MEASURES.get(name, 1.0))
    if not is_dotted(name):
        raise LearningError(
            f"there is no fitness {name!r}; there are: {', '.join((*MEASURES, IMPACT))}, or give the dotted "
            "path of a function that takes a training.replaying.replay.ReplayResult and returns one "
            "number per scored cycle"
        )
    return Fitness(name, tuple(METRICS), 1.0, load_callable(name, "fitness function", LearningError))


class FitnessPair(NamedTuple):
    """Two measures that evolution maximizes at once, used in place of one `Fitness`."""

    first: Fitness
    second: Fitness

    @property
    def metrics(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*self.first.metrics, *self.second.metrics)))

    def values(self, result: ReplayResult) -> Values:
        """Both measures per scored cycle, float64 ``[2, scored cycles]``.

        Raises LearningError as `Fitness.values` does.
        """
        return np.array([self.first.values(result), self.second.values(result)])


def load_measure(text: str) -> Fitness | FitnessPair:
    """Load one fitness, or a `FitnessPair` for two names with a comma between (``ndcg,freshness``).

    Raises LearningError as `load_fitness` does.
    """
    first, comma, second = text.partition(",")
    return FitnessPair(load_fitness(first), load_fitness(second)) if comma else load_fitness(first)


def values_of_all(
    prepared: PreparedHistory,
    texts: Iterable[str],
    fitness: Fitness | FitnessPair,
    clock: Clock,
    policy: str = TOP_K.text,
) -> list[Values]:
    """Replay the score functions `texts` together, and return the fitness per scored cycle of each, in order.

    Arrays are ``[scored cycles]``, or ``[2, scored cycles]`` for a pair. ``clock``: of the terminals.
    """
    functions = [of_expression(named_expression(text), text, clock) for text in texts]
    return [
        fitness.values(result)
        for result in run_all(prepared, functions, metrics=fitness.metrics, policy=policy)
    ]


class TextFitness:
    """Evaluator of score expressions on one prepared history, with its caches, within one worker.

    ``replays``: number of functions evaluated so far; ``replay_s``: processor seconds that this took.
    """

    def __init__(
        self,
        prepared: PreparedHistory,
        fitness: Fitness | FitnessPair,
        clock: Clock,
        policy: str = TOP_K.text,
    ) -> None:
        self.replays = 0
        self.replay_s = 0.0
        self._prepared = prepared
        self._fitness = fitness
        self._clock = clock
        self._policy = policy
        self._prefix_caches: PrefixCaches = {}

    def outcomes(
        self, functions: Mapping[str, Expression], compiled: Path | None = None
    ) -> dict[str, Outcome]:
        return {text: _outcome(values) for text, values in self.values(functions, compiled).items()}

    def values(self, functions: Mapping[str, Expression], compiled: Path | None = None) -> dict[str, Values]:
        """Replay `functions` (text -> expression); return text -> fitness per scored cycle.

        ``compiled``: path of the file of `training.evolution.learning.compiled_beside`, before which the
        dense engine replays functions one by one; None: do not wait.
        """
        loaded = [of_expression(expression, text, self._clock) for text, expression in functions.items()]
        start = time.thread_time()
        values: list[Values] = []
        while len(values) < len(loaded):
            waiting = compiled is not None and not compiled.exists()
            results = run_all(
                self._prepared,
                loaded[len(values) :][: 1 if waiting else None],
                engine="dense" if waiting else "auto",
                metrics=self._fitness.metrics,
                policy=self._policy,
                prefix_caches=self._prefix_caches,
            )
            values += [self._fitness.values(result) for result in results]
        self.replay_s += time.thread_time() - start
        self.replays += len(loaded)
        return dict(zip(functions, values, strict=True))


def _outcome(values: Values) -> Outcome:
    behaviour = hashlib.blake2b(values.tobytes(), digest_size=12).hexdigest()
    first, *second = np.atleast_1d(values.mean(axis=-1)).tolist()
    return Outcome(first, behaviour, *second)


T = TypeVar("T")
Call = Callable[[], Any]
"""Function with its arguments (`functools.partial`), which travels to other processes."""

BACKENDS: Final = ("processes", "dask")
MAX_TEXTS: Final = 640
"""Largest number of functions in a task: the more are replayed together, the more computation they share."""
MIN_TEXTS: Final = 20
"""Number of functions from which on a further task, for another worker, is worth its overhead."""
MAX_FITNESSES: Final = 16
"""Largest number of training and validation sets that a worker keeps; five folds have ten."""
DASK_WAIT_S: Final = 10
"""Time within which a Dask cluster must have its first worker."""
CPU_QUOTA: Final = Path("/sys/fs/cgroup/cpu.max")


class Workers:
    """Executor for calls in parallel, with their number at a time (``n_jobs``) and errors in plain words."""

    def __init__(
        self,
        executor: Executor,
        n_jobs: int,
        *,
        abandon: Callable[[], object] = lambda: None,
        lost: tuple[type[BaseException], ...] = (BrokenExecutor,),
    ) -> None:
        """``abandon`` ends the running calls; ``lost``: errors that `executor` raises when workers die."""
        self.n_jobs = n_jobs
        self._executor = executor
        self._abandon = abandon
        self._lost = lost

    def results(
        self, calls: Iterable[Call], retry: Callable[[Any], Call | None] = lambda result: None
    ) -> Iterator[Any]:
        """Do `calls` on the workers, and yield results in the order in which they are done.

        ``calls`` is consumed while workers already compute. ``retry(result)`` returns a call whose result is
        to be yielded in place of this one, or None. An error of a call is raised here; LearningError when
        workers die.
        """
        pending: set[Future[Any]] = set()

        def done(wait_s: float | None) -> Iterator[Any]:
            for future in wait(pending, wait_s, FIRST_COMPLETED).done:
                pending.remove(future)
                result = future.result()
                if (call := retry(result)) is None:
                    yield result
                else:
                    pending.add(self._executor.submit(call))

        try:
            for call in calls:
                pending.add(self._executor.submit(call))
                yield from done(0.0)
            while pending:
                yield from done(None)
        except self._lost as error:
            raise LearningError(
                "a worker process died, perhaps for want of memory: go on from the checkpoint with --resume, "
                "with fewer --jobs or more memory for each"
            ) from error
        finally:
            if pending:
                for future in pending:
                    future.cancel()
                self._abandon()


class SerialExecutor(Executor):
    """Executor that does each call at once in this process, when it is submitted."""

    def submit(self, function: Callable[..., Any], /, *args: Any, **options: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_result(function(*args, **options))
        return future


@contextmanager
def workers(jobs: int = 1, backend: str = "processes", scheduler: str | None = None) -> Iterator[Workers]:
    """Context with `Workers` for an `Evaluator`, which are stopped at the context's end.

    ``jobs``: number of processes; 1: none but this one; -1: one per processor. ``backend``: ``processes`` of
    this machine, or ``dask`` with ``scheduler``, the address of a cluster's scheduler. Raises LearningError
    when the backend is unknown or not installed, or the cluster cannot be reached.
    """
    if jobs == 0:
        raise LearningError(
            "jobs must be a number of processes from 1 on, or -1 for one per processor; found 0"
        )
    if backend not in BACKENDS:
        raise LearningError(f"there is no backend {backend!r}; there are: {', '.join(BACKENDS)}")
    if scheduler is not None and backend != "dask":
        raise LearningError(f"a scheduler address goes with the backend 'dask'; found backend {backend!r}")
    n_jobs = jobs if jobs > 0 else max(1, processors() + 1 + jobs)
    if backend == "dask":
        with _dask_workers(scheduler) as running:
            yield running
    elif n_jobs > 1:
        with _processes(n_jobs) as running:
            yield running
    else:
        yield Workers(SerialExecutor(), 1)


def processors() -> int:
    """Number of processors that this process may use, by its affinity and its container's quota."""
    affinity = getattr(os, "sched_getaffinity", None)
    count = len(affinity(0)) if affinity else os.cpu_count() or 1
    try:
        quota, period = CPU_QUOTA.read_text().split()
        return max(1, min(count, math.ceil(int(quota) / int(period))))
    except (OSError, ValueError):  # no such file, or "max": no quota
        return count


class _Processes(ProcessPoolExecutor):
    """Process pool whose processes do not import the main script, which would take each a second."""

    def submit(self, function: Callable[..., Any], /, *args: Any, **options: Any) -> Future[Any]:
        script = sys.modules["__main__"]
        sys.modules["__main__"] = ModuleType("__main__")  # without a file: nothing to import
        try:
            return super().submit(function, *args, **options)
        finally:
            sys.modules["__main__"] = script


@contextmanager
def _processes(n_jobs: int) -> Iterator[Workers]:
    context = multiprocessing.get_context("spawn")
    lifeline, kept_open = context.Pipe(duplex=False)
    executor = _Processes(n_jobs, context, _begin_process, (lifeline,))
    try:
        yield Workers(executor, n_jobs, abandon=kept_open.close)
    except BaseException:
        kept_open.close()  # nobody waits for calls under way
        raise
    finally:
        executor.shutdown(cancel_futures=True)
        kept_open.close()
        lifeline.close()


def _begin_process(lifeline: Connection) -> None:
    """Initialise a worker process: it ignores Ctrl-C, and ends when the parent's end of `lifeline` closes.

    The kernel closes that end also if the parent is killed. Without it workers would wait for a lock forever.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.set_threshold(100_000, 50, 50)  # the caches stay, and collections would look through all of them

    def end_with_parent() -> None:
        with contextlib.suppress(EOFError, OSError):
            lifeline.recv_bytes()
        os._exit(1)

    threading.Thread(target=end_with_parent, daemon=True).start()


@contextmanager
def _dask_workers(scheduler: str | None) -> Iterator[Workers]:
    client = _dask_client(scheduler)
    try:
        client.wait_for_workers(1, timeout=DASK_WAIT_S)
        lost = importlib.import_module("distributed").KilledWorker, CancelledError
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Sending large graph", UserWarning)  # a training set
            yield Workers(client.get_executor(pure=False), sum(client.ncores().values()), lost=lost)
    except TimeoutError:
        raise LearningError(
            f"expected a worker on the cluster of {client.scheduler.address}; found none within "
            f"{DASK_WAIT_S} s. Start some (docs/learning.md, On a Dask cluster)"
        ) from None
    finally:
        client.close()


def _dask_client(scheduler: str | None) -> Any:
    if scheduler is None:
        raise LearningError(
            "the backend 'dask' needs the address of a scheduler, such as tcp://127.0.0.1:8786"
        )
    try:
        distributed: Any = importlib.import_module("distributed")
    except ImportError as error:
        raise LearningError(
            "the backend 'dask' needs the package distributed: pip install 'scrapy-gp4c[dask]'"
        ) from error
    try:
        return distributed.Client(scheduler, timeout="10s")
    # TypeError and RuntimeError come of missing or unusable TLS certificates.
    except (OSError, ValueError, TypeError, RuntimeError) as error:
        reason = str(error).strip().removesuffix(".")
        raise LearningError(
            f"no Dask scheduler answers at {scheduler!r}: {reason}. Expected the address that the scheduler "
            "prints when it starts, and for tls:// its certificates in Dask's configuration "
            "(docs/learning.md, On a Dask cluster)"
        ) from error


class EvaluationKey(NamedTuple):
    """All that an evaluation depends on besides the function's text; ``digest``: of the pickled history."""

    digest: str
    fitness: str
    clock: Clock
    policy: str = TOP_K.text


class EvaluationTask(NamedTuple):
    """Functions that a worker is to evaluate on one training set."""

    number: int
    """Index of the training set in the `Evaluator`."""
    key: EvaluationKey
    functions: dict[str, Expression]
    per_cycle: bool
    """Whether to answer with the values per cycle instead of outcomes."""
    payload: bytes | None = None
    """The pickled training set; None: the worker should have it."""
    compiled: Path | None = None
    """Path of a file that appears once the numba code is compiled; None: it is, or is not waited for."""


class EvaluationResult(NamedTuple):
    """Answer of a worker to a task."""

    number: int
    answers: dict[str, Outcome] | dict[str, Values] | None
    """Text -> outcome or values per cycle; None: the worker lacks the training set."""
    replays: int = 0
    replay_s: float = 0.0
    task: EvaluationTask | None = None
    """The task to send again, where the worker lacks the training set; else None."""


EvaluationRequest = tuple[int, Mapping[str, Expression]]
"""Index of a training set in the `Evaluator`, and functions to evaluate on it: text -> expression."""

_FITNESSES: Final[dict[EvaluationKey, TextFitness]] = {}
"""Training sets that this worker process has received, each with its caches; at most `MAX_FITNESSES`."""


def evaluate_task(task: EvaluationTask) -> EvaluationResult:
    fitness = _FITNESSES.get(task.key)
    if fitness is None:
        if task.payload is None:
            return EvaluationResult(task.number, None, task=task)
        while len(_FITNESSES) >= MAX_FITNESSES:
            _FITNESSES.pop(next(iter(_FITNESSES)))
        key = task.key
        fitness = TextFitness(pickle.loads(task.payload), load_measure(key.fitness), key.clock, key.policy)
        fitness = _FITNESSES.setdefault(key, fitness)
    before = fitness.replays, fitness.replay_s
    evaluate = fitness.values if task.per_cycle else fitness.outcomes
    answers = evaluate(task.functions, task.compiled)
    return EvaluationResult(task.number, answers, fitness.replays - before[0], fitness.replay_s - before[1])


class Evaluator:
    """Evaluator of score expressions on several training sets by workers, each text once per set.

    ``known``: for each training set, text -> outcome; ``replays``: number of functions replayed so far;
    ``replay_s``: processor seconds of it in all workers.
    """

    def __init__(
        self,
        training_sets: Iterable[PreparedHistory],
        fitness: str,
        clock: Clock,
        parallel: Workers,
        policy: str = TOP_K.text,
        compiled: Path | None = None,
    ) -> None:
        """``clock``: of the terminals; ``compiled``: see `training.evolution.learning.compiled_beside`."""
        payloads = [pickle.dumps(one, protocol=pickle.HIGHEST_PROTOCOL) for one in training_sets]
        self._keys = [
            EvaluationKey(hashlib.sha256(payload).hexdigest(), fitness, clock, policy) for payload in payloads
        ]
        self._payloads = payloads
        self._workers = parallel
        self._compiled = compiled
        self.known: list[dict[str, Outcome]] = [{} for _ in payloads]
        self.replays = 0
        self.replay_s = 0.0

    def in_this_process(self) -> Self:
        """Copy of this evaluator that replays in this process: after Ctrl-C workers may be in any state."""
        alone = copy.copy(self)
        alone._workers, alone._compiled = Workers(SerialExecutor(), 1), None
        return alone

    def evaluate(
        self,
        requests: Iterable[EvaluationRequest],
        advance: Callable[[int, int], None] = lambda number, texts: None,
    ) -> None:
        """Evaluate the functions of every request that are not in `known` yet, and add their outcomes to it.

        ``requests``: index of a training set, and text -> expression; consumed while workers evaluate.
        ``advance(number, texts)`` is called with the index and how many more functions are done or known.
        """
        for result in self._run(self._tasks(requests, advance)):
            self.known[result.number].update(result.answers)
            advance(result.number, len(result.answers))

    def values(
        self, requests: Iterable[EvaluationRequest], fitness: str = "", policy: str = ""
    ) -> list[dict[str, Values]]:
        """Replay the functions of every request; for each training set, text -> fitness per scored cycle.

        ``fitness``, ``policy``: in place of the evaluator's, unless empty. `known` is not read or changed.
        """
        values: list[dict[str, Values]] = [{} for _ in self._keys]
        tasks = (
            task._replace(
                key=task.key._replace(fitness=fitness or task.key.fitness, policy=policy or task.key.policy)
            )
            for number, functions in requests
            for chunk in self._chunks(list(functions.items()))
            for task in [self._task(number, chunk, per_cycle=True)]
        )
        for result in self._run(tasks):
            values[result.number].update(result.answers)
        return values

    def _tasks(
        self, requests: Iterable[EvaluationRequest], advance: Callable[[int, int], None]
    ) -> Iterator[EvaluationTask]:
        """Tasks of the functions that are not known; consecutive requests for one training set are joined."""
        sent: set[tuple[int, str]] = set()
        for number, group in itertools.groupby(requests, lambda request: request[0]):
            waiting: list[tuple[str, Expression]] = []
            for _, functions in group:
                new = [
                    (text, function)
                    for text, function in functions.items()
                    if text not in self.known[number] and (number, text) not in sent
                ]
                advance(number, len(functions) - len(new))
                sent.update((number, text) for text, _ in new)
                waiting += new
                while len(waiting) >= 2 * MAX_TEXTS:  # fewer make tasks of equal size
                    yield self._task(number, waiting[:MAX_TEXTS])
                    del waiting[:MAX_TEXTS]
            for chunk in self._chunks(waiting):
                yield self._task(number, chunk)

    def _task(
        self, number: int, chunk: Sequence[tuple[str, Expression]], per_cycle: bool = False
    ) -> EvaluationTask:
        compiled = self._compiled if self.is_compiling else None
        return EvaluationTask(number, self._keys[number], dict(chunk), per_cycle, None, compiled)

    @property
    def is_compiling(self) -> bool:
        """Whether the numba code is still being compiled: the file of `compiled_beside` is not there yet."""
        return self._compiled is not None and not self._compiled.exists()

    def _chunks(self, texts: Sequence[T]) -> Iterator[Sequence[T]]:
        """`texts` cut into chunks of about equal size, one per task, enough for all workers to have some."""
        tasks = max(
            math.ceil(len(texts) / MAX_TEXTS),
            min(self._workers.n_jobs, len(texts) // MIN_TEXTS),
        )
        for task in range(tasks):
            yield texts[task * len(texts) // tasks : (task + 1) * len(texts) // tasks]

    def _run(self, tasks: Iterable[EvaluationTask]) -> Iterator[Any]:
        """Results of `tasks`, as they are done; a worker without the training set is sent it.

        Adds to `replays` and `replay_s`.
        """

        def with_payload(result: EvaluationResult) -> Call | None:
            if result.task is None:
                return None
            return partial(evaluate_task, result.task._replace(payload=self._payloads[result.number]))

        calls = (partial(evaluate_task, task) for task in tasks)
        for result in self._workers.results(calls, with_payload):
            self.replays += result.replays
            self.replay_s += result.replay_s
            yield result
