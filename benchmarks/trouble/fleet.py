"""A crawl with fetchers as a user runs it: Dask scheduler, fetchers and crawl are separate processes."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
LIMIT_S = 120.0

PROJECT = """
import os
ADDONS = {{"scrapy_gp4c.Addon": 500}}
SPIDER_MODULES = {modules!r}
TELNETCONSOLE_ENABLED = False
RANDOMIZE_DOWNLOAD_DELAY = False
LOG_LEVEL = "INFO"
GP4C_STORE = os.environ.get("STORE", {store!r}) or None
GP4C_REVISION = os.environ.get("REVISION")
"""


class Sent(NamedTuple):
    """A request that a fetcher sent, as noted by the project's download handler."""

    time_s: float
    host: str
    path: str
    process: int


class ManyMachines:
    """Scheduler, fetchers and owner of a crawl, started in a new project in ``folder``."""

    def __init__(
        self, folder: Path, modules: Sequence[str], environment: dict[str, str] | None = None
    ) -> None:
        """``modules``: of spiders; ``environment``: variables that name certificates, if any."""
        self.folder, self.store = folder, folder / "store"
        package = folder / "project"
        package.mkdir(parents=True)
        (folder / "scrapy.cfg").write_text("[settings]\ndefault = project.settings\n")
        (package / "__init__.py").touch()
        text = PROJECT.format(modules=list(modules), store=str(self.store))
        (package / "settings.py").write_text(text)
        paths = os.pathsep.join([str(ROOT), str(folder)])
        self._environment = {**os.environ, "PYTHONPATH": paths, **(environment or {})}
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.address = f"{'tls' if environment else 'tcp'}://127.0.0.1:{self.port}"
        self.processes: list[subprocess.Popen[bytes]] = []

    def start(self, name: str, *words: str, **environment: str) -> subprocess.Popen[bytes]:
        """Start a command, whose output goes to a file of that name."""
        with (self.folder / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                [str(BIN / words[0]), *words[1:]],
                cwd=self.folder,
                env={**self._environment, **environment},
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.processes.append(process)
        return process

    def scheduler(self) -> subprocess.Popen[bytes]:
        """Start Dask's scheduler, at the same address each time."""
        protocol = self.address.partition(":")[0]
        words = ("--host", "127.0.0.1", "--port", str(self.port), "--protocol", protocol, "--no-dashboard")
        return self.start("scheduler", "dask", "scheduler", *words)

    def fetcher(self, name: str, spider: str, **environment: str) -> subprocess.Popen[bytes]:
        """Start a fetcher."""
        words = ("scrapy", "gp4c", "fetcher", spider, "--connect", self.address, "--name", name)
        return self.start(name, *words, **environment)

    def owner(self, spider: str, settings: dict[str, Any], **arguments: Any) -> subprocess.Popen[bytes]:
        """Start the crawl, whose process is the owner of the store."""
        words = ["scrapy", "crawl", spider]
        words += [word for item in arguments.items() for word in ("-a", "{}={}".format(*item))]
        for name, value in {"GP4C_FETCHERS": self.address, **settings}.items():
            words += ["-s", f"{name}={json.dumps(value) if isinstance(value, dict | list) else value}"]
        return self.start("owner", *words, REVISION=str(settings.get("GP4C_REVISION", "")))

    def log(self, name: str = "owner") -> str:
        try:
            return (self.folder / f"{name}.log").read_text("utf-8", "replace")
        except OSError:
            return ""

    def wait(self, condition: Any, limit_s: float = LIMIT_S) -> None:
        """Wait until ``condition()`` is true. Raises TimeoutError with the end of the owner's log."""
        end_s = time.monotonic() + limit_s
        while not condition():
            if time.monotonic() > end_s:
                raise TimeoutError(self.log()[-4000:])
            time.sleep(0.05)

    def sent(self) -> list[Sent]:
        """Requests of all fetchers, in order of time."""
        try:
            lines = (self.folder / "items.sent").read_text().splitlines()
        except OSError:
            return []
        return sorted(Sent(*json.loads(line)) for line in lines)

    def stop(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGCONT)
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def least_gap_s(sent: list[Sent]) -> float:
    """Least time between requests of two fetchers to one host."""
    hosts = defaultdict(list)
    for one in sent:
        hosts[one.host].append(one)
    pairs = (pair for requests in hosts.values() for pair in pairwise(requests))
    gaps = (later.time_s - earlier.time_s for earlier, later in pairs if earlier.process != later.process)
    return min(gaps, default=float("inf"))
