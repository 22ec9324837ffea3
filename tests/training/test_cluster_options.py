"""`--groups` and `--recluster` of `training.evaluate`, from the command line to the figures."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.linked import write_linked
from training import cluster, evaluate
from training.histories.formats import write_npz
from training.histories.models import generate


@pytest.fixture(scope="module")
def contents(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Contents, and a file of groups of theirs beside them."""
    path = write_linked(tmp_path_factory.mktemp("contents") / "contents.jsonl", pages=40)
    assert cluster.main([str(path), "-o", str(path.with_suffix(".npz")), "--clusters", "4"]) == 0
    return path


def rates(contents: Path, output: Path, *more: str) -> list[float]:
    """The change rate of cb in every scored cycle."""
    given = [str(contents), "--policy", "cb(in_flight=1)", "--budget", "0.2", "--json", str(output), *more]
    assert evaluate.main(given) == 0
    (found,) = json.loads(output.read_text())["results"]
    rates: list[float] = found["change_rate"]["per_cycle"]
    return rates


def test_clusters_made_anew_change_later_cycles_alone(contents: Path, tmp_path: Path) -> None:
    """After four cycles other pages are visited; up to then the groups are those of the file."""
    groups = ["--groups", str(contents.with_suffix(".npz")), "--warmup", "0"]
    stay = rates(contents, tmp_path / "stay.json", *groups)
    anew = rates(contents, tmp_path / "anew.json", *groups, "--recluster", "4")
    assert anew[:4] == stay[:4]
    assert anew[4:] != stay[4:]
    assert anew == rates(contents, tmp_path / "again.json", *groups, "--recluster", "4")


def test_without_a_file_the_clusters_are_of_cycle_0(contents: Path, tmp_path: Path) -> None:
    """As `training.cluster` makes them, in longer cycles and within a part of the cycles too."""
    npz = tmp_path / "groups.npz"
    assert cluster.main([str(contents), "-o", str(npz), "--clusters", "40"]) == 0
    for more in ([], ["--every", "2"], ["--every", "2", "--cycles", "1:8"]):
        late = rates(contents, tmp_path / "late.json", *more, "--recluster", "50")
        assert late == rates(contents, tmp_path / "file.json", *more, "--groups", str(npz))
    cut = ["--every", "2", "--cycles", "3:8", "--recluster", "2"]
    assert len(rates(contents, tmp_path / "cut.json", *cut)) == 4


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--recluster", "0"], "at least 1; found 0"),
        (["--recluster", "2", "--query-log", "log"], "without --query-log"),
    ],
)
def test_what_cannot_be_reclustered_is_refused(
    more: list[str], message: str, contents: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One error that names the option."""
    log = tmp_path / "log"
    log.write_text("bread\t3\nstar\t1\n")
    more = [str(log) if word == "log" else word for word in more]
    assert evaluate.main([str(contents), "--policy", "cb", *more]) == 2
    assert message in capsys.readouterr().err


def test_bits_cannot_be_reclustered(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """They tell only when pages changed."""
    path = tmp_path / "history.npz"
    write_npz(path, generate("poisson", 40, 9, 1))
    assert evaluate.main([str(path), "--policy", "cb", "--recluster", "2"]) == 2
    assert "tells only when they changed" in capsys.readouterr().err
