"""Algorithms 1 and 2 of Tan et al. 2007: sample pages, and with probability phi fetch those near a sample.

The policy says what is near (section 4). Line 4 of Algorithm 1 is read as a union, and a page is fetched once
a cycle. phi is drawn once for each sample.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np

from scrapy_gp4c.page_state.groupings import Name
from scrapy_gp4c.page_state.outcomes import NEIGHBOUR, SAMPLE
from scrapy_gp4c.policies.policy import NOBODY, Chosen, Evidence, Pages, PolicySettings, Round
from scrapy_gp4c.policies.sampling import Bools, Floats, Sampled, Turns, plan_of, samples_of, turn
from scrapy_gp4c.scoring import terminals
from scrapy_gp4c.scoring.draws import Purpose, drawn_for, uniform
from scrapy_gp4c.scoring.terminals import Clock


class Following(NamedTuple):
    """A policy that follows samples, as its text says."""

    name: str
    near: Name
    """What says which pages are near."""
    d: int
    """How near: 0..d, or d..0 where it is negative."""
    phi: float | str = "change"
    """Probability that a sample is followed, or what says it: a row of `PHIS`."""
    gate: bool = False
    """Whether phi counts for changed samples alone."""
    clock: Clock = "cycles"
    """What phi counts a page's past by."""
    in_flight: int = 16
    """Samples that are sent before their outcomes act; 1 is Algorithm 1."""


def _by_history(terminal: str) -> Callable[[Sampled, Evidence, int, Clock], Floats]:
    """Equation 5, with the rate of a terminal after the sample's own outcome, one cycle on."""

    def phi(samples: Sampled, evidence: Evidence, cycle: int, clock: Clock) -> Floats:
        given = evidence.rows(samples.pages).state
        columns = terminals.columns_of((terminal,), clock)
        state = {name: given[name].copy() for name in dict.fromkeys(("n", "first_cycle", *columns))}
        terminals.observe(state, samples.changed, cycle)
        values = terminals.compute((terminal,), state, cycle + 1, clock)[terminal]
        return np.asarray(values, np.float64)

    return phi


def _by_popularity(samples: Sampled, evidence: Evidence, cycle: int, clock: Clock) -> Floats:
    """Section 6.2: 1/11 for the least popular pages, to 11/11 for the most popular."""
    return np.asarray((evidence.popularity()[samples.pages] + 1.0) / 11.0)


PHIS: Final[dict[str, Callable[[Sampled, Evidence, int, Clock], Floats]]] = {
    "change": lambda samples, evidence, cycle, clock: samples.changed.astype(np.float64),
    "ha": _by_history("nad"),
    "wha": _by_history("aad"),
    "pra": _by_popularity,
}
"""Name -> probability that each sample is followed: equation 3, 4-7, 8, and section 5.3."""
BY_HISTORY: Final = ("ha", "wha")
"""Those that look at the past of samples."""
HISTORY_COLUMNS: Final = ("n", "X", "A", "A_cycles", "first_cycle", "last_cycle")
"""What these may read of samples."""


@dataclass
class Follow:
    """Samples pages, and follows some of them, until the budget is spent.

    What it keeps from round to round saves work alone: a new object comes to the same plans.
    """

    settings: PolicySettings
    following: Following
    _turns: Turns | None = field(default=None, compare=False)
    _heard: int = field(default=0, compare=False)

    @property
    def name(self) -> str:
        """With all parameters."""
        _, _, *values = self.following
        own = zip(Following._fields[2:], values, strict=True)
        return f"{self.following.name}({', '.join(f'{key}={value!r}' for key, value in own)})"

    @property
    def rounds(self) -> None:
        """As many as the budget lasts."""
        return

    def plan(self, round: Round, evidence: Evidence) -> Chosen:
        """Fetch what is near the samples heard of, then send the next samples."""
        if not round.number or self._turns is None:
            self._turns, self._heard = Turns(evidence, round.remaining), 0
            self._ask(evidence)
        near = self._near(round, evidence)
        wanted = min(self.following.in_flight, round.remaining - len(near))
        return plan_of([(NEIGHBOUR, near), (SAMPLE, self._turns.take(wanted, evidence, near))])

    def seeds(self, round: Round, evidence: Evidence) -> int:
        """How many samples of the cycle so far are followed."""
        if self.following.phi == 0:
            return 0
        return int(self.is_followed(samples_of(evidence), round, evidence).sum())

    def _ask(self, evidence: Evidence) -> None:
        """Ask for all that may be needed, so that what nobody knows is missed at once, not by chance."""
        if self.following.phi != 0:
            _ = evidence.grouping(self.following.near).by_group  # sorted now: a later round holds up a crawl
        if self.following.phi == "pra":
            evidence.popularity()

    def _near(self, round: Round, evidence: Evidence) -> Pages:
        """The pages near those samples that are followed: around the first sample first, nearest first."""
        samples = samples_of(evidence, self._heard)
        self._heard = len(evidence.visits().pages)
        if not len(samples.pages) or not round.remaining:
            return NOBODY.pages
        followed = self._followed(samples, round, evidence)
        if not len(followed):
            return followed
        grouping = evidence.grouping(self.following.near)
        near: list[Pages] = []
        left = round.remaining
        for page in followed.tolist():
            for ring in grouping.rings(page, self.following.d):
                found = ring[evidence.may_visit(ring)]
                if near and len(found):
                    found = found[~np.isin(found, np.concatenate(near))]
                if len(found):
                    drawn = drawn_for(evidence.rows(found).state["draw"], Purpose.NEIGHBOUR)
                    near.append(found[np.argsort(drawn, kind="stable")][:left])
                    left -= len(near[-1])
                if not left:
                    return np.concatenate(near)
        return np.concatenate([*near, NOBODY.pages])

    def _followed(self, samples: Sampled, round: Round, evidence: Evidence) -> Pages:
        """Those samples that are followed, in the order of their turns."""
        followed = self.is_followed(samples, round, evidence)
        order = np.lexsort((samples.pages, -turn(evidence.rows(samples.pages))))
        return samples.pages[order[followed[order]]]

    def is_followed(self, samples: Sampled, round: Round, evidence: Evidence) -> Bools:
        """Whether each sample is followed, ``[S]``."""
        drawn = drawn_for(evidence.rows(samples.pages).state["draw"], Purpose.FOLLOW)
        phi = self.following.phi
        if isinstance(phi, str):
            chance = PHIS[phi](samples, evidence, round.cycle, self.following.clock)
        else:
            chance = np.full(len(samples.pages), float(phi))
        followed = np.asarray(uniform(drawn) < chance)
        return followed & samples.changed if self.following.gate else followed
