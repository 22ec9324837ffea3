"""Updates that are shown as examples: chosen by their rules, told as they are."""

from __future__ import annotations

import difflib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from scrapy_gp4c.index.queries import parse_query_log
from tests.support.contents import contents_of, random_pages
from training.comparing.examples import LINES, MOVES, NOTHING, SHARE, Example, examples
from training.comparing.refreshing_trial import Point, Trial, planned_refreshes, prepared
from training.replaying.corpus import count
from training.replaying.worths import Measuring

LOG = parse_query_log(["a\t5", "b\t3", "a b\t2", "c d\t1", "e\t1", "c\t2", "d\t2", "a e\t1", "b c\t1"], "log")


@pytest.fixture(scope="module")
def trial(tmp_path_factory: pytest.TempPathFactory) -> Trial:
    """Twelve pages over ten cycles; a budget of 5% of them is no page, so three are refreshed."""
    contents = contents_of(tmp_path_factory.mktemp("trial"), random_pages(3, pages=12, cycles=10))
    return prepared("small", count(contents).of(LOG), Measuring(LOG))


def points_of(tau: float, refreshes: int = 3, share: float = SHARE) -> list[Point]:
    """SBR and EBR at a threshold."""
    return [Point(policy, share, refreshes, 1.0, 1.0, tau) for policy in ("SBR", "EBR")]


def cycle_of(trial: Trial, update: int) -> int:
    """When a version first was live, looked up cycle by cycle."""
    page, version = trial.updates.page[update], trial.updates.version[update]
    return next(c for c in range(trial.history.cycles + 1) if trial.search.live[c, page] == version)


def missed_by(trial: Trial, found: list[Point]) -> list[int]:
    """Updates that none of the plans fetches before the page's next one, walked through."""
    out = []
    for update in range(len(trial.updates.page)):
        page, cycle = trial.updates.page[update], cycle_of(trial, update)
        later = [cycle_of(trial, u) for u in range(len(trial.updates.page)) if trial.updates.page[u] == page]
        until = min([c for c in later if c > cycle], default=trial.history.cycles + 1)
        caught = False
        for point in found:
            plan = planned_refreshes(trial, point.policy, point.tau or 0.0, point.refreshes)
            caught |= any(page in plan[c - trial.first - 1] for c in range(max(cycle, 1), until))
        if not caught and cycle > trial.first:
            out.append(update)
    return out


def update_of(trial: Trial, one: Example) -> int:
    """Number of the update that an example shows."""
    names = trial.corpus.contents.history.page_names
    assert names is not None
    (found,) = (
        update
        for update in range(len(trial.updates.page))
        if names[trial.updates.page[update]] == one.page and cycle_of(trial, update) == one.cycle
    )
    return found


def test_the_largest_update_that_gains_nothing(trial: Trial) -> None:
    """None of those that gain nothing has more new shingles."""
    one = examples(trial, points_of(0.0))[0]
    updates, update = trial.updates, update_of(trial, one)
    assert "nothing gained" in one.rule
    assert one.gained == updates.gained[update] < NOTHING
    assert one.difference == updates.difference[update]
    assert one.difference == updates.difference[updates.gained < NOTHING].max()


@pytest.mark.parametrize(("tau", "refreshes"), [(0.0, 3), (0.0, 1), (0.9, 2)])
def test_the_largest_gain_that_is_missed(trial: Trial, tau: float, refreshes: int) -> None:
    """Of the updates that neither policy fetches in time."""
    found = points_of(tau, refreshes)
    missed = missed_by(trial, found)
    assert 0 < len(missed) < len(trial.updates.page)
    one = examples(trial, found)[-1]
    assert one.rule == "Most gained of what SBR and EBR miss at 5%"
    assert update_of(trial, one) in missed
    assert one.gained == trial.updates.gained[missed].max()


def test_only_policies_with_thresholds_at_the_share_count(trial: Trial) -> None:
    """Other budgets and policies refresh nothing here: the best update of all is missed."""
    others = [*points_of(0.0, 12, share=0.1), Point("age", SHARE, 12, 1.0, 1.0, None)]
    best = trial.updates.gained.max()
    assert examples(trial, others)[-1].gained == examples(trial, [])[-1].gained == best


def test_what_is_always_refreshed_is_missed_by_nobody(trial: Trial) -> None:
    """Then there is one example, or none where every update gains."""
    everything = points_of(0.0, trial.pages)
    left = missed_by(trial, everything)
    found = examples(trial, everything)
    assert len(found) == 1 + bool(left)
    gaining = replace(trial)
    gaining.__dict__["updates"] = trial.updates._replace(gained=np.full(len(trial.updates.page), 1.0))
    assert len(examples(gaining, everything)) == len(found) - 1


def test_an_example_shows_the_update(trial: Trial) -> None:
    """Lines that differ, and queries in whose answer the page moves, those asked most first."""
    for one in examples(trial, points_of(0.0, 1)):
        update = update_of(trial, one)
        new, page = int(trial.updates.version[update]), int(trial.updates.page[update])
        texts = [(trial.corpus.contents.texts[v] or "").splitlines() for v in (new - 1, new)]
        wanted = [line for line in difflib.ndiff(*texts) if line[:1] in "+-"]
        told = [line for line in one.diff.splitlines() if not line.startswith("@@")]
        assert sorted(line[1:] for line in told) == sorted(line[2:] for line in wanted)
        assert len(one.diff.splitlines()) <= LINES
        after = trial.search.live[one.cycle]
        before = after.copy()
        before[page] = new - 1
        moves = []
        for query, text in enumerate(LOG.texts()):
            ranks = [trial.search.rank_in(query, page, copies) for copies in (before, after)]
            if ranks[0] != ranks[1]:
                moves.append((text, *ranks, LOG.frequency[query]))
        assert len(one.moves) == min(len(moves), MOVES)
        assert set(map(tuple, one.moves)) <= set(moves)
        asked = [move.frequency for move in one.moves]
        assert asked == sorted((move[3] for move in moves), reverse=True)[:MOVES]


def test_pages_without_names_have_numbers(tmp_path: Path) -> None:
    """A diff is cut, lines and all."""
    lines = "\n".join(f"{'x' * 200} {number}" for number in range(40))
    contents = contents_of(tmp_path, [{0: "a", 1: lines}, {0: "b"}])
    nameless = replace(contents, history=replace(contents.history, page_names=None))
    (one, *_) = examples(prepared("x", count(nameless).of(LOG), Measuring(LOG)), points_of(0.0, 2))
    assert (one.page, one.cycle) == ("0", 1)
    assert len(one.diff.splitlines()) == LINES
    assert max(map(len, one.diff.splitlines())) == 100
    assert [(move.query, move.before, move.after) for move in one.moves] == [("a", 1, 0)]
