"""Fixtures of the crawls that are killed."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.killing import WORKER, Web, Worker


@pytest.fixture
def web() -> Iterator[Web]:
    """Yield a site."""
    served = Web()
    yield served
    served.close()


@pytest.fixture(scope="module")
def forking() -> Iterator[subprocess.Popen[str]]:
    """Yield the process that has everything imported."""
    with subprocess.Popen(
        [sys.executable, str(WORKER)],
        env={**os.environ, "PYTHONPATH": str(WORKER.parents[2])},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        yield process


@pytest.fixture
def worker(forking: subprocess.Popen[str], web: Web, tmp_path: Path) -> Worker:
    """Return what runs crawls of that site."""
    return Worker(forking, web.url, tmp_path)
