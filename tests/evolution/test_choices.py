"""What can be chosen, and the parts of a history prepared for it."""

import dataclasses

import numpy as np
import pytest

from scrapy_gp4c.errors import Gp4cError, HistoryError, LearningError
from training.evolution.choices import Choices, forgetful, identity, prepare_splits
from training.evolution.evolve import Parameters
from training.histories.history import ChangeHistory
from training.histories.models import generate

SMALL = Parameters(population=20, generations=5, best_count=8)
CHOICES = Choices(parameters=SMALL, seeds=2, budget=0.1)
HISTORY = generate("poisson", 400, 30, 3)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"fitness": "speed"}, "there is no fitness 'speed'"),
        ({"protocol": "secret"}, "protocol must be one of simple, journal, thesis; found 'secret'"),
        ({"clock": "sun"}, "clock must be one of visits, cycles"),
        ({"ties": "none"}, "ties must be one of"),
        ({"selection": "worst"}, "selection must be one of best, sum, avg"),
        ({"seeds": 0}, "seeds must be at least 1; found 0"),
        ({"seed": -1}, "seed must be at least 0"),
        ({"warmup": -1}, "warmup must be at least 0"),
        ({"forget": 1.0}, "forget must be a share from 0 to below 1; found 1.0"),
        ({"forget": float("nan")}, "forget must be a share"),
    ],
)
def test_bad_choices(values, words):
    """One clear error each."""
    with pytest.raises(LearningError, match=words):
        Choices(**values)


def history_of(changed: np.ndarray) -> ChangeHistory:
    return ChangeHistory(changed=changed, site=np.zeros(changed.shape[1], np.int32))


@pytest.mark.parametrize(
    ("history", "choices", "error", "words"),
    [
        (HISTORY.take(cycles=slice(8)), CHOICES, HistoryError, "needs at least 5 pages and 9 cycles"),
        (HISTORY.take(np.array([3])), CHOICES, HistoryError, "has 1 page and"),
        (history_of(np.zeros((30, 50), np.bool_)), CHOICES, LearningError, "no page changes in the training"),
        (
            history_of(np.ones((30, 50), np.bool_)),
            CHOICES,
            LearningError,
            "every page changes in every cycle",
        ),
        (
            HISTORY,
            dataclasses.replace(CHOICES, budget=401),
            LearningError,
            "401 visits per cycle is above the 400",
        ),
        (HISTORY, dataclasses.replace(CHOICES, budget=1.5), HistoryError, "a budget is a share"),
        (HISTORY, dataclasses.replace(CHOICES, budget=0), HistoryError, "a budget is a share"),
    ],
)
def test_history_that_cannot_teach(history, choices, error, words):
    """Too short, too few pages, constant, a budget that does not fit: an error before any evolution."""
    with pytest.raises(error, match=words) as caught:
        prepare_splits(history, choices)
    assert isinstance(caught.value, Gp4cError)


def test_a_count_as_budget_means_the_same_share_of_every_part():
    """40 of 400 pages: a tenth of each part."""
    (by_count,) = prepare_splits(HISTORY, dataclasses.replace(CHOICES, budget=40))
    (by_share,) = prepare_splits(HISTORY, dataclasses.replace(CHOICES, budget=0.1))
    assert [t.k for t in by_count[:3]] == [t.k for t in by_share[:3]] == [24, 8, 8]


def test_forgetting_takes_out_a_share_of_the_changes():
    """A share of the ones becomes zeros, no zero a one; the seed decides which; weights stay."""
    weighted = dataclasses.replace(HISTORY, weight=np.arange(400.0))
    part = forgetful(weighted, 0.2, (1, 0))
    assert not (part.changed & ~HISTORY.changed).any()
    ones = HISTORY.changed.sum()
    assert part.changed.sum() == pytest.approx(0.8 * ones, abs=4 * np.sqrt(0.16 * ones))
    np.testing.assert_array_equal(part.changed, forgetful(weighted, 0.2, (1, 0)).changed)
    assert (part.changed != forgetful(weighted, 0.2, (1, 1)).changed).any()
    np.testing.assert_array_equal(part.weight, weighted.weight)


def test_only_training_forgets():
    """Validation and test are what was recorded."""
    (plain,) = prepare_splits(HISTORY, CHOICES)
    (noisy,) = prepare_splits(HISTORY, dataclasses.replace(CHOICES, forget=0.2))
    assert noisy[0].changed.sum() < plain[0].changed.sum()
    for one, other in zip(noisy[1:3], plain[1:3], strict=True):
        np.testing.assert_array_equal(one.changed, other.changed)


def test_identity_tells_histories_and_choices_apart():
    """Whatever changes the result changes the identity; the selection rule, applied last, does not."""
    run = identity(HISTORY, CHOICES)
    changed = HISTORY.changed.copy()
    changed[0, 0] ^= True
    assert identity(dataclasses.replace(HISTORY, changed=changed), CHOICES) != run
    for values in ({"seed": 9}, {"fitness": "age"}, {"parameters": dataclasses.replace(SMALL, elite=2)}):
        assert identity(HISTORY, dataclasses.replace(CHOICES, **values)) != run
    assert identity(HISTORY, dataclasses.replace(CHOICES, selection="sum")) == run
