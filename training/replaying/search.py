"""Search over the versions of all pages: exact quality of any copies, cycle by cycle.

`scrapy_gp4c.search.measuring` has the definitions (Pandey & Olston 2005, section 3). `VersionSearch` scores
and sorts once every version that an answer may have; the copies and the live versions of a cycle select the
answer.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.arrays import Floats, Ints
from scrapy_gp4c.errors import QueryLogError
from scrapy_gp4c.search.measuring import SCORINGS, Postings, Statistics, inspection
from scrapy_gp4c.search.queries import Workload, workload
from scrapy_gp4c.words.normal import normalise
from scrapy_gp4c.words.shingles import shingle_hashes
from scrapy_gp4c.words.tokens import tokens, tokens_of
from training.histories.contents import ContentHistory
from training.replaying.kernels import answers


@dataclass(frozen=True, eq=False)
class Corpus:
    """Counts of terms in texts: E pairs of version and term, in the order of the V versions of pages."""

    contents: ContentHistory
    number: dict[str, int]
    """Term -> its number; all terms of all versions."""
    start: Ints
    """``[V + 1]``: first occurrence of each version."""
    term: npt.NDArray[np.int32]
    tf: npt.NDArray[np.int32]
    length: npt.NDArray[np.int32]
    """``[V]``: tokens of each version; 0 where there is no page."""
    difference: npt.NDArray[np.float64]
    """``[V]``: 1 - resemblance of the word 3-shingles of each version and the one before; 0 for the first."""

    @cached_property
    def version(self) -> npt.NDArray[np.int32]:
        return np.repeat(np.arange(len(self.length), dtype=np.int32), np.diff(self.start))

    @cached_property
    def exists(self) -> npt.NDArray[np.bool_]:
        return np.array([text is not None for text in self.contents.texts])

    def of_cycle(self, cycle: int) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.intp], float]:
        """Versions of the pages that exist in a cycle, their occurrences, and their mean length."""
        live = self.contents.version[cycle]
        live = live[self.exists[live]]
        is_live = np.zeros(len(self.length), np.bool_)
        is_live[live] = True
        mean_length = float(self.length[live].mean()) if len(live) else 0.0
        return live, np.flatnonzero(is_live[self.version]), mean_length

    def of(self, workload: Workload) -> "Corpus":
        """Corpus of the terms of a workload's queries only, numbered as in the workload."""
        mapped = np.full(len(self.number) + 1, -1, np.int32)
        mapped[[self.number.get(term, -1) for term in workload.terms]] = np.arange(len(workload.terms))
        term = mapped[self.term]
        is_of_workload = term >= 0
        counts = np.bincount(self.version[is_of_workload], minlength=len(self.length))
        start = np.concatenate(([0], np.cumsum(counts)))
        return Corpus(
            self.contents,
            dict(workload.number),
            start,
            term[is_of_workload],
            self.tf[is_of_workload],
            self.length,
            self.difference,
        )


def count(contents: ContentHistory, advance: Callable[[], object] = lambda: None) -> Corpus:
    """Make the corpus of all terms in all versions; ``advance`` is called after each version."""
    number: dict[str, int] = {}
    terms: list[npt.NDArray[np.int32]] = []
    tfs: list[npt.NDArray[np.int32]] = []
    difference = np.zeros(len(contents.texts))
    has_one_before = np.ones(len(contents.texts) + 1, np.bool_)
    has_one_before[contents.first_version] = False
    before = np.empty(0, np.uint64)
    for version, text in enumerate(contents.texts):
        normal = normalise(text or "")
        counts = Counter(tokens_of(normal))
        if has_one_before[version] or has_one_before[version + 1]:
            shingles = np.unique(shingle_hashes(normal))
            if has_one_before[version]:
                difference[version] = 1.0 - _resemblance(before, shingles)
            before = shingles
        terms.append(
            np.fromiter((number.setdefault(term, len(number)) for term in counts), np.int32, len(counts))
        )
        tfs.append(np.fromiter(counts.values(), np.int32, len(counts)))
        advance()
    start = np.concatenate(([0], np.cumsum([len(occurrences) for occurrences in terms])))
    length = np.array([int(occurrences.sum()) for occurrences in tfs], np.int32)
    return Corpus(contents, number, start, np.concatenate(terms), np.concatenate(tfs), length, difference)


