"""Fetchers of the demo, as on other machines: a scheduler and processes, of which one is killed a day."""

import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .crawls import ROOT, stop

BIN = Path(sys.executable).parent
KILL_S = 2.0  # seconds from the beginning of a day's crawl to the kill


class Machines:
    """Processes of a Dask scheduler and of fetchers, which download pages for the demo's crawls."""

    def __init__(self, count: int, folder: Path) -> None:
        """Start a scheduler and ``count`` fetchers; their logs go to ``folder``."""
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.address = f"tcp://127.0.0.1:{port}"
        self.folder = folder
        words = ["dask", "scheduler", "--host", "127.0.0.1", "--port", str(port), "--no-dashboard"]
        self.scheduler = self.start("scheduler", *words)
        self.fetchers = [self.fetcher(number) for number in range(count)]
        self.killed = 0

    def start(self, name: str, *words: str) -> subprocess.Popen[bytes]:
        """Start the command ``words``, which logs to ``name``.log."""
        with (self.folder / f"{name}.log").open("ab") as log:
            return subprocess.Popen([str(BIN / words[0]), *words[1:]], cwd=ROOT, stdout=log, stderr=log)

    def fetcher(self, number: int) -> subprocess.Popen[bytes]:
        """Start the fetcher ``number``."""
        words = ["scrapy", "gp4c", "fetcher", "monitor", "--connect", self.address, "--name", f"f{number}"]
        return self.start(f"fetcher{number}", *words)

    def kill_one(self) -> None:
        """Kill the next fetcher in `KILL_S` seconds, and start it again."""

        def kill() -> None:
            number = self.killed % len(self.fetchers)
            self.fetchers[number].send_signal(signal.SIGKILL)
            self.fetchers[number].wait()
            self.killed += 1
            self.fetchers[number] = self.fetcher(number)

        threading.Timer(KILL_S, kill).start()

    def stop(self) -> None:
        """Stop all processes."""
        time.sleep(KILL_S)  # the last kill is over
        for process in (*self.fetchers, self.scheduler):
            stop(process)


@contextmanager
def fetching(count: int, folder: Path) -> Iterator[Machines | None]:
    """Context with ``count`` running fetchers; yields None for 0."""
    machines = Machines(count, folder) if count else None
    try:
        yield machines
    finally:
        if machines is not None:
            machines.stop()
