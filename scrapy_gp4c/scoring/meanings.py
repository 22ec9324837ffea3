"""What terminals mean, for people."""

from __future__ import annotations

from typing import Final

MEANINGS: Final[dict[str, str]] = {
    "n": "visits of the page so far whose outcome (changed or not) is known",
    "X": "changes that these visits found",
    "t": "cycles since the last visit",
    "cg": "change rate of Cho and Garcia-Molina: −ln((n − X + 0.5) / (n + 0.5))",
    "nad": "1 − exp(−λt) with λ = X / n (Tan and Mitra, nonadaptive)",
    "sad": "1 − exp(−λt) with λ = outcome of the last visit (shortsighted adaptive)",
    "aad": "1 − exp(−λt), recent outcomes weighing more, arithmetically (Tan and Mitra)",
    "gad": "1 − exp(−λt), recent outcomes weighing more, geometrically (Tan and Mitra)",
    "rate": "changes per cycle by the page's own visits, λ = (E + 0.1) / (T + 1)",
    "rate_site": "the same, beginning with the rate of its site: (E + 3g) / (T + 3)",
    "p": "1 − exp(−λt): probability of a change since the last visit, by its rate",
    "near": "share of the recent visits to its directory that found changes, shrunk to site and crawl",
    "near_site": "share of the recent visits to its site that found changes",
    "near_dir": "share of the recent visits to its directory that found changes",
    "surprise_site": "changes found on its site since its last visit, by those expected",
    "surprise_dir": "changes found in its directory since its last visit, by those expected",
    "found_t": "cycles since a visit last found a change",
    "spent": "share of the cycle's budget used before this round",
    "site_now": "share of this cycle's visits to its site that found changes, begun with the recent share",
    "directory_now": "share of this cycle's visits to its directory that found changes, begun likewise",
    "cluster_now": "share of this cycle's visits to its cluster that found changes, begun likewise",
    "cluster_recent": "share of the visits to its cluster in the last cycles that found changes",
}
"""Terminal -> what it means for people, on the clock of the visits; λ is its ``_rate``."""
