"""Checkpoints: atomic, and never mixed up between runs."""

import json
import os

import pytest

from scrapy_gp4c.errors import LearningError
from training.evolution.checkpoint import Checkpoint, check_writable, write_atomically
from training.evolution.evolve import BestIndividual, Evolution, EvolutionState, Parameters

RUN = {"fitness": "ndcg", "seed": 1, "terminals": ("n", "X")}
STATES = [EvolutionState(3, [("t", 0.5)], [BestIndividual("t", 0.5, 0.5, "ab", 1)], [0.5])]


def test_round_trip_and_removal(tmp_path):
    """What was saved comes back on resume; after removal nothing is left, not even the directory."""
    checkpoint = Checkpoint(tmp_path / "deep" / "c", RUN)
    assert checkpoint.open(resume=False) is None
    assert checkpoint.open(resume=True) is None, "nothing to resume: from the beginning"
    checkpoint.save(STATES)
    assert Checkpoint(tmp_path / "deep" / "c", dict(RUN)).open(resume=True) == STATES
    assert os.listdir(tmp_path / "deep" / "c") == ["checkpoint.json"]
    checkpoint.remove()
    assert not (tmp_path / "deep" / "c").exists()


def test_removal_leaves_other_files(tmp_path):
    """The user's own files in the directory stay."""
    (tmp_path / "notes").write_text("mine")
    checkpoint = Checkpoint(tmp_path, RUN)
    checkpoint.open(resume=False)
    checkpoint.save(STATES)
    checkpoint.remove()
    assert os.listdir(tmp_path) == ["notes"]


def test_unfinished_run_is_not_overwritten(tmp_path):
    """Without --resume a checkpoint that is there is an error with the remedy."""
    Checkpoint(tmp_path, RUN).save(STATES)
    with pytest.raises(LearningError, match="did not finish: continue it with --resume, delete it"):
        Checkpoint(tmp_path, RUN).open(resume=False)


def test_checkpoint_of_another_run(tmp_path):
    """The error names every choice that differs, there and here."""
    Checkpoint(tmp_path, RUN).save(STATES)
    with pytest.raises(LearningError, match="another run: fitness is 'ndcg' there and 'freshness' here"):
        Checkpoint(tmp_path, RUN | {"fitness": "freshness"}).open(resume=True)
    with pytest.raises(LearningError, match="budget is None there and 5 here"):
        Checkpoint(tmp_path, RUN | {"budget": 5}).open(resume=True)


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "{}",
        '{"format": "gp4c-checkpoint/9", "run": {}, "states": []}',
        '{"format": "gp4c-checkpoint/1", "run": {}, "states": [{"generation": 1}]}',
        '{"format": "gp4c-checkpoint/1", "run": null, "states": []}',
        '{"format": "gp4c-checkpoint/1", "run": {}, "states": [{"generation": "x", "population": [], '
        '"best_individuals": [], "best": []}]}',
        "\x00\xff",
    ],
)
def test_damaged_checkpoint(tmp_path, content):
    """What cannot be read is an error that names the file."""
    (tmp_path / "checkpoint.json").write_text(content)
    with pytest.raises(LearningError, match=r"checkpoint\.json' is not a checkpoint that can be read"):
        Checkpoint(tmp_path, RUN).open(resume=True)


def test_writing_replaces_or_leaves_alone(tmp_path, monkeypatch):
    """A failure while writing leaves the old file and no debris."""
    path = tmp_path / "score.json"
    write_atomically(path, {"a": 1})

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(LearningError, match=r"cannot write .*score\.json': No space left"):
        write_atomically(path, {"a": 2})
    assert json.loads(path.read_text()) == {"a": 1}
    assert os.listdir(tmp_path) == ["score.json"]


def test_check_writable(tmp_path):
    """A path that can be written passes and stays as it was; one that cannot is named."""
    check_writable(tmp_path / "score.json")
    assert os.listdir(tmp_path) == []
    with pytest.raises(LearningError, match="it is a directory"):
        check_writable(tmp_path)
    with pytest.raises(LearningError, match="No such file or directory"):
        check_writable(tmp_path / "missing" / "score.json")


def test_a_formula_of_another_language_is_an_error(tmp_path):
    """A terminal that the run does not know is named, and what to do."""
    state = EvolutionState(1, [("x * t", 0.5)], [], [0.5])
    with pytest.raises(LearningError, match="a formula with 'x'"):
        Evolution(Parameters(population=4, generations=2), 1).restore(state)
