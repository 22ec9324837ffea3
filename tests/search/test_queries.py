"""Logs of queries."""

from pathlib import Path

import numpy as np
import pytest

from scrapy_gp4c.errors import QueryLogError
from scrapy_gp4c.search.queries import parse_query_log, read_query_log


def test_a_log_is_numbered_and_sums_to_one() -> None:
    """Equal sets of terms are one query; Q' sums the queries that have a term."""
    log = parse_query_log(["Web crawling\t3", "crawling, WEB web\t1", "web\t4", "", "?!\t9"], "log")
    assert log.texts() == ["web crawling", "web"]
    assert log.frequency.tolist() == [0.5, 0.5]
    assert log.terms == ("web", "crawling")
    assert log.term_frequency.tolist() == [1.0, 0.5]
    assert log.dropped == 1
    assert log.take(np.array([1])).frequency.tolist() == [1.0]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "no query with a letter or digit"),
        (b"?\t1\n", r"no query with a letter or digit \(1 dropped\)"),
        (b"web 3\n", "line 1: expected .* no tab in 'web 3'"),
        (b"a\t1\nweb\t0\n", "line 2: .* no count above 0, '0'"),
        (b"web\tmany\n", "no count above 0, 'many'"),
        (b"web\tinf\n", "no count above 0"),
        (b"caf\xe9\t1\n", "is no UTF-8"),
    ],
)
def test_what_cannot_be_used_is_named(tmp_path: Path, content: bytes, said: str) -> None:
    """File, line, what was expected and what was found."""
    (tmp_path / "log.tsv").write_bytes(content)
    with pytest.raises(QueryLogError, match=said):
        read_query_log(tmp_path / "log.tsv")


def test_a_missing_log_is_named(tmp_path: Path) -> None:
    """With its path."""
    with pytest.raises(QueryLogError, match=r"cannot read the query log .*missing\.tsv"):
        read_query_log(tmp_path / "missing.tsv")
