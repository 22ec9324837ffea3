"""The experiment learns from what it does not test on: no fold leaks."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scrapy_gp4c.errors import HistoryError
from tests.support.example_results import results
from training.comparing.learned_score import recorded_choices
from training.evolution.choices import Choices, identity
from training.evolution.evolve import Parameters
from training.evolution.learning import LEARNED, learn
from training.evolution.workers import workers
from training.histories import splits
from training.histories.formats import write_npz
from training.histories.history import ChangeHistory
from training.histories.models import generate
from training.histories.reading import read_history
from training.papers import journal as module
from training.papers.journal import ExperimentResults, read_results


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small history file."""
    path = tmp_path_factory.mktemp("history") / "history.npz"
    write_npz(path, generate("poisson", 300, 18, 1))
    return path


@settings(deadline=None, max_examples=60)
@given(
    pages=st.integers(5, 120),
    cycles=st.integers(9, 40),
    seed=st.integers(0, 5),
    protocol=st.sampled_from(("journal", "thesis")),
)
def test_a_fold_never_leaks(pages: int, cycles: int, seed: int, protocol: splits.Protocol) -> None:
    """No page of training or validation is in the test set of its fold, nor is a day, in the journal's.

    Pages are told by their names. Days are told by turning over the bits of some: the parts that these
    days do not belong to stay the same, and the others change.
    """
    rng = np.random.default_rng(seed)
    history = ChangeHistory(
        changed=rng.random((cycles, pages)) < 0.5,
        site=np.zeros(pages, np.int32),
        page_names=[f"p{i}" for i in range(pages)],
    )
    parts = splits.protocol_splits(history, protocol, seed=seed)
    tested: list[str] = []
    for part in parts:
        train, validation, test = (set(one.page_names or ()) for one in part)
        assert not train & test
        assert not validation & test
        assert not train & validation
        tested += sorted(test)
    assert sorted(tested) == sorted(history.page_names or ())  # each page is tested on once
    if protocol == "thesis":  # all days throughout
        assert all(one.cycles == cycles for part in parts for one in part)
        return
    first_test_day = 2 * (cycles // 3)
    for turned, same, other in (
        (slice(first_test_day, None), (0, 1), 2),
        (slice(0, first_test_day), (2,), 0),
    ):
        changed = history.changed.copy()
        changed[turned] = ~changed[turned]
        again = splits.protocol_splits(ChangeHistory(changed=changed, site=history.site), protocol, seed=seed)
        for part, one in zip(parts, again, strict=True):
            for which in same:
                assert np.array_equal(part[which].changed, one[which].changed)
            assert not np.array_equal(part[other].changed, one[other].changed)


def test_learning_never_sees_the_test_days(history: Path) -> None:
    """Other bits on all test days: the same functions are learned and chosen, their test values differ."""
    whole = read_history(history)
    changed = whole.changed.copy()
    first_test_day = 2 * (whole.cycles // 3)
    changed[first_test_day:] = np.random.default_rng(1).random(changed[first_test_day:].shape) < 0.2
    other = ChangeHistory(changed=changed, site=whole.site)
    choices = Choices(
        protocol="journal",
        budget=0.1,
        seeds=1,
        selection="avg",
        parameters=Parameters(population=12, generations=2, terminals=("n", "X", "t")),
    )
    with workers(1) as parallel:
        one, two = (learn(some, choices, parallel) for some in (whole, other))
    assert [fold.text for fold in one.folds] == [fold.text for fold in two.folds]
    for ours, theirs in zip(one.folds, two.folds, strict=True):
        for part in ("training", "validation"):
            assert ours.table[LEARNED][part] == theirs.table[LEARNED][part]
        assert ours.table[LEARNED]["test"] != theirs.table[LEARNED]["test"]


def test_the_experiment_tests_on_what_it_did_not_learn_from(history: Path) -> None:
    """What `arrange` hands to learning are the splits' parts: the test truth has the test pages' bits."""
    whole = read_history(history)
    choices = Choices(protocol="journal", budget=0.1)
    parts = splits.protocol_splits(whole, "journal", seed=choices.seed, warmup=choices.warmup)
    for truths, part in zip(module.prepare_splits(whole, choices), parts, strict=True):
        for truth, one in zip(truths[:3], part, strict=True):
            assert np.array_equal(truth.changed, one.changed)


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
        "format", "created", "preset", "versions", "history", "choices", "first_cycle", "test_pages",
        "changed_pages", "learned", "series", "smaller_budgets", "total_s",
    ]  # fmt: skip
    assert list(content["learned"][0]) == [
        "fitness", "selection", "folds", "replays", "replay_s", "wall_s", "resumed", "terminals",
    ]  # fmt: skip
    assert ExperimentResults.from_json(content) == results()
