"""Helpers of the benchmark scripts: the machine line, a process per measurement, and ratios."""

from __future__ import annotations

import os
import platform
import statistics
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from importlib.metadata import version
from multiprocessing import get_context
from pathlib import Path
from typing import Any

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


def median_ratio(pairs: Sequence[tuple[float, float]]) -> float:
    """Return the median of first / second; both of a pair were measured right after each other."""
    return statistics.median(first / second for first, second in pairs)


def printed(value: float, form: str) -> float:
    """Return a number as a row of a table shows it; ``form``: such as ``.3f`` or ``.0%``.

    A verdict under a table is computed from these: whoever reads the rows comes to the same one.
    """
    text = format(value, form).replace(",", "")
    return float(text[:-1]) / 100 if text.endswith("%") else float(text)


def verdict(name: str, value: float, target: float, *, at_least: bool) -> bool:
    """Print the final line of a figure; tell whether the printed number meets the printed target.

    Four significant digits: rounded to hundredths, a difference of 0.0111 met a target of 0.01.
    """
    shown, wanted = f"{value:.4g}", f"{target:.4g}"
    holds = float(shown) >= float(wanted) if at_least else float(shown) <= float(wanted)
    sign = "at least" if at_least else "at most"
    print(f"{name}: {shown} (target: {sign} {wanted}): {'holds' if holds else 'MISSED'}")
    return holds
