"""`python -m training.learn --backend dask` on a cluster of real processes, over TLS."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.dask_cluster import Cluster, certificates
from training.histories.formats import write_npz
from training.histories.models import generate

LEARN = [sys.executable, "-m", "training.learn"]
SEARCH = ["--population", "40", "--generations", "30", "--seeds", "2", "--budget", "0.1"]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """A scheduler and two workers that talk by TLS alone."""
    started = Cluster(tmp_path, 2, certificates(tmp_path))
    yield started
    started.stop()


def content(path: Path) -> dict[str, object]:
    """A score file without the time it was written."""
    read: dict[str, object] = json.loads(path.read_text())
    read.pop("created")
    return read


def on(cluster: Cluster) -> list[str]:
    return ["--backend", "dask", "--scheduler", cluster.address]


def generations(output: Path) -> int:
    """Generations that the first search of a run has behind it."""
    checkpoint = output.with_name(f"{output.name}.checkpoint") / "checkpoint.json"
    if not checkpoint.exists():
        return 0
    done: int = json.loads(checkpoint.read_text())["states"][0]["generation"]
    return done


@pytest.mark.slow
def test_a_worker_that_is_killed_costs_nothing(cluster: Cluster, tmp_path: Path) -> None:
    """kill -9 of one of two workers in the middle: the score file is that of a run on one process."""
    history, output, alone = (tmp_path / name for name in ("history.npz", "dask.json", "alone.json"))
    write_npz(history, generate("poisson", 300, 24, 1))
    assert cluster.address.startswith("tls://")
    run = subprocess.Popen(
        [*LEARN, str(history), *SEARCH, "-o", str(output), *on(cluster)],
        env=cluster.environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    while generations(output) < 2 and run.poll() is None:
        time.sleep(0.01)
    assert run.poll() is None, "it is to be killed in the middle"
    cluster.workers[0].kill()
    _, errors = run.communicate()
    assert run.returncode == 0, errors
    subprocess.run(
        [*LEARN, str(history), *SEARCH, "-o", str(alone), "--jobs", "1"], check=True, capture_output=True
    )
    assert content(output) == content(alone)


@pytest.mark.slow
def test_a_cluster_that_wants_certificates(cluster: Cluster, tmp_path: Path) -> None:
    """Without them nothing is learned, and one line says so."""
    history = tmp_path / "history.npz"
    write_npz(history, generate("poisson", 300, 24, 1))
    run = subprocess.run(
        [*LEARN, str(history), *SEARCH, "-o", str(tmp_path / "out.json"), *on(cluster)],
        capture_output=True,
        text=True,
    )
    assert run.returncode == 2
    assert "Traceback" not in run.stderr
    assert f"no Dask scheduler answers at '{cluster.address}'" in run.stderr
    assert "its certificates in Dask's configuration" in run.stderr
