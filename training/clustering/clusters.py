"""Clusters of pages that are alike (Tan et al. 2007, section 4.3), by repeated bisection.

Pages are clustered twice, because thousands of words would outweigh all other features. The first clustering
is by words alone: it gives ten features, the nearness of the page's cluster to each of the ten largest ones
(`near_largest`). The second is by these and all other features. Ours, where the paper leaves it open: first
100 clusters, at most a tenth of the pages; counts as log(1 + x); every feature with mean 0 and variance 1.
"""

import hashlib
import re
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.arrays import Floats
from scrapy_gp4c.errors import HistoryError, StoreError
from scrapy_gp4c.page_state.groupings import NOWHERE, Links, PageGroups
from scrapy_gp4c.scoring import rates
from scrapy_gp4c.store.opening import open_store
from scrapy_gp4c.words.descriptions import Description, link_hash, unpack
from training.histories.contents import ContentHistory
from training.histories.history import ChangeHistory, addresses_of, depth_of, domain_of
from training.histories.links import links_of
from training.histories.names import PackedNames
from training.histories.neighbours import Regrouping

_IMAGE: Final = re.compile(r"!\[[^\]\n]*\]\(\s*<?[^)\s>]+|\.\. image::")


def count_images(text: str) -> int:
    """Number of images in a Markdown or reST source."""
    return len(_IMAGE.findall(text))


FEATURES: Final = ("content", "url", "page", "links")
"""Names of the features that pages of any source have."""
HISTORY: Final = "history"
"""Name of the feature that only pages of a store have: visits, changes and change rates."""
CLUSTERS: Final = 100
"""Default number of clusters."""
FIRST_CLUSTERS: Final = 100
DIMENSIONS: Final = 10
MOST_WORDS: Final = 2**15
COMPONENTS: Final = 50
"""Dimensions that the tf-idf of words is projected on before clustering."""
_WORD: Final = re.compile(r"\w+")


class PageFeatures(NamedTuple):
    """Raw data of P pages, from which the features (`FEATURES`, `HISTORY`) are computed."""

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
    contents: ContentHistory,
    clusters: int = CLUSTERS,
    features: Sequence[str] = FEATURES,
    seed: int = 0,
    texts: Sequence[str | None] | None = None,
) -> PageGroups:
    """Make `clusters` clusters of the pages of a file of contents by ``texts``, ``[P]``.

    ``texts``: by default those of cycle 0; ``features``: names of `FEATURES`; ``seed``: seed of the
    clustering. Raises HistoryError for more clusters than pages, unknown features, or if scikit-learn is
    missing.
    """
    history = contents.history
    texts = contents.texts_at(0) if texts is None else texts
    links = links_of(history, texts)
    known = [text or "" for text in texts]
    page_features = PageFeatures(addresses_of(history), counted_words(known), counts_of(known), links)
    label, order = cluster(page_features, clusters, features, seed)
    return PageGroups(label, order, links, identity_of(history))


def counts_of(texts: Sequence[str]) -> Floats:
    counts = [(len(_WORD.findall(text)), count_images(text), len(text.encode())) for text in texts]
    return np.array(counts, np.float64)


