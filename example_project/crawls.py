"""The crawls of the demo: one stock ``scrapy crawl monitor`` per day and store, compared with the truth."""

import csv
import json
import select
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scrapy.settings import BaseSettings

from scrapy_gp4c.crawling.planning import Planner
from scrapy_gp4c.page_state.outcomes import CHANGED, FIRST, JUDGED, KINDS
from scrapy_gp4c.settings import Settings
from scrapy_gp4c.store.opening import Store, open_store
from training.replaying.metrics import gain_sums

from .model import Web

ROOT = Path(__file__).resolve().parents[1]
BUDGET = 0.05
DAYS, HOSTS = 31, 40
LEARNED, CONTROL = "learned", "control"
"""Names of the crawl that learns, and of the crawl that continues its store by the default function."""
WARMUP_VISITS = 1
FIRST_RANKED_DAY = 2 + WARMUP_VISITS  # day 1 is for first visits, then every page is warmed up
CRAWL_LIMIT_S = 1800
FETCHED = (FIRST, *JUDGED)
RANKED = KINDS.index("ranked")


class DemoError(Exception):
    """Error that ends the demo; the message says why and what helps."""


class Row(NamedTuple):
    """Results of one crawl on one day."""

    day: int
    score: str
    known: int
    visited: int
    judged: int
    changed: int
    change_rate: float  # nan where no visit compared its page with a copy
    ndcg: float  # of the ranked visits, against the truth; nan where nothing was ranked or nothing outdated
    current: float  # share of the known pages' copies that are current at the end of the day
    missed: int  # visits that found a page unchanged although it had changed
    false_alarms: int  # visits that found a page changed although it had not


@dataclass
class Series:
    """Daily crawls into one store, by one score function, and the versions of the copies in it."""

    score: str
    folder: Path
    version: NDArray[np.int32]  # [P], 0: no copy
    compared: Mapping[str, str] = field(default_factory=dict)  # settings of its own; none: out of the box
    panel: float = 0.0  # share of the pages; the panel comes on top of the budget for the ranking
    page_of: dict[int, int | None] = field(default_factory=dict)  # the store's page ids to the web's
    rows: list[Row] = field(default_factory=list)
    starter: "Starter | None" = None  # of its crawls; started with the first at the latest

    @property
    def store(self) -> Path:
        """Directory of the store."""
        return self.folder / self.score

    @property
    def log(self) -> Path:
        """Path of Scrapy's log."""
        return self.folder / f"{self.score}.log"

    def settings(self) -> dict[str, Any]:
        """Return the settings of the next crawl, as its command line gives them."""
        settings = {
            "GP4C_STORE": str(self.store),
            "GP4C_BUDGET": min(1.0, BUDGET + self.panel),
            "GP4C_WARMUP_VISITS": WARMUP_VISITS,
            **self.compared,
        }
        if self.panel:
            settings["GP4C_PANEL"] = self.panel
        return settings

    def loaded(self) -> Settings:
        """Return the settings as the next crawl reads them: score function and policy with their defaults."""
        return Settings.load(BaseSettings(self.settings()))

    def command(self, port: int) -> list[str]:
        """Return the command of one day's crawl."""
        command = ["scrapy", "crawl", "monitor", "-a", f"port={port}"]
        # To import Scrapy's extensions, which nothing here uses, would take a fifth of a ranked day's crawl.
        settings = self.settings() | {"LOG_FILE": self.log, "EXTENSIONS_BASE": "{}"}
        return command + [part for item in settings.items() for part in ("-s", "{}={}".format(*item))]

    @property
    def errors(self) -> Path:
        """Path of the file with what the last crawl wrote to standard error."""
        return self.folder / f"{self.score}.errors"

    def begin(self, port: int) -> None:
        """Begin the crawl of a day."""
        self.starter = self.starter or Starter()
        self.starter.begin(self.command(port), self.errors)

    def end(self) -> None:
        """Wait for the end of the day's crawl.

        Raises:
            DemoError: it failed, or takes too long.
        """
        assert self.starter is not None
        try:
            code = self.starter.end(CRAWL_LIMIT_S)
        except TimeoutError:
            raise DemoError(
                f"a crawl takes more than {CRAWL_LIMIT_S} s; its log: {self.log}. End what keeps the "
                "machine busy, and run the demo again"
            ) from None
        if code:
            reason = self.errors.read_text().strip().splitlines() or [f"status {code}"]
            raise DemoError(f"scrapy crawl failed: {reason[-1]}; its log: {self.log}")
        self.errors.unlink(missing_ok=True)

    def stop(self) -> None:
        """Stop the crawl that is running, if any."""
        if self.starter is not None:
            self.starter.stop()
            self.starter = None

    def ranking(self) -> list[int]:
        """Return the store's pages that the next crawl will choose in its first round, best first."""
        if not self.store.exists():
            return []
        with open_store(self.store, readonly=True) as store:
            chosen: list[int] = Planner.of(store, self.loaded()).first_choice().pages.tolist()
            return chosen

    def copy(
        self, score: str, compared: Mapping[str, str], panel: float = 0.0, *, whole: bool = False
    ) -> "Series":
        """Return a series that continues this one with other settings, in a copy of its store.

        ``whole``: whether the rows of the days until now are copied too.
        """
        shutil.copytree(self.store, self.folder / score)
        rows = [row._replace(score=score) for row in self.rows] if whole else []
        return Series(score, self.folder, self.version.copy(), compared, panel, dict(self.page_of), rows)

    def observe(self, web: Web, day: int, ranking: Sequence[int]) -> Row:
        """Read the day's cycle from the store, compare it with the truth, and append the row.

        Args:
            web: what was crawled.
            day: the day.
            ranking: what `ranking` returned before the crawl; what later rounds chose follows in the order
                of its visits.

        Raises:
            DemoError: the crawl did not finish the day's cycle.
        """
        with open_store(self.store, readonly=True) as store:
            records = store.cycles()
            if len(records) != day or "finished" not in records[-1]:
                raise DemoError(f"the crawl of day {day} did not finish its cycle; its log: {self.log}")
            record = records[-1]
            self._learn_pages(web, store)
            known = store.pages
            parts = [visits for _, visits in store.visits(record["cycle"], record["cycle"])]
        truth, alive = web.versions(day), web.alive(day)
        visits = np.concatenate(parts)
        ranked = [*ranking, *visits["page"][visits["kind"] == RANKED].tolist()]
        chosen = [self.page_of[page] for page in dict.fromkeys(ranked)]
        quality = ndcg(chosen, alive & (self.version > 0) & (self.version != truth))
        missed = false_alarms = 0
        pages = [self.page_of[page] for page in visits["page"].tolist()]
        for page, outcome in zip(pages, visits["outcome"].tolist(), strict=True):
            if page is None or outcome not in FETCHED:
                continue
            if outcome in JUDGED:
                reported, real = outcome == CHANGED, truth[page] != self.version[page]
                missed += bool(real and not reported)
                false_alarms += bool(reported and not real)
            self.version[page] = truth[page]
        seen = np.zeros(web.pages, dtype=bool)
        seen[[page for page in self.page_of.values() if page is not None]] = True
        seen &= alive
        rate = record["change_rate"]
        row = Row(
            day,
            self.score,
            known,
            record["visited"],
            record["judged"],
            record["changed"],
            float("nan") if rate is None else rate,
            quality,
            float((self.version[seen] == truth[seen]).mean()) if seen.any() else float("nan"),
            missed,
            false_alarms,
        )
        self.rows.append(row)
        return row

    def _learn_pages(self, web: Web, store: Store) -> None:
        new = list(range(len(self.page_of), store.pages))
        for page, request in zip(new, store.requests(new), strict=True):
            self.page_of[page] = web.page_of(request["url"])


