"""The highest scores in several rounds: what a round finds counts for the scores of the next."""

from __future__ import annotations

from dataclasses import dataclass

from scrapy_gp4c.policies.policy import Chosen, Evidence, PolicySettings, Round
from scrapy_gp4c.policies.top_k import best_candidates, scored_by


@dataclass(frozen=True)
class Rounds:
    """Spend the budget in equal parts, scoring anew before each.

    With scores that depend on a page's own past alone it visits what `TopK` visits, in the same order.
    """

    settings: PolicySettings
    rounds: int = 4

    @property
    def name(self) -> str:
        """With its number of rounds."""
        return f"rounds(rounds={self.rounds})"

    def plan(self, round: Round, evidence: Evidence) -> Chosen:
        """Take this round's share of what is left: of 10 visits in 4 rounds 2, 2, 3 and 3."""
        part = round.remaining // (self.rounds - round.number)
        return best_candidates(scored_by(self.settings, round), part, evidence)
