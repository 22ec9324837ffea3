"""Select on the workers that evaluated: for all folds, and by several rules, at once.

What the rules look at is replayed once, whichever asks for it; what they pick is shortened side by side, a
replay of each at a time, so that every worker has something to do.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from scrapy_gp4c.scoring.expression import Expression, parse
from training.evolution.selection import Chosen, Pairs, Picked
from training.evolution.simplify import simplify_all
from training.evolution.workers import Evaluator


class FoldPick(NamedTuple):
    """What a rule picked in a fold."""

    fold: int
    picked: Picked


class Selecting:
    """Values of functions in training and validation, from an `Evaluator` with all training sets first.

    Behind them it has the validation sets, in the order of the folds too.
    """

    def __init__(self, evaluator: Evaluator, folds: int) -> None:
        """Take the evaluator and the number of folds."""
        self._evaluator = evaluator
        self._folds = folds
        self._known: dict[tuple[int, str], Pairs] = {}

    def pairs(self, fold: int, texts: Sequence[str]) -> Pairs:
        """Values per cycle of the texts in a fold, in order."""
        new = {text: parse(text) for text in texts if (fold, text) not in self._known}
        training, validation = fold, self._folds + fold
        values = self._evaluator.values((number, new) for number in (training, validation) if new)
        self._known |= {(fold, text): [(values[training][text], values[validation][text])] for text in new}
        return [pair for text in texts for pair in self._known[fold, text]]

    def chosen(self, picks: Sequence[FoldPick]) -> list[Chosen]:
        """What was picked, shortened as `selection.shorten` does it."""
        wanted = {(fold, picked.text): picked.pair for fold, picked in picks}
        places, known = list(wanted), list(wanted.values())

        def same(asked: dict[int, Expression]) -> dict[int, bool]:
            alike = dict.fromkeys(asked, True)
            for first, part in ((self._folds, 1), (0, 0)):  # validation is the smaller part
                standing = [number for number in asked if alike[number]]
                requests: dict[int, dict[str, Expression]] = {}
                for number in standing:
                    requests.setdefault(first + places[number][0], {})[asked[number].text] = asked[number]
                values = self._evaluator.values(requests.items())
                for number in standing:
                    own = values[first + places[number][0]][asked[number].text]
                    alike[number] = np.array_equal(own, known[number][part])
            return alike

        found = simplify_all([parse(text) for _, text in places], same)
        texts = {place: one.text for place, one in zip(places, found, strict=True)}
        return [Chosen(texts[fold, one.text], one.run, one.selected) for fold, one in picks]
