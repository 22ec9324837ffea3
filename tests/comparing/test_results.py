"""Results of an experiment: what is written is read again, and what cannot be read is told."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from scrapy_gp4c.errors import HistoryError
from tests.support.example_results import results
from training.comparing.results import ExperimentResults, read_results, recorded_choices
from training.evolution.choices import Choices, identity
from training.evolution.evolve import Parameters
from training.histories.models import generate


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    """The record is the same after a trip through its file, and so is the file."""
    written = json.dumps(results().to_json())
    (tmp_path / "results.json").write_text(written)
    read = read_results(tmp_path)
    assert read == results()
    assert json.dumps(read.to_json()) == written


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"format": "gp4c-experiment/2"}, "its format is"),
        ({"choices": {}}, "parameters"),
        ({"learned": 1}, "int"),
    ],
)
def test_what_cannot_be_read_is_told(change: dict[str, object], words: str, tmp_path: Path) -> None:
    """Another format, and what is missing or of another kind, are one error that names the file."""
    (tmp_path / "results.json").write_text(json.dumps(results().to_json() | change))
    with pytest.raises(HistoryError, match=rf"results\.json has no results .*{words}"):
        read_results(tmp_path)


def test_choices_are_read_as_they_are_recorded() -> None:
    """Results keep them nested, score files flat, with depths as names or as a list."""
    choices = Choices(budget=30, forget=0.1, parameters=Parameters(population=20, terminals=("n", "t")))
    flat = identity(generate("poisson", 50, 12, 1), choices)
    assert recorded_choices(json.loads(json.dumps(flat)) | {"selection": "best"}) == choices
    nested = json.loads(json.dumps(results().to_json()))["choices"]
    assert recorded_choices(nested | nested["parameters"]) == results().choices


def test_the_keys_of_the_file_stay() -> None:
    """Others read it: keys and their order are the format."""
    content = results().to_json()
    assert list(content) == [
        "format", "created", "versions", "history", "choices", "first_cycle", "test_pages", "changed_pages",
        "learned", "series", "smaller_budgets", "total_s",
    ]  # fmt: skip
    assert list(content["learned"][0]) == [
        "fitness", "selection", "folds", "replays", "replay_s", "wall_s", "resumed", "terminals",
    ]  # fmt: skip
    assert ExperimentResults.from_json(content) == results()
