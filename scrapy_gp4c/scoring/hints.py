"""Claims of sites about changes of their pages, and the trust that each site's claims have earned.

A claim says that a page changed at some time. It is stored as the first cycle whose visit of the page would
see that change (its *due* cycle), so that crawls and replays compare whole numbers. A claim is *unseen* as
long as it is due after the page's last visit. Claims of the kinds `SPANS` (``Cache-Control: max-age``, say)
have in its place the number of cycles for which the page stays as it is.

Judged visits count how far claims of a site and kind hold (`tally`): four decayed numbers, (claimed changed
since the last visit?) x (was changed?). From these `lifts` computes how much a claim, or its absence, adds to
the log-odds of a change: 0 for claims that predict nothing.
"""

from collections.abc import Mapping, MutableMapping
from typing import Final

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.arrays import Array, Floats
from scrapy_gp4c.scoring import rates
from scrapy_gp4c.scoring.expression import Terminal

CLAIMED: Final = ("sitemap", "feed", "told", "modified")
"""Kinds of claims "changed at that time": ``lastmod`` of a sitemap, an entry of a feed, `scrapy gp4c hint`,
and the header ``Last-Modified`` of the page's own last answer, which can only be about what a visit has
seen."""
SPANS: Final = ("expires", "changefreq")
"""Kinds of claims "stays true for so many cycles": the headers ``Cache-Control`` and ``Expires`` of the
page's own last answer, and ``changefreq`` of a sitemap, which counts only where these headers are silent."""
KINDS: Final = (*CLAIMED, *SPANS)
"""Kinds of claims; a claim and a tally hold the position in this tuple."""
LISTED: Final = (0, 1, 2)
"""Positions in `KINDS` of the claims that announce changes before a visit: sitemap, feed, told."""
MODIFIED, EXPIRES, CHANGEFREQ = (KINDS.index(name) for name in ("modified", "expires", "changefreq"))

COLUMNS: Final[dict[str, str]] = {
    "claims": "u1",  # bit k: there were claims of kind k; bit 4 + k: one is unseen
    "fresh": "u1",  # cycles that the last answer stays true, plus 1; 128 more: by changefreq; 0: unknown
    "claimed_cycle": "<i4",  # when the newest claim is due, where there are any
    "age_first": "<u2",  # cycles from the newest claimed change before the first fetch to it; 0: unknown
    "seen_min": "<f2",  # minutes from the start of the cycle of the last visit to that visit
}
"""Column name -> little-endian dtype: 10 bytes for a page, kept where any page of its block has a claim."""
LONGEST: Final = 126
"""Most cycles for which an answer can stay true, as ``fresh`` stores it."""
_FREQUENCY: Final = 128
HALF_LIFE_CYCLES: Final = 16.0
KEPT: Final = 2.0 ** (-1.0 / HALF_LIFE_CYCLES)
"""Factor by which a cycle reduces the counts of earlier ones."""
PRIOR_VISITS: Final = 2.0
"""Weight of the mean of all sites as prior of one site's counts, in visits."""


AGE_CHANGES: Final = 0.5
"""Changes that a page's age at its first fetch counts for, on a site with full trust in ages."""
AGE_SHAPE: Final = AGE_CHANGES + rates.PRIOR_CHANGES
"""Shape of the Gamma prior of a page's rate that is derived from its age."""
_CERTAIN: Final = 1.0 - 1e-9
"""Largest probability that is converted to a rate."""


def has_claims(state: Mapping[str, Array], kind: int) -> npt.NDArray[np.bool_]:
    """Mask ``[P]`` of pages that ever had claims of a kind; ``kind``: position in `KINDS`."""
    if kind < len(CLAIMED):
        return np.asarray(state["claims"] >> kind & 1, np.bool_)
    fresh = state["fresh"]
    return np.asarray((fresh >= _FREQUENCY) if kind == CHANGEFREQ else (fresh > 0) & (fresh < _FREQUENCY))


def is_claimed(state: Mapping[str, Array], kind: int, cycle: int) -> npt.NDArray[np.bool_]:
    """Mask ``[P]`` of pages that, by claims of a kind, have changed since their last visit.

    ``state``: ``last_cycle`` and `COLUMNS`, each ``[P]``; ``cycle``: the planned one, or that of the visits.
    """
    if kind < len(CLAIMED):
        return np.asarray(state["claims"] >> (4 + kind) & 1, np.bool_)  # an unseen one
    span_cycles = (state["fresh"] % _FREQUENCY).astype(np.int64) - 1
    return has_claims(state, kind) & (cycle - state["last_cycle"] > span_cycles)


