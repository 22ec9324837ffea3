"""Who waits for compilation is told; who does not wait long is not."""

from __future__ import annotations

import logging
import threading

import pytest
from numba.core import event

from training.replaying.kernels.compiling import Teller


class Told(logging.Handler):
    """Notes what is logged."""

    def __init__(self) -> None:
        super().__init__()
        self.told = threading.Event()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Note it."""
        self.lines.append(record.getMessage())
        self.told.set()


@pytest.mark.parametrize("patience_s", [0.001, 1000.0])
def test_a_long_compilation_is_told_once(patience_s: float) -> None:
    """While it lasts, not when it is over; functions compiled within another are part of it."""
    handler, logger = Told(), logging.getLogger("training.replaying.kernels.compiling")
    logger.addHandler(handler)
    teller = Teller(patience_s)
    try:
        with event.install_listener("numba:compile", teller):
            for _ in range(2):
                event.start_event("numba:compile")
                event.start_event("numba:compile")
                event.end_event("numba:compile")
                if patience_s < 1:
                    assert handler.told.wait(30)
                event.end_event("numba:compile")
    finally:
        logger.removeHandler(handler)
    expected = ["Compiling the replay engine for this kind of history: once, about half a minute ..."]
    assert handler.lines == (expected if patience_s < 1 else [])
