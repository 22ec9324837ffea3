"""The parts of a history that one score function is learned, chosen and tested on."""

from __future__ import annotations

from typing import NamedTuple

from training.replaying.prepared import PreparedHistory


class Apart(NamedTuple):
    """A part of a fold without one group of sites after the other, for the jackknife of `challenge`."""

    training: tuple[PreparedHistory, ...]
    validation: tuple[PreparedHistory, ...]


class Parts(NamedTuple):
    """The parts of one fold, prepared for replay."""

    training: PreparedHistory
    validation: PreparedHistory
    test: PreparedHistory
    draws: tuple[PreparedHistory, ...] = ()
    """The training part as other draws of `training.evolution.choices.forgetful` leave it, where the
    selection asks for them."""
    apart: Apart | None = None
    """Where parts are of whole sites, and the selection asks for it."""
