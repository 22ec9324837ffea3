"""What sketches lose: measured with the features of the real clustering."""

from pathlib import Path

import pytest

from benchmarks.sketches import features_by_words, main
from tests.support.linked import write_linked
from training.clustering.clusters import FEATURES, cluster, group_pages
from training.histories.contents import read_contents


def test_sketches_are_judged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By all words the clusters are those of `training.cluster`; the exit code is that of the verdict."""
    path = write_linked(tmp_path / "contents.jsonl", pages=40)
    contents = read_contents(path)
    by_words = next(iter(features_by_words(contents).values()))
    label, order = cluster(by_words, 4, FEATURES, 0)
    groups = group_pages(contents, 4)
    assert label.tolist() == groups.cluster.tolist()
    assert order.tolist() == groups.order.tolist()
    code = main([str(path), "--clusterings", "1", "--seeds", "1"])
    said = capsys.readouterr().out
    # Which pages share a cluster hangs on the last bits of equal distances, and these on the processor.
    assert said.strip().endswith("holds") == (code == 0)
    assert said.count("cb(in_flight=1) by ") == 2
    assert "lost by sketches: " in said
