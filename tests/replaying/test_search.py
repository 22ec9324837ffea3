"""Counts of terms against counting words, and answers against the definitions, cycle by cycle."""

from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scrapy_gp4c.search import measuring
from scrapy_gp4c.search.measuring import SCORINGS, Postings
from scrapy_gp4c.search.queries import parse_query_log, workload
from scrapy_gp4c.words.tokens import tokens
from tests.support import quality
from tests.support.contents import contents_of, random_pages
from training.histories.contents import ContentHistory
from training.histories.history import ChangeHistory
from training.replaying.search import Corpus, VersionSearch, count, search, statistics_of

TEXTS = st.none() | st.lists(st.sampled_from(("one", "two", "Two", "x-y", "3", "é")), max_size=9).map(
    " ".join
)
PAGES = st.lists(st.lists(TEXTS, min_size=1, max_size=4), min_size=1, max_size=4)


def contents_of_versions(pages: list[list[str | None]]) -> ContentHistory:
    cycles = max(2, max(map(len, pages)))
    first = np.concatenate(([0], np.cumsum([len(page) for page in pages]))).astype(np.int32)
    nth = [np.minimum(np.arange(cycles), len(page) - 1) for page in pages]
    version = (np.array(nth).T + first[:-1]).astype(np.int32)
    history = ChangeHistory(np.diff(version, axis=0) > 0, np.zeros(len(pages), int))
    return ContentHistory(history, version, first, [text for page in pages for text in page])


def documents(corpus: Corpus) -> list[dict[str, int]]:
    """Terms of every version with how often they stand there."""
    name = {number: term for term, number in corpus.number.items()}
    bounds = zip(corpus.start[:-1].tolist(), corpus.start[1:].tolist(), strict=True)
    return [
        {name[term]: tf for term, tf in zip(corpus.term[a:b].tolist(), corpus.tf[a:b].tolist(), strict=True)}
        for a, b in bounds
    ]


@given(PAGES)
def test_every_version_is_counted(pages: list[list[str | None]]) -> None:
    """Terms, lengths, which versions are there, and which version each occurrence is of."""
    contents = contents_of_versions(pages)
    calls: list[None] = []
    corpus = count(contents, lambda: calls.append(None))
    words = [tokens(text or "") for text in contents.texts]
    assert documents(corpus) == [dict(Counter(of_one)) for of_one in words]
    assert corpus.length.tolist() == [len(of_one) for of_one in words]
    assert sorted(corpus.number.values()) == list(range(len(set().union(*words))))
    assert corpus.exists.tolist() == [text is not None for text in contents.texts]
    assert corpus.version.tolist() == [v for v, of_one in enumerate(words) for _ in set(of_one)]
    assert len(calls) == len(words)


@given(PAGES)
def test_differences_are_of_word_shingles_within_a_page(pages: list[list[str | None]]) -> None:
    """By sets of three words in a row, shorter at both ends; a page's first version differs from none."""
    contents = contents_of_versions(pages)

    def shingles(text: str | None) -> set[tuple[str, ...]]:
        words = (text or "").lower().split()
        padded = ["", "", *words, "", ""] if words else []
        return {tuple(padded[i : i + 3]) for i in range(len(padded) - 2)}

    wanted = []
    for page in pages:
        wanted.append(0.0)
        for before, after in pairwise(page):
            one, other = shingles(before), shingles(after)
            wanted.append(1.0 - len(one & other) / len(one | other) if one | other else 0.0)
    assert count(contents).difference.tolist() == pytest.approx(wanted)


@given(PAGES, st.lists(st.sampled_from(("two", "y", "absent", "one", "3")), min_size=1, unique=True))
def test_a_workload_keeps_its_own_terms_alone(pages: list[list[str | None]], terms: list[str]) -> None:
    """In its own numbers; lengths stay those of the whole texts, and all versions stay."""
    full = count(contents_of_versions(pages))
    log = workload({(term,): 1.0 for term in terms})
    part = full.of(log)
    assert part.number == {term: number for number, term in enumerate(terms)}
    assert documents(part) == [
        {t: tf for t, tf in of_one.items() if t in terms} for of_one in documents(full)
    ]
    assert part.length.tolist() == full.length.tolist()
    assert part.difference.tolist() == full.difference.tolist()
    assert len(part.start) == len(full.start)


def test_a_workload_of_strange_terms_leaves_nothing() -> None:
    """The last term of the corpus is not taken for one that is not there."""
    full = count(contents_of_versions([["one two", "two three"]]))
    part = full.of(workload({("absent",): 1.0}))
    assert part.start.tolist() == [0, 0, 0]
    assert len(part.term) == len(part.tf) == len(part.version) == 0


LOG = parse_query_log(["a\t5", "b\t3", "a b\t2", "c d e\t1", "missing\t1"], "log")


def scores_of(one: VersionSearch, scoring: str, corpus, versions: np.ndarray) -> np.ndarray:
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
    result = one.quality(copies)
    clicked = np.zeros(contents.history.pages)
    for cycle, live in enumerate(contents.version):
        tables = [scores_of(one, scoring, corpus, versions) for versions in (copies[cycle], live)]
        assert result[cycle] == pytest.approx(quality.quality(*tables, LOG.frequency), abs=1e-12)
        if cycle:
            clicked += LOG.frequency @ measuring.inspection(quality.ranks(tables[1]))
    assert result.min() < 1.0
    assert one.quality(contents.version).tolist() == [1.0] * len(result)
    assert one.quality(copies[-2:]).tolist() == pytest.approx(result[-2:].tolist(), abs=1e-15)
    assert one.clicks(len(result) - 1) == pytest.approx(clicked / (len(result) - 1), abs=1e-12)
