"""Forecasts of the second half from the first, against walking through the updates."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy.stats import rankdata

from scrapy_gp4c.index.queries import parse_query_log
from tests.support.contents import contents_of, random_pages
from training.comparing.forecasts import LAST, Halves, halves
from training.comparing.refreshing_trial import Trial, prepared, updates_of
from training.replaying.corpus import count
from training.replaying.worths import Measuring

LOG = parse_query_log(["a\t5", "b\t3", "a b\t2", "c d\t1"], "log")


def trial_of(path: Path, pages: list[dict[int, str | None]]) -> Trial:
    """Of these contents."""
    contents = contents_of(path, pages)
    return prepared("small", count(contents).of(LOG), Measuring(LOG))


@pytest.fixture(scope="module")
def trial(tmp_path_factory: pytest.TempPathFactory) -> Trial:
    """Twelve pages over twenty cycles: some have more than `LAST` updates in each half."""
    return trial_of(tmp_path_factory.mktemp("trial"), random_pages(5, pages=12, cycles=20))


@pytest.fixture(scope="module")
def found(trial: Trial) -> Halves:
    """What is told of it."""
    return halves(trial)


def gains(trial: Trial, first: int, last: int) -> list[list[float]]:
    """Gain per cycle of every update of each page, walked through cycle by cycle."""
    impact = trial.history.impact
    assert impact is not None
    out: list[list[float]] = [[] for _ in range(trial.pages)]
    for page in range(trial.pages):
        before = 0
        for cycle in range(1, last + 1):
            held, live = (impact.version[at, [page]] for at in (cycle - 1, cycle))
            if held != live:
                if cycle >= first:
                    gained = impact.between(held, live, np.array([page]))[0]
                    out[page].append(float(gained) / (cycle - before))
                before = cycle
    return out


def mean(values: list[float]) -> float:
    """0 of none."""
    return sum(values) / len(values) if values else 0.0


def test_halves_are_means_of_their_own_updates(trial: Trial, found: Halves) -> None:
    """A gap across the middle counts in full; pages without updates gain nothing."""
    earlier, later = gains(trial, 1, 10), gains(trial, 11, 20)
    assert max(map(len, earlier)) > LAST
    assert found.earlier == pytest.approx([mean(own) for own in earlier])
    assert found.later == pytest.approx([mean(own) for own in later])
    assert found.later.any()


def test_forecasts_are_rank_correlations(trial: Trial, found: Halves) -> None:
    """Of each way to look back with the later half, over pages that gain in either."""
    earlier = gains(trial, 1, 10)
    weigh = [[2.0 ** (-age / 4) for age in reversed(range(len(own)))] for own in earlier]
    looks = {
        "all visits": [mean(own) for own in earlier],
        f"last {LAST}": [mean(own[-LAST:]) for own in earlier],
        "decayed": [
            float(np.average(own, weights=w)) if own else 0.0 for own, w in zip(earlier, weigh, strict=True)
        ],
        "last": [own[-1] if own else 0.0 for own in earlier],
    }
    assert [row.name for row in found.forecasts] == list(looks)
    for row in found.forecasts:
        values = np.array(looks[row.name])
        some = (values > 0) | (found.later > 0)
        assert row.pages == some.sum() > 2
        ranked = [rankdata(part[some].round(9)) for part in (values, found.later)]
        assert row.spearman == pytest.approx(np.corrcoef(*ranked)[0, 1], abs=1e-9), row.name


def test_too_few_pages_forecast_nothing(tmp_path: Path) -> None:
    """Two pages are always in some order: no number is told of them."""
    pages: list[dict[int, str | None]] = [{0: "a", 1: "b", 3: "a"}, {0: "b", 2: "a b", 4: "b"}, {0: "x"}]
    few = halves(trial_of(tmp_path, pages))
    assert all(np.isnan(row.spearman) and row.pages <= 2 for row in few.forecasts)


def test_a_half_without_updates_is_nothing(tmp_path: Path) -> None:
    """All that happens, happens late."""
    trial = trial_of(tmp_path, [{0: "a", 3: "b", 4: "a b"}, {0: "b", 4: "a"}, {0: "a b"}])
    assert len(updates_of(trial, 1, 2).page) == 0
    found = halves(trial)
    assert not found.earlier.any()
    assert found.later[:2].min() > 0.0
