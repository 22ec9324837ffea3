"""Selecting the k best of all pages of a replay.

Scores of all pages in the rounds of a cycle.

Ranking the pages of a replay by buckets, and page by page.
"""

from __future__ import annotations

from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from scrapy_gp4c.policies.base import Block
from scrapy_gp4c.policies.table import load as load_policy
from scrapy_gp4c.policies.top_k import CycleScorer
from scrapy_gp4c.scoring import functions
from scrapy_gp4c.scoring.common_subexpressions import Level
from scrapy_gp4c.scoring.ranking import top_k
from training.histories.history import ChangeHistory
from training.replaying import buckets, ranked
from training.replaying.dense import replay_dense
from training.replaying.metrics import METRICS
from training.replaying.prepared import prepare
from training.replaying.ranked import BestRows, RoundScores, Shared
from training.replaying.replay import load

SCORES = st.one_of(
    st.sampled_from([0.0, -0.0, 1.0, -1.0, 1e-300, 5e-324, -5e-324, 1e300, -1e300, 0.1, 0.1 + 1e-16]),
    st.floats(allow_nan=False, allow_infinity=False),
)


@example([0.0, 0.0, 0.0, 0.0, -0.0], 2, 1, False)
@example([1.0, 2.0] * 60, 110, 1, True)
@given(st.lists(SCORES, min_size=1, max_size=80), st.integers(0, 80), st.integers(0, 2**32), st.booleans())
@settings(max_examples=300, deadline=None)
def test_it_selects_what_a_ranking_of_all_would(scores, k, seed, few_ties):
    """The same rows in the same order as `top_k`, whatever the scores, with equal ties and large ones."""
    values = np.array(scores)
    rng = np.random.default_rng(seed)
    ties = rng.integers(0, 3 if few_ties else 2**64 - 1, len(values), dtype=np.uint64)
    k = min(k, len(values))
    selection = BestRows(len(values))
    for few in (0, len(values) - 1, 100):  # its memory is used again
        with patch.object(ranked, "FEW", few):
            found = selection.best(values, k, lambda rows: ties[rows])
        assert found.tolist() == top_k(values, ties, k).tolist()


def test_ties_are_asked_for_where_they_decide():
    """Of the pages that are chosen, and of those at the border: never of all."""
    scores = np.arange(3000.0)
    scores[2600:2650] = 2600.0
    asked = []

    def ties_of(rows):
        asked.append(np.sort(rows).tolist())
        return rows.astype(np.uint64)

    BestRows(3000).best(scores, 375, ties_of)
    assert asked == [list(range(2600, 2650)), [*range(2600, 2625), *range(2650, 3000)]]


PAGES = 6


class _Asked(dict):
    """Columns that tell which of them were asked for."""

    def __init__(self, columns, asked):
        super().__init__(columns)
        self.asked = asked

    def __getitem__(self, name):
        self.asked.add(name)
        return super().__getitem__(name)


class _Pages:
    """Pages in two states and three directories."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.state, self.group = self.rng.integers(0, 2, PAGES), self.rng.integers(0, 3, PAGES)
        self.own = {
            "last_cycle": self.rng.integers(0, 3, 2),
            "X": self.rng.integers(0, 5, 2),
            "spent": np.zeros(2),
        }
        self.draw = self.rng.integers(0, 2**63, PAGES).astype(np.uint64)
        self.move()

    def move(self):
        """Another round."""
        self.directory = {"near": self.rng.random(3)}
        self.surprise = self.rng.random(PAGES)

    def columns(self):
        """Those of all pages."""
        own = {name: values[self.state] for name, values in self.own.items()}
        others = {"near": self.directory["near"][self.group], "surprise_site": self.surprise}
        return own | others | {"draw": self.draw}

    def told(self, scores, scores_of):
        """What is told, and the columns that pages were asked for."""
        asked = set()
        shared = {
            Level.OWN: Shared(self.own, self.state),
            Level.DIRECTORY: Shared(self.directory, self.group),
        }

        def states():
            for rows in (slice(0, 4), slice(4, PAGES)):
                yield rows, _Asked({name: values[rows] for name, values in self.columns().items()}, asked)

        if scores.parts_of(scores_of) is None:
            pages = np.arange(PAGES, dtype=np.uint32)
            blocks = ((rows, Block(pages[rows], state, lambda rows: rows)) for rows, state in states())
            return scores.of_blocks(scores_of, blocks), asked
        return scores.tell(scores_of.cycle, shared, states()), asked


def test_from_the_third_round_on_only_what_moves_is_read():
    """The second one puts draws aside, the third reads no page's; a cycle later all is read again."""
    pages, scores = _Pages(1), RoundScores(PAGES)
    scored = CycleScorer(functions.load("random * X * surprise_site * near"), 4)
    read = []
    for number in range(4):
        pages.move()
        if number == 3:
            scores.begin()
        told, asked = pages.told(scores, scored)
        assert told.tobytes() == scored.function.scores(pages.columns(), 4).tobytes()
        read.append(asked)
    everything = {"draw", "X", "surprise_site"}
    assert [asked & everything for asked in read] == [
        everything,
        everything,
        {"surprise_site"},
        everything,
    ]


