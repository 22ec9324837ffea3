"""The parts of a history that one score function is learned, chosen and tested on."""

from __future__ import annotations

from typing import NamedTuple

from training.replaying.arranged import ArrangedHistory


class Apart(NamedTuple):
    """A part of a fold without one group of sites after the other, for the jackknife of `challenge`."""

    training: tuple[ArrangedHistory, ...]
    validation: tuple[ArrangedHistory, ...]


class Parts(NamedTuple):
    """The parts of one fold, arranged for replay."""

    training: ArrangedHistory
    validation: ArrangedHistory
    test: ArrangedHistory
    draws: tuple[ArrangedHistory, ...] = ()
    """The training part as other draws of `training.evolution.choices.forgetful` leave it, where the
    selection asks for them."""
    apart: Apart | None = None
    """Where parts are of whole sites, and the selection asks for it."""
