"""What a crawl tells policies of its pages: the tree of directories, made of a store's pages."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scrapy_gp4c.crawling import surroundings
from scrapy_gp4c.crawling.surroundings import Surroundings
from scrapy_gp4c.page_state import groupings
from scrapy_gp4c.page_state.groups import place_of_url
from scrapy_gp4c.store.lmdb_store.sizes import Sizes
from scrapy_gp4c.store.lmdb_store.store import Store

PATHS = st.lists(st.sampled_from("ab"), max_size=2).map(lambda names: "".join(f"{name}/" for name in names))
SITES = st.sampled_from(["x.example", "y.example"])


@given(st.lists(st.tuples(SITES, PATHS), min_size=1, max_size=30), st.sampled_from([1, 3, 1_000]))
@settings(max_examples=25, deadline=None)
def test_the_tree_of_a_store_is_that_of_its_urls(
    tmp_path_factory: pytest.TempPathFactory, places: list[tuple[str, str]], size: int
) -> None:
    """Of one page of each directory: the first one, wherever a slice of the pages or a block ends."""
    urls = [f"http://{site}/{path}{page}.html" for page, (site, path) in enumerate(places)]
    path = Path(tmp_path_factory.mktemp("tree"), "store")
    with pytest.MonkeyPatch.context() as patch, Store(path, sizes=Sizes(block_rows=4)) as store:
        patch.setattr(surroundings, "SLICE", size)
        patch.setattr(surroundings, "REQUESTS", size)
        store.add_pages((page + 1, {"url": url}) for page, url in enumerate(urls))
        found = Surroundings(store, 1, ()).grouping("tree")
    told = [place_of_url(url) for url in urls]
    known = list(dict.fromkeys(told))
    number = np.array([known.index(place) for place in told])
    expected = groupings.tree_of_directories(number, [(place.site, place.directory) for place in known])
    assert found.number.tolist() == expected.number.tolist()
    assert found.groups == expected.groups
    for page in range(len(urls)):
        for d in (-3, 3):
            rings = [[ring.tolist() for ring in one.rings(page, d)] for one in (found, expected)]
            assert rings[0] == rings[1]
