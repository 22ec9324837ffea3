"""A learning run that outlives kills: its checkpoint, and the score file that it leaves."""

from __future__ import annotations

import signal
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from training.evolution.checkpoint import Checkpoint
from training.evolution.choices import Choices, arrange, identity
from training.evolution.generations import Watch
from training.evolution.learning import Learned, learn
from training.evolution.score_file import front_of, write_front, write_learned
from training.histories.history import ChangeHistory

Shown = Callable[[Choices, int, int], AbstractContextManager[Watch]]
"""``shown(choices, folds, generations done before)``: the watch of a learning run, as long as it goes on."""
Working = Callable[[], AbstractContextManager[Any]]
"""Gives the workers, see `training.evolution.workers.workers`."""


def learn_to_file(
    history: ChangeHistory,
    choices: Choices,
    output: Path,
    checkpoint: Path,
    *,
    resume: bool,
    working: Working,
    shown: Shown,
) -> Learned:
    """Learn from `history` and write the score file (and front); Ctrl-C ends the run early and leaves both.

    ``checkpoint``: directory for the state of the run, removed when it is complete; ``resume``: go on from
    what is there. Raises HistoryError or LearningError as `training.evolution.learning.learn` and
    `Checkpoint.open` do; KeyboardInterrupt passes on if nothing was learned yet.
    """
    folds = arrange(history, choices)
    state = Checkpoint(checkpoint, identity(history, choices))
    states = state.open(resume)
    done = states[0].generation if states else 0
    with working() as parallel, shown(choices, len(folds), done) as watch:
        learned = learn(history, choices, parallel, folds=folds, checkpoint=state, watch=watch)
    # What was learned must reach the disk even if Ctrl-C is pressed again.
    interrupt = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        more: dict[str, object] = {"generations_done": learned.generations}
        if choices.front:
            write_front(front_of(output), learned, choices, history, more)
            more |= {"prefer": choices.prefer}
        write_learned(output, learned, choices, history, more)
    finally:
        signal.signal(signal.SIGINT, interrupt)
    if learned.complete:
        state.remove()
    return learned
