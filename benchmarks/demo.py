"""How long `make demo` takes: until its first curve is on the screen, and as a whole.

    python -m benchmarks.demo [--days 31]

The demo in a fresh process, as it is, its output read line by line. Targets: 30 s until the first curve, 3
minutes for all of it, on 2 idle cores. Processor time of all its processes is told besides: two idle cores
need half of it at least.
"""

import argparse
import resource
import subprocess
import sys
import tempfile
import time

from benchmarks.common import machine, verdict
from example_project.crawls import DAYS
from example_project.tables import STEPS

CURVE_S, WHOLE_S = 30.0, 180.0


def main() -> int:
    """Print both waits; return 1 where a target is missed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--days", type=int, default=DAYS, help="days to simulate (default: %(default)s)")
    options = parser.parse_args()
    print(machine())
    curve_s = None
    with tempfile.TemporaryDirectory() as directory:
        command = [sys.executable, "-u", "-m", "example_project.demo", "--days", str(options.days)]
        began_s = time.perf_counter()
        with subprocess.Popen(
            [*command, "--port", "0", "--output", directory], stdout=subprocess.PIPE, text=True
        ) as demo:
            assert demo.stdout is not None
            for line in demo.stdout:
                if curve_s is None and set(line) & set(STEPS):
                    curve_s = time.perf_counter() - began_s
        whole_s = time.perf_counter() - began_s
    if demo.returncode or curve_s is None:
        print(f"the demo failed, exit code {demo.returncode}", file=sys.stderr)
        return 1
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(f"processor time of all processes: {used.ru_utime + used.ru_stime:.0f} s")
    holds = verdict("first curve on the screen, s", curve_s, CURVE_S, at_least=False)
    return 0 if verdict("the whole demo, s", whole_s, WHOLE_S, at_least=False) and holds else 1


if __name__ == "__main__":
    sys.exit(main())
