"""The user-centric experiment on small contents: policies, estimates, forecasts, the command."""

import difflib
import json
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import rankdata

from scrapy_gp4c.search.queries import parse_query_log
from tests.support.contents import contents_of, random_pages, write_contents
from training import user_centric
from training.comparing.statistics import rank_correlation
from training.papers.user_centric import (
    LAST,
    LINES,
    MOVES,
    NOTHING,
    SHARE,
    Example,
    Halves,
    RefreshPoint,
    Trial,
    examples,
    halves,
    planned_refreshes,
    points,
    prepared,
    rates_of,
    resources,
    updates_of,
)
from training.replaying.refresh_value import QualityMeasure
from training.replaying.search import count

LOG = parse_query_log(["a\t5", "b\t3", "a b\t2", "c d\t1"], "log")


def trial_of(tmp_path: Path, estimate="whole") -> Trial:
    contents = contents_of(tmp_path, random_pages(11, pages=10, cycles=10))
    return prepared("small", count(contents).of(LOG), QualityMeasure(LOG), estimate)


def test_updates_are_the_versions_in_time(tmp_path: Path) -> None:
    """Each with the cycles since the one before, its gain and the share of its shingles that differ."""
    trial = trial_of(tmp_path)
    result = updates_of(trial, 1, 10)
    contents = trial.corpus.contents
    wanted = []
    for page in range(trial.pages):
        last = 0
        for cycle in range(1, 11):
            if contents.history.changed[cycle - 1, page]:
                wanted.append((page, cycle - last, int(contents.version[cycle, page])))
                last = cycle
    assert (
        list(zip(result.page.tolist(), result.gap.tolist(), result.version.tolist(), strict=True)) == wanted
    )
    assert result.difference.min() >= 0.0
    assert result.difference.max() <= 1.0
    rates = rates_of(trial)
    page = int(result.page[0])
    of_page = result.page == page
    assert rates["user-centric"][page] == pytest.approx(np.mean(result.gained[of_page] / result.gap[of_page]))
    assert rates["user-centric per cycle"][page] == pytest.approx(result.gained[of_page].sum() / 10)


