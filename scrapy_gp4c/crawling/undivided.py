"""What cannot be planned where the pages are in several shards, each of which knows its own alone."""

from __future__ import annotations

from scrapy_gp4c.errors import SettingsError
from scrapy_gp4c.policies.policy import Policy, PolicySettings, Round, quota_of
from scrapy_gp4c.scoring import refresh_value
from scrapy_gp4c.scoring.functions import ScoreFunction
from scrapy_gp4c.scoring.terminals import CLUSTERED
from scrapy_gp4c.settings import Settings

TOLD_BY_ALL = frozenset((*CLUSTERED, *refresh_value.FORMULAS))
"""Terminals that only one store with all pages tells: clusters may have pages of any site, and the results
of a search too."""


def check_divisible(settings: Settings, shards: int) -> None:
    """Raise SettingsError where policy or score functions cannot plan for so many shards."""
    if shards == 1:
        return
    policy: Policy = settings.policy.make(PolicySettings(settings.score_function, settings.seed))
    if quota_of(policy, Round(1, 0, 1)) is None:
        raise SettingsError(
            f"GP4C_POLICY must be one that chooses by a score alone, as the pages are in {shards:,} shards; "
            f"found {settings.policy.text!r}. Use top_k, rounds without a sample, or a policy of your own "
            'with a method quota (docs/architecture.md, "Across shards")'
        )
    functions: dict[str, ScoreFunction] = {"GP4C_DISCOVERY_FUNCTION": settings.discovery_function}
    if settings.policy.scored:
        functions["GP4C_SCORE_FUNCTION"] = settings.score_function
    for name, function in functions.items():
        found = sorted(TOLD_BY_ALL.intersection(function.terminals))
        if found:
            raise SettingsError(
                f"{name} must read what a page and its site tell, as the pages are in {shards:,} shards; "
                f"found {', '.join(found)}. Use other terminals"
            )
