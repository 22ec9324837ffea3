"""The demo with a search: which crawl serves users best, measured exactly day by day.

Queries are drawn from the headings of the web's texts, in place of a log of its users' queries. One crawl
measures by them what its visits gain, and visits the pages that gain most; the others are the demo's. Every
day all queries are answered from each crawl's copies and from the web itself: `training.replaying.search` has
the definitions.
"""

import argparse
import json
import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from scrapy_gp4c.search.queries import Workload, read_query_log
from scrapy_gp4c.store.opening import open_store
from training.histories.contents import ContentHistory, read_contents
from training.replaying.search import VersionSearch, WorkloadPlan, count, draw, search

from .crawls import BUDGET, FIRST_RANKED_DAY, Series, by_day, crawl_day, write_days
from .model import Web
from .page_text import main_text
from .plot import SEARCH_PANELS
from .plot import draw as draw_picture
from .tables import percent, summary_table, titled

MEASURED: Final = "user-centric"
QUERIES: Final = 400
Serving = Callable[[Path, argparse.Namespace], AbstractContextManager[int]]
Show = Callable[[Path, int], None]


def write_contents(path: Path, web: Web, days: int) -> None:
    """Write the texts of all pages on days 1..D as a file of contents; on day 0 there are none."""
    versions = [web.versions(day) for day in range(1, days + 1)]
    alive = [web.alive(day) for day in range(1, days + 1)]
    with path.open("w", encoding="utf-8") as file:
        for page in range(web.pages):
            texts: dict[str, str | None] = {"0": ""}
            before: str | None = ""
            for day in range(1, days + 1) if not web.file[page] else ():  # nobody searches for these
                text = None
                if alive[day - 1][page]:
                    headline, *rest = main_text(web, page, int(versions[day - 1][page]))
                    text = f"# {headline}\n\n" + "\n".join(rest)
                elif day < web.gone[page]:
                    text = ""
                if text != before:
                    texts[str(day)] = before = text
                if text is None:
                    break
            file.write(json.dumps({"site": "web", "page": str(page), "versions": texts}) + "\n")


class Judge:
    """Computes the exact search quality of copies of the web, day by day."""

    def __init__(self, web: Web, contents: ContentHistory, workload: Workload) -> None:
        """``contents``: texts of all pages; ``workload``: queries; idf is that of day 1."""
        self._web = web
        self._contents = contents
        self.search: VersionSearch = search(count(contents).of(workload), workload, "tfidf", cycle=1)

    def quality(self, day: int, version: NDArray[np.int32], gone: NDArray[np.bool_]) -> float:
        """Search quality of a crawl's copies on a day.

        ``version``: the web's version of each copy, ``[P]``, 0: none; ``gone``: pages that the crawl has
        found gone, whose copies are searched no more, ``[P]``.
        """
        truth = self._web.versions(day)
        held = self._contents.first_version[:-1].copy()  # of day 0: no text
        copied = (version > 0) & ~gone
        current = copied & (version == truth)
        held[current] = self._contents.version[day][current]
        for page in np.flatnonzero(copied & ~current).tolist():
            shown = max(one for one in range(1, day + 1) if self._web.versions(one)[page] == version[page])
            held[page] = self._contents.version[shown][page]
        return float(self.search.quality(held[None], self._contents.version[[day]])[0])


def gone_pages(series: Series, web: Web) -> NDArray[np.bool_]:
    """Pages that a crawl has found gone at its last visit: bool ``[P]``."""
    result = np.zeros(web.pages, np.bool_)
    with open_store(series.store, readonly=True) as store:
        for first, block in store.blocks():
            for row in np.flatnonzero(block["gone"]).tolist():
                page = series.page_of.get(first + row)
                if page is not None:
                    result[page] = True
    return result


