"""Compilation of the replay engine in another process, so that a search need not wait for it.

numba compiles the grouped engine once per installation and kind of history, which takes longer than the first
generation of a small history by the engine without compiled loops; both give the same numbers. So workers go
without until this process has filled numba's cache, and none of them compiles the same a second time.
"""

from __future__ import annotations

import hashlib
import pickle
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import DEVNULL
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from scrapy_gp4c.policies.table import TOP_K
from training.evolution.fitness import Fitness, FitnessPair
from training.replaying.prepared import PreparedHistory
from training.replaying.replay import QUICK, run_all

if TYPE_CHECKING:
    from training.replaying.prefix_cache import PrefixCaches

TEXTS: Final = ("t*X", "t*X/n", "t*(X+0.5)", "X")
"""Functions whose replay needs all compiled loops."""


_COMPILED: Final[set[bytes]] = set()
"""Digests of the histories and metrics whose code was compiled since this process began."""


class Wanted(NamedTuple):
    """Replay of the other process."""

    prepared: PreparedHistory
    metrics: tuple[str, ...]


@contextmanager
def compiled_beside(
    prepared: PreparedHistory, measure: Fitness | FitnessPair, policy: str, parallel: Any
) -> Iterator[Path | None]:
    """Path of a file that is there once another process has compiled the code.

    None: no process is needed, as there are no workers that would wait, the policy has no compiled loops, the
    history is so large that compiling takes less time than replays without, or the code was compiled before.
    The file comes when the process ends, whatever its result: workers compile the code that still lacks.
    """
    if parallel.n_jobs == 1 or policy != TOP_K.text or prepared.pages * prepared.cycles > QUICK:
        yield None
        return
    command = [sys.executable, "-m", __spec__.name]
    wanted = pickle.dumps(Wanted(prepared, measure.metrics))
    digest = hashlib.sha256(wanted).digest()
    if digest in _COMPILED:
        yield None
        return
    with (
        tempfile.TemporaryDirectory(prefix="gp4c-compiling-") as folder,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=DEVNULL, stderr=DEVNULL) as beside,
    ):
        done = Path(folder, "done")

        def attend() -> None:
            beside.communicate(wanted)
            if beside.returncode == 0:
                _COMPILED.add(digest)
            done.touch()

        attending = threading.Thread(target=attend)
        attending.start()
        try:
            yield done
        finally:
            beside.kill()
            attending.join()


def main() -> int:
    """Replay the `Wanted` of the standard input."""
    wanted: Wanted = pickle.load(sys.stdin.buffer)
    prefix_caches: PrefixCaches = {}
    for _ in range(2):  # what is known from others takes loops too
        run_all(wanted.prepared, TEXTS, metrics=wanted.metrics, prefix_caches=prefix_caches)
    return 0


if __name__ == "__main__":
    sys.exit(main())
