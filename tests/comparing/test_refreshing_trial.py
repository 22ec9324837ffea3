"""The user-centric experiment on small contents: policies, estimates, forecasts, the command."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from scrapy_gp4c.index.queries import parse_query_log
from tests.support.contents import contents_of, random_pages, write_contents
from training import user_centric
from training.comparing.forecasts import halves
from training.comparing.refreshing_trial import (
    Point,
    Trial,
    points,
    prepared,
    rates_of,
    resources,
    updates_of,
    visits_of,
)
from training.replaying.corpus import count
from training.replaying.worths import Measuring

LOG = parse_query_log(["a\t5", "b\t3", "a b\t2", "c d\t1"], "log")


def trial_of(tmp_path: Path, estimate="whole") -> Trial:
    """Ten pages over ten cycles."""
    contents = contents_of(tmp_path, random_pages(11, pages=10, cycles=10))
    return prepared("small", count(contents).of(LOG), Measuring(LOG), estimate)


def test_updates_are_the_versions_in_time(tmp_path: Path) -> None:
    """Each with the cycles since the one before, its gain and the share of its shingles that differ."""
    trial = trial_of(tmp_path)
    found = updates_of(trial, 1, 10)
    contents = trial.corpus.contents
    wanted = []
    for page in range(trial.pages):
        last = 0
        for cycle in range(1, 11):
            if contents.history.changed[cycle - 1, page]:
                wanted.append((page, cycle - last, int(contents.version[cycle, page])))
                last = cycle
    assert list(zip(found.page.tolist(), found.gap.tolist(), found.version.tolist(), strict=True)) == wanted
    assert found.difference.min() >= 0.0
    assert found.difference.max() <= 1.0
    rates = rates_of(trial)
    page = int(found.page[0])
    own = found.page == page
    assert rates["user-centric"][page] == pytest.approx(np.mean(found.gained[own] / found.gap[own]))
    assert rates["user-centric per cycle"][page] == pytest.approx(found.gained[own].sum() / 10)


def test_refits_measure_updates_by_what_was_known_before_them(tmp_path: Path) -> None:
    """Learnt never, all updates are measured by cycle 0; every third cycle, by the last one learnt before."""
    trial = trial_of(tmp_path)
    never = updates_of(trial, 1, 10)
    assert updates_of(replace(trial, refit_cycles=10), 1, 10).gained == pytest.approx(never.gained, rel=1e-6)
    found = updates_of(replace(trial, refit_cycles=3), 1, 10)
    cycles = np.array([np.flatnonzero(trial.search.live[:, page] == version)[0] for page, version in
                       zip(found.page, found.version, strict=True)])  # fmt: skip
    at = {when: prepared("then", trial.corpus, trial.how._replace(cycle=when)) for when in (0, 3, 6, 9)}
    wanted = [updates_of(at[(cycle - 1) // 3 * 3], 1, 10).gained[row] for row, cycle in enumerate(cycles)]
    assert found.gained == pytest.approx(wanted, rel=1e-6)
    assert found.gained.tolist() != pytest.approx(never.gained.tolist(), rel=1e-6)


def test_every_policy_is_perfect_when_all_pages_are_refreshed(tmp_path: Path) -> None:
    """With the whole budget there is nothing to choose; with less, quality falls."""
    trial = trial_of(tmp_path)
    all_of_it = {point.policy: point.quality for point in points(trial, (1.0,), (0.0, 0.5))}
    assert all_of_it == pytest.approx(dict.fromkeys(all_of_it, 1.0), abs=1e-12)
    assert [point.impact for point in points(trial, (1.0,), (0.0,))] == pytest.approx([1.0] * 6)
    assert {"user-centric", "SBR", "EBR", "age", "t*X"} <= all_of_it.keys()
    less = [point.quality for point in points(trial, (0.1,), (0.0, 0.5))]
    assert max(less) < 1.0
    observed = [point.policy for point in points(trial, (0.2,), observed=True)]
    assert observed == ["user-centric", "dq_decay", "dq_last", "t*X", "age"]


def test_halves_are_estimated_from_the_first_and_judged_on_the_second(tmp_path: Path) -> None:
    """In sync at the middle; updates after it are not looked at."""
    trial = trial_of(tmp_path, "half")
    assert (trial.first, trial.last, trial.judged) == (5, 5, 5)
    assert len(trial.updates.page) == int(trial.history.changed[:5].sum())
    assert all(0.0 < point.quality <= 1.0 + 1e-12 for point in points(trial, (0.2,), (0.0,)))


def test_thresholds_leave_out_small_updates(tmp_path: Path) -> None:
    """Pages whose updates are all below are not refreshed; at 1 only what shares no shingle counts."""
    trial = trial_of(tmp_path)
    small = trial.updates.difference < 1.0
    pages = set(trial.updates.page[small].tolist()) - set(trial.updates.page[~small].tolist())
    for policy in ("SBR", "EBR"):
        assert not visits_of(trial, policy, 1.0, 3)[sorted(pages)].any()
        assert visits_of(trial, policy, 0.0, 3).sum() > 0


def test_budgets_for_equal_quality_lie_between_those_tried() -> None:
    """By straight lines; none where no budget reaches the quality."""
    found = [
        Point("user-centric", 0.05, 5, 0.9, 0.5, None),
        Point("age", 0.05, 5, 0.8, 0.5, None),
        Point("age", 0.10, 10, 1.0, 0.5, None),
        Point("t*X", 0.05, 5, 0.7, 0.5, None),
    ]
    rows = {row.policy: row for row in resources(found)}
    assert rows["user-centric"].ratio == 1.0
    assert rows["age"].share == pytest.approx(0.075)
    assert rows["age"].ratio == pytest.approx(1.5)
    assert rows["t*X"].share is None


def test_forecasts_look_back_as_the_terminals_do(tmp_path: Path) -> None:
    """All visits, the last four, decayed, the last one."""
    found = halves(trial_of(tmp_path))
    assert [row.name for row in found.forecasts] == ["all visits", "last 4", "decayed", "last"]
    assert all(-1.0 <= row.spearman <= 1.0 for row in found.forecasts)
    assert found.earlier.shape == found.later.shape == (10,)


def test_the_command_writes_figures_tables_and_results(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """On one site; a site that is not there is named."""
    source = str(write_contents(tmp_path / "contents", random_pages(11, pages=20, cycles=8)))
    out = tmp_path / "out"
    assert user_centric.main([source, "-o", str(out), "--quick", "--site", "docs", "--refit", "2"]) == 0
    printed = capsys.readouterr().out
    assert "docs, tfidf: 20 pages" in printed
    assert "Seed 1" in printed
    found = json.loads((out / "results.json").read_text())
    assert [panel["name"] for panel in found["panels"]] == ["docs, tfidf"]
    assert found["refit_cycles"] == 2
    assert len((out / "points.csv").read_text().splitlines()) == 1 + len(found["panels"][0]["points"])
    for name in (
        "figure-3.png",
        "figure-3.svg",
        "figure-4.png",
        "figure-4-loss.svg",
        "impact.png",
        "resources.md",
    ):
        assert (out / name).stat().st_size > 100
    assert user_centric.main([source, "-o", str(out), "--quick"]) == 2
    assert "no site 'fastapi/fastapi'; it has: docs" in capsys.readouterr().err