def claim(state: MutableMapping[str, Array], rows: Array, kinds: Array, values: Array) -> None:
    """Add claims to the columns `COLUMNS`, in place.

    ``state``: `COLUMNS`, ``first_cycle`` and ``last_cycle``, each ``[P]``; ``rows``: row of each claim's
    page, ``[C]``; ``kinds``: positions in `KINDS`, ``[C]``; ``values``, ``[C]``: due cycles of `CLAIMED`
    claims, numbers of cycles of `SPANS` claims.
    """
    dated = kinds < len(CLAIMED)
    at, due, bit = rows[dated], values[dated], kinds[dated].astype(np.uint8)
    unseen = due > state["last_cycle"][at]
    state["claimed_cycle"][at[state["claims"][at] & 15 == 0]] = np.iinfo(np.int32).min  # before any cycle
    np.bitwise_or.at(state["claims"], at, (1 << bit).astype(np.uint8))
    np.bitwise_or.at(state["claims"], at[unseen], (16 << bit[unseen]).astype(np.uint8))
    np.maximum.at(state["claimed_cycle"], at, due)
    before = np.flatnonzero((due < state["first_cycle"][at]) & (state["age_first"][at] == 0))
    before = before[np.argsort(due[before], kind="stable")]  # the newest counts
    age_cycles = state["first_cycle"][at[before]].astype(np.int64) - due[before]
    state["age_first"][at[before]] = np.minimum(age_cycles, np.iinfo(np.uint16).max)
    for kind in (CHANGEFREQ, EXPIRES):
        of_kind = kinds == kind
        at, span_cycles = rows[of_kind], np.clip(values[of_kind], 0, LONGEST)
        if kind == CHANGEFREQ:
            silent = (state["fresh"][at] == 0) | (state["fresh"][at] >= _FREQUENCY)
            at, span_cycles = at[silent], span_cycles[silent] + _FREQUENCY
        state["fresh"][at] = span_cycles + 1


def mark_seen(state: MutableMapping[str, Array], rows: Array, seen_min: Array) -> None:
    """Mark all claims of visited pages, at `rows`, as seen, and set column ``seen_min``, in place."""
    state["claims"][rows] &= 15
    state["seen_min"][rows] = seen_min


def tally(state: Mapping[str, Array], rows: Array, changed: Array, cycle: int) -> npt.NDArray[np.int64]:
    """Compare claims with visits: ``[V, kinds]``, each 2 * claimed + changed, -1 without claims of the kind.

    ``state``: columns before the visits, with the claims that these could see; ``rows``: each visit's row in
    them, ``[V]``; ``changed``: whether the visit found a change, bool ``[V]``.
    """
    visited = {name: state[name][rows] for name in ("last_cycle", "claims", "fresh")}
    outcomes = np.full((len(rows), len(KINDS)), -1, np.int64)
    for kind in range(len(KINDS)):
        known = has_claims(visited, kind)
        outcomes[known, kind] = (2 * is_claimed(visited, kind, cycle) + changed)[known]
    return outcomes


def counted(outcomes: npt.NDArray[np.int64], site: Array, sites: int) -> npt.NDArray[np.int64]:
    """Count `outcomes`, results of `tally`, by site, kind, claimed, changed: ``[sites, kinds, 2, 2]``.

    ``site``: site number of each visit, ``[V]``; ``sites``: number of sites.
    """
    shape = (sites, len(KINDS), 4)
    row, kind = np.nonzero(outcomes >= 0)
    cell = (site[row] * len(KINDS) + kind) * 4 + outcomes[row, kind]
    return np.bincount(cell, minlength=int(np.prod(shape))).reshape(sites, len(KINDS), 2, 2)


def decayed(counts: Array, new: Array) -> Floats:
    """Return `counts` of earlier cycles times `KEPT`, plus the cycle's `new` counts: all ``[..., 2, 2]``."""
    return np.asarray(counts * KEPT + new)


def of_all_sites(counts: Floats) -> npt.NDArray[np.int64]:
    """Sum up counts, ``[S, kinds, 2, 2]``, over sites: int64 ``[kinds, 2, 2]``, in units of `rates.UNIT`.

    Whole numbers have the same sum whatever the order of sites.
    """
    return np.asarray(np.rint(counts / rates.UNIT).astype(np.int64).sum(axis=0))


