"""Workers: the same outcomes on any backend, and a training set travels only where it is missing."""

import dataclasses
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from distributed import LocalCluster
from hypothesis import given
from hypothesis import strategies as st

from scrapy_gp4c.errors import LearningError
from scrapy_gp4c.scoring.expression import Expression, parse
from tests.support.dask_cluster import Cluster
from training.evolution import workers as module
from training.evolution.evolve import Outcome
from training.evolution.workers import (
    EvaluationKey,
    EvaluationResult,
    EvaluationTask,
    Evaluator,
    SerialExecutor,
    TextFitness,
    Workers,
    evaluate_task,
    load_fitness,
    values_of_all,
    workers,
)
from training.histories.models import generate
from training.replaying import metrics
from training.replaying.prepared import prepare
from training.replaying.replay import ReplayResult, run

TRUTHS = [prepare(generate("poisson", 200, 10, seed), budget=0.1) for seed in (1, 2)]
TEXTS = [f"t * X + {i}.0 * n" for i in range(30)]


def functions(texts: Iterable[str]) -> dict[str, Expression]:
    return {text: parse(text) for text in texts}


REQUESTS = [(0, functions(TEXTS)), (1, functions(TEXTS[:25])), (0, functions([*TEXTS[10:], "t", "aad"]))]


def expected(number: int, text: str) -> float:
    """Mean NDCG of a text on a training set, by a replay of its own."""
    return float(values_of_all(TRUTHS[number], [text], load_fitness("ndcg"), "visits")[0].mean())


def check(evaluator: Evaluator) -> None:
    """Evaluate `REQUESTS` and compare everything that comes out."""
    done: Counter[int] = Counter()
    evaluator.evaluate(REQUESTS, lambda number, texts: done.update({number: texts}))
    assert set(evaluator.known[0]) == {*TEXTS, "t", "aad"}
    assert set(evaluator.known[1]) == set(TEXTS[:25])
    for number, known in enumerate(evaluator.known):
        for text, outcome in known.items():
            assert outcome.value == expected(number, text)
    assert done == {0: 52, 1: 25}, "every text is told once, known or not"
    values = evaluator.values([(1, functions(["t", "X"])), (0, functions(["t"]))])
    for number, text in ((1, "t"), (1, "X"), (0, "t")):
        assert values[number][text].mean() == expected(number, text)


def test_in_this_process():
    """One job: no processes, the same outcomes."""
    with workers(1) as here:
        evaluator = Evaluator(TRUTHS, "ndcg", "visits", here)
        check(evaluator)
        assert evaluator.replays == sum(map(len, evaluator.known)) + 3, "three are asked for by cycle, too"
        assert evaluator.replay_s > 0
        replays = evaluator.replays
        evaluator.evaluate(REQUESTS)
        assert evaluator.replays == replays, "nothing is evaluated twice"


@pytest.mark.slow
def test_two_processes_of_this_machine():
    """Two worker processes get each training set and give the same outcomes."""
    with workers(2) as pool:
        check(Evaluator(TRUTHS, "ndcg", "visits", pool))


def test_a_training_set_travels_only_when_it_is_missing(monkeypatch):
    """The first task of a process is answered by asking for the set; later ones go without it."""
    monkeypatch.setattr(module, "_FITNESSES", {})
    payload = pickle.dumps(TRUTHS[0])
    task = EvaluationTask(0, EvaluationKey("digest", "ndcg", "visits"), functions(["t"]), False)
    assert evaluate_task(task) == EvaluationResult(0, None, task=task)
    assert len(pickle.dumps(task)) < 400
    answered = evaluate_task(task._replace(payload=payload))
    assert answered.answers["t"].value == expected(0, "t")
    assert answered.task is None, "neither the set nor the functions travel back"
    assert evaluate_task(task).answers == answered.answers
    monkeypatch.setattr(module, "_FITNESSES", {})

    sent: list[bool] = []
    monkeypatch.setattr(module, "MAX_TEXTS", 20)

    def recording(task: EvaluationTask) -> object:
        sent.append(task.payload is not None)
        return evaluate_task(task)

    monkeypatch.setattr(module, "evaluate_task", recording)
    with workers(1) as here:
        evaluator = Evaluator(TRUTHS, "ndcg", "visits", here)
        evaluator.evaluate([(0, functions(TEXTS))])
        evaluator.evaluate([(0, functions(["t", "X"]))])
    assert sent == [False, True, False, False], "the first task asked and was sent again, then none"


