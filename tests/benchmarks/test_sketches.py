"""What sketches lose: measured with the features of the real clustering."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.sketches import main, told_by
from tests.support.linked import write_linked
from training.clustering.clusters import FEATURES, cluster, group_pages
from training.histories.contents import read_contents


def test_sketches_of_short_pages_lose_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """All words fit into a sketch; by all words the clusters are those of `training.cluster`."""
    path = write_linked(tmp_path / "contents.jsonl", pages=40)
    contents = read_contents(path)
    by_words = next(iter(told_by(contents).values()))
    label, order = cluster(by_words, 4, FEATURES, 0)
    groups = group_pages(contents, 4)
    assert label.tolist() == groups.cluster.tolist()
    assert order.tolist() == groups.order.tolist()
    assert main([str(path), "--clusterings", "1", "--seeds", "1"]) == 0
    said = capsys.readouterr().out
    assert said.count("cb(in_flight=1) by ") == 2
    assert "lost by sketches: " in said
