"""Workloads: the queries of a query log, as term numbers, and how often users ask them."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.arrays import Floats
from scrapy_gp4c.errors import QueryLogError
from scrapy_gp4c.words.tokens import tokens

LAYOUT = "a line per query, query<TAB>count, in UTF-8"
MAX_LINK_TEXT: Final = 1_000
"""Characters of a link's text that `Workload.asked_share` reads."""


@dataclass(frozen=True, eq=False)
class Workload:
    """Q distinct queries of terms, numbered in the order of the log, and their frequencies."""

    queries: tuple[tuple[int, ...], ...]
    """Numbers of each query's terms, ascending."""
    frequency: Floats
    """``[Q]``: f_q, relative frequency of each query; their sum is 1."""
    terms: tuple[str, ...]
    """Every term of a query, in the order in which they appear."""
    dropped: int = 0
    """Lines of the log whose query has no term."""

    @cached_property
    def number(self) -> Mapping[str, int]:
        """Term -> its number."""
        return {term: number for number, term in enumerate(self.terms)}

    @cached_property
    def term_frequency(self) -> Floats:
        """``[T]``: sum of the frequencies of the queries that contain each term.

        These are the frequencies of Q', the queries of single terms (Pandey & Olston 2005, section 5.1.1).
        """
        summed = np.zeros(len(self.terms))
        for terms, frequency in zip(self.queries, self.frequency.tolist(), strict=True):
            summed[list(terms)] += frequency
        return summed

    @cached_property
    def _share_of_word(self) -> dict[str, float]:
        return dict(zip(self.terms, (self.term_frequency / self.term_frequency.sum()).tolist(), strict=True))

    def asked_share(self, text: str) -> float:
        """Share of the words of users' queries, by their frequency, that occur in `text`: 0 to 1."""
        words = set(tokens(text[:MAX_LINK_TEXT]))
        return sum(self._share_of_word.get(word, 0.0) for word in words)

    def take(self, queries: npt.NDArray[np.intp]) -> "Workload":
        """Return a workload of the queries with these numbers, with frequencies scaled to sum 1."""
        weights = {
            tuple(self.terms[term] for term in self.queries[query]): float(self.frequency[query])
            for query in queries.tolist()
        }
        return workload(weights)

    def texts(self) -> list[str]:
        """Return each query as text, its terms joined by blanks."""
        return [" ".join(self.terms[term] for term in query) for query in self.queries]


def workload(counts: Mapping[tuple[str, ...], float], dropped: int = 0) -> Workload:
    """Make a workload; ``counts``: terms of a query -> times asked, > 0; ``dropped``: as in `Workload`."""
    merged: defaultdict[tuple[str, ...], float] = defaultdict(float)
    order = {term: None for query in counts for term in query}
    number_of = {term: number for number, term in enumerate(order)}
    for query, count in counts.items():
        merged[tuple(sorted(set(query), key=number_of.__getitem__))] += count
    frequency = np.array(list(merged.values()), np.float64)
    queries = tuple(tuple(number_of[term] for term in query) for query in merged)
    return Workload(queries, frequency / frequency.sum(), tuple(order), dropped)


def read_query_log(path: str | Path) -> Workload:
    """Read a query log, lines of ``query<TAB>count`` in UTF-8; queries with the same terms are one.

    Raises QueryLogError naming file, line, what was expected and what was found.
    """
    try:
        text = Path(path).read_bytes().decode()
    except OSError as error:
        raise QueryLogError(f"cannot read the query log {path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise QueryLogError(f"{path} is no UTF-8 ({error}): expected {LAYOUT}; convert the log") from None
    return parse_query_log(text.split("\n"), str(path))


def parse_query_log(lines: Iterable[str], source: str) -> Workload:
    """Read the lines of a query log, as `read_query_log` does; ``source``: name of the file in errors."""
    counts: defaultdict[tuple[str, ...], float] = defaultdict(float)
    dropped = 0
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        query, tab, count = line.rstrip("\r").rpartition("\t")
        try:
            times = float(count) if tab else 0.0
        except ValueError:
            times = 0.0
        if not 0.0 < times < np.inf:
            problem = f"no count above 0, {count[:40]!r}" if tab else f"no tab in {line[:60]!r}"
            raise QueryLogError(f"{source}, line {number}: expected {LAYOUT}; found {problem}")
        terms = tuple(dict.fromkeys(tokens(query)))
        if terms:
            counts[terms] += times
        else:
            dropped += 1
    if not counts:
        raise QueryLogError(
            f"{source} has no query with a letter or digit ({dropped:,} dropped): expected {LAYOUT}"
        )
    return workload(counts, dropped)
