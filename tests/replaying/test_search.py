"""The answers to a workload over all versions: the same as the definitions give week by week."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from scrapy_gp4c.index import quality
from scrapy_gp4c.index.queries import parse_query_log
from scrapy_gp4c.index.scores import SCORINGS, Postings
from scrapy_gp4c.words.tokens import tokens
from tests.support.contents import contents_of, random_pages
from training.replaying.corpus import count
from training.replaying.search import Search, search, statistics_of

LOG = parse_query_log(["a\t5", "b\t3", "a b\t2", "c d e\t1", "missing\t1"], "log")


def scores_of(one: Search, scoring: str, corpus, versions: np.ndarray) -> np.ndarray:
    """S of all queries and pages, told from the texts: ``[Q, P]``."""
    out = np.zeros((len(LOG.queries), len(versions)))
    statistics = statistics_of(corpus)
    for p, version in enumerate(versions.tolist()):
        words = tokens(corpus.contents.texts[version] or "")
        for q, query in enumerate(LOG.queries):
            terms = [LOG.terms[term] for term in query]
            if set(terms) <= set(words):
                tf = np.array([words.count(term) for term in terms])
                postings = Postings(np.array(query), tf, np.full(len(query), len(words)), 1.0 + p)
                share = SCORINGS[scoring].share(np.array(query), statistics)
                out[q, p] = share @ SCORINGS[scoring].single(postings, statistics)
    return out


@pytest.mark.parametrize("scoring", SCORINGS)
def test_quality_of_every_cycle_is_as_defined(tmp_path: Path, scoring: str) -> None:
    """Copies of any age, pages that are gone, ties; clicks too."""
    contents = contents_of(tmp_path, random_pages(7))
    corpus = count(contents).of(LOG)
    importance = 1.0 + np.arange(contents.history.pages)
    one = search(corpus, LOG, scoring, importance if scoring == "inlinks" else None)
    rng = np.random.default_rng(1)
    cycles = np.arange(len(contents.version))[:, None]
    seen = np.minimum(rng.integers(0, len(cycles), contents.version.shape), cycles)
    copies = np.take_along_axis(contents.version, np.maximum.accumulate(seen, axis=0), axis=0)
    found = one.quality(copies)
    clicked = np.zeros(contents.history.pages)
    for cycle, live in enumerate(contents.version):
        tables = [scores_of(one, scoring, corpus, versions) for versions in (copies[cycle], live)]
        assert found[cycle] == pytest.approx(quality.quality(*tables, LOG.frequency), abs=1e-12)
        if cycle:
            clicked += LOG.frequency @ quality.inspection(quality.ranks(tables[1]))
    assert found.min() < 1.0
    assert one.quality(contents.version).tolist() == [1.0] * len(found)
    assert one.quality(copies[-2:]).tolist() == pytest.approx(found[-2:].tolist(), abs=1e-15)
    assert one.clicks(len(found) - 1) == pytest.approx(clicked / (len(found) - 1), abs=1e-12)
