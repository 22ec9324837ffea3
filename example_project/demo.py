"""The demo: ``python -m example_project.demo`` crawls the monitored web day by day, in several ways.

Each simulated day is one stock ``scrapy crawl monitor`` per score function, with a store of its own; all
crawl the same web with the same budget. With ``--collect`` one more visits everything at first, learns a
score function from what it saw, and goes on with that. The demo knows the truth because it can import the
web's change model, so it also shows what no crawl can know: how many of the copies are current.
docs/lab/demo.md explains it.
"""

import argparse
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import numpy as np

from scrapy_gp4c.errors import Gp4cError
from training import remedy_of

from .crawls import (
    BUDGET,
    CONTROL,
    DAYS,
    FIRST_RANKED_DAY,
    HOSTS,
    LEARNED,
    ROOT,
    DemoError,
    Row,
    Series,
    Starter,
    by_day,
    crawl_day,
    stop,
    write_days,
)
from .machines import fetching
from .model import LAST_DAY, Web
from .plot import draw
from .tables import curves_table, detection, summary_table

CRAWLS: Final[dict[str, dict[str, str]]] = {
    "default": {},
    "age": {"GP4C_SCORE_FUNCTION": "age", "GP4C_POLICY": "top_k"},
    "random": {"GP4C_SCORE_FUNCTION": "random", "GP4C_POLICY": "top_k"},
}
"""Compared crawl -> settings that differ from the defaults. The first one's warm-up is copied to all."""
FETCHERS = "fetchers"
KEPT_LABEL: Final = "all, then default"
"""Label of the crawl that learns, in the picture, if the learned function was not promoted."""
PORT = 8420  # fixed: it is part of URLs, from which random numbers (ties, the held-out half) are drawn


@contextmanager
def serving(day_file: Path, options: argparse.Namespace) -> Iterator[int]:
    """Run the web in a process of its own; yields its port.

    Raises:
        DemoError: the web did not start.
    """
    command = [sys.executable, "-m", "example_project.web", "--day-file", str(day_file)]
    for name in ("port", "seed", "hosts"):
        command += [f"--{name}", str(getattr(options, name))]
    log = day_file.with_name("web.log")
    with log.open("w") as errors:
        process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=errors, text=True)
    try:
        assert process.stdout is not None
        ready = process.stdout.readline()
        if not ready:
            process.wait()
            raise DemoError(log.read_text().strip() or f"the web stopped with status {process.returncode}")
        yield int(ready.rstrip().rstrip("/").rpartition(":")[2])
    finally:
        stop(process)


@contextmanager
def stopping(series: list[Series]) -> Iterator[None]:
    """Context that at its end stops the processes of all crawls in `series`, which may grow until then."""
    try:
        yield
    finally:
        for one in series:
            one.stop()


def show(day_file: Path, day: int) -> None:
    """Write the day to show into the web's day file, atomically."""
    draft = day_file.with_suffix(".new")
    draft.write_text(f"{day}\n")
    draft.replace(day_file)


def picture_title(series: Sequence[Series]) -> str:
    """Title of the picture: how many times the changes of the crawl by age the first crawl found."""
    changes = {
        one.score: sum(row.changed for row in one.rows if row.day >= FIRST_RANKED_DAY) for one in series
    }
    first = next(iter(CRAWLS))
    if not changes.get("age"):
        return f"the {first} crawl, at {BUDGET:.0%} of the pages per day"
    return (
        f"{changes[first] / changes['age']:.1f} times the changes of visiting the oldest first, "
        f"at the same budget: {BUDGET:.0%} of the pages per day"
    )


