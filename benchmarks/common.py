"""Helpers of the benchmark scripts: the machine line, a process per measurement, servers, and ratios."""

import contextlib
import http.server
import os
import platform
import statistics
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from importlib.metadata import version
from multiprocessing import get_context
from multiprocessing.synchronize import Event
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


def anonymous_bytes(process: int | str = "self") -> int:
    """Anonymous memory of a process now, by default of this one: RssAnon."""
    for line in Path(f"/proc/{process}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    raise OSError(f"/proc/{process}/status has no RssAnon")


@contextlib.contextmanager
def peak_memory(peak: list[int]) -> Iterator[None]:
    """Sample anonymous memory every 2 ms, in a process beside; the highest value lands in ``peak[0]``.

    A thread would take the interpreter's lock, for which what is measured waits, hundreds of times a second.
    """
    beside = get_context("spawn")
    highest, is_begun, is_done = beside.Value("q", 0), beside.Event(), beside.Event()
    sampler = beside.Process(target=_sample, args=(os.getpid(), highest, is_begun, is_done))
    sampler.start()
    while not is_begun.wait(1.0):
        if not sampler.is_alive():
            raise ChildProcessError("the process that samples memory has ended before it began")
    try:
        yield
    finally:
        is_done.set()
        sampler.join()
        peak[:] = [highest.value]


def _sample(process: int, highest: Any, is_begun: Event, is_done: Event) -> None:
    highest.value = anonymous_bytes(process)
    is_begun.set()
    while not is_done.wait(0.002):
        highest.value = max(highest.value, anonymous_bytes(process))


def follow_links(starts: Sequence[str], settings: Mapping[str, Any]) -> None:
    """Crawl pages from ``starts`` on, following every link of each; for a fresh process."""
    from scrapy import Spider
    from scrapy.crawler import CrawlerProcess

    class Follower(Spider):
        name = "follower"
        start_urls = starts

        def parse(self, response: Any) -> Iterator[Any]:
            """Follow every link."""
            if hasattr(response, "text") and not response.url.endswith(".xml"):
                yield from response.follow_all(css="a")

    process = CrawlerProcess(dict(settings))
    process.crawl(Follower)
    process.start()


class Answer(NamedTuple):
    """Answer of a server: by default XML for paths that end in ``.xml``, else HTML."""

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


BUDGETS = (0.01, 0.05, 0.1)


def metric_means(
    history: Any,
    score: str,
    metrics: Sequence[str],
    budgets: Sequence[float],
    seeds: Iterable[int],
    policy: str | None = None,
) -> Any:
    """Replay a score function; return metrics, means over the cycles: ``[budgets, seeds, metrics]``.

    ``policy``: None: the one that belongs to the function.
    """
    import numpy as np

    from training.replaying.prepared import prepare
    from training.replaying.replay import run

    def means(budget: float, seed: int) -> list[float]:
        result = run(prepare(history, budget=budget, seed=seed), score, metrics=metrics, policy=policy)
        return [float(np.mean(getattr(result, name))) for name in metrics]

    return np.array([[means(budget, seed) for seed in seeds] for budget in budgets])


def median_ratio(pairs: Sequence[tuple[float, float]]) -> float:
    """Return the median of first / second; both of a pair were measured right after each other."""
    return statistics.median(first / second for first, second in pairs)


def printed(value: float, form: str) -> float:
    """Round a number as ``form`` (``.3f``, ``.0%``) prints it: verdicts follow from printed rows."""
    text = format(value, form).replace(",", "")
    return float(text[:-1]) / 100 if text.endswith("%") else float(text)


def exit_code(*are_held: bool) -> int:
    """Exit code of a benchmark: 0 if all targets are met, else 1."""
    return 0 if all(are_held) else 1


def verdict(name: str, value: float, target: float, *, at_least: bool) -> bool:
    """Print the final line on a figure; return whether the printed number meets the printed target.

    Four significant digits: rounded to hundredths, a difference of 0.0111 met a target of 0.01.
    """
    shown, bound = f"{value:.4g}", f"{target:.4g}"
    holds = float(shown) >= float(bound) if at_least else float(shown) <= float(bound)
    sign = "at least" if at_least else "at most"
    print(f"{name}: {shown} (target: {sign} {bound}): {'holds' if holds else 'MISSED'}")
    return holds
