"""Synthetic change histories with known statistics.

`MODELS` are functions ``(rng, site, cycles) -> changed``: ``site`` int32 ``[P]``, the result bool ``[cycles,
P]``. Sites have log-normal sizes.
"""

from collections.abc import Callable
from typing import Final

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.arrays import Floats
from scrapy_gp4c.errors import HistoryError
from training.histories.history import ChangeHistory

Bits = npt.NDArray[np.bool_]
Sites = npt.NDArray[np.int32]

# Santos et al. 2013, Table 4.1: 417,048 pages on 7,171 sites of 1 to 2,336 pages.
SITE_PAGES_MEAN: Final = 58.16

SITE_PAGES_MAX: Final = 2336

SITE_SIGMA: Final = 1.24

BRDC12: Final[dict[str, float]] = {
    "static_share": 0.747,  # of the pages; they never change
    "always_live_share": 0.0925,  # of the pages; the others switch between live and calm
    "calm_rate_max": 0.223,  # changes per day of the fastest page while calm
    "rate_exponent": 0.684,  # of the page's rank: how unequal the rates are
    "live_factor": 114.0,  # a live page changes so many times faster
    "live_share": 0.0986,  # of the days of a page that switches
    "live_days": 3.50,  # mean length of a live spell
    "weekend_factor": 0.444,  # on 2 days of 7
    "excitation": 2.57,  # on the day after a change
    "site_correlation": 0.4,  # of the ranks of two pages of one site
    "shared_draw_share": 0.3,  # of the pages; they change together with those of their site
    "imputed_share": 0.0292,  # of the bits; errors filled in (thesis, Table 4.1)
}
"""Parameters of `brdc12_like`, fitted to the published results (docs/lab/reproduction.md)."""


def sites(rng: np.random.Generator, pages: int) -> Sites:
    """Draw the site of every page, int32 ``[P]``; sites have log-normal sizes, and their pages are mixed."""
    count = max(1, round(pages / SITE_PAGES_MEAN))
    weight = rng.lognormal(0.0, SITE_SIGMA, count)
    size = np.clip(np.rint(weight * pages / weight.sum()), 1, SITE_PAGES_MAX).astype(np.int64)
    while (missing := pages - int(size.sum())) != 0:
        open_sites = np.flatnonzero(size < SITE_PAGES_MAX if missing > 0 else size > 1)
        if not len(open_sites):  # fewer pages than sites, or all sites full
            open_sites = np.arange(count)
        chosen = rng.choice(open_sites, min(abs(missing), len(open_sites)), replace=False)
        size[chosen] += np.sign(missing)
    site = np.repeat(np.arange(count, dtype=np.int32), size)
    rng.shuffle(site)
    return site


def poisson(rng: np.random.Generator, site: Sites, cycles: int) -> Bits:
    """Independent pages with constant rates: a mixture of Beta distributions, most pages quiet."""
    pages = len(site)
    quiet, busy = rng.beta(0.3, 20.0, pages), rng.beta(1.0, 2.0, pages)
    probability = np.where(rng.random(pages) < 0.85, quiet, busy)
    return _draw(rng, cycles, lambda cycle, changed: probability, pages)


def bursty(rng: np.random.Generator, site: Sites, cycles: int) -> Bits:
    """Pages that change in bursts: a change makes another one in the next cycle ten times likelier."""
    pages = len(site)
    base = rng.beta(0.3, 15.0, pages)
    return _draw(
        rng, cycles, lambda cycle, changed: np.minimum(base * np.where(changed, 10.0, 1.0), 0.9), pages
    )


def weekly(rng: np.random.Generator, site: Sites, cycles: int) -> Bits:
    """A third of the pages change every seventh cycle, each site on its own day; the others seldom."""
    pages = len(site)
    day = rng.integers(0, 7, int(site.max()) + 1)[site]
    regular = rng.random(pages) < 1 / 3
    seldom = rng.beta(0.3, 40.0, pages)
    return _draw(
        rng,
        cycles,
        lambda cycle, changed: np.where(regular, np.where(cycle % 7 == day, 0.97, 0.0), seldom),
        pages,
    )


