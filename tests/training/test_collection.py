"""Collections as BRDC'12 was made: sizes of sites in samples, counts of overviews, effect of imputation."""

import gzip
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from training import collection as command
from training.collection import draw_sample, imputation_effect, overview
from training.histories.formats import write_npz
from training.histories.history import ChangeHistory
from training.histories.models import generate
from training.replaying.prepared import DEFAULTS


def web(sizes: list[int]) -> dict[str, list[str]]:
    return {
        f"s{number}.example": [f"http://s{number}.example/{page}" for page in range(size)]
        for number, size in enumerate(sizes)
    }


@given(
    st.lists(st.integers(1, 40), min_size=1, max_size=60),
    st.integers(1, 70),
    st.integers(1, 30),
    st.integers(0, 99),
)
def test_a_sample_is_stratified(sizes: list[int], wanted: int, most: int, seed: int) -> None:
    """As many sites as wanted, sizes in proportion to within one site, pages as politeness allows."""
    sites = web(sizes)
    sample = draw_sample(sites, wanted, most, seed)
    share = min(1.0, wanted / len(sites))
    assert abs(len(sample) - share * len(sites)) < 1 or len(sample) == 1
    if len(sample) > 1:
        for size in range(1, 41):  # of the sites up to a size, the share; to within one
            below = sum(one <= size for one in sizes)
            assert abs(sum(len(sites[name]) <= size for name in sample) - share * below) <= 1 + 1e-9
    for name, urls in sample.items():
        assert len(urls) == min(most, len(sites[name])) == len(set(urls))
        assert set(urls) <= set(sites[name])
    assert draw_sample(sites, wanted, most, seed) == sample


def test_the_command_draws_a_sample(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """From a compressed list, with a day's worth of pages of every site."""
    source, output = tmp_path / "urls.txt.gz", tmp_path / "sample.txt"
    with gzip.open(source, "wt") as file:
        file.write("\n".join(url for urls in web([1, 2, 3, 50]).values() for url in urls) + "\n\n")
    words = ["sample", str(source), "-o", str(output), "--sites", "4", "--delay", "3600", "--hours", "10"]
    assert command.main(words) == 0
    lines = output.read_text().splitlines()
    assert len(lines) == 1 + 2 + 3 + 10
    assert "16 of 56 pages of 4 of 4 sites, at most 10 of a site; seed 1" in capsys.readouterr().out


def test_overview_is_table_4_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Cycles, pages, sites, and the pages of sites; errors are unknown to a history file."""
    history = ChangeHistory(np.eye(5, 10, dtype=bool), np.array([0] * 6 + [1] * 3 + [2], np.int32))
    path = tmp_path / "h.npz"
    write_npz(path, history)
    assert list(overview(path).values()) == ["5", "10", "3", "1", "6", "3.33", "unknown", "10.00%"]
    assert command.main(["overview", str(path)]) == 0
    assert "| Average web pages/site | 3.33 |" in capsys.readouterr().out


def test_imputation_changes_little(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """At the errors of BRDC'12, 2.92%, no baseline's change rate moves by more than 0.02."""
    history = generate("brdc12-like", 3000, 30, 1)
    effect = imputation_effect(history, 0.0292, range(2), DEFAULTS._replace(clock="cycles"))
    assert 0.0 < effect.guessed_share <= 0.0292 * 1.1
    assert effect.right.mean > 0.5
    for name, (truth, imputed) in effect.rates.items():
        assert abs(imputed.mean - truth) < 0.02, name
    path = tmp_path / "h.npz"
    write_npz(path, history)
    assert command.main(["imputation", str(path), "--seeds", "1"]) == 0
    assert "| t*X | " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["sample", "gone.txt", "-o", "x"], "cannot read gone.txt"),
        (["sample", "bad.txt", "-o", "x"], "line 2: expected a URL with a host"),
        (["sample", "empty.txt", "-o", "x"], "has no URL"),
        (["sample", "empty.txt", "-o", "x", "--sites", "0"], "--sites"),
        (["imputation", "h.npz", "--errors", "1"], "--errors"),
    ],
)
def test_bad_input_is_one_error(
    words: list[str],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Exit code 2 and one line."""
    monkeypatch.chdir(tmp_path)
    Path("bad.txt").write_text("http://a.example/\nnot a url\n")
    Path("empty.txt").write_text("\n")
    assert command.main(words) == 2
    assert said in capsys.readouterr().err
