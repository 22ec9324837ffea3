"""A Dask cluster as a user starts it: scheduler, workers, and their certificates."""

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from tests.support.sources import ROOT

START_LIMIT_S = 60


def certificates(folder: Path) -> dict[str, str]:
    """Make certificates by the documented commands; returns environment variables that name them."""
    text = (ROOT / "docs" / "many-machines.md").read_text("utf-8")
    commands = re.search(r"^### TLS in five commands\n\n```sh\n(.*?)```", text, re.DOTALL | re.MULTILINE)
    assert commands is not None
    shell = subprocess.run(
        ["bash", "-euc", f"{commands[1]}env -0"], cwd=folder, capture_output=True, check=True
    )
    lines = shell.stdout.decode().split("\0")
    return dict(line.split("=", 1) for line in lines if line.startswith("DASK_"))


class Cluster:
    """A scheduler and workers of one thread each, in processes of their own."""

    def __init__(self, folder: Path, workers: int, settings: dict[str, str]) -> None:
        """``settings``: environment variables, such as those of `certificates`."""
        self.environment = {**os.environ, **settings}
        self._contact = folder / "scheduler.json"
        self._processes: list[subprocess.Popen[bytes]] = []
        protocol = "tls" if settings else "tcp"
        try:
            self._start("scheduler", "--host", "127.0.0.1", "--port", "0", "--protocol", protocol)
            self.address = self._read_contact(lambda message: message["address"])
            self.workers = [self.join() for _ in range(workers)]
        except BaseException:
            self.stop()
            raise

    def join(self) -> subprocess.Popen[bytes]:
        """Start another worker, without a nanny that would restart it."""
        return self._start("worker", "--host", "127.0.0.1", "--nthreads", "1", "--no-nanny")

    def _start(self, what: str, *arguments: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", f"distributed.cli.dask_{what}", "--no-dashboard"]
        process = subprocess.Popen(
            [*command, "--scheduler-file", str(self._contact), *arguments],
            env=self.environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self._processes.append(process)
        return process

    def _read_contact(self, read: Any) -> Any:
        for _ in range(START_LIMIT_S * 20):
            try:
                return read(json.loads(self._contact.read_text()))
            except (OSError, ValueError):  # not there, or half written
                time.sleep(0.05)
        raise TimeoutError(f"the scheduler did not start within {START_LIMIT_S} s")

    def stop(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait()
