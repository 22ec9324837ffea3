"""Runs the crawls and commands of one or more scenarios in one process: ``cycle_worker.py REQUEST RESULT``.

REQUEST is a JSON file, a list of ``{"name", "settings", "steps"}``. A step is ``{"run": settings}``, one
crawl with the scenario's settings and these, or ``{"command": words}``, one command of ``scrapy``. RESULT
gets what each step gave, as it is; `normal` makes it comparable.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import os
import sys
from pathlib import Path
from typing import Any

from scrapy import signals
from scrapy.cmdline import execute
from scrapy.crawler import AsyncCrawlerRunner
from scrapy.utils.defer import deferred_from_coro
from scrapy.utils.project import get_project_settings
from scrapy.utils.reactor import install_reactor

Document = dict[str, Any]


class Lines(logging.Handler):
    """Keeps level and message of every record."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep one record."""
        self.lines.append(f"{record.levelname} {record.getMessage()}")


async def crawl(settings: Document, handler: Lines) -> Document:
    """Crawl once: requests, items, statistics and log lines, or the error that the crawl began with."""
    from golden_project.spiders import Golden

    handler.lines = []
    items: list[Any] = []
    project = get_project_settings()
    project.setdict(settings, "cmdline")
    runner = AsyncCrawlerRunner(project)
    crawler = runner.create_crawler(Golden)
    crawler.signals.connect(lambda item: items.append(item), signals.item_scraped, weak=False)
    failure = None
    try:
        await runner.crawl(crawler)
    except Exception as error:
        failure = str(error)
    # A crawl that did not begin has no statistics: recent versions of Scrapy raise.
    found = {} if failure is not None else crawler.stats.get_stats()
    return {
        "requests": getattr(crawler, "golden_log", []),
        "items": items,
        "stats": {key: value for key, value in sorted(found.items()) if key.startswith("gp4c/")},
        "reason": found.get("finish_reason"),
        "log": handler.lines,
        "failure": failure,
    }


def command(words: list[str], settings: Document) -> Document:
    """Run ``scrapy WORDS`` in this process: exit code and what it printed."""
    options = [word for name, value in settings.items() for word in ("-s", f"{name}={value}")]
    out, err = io.StringIO(), io.StringIO()
    code: Any = 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            execute(["scrapy", *words, *options])
        except SystemExit as end:
            code = end.code
    return {"exit": code, "out": out.getvalue(), "err": err.getvalue()}


async def work(request: Path, result: Path) -> None:
    """Run all steps of all scenarios, one after the other."""
    handler = Lines()
    ours = logging.getLogger("scrapy_gp4c")
    ours.addHandler(handler)
    ours.setLevel(logging.INFO)
    done: Document = {}
    for scenario in json.loads(request.read_text()):
        settings = scenario["settings"]
        for step in scenario["steps"]:
            if "run" in step:
                entry = await crawl({**settings, **step["run"]}, handler)
            else:
                given = {} if "-h" in step["command"] else settings
                entry = command(step["command"], given)
            done.setdefault(scenario["name"], []).append(entry)
    result.write_text(json.dumps(done))


def main() -> None:
    """Run the command line."""
    from twisted.internet.task import react

    request, result = map(Path, sys.argv[1:])
    os.environ["SCRAPY_SETTINGS_MODULE"] = "golden_project.settings"
    react(lambda _: deferred_from_coro(work(request, result)))


if __name__ == "__main__":
    install_reactor("twisted.internet.asyncioreactor.AsyncioSelectorReactor")
    main()
