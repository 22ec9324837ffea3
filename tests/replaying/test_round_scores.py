"""Scores of all pages in the rounds of a cycle."""

from __future__ import annotations

import numpy as np

from scrapy_gp4c.policies.policy import Block
from scrapy_gp4c.policies.top_k import Scored
from scrapy_gp4c.scoring import functions
from training.replaying.round_scores import RoundScores

PAGES = 6


class _Asked(dict):
    """Columns that tell which of them were asked for."""

    def __init__(self, columns, asked):
        super().__init__(columns)
        self.asked = asked

    def __getitem__(self, name):
        self.asked.add(name)
        return super().__getitem__(name)


def _blocks(columns, asked):
    for rows in (slice(0, 4), slice(4, PAGES)):
        own = {name: values[rows] for name, values in columns.items()}
        yield rows, Block(np.arange(PAGES, dtype=np.uint32)[rows], _Asked(own, asked), lambda rows: rows)


def test_from_the_third_round_on_only_what_moves_is_read():
    """The second one puts the parts aside, the third reads `near` alone; a cycle later all is read again."""
    rng = np.random.default_rng(1)
    columns = {"last_cycle": rng.integers(0, 3, PAGES), "X": rng.integers(0, 5, PAGES)}
    scores = RoundScores(PAGES)
    scored = Scored(functions.load("t * (X + 0.5) * near"), 4)
    read = []
    for number in range(4):
        columns["near"] = rng.random(PAGES)
        if number == 3:
            scores.begin()
        asked = set()
        told = scores.tell(scored, _blocks(columns, asked))
        assert told.tobytes() == scored.function.scores(columns, 4).tobytes()
        read.append(asked & {"X", "near", "last_cycle"})
    everything = {"X", "near", "last_cycle"}
    assert read == [everything, everything, {"near"}, everything]


def test_another_function_is_told_by_itself():
    """Also in the middle of a cycle, and a callable is asked every time."""
    rng = np.random.default_rng(2)
    columns = {
        "last_cycle": rng.integers(0, 3, PAGES),
        "X": rng.integers(0, 5, PAGES),
        "near": rng.random(PAGES),
    }
    scores = RoundScores(PAGES)
    for text in ("t * near", "t * near", "X * near", "X * near", "t * near"):
        function = functions.load(text)
        told = scores.tell(Scored(function, 4), _blocks(columns, set()))
        assert told.tobytes() == function.scores(columns, 4).tobytes()
    told = scores.tell(lambda block: block.state["X"] * 2.0, _blocks(columns, set()))
    assert told.tolist() == (columns["X"] * 2.0).tolist()
