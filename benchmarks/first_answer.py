"""How long a new user waits for the first answer, and for the next ones.

    python -m benchmarks.first_answer

`training.evaluate` on three histories, each in a fresh process, one after the other, with a cache of compiled
code that is empty at the beginning: 80 pages and 10 cycles, 80 pages and 40 cycles, 20,000 pages and 57
cycles. Then each once more. Imports are part of it. Where other processes have the cores (processor time
below 0.9 of the wait), processor time decides.

`training.learn` on the second and the third, with an empty cache, and with the code that a run of two
generations has compiled: until it prints the first generation of its first evolution run; that of all five
runs has no target. Its workers and the compilation use both cores, so the wait counts, which needs idle ones.
"""

import argparse
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter

import numpy as np

from benchmarks.common import exit_code, machine, verdict
from training.histories.formats import write_npz
from training.histories.history import ChangeHistory

FIRST_S, LATER_S = 5.0, 2.0
GENERATION_S = 10.0
CPU_BOUND = 0.9
"""Share of the wait from which on the evaluation had a core to itself."""
SIZES = ((80, 10), (80, 40), (20_000, 57))


def seconds(path: Path, cache: Path) -> tuple[float, float]:
    """Wall and processor time of one evaluation of all baselines."""
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(cache)}
    command = [sys.executable, "-m", "training.evaluate", str(path)]
    began_s, used = perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)
    done = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = done.ru_utime + done.ru_stime - used.ru_utime - used.ru_stime
    return perf_counter() - began_s, cpu_s


def learning_of(path: Path, cache: Path) -> tuple[list[str], dict[str, str]]:
    """Command and environment of a learning run."""
    command = [sys.executable, "-m", "training.learn", str(path), "-o", str(cache.with_name("learned.json"))]
    return command, {**os.environ, "NUMBA_CACHE_DIR": str(cache)}


def fill_cache(path: Path, cache: Path) -> None:
    """Do a short learning run, which leaves all code that learning compiles in ``cache``."""
    command, environment = learning_of(path, cache)
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    subprocess.run([*command, "--generations", "2"], env=environment, check=True, **quiet)


def first_generation_s(path: Path, cache: Path) -> tuple[float, float]:
    """Waits until learning prints its first generation, of the first evolution run and of all."""
    command, environment = learning_of(path, cache)
    began_s = perf_counter()
    with subprocess.Popen(
        command, env=environment, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as learning:
        assert learning.stderr is not None
        try:
            first_s = None
            for line in learning.stderr:
                waited_s = perf_counter() - began_s
                if line.startswith("generation 1/"):
                    first_s = first_s or waited_s
                    if not line.partition(":")[0].endswith("seeds"):
                        return first_s, waited_s
            raise RuntimeError(f"{' '.join(command)} printed no generation")
        finally:
            os.killpg(learning.pid, signal.SIGKILL)


def main() -> int:
    """Print every wait; return 1 where a target is missed."""
    argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0]).parse_args()
    print(machine())
    rng = np.random.default_rng(0)
    holds = True
    with tempfile.TemporaryDirectory() as directory:
        paths = []
        for pages, cycles in SIZES:
            path = Path(directory, f"{pages}x{cycles}.npz")
            changed = rng.random((cycles, pages)) < rng.random(pages) * 0.3
            write_npz(path, ChangeHistory(changed, np.zeros(pages, np.int32)))
            paths.append(path)
        for number in (1, 2):
            for path in paths:
                target_s = FIRST_S if number == 1 else LATER_S
                wall_s, cpu_s = seconds(path, Path(directory, "cache"))
                busy = cpu_s < CPU_BOUND * wall_s
                clock = f"s of processor time ({wall_s:.2f} s waited)" if busy else "s"
                name = f"training.evaluate of {path.stem}, time {number}, {clock}"
                holds &= verdict(name, cpu_s if busy else wall_s, target_s, at_least=False)
        for path in paths[1:]:
            cache = Path(directory, f"cache-{path.stem}")
            for time in ("with an empty cache", "again"):
                if time == "again":
                    fill_cache(path, cache)
                waited_s, all_s = first_generation_s(path, cache)
                name = f"training.learn of {path.stem} {time}"
                holds &= verdict(f"{name}, first generation, s", waited_s, GENERATION_S, at_least=False)
                print(f"{name}, that of all runs: {all_s:.2f} s")
                shutil.rmtree(Path(directory, "learned.json.checkpoint"), ignore_errors=True)
                for leftover in Path(directory).glob("learned.json*"):
                    leftover.unlink(missing_ok=True)
    return exit_code(holds)


if __name__ == "__main__":
    sys.exit(main())