@given(
    st.lists(st.tuples(st.integers(0, 1), st.lists(st.integers(0, 40), unique=True)), max_size=6),
    st.integers(1, 12),
    st.integers(1, 5),
    st.integers(1, 4),
)
def test_every_new_text_is_in_one_task(requests, most, least, jobs):
    """Each text that is new for its training set goes out once, in tasks for all workers, none too large."""
    requests = [(number, functions(f"t + {i}" for i in texts)) for number, texts in requests]
    calls: list[int] = []
    with mock.patch.multiple(module, MAX_TEXTS=most, MIN_TEXTS=least):
        evaluator = Evaluator(TRUTHS, "ndcg", "visits", Workers(SerialExecutor(), jobs))
        evaluator.known[1]["t + 3"] = Outcome(0.5, "known")
        tasks = list(evaluator._tasks(iter(requests), lambda number, texts: calls.append(texts)))
    out = [(task.number, text) for task in tasks for text in task.functions]
    wanted = {(number, text) for number, texts in requests for text in texts} - {(1, "t + 3")}
    assert len(out) == len(set(out))
    assert set(out) == wanted
    assert all(0 < len(task.functions) <= most for task in tasks)
    assert sum(calls) + len(out) == sum(len(texts) for _, texts in requests)
    if len(requests) == 1 and least * jobs <= len(out) < most:
        assert len(tasks) == jobs


def test_threads_do_not_get_into_each_others_way():
    """Threads of one process replay side by side, as a Dask worker's do."""
    with ThreadPoolExecutor(4) as threads:
        check(Evaluator(TRUTHS, "ndcg", "visits", Workers(threads, 4)))


def test_a_process_keeps_a_bounded_number_of_training_sets(monkeypatch):
    """The oldest is dropped, and asked for again when it is needed."""
    monkeypatch.setattr(module, "_FITNESSES", {})
    monkeypatch.setattr(module, "MAX_FITNESSES", 1)
    with workers(1) as here:
        check(Evaluator(TRUTHS, "ndcg", "visits", here))
    assert len(module._FITNESSES) == 1


def deadly(result: ReplayResult) -> np.ndarray:
    """A fitness that kills the worker process that computes it, as the kernel does without memory."""
    if multiprocessing.current_process().name != "MainProcess":
        os.kill(os.getpid(), signal.SIGKILL)
    return result.change_rate


@pytest.mark.slow
def test_worker_that_dies():
    """kill -9 of a worker: one error that says how to go on, and no hang."""
    with (
        workers(2) as pool,
        pytest.raises(LearningError, match=r"a worker process died, .* --resume"),
    ):
        Evaluator(TRUTHS, f"{__name__}.deadly", "visits", pool).evaluate(REQUESTS)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"backend": "dask"}, "needs the address of a scheduler"),
        ({"backend": "dask", "scheduler": "nonsense://x"}, "no Dask scheduler answers at 'nonsense://x'"),
        ({"backend": "teapot"}, "there is no backend 'teapot'; there are: processes, dask"),
        ({"scheduler": "tcp://127.0.0.1:1"}, "goes with the backend 'dask'; found backend 'processes'"),
        ({"jobs": 0}, "jobs"),
    ],
)
def test_workers_that_are_not_there(options, words):
    """Each is one clear error before any work."""
    with pytest.raises(LearningError, match=words), workers(**options):
        pass


