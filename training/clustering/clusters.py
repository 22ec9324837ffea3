"""Clusters of pages that are alike (Tan et al. 2007, section 4.3), by repeated bisection.

Words would outweigh all other features: so the pages are clustered by them first, and of that a page's
features keep how near its cluster is to each of the ten largest. The paper leaves open, and we take: 100
clusters at first, at most a tenth of the pages; counts as log(1 + x); every feature with mean 0 and
variance 1.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.arrays import Floats
from scrapy_gp4c.errors import HistoryError
from scrapy_gp4c.page_state.groupings import Links, PageGroups
from training.clustering.groups_file import identity_of
from training.histories.contents import ContentHistory
from training.histories.history import addresses_of, depth_of, domain_of
from training.histories.neighbours import Regrouping

_MARKDOWN: Final = re.compile(r"(!?)\[[^\]\n]*\]\(\s*<?([^)\s>]+)")
_REST: Final = re.compile(r":(doc|pep):`(?:[^`<]*<)?([^`>]+)>?`")
_ENDINGS: Final = ("", ".md", ".rst", ".mdx", ".html", "/index.md", "/_index.md", "/README.md", "/index.rst")


def count_images(text: str) -> int:
    """Images of a Markdown or reST source."""
    return len([1 for match in _MARKDOWN.finditer(text) if match[1]]) + text.count(".. image::")


def targets(text: str) -> Iterator[str]:
    """Yield what a source links to, as it is written there."""
    for match in _MARKDOWN.finditer(text):
        if not match[1] and "://" not in match[2]:
            yield match[2].partition("#")[0].partition("?")[0]
    for match in _REST.finditer(text):
        yield f"pep-{match[2].strip():0>4}" if match[1] == "pep" else match[2].strip()


def links_of(sites: Sequence[int], pages: Sequence[str], texts: Sequence[str | None]) -> Links:
    """The links between pages, each once, none from a page to itself."""
    known = {(site, page): number for number, (site, page) in enumerate(zip(sites, pages, strict=True))}
    links: set[tuple[int, int]] = set()
    for source, (site, page, text) in enumerate(zip(sites, pages, texts, strict=True)):
        folder = posixpath.dirname(page)
        for target in targets(text or ""):
            is_rooted = target.startswith("/")
            path = posixpath.normpath(target.lstrip("/") if is_rooted else posixpath.join(folder, target))
            number = next(
                (known[site, path + end] for end in _ENDINGS if (site, path + end) in known), source
            )
            if number != source:
                links.add((source, number))
    pairs = np.array(sorted(links), np.intp).reshape(-1, 2)
    return Links(np.ascontiguousarray(pairs[:, 0]), np.ascontiguousarray(pairs[:, 1]), len(pages))


FEATURES: Final = ("content", "url", "page", "links")
"""Features that every source of pages has."""
HISTORY: Final = "history"
"""Features that a store has besides: visits, changes, rates."""
CLUSTERS: Final = 100
"""Where nobody says how many."""
FIRST_CLUSTERS: Final = 100
DIMENSIONS: Final = 10
MOST_WORDS: Final = 2**15
COMPONENTS: Final = 50
"""Dimensions that the tf-idf of words is projected on before it is clustered."""
_WORD: Final = re.compile(r"\w+")


class PageFeatures(NamedTuple):
    """Features by which P pages are clustered."""

    urls: Sequence[str]
    """``[P]``, without scheme."""
    terms: Any
    """Sparse ``[P, T]``: how often each word stands in each page."""
    counts: Floats
    """``[P, 3]``: words, images, bytes."""
    links: Links
    past: Floats | None = None
    """``[P, 3]``: visits, changes, changes per cycle; None: unknown."""


def group_pages(
    contents: ContentHistory, clusters: int = CLUSTERS, features: Sequence[str] = FEATURES, seed: int = 0
) -> PageGroups:
    """Cluster the pages of a file of contents by what they said in cycle 0: no look-ahead.

    Raises HistoryError for more clusters than pages, unknown features, or if scikit-learn is missing.
    """
    return group_texts(contents, contents.texts_at(0), clusters, features, seed)


def group_texts(
    contents: ContentHistory,
    texts: Sequence[str | None],
    clusters: int = CLUSTERS,
    features: Sequence[str] = FEATURES,
    seed: int = 0,
) -> PageGroups:
    """`group_pages` by other texts of the pages, ``[P]``: those that a crawl has copies of, say."""
    history = contents.history
    links = links_of(history.site.tolist(), list(history.page_names or ()), texts)
    known = [text or "" for text in texts]
    page_features = PageFeatures(addresses_of(history), counted_words(known), counts_of(known), links)
    label, order = cluster(page_features, clusters, features, seed)
    return PageGroups(label, order, links, identity_of(history))


def counts_of(texts: Sequence[str]) -> Floats:
    """Words, images and bytes of texts, ``[P, 3]``."""
    counts = [(len(_WORD.findall(text)), count_images(text), len(text.encode())) for text in texts]
    return np.array(counts, np.float64)


def cluster(
    pages: PageFeatures, clusters: int, features: Sequence[str], seed: int
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    """Cluster of each page, ``[P]``, and the clusters by their distance from each, ``[C, C]``."""
    if not 1 <= clusters <= len(pages.urls):
        raise HistoryError(
            f"--clusters: expected from 1 to {len(pages.urls):,}, the number of pages; found {clusters:,}"
        )
    known = FEATURES if pages.past is None else (*FEATURES, HISTORY)
    unknown = [name for name in features if name not in known]
    if unknown or not features:
        raise HistoryError(f"--features: expected some of {','.join(known)}; found {','.join(features)!r}")
    label, centres = bisected(_scaled(_features(pages, features, seed)), clusters, seed)
    return label, nearest(centres)


def _features(pages: PageFeatures, features: Sequence[str], seed: int) -> Floats:
    urls, terms, counts, links, past = pages
    parts: list[Floats] = []
    if "content" in features:
        parts.append(near_largest(terms, seed))
    if "url" in features:
        words = [url.replace("_", " ").replace("/", " ") for url in urls]
        parts.append(near_largest(counted_words(words), seed))
        depth = np.array([[depth_of(url)] for url in urls], np.float64)
        ends = [domain_of(url) for url in urls]
        domains = np.array([[end == known for known in sorted(set(ends))] for end in ends], np.float64)
        parts += [depth, domains[:, : 2 * DIMENSIONS]]
    if "page" in features:
        parts.append(np.log1p(counts))
    if "links" in features:
        degrees = [np.bincount(one, minlength=len(urls)) for one in (links.source, links.target)]
        parts.append(np.log1p(np.stack(degrees, axis=1).astype(np.float64)))
    if HISTORY in features:
        assert past is not None
        parts.append(np.log1p(past))
    return np.concatenate(parts, axis=1)


def counted_words(texts: Sequence[str]) -> Any:
    """Sparse ``[P, T]``: how often each of the most frequent words stands in each text."""
    return _library().text.CountVectorizer(max_features=MOST_WORDS, token_pattern=r"\w+").fit_transform(texts)


def near_largest(terms: Any, seed: int) -> Floats:
    """``[P, 10]``: for each of the ten largest clusters of pages by tf-idf, the rank of a page's own cluster
    among all by the distance of its centroid: 0 for its own, 1 for the nearest."""
    learn = _library()
    vectors = learn.text.TfidfTransformer().fit_transform(terms)
    pages = vectors.shape[0]
    components = min(COMPONENTS, vectors.shape[1] - 1, pages - 1)
    if components >= 1:
        vectors = learn.decomposition.TruncatedSVD(components, random_state=seed).fit_transform(vectors)
    else:
        vectors = vectors.toarray()
    clusters = max(1, min(FIRST_CLUSTERS, pages // 10))
    label, centres = bisected(np.asarray(vectors, np.float64), clusters, seed)
    rank = np.argsort(nearest(centres), axis=1)  # [from, to]
    largest = np.argsort(-np.bincount(label, minlength=len(centres)), kind="stable")[:DIMENSIONS]
    return np.asarray(rank[largest][:, label].T, np.float64)


def bisected(points: Floats, clusters: int, seed: int) -> tuple[npt.NDArray[np.int32], Floats]:
    """Cluster of each point, ``[P]``, and the centroids, by repeated bisection of the largest inertia.

    There are fewer clusters where fewer points differ: equal ones cannot be told apart.
    """
    model = _library().cluster.BisectingKMeans(
        min(clusters, len(np.unique(points, axis=0))),
        random_state=seed,
        n_init=1,
        bisecting_strategy="biggest_inertia",
    )
    label = model.fit_predict(points)
    return label.astype(np.int32), np.asarray(model.cluster_centers_, np.float64)


def nearest(centres: Floats) -> npt.NDArray[np.int32]:
    """``[C, C]``: of each cluster, all clusters by distance of the centroids, itself first."""
    square = (centres**2).sum(axis=1)
    distance = square[:, None] + square[None, :] - 2.0 * centres @ centres.T
    np.fill_diagonal(distance, -1.0)
    return np.argsort(distance, axis=1, kind="stable").astype(np.int32)


def _scaled(values: Floats) -> Floats:
    spread = values.std(axis=0)
    return np.asarray((values - values.mean(axis=0)) / np.where(spread > 0, spread, 1.0))


class _Learn:
    """The parts of scikit-learn that are used."""

    cluster: Any
    decomposition: Any
    text: Any


def _library() -> type[_Learn]:
    try:
        from sklearn import cluster, decomposition
        from sklearn.feature_extraction import text
    except ImportError as error:
        raise HistoryError(
            "clusters need scikit-learn, which is missing: pip install 'scrapy-gp4c[cluster]'"
        ) from error
    _Learn.cluster, _Learn.decomposition, _Learn.text = cluster, decomposition, text
    return _Learn


class RecordedCycles(NamedTuple):
    """Recorded cycles that the cycles of a history stand for."""

    first: int = 0
    """Cycles of the file before the history begins, each of ``every`` recorded ones."""
    every: int = 1
    """Recorded cycles in a cycle of the history."""

    def texts(self, contents: ContentHistory, cycles: npt.NDArray[np.int64]) -> list[str | None]:
        """Text of every page in a cycle of its own, ``[P]``."""
        recorded = (self.first + cycles) * self.every
        versions = contents.version[recorded, np.arange(len(cycles))]
        return [contents.texts[number] for number in versions.tolist()]


def regrouping(
    contents: ContentHistory,
    every_cycles: int,
    cycles: RecordedCycles = RecordedCycles(),  # noqa: B008 (a tuple)
    clusters: int = CLUSTERS,
    features: Sequence[str] = FEATURES,
    seed: int = 0,
) -> Regrouping:
    """Cluster the copies of a replay after every so many cycles; parameters as `clusters.group_pages`."""

    def group(copies: npt.NDArray[np.int64]) -> PageGroups:
        return group_texts(contents, cycles.texts(contents, copies), clusters, features, seed)

    return Regrouping(every_cycles, group)