def lifts(counts: Floats, pages: Array) -> Floats:
    """Compute what the absence [0] and the presence [1] of a claim add to the log-odds of a change.

    Returns ``[S, kinds, 2]``. ``counts``: of visits by (claimed, changed), see `decayed`, ``[S, kinds, 2,
    2]``; ``pages``: result of `page_state.claims.pages_with_claims`. The probability of a change given a
    claim has a Beta posterior. Its prior has the odds of a change at the site's visits, times the factor by
    which a claim raises these odds over all sites. The lift is relative to the mean of the site's pages, so
    that the same claim for all pages adds nothing, and shrinks by its variance, so that chance adds nothing.
    """
    share, difference, variance = _posterior(counts)
    sure = np.maximum(0.0, 1.0 - variance / np.maximum(difference**2, 1e-300))
    claimed = pages[..., 1] / np.maximum(pages.sum(axis=-1), 1)
    mean = claimed * share[..., 1] + (1.0 - claimed) * share[..., 0]
    return np.asarray(sure[..., None] * (_log_odds(share) - _log_odds(mean)[..., None]))


def holds(counts: Floats) -> npt.NDArray[np.bool_]:
    """Mask ``[S, kinds]``: a claim of that kind by that site makes a change likelier (2 standard deviations).

    ``counts``: of visits by (claimed, changed), decayed, ``[S, kinds, 2, 2]``.
    """
    _, difference, variance = _posterior(counts)
    return np.asarray(difference > 2.0 * np.sqrt(variance))


def _posterior(counts: Floats) -> tuple[Floats, Floats, Floats]:
    """Return posterior shares of visits that found a change, without and with a claim, ``[S, kinds, 2]``.

    The second and third results are the difference of their log-odds, and its variance, ``[S, kinds]``.
    """
    everywhere: Array = of_all_sites(counts) * rates.UNIT
    of_all = _base(everywhere, np.full(1, 0.5))
    lift = _log_odds(_shares(everywhere, of_all)) - _log_odds(of_all)[:, None]
    base = _base(counts, of_all)
    prior = 1.0 / (1.0 + np.exp(-(_log_odds(base)[..., None] + lift)))
    visits = counts.sum(axis=-1) + PRIOR_VISITS
    changes = counts[..., 1] + PRIOR_VISITS * prior
    # Half a visit more of each kind (Anscombe 1956): where no page ever changed in silence, the variance of
    # the log-odds would be the larger, the more visits have shown it.
    odds = (changes + 0.5) / (visits - changes + 0.5)
    variance = (1.0 / (changes + 0.5) + 1.0 / (visits - changes + 0.5)).sum(axis=-1)
    return changes / visits, np.log(odds[..., 1]) - np.log(odds[..., 0]), variance


def _base(counts: Floats, prior: Floats) -> Floats:
    """Smoothed share of visits that found a change, whether or not one was claimed: ``[..., kinds]``.

    ``counts``: of visits by (claimed, changed), ``[..., kinds, 2, 2]``; ``prior``: share to begin with.
    """
    return np.asarray(
        (counts[..., 1].sum(axis=-1) + PRIOR_VISITS * prior) / (counts.sum(axis=(-1, -2)) + PRIOR_VISITS)
    )


def _shares(counts: Floats, prior: Floats) -> Floats:
    """Smoothed shares as of `_base`, for visits without a claim [0] and with one [1]: ``[..., kinds, 2]``."""
    return np.asarray(
        (counts[..., 1] + PRIOR_VISITS * prior[..., None]) / (counts.sum(axis=-1) + PRIOR_VISITS)
    )


def _log_odds(probability: Floats) -> Floats:
    bounded = np.clip(probability, 1e-9, 1.0 - 1e-9)
    return np.asarray(np.log(bounded / (1.0 - bounded)))


def lift_of(
    table: Floats, site: Array, state: Mapping[str, Array], kinds: tuple[int, ...], cycle: int
) -> Floats:
    """Sum up what the claims of some `kinds` add to each page's log-odds of a change: ``[P]``.

    ``table``: result of `lifts`; ``site``: number of each page's site, ``[P]``; ``state``: ``last_cycle`` and
    `COLUMNS`.
    """
    total = np.zeros(len(site))
    for kind in kinds:
        known = has_claims(state, kind)
        claimed = is_claimed(state, kind, cycle).astype(np.intp)
        total += np.where(known, table[site, kind, claimed], 0.0)
    return total