def _draw(
    rng: np.random.Generator, cycles: int, probability: Callable[[int, Bits], Floats], pages: int
) -> Bits:
    changed = np.zeros((cycles, pages), np.bool_)
    before = np.zeros(pages, np.bool_)
    for cycle in range(cycles):
        before = changed[cycle] = rng.random(pages) < probability(cycle, before)
    return changed


def brdc12_like(rng: np.random.Generator, site: Sites, cycles: int) -> Bits:
    """Pages that behave in replay like BRDC'12 (Santos et al. 2013, Table 4.3; docs/lab/reproduction.md).

    Page i on day d has the hazard ``b_i * M_id * w_d * (excitation if it changed on day d - 1)``: a base rate
    by the page's rank, a factor while the page is live, a weekend factor. It changes where a uniform draw,
    its own or one common to its site, is below ``1 - exp(-hazard)``.
    """
    p = BRDC12
    pages, site_count = len(site), int(site.max()) + 1
    common = rng.standard_normal(site_count)[site]
    mixed = np.sqrt(p["site_correlation"]) * common
    mixed += np.sqrt(1.0 - p["site_correlation"]) * rng.standard_normal(pages)
    order = np.argsort(mixed)
    rank = np.empty(pages)
    rank[order] = (np.arange(pages) + 0.5) / pages
    spread = np.maximum(0.0, (rank - p["static_share"]) / (1.0 - p["static_share"]))
    base = p["calm_rate_max"] * spread ** p["rate_exponent"]
    # A systematic sample along the ranks is always live.
    always = np.zeros(pages, np.bool_)
    steps = np.floor((np.arange(pages) + rng.random()) * p["always_live_share"])
    always[order] = np.diff(steps, prepend=-1.0) > 0
    live = always | (rng.random(pages) < p["live_share"])
    leave = 1.0 / p["live_days"]
    enter = leave * p["live_share"] / (1.0 - p["live_share"])
    shares_draw = rng.random(pages) < p["shared_draw_share"]
    changed = np.zeros((cycles, pages), np.bool_)
    before = np.zeros(pages, np.bool_)
    mean = np.zeros(pages)
    for day in range(cycles):
        hazard = base * np.where(live, p["live_factor"], 1.0)
        hazard *= p["weekend_factor"] if day % 7 >= 5 else 1.0
        hazard[before] *= p["excitation"]
        probability = -np.expm1(-hazard)
        mean += probability
        draw = np.where(shares_draw, rng.random(site_count)[site], rng.random(pages))
        before = changed[day] = draw < probability
        switch = rng.random(pages)
        live = always | np.where(live, switch >= leave, switch < enter)
    mean /= cycles
    for day in range(cycles):
        imputed = np.flatnonzero(rng.random(pages) < p["imputed_share"])
        changed[day, imputed] = rng.random(len(imputed)) < mean[imputed]
    return changed


MODELS: Final[dict[str, Callable[[np.random.Generator, Sites, int], Bits]]] = {
    "poisson": poisson,
    "bursty": bursty,
    "weekly": weekly,
    "brdc12-like": brdc12_like,
}


def generate(model: str, pages: int, cycles: int, seed: int) -> ChangeHistory:
    """Make a history by the model named ``model``, the same for the same arguments.

    Raises HistoryError on arguments out of range.
    """
    if model not in MODELS:
        raise HistoryError(f"there is no model {model!r}; choose one of {', '.join(MODELS)}")
    if pages < 1 or cycles < 1:
        raise HistoryError(f"a history has at least 1 page and 1 cycle; found {pages} and {cycles}")
    rng = np.random.default_rng(seed)
    site = sites(rng, pages)
    return ChangeHistory(
        changed=MODELS[model](rng, site, cycles),
        site=site,
        source=f"synthetic {model}, {pages} pages, {cycles} cycles, seed {seed}",
    )
