"""Recorded contents as a web that is crawled from the start pages of its sites, link by link."""

from collections import deque
from dataclasses import replace

import numpy as np

from scrapy_gp4c.errors import HistoryError
from scrapy_gp4c.search.queries import Workload
from training.histories.contents import ContentHistory
from training.histories.growth import LINK, NO_FINDER, GrowthHistory, numbered_links
from training.histories.links import link_texts


def growth_of_contents(contents: ContentHistory, log: Workload | None = None) -> GrowthHistory:
    """Make a growth history of recorded contents, in which every page must be discovered by links of cycle 0.

    Each site begins with its page with the most links; pages that no links lead to from there are left out.
    The finder of a page is the first that links to it, breadth first; a page weighs 1 + the pages of its site
    that link to it. ``log``: queries, for anchors (see `LINK`). Raises HistoryError for no links.
    """
    history = contents.history
    texts = link_texts(history, contents.texts_at(0))
    if not texts:
        raise HistoryError(
            f"no text of {history.source} in cycle 0 links to another page of its site: expected contents "
            "whose pages can be found by links"
        )
    worths = [0.0 if log is None else max(map(log.asked_share, anchors)) for anchors in texts.values()]
    links = np.array([(*pair, worth) for pair, worth in zip(texts, worths, strict=True)], LINK)
    targets: list[list[int]] = [[] for _ in range(history.pages)]
    for source, target in texts:
        targets[source].append(target)
    count = np.bincount(links["source"], minlength=history.pages)
    finder = np.full(history.pages, NO_FINDER, np.int32)
    reached = np.zeros(history.pages, np.bool_)
    for site in np.unique(history.site).tolist():
        pages = np.flatnonzero(history.site == site)
        waiting = deque([int(pages[np.argmax(count[pages])])])
        reached[waiting[0]] = True
        while waiting:
            page = waiting.popleft()
            for target in targets[page]:
                if not reached[target]:
                    reached[target], finder[target] = True, page
                    waiting.append(target)
    position = np.full(history.pages + 1, NO_FINDER, np.int32)  # the last place stands for no finder
    position[np.flatnonzero(reached)] = np.arange(np.count_nonzero(reached))
    weight = np.bincount(links["target"], minlength=history.pages).astype(np.float64) + 1.0
    return GrowthHistory(
        replace(history, weight=weight).take(reached),
        np.zeros(int(reached.sum()), np.int32),
        position[finder[reached]],
        links=numbered_links(links, position),
    )