def age_evidence(state: Mapping[str, Array], crawl_rate: float) -> npt.NDArray[np.int64]:
    """Log Bayes factor: is a page's change rate that of its age at the first fetch, or that of the crawl?

    In units of `rates.UNIT`, ``[P]``; 0 for pages without age. Both priors are Gamma with one shape, so that
    only logarithms are left. ``state``: E, T and ``age_first``, each ``[P]``.
    """
    cycles, by_crawl = state["T"].astype(np.float64), AGE_SHAPE / crawl_rate
    by_age = rates.PRIOR_CYCLES + AGE_CHANGES * (state["age_first"] - 0.5)
    gain = np.log((by_crawl + cycles) / (by_age + cycles))
    evidence = AGE_SHAPE * (np.log(by_age / by_crawl) + gain) + state["E"] * gain
    return np.asarray(np.rint(np.where(state["age_first"] > 0, evidence, 0.0) / rates.UNIT), np.int64)


def trust_of_ages(evidence: npt.NDArray[np.int64]) -> Floats:
    """Posterior probability, by site, that ages of pages predict their rates: ``[S]``, from even prior odds.

    ``evidence``: sums of `age_evidence` over each site's pages, ``[S]``.
    """
    return np.asarray(1.0 / (1.0 + np.exp(-np.clip(evidence * rates.UNIT, -30.0, 30.0))))


def _rate_by_age(s: Mapping[str, Array]) -> Floats:
    """Changes per cycle by `rates.rate`; the age at first fetch counts for `AGE_CHANGES`, times trust."""
    weight = AGE_CHANGES * s["age_trust"] * (s["age_first"] > 0)
    return rates.rate(s["E"] + weight, s["T"] + weight * (s["age_first"] - 0.5))


def _hinted(s: Mapping[str, Array], cycle: int) -> Array:
    return _claimed_probability(s, rates.rate(s["E"], s["T"]), cycle)


def _claimed_probability(s: Mapping[str, Array], rate: Floats, cycle: int) -> Array:
    """Probability that pages have changed since their last visit, by `rate` and the site's claims: ``[P]``.

    A claim speaks for all cycles since that visit. The absence of one speaks for all but the newest cycle,
    whose claims have not been read yet.
    """
    gap_cycles = cycle - s["last_cycle"]
    claimed = rates.probability(rate, gap_cycles)
    unseen = (s["claims"] >> 4) & sum(1 << kind for kind in LISTED) > 0
    by_claims = rates.probability(rate, np.where(unseen, gap_cycles, gap_cycles - 1))
    unclaimed = np.where(unseen, 0.0, rates.probability(rate, np.ones(len(rate))))
    listed = 1.0 - (1.0 - _lifted(by_claims, s["hint_listed"])) * (1.0 - unclaimed)
    return np.where(
        (s["hint_listed"] == 0.0) & (s["hint_span"] == 0.0), claimed, _lifted(listed, s["hint_span"])
    )


def _hint_rate(s: Mapping[str, Array], cycle: int) -> Array:
    rate = _rate_by_age(s)
    lifted = (s["hint_listed"] != 0.0) | (s["hint_span"] != 0.0)
    if not lifted.any():  # of most crawls all pages: no exponential is taken
        return rate
    gap_cycles = np.maximum(cycle - s["last_cycle"], 1)
    return np.where(
        lifted, -np.log1p(-np.minimum(_claimed_probability(s, rate, cycle), _CERTAIN)) / gap_cycles, rate
    )


def _lifted(probability: Floats, lift: Array) -> Floats:
    """Raise the log-odds of `probability` by `lift`; 0 and 1 stay."""
    factor = np.exp(np.clip(lift, -30.0, 30.0))
    return np.asarray(probability * factor / (1.0 - probability + probability * factor))


def _age(s: Mapping[str, Array], cycle: int) -> Array:
    return np.where(s["claims"] & 15 > 0, cycle - s["claimed_cycle"] + 1, 0)


TERMINALS: Final = {
    "hinted": Terminal(
        ("E", "T", "last_cycle", "claims", "hint_listed", "hint_span"),
        _hinted,
        "probability of a change since the last visit, by its rate and what its site says of it",
    ),
    "hint_rate": Terminal(
        ("E", "T", "last_cycle", "claims", "age_first", "age_trust", "hint_listed", "hint_span"),
        _hint_rate,
        "changes per cycle, by its visits, its age at first sight, and what its site says of it",
    ),
    "hint_age": Terminal(
        ("claims", "claimed_cycle"),
        _age,
        "cycles since the newest change that its site has claimed; 0 without claim",
    ),
}
UNCLAIMED: Final[dict[str, str | float]] = {"hinted": "p", "hint_rate": "rate", "hint_age": 0.0}
"""Terminal -> terminal or number with the same value, bit for bit, where no site claims anything."""
