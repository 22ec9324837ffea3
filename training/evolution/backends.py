"""What workers run on: a cluster's client, and what local ones say when they are interrupted."""

from __future__ import annotations

import importlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from scrapy_gp4c.errors import LearningError

BACKENDS: Final = ("loky", "dask")


@contextmanager
def no_word_of_lost_work() -> Iterator[None]:
    """Ctrl-C takes the pending work away from under loky's thread, which then ends: nobody needs to know."""
    usual = threading.excepthook

    def hook(failure: threading.ExceptHookArgs) -> None:
        if not (
            isinstance(failure.exc_value, KeyError) and "ExecutorManager" in type(failure.thread).__name__
        ):
            usual(failure)

    threading.excepthook = hook
    try:
        yield
    finally:
        threading.excepthook = usual


def dask_client(scheduler: str | None) -> Any:
    """A client of the Dask cluster of this scheduler; raises LearningError without one."""
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
    except (OSError, ValueError, TypeError, RuntimeError) as error:  # the last two: certificates, or none
        why = str(error).strip().removesuffix(".")
        raise LearningError(
            f"no Dask scheduler answers at {scheduler!r}: {why}. Expected the address that the scheduler "
            "prints when it starts, and for tls:// its certificates in Dask's configuration "
            "(docs/learning.md, On a Dask cluster)"
        ) from error