def test_refits_measure_updates_by_what_was_known_before_them(tmp_path: Path) -> None:
    """Learnt never, all updates are measured by cycle 0; every third cycle, by the last one learnt before."""
    trial = trial_of(tmp_path)
    never = updates_of(trial, 1, 10)
    assert updates_of(replace(trial, refit_cycles=10), 1, 10).gained == pytest.approx(never.gained, rel=1e-6)
    result = updates_of(replace(trial, refit_cycles=3), 1, 10)
    cycles = np.array([np.flatnonzero(trial.search.live[:, page] == version)[0] for page, version in
                       zip(result.page, result.version, strict=True)])  # fmt: skip
    at = {when: prepared("then", trial.corpus, trial.how._replace(cycle=when)) for when in (0, 3, 6, 9)}
    wanted = [updates_of(at[(cycle - 1) // 3 * 3], 1, 10).gained[row] for row, cycle in enumerate(cycles)]
    assert result.gained == pytest.approx(wanted, rel=1e-6)
    assert result.gained.tolist() != pytest.approx(never.gained.tolist(), rel=1e-6)


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
        assert pages.isdisjoint(np.concatenate(planned_refreshes(trial, policy, 1.0, 3)).tolist())
        assert any(map(len, planned_refreshes(trial, policy, 0.0, 3)))


def test_budgets_for_equal_quality_lie_between_those_tried() -> None:
    """By straight lines; none where no budget reaches the quality."""
    results = [
        RefreshPoint("user-centric", 0.05, 5, 0.9, 0.5, None),
        RefreshPoint("age", 0.05, 5, 0.8, 0.5, None),
        RefreshPoint("age", 0.10, 10, 1.0, 0.5, None),
        RefreshPoint("t*X", 0.05, 5, 0.7, 0.5, None),
    ]
    rows = {row.policy: row for row in resources(results)}
    assert rows["user-centric"].ratio == 1.0
    assert rows["age"].share == pytest.approx(0.075)
    assert rows["age"].ratio == pytest.approx(1.5)
    assert rows["t*X"].share is None


@pytest.mark.slow
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
    result = json.loads((out / "results.json").read_text())
    assert [panel["name"] for panel in result["panels"]] == ["docs, tfidf"]
    assert result["refit_cycles"] == 2
    assert len((out / "points.csv").read_text().splitlines()) == 1 + len(result["panels"][0]["points"])
    for name in (
        "figure-3.png",
        "figure-3.svg",
        "figure-4.png",
        "impact.png",
        "resources.md",
    ):
        assert (out / name).stat().st_size > 100
    assert user_centric.main([source, "-o", str(out), "--quick"]) == 2
    assert "no site 'fastapi/fastapi'; it has: docs" in capsys.readouterr().err


def trial_of_pages(path: Path, pages: list[dict[int, str | None]]) -> Trial:
    contents = contents_of(path, pages)
    return prepared("small", count(contents).of(LOG), QualityMeasure(LOG))


@pytest.fixture(scope="module")
def halves_trial(tmp_path_factory: pytest.TempPathFactory) -> Trial:
    """Twelve pages over twenty cycles: some have more than `LAST` updates in each half."""
    return trial_of_pages(tmp_path_factory.mktemp("halves_trial"), random_pages(5, pages=12, cycles=20))


@pytest.fixture(scope="module")
def halves_of_trial(halves_trial: Trial) -> Halves:
    """Its halves, with fewer permutations than the paper's: what they are is tested where they are made."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "training.papers.user_centric.rank_correlation", partial(rank_correlation, permutations=99)
        )
        return halves(halves_trial)


def gains(halves_trial: Trial, first: int, last: int) -> list[list[float]]:
    """Gain per cycle of every update of each page, walked through cycle by cycle."""
    impact = halves_trial.history.impact
    assert impact is not None
    out: list[list[float]] = [[] for _ in range(halves_trial.pages)]
    for page in range(halves_trial.pages):
        before = 0
        for cycle in range(1, last + 1):
            held, live = (impact.version[at, [page]] for at in (cycle - 1, cycle))
            if held != live:
                if cycle >= first:
                    gained = impact.between(held, live, np.array([page]))[0]
                    out[page].append(float(gained) / (cycle - before))
                before = cycle
    return out


def mean_of(values: list[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def test_halves_are_means_of_their_own_updates(halves_trial: Trial, halves_of_trial: Halves) -> None:
    """A gap across the middle counts in full; pages without updates gain nothing."""
    earlier, later = gains(halves_trial, 1, 10), gains(halves_trial, 11, 20)
    assert max(map(len, earlier)) > LAST
    assert halves_of_trial.earlier == pytest.approx([mean_of(gains_of_page) for gains_of_page in earlier])
    assert halves_of_trial.later == pytest.approx([mean_of(gains_of_page) for gains_of_page in later])
    assert halves_of_trial.later.any()


def test_forecasts_are_rank_correlations(halves_trial: Trial, halves_of_trial: Halves) -> None:
    """Of each way to look back with the later half, over pages that gain in either half and in both."""
    earlier = gains(halves_trial, 1, 10)
    weigh = [[2.0 ** (-age / 4) for age in reversed(range(len(gains_of_page)))] for gains_of_page in earlier]
    looks = {
        "all visits": [mean_of(gains_of_page) for gains_of_page in earlier],
        f"last {LAST}": [mean_of(gains_of_page[-LAST:]) for gains_of_page in earlier],
        "decayed": [
            float(np.average(gains_of_page, weights=w)) if gains_of_page else 0.0
            for gains_of_page, w in zip(earlier, weigh, strict=True)
        ],
        "last": [gains_of_page[-1] if gains_of_page else 0.0 for gains_of_page in earlier],
    }
    assert [row.name for row in halves_of_trial.forecasts] == list(looks)
    for row in halves_of_trial.forecasts:
        values, later = np.array(looks[row.name]), halves_of_trial.later
        for one, some in (
            (row.either, (values > 0) | (later > 0)),
            (row.both, (values > 0) & (later > 0)),
        ):
            assert one.selected == some.sum() > 2
            ranked = [rankdata(part[some].round(9)) for part in (values, later)]
            assert one.spearman == pytest.approx(np.corrcoef(*ranked)[0, 1], abs=1e-9), row.name
            assert one.null_low <= one.null_mean <= one.null_high


def test_too_few_pages_forecast_nothing(tmp_path: Path) -> None:
    """Two pages are always in some order: no number is told of them."""
    pages: list[dict[int, str | None]] = [{0: "a", 1: "b", 3: "a"}, {0: "b", 2: "a b", 4: "b"}, {0: "x"}]
    few = halves(trial_of_pages(tmp_path, pages))
    assert all(np.isnan(row.either.spearman) and row.either.selected <= 2 for row in few.forecasts)


def test_a_half_without_updates_is_nothing(tmp_path: Path) -> None:
    """All that happens, happens late."""
    halves_trial = trial_of_pages(tmp_path, [{0: "a", 3: "b", 4: "a b"}, {0: "b", 4: "a"}, {0: "a b"}])
    assert len(updates_of(halves_trial, 1, 2).page) == 0
    halves_of_trial = halves(halves_trial)
    assert not halves_of_trial.earlier.any()
    assert halves_of_trial.later[:2].min() > 0.0


EXAMPLES_LOG = parse_query_log(
    ["a\t5", "b\t3", "a b\t2", "c d\t1", "e\t1", "c\t2", "d\t2", "a e\t1", "b c\t1"], "log"
)


@pytest.fixture(scope="module")
def examples_trial(tmp_path_factory: pytest.TempPathFactory) -> Trial:
    """Twelve pages over ten cycles; a budget of 5% of them is no page, so three are refreshed."""
    contents = contents_of(tmp_path_factory.mktemp("examples_trial"), random_pages(3, pages=12, cycles=10))
    return prepared("small", count(contents).of(EXAMPLES_LOG), QualityMeasure(EXAMPLES_LOG))


def points_of(tau: float, refreshes: int = 3, share: float = SHARE) -> list[RefreshPoint]:
    return [RefreshPoint(policy, share, refreshes, 1.0, 1.0, tau) for policy in ("SBR", "EBR")]


def cycle_of(examples_trial: Trial, update: int) -> int:
    """When a version first was live, looked up cycle by cycle."""
    page, version = examples_trial.updates.page[update], examples_trial.updates.version[update]
    return next(
        c for c in range(examples_trial.history.cycles + 1) if examples_trial.search.live[c, page] == version
    )


def missed_by(examples_trial: Trial, results: list[RefreshPoint]) -> list[int]:
    """Updates that none of the plans fetches before the page's next one, walked through."""
    out = []
    for update in range(len(examples_trial.updates.page)):
        page, cycle = examples_trial.updates.page[update], cycle_of(examples_trial, update)
        later = [
            cycle_of(examples_trial, u)
            for u in range(len(examples_trial.updates.page))
            if examples_trial.updates.page[u] == page
        ]
        until = min([c for c in later if c > cycle], default=examples_trial.history.cycles + 1)
        caught = False
        for point in results:
            plan = planned_refreshes(examples_trial, point.policy, point.tau or 0.0, point.refreshes)
            caught |= any(page in plan[c - examples_trial.first - 1] for c in range(max(cycle, 1), until))
        if not caught and cycle > examples_trial.first:
            out.append(update)
    return out


def update_of(examples_trial: Trial, one: Example) -> int:
    """Number of the update that an example shows."""
    names = examples_trial.corpus.contents.history.page_names
    assert names is not None
    (result,) = (
        update
        for update in range(len(examples_trial.updates.page))
        if names[examples_trial.updates.page[update]] == one.page
        and cycle_of(examples_trial, update) == one.cycle
    )
    return result


def test_the_largest_update_that_gains_nothing(examples_trial: Trial) -> None:
    """None of those that gain nothing has more new shingles."""
    one = examples(examples_trial, points_of(0.0))[0]
    updates, update = examples_trial.updates, update_of(examples_trial, one)
    assert "nothing gained" in one.rule
    assert one.gained == updates.gained[update] < NOTHING
    assert one.difference == updates.difference[update]
    assert one.difference == updates.difference[updates.gained < NOTHING].max()


@pytest.mark.parametrize(("tau", "refreshes"), [(0.0, 3), (0.0, 1), (0.9, 2)])
def test_the_largest_gain_that_is_missed(examples_trial: Trial, tau: float, refreshes: int) -> None:
    """Of the updates that neither policy fetches in time."""
    result = points_of(tau, refreshes)
    missed = missed_by(examples_trial, result)
    assert 0 < len(missed) < len(examples_trial.updates.page)
    one = examples(examples_trial, result)[-1]
    assert one.rule == "Most gained of what SBR and EBR miss at 5%"
    assert update_of(examples_trial, one) in missed
    assert one.gained == examples_trial.updates.gained[missed].max()


def test_only_policies_with_thresholds_at_the_share_count(examples_trial: Trial) -> None:
    """Other budgets and policies refresh nothing here: the best update of all is missed."""
    others = [*points_of(0.0, 12, share=0.1), RefreshPoint("age", SHARE, 12, 1.0, 1.0, None)]
    best = examples_trial.updates.gained.max()
    assert examples(examples_trial, others)[-1].gained == examples(examples_trial, [])[-1].gained == best


def test_what_is_always_refreshed_is_missed_by_nobody(examples_trial: Trial) -> None:
    """Then there is one example, or none where every update gains."""
    everything = points_of(0.0, examples_trial.pages)
    missed = missed_by(examples_trial, everything)
    result = examples(examples_trial, everything)
    assert len(result) == 1 + bool(missed)
    gaining = replace(examples_trial)
    gaining.__dict__["updates"] = examples_trial.updates._replace(
        gained=np.full(len(examples_trial.updates.page), 1.0)
    )
    assert len(examples(gaining, everything)) == len(result) - 1


def test_an_example_shows_the_update(examples_trial: Trial) -> None:
    """Lines that differ, and queries in whose answer the page moves, those asked most first."""
    for one in examples(examples_trial, points_of(0.0, 1)):
        update = update_of(examples_trial, one)
        new, page = int(examples_trial.updates.version[update]), int(examples_trial.updates.page[update])
        texts = [(examples_trial.corpus.contents.texts[v] or "").splitlines() for v in (new - 1, new)]
        wanted = [line for line in difflib.ndiff(*texts) if line[:1] in "+-"]
        lines = [line for line in one.diff.splitlines() if not line.startswith("@@")]
        assert sorted(line[1:] for line in lines) == sorted(line[2:] for line in wanted)
        assert len(one.diff.splitlines()) <= LINES
        after = examples_trial.search.live[one.cycle]
        before = after.copy()
        before[page] = new - 1
        moves = []
        for query, text in enumerate(EXAMPLES_LOG.texts()):
            ranks = [examples_trial.search.rank_in(query, page, copies) for copies in (before, after)]
            if ranks[0] != ranks[1]:
                moves.append((text, *ranks, EXAMPLES_LOG.frequency[query]))
        assert len(one.moves) == min(len(moves), MOVES)
        assert set(map(tuple, one.moves)) <= set(moves)
        asked = [move.frequency for move in one.moves]
        assert asked == sorted((move[3] for move in moves), reverse=True)[:MOVES]


def test_pages_without_names_have_numbers(tmp_path: Path) -> None:
    """A diff is cut, lines and all."""
    lines = "\n".join(f"{'x' * 200} {number}" for number in range(40))
    contents = contents_of(tmp_path, [{0: "a", 1: lines}, {0: "b"}])
    nameless = replace(contents, history=replace(contents.history, page_names=None))
    (one, *_) = examples(
        prepared("x", count(nameless).of(EXAMPLES_LOG), QualityMeasure(EXAMPLES_LOG)), points_of(0.0, 2)
    )
    assert (one.page, one.cycle) == ("0", 1)
    assert len(one.diff.splitlines()) == LINES
    assert max(map(len, one.diff.splitlines())) == 100
    assert [(move.query, move.before, move.after) for move in one.moves] == [("a", 1, 0)]
