"""Histories in longer cycles than they were recorded in."""

from pathlib import Path

import pytest

from scrapy_gp4c.errors import HistoryError
from tests.support.contents import write_contents
from training.evaluate import main
from training.histories.reading import coarsened, read_contents_or_history


@pytest.fixture
def contents(tmp_path: Path) -> Path:
    """Seven cycles: one page goes and comes back, one changes twice, one reverts, one never changes."""
    pages = [
        {0: "a", 1: None, 3: "a"},
        {0: "a", 1: "b", 4: "c"},
        {0: "a", 4: "b", 5: "a"},
        {0: "a"},
        {0: "a", 7: "b"},
    ]
    return write_contents(tmp_path / "contents.jsonl", pages)


def test_texts_at_both_ends_decide(contents: Path) -> None:
    """Cycles of three weeks: the seventh is cut."""
    history = coarsened(read_contents_or_history(contents), 3)
    assert history.changed.tolist() == [
        [False, True, False, False, False],
        [False, True, False, False, False],
    ]
    assert coarsened(read_contents_or_history(contents), 2).changed.astype(int).tolist() == [
        [1, 1, 0, 0, 0],
        [1, 1, 1, 0, 0],
        [0, 0, 1, 0, 0],
    ]
    assert coarsened(read_contents_or_history(contents), 7).changed.astype(int).tolist() == [[0, 1, 0, 0, 1]]


def test_of_bits_any_counts(tmp_path: Path) -> None:
    """Who knows no texts cannot tell that a change was taken back; sites and names stay."""
    path = tmp_path / "history.tsv"
    path.write_text("a.org\t/x\t0110010\nb.org\t/y\t0000001\n")
    history = coarsened(read_contents_or_history(path), 2)
    assert history.changed.T.astype(int).tolist() == [[1, 1, 1], [0, 0, 0]]
    assert list(history.page_names or ()) == ["/x", "/y"]
    assert history.site.tolist() == [0, 1]
    unchanged = coarsened(read_contents_or_history(path), 1)
    assert unchanged.changed[:, 0].astype(int).tolist() == [0, 1, 1, 0, 0, 1, 0]


@pytest.mark.parametrize("every", [0, -1, 8])
def test_a_cycle_takes_some_of_those_that_there_are(every: int, contents: Path) -> None:
    """One error that says how many there are."""
    with pytest.raises(HistoryError, match=f"from 1 to 7 of the 7 cycles .*found {every}"):
        coarsened(read_contents_or_history(contents), every)


def test_policies_are_compared_in_longer_cycles(contents: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By the command line; with a query log, which measures by the cycles recorded, it is refused."""
    arguments = [str(contents), "--every", "2", "--budget", "0.4", "--warmup", "0", "--policy", "rns", "db"]
    assert main(arguments) == 0
    assert "db" in capsys.readouterr().out
    log = contents.with_name("log.tsv")
    log.write_text("a\t1\n")
    assert main([*arguments, "--query-log", str(log)]) == 2
    assert "--every goes without --query-log" in capsys.readouterr().err
