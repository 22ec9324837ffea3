"""A process that imports once what the demo's crawls need, and forks for each, so that crawls begin at once.

``python -m example_project.starter [MODULE ...]`` imports these modules too. Each line of input is JSON: the
words of a ``scrapy`` command, and the file for its errors. It runs them one after the other by Scrapy's
command line, and answers each with its exit code.
"""

import gc
import json
import os
import pkgutil
import signal
import subprocess
import sys
import traceback
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import Final, NoReturn

PRELOADED: Final = (
    "example_project.settings",
    "example_project.spiders",
    "numpy.ma.extras",
    "scrapy.cmdline",
    "scrapy.commands",
    "scrapy.core.downloader.contextfactory",
    "scrapy.core.downloader.handlers.http11",
    "scrapy.core.engine",
    "scrapy.downloadermiddlewares",
    "scrapy.dupefilters",
    "scrapy.logformatter",
    "scrapy.robotstxt",
    "scrapy.spidermiddlewares",
    "scrapy.squeues",
    "scrapy.statscollectors",
    "scrapy_gp4c.commands",
    "scrapy_gp4c.crawling",
    "scrapy_gp4c.middleware",
    "scrapy_gp4c.scheduler",
)
"""Modules to import, packages with all modules in them; not the reactor, which each crawl installs itself."""


def preload(names: Iterable[str]) -> None:
    """Import modules, and those in packages; then freeze the garbage collector, so that forks share
    memory."""
    for name in names:
        module = import_module(name)
        for module_info in pkgutil.iter_modules(getattr(module, "__path__", ()), f"{name}."):
            import_module(module_info.name)
    gc.collect()
    gc.freeze()


def crawl(words: list[str], errors: str) -> NoReturn:
    """Run a command of Scrapy, and end this process with its exit code."""
    code = 1
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        nothing = os.open(os.devnull, os.O_RDWR)
        file = os.open(errors, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        for number, descriptor in ((0, nothing), (1, nothing), (2, file)):
            os.dup2(descriptor, number)
        sys.argv = words
        import_module("scrapy.cmdline").execute(words)
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    sys.stderr.flush()
    os._exit(code)


def run(words: list[str], errors: str) -> int:
    """Run a command in a fork of this process; return its exit code."""
    if not hasattr(os, "fork"):
        with Path(errors).open("w") as file:
            return subprocess.run([sys.executable, "-m", *words], stderr=file, check=False).returncode
    child = os.fork()
    if not child:
        crawl(words, errors)

    def pass_on(number: int, frame: FrameType | None) -> None:
        os.kill(child, number)
        os.waitpid(child, 0)
        os._exit(1)

    signal.signal(signal.SIGTERM, pass_on)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    return code


def main() -> None:
    """Run the commands on standard input until it ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the crawl's, and the demo's
    preload((*PRELOADED, *sys.argv[1:]))
    for line in sys.stdin:
        print(run(*json.loads(line)), flush=True)


if __name__ == "__main__":
    main()