def _resemblance(one: npt.NDArray[np.uint64], other: npt.NDArray[np.uint64]) -> float:
    """Jaccard resemblance of two sets of shingles (Broder et al. 1997); 1 for empty sets."""
    shared = len(np.intersect1d(one, other, assume_unique=True))
    return shared / max(len(one) + len(other) - shared, 1) if len(one) or len(other) else 1.0


Versions = npt.NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class VersionSearch:
    """Answers of a search engine over all versions: E entries, by query, then score descending, then page."""

    workload: Workload
    page_of_version: Versions
    live: Versions
    """``[D + 1, P]``: version of each page in cycles 0..D."""
    start: npt.NDArray[np.int64]
    """``[Q + 1]``: first entry of each query."""
    version: Versions
    """``[E]``: versions that have every term of the query."""
    score: Floats
    """Scores S: ``[E]``."""

    @property
    def pages(self) -> int:
        return int(self.live.shape[1])

    @cached_property
    def _page(self) -> Versions:
        return self.page_of_version[self.version]

    @cached_property
    def _looks(self) -> Floats:
        return inspection(np.arange(1, self.pages + 1))

    @cached_property
    def _queries_of_page(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        query = np.repeat(np.arange(len(self.start) - 1), np.diff(self.start))
        pairs = np.unique(self._page.astype(np.int64) * len(self.start) + query)
        page, query = np.divmod(pairs, len(self.start))
        return np.searchsorted(page, np.arange(self.pages + 1)), query

    def quality(self, copies: Versions, live: Versions | None = None) -> Floats:
        """Quality of the copies in every cycle, in [0, 1] (eq. 5): ``[C]``.

        ``copies``, ``live``: versions ``[C, P]``; without ``live`` the cycles are the history's last C.
        """
        if live is None:
            live, ideal = self.live[-len(copies) :], self.ideal[-len(copies) :]
        else:
            ideal = self.usefulness(live, live)
        return np.divide(self.usefulness(copies, live), ideal, out=np.ones(len(ideal)), where=ideal > 0)

    @cached_property
    def ideal(self) -> Floats:
        """Value of `usefulness` by cycle if all copies are current: ``[D + 1]`` (eq. 4)."""
        return self.usefulness(self.live, self.live)

    def usefulness(self, copies: Versions, live: Versions) -> Floats:
        """Usefulness of copies by cycle (user-centric crawling, eq. 3), ``[C]``.

        The sum, over the answers by `copies`, of looks at each place times the score of its live version.

        Parameters as for `quality`. Answers in which no page moved are not computed anew in the next cycle.
        """
        first, queries = self._queries_of_page
        by_query = np.zeros(len(self.start) - 1)
        is_due = np.ones(len(by_query), np.bool_)
        truth, scored = np.empty(self.pages), np.empty(self.pages, np.int64)
        waiting = np.empty((2, self.pages), np.int64)
        out = np.empty(len(copies))
        for cycle in range(len(copies)):
            if cycle:
                moved = copies[cycle] != copies[cycle - 1]
                moved |= live[cycle] != live[cycle - 1]
                is_due[:] = False
                for one in np.flatnonzero(moved).tolist():
                    is_due[queries[first[one] : first[one + 1]]] = True
            is_now = np.zeros(len(self.page_of_version), np.uint8)
            is_now[live[cycle]] += np.uint8(answers.LIVE)
            is_now[copies[cycle]] += np.uint8(answers.COPY)
            scored[:] = -1
            entries = self.start, self.version, self._page, self.score
            answers.usefulness(*entries, self._looks, is_now, truth, scored, waiting, by_query, is_due)
            out[cycle] = self.workload.frequency @ by_query
        return out

    def rank_in(self, query: int, page: int, copies: Versions) -> int:
        """Rank of a page in the answer to a query; 0: not in it. ``copies``: versions ``[P]``."""
        rows = slice(self.start[query], self.start[query + 1])
        answer = self._page[rows][np.isin(self.version[rows], copies)]
        positions = np.flatnonzero(answer == page)
        return int(positions[0]) + 1 if len(positions) else 0

    def queries_of(self, page: int) -> npt.NDArray[np.int64]:
        """Numbers of the queries that have `page` in the answer in any version."""
        first, queries = self._queries_of_page
        return queries[first[page] : first[page + 1]]

    def clicks(self, last: int) -> Floats:
        """Clicks on each page with copies in sync, mean over cycles 1..last: ``[P]``."""
        clicked = np.zeros(self.pages)
        for versions in self.live[1 : last + 1]:
            is_copy = np.zeros(len(self.page_of_version), np.bool_)
            is_copy[versions] = True
            answers.clicks(
                self.start, self.version, self._page, self._looks, self.workload.frequency, is_copy, clicked
            )
        return clicked / last

    def relevance(self) -> Floats:
        """Score of every query summed over pages, mean over cycles: ``[Q]`` (section 6)."""
        stood = np.zeros(len(self.page_of_version))
        np.add.at(stood, self.live.ravel(), 1.0 / len(self.live))
        summed = np.concatenate(([0.0], np.cumsum(self.score * stood[self.version])))
        return np.asarray(summed[self.start[1:]] - summed[self.start[:-1]])


def statistics_of(corpus: Corpus, cycle: int = 0) -> Statistics:
    """Statistics of the pages in a cycle, for scores; ``corpus``: of a workload's terms."""
    live, rows, mean_length = corpus.of_cycle(cycle)
    return Statistics(len(live), np.bincount(corpus.term[rows], minlength=len(corpus.number)), mean_length)


def single_scores(
    corpus: Corpus, scoring: str, statistics: Statistics, importance: Floats | None = None
) -> Floats:
    """Score of every occurrence for its term alone: ``[E]``; ``importance``: of every page, ``[P]``."""
    page = corpus.contents.page_of_version[corpus.version]
    weight = 1.0 if importance is None else importance[page]
    postings = Postings(corpus.term, corpus.tf, corpus.length[corpus.version], weight)
    return SCORINGS[scoring].single(postings, statistics)


def search(
    corpus: Corpus, workload: Workload, scoring: str, importance: Floats | None = None, cycle: int = 0
) -> VersionSearch:
    """Make a `VersionSearch`: score and sort all versions for all queries of `workload`.

    ``corpus``: of the workload's terms; ``cycle``: cycle of idf and mean length.
    """
    statistics = statistics_of(corpus, cycle)
    single = single_scores(corpus, scoring, statistics, importance)
    share_of = SCORINGS[scoring].share
    page = corpus.contents.page_of_version
    order = np.argsort(corpus.term, kind="stable")  # by term, then by version
    bounds = np.searchsorted(corpus.term[order], np.arange(len(workload.terms) + 1))
    versions, scores = [], []
    for query in workload.queries:
        rows = [order[bounds[term] : bounds[term + 1]] for term in query]
        share = share_of(np.array(query), statistics)
        matching, total = corpus.version[rows[0]], single[rows[0]] * share[0]
        for term_rows, term_share in zip(rows[1:], share[1:].tolist(), strict=True):
            matching, matching_rows, right = np.intersect1d(
                matching, corpus.version[term_rows], assume_unique=True, return_indices=True
            )
            total = total[matching_rows] + single[term_rows[right]] * term_share
        by_score = np.lexsort((page[matching], -total))
        versions.append(matching[by_score].astype(np.int32))
        scores.append(total[by_score])
    start = np.concatenate(([0], np.cumsum([len(entries) for entries in versions])))
    matching, total = np.concatenate(versions), np.concatenate(scores)
    return VersionSearch(workload, page, corpus.contents.version, start, matching, total)


LENGTHS: Final = (1, 2, 3)
"""Possible numbers of terms in a drawn query."""
LENGTH_CHANCES: Final = (0.4, 0.4, 0.2)
TRIES: Final = 50
"""Draws per query, before drawing ends."""
_STOP: Final = """
a about an and are as at be by can do does for from has have how i if in into is it its more my new no not of
on or our that the their then there these this to was we what when where which why will with you your
"""
STOP_WORDS: Final = frozenset(_STOP.split())
_HEADING: Final = re.compile(r"#{1,6}\s+(.+?)\s*#*\s*$")
_TITLE: Final = re.compile(r"""title:\s*["']?(.+?)["']?\s*$""", re.I)
_UNDERLINE: Final = re.compile(r"([=\-~^\"'`*+#<>:.])\1{2,}\s*$")
_FENCE: Final = re.compile(r"\s*(```|~~~)")
_FRONT_LINES: Final = 40
"""Number of lines at a text's beginning in which a field ``title:`` is a heading."""


def headings(text: str) -> list[str]:
    """Titles and headings: ``title:`` fields at the head, ``#`` and underlined lines outside code."""
    titles = []
    before, fenced = "", False
    for number, line in enumerate(text.split("\n")):
        if _FENCE.match(line):
            fenced = not fenced
        elif not fenced:
            title = _TITLE.match(line) if number < _FRONT_LINES else None
            heading = title or _HEADING.match(line)
            if heading:
                titles.append(heading[1])
            elif before and _UNDERLINE.match(line) and len(line.rstrip()) >= len(before) > 2:
                titles.append(before)
        before = line.strip()
    return titles


class WorkloadPlan(NamedTuple):
    """Parameters of a workload of queries that `draw` draws."""

    queries: int = 5_000
    zipf: float = 0.8
    """Exponent of the queries' frequencies: f ~ rank^-zipf."""
    seed: int = 1


def draw(contents: ContentHistory, plan: WorkloadPlan) -> Workload:
    """Draw queries: consecutive words (without stop words) of a heading of a page's text in a cycle.

    Page and cycle are uniform. Frequencies fall with the rank in a drawn order of the distinct queries.
    Raises QueryLogError for texts without headings.
    """
    rng = np.random.default_rng(plan.seed)
    queries = list(_distinct(contents, plan, rng))
    order = rng.permutation(len(queries)).tolist()
    counts = {queries[number]: float(rank**-plan.zipf) for rank, number in enumerate(order, start=1)}
    if not counts:
        raise QueryLogError(
            f"{contents.history.source} has no title or heading (front matter, # lines, underlined lines) to "
            "draw queries from; give a log of queries"
        )
    return workload(counts)


def _distinct(
    contents: ContentHistory, plan: WorkloadPlan, rng: np.random.Generator
) -> Iterator[tuple[str, ...]]:
    """Yield the terms of drawn queries, without repeats, in the order in which they are drawn."""

    @cache
    def candidates(version: int) -> list[list[str]]:
        token_lists = (tokens(heading) for heading in headings(contents.texts[version] or ""))
        without_stop_words = (
            [token for token in heading if token not in STOP_WORDS] for heading in token_lists
        )
        return [heading for heading in without_stop_words if heading]

    seen: set[frozenset[str]] = set()
    for _ in range(TRIES * plan.queries):
        if len(seen) == plan.queries:
            return
        cycle, page = rng.integers(len(contents.version)), rng.integers(contents.history.pages)
        length = int(rng.choice(LENGTHS, p=LENGTH_CHANCES))
        of_page = candidates(int(contents.version[cycle, page]))
        if not of_page:
            continue
        heading = of_page[rng.integers(len(of_page))]
        length = min(length, len(heading))
        first = rng.integers(len(heading) - length + 1)
        query = tuple(dict.fromkeys(heading[first : first + length]))
        if frozenset(query) not in seen:
            seen.add(frozenset(query))
            yield query


def knee(values: Floats) -> float:
    """Value at the knee of the falling curve of log values: farthest from its chord.

    The paper filters queries at "a knee in the distribution" of their summed TF-IDF (section 6). ``values``:
    at least 0; zeros are left out. 0 for fewer than three values.
    """
    falling = np.sort(np.log(values[values > 0]))[::-1]
    if len(falling) < 3 or falling[0] == falling[-1]:
        return 0.0
    along = np.linspace(0.0, 1.0, len(falling))
    down = (falling - falling[-1]) / (falling[0] - falling[-1])
    return float(np.exp(falling[int(np.argmax(np.abs(1.0 - along - down)))]))


def above_knee(corpus: Corpus, drawn: Workload) -> tuple[Workload, float]:
    """Workload of the queries whose TF-IDF, summed over pages, is at the `knee` or above; and the knee."""
    relevance = search(corpus, drawn, "tfidf").relevance()
    least = knee(relevance)
    return drawn.take(np.flatnonzero(relevance >= least)), least
