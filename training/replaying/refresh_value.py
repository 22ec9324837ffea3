"""Refresh values: what a refresh of a page's copy adds to search quality (delta-Q_A, Pandey & Olston 2005).

The statistics behind it (rank functions of terms, idf, mean length: `scrapy_gp4c.search.gains.Refit`) are
those of cycle 0, so that the value of a refresh depends on the page's old and new text alone. The importance
of pages is read from a file or stood in for by the links between pages.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.arrays import Floats, Ints
from scrapy_gp4c.errors import HistoryError
from scrapy_gp4c.search.gains import PIECES, Refit, Refreshes, impacts, refit
from scrapy_gp4c.search.measuring import Postings
from scrapy_gp4c.search.queries import Workload
from training.histories.claims import lines_about
from training.histories.contents import ContentHistory
from training.histories.history import ChangeHistory, Impact
from training.histories.links import links_of
from training.replaying.search import Corpus, VersionSearch, count, search


def link_importance(contents: ContentHistory) -> npt.NDArray[np.float64]:
    """Importance by links: 1 + pages of the same site that link to each page in cycle 0, ``[P]``."""
    history = contents.history
    links = links_of(history, contents.texts_at(0))
    return np.bincount(links.target, minlength=history.pages).astype(np.float64) + 1.0


class QualityMeasure(NamedTuple):
    """Parameters of search quality, besides the texts and queries."""

    workload: Workload
    scoring: str = "tfidf"
    """A name of `scrapy_gp4c.search.measuring.SCORINGS`."""
    importance: Floats | None = None
    """Importance of every page, above 0, for ``inlinks``: ``[P]``."""
    pieces: int = PIECES
    cycle: int = 0
    """Cycle from whose pages the `Refit` (rank functions, idf, mean length) is computed."""


def estimator_of(corpus: Corpus, how: QualityMeasure) -> Refit:
    """Statistics that estimate refresh values, of cycle `how.cycle`; ``corpus``: of the workload's terms."""
    live, rows, mean_length = corpus.of_cycle(how.cycle)
    weight: Floats | float = 1.0
    if how.importance is not None:
        weight = how.importance[corpus.contents.page_of_version[corpus.version[rows]]]
    postings = Postings(corpus.term[rows], corpus.tf[rows], corpus.length[corpus.version[rows]], weight)
    return refit(how.scoring, how.workload.term_frequency, postings, len(live), mean_length, how.pieces)


def refresh_values(corpus: Corpus, how: QualityMeasure, exact_search: VersionSearch) -> Impact:
    """Values of refreshes for all pairs of versions; ``exact_search`` adds exact quality and clicks."""
    contents = corpus.contents
    estimator = estimator_of(corpus, how)
    versions = np.diff(contents.first_version)
    start = np.concatenate(([0], np.cumsum(versions.astype(np.int64) ** 2)))
    gain = np.zeros(int(start[-1]), np.float32)
    for page in np.flatnonzero(versions > 1).tolist():
        gain[start[page] : start[page + 1]] = _pairs(corpus, how, estimator, page).ravel()
    first = contents.first_version[:-1]
    return Impact(
        contents.version - first,
        start[:-1],
        versions,
        gain,
        lambda copies: exact_search.quality(copies + first),
        np.where(contents.history.changed, corpus.difference[contents.version[1:]], 0.0).astype(np.float32),
        lambda: exact_search.clicks(contents.history.cycles),
    )


def _pairs(corpus: Corpus, how: QualityMeasure, estimator: Refit, page: int) -> Floats:
    """Value of a refresh from each version of a page to each: ``[old, new]``; 0 unless the new is later."""
    begin, end = corpus.contents.first_version[page : page + 2].tolist()
    old, new = np.triu_indices(end - begin, 1)
    gains = np.zeros((end - begin, end - begin))
    gains[old, new] = _gains(corpus, how, estimator, page, old, new)
    return gains