def cluster(
    pages: PageFeatures, clusters: int, features: Sequence[str], seed: int
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    """Cluster pages by their features; return each page's cluster, ``[P]``, and the order by `nearest`."""
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
    """Count the most frequent words of all texts in each text: sparse ``[P, T]``."""
    return (
        _library()
        .feature_extraction.text.CountVectorizer(max_features=MOST_WORDS, token_pattern=r"\w+")
        .fit_transform(texts)
    )


def near_largest(terms: Any, seed: int) -> Floats:
    """Rank of each page's cluster by its distance from each of the ten largest clusters: ``[P, 10]``.

    Pages are clustered by the tf-idf of ``terms``, counts of words in pages, ``[P, T]``. Rank 0 is the
    largest cluster itself, 1 the one nearest to it.
    """
    learn = _library()
    vectors = learn.feature_extraction.text.TfidfTransformer().fit_transform(terms)
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
    """Bisect the cluster of largest inertia repeatedly: return each point's cluster, ``[P]``, and centroids.

    There are fewer than ``clusters`` if fewer points are distinct.
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
    """For each cluster, all clusters by the distance of centroids, the nearest (itself) first: ``[C, C]``."""
    square = (centres**2).sum(axis=1)
    distance = square[:, None] + square[None, :] - 2.0 * centres @ centres.T
    np.fill_diagonal(distance, -1.0)
    return np.argsort(distance, axis=1, kind="stable").astype(np.int32)


def _scaled(values: Floats) -> Floats:
    spread = values.std(axis=0)
    return np.asarray((values - values.mean(axis=0)) / np.where(spread > 0, spread, 1.0))


def _library() -> Any:
    try:
        import sklearn.cluster
        import sklearn.decomposition
        import sklearn.feature_extraction.text
    except ImportError as error:
        raise HistoryError(
            "clusters need scikit-learn, which is missing: pip install 'scrapy-gp4c[cluster]'"
        ) from error
    return sklearn


class RecordedCycles(NamedTuple):
    """Mapping from cycles of a history, which may be a part or have longer cycles, to those of its file."""

    first: int = 0
    """Number of cycles, as long as the history's, that the file has before it."""
    every: int = 1
    """Cycles of the file in a cycle of the history."""

    def texts(self, contents: ContentHistory, cycles: npt.NDArray[np.int64]) -> list[str | None]:
        """Text of every page in a cycle of the history of its own: ``cycles``, ``[P]``."""
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
    """Make a `Regrouping`: a replay clusters pages anew by their copies, every ``every_cycles`` cycles.

    ``cycles``: where the replayed history's cycles are in `contents`.
    """

    def group(copies: npt.NDArray[np.int64]) -> PageGroups:
        return group_pages(contents, clusters, features, seed, cycles.texts(contents, copies))

    return Regrouping(every_cycles, group)


STATE: Final = ("n", "X", "E", "T")


class StoredCopies(NamedTuple):
    """Pages of a store, and the stored descriptions (word sketches and links) of their copies."""

    source: str
    urls: PackedNames
    """``[known]``: URLs of all known pages."""
    keys: npt.NDArray[np.uint64]
    """``[known]``: keys of all known pages."""
    pages: npt.NDArray[np.intp]
    """``[P]``: numbers of the pages that have a description, ascending."""
    packed: list[bytes]
    """``[P]``: their descriptions, packed by `scrapy_gp4c.words.descriptions`."""
    state: dict[str, npt.NDArray[Any]]
    """State columns of these pages (keys of `STATE`), each ``[P]``."""

    @property
    def known(self) -> int:
        return len(self.keys)


def read_copies(path: Path) -> StoredCopies:
    """Read the described copies in a store, also during a crawl.

    A description is the packed words of a copy. Raises HistoryError for no store, or a damaged one.
    """
    try:
        with open_store(path, readonly=True) as store:
            urls = PackedNames()
            urls.extend(request["url"] for request in store.each_request(range(store.merged_pages)))
            described_pages = [(page, packed) for page, packed in store.descriptions() if page < len(urls)]
            pages = np.array([page for page, _ in described_pages], np.intp)
            blocks = [block for _, block in store.blocks()]
            columns = {
                name: np.concatenate([np.empty(0, np.uint64), *(block[name] for block in blocks)])
                for name in ("key", *STATE)
            }
    except StoreError as error:
        raise HistoryError(f"{path}: the copies cannot be read: {error}") from error
    state = {name: columns[name][pages] for name in STATE}
    return StoredCopies(
        str(path),
        urls,
        columns["key"].astype(np.uint64),
        pages,
        [packed for _, packed in described_pages],
        state,
    )


LEAST_PAGES: Final = 2
"""A word counts if at least so many pages have it: a word of one page relates it to no other."""


def group_copies(
    copies: StoredCopies, clusters: int = CLUSTERS, features: Sequence[str] = FEATURES, seed: int = 0
) -> PageGroups:
    """Cluster the pages of a store by the descriptions (word sketches, links) of their copies.

    Pages without a description are in no cluster. Raises HistoryError where no page has one, for more
    clusters than described pages, or if scikit-learn is missing.
    """
    if not len(copies.pages):
        raise HistoryError(
            f"{copies.source} has no descriptions of copies to cluster by: a crawl keeps them if its policy "
            "or score function asks for clusters or links (GP4C_POLICY = 'cb', say), from its next visits on"
        )
    try:
        described = [unpack(packed) for packed in copies.packed]
    except ValueError as error:
        raise HistoryError(f"{copies.source} has a description that cannot be read: {error}") from error
    links = links_between(copies, described)
    counts = np.array([one[:3] for one in described], np.float64)
    local = np.full(copies.known, NOWHERE)
    local[copies.pages] = np.arange(len(copies.pages))
    between = np.flatnonzero((local[links.source] != NOWHERE) & (local[links.target] != NOWHERE))
    links_within = Links(local[links.source[between]], local[links.target[between]], len(copies.pages))
    urls = [copies.urls[page].partition("://")[2] for page in copies.pages.tolist()]
    page_features = PageFeatures(
        urls, sketched_words(described), counts, links_within, _history_features(copies.state)
    )
    label, order = cluster(page_features, clusters, features, seed)
    cluster_of = np.full(copies.known, NOWHERE, np.int32)
    cluster_of[copies.pages] = label
    digest = hashlib.sha256(
        b"".join(one.tobytes() for one in (copies.keys, cluster_of, order, links.source, links.target))
    )
    return PageGroups(cluster_of, order, links, digest.hexdigest()[:16], copies.keys)


def sketched_words(described: Sequence[Description]) -> Any:
    """Count in each page's sketch the words that are most frequent over all pages: sparse ``[P, T]``."""
    from scipy.sparse import csr_matrix

    size = np.array([len(one.terms) for one in described])
    terms = np.concatenate([np.empty(0, np.uint32), *(one.terms for one in described)])
    counts = np.concatenate([np.empty(0, np.uint8), *(one.counts for one in described)])
    known, column, pages = np.unique(terms, return_inverse=True, return_counts=True)
    frequent = np.flatnonzero(pages >= min(LEAST_PAGES, len(described)))
    if len(frequent) > MOST_WORDS:
        frequent = np.sort(frequent[np.argsort(-pages[frequent], kind="stable")[:MOST_WORDS]])
    number = np.full(len(known), NOWHERE, np.int32)
    number[frequent] = np.arange(len(frequent))
    is_frequent = number[column] != NOWHERE
    row = np.repeat(np.arange(len(described), dtype=np.int32), size)[is_frequent]
    begin = np.searchsorted(row, np.arange(len(described) + 1))
    shape = len(described), max(1, len(frequent))
    return csr_matrix((counts[is_frequent].astype(np.float32), number[column[is_frequent]], begin), shape)


def _history_features(state: Mapping[str, npt.NDArray[Any]]) -> npt.NDArray[np.float64]:
    """`PageFeatures.past` by the state columns: visits, changes found, changes per cycle, ``[P, 3]``."""
    rate = rates.rate(state["E"].astype(np.float64), state["T"].astype(np.float64))
    return np.stack([state["n"].astype(np.float64), state["X"].astype(np.float64), rate], axis=1)


def links_between(copies: StoredCopies, described: Sequence[Description]) -> Links:
    """Find links from pages with descriptions to known pages, each link once, none to the page itself."""
    hashes = np.fromiter(map(link_hash, copies.urls), np.uint64, copies.known)
    order = np.argsort(hashes, kind="stable")
    size = np.array([len(one.links) for one in described], np.intp)
    source = np.repeat(copies.pages, size)
    link_hashes = np.concatenate([np.empty(0, np.uint64), *(one.links for one in described)])
    nearest = np.minimum(np.searchsorted(hashes[order], link_hashes), max(0, copies.known - 1))
    target: npt.NDArray[np.intp] = order[nearest] if copies.known else nearest
    is_link = (hashes[target] == link_hashes) & (target != source)
    pairs = np.unique(np.stack((source[is_link], target[is_link]), axis=1), axis=0)
    return Links(np.ascontiguousarray(pairs[:, 0]), np.ascontiguousarray(pairs[:, 1]), copies.known)


FORMAT: Final = "gp4c-groups/1"
COMMAND: Final = "python -m training.cluster CONTENTS|STORE -o groups.npz"


def identity_of(history: ChangeHistory) -> str:
    """Digest of the sites and names of a history's pages, in order: equal for histories of the same pages."""
    digest = hashlib.sha256()
    sites = history.site_labels
    for site, page in zip(history.site.tolist(), history.page_names or [""] * history.pages, strict=True):
        digest.update(f"{sites[site]}\t{page}\n".encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


def write_groups(path: Path, groups: PageGroups) -> None:
    """Write a file of groups; raises HistoryError where it cannot."""
    try:
        with open(path, "wb") as file:
            np.savez_compressed(file, allow_pickle=False, format=np.array(FORMAT), **groups.arrays())
    except OSError as error:
        raise HistoryError(f"cannot write {path}: {error.strerror or error}") from error


def read_groups(path: Path, history: ChangeHistory) -> PageGroups:
    """Read the groups of a history's pages from a file of `write_groups`.

    Raises HistoryError for another file, or groups of other pages.
    """
    try:
        with np.load(path, allow_pickle=False) as arrays:
            if str(arrays["format"]) != FORMAT:
                raise ValueError(f"its format is {arrays['format']}")
            groups = PageGroups.of_arrays(arrays)
            if groups.keys is not None and history.key is not None:
                return _of_keys(groups, groups.keys, history.key)
    except OSError as error:
        raise HistoryError(f"cannot read the groups {path}: {error.strerror or error}") from error
    except (ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile, MemoryError) as error:
        raise HistoryError(
            f"{path} is no file of groups ({FORMAT}): {error}; make one with `{COMMAND}`"
        ) from error
    if groups.identity != identity_of(history) or len(groups.cluster) != history.pages:
        raise HistoryError(
            f"{path} has the groups of other pages than those of {history.source}; make its own with "
            f"`{COMMAND}`"
        )
    return groups


def _of_keys(
    groups: PageGroups, keys: npt.NDArray[np.uint64], known_keys: npt.NDArray[np.uint64]
) -> PageGroups:
    """Groups of the pages with ``known_keys``; ValueError if none is in ``keys``, the pages of `groups`."""
    order = np.argsort(keys)
    nearest = order[np.minimum(np.searchsorted(keys[order], known_keys), len(keys) - 1)]
    is_known = keys[nearest] == known_keys
    if not is_known.any():
        raise ValueError("it has the groups of another store's pages")
    return groups.of_pages(np.where(is_known, nearest, NOWHERE))
