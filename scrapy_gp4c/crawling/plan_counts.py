"""What the record of a cycle says of its plan: of one shard, and of all together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, get_args

from scrapy_gp4c.errors import PolicyError
from scrapy_gp4c.policies.steps import Division
from scrapy_gp4c.store.records import Cuts, PlanCounts

Summed = Literal["known", "due", "copies", "rankable", "hub", "panel", "ranked", "warmup", "new"]
SUMMED: Final[tuple[Summed, ...]] = get_args(Summed)
"""Counts of pages: those of all shards make that of the crawl."""


def share_of(budget: int, spent: int) -> float:
    """Share of a budget that so many visits are; 0 of none."""
    return spent / budget if budget else 0.0


def cuts_of(counts: PlanCounts) -> Cuts:
    """Where each round was cut off; None: the policy does not divide the pages by a score."""
    if "cuts" in counts:
        return counts["cuts"]
    # The version before kept the lowest of all rounds.
    return None if counts["cut"] is None and counts["ranked"] else [counts["cut"]]


def ranks_all(counts: PlanCounts) -> bool:
    """Tell whether the policy chose all pages that it could choose from, of all shards."""
    if "whole" in counts:
        return sum(counts["whole"]["ranked"]) == counts["whole"]["rankable"]
    return counts["ranked"] == counts["rankable"]


def share_of_all(counts: PlanCounts) -> float:
    """Of the pages of all shards that the policy may choose from, the share that is here."""
    return share_of(counts["whole"]["rankable"], counts["rankable"]) if "whole" in counts else 1.0


def spent_of(counts: PlanCounts) -> int:
    """Visits that the policy has chosen in the rounds so far, of all shards."""
    return sum(counts["whole"]["ranked"]) if "whole" in counts else counts["ranked"]


def is_spent(counts: PlanCounts) -> bool:
    """Tell whether a cycle's rounds have chosen all that its policy may choose."""
    return "budget" in counts and spent_of(counts) >= counts["budget"]


def has_cut(counts: PlanCounts) -> bool:
    """Tell whether a score divides the pages that the policy chose from the others, for the panel."""
    return cuts_of(counts) is not None or ranks_all(counts)


def extended(counts: PlanCounts, division: Division, sums: Sequence[int]) -> PlanCounts:
    """Counts of a cycle after a further round, which read these sums over all shards."""
    own, cuts = division.own, cuts_of(counts)
    divides = cuts is not None and (own.cut is not None or not division.all)
    longer: PlanCounts = {
        **counts,
        "cuts": [*(cuts or ()), own.cut] if divides else None,
        "ranked": counts["ranked"] + len(own.pages),
    }
    if "whole" in counts:
        whole = counts["whole"]
        ranked, of_rounds = [*whole["ranked"], division.all], [*whole["sums"], [*sums]]
        longer["whole"] = {**whole, "ranked": ranked, "sums": of_rounds}
    return longer


def merged(shards: Sequence[PlanCounts]) -> PlanCounts:
    """The counts that one store with all pages would have, of those of all its shards.

    Raises PolicyError for counts of different plans, and where some are missing.
    """
    first = shards[0]
    for counts in shards:
        for name in ("budget", "cuts", "whole"):
            if counts.get(name) != first.get(name):
                raise PolicyError(
                    f"expected shards of one plan; found {name} {first.get(name)} and {counts.get(name)}"
                )
    expected = first["whole"]["shards"] if "whole" in first else 1
    if len(shards) != expected:
        raise PolicyError(f"expected the counts of {expected:,} shards; found {len(shards):,}")

    totals: PlanCounts = {**first}
    totals.pop("whole", None)
    for name in SUMMED:
        if name in first:
            totals[name] = sum(counts[name] for counts in shards)
    return totals
