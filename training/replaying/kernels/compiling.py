"""How the loops are compiled, so that whoever waits for it waits little.

Numba compiles a function with all that it calls, makes machine code of it, and does so again for each of its
callers; besides, it makes what hands arguments over from Python and from C, which is long for bundles of
arrays. Three kinds of functions spare most of that:

- `outer` ones are called from Python;
- `inner` ones by other loops alone: a call from Python would end the process, and a test looks for one;
- `flat` ones become part of their callers before anything is compiled. They save the most, but not those that
  are called in several places, nor short loops that the processor spends its time in: in a long function the
  compiler makes worse code of these.

Literals have types of their own until numba has seen all assignments to a variable, and what is called with
them is compiled for these too: hence ``np.int64(0)`` where a variable is handed on.

A line for whoever waits while numba compiles, which it does once per installation and kind of history.
"""

# Compiled code: numba infers the types, which mypy cannot follow.
# mypy: ignore-errors

from __future__ import annotations

import logging
import threading
from time import monotonic
from typing import Any, Final

from numba import njit
from numba.core import event

outer = njit(cache=True, no_cfunc_wrapper=True)
inner = njit(cache=True, no_cfunc_wrapper=True, no_cpython_wrapper=True)
flat = njit(cache=True, no_cfunc_wrapper=True, inline="always")


logger = logging.getLogger(__name__)

PATIENCE_S: Final = 3.0
"""Seconds spent in compilation before somebody is told."""


class CompileNotice(event.Listener):
    """Adds up the time in compilation; tells once, while it lasts, when that is too long."""

    def __init__(self, patience_s: float = PATIENCE_S) -> None:
        """Take how long nobody needs to be told."""
        self._left_s = patience_s
        self._depth = 0
        self._began_s = 0.0
        self._timer: threading.Timer | None = None

    def on_start(self, started: Any) -> None:
        """A function is compiled; those that it calls are compiled within."""
        self._depth += 1
        if self._depth == 1 and self._left_s > 0.0:
            self._began_s = monotonic()
            self._timer = threading.Timer(self._left_s, self._tell)
            self._timer.daemon = True
            self._timer.start()

    def on_end(self, ended: Any) -> None:
        """It is compiled, or could not be."""
        self._depth -= 1
        if self._depth == 0 and self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._left_s -= monotonic() - self._began_s

    def _tell(self) -> None:
        self._left_s = 0.0
        logger.warning("Compiling the replay engine for this kind of history: once, about half a minute ...")


def announce_compilation(patience_s: float = PATIENCE_S) -> CompileNotice:
    """Tell of compilations in this process from now on; returns who listens."""
    teller = CompileNotice(patience_s)
    event.register("numba:compile", teller)  # type: ignore[no-untyped-call]
    return teller
