"""Scores of all pages in the rounds of a cycle."""

from __future__ import annotations

import numpy as np
import pytest

from scrapy_gp4c.policies.policy import Block
from scrapy_gp4c.policies.top_k import Scored
from scrapy_gp4c.scoring import functions
from scrapy_gp4c.scoring.common_subexpressions import Level
from training.replaying.round_scores import RoundScores, Shared

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
    scored = Scored(functions.load("random * X * surprise_site * near"), 4)
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
        told, _ = pages.told(scores, Scored(function, 4))
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
    scored = Scored(functions.load(text), 4)
    told, asked = pages.told(scores, scored)
    assert told.tobytes() == scored.function.scores(pages.columns(), 4).tobytes()
    assert asked <= {"surprise_site", next(iter(pages.columns()))}