def _gains(
    corpus: Corpus,
    how: QualityMeasure,
    estimator: Refit,
    page: int,
    old: npt.NDArray[np.integer],
    new: npt.NDArray[np.integer],
) -> Floats:
    """Values of refreshes of a page from versions ``old`` to ``new`` (0: its first), each ``[R]``."""
    begin, end = corpus.contents.first_version[page : page + 2].tolist()
    rows = slice(corpus.start[begin], corpus.start[end])
    term, column = np.unique(corpus.term[rows], return_inverse=True)
    tf = np.zeros((end - begin, len(term)), np.int32)
    tf[corpus.version[rows] - begin, column] = corpus.tf[rows]
    pair, match = np.nonzero((tf[old] > 0) | (tf[new] > 0))
    weight: Floats | float = 1.0 if how.importance is None else float(how.importance[page])
    before, after = (
        Postings(term[match], tf[side[pair], match], corpus.length[begin + side[pair]], weight)
        for side in (old, new)
    )
    return impacts(estimator, Refreshes(pair, before, after), len(old))


def refitted_values(
    corpus: Corpus, how: QualityMeasure, page: Ints, cycle: Ints, version: Ints, refit_cycles: int
) -> Floats:
    """Values of refreshes right after each update, by statistics made anew every ``refit_cycles``: ``[U]``.

    ``page``, ``cycle``, ``version`` (from the page's first) of each update: ``[U]``. An update of cycle c is
    measured by the refit at the end of the last cycle before c that is a multiple of ``refit_cycles``, as in
    a crawl; in ppm of the ideal of that cycle.
    """
    gains = np.zeros(len(page))
    learnt = (cycle - 1) // refit_cycles * refit_cycles
    for when in np.unique(learnt).tolist():
        estimator = estimator_of(corpus, how._replace(cycle=when))
        rows = np.flatnonzero(learnt == when)
        for one in np.unique(page[rows]).tolist():
            page_rows = rows[page[rows] == one]
            gains[page_rows] = _gains(corpus, how, estimator, one, version[page_rows] - 1, version[page_rows])
    return gains


def with_refresh_values(
    contents: ContentHistory,
    how: QualityMeasure,
    importance: Path | None = None,
    advance: Callable[[], object] = lambda: None,
) -> ChangeHistory:
    """History of the changes of `contents`, with refresh values.

    ``importance``: file of `read_importance` for the scoring ``inlinks``; None: `link_importance`;
    ``advance`` is called after each version of a page.
    """
    if how.scoring == "inlinks" and how.importance is None:
        page_importance = (
            read_importance(importance, contents.history) if importance else link_importance(contents)
        )
        how = how._replace(importance=page_importance)
    corpus = count(contents, advance).of(how.workload)
    exact_search = search(corpus, how.workload, how.scoring, how.importance, how.cycle)
    return replace(contents.history, impact=refresh_values(corpus, how, exact_search))


def read_importance(path: Path, history: ChangeHistory) -> Floats:
    """Read the importance of every page from a file, ``site<TAB>page<TAB>number`` a line: ``[P]``.

    Raises HistoryError for a broken line or a page without a number above 0.
    """
    importance = np.full(history.pages, np.nan)
    for number, line, page, fields in lines_about(path, history):
        try:
            value = float(fields[0])
        except (ValueError, IndexError):
            value = 0.0
        if not 0.0 < value < np.inf:
            raise HistoryError(
                f"{path}, line {number}: expected site<TAB>page<TAB>number above 0; found {line[:60]!r}"
            )
        if page >= 0:
            importance[page] = value
    missing = np.flatnonzero(np.isnan(importance))
    if len(missing):
        page, names = int(missing[0]), history.page_names
        assert names is not None
        raise HistoryError(
            f"{path}: expected a number for every page; none for {names[page]!r} of "
            f"{history.site_labels[history.site[page]]!r}"
        )
    return importance
