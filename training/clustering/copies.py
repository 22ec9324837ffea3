"""Clusters of the pages of a crawl's store, by the descriptions that it keeps of their copies."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from scrapy_gp4c.errors import HistoryError, StoreError
from scrapy_gp4c.page_state.groupings import NOWHERE, Links, PageGroups
from scrapy_gp4c.scoring import rates
from scrapy_gp4c.words.descriptions import Description, link_hash, unpack
from training.clustering.clusters import CLUSTERS, FEATURES, MOST_WORDS, PageFeatures, cluster
from training.histories.names import BATCH, PackedNames

STATE: Final = ("n", "X", "E", "T")


class StoredCopies(NamedTuple):
    """The pages of a store, and the descriptions of those that have one."""

    source: str
    urls: PackedNames
    """``[known]``."""
    keys: npt.NDArray[np.uint64]
    """``[known]``: the pages' own."""
    pages: npt.NDArray[np.intp]
    """``[P]``, ascending: which have a description."""
    packed: list[bytes]
    """``[P]``: descriptions of the pages, packed by `scrapy_gp4c.words.descriptions`."""
    state: dict[str, npt.NDArray[Any]]
    """Columns n, X, E and T, each ``[P]``."""

    @property
    def known(self) -> int:
        """Pages of the store."""
        return len(self.keys)


def read_copies(path: Path) -> StoredCopies:
    """Read them of a store, beside a crawl too; raises HistoryError for what is no store, or damaged."""
    from scrapy_gp4c.store.opening import open_store  # needs lmdb; only a store does

    try:
        with open_store(path, readonly=True) as store:
            urls = PackedNames()
            for start in range(0, store.merged_pages, BATCH):
                stop = min(start + BATCH, store.merged_pages)
                urls.extend([request["url"] for request in store.requests(range(start, stop))])
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
"""Pages that have a word, at least: a word of a single page relates it to no other page."""


def group_copies(
    copies: StoredCopies, clusters: int = CLUSTERS, features: Sequence[str] = FEATURES, seed: int = 0
) -> PageGroups:
    """Cluster the pages of a store; those without a description are in no cluster.

    Raises HistoryError where no page has one, for more clusters than those that have, unknown features, or if
    scikit-learn is missing.
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
    here = np.full(copies.known, NOWHERE)
    here[copies.pages] = np.arange(len(copies.pages))
    between = np.flatnonzero((here[links.source] != NOWHERE) & (here[links.target] != NOWHERE))
    links_within = Links(here[links.source[between]], here[links.target[between]], len(copies.pages))
    urls = [copies.urls[page].partition("://")[2] for page in copies.pages.tolist()]
    page_features = PageFeatures(urls, sketched_words(described), counts, links_within, _past(copies.state))
    label, order = cluster(page_features, clusters, features, seed)
    cluster_of = np.full(copies.known, NOWHERE, np.int32)
    cluster_of[copies.pages] = label
    digest = hashlib.sha256(
        b"".join(one.tobytes() for one in (copies.keys, cluster_of, order, links.source, links.target))
    )
    return PageGroups(cluster_of, order, links, digest.hexdigest()[:16], copies.keys)


def sketched_words(described: Sequence[Description]) -> Any:
    """Sparse ``[P, T]``: how often each of the most frequent words of sketches stands in each page."""
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


def _past(state: Mapping[str, npt.NDArray[Any]]) -> npt.NDArray[np.float64]:
    """Visits, changes found, and changes per cycle, ``[P, 3]``."""
    rate = rates.rate(state["E"].astype(np.float64), state["T"].astype(np.float64))
    return np.stack([state["n"].astype(np.float64), state["X"].astype(np.float64), rate], axis=1)


def links_between(copies: StoredCopies, described: Sequence[Description]) -> Links:
    """Links between known pages of a store, each once, none from a page to itself."""
    hashes = np.fromiter(map(link_hash, copies.urls), np.uint64, copies.known)
    order = np.argsort(hashes, kind="stable")
    size = np.array([len(one.links) for one in described], np.intp)
    source = np.repeat(copies.pages, size)
    wanted = np.concatenate([np.empty(0, np.uint64), *(one.links for one in described)])
    at = np.minimum(np.searchsorted(hashes[order], wanted), max(0, copies.known - 1))
    target: npt.NDArray[np.intp] = order[at] if copies.known else at
    is_link = (hashes[target] == wanted) & (target != source)
    pairs = np.unique(np.stack((source[is_link], target[is_link]), axis=1), axis=0)
    return Links(np.ascontiguousarray(pairs[:, 0]), np.ascontiguousarray(pairs[:, 1]), copies.known)
