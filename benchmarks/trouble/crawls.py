"""Real crawls that are killed, whose clocks jump, and whose disks fail."""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from benchmarks.trouble.counting import Count, patience
from tests.support.killing import PAGES, WORKER, Recorded, Web, Worker

CLOCKS_S: Final = (-1e9, -3e7, -86_400.0, -1.0, 0.0, 1.0, 86_400.0, 3e7, 1e9, 3.98e12)
"""Errors of a clock, in s: back to 1995, by a day, to the year 128,000."""
DISK: Final = Path(__file__).parent / "failing_disk.c"


@contextmanager
def crawls(directory: Path, preload: Path | None = None) -> Iterator[tuple[Web, Worker]]:
    """Context with a site and a runner of crawl processes; ``preload``: library that they load first."""
    web = Web()
    environment = {**os.environ, "PYTHONPATH": str(WORKER.parents[2])}
    if preload is not None:
        environment["LD_PRELOAD"] = str(preload)
    command = [sys.executable, str(WORKER)]
    with subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield web, Worker(process, web.url, directory)
        finally:
            web.close()
            process.kill()


class Watched:
    """Counter of faults in the store of successive crawls of one site."""

    def __init__(self, web: Web, worker: Worker) -> None:
        self._web, self._worker = web, worker
        self._state: Recorded | None = None
        self._lost = self._doubled = 0
        self.hangs: list[int] = []

    def clear_log(self) -> None:
        """Empty the log of the site before a crawl."""
        self._web.log.clear()

    def check_store(self) -> None:
        """Compare the store after a crawl with its state after the one before, and count faults."""
        before, worker = self._state, self._worker
        if not worker.store.exists():
            return
        try:
            self._state = state = Recorded(worker.store)
            state.has_kept(before)
            state.has_committed(worker.commits)
        except AssertionError:
            self._lost += 1
        now = (self._state.open_cycle or self._state.last_cycle) if self._state is not None else 0
        if before is not None and before.open_cycle == now:
            self._doubled += len(set(self._web.log) & before.visited_paths)

    def count(self, times: int, note: str = "") -> Count:
        """Counts over all crawls."""
        visits = len(self._state.visits) if self._state is not None else 0
        tracebacks = self._worker.log.read_text().split("Traceback")[1:]
        # A kill may tear the file in which Scrapy keeps `spider.state`, with this add-on or without.
        ours = sum("spiderstate.py" not in text[:2000] for text in tracebacks)
        note = f"{visits:,} visits compared{note}"
        if ours < len(tracebacks):
            note += f"; {len(tracebacks) - ours} tracebacks of Scrapy's own state file"
        return Count(times, self._lost, self._doubled, hangs=len(self.hangs), ends=ours, note=note)


def killed_crawls(
    times: int,
    numbers: random.Random,
    directory: Path,
    *,
    jobdir: bool = False,
    clocks: bool = False,
    torn: bool = False,
) -> Count:
    """Kill crawls by SIGKILL at any moment; each continues the one before.

    ``clocks``: each crawl's clock is wrong, and jumps while it runs; ``torn``: a queue of the JOBDIR is
    damaged after each kill.
    """
    kills = 0
    with crawls(directory) as (web, worker):
        watched = Watched(web, worker)
        more = {"JOBDIR": str(directory / "job")} if jobdir else None
        while kills < times:
            watched.clear_log()
            settings: dict[str, object] = {}
            if clocks:
                settings["clock_off_s"] = [numbers.choice(CLOCKS_S) for _ in range(4)]
            in_fold = kills % 6 == 0
            if in_fold:
                settings["kill_in_fold"] = numbers.randrange(4)
            pid = worker.begin(more, **settings)
            with patience(pid, watched.hangs):
                if not in_fold:
                    requests, delay_s = numbers.randrange(PAGES // 2), numbers.uniform(0.0, 0.05)
                    with suppress(ProcessLookupError):
                        while len(web.log) < requests:
                            os.kill(pid, 0)
                            time.sleep(0.001)
                        time.sleep(delay_s)
                        os.kill(pid, signal.SIGKILL)
                kills += worker.wait() == -signal.SIGKILL
            watched.check_store()
            queues = [path for path in directory.glob("job/requests.queue/**/*") if path.is_file()]
            if torn and queues:
                path = numbers.choice(queues)
                data = bytearray(path.read_bytes())
                if data and numbers.random() < 0.5:
                    data[numbers.randrange(len(data))] ^= 255
                path.write_bytes(data[: numbers.randrange(len(data) + 1)])
        return watched.count(kills)


def failing_disks(times: int, numbers: random.Random, directory: Path) -> Count:
    """Crawl while the disk fails (EIO): at one write or sync of the store's file, or from that one on.

    A preloaded library makes it fail; without a C compiler for that library nothing is tried.
    """
    library = directory / "failing_disk.so"
    compiler = shutil.which("cc")
    if compiler is None:
        return Count(0, note="no C compiler")
    command = [compiler, "-shared", "-fPIC", "-O1", "-o", str(library), str(DISK), "-ldl"]
    subprocess.run(command, check=True)
    with crawls(directory, library) as (web, worker):
        watched = Watched(web, worker)
        for _ in range(times):
            watched.clear_log()
            pid = worker.begin(fail_write=numbers.randrange(1, 60), fail_on=numbers.random() < 0.5)
            with patience(pid, watched.hangs):
                worker.wait()
            watched.check_store()
        failed = worker.log.read_text().count(" CRITICAL: ")
        return watched.count(times, note=f"; {failed} crawls said so")
