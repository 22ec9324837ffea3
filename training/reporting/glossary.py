"""The terms of the reports: name and meaning."""

from __future__ import annotations

from typing import Final

from scrapy_gp4c.scoring import terminals
from scrapy_gp4c.scoring.terminals import MEANINGS
from training.comparing.trials import SHOWN
from training.replaying.metrics import METRICS


def term_of(terminal: str) -> str:
    """The term that tells what a terminal means: its name, where no other term has it."""
    return "terminal-p" if terminal == "p" else terminal


DEFINITIONS: Final[dict[str, tuple[str, str]]] = {
    **{
        name: (metric.heading if name in SHOWN else metric.name, f"{metric.meaning}.")
        for name, metric in METRICS.items()
    },
    "interval": (
        "± (95% interval)",
        "half width of the 95% confidence interval of the mean (Student's t): were the experiment repeated, "
        "95% of such intervals would hold the true mean.",
    ),
    "p": (
        "p value",
        "of a paired t test over the folds (over the cycles if there is one fold): how often a difference "
        "at least as large would come up if there were none. Below 0.05 counts as significant.",
    ),
    "learned": ("learned", "the score function that genetic programming (GP4C) learned on training data."),
    "baseline": (
        "baseline",
        "a published score function that needs no learning. The best one is picked on the test data "
        "itself, which is an advantage for it.",
    ),
    "oracle": ("oracle", "ranks by the truth; no ranking can find more changes in a cycle."),
    "cycle": ("cycles", "selection rounds, one a day for instance: each visits the budget's worth of pages."),
    "budget": ("budget", "visits per cycle, as a share of the pages or a count."),
    "visits": ("visits", "fetches of a page, each with one outcome."),
    "fold": ("fold", "a part of the pages that is tested on once and was not learned from then."),
    **{
        term_of(name): (name.upper() if name in terminals.PAPERS[3:] else name, f"{meaning}.")
        for name, meaning in MEANINGS.items()
    },
    "age": ("age", "score t: the page visited longest ago first."),
    "random": ("random", "every page is as likely as any other."),
    "victories": ("victories", "cycles in which the learned function is significantly better (p < 0.05)."),
    "correlation": ("correlation", "Pearson's, over cycles, of the number of pages that changed."),
    "outcome": (
        "outcomes",
        "first: first copy; unchanged, changed, not modified (304): compared with the copy before; error: "
        "no answer or no success; gone: 404 or 410; excluded: forbidden by robots.txt or other rules.",
    ),
    "kind": (
        "kinds of visits",
        "new: first visit; warm-up: early visits outside the budget; panel: observed in every cycle; hub: "
        "for the new pages that it may bring; ranked: chosen by the score function; sample: visited to learn "
        "of others; neighbour: near a sample that changed; other: asked for by the spider.",
    ),
    "hub": (
        "hubs",
        "pages that are visited for the new pages that they may bring: they have brought some since their "
        "first visit, or are start requests.",
    ),
    "delay": (
        "delay",
        "cycles from the first in which a visit could have shown the link to a page, to the page's first "
        "copy, at most: the link is taken to have been there since its finder was seen without it.",
    ),
    "hint": (
        "hints",
        "what a site says of its pages. sitemap, feed: that one has changed, by its date there; told: the "
        "same by the command scrapy gp4c hint; expires, changefreq: how long one stays as it is.",
    ),
    "holds": (
        "holds",
        "yes: pages whose change is claimed have changed more often than the site's others, by more than "
        "two standard deviations. Such hints count in the terminal hinted; others hardly, or not.",
    ),
    "right": (
        "right",
        "share of visits that found what was said: a change where one was claimed, none where none was. Of "
        "pages that hardly change, silence alone is right nearly always.",
    ),
    "pages": ("pages", "all URLs that the crawl knows, visited or not."),
    "latency": (
        "latency",
        "from sending a request to the headers of its answer, of the last attempt of every visit; politeness "
        "delays are not part of it.",
    ),
}
"""Term -> its name and what it means: the report's glossary."""
