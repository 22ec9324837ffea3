"""The named score functions: expression, source and meaning of each, and the policy that belongs to it.

``GP4C_SCORE_FUNCTION = NAME`` and ``--score NAME`` take a row of `NAMED`. A row that names a policy brings it
along, unless ``GP4C_POLICY`` or ``--policy`` says otherwise.

With λ = `rate`, the changes per cycle, and x = λ t, the rows beyond the papers' are indices: what a visit
after t cycles is worth in the long run, for different ideas of what a missed change costs. A page whose copy
costs c(s) per cycle, s cycles after the last visit, has the index t c(t) - ∫ c(s) ds over 0..t. To visit each
page when its index reaches one value, the same for all, is optimal where visits cost the same (P. Whittle
1988, "Restless bandits", Journal of Applied Probability 25A).
"""

from typing import Final, NamedTuple


class Named(NamedTuple):
    """A row of `NAMED`: a named score function."""

    expression: str
    """Expression in the score language."""
    source: str
    """Author or paper of the function."""
    meaning: str
    """Pages that the function puts first, in one line."""
    policy: str | None = None
    """Text of the policy that belongs to it, see `scrapy_gp4c.policies.table.load`; None: any will do."""


TAN_MITRA: Final = "Tan & Mitra 2010"
SANTOS: Final = "Santos et al. 2013"
OURS: Final = "scrapy-gp4c"

DEFAULT: Final = "default"
"""Name of the function that a crawl uses without ``GP4C_SCORE_FUNCTION``."""

FOUR_ROUNDS: Final = "rounds(rounds=4)"

NAMED: Final[dict[str, Named]] = {
    "random": Named("random", "baseline", "any page, drawn anew in every cycle"),
    "age": Named("t", "baseline", "the page that was visited longest ago"),
    "cg": Named(
        "cg", "Cho & Garcia-Molina 2003", "the page that changes most often, corrected for few visits"
    ),
    "nad": Named("nad", TAN_MITRA, "the likeliest change, by the share of visits that found one"),
    "sad": Named("sad", TAN_MITRA, "the likeliest change, estimated from the last visit alone"),
    "aad": Named(
        "aad",
        TAN_MITRA,
        "the likeliest change, estimated from all visits with arithmetically growing weights",
    ),
    "gad": Named(
        "gad", TAN_MITRA, "the likeliest change, estimated from all visits with geometrically growing weights"
    ),
    "t*X": Named("t * X", SANTOS, "the page with many changes found that has waited long"),
    "probability": Named("p", "Poisson changes", "the likeliest change: 1 − exp(−λt)"),
    "whittle": Named(
        "p - t * (1 - exp(-rate)) * (1 - p)",
        "Avrachenkov & Borkar 2018",
        "index for changes found: the page comes later if waiting makes a change much likelier",
    ),
    "freshness-greedy": Named(
        "(1 - (1 + rate * t) * exp(-rate * t)) / rate",
        "Cho & Garcia-Molina 2003; Azar et al. 2018",
        "index for the share of current copies: pages whose copies are outdated again at once come last",
    ),
    "harmonic": Named(
        "(rate * t - 1 + exp(-rate * t)) / rate",
        "Kolobov et al. 2019",
        "index for harmonic staleness: each further missed change of a page costs less than the one before",
    ),
    "user-centric": Named(
        "dq_rate * t + 1e-9 * t",
        "Pandey & Olston 2005",
        "the page whose visit improves a search most; needs a log of queries (`GP4C_QUERY_LOG`)",
    ),
    "neighbours": Named(
        "t * (X + 0.5) * near",
        OURS,
        "the page with many changes and a long wait, where visits to its directory and site find changes",
    ),
    "changes": Named(
        "t * (hint_rate + 0.05) * size_lift ** 0.15 * near",
        OURS,
        "the page that has most likely changed, so that visits find many changes",
        FOUR_ROUNDS,
    ),
    "freshness": Named(
        "(1 - (1 + rate * t) * exp(-rate * t)) / rate * near * sqrt(surprise_site)",
        OURS,
        "the page whose new copy will stay current for long, so that many copies are current",
        FOUR_ROUNDS,
    ),
    DEFAULT: Named(
        "t * (hint_rate + spent ** 2) * size_lift ** 0.25 * near * sqrt(surprise_site)",
        OURS,
        "in the first rounds of a cycle the likeliest change, in the last round the oldest copy",
        FOUR_ROUNDS,
    ),
}
"""Name -> score function: the baselines of the papers (journal 5.1), indices, and those of `PURPOSES`."""

PURPOSES: Final = (DEFAULT, "changes", "freshness")
"""Names of the functions recommended for a purpose of a crawl (docs/choosing.md)."""

BASELINES: Final[dict[str, str]] = {
    name: NAMED[name].expression for name in ("random", "age", "cg", "nad", "sad", "aad", "gad", "t*X")
}
"""Name -> expression of the papers' baselines (journal 5.1), with which learnt functions are compared."""
