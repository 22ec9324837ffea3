"""Cost of measuring beside keeping a search index: the curve of Pandey & Olston 2005, Figure 2.

`curve` updates an index with changed texts, part by part, once as a crawl does and once without counting
terms and measuring. Times are of the processor, from texts to index. `benchmarks.impact` prints and draws the
curve.
"""

import time
from collections.abc import Iterator, Sequence
from itertools import cycle, islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from scrapy_gp4c.search.index import Arrival, SearchIndex
from scrapy_gp4c.search.queries import Workload
from scrapy_gp4c.words.normal import normalise
from scrapy_gp4c.words.tokens import spaced
from training.histories.contents import ContentHistory
from training.reporting.figures import finish, new_figure, plain_line, plot_lines, save

PARTS = 20
"""Number of points of the curve."""


class Update(NamedTuple):
    """Old and new text of a page."""

    old: str
    new: str


class Point(NamedTuple):
    """Processor times of indexing so many megabytes, with and without measuring."""

    megabytes: float
    measuring_s: float
    without_s: float

    @property
    def ratio(self) -> float:
        """Time with measuring over time without."""
        return self.measuring_s / self.without_s


class _PlainIndex(SearchIndex):
    """Search index that neither counts terms nor measures refreshes."""

    def stage(self, arrival: Arrival) -> None:
        words = arrival.words.decode()
        self._staged.append((arrival.page, 0, 0, None, words, len(words.split()), b""))

    def _measure(self, *_: object) -> None:
        """Measure nothing."""


def updates_of(contents: ContentHistory, size_bytes: float) -> list[Update]:
    """Updates of the contents, repeated until their new texts have ``size_bytes`` bytes."""
    pairs = [
        (contents.texts[version - 1], contents.texts[version])
        for first, stop in zip(contents.first_version, contents.first_version[1:], strict=False)
        for version in range(first + 1, stop)
    ]
    known = [(old or "", new) for old, new in pairs if new]
    updates: list[Update] = []
    for old, new in cycle(known):
        if size_bytes <= 0:
            return updates
        updates.append(Update(old, new))
        size_bytes -= len(new.encode())
    raise ValueError("the contents have no updates")


def curve(contents: ContentHistory, workload: Workload, megabytes: float) -> list[Point]:
    """Processor times of indexing ``megabytes`` of changed texts, at `PARTS` sizes."""
    updates = updates_of(contents, megabytes * 1e6)
    taken = [list(_timed(kind, updates, workload)) for kind in (SearchIndex, _PlainIndex)]
    sizes = [megabytes * (number + 1) / PARTS for number in range(PARTS)]
    return [Point(*row) for row in zip(sizes, *taken, strict=True)]


def _timed(kind: type[SearchIndex], updates: Sequence[Update], workload: Workload) -> Iterator[float]:
    """Yield the processor time after each of `PARTS` parts; the old texts are indexed before."""
    with TemporaryDirectory() as folder:
        index = kind(Path(folder) / "search.sqlite", "benchmark", workload, "tfidf")
        for page, one in enumerate(updates):
            index.stage(Arrival(page, page, 1, None, spaced(normalise(one.old))))
        index.commit(1)
        index.apply(1, range(len(updates)), [], 7)
        total, remaining = 0.0, iter(enumerate(updates))
        sizes = [
            (number + 1) * len(updates) // PARTS - number * len(updates) // PARTS for number in range(PARTS)
        ]
        for number, size in enumerate(sizes, 2):
            rows = list(islice(remaining, size))
            start = time.process_time()
            for page, one in rows:
                index.stage(Arrival(page, page, 2, 1, spaced(normalise(one.new))))
            index.commit(number)
            index.apply(number, [page for page, _ in rows], [], 99)
            total += time.process_time() - start
            yield total
        index.close()


def draw(points: Sequence[Point], path: Path) -> None:
    """Draw both curves."""
    figure, (axes,) = new_figure(6.4, 4.2, layout="constrained")
    lines = [plain_line("with measuring", [point.measuring_s for point in points])]
    lines.append(plain_line("without", [point.without_s for point in points]))
    plot_lines(axes, [point.megabytes for point in points], lines)
    finish(axes, "", "changed texts, MB", "processor time of indexing, s")
    axes.set_ylim(0)
    axes.legend(frameon=False)
    save(figure, path)
