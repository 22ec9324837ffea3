"""Crawls of a small site in processes of their own, to be killed, and what their store holds afterwards."""

import json
import os
import signal
import subprocess
import threading
import time
import zlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np

from scrapy_gp4c.errors import StoreError
from scrapy_gp4c.store.lmdb_store.store import Store

PAGES = 64
LIST = [f"/{number}" for number in range(PAGES)]
WORKER = Path(__file__).parent / "crawl_worker.py"


def is_changing(path: str) -> bool:
    """Whether the page at `path` shows `Web.version`: every other ten pages do."""
    number = path.removeprefix("/")
    return number.isdigit() and int(number) // 10 % 2 == 0


class Web:
    """A site of `PAGES` pages and a listing, in a thread of the test; logs the paths fetched."""

    def __init__(self, hosts: Sequence[str] = ()) -> None:
        """``hosts``: loopback addresses that the listing's links have in turn; none: links are relative."""
        self.log: list[str] = []
        self.delay_s = 0.002
        self.version = 0
        """Number in the text of the pages that are `is_changing`."""
        self.elsewhere = 0
        """Number of pages that are listed on ``localhost`` instead, which is another host to a crawl."""
        self.files: dict[str, Callable[[], bytes]] = {}
        """Path of a further file, which the listing links to first -> function that returns its bytes."""
        web = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                web.log.append(self.path)
                time.sleep(web.delay_s)
                listed = [*web.files, *web.listed()] if self.path == "/list" else []
                places = [f"http://{host}:{web.port}" for host in hosts] or [""]
                links = "".join(
                    f'<a href="{places[number % len(places)]}{path}">x</a>'
                    for number, path in enumerate(listed)
                )
                shown = f"version {web.version}" if is_changing(self.path) else "as ever"
                # Words of its own: pages that become alike are doubted, and their visits amended.
                words = " ".join(f"word{zlib.crc32(f'{self.path} {n}'.encode()) % 9973}" for n in range(30))
                text = f"page {self.path} of a small site, {shown}, with {words}"
                body = f"<html><body><p>{text}</p>{links}</body></html>".encode()
                if self.path in web.files:
                    body = web.files[self.path]()
                self.send_response(200)
                self.send_header("Content-Type", "text/xml" if self.path in web.files else "text/html")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *arguments: Any) -> None:
                """Log nothing to standard error."""

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *arguments: Any) -> None:
                """Say nothing about clients that were killed."""

        self._server = Server(("" if hosts else "127.0.0.1", 0), Handler)
        self.port = self._server.server_port
        self.url = f"http://127.0.0.1:{self.port}/list"
        threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
        ).start()

    def listed(self) -> list[str]:
        """Links to all pages."""
        other = f"http://localhost:{self._server.server_port}"
        return [f"{other}{path}" for path in LIST[: self.elsewhere]] + LIST[self.elsewhere :]

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class Worker:
    """Runs crawls of a site one after the other, in forks of the process of crawl_worker.py."""

    def __init__(self, process: subprocess.Popen[str], url: str, directory: Path) -> None:
        self.store = directory / "store"
        self.commits = directory / "commits"
        self.log = directory / "log"
        self._process = process
        self._url = url

    def begin(self, more_settings: dict[str, Any] | None = None, **arguments: Any) -> int:
        """Start a crawl; returns its process id."""
        settings = {
            "ADDONS": {"scrapy_gp4c.Addon": 500},
            "GP4C_STORE": str(self.store),
            "GP4C_BUDGET": 0.5,
            "GP4C_PANEL": 0.2,
            "LOG_FILE": str(self.log),
            "LOG_LEVEL": "INFO",
            "TELNETCONSOLE_ENABLED": False,
            "CONCURRENT_REQUESTS_PER_DOMAIN": 16,
            **(more_settings or {}),
        }
        request = {"settings": settings, "url": self._url, "commits": str(self.commits), **arguments}
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return int(self._line())

    def kill_after(
        self, web: Web, requests: int, delay_s: float, more_settings: dict[str, Any] | None = None
    ) -> None:
        """Start a crawl, and kill it ``delay_s`` after the site's log has ``requests``, if it gets there."""
        pid = self.begin(more_settings)
        with suppress(ProcessLookupError):
            while len(web.log) < requests:
                os.kill(pid, 0)  # raises when the crawl is over
                time.sleep(0.001)
            time.sleep(delay_s)
            os.kill(pid, signal.SIGKILL)

    def wait(self) -> int:
        """Wait for the end of the crawl; returns its exit status."""
        return int(self._line())

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline()


class Recorded:
    """Content of a store after a crawl has ended. Reading it opens the store, which completes a fold."""

    def __init__(self, path: Path) -> None:
        self.in_fold = False
        try:
            with Store(path, readonly=True) as store:
                self.in_fold = store.is_folding
        except StoreError as error:  # ended before it was created, by a failing disk
            if "no page store" not in str(error):
                raise
        with Store(path) as store:
            assert store.verify() == []
            self.last_cycle = store.last_cycle
            self.open_cycle = store.open_cycle
            chunks = [*store.visits(), (store.open_cycle or 0, store.open_visits())]
            self.visits = {(cycle, int(row["page"])): row.tobytes() for cycle, rows in chunks for row in rows}
            assert len(self.visits) == sum(len(rows) for _, rows in chunks), "a page was visited twice"
            plan = store.plan()["page"]
            assert len(np.unique(plan)) == len(plan)
            urls = [request["url"] for request in store.requests(range(store.pages))]
            assert len(set(urls)) == len(urls)
            self.visited_paths = {
                "/" + urls[page].split("/", 3)[3]
                for cycle, page in self.visits
                if cycle == (self.open_cycle or self.last_cycle)
            }

    def has_kept(self, before: "Recorded | None") -> None:
        """Check that no visit of an earlier state was lost or altered."""
        for visit, content in before.visits.items() if before is not None else ():
            assert self.visits[visit] == content

    def has_committed(self, commits: Path) -> None:
        """Check that the store has as many visits of each cycle as the file ``commits`` counts."""
        counts: dict[int, int] = {}
        for line in commits.read_text().splitlines() if commits.exists() else ():
            cycle, count = map(int, line.split())
            counts[cycle] = max(count, counts.get(cycle, 0))
        for cycle, count in counts.items():
            assert sum(of == cycle for of, _ in self.visits) >= count