def ndcg(ranking: Sequence[int | None], outdated: NDArray[np.bool_]) -> float:
    """Return the NDCG of a ranking of pages (journal 4.2.2), nan where none is outdated; see
    `training.replaying.metrics`.

    ``outdated``: bool [P], whether the page's copy is out of date before the visits.
    """
    hits = np.array([page is not None and outdated[page] for page in ranking], dtype=bool)
    sums = gain_sums(hits.size)
    ideal = sums[min(hits.size, int(outdated.sum()))]
    return float(np.diff(sums)[hits].sum() / ideal) if ideal else float("nan")


def stop(process: subprocess.Popen[Any]) -> None:
    """Stop a process that we started, at the latest by a kill after ten seconds."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    if process.stdout is not None:
        process.stdout.close()


class Starter:
    """Process that runs commands, one at a time, without their imports: see `example_project.starter`."""

    def __init__(self, *modules: str) -> None:
        """Start the process; ``modules``: names of further modules to import beforehand."""
        self.process = subprocess.Popen(
            [sys.executable, "-m", "example_project.starter", *modules],
            cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def begin(self, words: Sequence[str], errors: Path) -> None:
        """Begin the command `words`; ``errors``: file for what it writes to standard error."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps([words, str(errors)]) + "\n")
        self.process.stdin.flush()

    def end(self, limit_s: float) -> int:
        """Wait for the command's end, at most ``limit_s``; return its exit code. Raises TimeoutError."""
        assert self.process.stdout is not None
        if not select.select([self.process.stdout], [], [], limit_s)[0]:
            raise TimeoutError
        return int(self.process.stdout.readline() or 1)

    def stop(self) -> None:
        """Stop the process, and the command that it runs."""
        stop(self.process)


def crawl_day(series: Sequence[Series], port: int) -> Iterator[Series]:
    """Crawl one day, all series side by side; yields each when its crawl has ended.

    Raises:
        DemoError: a crawl failed.
    """
    started: list[Series] = []
    try:
        for one in series:
            one.begin(port)
            started.append(one)
        while started:
            one = started[0]
            one.end()
            started.pop(0)
            yield one
    finally:
        for one in started:
            one.stop()


def by_day(series: Sequence[Series], name: str, days: int) -> Mapping[str, NDArray[np.float64]]:
    """Return a number of each series' rows by day, float64 [days]; nan on days without a crawl."""
    values = {one.score: np.full(days, np.nan) for one in series}
    for one in series:
        for row in one.rows:
            values[one.score][row.day - 1] = getattr(row, name)
    return values


def write_days(folder: Path, series: Sequence[Series]) -> None:
    """Write the rows of all series, by day, to ``days.tsv`` in a folder."""
    rows = sorted((row for one in series for row in one.rows), key=lambda row: row.day)
    with (folder / "days.tsv").open("w", newline="") as file:
        csv.writer(file, delimiter="\t").writerows((Row._fields, *rows))