def test_another_function_is_told_by_itself():
    """Also in the middle of a cycle, and a callable is asked every time."""
    pages, scores = _Pages(2), RoundScores(PAGES)
    for text in ("t * near", "t * near", "X * near", "random * t", "X * near", "random * t", "t * near"):
        function = functions.load(text)
        told, _ = pages.told(scores, CycleScorer(function, 4))
        assert told.tobytes() == function.scores(pages.columns(), 4).tobytes()
    told, _ = pages.told(scores, lambda block: block.state["X"] * 2.0)
    assert told.tolist() == (pages.columns()["X"] * 2.0).tolist()


@pytest.mark.parametrize(
    "text",
    [
        "t * (X + 0.5) * near",
        "near * t",
        "near * near",
        "near",
        "t + spent",
        "log(t) - near / X",
        "1e300 * X * (1e300 * near)",
        "(t + spent) * near * sqrt(surprise_site)",
    ],
)
def test_pages_that_share_a_part_read_nothing_of_their_own_for_it(text):
    """Scores are those of the function bit for bit; an own state or a directory is told once."""
    pages, scores = _Pages(3), RoundScores(PAGES)
    scored = CycleScorer(functions.load(text), 4)
    told, asked = pages.told(scores, scored)
    assert told.tobytes() == scored.function.scores(pages.columns(), 4).tobytes()
    assert asked <= {"surprise_site", next(iter(pages.columns()))}


TALLIES = {metric.tally for metric in METRICS.values() if metric.tally is not None}


@pytest.mark.parametrize("slack", [0, buckets.SLACK])
@pytest.mark.parametrize("policy", ["top_k", "rounds(rounds=3)", "rounds(rounds=3, sample=0.3)"])
@pytest.mark.parametrize(
    "score", ["t * (X + 0.5) * near", "(t + spent) * X", "p / near_dir - near_site", "random * surprise_dir"]
)
def test_replays_by_cells_are_those_page_by_page(score, policy, slack):
    """All visits and all metrics, also with states dropped on the way, and in memory of the replay before."""
    rng = np.random.default_rng(3)
    pages = 300
    names = [f"d{rng.integers(0, 9)}/{page}" for page in range(pages)]
    changed = rng.random((14, pages)) < rng.random(pages)
    history = ChangeHistory(changed, rng.integers(0, 5, pages).astype(np.int32), page_names=names)
    prepared = prepare(history, budget=0.2)
    told = []
    for many in (pages + 1, 0, 0):
        visits = []
        with patch.object(ranked, "MANY", many), patch.object(buckets, "SLACK", slack):
            tallies = replay_dense(
                prepared,
                load(score),
                TALLIES,
                lambda cycle, own, found, to=visits: to.append((cycle, own.tolist(), found.tolist())),
                load_policy(policy),
            )
        told.append((visits, {name: getattr(tallies, name).tolist() for name in TALLIES}))
    assert told[0] == told[1] == told[2]