@pytest.mark.parametrize(
    ("quota", "count"), [("max 100000", 3), ("150000 100000", 2), ("900000 100000", 3), ("50000 100000", 1)]
)
def test_processors_of_a_container(quota, count, tmp_path, monkeypatch):
    """One process per processor that may be used: -1 in a container of few on a machine of many."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 1, 2}, raising=False)
    monkeypatch.setattr(module, "CPU_QUOTA", tmp_path / "cpu.max")
    assert module.processors() == 3
    (tmp_path / "cpu.max").write_text(quota)
    assert module.processors() == count


PROGRAM = """
import os
from functools import partial
from training.evolution.workers import workers
with workers(2) as pool:
    processes = set()
    while len(processes) < 2:
        processes.update(pool.results(os.getpid for _ in range(4)))
    print(*processes, flush=True)
    busy = "import os, time; os.write(1, b'.'); time.sleep(600)"
    list(pool.results(partial(exec, busy) for _ in range(4)))
"""


def is_there(process: int) -> bool:
    """Whether a process has not ended; nobody may have asked yet how."""
    try:
        return "zombie" not in Path(f"/proc/{process}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="processes are looked for in /proc")
@pytest.mark.parametrize(
    "how",
    [signal.SIGKILL, *(pytest.param(one, marks=pytest.mark.slow) for one in (signal.SIGTERM, signal.SIGINT))],
)
def test_processes_end_with_the_one_that_began_them(how: signal.Signals) -> None:
    """Busy as they are, and though the one that was killed holds what they wait for."""
    learning = subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert learning.stdout is not None
    processes = [int(word) for word in learning.stdout.readline().split()]
    assert len(processes) == 2
    assert all(map(is_there, processes))
    assert learning.stdout.read(2) == "..", "both are busy"
    learning.send_signal(how)
    _, errors = learning.communicate(timeout=60)
    until_s = time.monotonic() + 60
    while any(map(is_there, processes)) and time.monotonic() < until_s:
        time.sleep(0.05)
    assert not any(map(is_there, processes))
    assert errors.count("Traceback") == (how == signal.SIGINT), "that of the interrupt alone"


QUIET = {"dashboard_address": ":0", "silence_logs": 50}


@pytest.fixture
def cluster(request: pytest.FixtureRequest) -> Iterator[LocalCluster]:
    """So many workers of Dask in processes of their own."""
    with LocalCluster(n_workers=request.param, threads_per_worker=1, host="127.0.0.1", **QUIET) as started:
        yield started


def failing(number: int) -> int:
    raise ValueError(f"no {number}")


def kill_worker() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.slow
@pytest.mark.parametrize("cluster", [2], indirect=True)
def test_the_work_of_a_cluster_is_its_workers(cluster: LocalCluster) -> None:
    """Not the process that sends it, whose machine may be a small one; an error of a call is raised."""
    with workers(backend="dask", scheduler=cluster.scheduler_address) as pool:
        assert pool.n_jobs == 2
        assert set(pool.results(os.getpid for _ in range(6))).isdisjoint({os.getpid()})
        with pytest.raises(ValueError, match="no 3"):
            list(pool.results(partial(failing, 3) for _ in range(4)))
        assert list(pool.results([partial(abs, -7)])) == [7]
        with pytest.raises(LearningError, match=r"a worker process died.*--resume"):
            list(pool.results([kill_worker]))


@pytest.mark.parametrize("cluster", [0], indirect=True)
def test_a_cluster_without_workers(cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Is waited for, for a while; one error then."""
    monkeypatch.setattr(module, "DASK_WAIT_S", 0.5)
    with (
        pytest.raises(LearningError, match=r"expected a worker on the cluster of .*; found none within"),
        workers(backend="dask", scheduler=cluster.scheduler_address),
    ):
        pass


@pytest.mark.slow
def test_workers_that_come_when_all_have_died_do_the_rest(tmp_path: Path) -> None:
    """Under other names; what the dead ones had under way is done anew, with its training set."""
    cluster = Cluster(tmp_path, 2, {})
    try:
        with workers(backend="dask", scheduler=cluster.address) as pool:
            killed = tmp_path / "killed"
            pids = pool.results(partial(busy, number, killed) for number in range(9))
            first = next(pids)
            for worker in cluster.workers:
                worker.kill()
                worker.wait()
            killed.touch()
            last = cluster.join()
            numbers = dict([first, *pids])
            check(Evaluator(TRUTHS, "ndcg", "visits", pool))
    finally:
        cluster.stop()
    assert numbers.keys() == set(range(9))
    assert last.pid in numbers.values()


