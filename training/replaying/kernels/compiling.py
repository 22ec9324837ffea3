"""Decorators of compiled loops, which keep compile time short, the files of compiled code, and a log line.

Numba compiles a function with all that it calls, and again for each of its callers. It also makes entries
from Python and from C, which takes long for bundles of arrays. Three decorators spare most of that:

- `outer`: functions called from Python;
- `inner`: functions called by other loops alone (a call from Python ends the process; a test looks for it);
- `flat`: functions inlined into their caller before compilation. They save the most, but not with several
  callers, nor for the hot short loops: in a long function the compiler makes worse code of these.

Literals have types of their own until numba has seen all assignments to a variable, and callees are compiled
for these too: hence ``np.int64(0)`` where a variable is handed on.
"""

# Compiled code: numba infers the types, which mypy cannot follow.
# mypy: ignore-errors

import hashlib
import logging
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from filelock import FileLock
from numba import njit
from numba.core import event
from numba.core.caching import IndexDataCacheFile
from numba.core.compiler_lock import global_compiler_lock


class CodeFiles(IndexDataCacheFile):
    """Files of a function's compiled code, each named by a digest of the types that it was compiled for.

    They must not be numbered as numba does: two processes that compile at once may give one number to the
    code of different types, and a process with the wrong code reads foreign memory (numba issue 4807).
    """

    def save(self, key, data):
        digest = hashlib.sha256(repr((self._source_stamp, key)).encode()).digest()
        name = self._data_name(int.from_bytes(digest[:8], "big"))
        self._save_data(name, data)
        # An entry that another process writes meanwhile is lost, and compiled once more.
        self._save_index(self._load_index() | {key: name})


def _let_others_wait(dispatcher):
    """Let one process compile what several need at once: the others read its code when they get the lock."""
    cache, compile_now = dispatcher._cache, dispatcher.compile

    def compile_once(signature):
        key = cache._index_key(signature, dispatcher.targetctx.codegen())
        is_inner = global_compiler_lock.is_locked()  # by this thread, which compiles a caller
        if is_inner or key in cache._cache_file._load_index():
            return compile_now(signature)
        cache._impl.locator.ensure_cache_path()
        lock = FileLock(Path(cache.cache_path, "compiling.lock"))
        with suppress(OSError, NotImplementedError):  # some file systems have no locks
            lock.acquire()
        try:
            return compile_now(signature)
        finally:
            lock.release()

    dispatcher.compile = compile_once


def _cached(**options):
    def compile_later(function):
        compiled = njit(cache=True, no_cfunc_wrapper=True, **options)(function)
        compiled._cache._cache_file.__class__ = CodeFiles
        _let_others_wait(compiled)
        return compiled

    return compile_later


outer = _cached(nogil=True)
inner = _cached(nogil=True, no_cpython_wrapper=True)
flat = _cached(inline="always")


logger = logging.getLogger(__name__)

PATIENCE_S: Final = 3.0
"""Seconds of a compilation before the log line."""


class CompileNotice(event.Listener):
    """Listener that logs one line when a compilation, with all that it calls, becomes long."""

    def __init__(self, patience_s: float = PATIENCE_S) -> None:
        self._patience_s = patience_s
        self._depth = 0
        self._is_logged = False
        self._timer: threading.Timer | None = None

    def on_start(self, started: Any) -> None:
        self._depth += 1
        if self._timer is None:
            self._timer = threading.Timer(self._patience_s, self._log)
            self._timer.daemon = True
            self._timer.start()

    def on_end(self, ended: Any) -> None:
        self._depth -= 1
        if self._depth == 0 and self._timer is not None and not self._is_logged:
            self._timer.cancel()
            self._timer = None

    def _log(self) -> None:
        self._is_logged = True
        logger.warning("Compiling the replay engine for this kind of history: once, about half a minute ...")


def announce_compilation() -> None:
    """Log long compilations in this process from now on."""
    event.register("numba:compile", CompileNotice())  # type: ignore[no-untyped-call]
