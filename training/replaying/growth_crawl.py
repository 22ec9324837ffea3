"""How a replayed crawl of a web that grows spends its visits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from scrapy_gp4c.policies.table import PolicyChoice
from scrapy_gp4c.policies.table import load as load_policy
from scrapy_gp4c.scoring import functions
from scrapy_gp4c.scoring.functions import ScoreFunction
from training.replaying.arranged import CrawlChoices
from training.replaying.replay import policy_of

HUBS: Final = "brought * t"
"""What a crawl ranks hubs by unless it is told otherwise."""


@dataclass(frozen=True)
class GrowthCrawl:
    """How the replayed crawl spends its visits."""

    budget: float
    """A share of the known pages (float) or a count (int)."""
    score_function: ScoreFunction
    policy: PolicyChoice
    hub_function: ScoreFunction
    discovery: float = 0.1
    """Share of the budget for hubs."""
    warmup: int = 2
    """Judged visits that every page gets outside the budget."""
    seed: int = 0


def growth_crawl(
    score: str, policy: str | None, discovery: float, hubs: str, choices: CrawlChoices
) -> GrowthCrawl:
    """A crawl by texts; ``policy`` None: the one that the score function's name brings along, else ``top_k``.

    ``choices``: budget, warm-up, clock and seed. Raises ScoreError, ExpressionError or PolicyError.
    """
    function = functions.load(score).on_clock(choices.clock)
    return GrowthCrawl(
        choices.budget,
        function,
        load_policy(policy or policy_of(function)),
        functions.load(hubs),
        discovery,
        choices.warmup,
        choices.seed,
    )
