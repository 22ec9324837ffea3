"""Workloads drawn from the headings of pages."""

from pathlib import Path

import numpy as np
import pytest

from scrapy_gp4c.errors import QueryLogError
from scrapy_gp4c.search.queries import read_query_log
from tests.support.contents import contents_of, random_pages, write_contents
from training import workload
from training.replaying.search import WorkloadPlan, draw, headings, knee

TEXT = """---
title: "Getting started"
---

# Install #

```
# no heading
```

Under the line
==============

## 2. Next *steps*
----
"""


def test_titles_and_headings_are_found() -> None:
    """Front matter, # lines outside code, underlined lines."""
    assert headings(TEXT) == ["Getting started", "Install", "Under the line", "2. Next *steps*"]


def test_a_heading_weighs_by_how_long_it_stood(tmp_path: Path) -> None:
    """One that stood in 9 of 10 cycles begins nine of ten queries, whichever page changes more often."""
    pages = [{0: "# rare\n", 1: "# common\n", 9: "# common\nmore"}]
    drawn = draw(contents_of(tmp_path, pages), WorkloadPlan(queries=2, zipf=1.0, seed=5))
    assert sorted(drawn.texts()) == ["common", "rare"]
    assert sorted(drawn.frequency.tolist()) == pytest.approx([1 / 3, 2 / 3])
    firsts = [draw(contents_of(tmp_path, pages), WorkloadPlan(1, 1.0, seed)).texts()[0] for seed in range(40)]
    assert 30 <= firsts.count("common") <= 40


def test_without_headings_there_is_no_workload(tmp_path: Path) -> None:
    """The remedy is a log."""
    with pytest.raises(QueryLogError, match="has no title or heading"):
        draw(contents_of(tmp_path, [{0: "text", 1: "other"}]), WorkloadPlan(queries=2))


def test_the_knee_is_farthest_from_the_chord() -> None:
    """The knee of the sorted logarithms; nothing is dropped without a knee."""
    assert knee(np.exp([9.0, 8.0, 7.0, 6.0, 0.0])) == pytest.approx(np.exp(6.0))
    assert knee(np.array([1.0, 1.0])) == 0.0


def test_the_command_writes_a_log_that_reads_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Equal seeds write equal logs; it prints what is kept."""
    source = str(write_contents(tmp_path / "contents", random_pages(3)))
    out = tmp_path / "queries.tsv"
    assert workload.main([source, "-o", str(out), "--queries", "8"]) == 0
    first = out.read_text()
    log = read_query_log(out)
    assert log.frequency.sum() == pytest.approx(1.0)
    assert len(log.queries) < 8
    assert f"{len(log.queries)} of 8 distinct queries kept" in capsys.readouterr().out
    assert workload.main([source, "-o", str(out), "--queries", "8"]) == 0
    assert out.read_text() == first
    assert workload.main([str(tmp_path / "missing"), "-o", str(out)]) == 2
    assert "cannot read" in capsys.readouterr().err
