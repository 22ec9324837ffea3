"""Loss when pages are clustered by the sketches of words that crawls keep, not by all words.

    python -m benchmarks.sketches [CONTENTS] [--clusterings 3] [--seeds 5]

Cycles of 8, 8.8% of the pages, no warm-up, as in docs/lab/sampling.md. The pages are clustered by what they
say in cycle 0, with several seeds: by all their words, and by the words that
`scrapy_gp4c.words.descriptions.describe` keeps. All other features are the same. Target: the change rate that
`cb(in_flight=1)` finds, means over the draws and clusterings, is at most 0.02 lower by sketches. Without
CONTENTS generated pages are taken, which are so short that nothing can be lost.
"""

import argparse
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from benchmarks.common import exit_code, machine, printed, verdict
from scrapy_gp4c.page_state.groupings import PageGroups
from scrapy_gp4c.words.descriptions import MOST_TERMS, describe
from tests.support.linked import write_linked
from training.clustering.clusters import (
    CLUSTERS,
    FEATURES,
    PageFeatures,
    cluster,
    counted_words,
    counts_of,
    sketched_words,
)
from training.comparing.trials import try_policy
from training.histories.contents import ContentHistory, read_contents
from training.histories.history import addresses_of
from training.histories.links import links_of
from training.histories.reading import coarsened
from training.papers.tan import TYPICAL
from training.replaying.prepared import CrawlChoices

POLICY: Final = "cb(in_flight=1)"
MOST_LOST: Final = 0.02
PAGES: Final = 200
"""Number of pages of a generated file."""


def features_by_words(contents: ContentHistory) -> dict[str, PageFeatures]:
    """Features of the pages in cycle 0 by kind of words: all words, or those of their sketches."""
    history, texts = contents.history, contents.texts_at(0)
    known = [text or "" for text in texts]
    links = links_of(history, texts)
    all_words = PageFeatures(addresses_of(history), counted_words(known), counts_of(known), links)
    sketched: Any = sketched_words([describe(text, [], 0, 0) for text in known])
    return {"all words": all_words, f"sketches of {MOST_TERMS}": all_words._replace(terms=sketched)}


def change_rates(contents: ContentHistory, pages: PageFeatures, clusterings: int, seeds: int) -> list[float]:
    """Change rate of ``cb(in_flight=1)`` with each of several clusterings."""
    history = coarsened(contents, TYPICAL.weeks)
    crawl = CrawlChoices(TYPICAL.budget, warmup=0, seed=1)
    clusters = min(CLUSTERS, history.pages // 10)
    rates = []
    for seed in range(clusterings):
        label, order = cluster(pages, clusters, FEATURES, seed)
        clustered = replace(history)
        clustered.neighbours.groups_by_content = PageGroups(label, order, pages.links, "")
        rates.append(float(try_policy(clustered, POLICY, crawl, seeds).mean("change_rate").mean))
    return rates


def main(arguments: Sequence[str] | None = None) -> int:
    """Replay and print; 1 when the target is missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sketches", description=__doc__.split("\n")[0])
    parser.add_argument("contents", nargs="?", help="file of contents (default: generated pages)")
    parser.add_argument("--clusterings", type=int, default=3, help="seeds of the clustering")
    parser.add_argument("--seeds", type=int, default=5, help="seeds of the draws")
    options = parser.parse_args(arguments)
    print(machine(("numpy", "scikit-learn")))
    with tempfile.TemporaryDirectory() as folder:
        contents = read_contents(options.contents or write_linked(Path(folder, "contents.jsonl"), PAGES))
    means = []
    for name, pages in features_by_words(contents).items():
        rates = change_rates(contents, pages, options.clusterings, options.seeds)
        print(f"{POLICY} by {name}: {', '.join(f'{rate:.3f}' for rate in rates)}; mean {np.mean(rates):.4f}")
        means.append(printed(float(np.mean(rates)), ".4f"))
    full, sketched = means
    return exit_code(verdict("lost by sketches", full - sketched, MOST_LOST, at_least=False))


if __name__ == "__main__":
    sys.exit(main())