def busy(number: int, until: Path) -> tuple[int, int]:
    """The number and the process that was busy with it: with all but the first until there is a file."""
    while number and not until.exists():
        time.sleep(0.05)
    return number, os.getpid()


@pytest.mark.slow
def test_processes_leave_the_script_alone(tmp_path: Path) -> None:
    """They do not import it: neither its time is lost, nor does it need a guard of its main part."""
    script = tmp_path / "script.py"
    script.write_text(f"print('begins')\n{PROGRAM.replace('sleep(600)', 'sleep(0)')}")
    run = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stderr
    assert run.stdout.count("begins") == 1


TRUTH = prepare(generate("poisson", 300, 12, 1), budget=0.1)


def mixed(result: ReplayResult) -> np.ndarray:
    """A fitness of a user's own: freshness and change rate in one."""
    assert result.freshness is not None
    return result.freshness + result.change_rate


def scalar(result: ReplayResult) -> float:
    return float(np.mean(result.change_rate))


def broken(result: ReplayResult) -> str:
    return "good"


NOT_A_FUNCTION = 3


@pytest.mark.parametrize("name", sorted(metrics.MEASURES))
def test_measures_are_the_metrics_of_the_replay(name):
    """One value per scored cycle; staleness and age count negative, so that higher is always better."""
    timed = dataclasses.replace(TRUTH, latency_ms=np.arange(TRUTH.pages, dtype=np.uint16))
    result = run(timed, "t * X", metrics=(name,))
    values = values_of_all(timed, ["t * X"], load_fitness(name), "visits")[0]
    sign = -1.0 if name in ("harmonic_staleness", "age") else 1.0
    np.testing.assert_array_equal(values, sign * getattr(result, name))
    assert len(values) == TRUTH.cycles - TRUTH.warmup
    assert name in metrics.KNOWN


def test_dotted_path():
    """A user's function sees every metric and gives one number per scored cycle."""
    values = values_of_all(TRUTH, ["t"], load_fitness(f"{__name__}.mixed"), "visits")[0]
    result = run(TRUTH, "t")
    np.testing.assert_array_equal(values, result.freshness + result.change_rate)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("speed", "there is no fitness 'speed'; there are: change_rate, ndcg"),
        ("no_such.module", "cannot load the fitness function 'no_such.module'"),
        (f"{__name__}.missing", "cannot load"),
        (f"{__name__}.NOT_A_FUNCTION", "is a int, not callable"),
    ],
)
def test_unknown_fitness(name, words):
    """The error names what was given and what exists."""
    with pytest.raises(LearningError, match=words):
        load_fitness(name)


@pytest.mark.parametrize(("name", "words"), [("scalar", r"returned shape \(\)"), ("broken", "failed: ")])
def test_fitness_function_of_wrong_shape(name, words):
    """A custom function that does not return one number per cycle is named in the error."""
    with pytest.raises(LearningError, match=words):
        values_of_all(TRUTH, ["t"], load_fitness(f"{__name__}.{name}"), "visits")[0]


def test_functions_are_counted_and_behave_as_those_that_do_the_same():
    """Each function is counted, with its time; what does the same has the same behaviour."""
    judge = TextFitness(TRUTH, load_fitness("ndcg"), "visits")
    texts = ["t * X", "X * t * 10", "t", "log(t)", "aad", "aad * 2", "X"]
    by_text = judge.outcomes({text: parse(text) for text in texts})
    outcomes = [by_text[text] for text in texts]
    assert judge.replays == 7
    assert judge.replay_s > 0
    assert outcomes[0] == outcomes[1]
    assert outcomes[4] == outcomes[5]
    assert (outcomes[0].behaviour == outcomes[2].behaviour) == (outcomes[0].value == outcomes[2].value)
