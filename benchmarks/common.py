"""Helpers of the benchmark scripts: the machine line, a process per measurement, servers, and ratios."""

import contextlib
import http.server
import os
import platform
import statistics
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from importlib.metadata import version
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

PACKAGES = ("scrapy", "twisted", "lmdb", "numpy", "selectolax", "simhash")


def machine(packages: Sequence[str] = PACKAGES) -> str:
    """Return one line: CPU model, cores, Python and package versions."""
    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = [line for line in cpuinfo.read_text().splitlines() if line.startswith("model name")]
        model = names[0].partition(":")[2].strip() if names else model
    versions = ", ".join(f"{package} {version(package)}" for package in packages)
    return f"{model}, {os.cpu_count()} cores, Python {platform.python_version()}, {versions}"


def in_fresh_process(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a module-level function in a new interpreter: a reactor starts once, memory starts clean."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as executor:
        return executor.submit(function, *arguments).result()


def peak_mb() -> float:
    """Return the peak of this process's memory so far; not ``ru_maxrss``, which has its parent's too."""
    with Path("/proc/self/status").open() as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) / 1024


class Answer(NamedTuple):
    """Answer of a server: HTML, or XML where the path ends so, unless ``headers`` name another type."""

    body: bytes
    status: int = 200
    headers: Mapping[str, str] = {}


def serve(answer: Callable[[int, str], Answer], hosts: int = 1) -> list[http.server.ThreadingHTTPServer]:
    """Serve 127.0.0.1 to 127.0.0.``hosts`` at one port, from threads; ``answer(host, path)``."""

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            host = int(self.server.server_address[0].rpartition(".")[2])
            body, status, headers = answer(host, self.path)
            self.send_response(status)
            kind = "application/xml" if self.path.endswith(".xml") else "text/html"
            for header in {"Content-Type": kind, **headers, "Content-Length": str(len(body))}.items():
                self.send_header(*header)
            self.end_headers()
            with contextlib.suppress(OSError):
                self.wfile.write(body)

        def log_message(self, *arguments: object) -> None:
            """Log nothing."""

    servers: list[http.server.ThreadingHTTPServer] = []
    for host in range(1, hosts + 1):
        port = servers[0].server_port if servers else 0
        servers.append(http.server.ThreadingHTTPServer((f"127.0.0.{host}", port), Handler))
        threading.Thread(target=servers[-1].serve_forever, daemon=True).start()
    return servers


def address_of(server: http.server.ThreadingHTTPServer) -> str:
    """URL of a server of `serve`, without a slash at its end."""
    return f"http://{server.server_address[0]}:{server.server_port}"


def median_ratio(pairs: Sequence[tuple[float, float]]) -> float:
    """Return the median of first / second; both of a pair were measured right after each other."""
    return statistics.median(first / second for first, second in pairs)


def printed(value: float, form: str) -> float:
    """Return a number as a row of a table shows it; ``form``: such as ``.3f`` or ``.0%``.

    A verdict under a table is computed from these: whoever reads the rows comes to the same one.
    """
    text = format(value, form).replace(",", "")
    return float(text[:-1]) / 100 if text.endswith("%") else float(text)


def exit_code(*held: bool) -> int:
    """Exit code of a benchmark: 0 if all targets are held, else 1."""
    return 0 if all(held) else 1


def verdict(name: str, value: float, target: float, *, at_least: bool) -> bool:
    """Print the final line on a figure; return whether the printed number meets the printed target.

    Four significant digits: rounded to hundredths, a difference of 0.0111 met a target of 0.01.
    """
    shown, bound = f"{value:.4g}", f"{target:.4g}"
    holds = float(shown) >= float(bound) if at_least else float(shown) <= float(bound)
    sign = "at least" if at_least else "at most"
    print(f"{name}: {shown} (target: {sign} {bound}): {'holds' if holds else 'MISSED'}")
    return holds
