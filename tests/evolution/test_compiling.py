"""Compiling beside a search: the file that tells of it comes whatever happens, and the code is used."""

import os
import subprocess
import sys
from time import sleep
from types import SimpleNamespace

import pytest

from scrapy_gp4c.policies.table import TOP_K
from tests.evolution.test_workers import REQUESTS, TEXTS, TRUTHS, check, functions
from training.evolution import learning
from training.evolution.learning import compiled_beside
from training.evolution.workers import (
    EvaluationTask,
    Evaluator,
    TextFitness,
    evaluate_task,
    load_fitness,
    workers,
)

NDCG = load_fitness("ndcg")
TWO = SimpleNamespace(n_jobs=2)


@pytest.fixture(autouse=True)
def as_in_a_new_process(monkeypatch):
    monkeypatch.setattr(learning, "_COMPILED", set())


def wait(done):
    """Wait for the process beside, as the workers never do."""
    while not done.exists():
        sleep(0.01)


@pytest.mark.slow
def test_the_file_comes_when_the_code_is_compiled(tmp_path, monkeypatch):
    """The process fills numba's cache, and the file that tells of it goes with the block."""
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    with compiled_beside(TRUTHS[0], NDCG, TOP_K.text, TWO) as done:
        wait(done)
        assert list(tmp_path.glob("*/cycles.replay_states*.nbc"))
    assert not done.exists()


def test_the_same_is_compiled_once():
    """The next search of a process need not wait for it, one for something else does."""
    with compiled_beside(TRUTHS[0], NDCG, TOP_K.text, TWO) as done:
        wait(done)
    with compiled_beside(TRUTHS[0], NDCG, TOP_K.text, TWO) as done:
        assert done is None
    with compiled_beside(TRUTHS[1], NDCG, TOP_K.text, TWO) as done:
        assert done is not None


@pytest.mark.slow
def test_code_that_was_compiled_beside_is_used_by_workers(tmp_path, monkeypatch):
    """A process that unpickles the history finds the code, and so does one that arranges it itself."""
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    with compiled_beside(TRUTHS[0], NDCG, TOP_K.text, TWO) as done:
        wait(done)
    code = sorted(tmp_path.glob("*/*.nbc"))
    script = """if True:
        import pickle
        from tests.evolution.test_workers import TRUTHS
        from training.replaying.replay import run_all
        for truth in (TRUTHS[0], pickle.loads(pickle.dumps(TRUTHS[0]))):
            run_all(truth, ["t*X", "t*X/n"], metrics=("ndcg",))
        """
    subprocess.run([sys.executable, "-c", script], check=True, env=dict(os.environ))
    assert sorted(tmp_path.glob("*/*.nbc")) == code


@pytest.mark.parametrize("program", ["false", "cat"])
def test_a_process_that_fails_keeps_nobody_waiting(monkeypatch, program):
    """Where there is no Python as it should be, the file comes all the same."""
    monkeypatch.setattr(sys, "executable", program)
    for _ in range(2):  # what failed is tried again
        with compiled_beside(TRUTHS[0], NDCG, TOP_K.text, TWO) as done:
            wait(done)


@pytest.mark.parametrize(
    ("jobs", "policy", "most"),
    [(1, TOP_K.text, 10**7), (2, "rounds(rounds=4)", 10**7), (2, TOP_K.text, 1999)],
)
def test_nothing_is_compiled_beside_in_vain(monkeypatch, jobs, policy, most):
    """No workers, a policy without such code, a history too large to go without: no process."""
    monkeypatch.setattr(learning, "QUICK", most)
    with compiled_beside(TRUTHS[0], NDCG, policy, SimpleNamespace(n_jobs=jobs)) as done:
        assert done is None


def test_workers_go_without_until_the_file_is_there(tmp_path):
    """The same outcomes before and after, by the one engine and by the other."""
    file = tmp_path / "done"
    fitness = TextFitness(TRUTHS[0], NDCG, "visits")
    before = fitness.values(functions(TEXTS[:3]), file)
    file.touch()
    after = fitness.values(functions(TEXTS[:3]), file)
    assert {text: values.tolist() for text, values in after.items()} == {
        text: values.tolist() for text, values in before.items()
    }


def test_an_evaluator_asks_no_longer_once_it_has_seen_the_file(tmp_path):
    """Workers on other machines do not see it: a task that comes later does not name it."""
    file, named = tmp_path / "done", []

    def watched(task: EvaluationTask):
        named.append(task.compiled)
        return evaluate_task(task)

    with workers(1) as here, pytest.MonkeyPatch.context() as patch:
        patch.setattr("training.evolution.workers.evaluate_task", watched)
        evaluator = Evaluator(TRUTHS, "ndcg", "visits", here, compiled=file)
        evaluator.evaluate(REQUESTS[:1])
        assert set(named) == {file}
        named.clear()
        file.touch()
        check(evaluator)
        assert set(named) == {None}
