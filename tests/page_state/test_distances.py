"""How far pages are from each other by clusters and links: the definitions, worked out by hand."""

from __future__ import annotations

from collections import deque

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from scrapy_gp4c.page_state import popularity
from scrapy_gp4c.page_state.distances import ClusterRanks, Links


def test_links_of_the_figure() -> None:
    """Siblings are at 0 though there is a path to them; links are followed, or gone against."""
    # 0 links to the seed 1 and to 5; the seed to 4, 5 and 6, of which 4 links to 7; 8 links to nobody.
    links = Links(np.array([0, 0, 1, 1, 1, 4]), np.array([1, 5, 4, 5, 6, 7]), 9)
    assert [ring.tolist() for ring in links.rings(1, 2)] == [[1, 5], [4, 6], [7]]
    assert [ring.tolist() for ring in links.rings(1, -1)] == [[1, 5], [0]]
    assert [ring.tolist() for ring in links.rings(8, 1)] == [[8], []]


@given(
    pairs=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=25),
    seed=st.integers(0, 9),
    d=st.integers(-4, 4),
)
def test_links_are_followed_breadth_first(pairs: list[tuple[int, int]], seed: int, d: int) -> None:
    """Equation 1 in plain Python."""
    edges = sorted({(a, b) for a, b in pairs if a != b})
    links = Links(np.array([a for a, _ in edges], int), np.array([b for _, b in edges], int), 10)
    parents = [a for a, b in edges if b == seed]
    siblings = {b for a, b in edges if a in parents} - {seed}
    hops, todo = {seed: 0}, deque([seed])
    while todo:
        page = todo.popleft()
        for a, b in edges if d > 0 else [(b, a) for a, b in edges]:
            if a == page and b not in hops:
                hops[b] = hops[page] + 1
                todo.append(b)
    rings = [set(ring.tolist()) for ring in links.rings(seed, d)]
    assert rings[0] == siblings | {seed}
    for at in range(1, abs(d) + 1):
        assert rings[at] == {page for page, hop in hops.items() if hop == at} - siblings


def test_page_rank() -> None:
    """Equation 9: two pages that link to a third, which links back to the first; a fourth without links."""
    rank = Links(np.array([0, 1, 2]), np.array([2, 2, 0]), 4).page_rank()
    base = 0.15 / 4 + 0.85 * rank[3] / 4
    expected = [base + 0.85 * rank[2], base, base + 0.85 * (rank[0] + rank[1]), base]
    assert np.allclose(rank, expected)
    assert abs(rank.sum() - 1.0) < 1e-12


def test_popularity_is_the_logarithm_from_0_to_10() -> None:
    """Zeros are least popular; where all others are equal, so are they."""
    assert popularity.of_values(np.array([1.0, 10.0, 100.0, 0.0, 1e10])).tolist() == [0, 1, 2, 0, 10]
    assert popularity.of_values(np.array([3.0, 0.0, 3.0])).tolist() == [0, 0, 0]


def test_clusters_by_rank() -> None:
    """Its own cluster, then the nearest ones; a negative d means its own alone."""
    ranks = ClusterRanks(np.array([[0, 2, 1], [1, 2, 0], [2, 1, 0]]))
    assert [ring.tolist() for ring in ranks.rings(1, 1)] == [[1], [2]]
    assert [ring.tolist() for ring in ranks.rings(1, -3)] == [[1]]
