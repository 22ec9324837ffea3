"""Workers: the same outcomes on any backend, and a training set travels only where it is missing."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import threading
from unittest import mock

import joblib
import numpy as np
import pytest
from distributed import LocalCluster
from hypothesis import given
from hypothesis import strategies as st

from scrapy_gp4c.errors import LearningError
from training.evolution import workers as module
from training.evolution.evolve import Outcome
from training.evolution.fitness import load_fitness, values_of
from training.evolution.workers import Evaluator, Key, Task, work, workers
from training.histories.models import generate
from training.replaying.arranged import prepare
from training.replaying.replay import ReplayResult

TRUTHS = [prepare(generate("poisson", 200, 10, seed), budget=0.1) for seed in (1, 2)]
TEXTS = [f"t * X + {i}.0 * n" for i in range(30)]
REQUESTS = [(0, TEXTS), (1, TEXTS[:25]), (0, [*TEXTS[10:], "t", "aad"])]


def expected(number: int, text: str) -> float:
    """Mean NDCG of a text on a training set, by a replay of its own."""
    return float(values_of(TRUTHS[number], text, load_fitness("ndcg"), "visits").mean())


def check(evaluator: Evaluator) -> None:
    """Evaluate `REQUESTS` and compare everything that comes out."""
    done: list[int] = []
    evaluator.evaluate(REQUESTS, done.append)
    assert set(evaluator.known[0]) == {*TEXTS, "t", "aad"}
    assert set(evaluator.known[1]) == set(TEXTS[:25])
    for number, known in enumerate(evaluator.known):
        for text, outcome in known.items():
            assert outcome.value == expected(number, text)
    assert sum(done) == sum(len(texts) for _, texts in REQUESTS), "every text is told once, known or not"
    values = evaluator.values([(1, ["t", "X"]), (0, ["t"])])
    for number, text in ((1, "t"), (1, "X"), (0, "t")):
        assert values[number][text].mean() == expected(number, text)


def test_in_this_process():
    """One job: no processes, the same outcomes."""
    with workers(1) as here:
        evaluator = Evaluator(TRUTHS, "ndcg", "visits", here)
        check(evaluator)
        assert 0 < evaluator.replays <= 57
        assert evaluator.replay_s > 0
        replays = evaluator.replays
        evaluator.evaluate(REQUESTS)
        assert evaluator.replays == replays, "nothing is evaluated twice"


def test_two_processes_of_this_machine():
    """Two loky workers get each training set and give the same outcomes."""
    with workers(2) as pool:
        check(Evaluator(TRUTHS, "ndcg", "visits", pool))


def test_dask_cluster_of_two_worker_processes():
    """A real Dask cluster on loopback: the same outcomes through `--backend dask --scheduler`."""
    with (
        LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            processes=True,
            host="127.0.0.1",
            dashboard_address=None,
            worker_dashboard_address=None,
            silence_logs=50,
        ) as cluster,
        workers(backend="dask", scheduler=cluster.scheduler_address) as pool,
    ):
        assert len(cluster.workers) == 2
        check(Evaluator(TRUTHS, "ndcg", "visits", pool))


def test_a_training_set_travels_only_when_it_is_missing(monkeypatch):
    """The first task of a process is answered by asking for the set; later ones go without it."""
    monkeypatch.setattr(module, "_FITNESSES", {})
    payload = pickle.dumps(TRUTHS[0])
    task = Task(0, Key("digest", "ndcg", "visits"), ["t"], False)
    assert work(task).answers is None
    assert len(pickle.dumps(task)) < 300
    answered = work(task._replace(payload=payload))
    assert answered.answers[0].value == expected(0, "t")
    assert answered.task.payload is None, "the set does not travel back"
    assert work(task).answers == answered.answers
    monkeypatch.setattr(module, "_FITNESSES", {})

    sent: list[bool] = []
    monkeypatch.setattr(module, "MOST_TEXTS", 20)

    def recording(task: Task) -> object:
        sent.append(task.payload is not None)
        return work(task)

    monkeypatch.setattr(module, "work", recording)
    with workers(1) as here:
        evaluator = Evaluator(TRUTHS, "ndcg", "visits", here)
        evaluator.evaluate([(0, TEXTS)])
        evaluator.evaluate([(0, ["t", "X"])])
    assert sent == [False, False, True, True, False], "two tasks asked, two sent again, then none"


@given(
    st.lists(st.tuples(st.integers(0, 1), st.lists(st.integers(0, 40), unique=True)), max_size=6),
    st.integers(1, 12),
    st.integers(1, 5),
    st.integers(1, 4),
)
def test_every_new_text_is_in_one_task(requests, most, least, jobs):
    """Each text that is new for its training set goes out once, in tasks for all workers, none too large."""
    requests = [(number, [f"t + {i}" for i in texts]) for number, texts in requests]
    told: list[int] = []
    with (
        mock.patch.multiple(module, MOST_TEXTS=most, LEAST_TEXTS=least),
        workers(jobs, "threading") as pool,
    ):
        evaluator = Evaluator(TRUTHS, "ndcg", "visits", pool)
        evaluator.known[1]["t + 3"] = Outcome(0.5, "known")
        tasks = list(evaluator._tasks(iter(requests), told.append))
    out = [(task.number, text) for task in tasks for text in task.texts]
    wanted = {(number, text) for number, texts in requests for text in texts} - {(1, "t + 3")}
    assert len(out) == len(set(out))
    assert set(out) == wanted
    assert all(0 < len(task.texts) <= most for task in tasks)
    assert sum(told) + len(out) == sum(len(texts) for _, texts in requests)
    if len(requests) == 1 and least * jobs <= len(out) < most:
        assert len(tasks) == jobs


def test_while_code_is_compiled_runs_come_one_by_one(tmp_path, monkeypatch):
    """A task is of one run, and the first ones bring their training set; afterwards runs share tasks."""
    monkeypatch.setattr(module, "_FITNESSES", {})
    compiled, sent = tmp_path / "done", []

    def recording(task: Task) -> object:
        sent.append((task.texts, task.payload is not None))
        return work(task)

    monkeypatch.setattr(module, "work", recording)
    requests = [(0, ["t", "X"]), (0, ["n", "t", "t + X"])]
    with workers(1) as here:
        evaluator = Evaluator(TRUTHS, "ndcg", "visits", here, compiled=compiled)
        evaluator.evaluate(requests)
        assert sent == [(["t", "X"], True), (["n", "t + X"], False)]
        compiled.touch()
        evaluator.evaluate([(0, ["t + n"]), (0, ["X + n"])])
    assert sent[2:] == [(["t + n", "X + n"], False)]
    assert evaluator.known[0]["t"].value == expected(0, "t")


def test_threads_do_not_get_into_each_others_way():
    """Threads of one process replay side by side, as a Dask worker's do."""
    with workers(4, "threading") as pool:
        check(Evaluator(TRUTHS, "ndcg", "visits", pool))


