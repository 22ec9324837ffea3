"""The decision on two score functions: what it costs."""

from __future__ import annotations

from typing import Any

import pytest

from scrapy_gp4c.scoring.functions import load
from training.comparing.decision import REPLAYS, decide
from training.evolution.choices import Choices
from training.histories.models import generate
from training.replaying import arranged


def test_two_decisions_on_one_history_arrange_it_once_for_every_draw_of_ties(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What one decision arranged is there for the next, which comes after hours of learning."""
    made: list[int] = []
    make = arranged.ArrangedHistory

    def counted(*values: Any) -> arranged.ArrangedHistory:
        new = make(*values)
        made.append(new.seed)
        return new

    monkeypatch.setattr(arranged, "ArrangedHistory", counted)
    history, choices = generate("poisson", 100, 12, 1), Choices(budget=0.1)
    champion = load("nad")
    for challenger in (champion, load("t*X")):
        decide(history, champion, challenger, choices, 6)
    assert made == [choices.seed + number for number in range(REPLAYS)]
