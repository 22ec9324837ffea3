"""Runs the scenarios that the chosen tests need, two processes at a time, once for all tests."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest
import scenarios

PRODUCERS = {
    "training": scenarios.produce_training,
    "experiment": scenarios.produce_experiment,
    "crawls": scenarios.produce_crawls,
    "stores": scenarios.produce_stores,
    "jobdir": scenarios.produce_jobdir,
}
"""Fixture -> what gives it; the longest first."""

Running = dict[str, Future[Any]]


@pytest.fixture(scope="session")
def running(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Yield the scenarios that run, of those that some test asks for."""
    asked = {name for item in request.session.items for name in getattr(item, "fixturenames", ())}
    place = tmp_path_factory.mktemp("golden")
    with ThreadPoolExecutor(2) as processes:
        yield {
            name: processes.submit(produce, place / name)
            for name, produce in PRODUCERS.items()
            if name in asked
        }


@pytest.fixture(scope="session")
def training(running: Running) -> Any:
    """What the commands of training gave now."""
    return running["training"].result()


@pytest.fixture(scope="session")
def experiment(running: Running) -> Any:
    """What the experiment gave now."""
    return running["experiment"].result()


@pytest.fixture(scope="session")
def crawls(running: Running) -> Any:
    """What the crawls gave now."""
    return running["crawls"].result()


@pytest.fixture(scope="session")
def stores(running: Running) -> Any:
    """What going on with the committed stores gave now."""
    return running["stores"].result()


@pytest.fixture(scope="session")
def jobdir(running: Running) -> Any:
    """What going on with the committed JOBDIR gave now."""
    return running["jobdir"].result()