class AllAtOnce(joblib.parallel.ThreadingBackend):
    """A backend that cannot give answers one by one."""

    supports_return_generator = False


def test_a_backend_that_gives_all_answers_at_once():
    """Such a backend is used as well."""
    joblib.register_parallel_backend("all at once", AllAtOnce)
    with workers(2, "all at once") as pool:
        check(Evaluator(TRUTHS, "ndcg", "visits", pool))


def test_a_process_keeps_a_bounded_number_of_training_sets(monkeypatch):
    """The oldest is dropped, and asked for again when it is needed."""
    monkeypatch.setattr(module, "_FITNESSES", {})
    monkeypatch.setattr(module, "MOST_FITNESSES", 1)
    with workers(1) as here:
        check(Evaluator(TRUTHS, "ndcg", "visits", here))
    assert len(module._FITNESSES) == 1


def deadly(result: ReplayResult) -> np.ndarray:
    """A fitness that kills the worker process that computes it, as the kernel does without memory."""
    if multiprocessing.current_process().name != "MainProcess":
        os.kill(os.getpid(), signal.SIGKILL)
    return result.change_rate


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
        ({"backend": "teapot"}, "joblib cannot use the backend 'teapot'"),
        ({"scheduler": "tcp://127.0.0.1:1"}, "goes with the backend 'dask'; found backend 'loky'"),
        ({"jobs": 0}, "jobs"),
    ],
)
def test_workers_that_are_not_there(options, words):
    """Each is one clear error before any work."""
    with pytest.raises(LearningError, match=words), workers(**options):
        pass


@pytest.mark.parametrize(("error", "told"), [(KeyError(7), False), (ValueError("lost"), True)])
def test_only_work_lost_to_ctrl_c_is_passed_over_in_silence(error, told, monkeypatch):
    """What loky's thread finds missing when the user interrupts is no news; any other failure is."""
    heard = []
    monkeypatch.setattr(threading, "excepthook", heard.append)

    class ExecutorManagerThread(threading.Thread):
        def run(self) -> None:
            raise error

    with workers(1):
        thread = ExecutorManagerThread()
        thread.start()
        thread.join()
    assert [failure.exc_value for failure in heard] == [error] * told
    assert threading.excepthook == heard.append
