"""What a panel tells about the pages outside it, with intervals."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

Z_95: Final = 1.959963984540054
"""97.5% quantile of the normal distribution."""


class Interval(NamedTuple):
    """A share of pages with its 95% interval."""

    estimate: float
    low: float
    high: float


def predict(found: int, sampled: int, others: int) -> Interval | None:
    """Share of `others` pages that are like `found` of the `sampled` ones, drawn at random with them.

    The sample's share p and that of the others differ with variance p (1 - p) (1 / m + 1 / M): Wilson's
    interval with the effective size m * M / (m + M). None without a sample or without others.
    """
    if not sampled or not others:
        return None
    share = found / sampled
    n = sampled * others / (sampled + others)
    centre = (share + Z_95**2 / (2.0 * n)) / (1.0 + Z_95**2 / n)
    half = Z_95 / (1.0 + Z_95**2 / n) * math.sqrt(share * (1.0 - share) / n + (Z_95 / (2.0 * n)) ** 2)
    # Rounding must not take the estimate out of its own interval, nor this out of [0, 1].
    return Interval(share, max(0.0, min(share, centre - half)), min(1.0, max(share, centre + half)))


class Tally(NamedTuple):
    """What a cycle found on the panel, and how many pages that speaks for."""

    judged: int
    """Panel pages whose visit told whether they changed."""
    unchosen: int
    """Those of them whose shadow the cycle would not have visited."""
    outdated: int
    """Those of these whose shadow's copy is out of date."""


def estimates(tally: Tally, copies: int, judged: int, changed: int, first: int) -> dict[str, Any] | None:
    """Estimates for the whole store, as the cycle record holds them; None without a sample.

    ``copies``: pages with a copy, and not gone, before the cycle; ``judged``: its visits that told
    whether a page changed, ``changed``: those that found a change; ``first``: first visits.

    ``changed_share``: share of the pages with a copy that had changed since their last visit, before the
    visits of the cycle. ``freshness``: share of the copies that are current after them. What was visited is
    known; the panel speaks for the others.
    """
    others = max(0, copies - judged)
    share = predict(tally.outdated, tally.unchosen, others)
    if not copies or (others and share is None):
        return None
    outdated = Interval(*(others * value for value in share or (0.0, 0.0, 0.0)))
    before = Interval(*((changed + pages) / copies for pages in outdated))
    after = [1.0 - pages / (copies + first) for pages in outdated]
    return {
        **tally._asdict(),
        "changed_share": before._asdict(),
        "freshness": Interval(after[0], after[2], after[1])._asdict(),
    }


def describe(estimated: Mapping[str, Any] | None) -> str:
    """`estimates` in words, to go on a line; empty for None."""
    if estimated is None:
        return ""

    def percent(share: Mapping[str, float]) -> str:
        return f"{share['estimate']:.1%} ({share['low']:.1%} to {share['high']:.1%})"

    return (
        f"; by a panel of {estimated['judged']} pages, {percent(estimated['changed_share'])} of the pages "
        f"had changed since our last visit, and {percent(estimated['freshness'])} of the copies are current"
    )