def run(
    options: argparse.Namespace,
    serving: Serving,
    show: Show,
    compared: dict[str, dict[str, str]],
) -> None:
    """Run the demo with a search; ``compared``: the other crawls, by name.

    Raises:
        DemoError, Gp4cError: with one message that says what to do.
    """
    web = Web(options.seed, options.hosts)
    folder = options.output.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    log, contents_path = folder / "queries.tsv", folder / "contents.jsonl"
    crawls = {
        MEASURED: {
            "GP4C_SCORE_FUNCTION": "user-centric",
            "GP4C_POLICY": "top_k",
            "GP4C_QUERY_LOG": str(log),
        },
        **compared,
    }
    for name in crawls:  # what an earlier demo left
        shutil.rmtree(folder / name, ignore_errors=True)
        (folder / f"{name}.log").unlink(missing_ok=True)
    write_contents(contents_path, web, options.days)
    contents = read_contents(contents_path)
    drawn = draw(contents, WorkloadPlan(QUERIES, seed=options.seed))
    counts = zip(drawn.texts(), drawn.frequency.tolist(), strict=True)
    log.write_text("".join(f"{text}\t{frequency!r}\n" for text, frequency in counts), encoding="utf-8")
    judge = Judge(web, contents, read_query_log(log))
    series = [Series(MEASURED, folder, np.zeros(web.pages, np.int32), crawls[MEASURED])]
    quality = {name: np.full(options.days, np.nan) for name in crawls}
    day_file = folder / "day"
    show(day_file, 1)
    with serving(day_file, options) as port:
        print(
            f"Serving {web.pages:,} pages on {web.hosts + 1} hosts at {web.url(0, port)}; {QUERIES} queries "
            f"drawn from its headings: {log}",
            flush=True,
        )
        for day in range(1, options.days + 1):
            if day == FIRST_RANKED_DAY:  # until then, every crawl would visit every page
                for name, settings in compared.items():
                    series.append(series[0].copy(name, settings, whole=True))
                    quality[name][: day - 1] = quality[MEASURED][: day - 1]
            show(day_file, day)
            rankings = {one.score: one.ranking() for one in series}
            for one in crawl_day(series, port):
                row = one.observe(web, day, rankings[one.score])
                result = judge.quality(day, one.version, gone_pages(one, web))
                quality[one.score][day - 1] = result
                print(
                    f"day {day}, {one.score}: {row.visited} visited, {row.changed} changed, "
                    f"search quality {result:.4f}",
                    flush=True,
                )
    write_days(folder, series)
    write_quality(folder / "quality.tsv", quality)
    values = {name: by_day(series, name, options.days) for name in ("current", "change_rate")}
    title = f"{web.pages:,} pages on {web.hosts + 1} hosts, {BUDGET:.0%} revisited per day, {QUERIES} queries"
    picture = folder / "user-centric.svg"
    draw_picture(picture, {"quality": quality, **values}, FIRST_RANKED_DAY, title, panels=SEARCH_PANELS)
    last = range(min(FIRST_RANKED_DAY, options.days), options.days + 1)
    print(summary_table(series, last))
    print(quality_table(quality, last))
    print(f"Picture: {picture}")


def write_quality(path: Path, quality: dict[str, NDArray[np.float64]]) -> None:
    """Write the quality of every crawl by day as TSV."""
    rows = ["\t".join(("day", *quality))]
    rows += [
        "\t".join((str(day), *(f"{one:.6f}" for one in values)))
        for day, values in enumerate(zip(*quality.values(), strict=True), 1)
    ]
    path.write_text("\n".join(rows) + "\n")


def quality_table(quality: dict[str, NDArray[np.float64]], days: range) -> str:
    """Table of each crawl's mean and least quality over ``days``, and its loss beside the first crawl's."""
    table = [("score", "mean", "least", "loss, to user-centric's")]
    of_days = {name: values[days[0] - 1 : days[-1]] for name, values in quality.items()}
    first = 1.0 - float(np.nanmean(of_days[MEASURED]))
    for name, values in of_days.items():
        loss = 1.0 - float(np.nanmean(values))
        ratio = percent(loss / first if first > 0.0 else float("nan"))
        table.append((name, f"{1.0 - loss:.4f}", f"{np.nanmin(values):.4f}", ratio))
    return titled(f"Search quality, days {days[0]} to {days[-1]}", table)