def run(options: argparse.Namespace) -> None:
    """Run the whole demo.

    Raises:
        DemoError, Gp4cError: with one message that says what to do.
    """
    web = Web(options.seed, options.hosts)
    folder = options.output.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    first_learned_day = FIRST_RANKED_DAY + options.collect
    learns = options.collect > 0 and options.days >= first_learned_day
    if learns:
        from . import learning  # the libraries of scrapy-gp4c[train]; the other crawls need none of them
    first, *others = CRAWLS.items()
    if options.fetchers:
        others = [(FETCHERS, {})]
    series = [Series(first[0], folder, np.zeros(web.pages, dtype=np.int32), first[1])]
    for name in (*CRAWLS, LEARNED, CONTROL, FETCHERS):  # what an earlier demo left
        shutil.rmtree(folder / name, ignore_errors=True)
        (folder / f"{name}.log").unlink(missing_ok=True)
    (folder / "score.json").unlink(missing_ok=True)
    day_file = folder / "day"
    rows: list[Row] = []
    promoted = False
    show(day_file, 1)
    series[0].starter = Starter()  # imports while the web starts
    with (
        stopping(series),
        serving(day_file, options) as port,
        fetching(options.fetchers, folder) as machines,
    ):
        if machines is not None:
            others = [(FETCHERS, {"GP4C_FETCHERS": machines.address})]
        print(
            f"Serving {web.pages:,} pages on {web.hosts + 1} hosts at {web.url(0, port)}; "
            f"logs and stores: {folder}",
            flush=True,
        )
        for day in range(1, options.days + 1):
            if day == FIRST_RANKED_DAY - 1 < options.days:  # they import while this day's only crawl runs
                starters = [Starter() for _ in others]
            if day == FIRST_RANKED_DAY:  # until then, every crawl would visit every page
                series += [series[0].copy(name, compared, whole=True) for name, compared in others]
                for one, starter in zip(series[1:], starters, strict=True):
                    one.starter = starter
                if learns:
                    series.append(series[0].copy(LEARNED, {}, learning.PANEL, whole=True))
            if learns and day == first_learned_day:
                promoted = learning.switch(series)
            show(day_file, day)
            rankings = {one.score: one.ranking() for one in series}
            if machines is not None and day >= FIRST_RANKED_DAY:
                machines.kill_one()
            for one in crawl_day(series, port):
                row = one.observe(web, day, rankings[one.score])
                rows.append(row)
                print(f"day {day}, {one.score}: {row.visited:,} visited, {row.changed:,} changed", flush=True)
            if day in (FIRST_RANKED_DAY, options.days) or (day % 7 == 0 and day > FIRST_RANKED_DAY):
                print(curves_table(series, day), flush=True)
    write_days(folder, series)
    picture = folder / "demo.svg"
    summed_from = first_learned_day if learns else min(FIRST_RANKED_DAY, options.days)
    last_days = range(summed_from, options.days + 1)
    draw(
        picture,
        {name: by_day(series, name, options.days) for name in ("change_rate", "current", "visited")},
        FIRST_RANKED_DAY,
        picture_title(series),
        first_learned_day if learns else None,
        labels={} if promoted else {LEARNED: KEPT_LABEL},
    )
    print(summary_table(series, last_days))
    for one in series:
        used = one.loaded()
        print(f"{one.score}: {used.score_function.formula}, {used.policy.text}")
    if learns:
        print(learning.leads(series, LEARNED, last_days))
        print(
            f"{CONTROL}: the store of {LEARNED} copied before day {first_learned_day}, crawled on by default"
            if promoted
            else f"{LEARNED} kept the default function: no better one was found"
        )
    print(detection(rows))
    print(f"{picture_title(series)}.")
    print(f"Picture: {picture}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo; 1 with one message where it fails, 130 where it was interrupted."""
    parser = argparse.ArgumentParser(prog="python -m example_project.demo", description="Run the demo.")
    parser.add_argument("--days", type=int, default=DAYS, help=f"days to simulate ({DAYS})")
    parser.add_argument(
        "--collect",
        type=int,
        default=0,
        help="a crawl that learns, and days on which it visits all pages for that, 14 or so (0: none)",
    )
    parser.add_argument("--hosts", type=int, default=HOSTS, help=f"hosts, about 60 pages each ({HOSTS})")
    parser.add_argument("--seed", type=int, default=1, help="seed of the web's change model (1)")
    parser.add_argument(
        "--port",
        type=int,
        default=PORT,
        help=f"port on 127.0.0.x, 0: a free one ({PORT}, see docs/lab/demo.md)",
    )
    parser.add_argument(
        "--user-centric",
        action="store_true",
        help="a crawl that serves a search instead of one that learns: exact search quality day by day",
    )
    parser.add_argument(
        "--fetchers", type=int, default=0, help="a second crawl by so many fetchers, one killed a day (0)"
    )
    parser.add_argument("--output", type=Path, default=ROOT / "demo", help="folder for all results (demo)")
    options = parser.parse_args(arguments)
    if not 1 <= options.days <= LAST_DAY:
        parser.error(f"--days: expected 1 to {LAST_DAY}, found {options.days}")
    if options.collect < 0:
        parser.error(f"--collect: expected 0 or more, found {options.collect}")
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # stop like on Ctrl-C, leave no process behind
    try:
        if options.user_centric:
            from . import searching  # needs scrapy-gp4c[train], too

            searching.run(options, serving, show, CRAWLS)
        else:
            run(options)
    except ModuleNotFoundError as error:
        if (remedy := remedy_of(error)) is None:
            raise
        print(f"example_project.demo: {remedy}", file=sys.stderr)
        return 1
    except (DemoError, Gp4cError, ValueError, OSError) as problem:
        print(f"example_project.demo: {problem}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("example_project.demo: interrupted", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
