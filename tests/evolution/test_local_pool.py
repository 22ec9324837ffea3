"""Processes that evaluate end with the one that began them."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from training.evolution.local_pool import LOOK_S

PROGRAM = """
import os, time
from training.evolution.local_pool import LocalPool
pool = LocalPool(2)
found = set()
while len(found) < 2:
    found.update(pool((os.getpid, (), {}) for _ in range(4)))
print(*found, flush=True)
list(pool((time.sleep, (600,), {}) for _ in range(4)))
"""


def is_there(process: int) -> bool:
    """Whether a process has not ended; nobody may have asked yet how."""
    try:
        return "zombie" not in Path(f"/proc/{process}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="processes are looked for in /proc")
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_they_end_when_it_is_killed(how: signal.Signals) -> None:
    """Busy as they are, and though the one that was killed holds what they wait for."""
    begun = subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, text=True)
    assert begun.stdout is not None
    workers = [int(word) for word in begun.stdout.readline().split()]
    assert len(workers) == 2
    assert all(map(is_there, workers))
    begun.send_signal(how)
    begun.wait()
    until_s = time.monotonic() + 60 * LOOK_S
    while any(map(is_there, workers)) and time.monotonic() < until_s:
        time.sleep(0.05)
    assert not any(map(is_there, workers))
    begun.stdout.close()
